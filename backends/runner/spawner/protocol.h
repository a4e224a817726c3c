/*
 * The messages between daemon, spawner and init, on one SOCK_SEQPACKET pair. The daemon holds one
 * end; the spawner and the init of every job share the other, so the daemon reads end-of-file
 * exactly when none of them is left. The structs travel as they are, because all three are of one
 * build; that is checked first.
 */
#ifndef SANDBOXFS_RUNNER_SPAWNER_PROTOCOL_H
#define SANDBOXFS_RUNNER_SPAWNER_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/runner/isolation/request.h"
#include "backends/runner/isolation/settings.h"
#include "backends/support/program.h"
#include "sandboxfs/spawner.h"

#define SPAWN_SOCKET SBX_PROGRAM_SOCKET  /* the descriptor of the spawner's end */
#define SPAWN_INLINE ((size_t)16 * 1024) /* longer payloads travel in a memfd */
/* Of one payload, in bytes; the limit of the kernel for an argv is 6 MiB. */
#define SPAWN_MAX  ((size_t)8 * 1024 * 1024)
#define SPAWN_FDS  4  /* stdin, stdout, stderr, memfd */
#define SPAWN_NAME 16 /* of a process, with its NUL: TASK_COMM_LEN */

/* daemon -> spawner, after the first message */
enum spawn_verb { SPAWN_EXEC, SPAWN_SIGNAL, SPAWN_FORGET, SPAWN_MOUNTER };

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

/* With which the first message of each side begins. The version counts the protocol's changes too.
 */
struct spawn_build {
	char version[48];
	uint32_t sizes[4]; /* of what travels: a change that was not counted */
};

/* Ours. */
extern const struct spawn_build spawn_build;

/*
 * The first message there. Descriptors: a memfd with the payload, NUL-terminated strings in the
 * order isolation, net, mountpoint, state_dir, source_abs, cache_dir ("" for none), shown, covered,
 * ro_paths, rw_paths, hide_paths; then the cgroup of the mount, where there is one.
 */
struct spawn_start {
	struct spawn_build build;
	int32_t daemon;          /* its pid */
	struct sbx_identity who; /* as whom commands run */
	struct sbx_cgroup_features cgroup;
	uint64_t payload; /* bytes */
	uint64_t memory_mb, cpu_percent;
	uint32_t n_shown, n_covered, n_ro, n_rw, n_hide;
};

/* The answer to it. */
struct spawn_hello {
	struct spawn_build build;
	struct spawn_report report;
	struct spawn_features features;
};

#define SPAWN_MESSAGE (SPAWN_INLINE + sizeof(struct spawn_command))

/* A message from the daemon to the spawner: the command, then its payload. */
struct spawn_message {
	char *bytes; /* SPAWN_MESSAGE of them, the caller's; aligned for a command */
	size_t len;
	int fds[SPAWN_FDS]; /* -1: none */
};

/*
 * Fills CMD's counts and writes the payload to *ret (malloc'd). -E2BIG past SPAWN_MAX, -ENOMEM.
 */
int spawn_encode(const struct sbx_place *place, const struct sbx_exec *spec,
                 struct spawn_command *cmd, char **ret);
/* Whether MESSAGE, of LEN bytes, begins with our build. */
bool spawn_is_our_build(const void *message, size_t len);
/* Fills START's counts and limits and writes its payload to a memfd, *ret. 0 or a negative errno.
 */
int spawn_encode_settings(const struct sbx_settings *settings, struct spawn_start *start, int *ret);
/*
 * Decodes the payload of START from FD. -EPROTO when counts and strings disagree, or another
 * negative errno: then there is nothing to release.
 */
int spawn_decode_settings(const struct spawn_start *start, int fd, struct isolation_settings *ret);
/* Frees the strings. */
void spawn_settings_release(struct isolation_settings *settings);
/* A memfd with LEN bytes of PAYLOAD, in *ret. 0 or a negative errno. */
int spawn_memfd(const char *payload, size_t len, int *ret);
/*
 * One message; FLAGS as of recvmsg(2). 0 or a negative errno; -EPIPE when the other end is closed,
 * -EPROTO what is no command. Descriptors are the caller's, whatever the answer.
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

#endif
