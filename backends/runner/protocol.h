/*
 * What daemon, spawner and init say to each other. One SOCK_SEQPACKET pair: the daemon
 * holds one end; the spawner and the init of every job share the other, so the daemon
 * reads end-of-file exactly when none of them is left. All three are one program, forked:
 * the structs travel as they are.
 */
#ifndef SANDBOXFS_RUNNER_PROTOCOL_H
#define SANDBOXFS_RUNNER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandboxfs/cgroup.h"
#include "sandboxfs/exec.h"
#include "sandboxfs/identity.h"
#include "sandboxfs/spawner.h"

#define SPAWN_INLINE ((size_t)16 * 1024)       /* longer payloads travel in a memfd */
#define SPAWN_MAX    ((size_t)8 * 1024 * 1024) /* of one payload; the kernel's argv limit is 6 MiB */
#define SPAWN_FDS    4                         /* stdin, stdout, stderr, memfd */
#define SPAWN_NAME   16                        /* of a process, with its NUL: TASK_COMM_LEN */

/* daemon -> spawner */
enum spawn_verb { SPAWN_EXEC, SPAWN_SIGNAL, SPAWN_FORGET, SPAWN_ROOM };

enum {
	SPAWN_HAS_STDIN = 1 << 0,
	SPAWN_IN_MEMFD = 1 << 1,
	SPAWN_LAYERED = 1 << 2, /* the tree is the room's, not what lies at workdir */
	SPAWN_AS_SOURCE = 1 << 3,
	SPAWN_ON_DISK =
	        1
	        << 4, /* home, repository, /tmp and /dev/shm are on the room's disk, where they are there */
};

/*
 * Followed by the payload: NUL-terminated strings in the order id, workdir, view, ro, rw, over, cwd,
 * program ("" for none), argv, env. Of SPAWN_FORGET: the id. Of SPAWN_ROOM: bases, trees (backends/runner/isolation/mounter.h).
 * Descriptors: [stdin], stdout, stderr, [memfd with the payload]; of SPAWN_FORGET one that is
 * closed when it is done; of SPAWN_ROOM its socket.
 */
struct spawn_command {
	uint32_t verb;
	uint32_t flags;
	uint64_t job;
	uint64_t payload; /* bytes */
	int32_t sig;
	uint32_t n_ro, n_rw, n_over, n_argv, n_env;
	struct sbx_limits limits;
};

/* spawner or init -> daemon */
enum spawn_event {
	SPAWN_HELLO,     /* the spawner works, or (code) why it does not */
	SPAWN_STARTED,   /* the command was executed: code is init's pid, as the spawner sees it */
	SPAWN_FAILED,    /* it could not be: code is an errno, stage says where; the job is over */
	SPAWN_ENDED,     /* the leader ended: code is its wait status. !remain: the job is over */
	SPAWN_GONE,      /* init was killed, and everything with it: the job is over */
	SPAWN_LISTENING, /* with a descriptor: the job's sandbox has a new way out */
	SPAWN_REFUSED,   /* the filter refused the system call CODE; -1: REFUSED.MORE others */
	SPAWN_TRIED, /* the job's first attempt to get out by REFUSED.to, where there is no way */
};

enum spawn_stage {
	SPAWN_AT_FORK,
	SPAWN_AT_VIEW,
	SPAWN_AT_LIMITS,
	SPAWN_AT_RIGHTS,
	SPAWN_AT_CWD,
	SPAWN_AT_EXEC,
	SPAWN_AT_INTERPRETER, /* the file is there, what its first line names is not */
};

struct spawn_report {
	uint32_t event;
	uint32_t stage;
	uint64_t job;
	int32_t code;
	uint32_t remain;
	uint32_t oom; /* it ended for want of memory */
	union {
		struct {
			uint64_t user_us, sys_us, max_rss_kb;
		};
		struct {
			char program[SPAWN_NAME]; /* "": not known */
			uint32_t more;
			uint16_t family; /* of TO: AF_INET, AF_INET6, 0: not known */
			uint16_t port;   /* of TO */
			uint8_t to[16];  /* in the order of the network */
		} refused;
	};
};

