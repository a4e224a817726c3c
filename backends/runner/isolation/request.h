/* A command as it is asked for, and what of its isolation the kernel gives. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_REQUEST_H
#define SANDBOXFS_RUNNER_ISOLATION_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/cgroup.h"
#include "sandboxfs/commands.h"
#include "sandboxfs/identity.h"

enum {
	SPAWN_HAS_STDIN = 1 << 0,
	SPAWN_IN_MEMFD = 1 << 1,
	SPAWN_OVERLAID = 1 << 2, /* the tree is the room's, not what lies at workdir */
	SPAWN_AS_SOURCE = 1 << 3,
	/* home, repository, /tmp and /dev/shm are on the room's disk, where they are there */
	SPAWN_ON_DISK = 1 << 4,
};

/*
 * Followed by the payload: NUL-terminated strings in the order id, workdir, view, ro, rw, over,
 * cwd, program ("" for none), argv, env. Of SPAWN_FORGET: the id. Of SPAWN_MOUNTER: bases, trees
 * (mounter.h). Descriptors: [stdin], stdout, stderr, [memfd with the payload]; of SPAWN_FORGET one
 * that is closed when it is done; of SPAWN_MOUNTER its socket.
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

/* A decoded SPAWN_EXEC. The strings lie in buf. */
struct spawn_request {
	struct spawn_command cmd;
	char *buf;
	size_t place_len; /* of the part of buf that describes the place, up to the last of over */
	char **words;     /* backs the lists */
	const char *id, *workdir, *view, *cwd, *program;
	char **ro, **rw, **over, **argv, **env; /* each NULL-terminated */
};

enum spawn_sockets {
	SPAWN_SOCKETS_OPEN,
	SPAWN_SOCKETS_COVERED, /* those that the kernel names when a command starts */
	SPAWN_SOCKETS_CLOSED,  /* by the kernel, all of them */
};

/* The isolation in force, as found by trying. */
struct spawn_features {
	struct sbx_identity who; /* as whom commands run */
	bool become;             /* and that is not who we are: we are root */
	bool owners;             /* the tree's owner can appear as WHO */
	bool memory_owners;      /* so can that of a file system in memory */
	bool isolated;           /* false: isolation=none, and none of what follows */
	bool user_ns, pid_ns, mount_ns, net_ns;
	bool seccomp;
	struct sbx_cgroup_features cgroup;
	int landlock;               /* its ABI, 0: none */
	enum spawn_sockets sockets; /* of others, below what is shown read only */
	int groupless;              /* the spawner's: for mounts that close sockets, or -1 */
	char reason[256];           /* why it is not more; "" when nothing is missing */
};

/* Whether memory_mb of a job as a whole is for its init to see to. */
static inline bool spawn_watches(const struct spawn_features *features)
{
	return features->user_ns && features->pid_ns && features->mount_ns &&
	       !features->cgroup.memory;
}

#endif
