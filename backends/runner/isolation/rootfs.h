/*
 * The mounts of a view. Called in a process that is alone in new mount and pid
 * namespaces and ends afterwards.
 */
#ifndef SANDBOXFS_RUNNER_ISOLATION_ROOTFS_H
#define SANDBOXFS_RUNNER_ISOLATION_ROOTFS_H

#include <stdbool.h>

#include "backends/runner/isolation/mounter.h"
#include "backends/runner/isolation/request.h"
#include "backends/runner/isolation/settings.h"
#include "sandboxfs/identity.h"

/* Detached mounts, -1: none. */
struct mounts_given {
	int tree; /* WHO's already, to be seen as the tree; none: what lies at workdir */
	int disk[DISK_PLACES]; /* to be seen as the first two of rw, as /tmp and /dev/shm */
};

#define MOUNTS_GIVEN_NONE ((struct mounts_given){.tree = -1, .disk = {-1, -1, -1, -1}})

struct mounts_options {
	const struct isolation_settings *settings;
	const struct spawn_request *req; /* NULL: a trial, without a tree */
	struct mounts_given given;
	const struct sbx_identity *who;
	int groupless;        /* as userns_make_without_groups, or -1 */
	char *const *sockets; /* as mounts_cover_sockets; or NULL */
};

struct mounts_made {
	const char *what; /* the step that failed */
	bool closed;      /* no socket of the host's below what is read only can be connected to */
};

/*
 * Makes the mount namespace show what a command of REQ may see, and nothing else of the host.
 * In the places of REQ whoever owns the place on disk appears as WHO, and is whom WHO's files
 * belong to on disk. Returns 0 or a negative errno.
 */
int mounts_build(const struct mounts_options *options, struct mounts_made *ret);

/*
 * Puts something else over each of SOCKETS, NULL-terminated, that is a socket where the calling
 * process looks: in a view. 0 or a negative errno.
 */
int mounts_cover_sockets(char *const *sockets);

/*
 * Whether what lies at PATH, or in the nearest directory above it that exists, can appear as WHO's:
 * 0, or a negative errno (EINVAL: the file system cannot). For root; leaves nothing behind.
 */
int mounts_try_owner(const char *path, const struct sbx_identity *who);
/* The same of a file system in memory. */
int mounts_try_memory(const struct sbx_identity *who);

#endif