enum spawn_sockets {
	SPAWN_SOCKETS_OPEN,
	SPAWN_SOCKETS_COVERED, /* those that the kernel names when a command starts */
	SPAWN_SOCKETS_CLOSED,  /* by the kernel, all of them */
};

/* What is in force, as found by trying. */
struct spawn_powers {
	struct sbx_identity who; /* as whom commands run */
	bool become;             /* and that is not who we are: we are root */
	bool owners;             /* the tree's owner can appear as WHO */
	bool memory_owners;      /* so can that of a file system in memory */
	bool isolated;           /* false: isolation=none, and none of what follows */
	bool user_ns, pid_ns, mount_ns, net_ns;
	bool seccomp;
	struct sbx_cgroup_powers cgroup;
	int landlock;               /* its ABI, 0: none */
	enum spawn_sockets sockets; /* of others, below what is shown read only */
	int groupless;              /* the spawner's: for mounts that close sockets, or -1 */
	char reason[256];           /* why it is not more; "" when nothing is missing */
};

/* Whether memory_mb of a job as a whole is for its init to see to. */
static inline bool spawn_watches(const struct spawn_powers *powers)
{
	return powers->user_ns && powers->pid_ns && powers->mount_ns && !powers->cgroup.memory;
}

struct spawn_hello {
	struct spawn_report report;
	struct spawn_powers powers;
};

#define SPAWN_MESSAGE (SPAWN_INLINE + sizeof(struct spawn_command))

/* What the spawner got from the daemon: the command, then its payload. */
struct spawn_message {
	char *bytes; /* SPAWN_MESSAGE of them, the caller's; aligned for a command */
	size_t len;
	int fds[SPAWN_FDS]; /* -1: none */
};

/* A decoded SPAWN_EXEC. The strings lie in buf. */
struct spawn_request {
	struct spawn_command cmd;
	char *buf;
	size_t place_len; /* of the part of buf that describes the place, up to the last of over */
	char **words;     /* backs the lists */
	const char *id, *workdir, *view, *cwd, *program;
	char **ro, **rw, **over, **argv, **env; /* each NULL-terminated */
};

/*
 * Fills CMD's counts and writes the payload to *ret (malloc'd). -E2BIG past SPAWN_MAX, -ENOMEM.
 */
int spawn_encode(const struct sbx_place *place, const struct sbx_exec *spec,
                 struct spawn_command *cmd, char **ret);
/* One message with descriptors, without waiting. 0 or a negative errno; -EAGAIN: not now. */
int spawn_send(int sock, const void *bytes, size_t len, const int *fds, int n_fds);
/*
 * One message; FLAGS as of recvmsg(2). 0 or a negative errno; -EPIPE when the other end is closed, -EPROTO
 * what is no command. Descriptors are the caller's, whatever the answer.
 */
int spawn_receive(int sock, int flags, struct spawn_message *ret);
/*
 * Takes the command of MSG, a SPAWN_EXEC, apart. -EPROTO when counts and strings disagree,
 * -EMFILE when the descriptors did not come along, -ENOMEM.
 */
int spawn_decode(const struct spawn_message *msg, struct spawn_request *ret);
/* Where in MSG's descriptors that of STREAM (0 to 2) is; -1: nowhere. */
int spawn_stream(const struct spawn_message *msg, int stream);
/* Frees memory. */
void spawn_request_finish(struct spawn_request *req);

struct cgroup;

/*
 * The spawner process: serves FD, the child of DAEMON, until it is closed, then ends everything. Jobs
 * are put into GROUP.
 */
_Noreturn void spawner_main(int fd, const struct sbx_settings *settings, pid_t daemon,
                            struct cgroup *group);

#endif
