/*
 * The control groups of a mount: HOST/sandboxfs.N/box-ID/job-N, and HOST/sandboxfs.N/self for
 * ourselves, whose being there tells a living mount from one that was killed.
 *
 * HOST is the cgroup we were started in when nobody else is in it, as it is in a scope or a service
 * with Delegate=yes (we then move to self, since a cgroup with children that are limited may hold
 * no process), or at the root of the hierarchy; else the nearest around it that is ours to write
 * and has the controllers switched on. All files are reached through directory descriptors.
 */
#ifndef SANDBOXFS_RUNNER_ISOLATION_CGROUP_H
#define SANDBOXFS_RUNNER_ISOLATION_CGROUP_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/runner/isolation/settings.h"
#include "sandboxfs/cgroup.h"

/* The calls by which cgroups are changed; tests imitate them. All return 0 or a negative errno. */
struct cgroup_kernel {
	int (*make)(int dirfd, const char *path);   /* as mkdirat(2) */
	int (*remove)(int dirfd, const char *path); /* as unlinkat(2) of a directory */
	int (*write)(int dirfd, const char *file, const char *text); /* in one write(2) */
};
extern const struct cgroup_kernel cgroup_kernel;

struct cgroup_where {
	char root[PATH_MAX]; /* where the hierarchy is mounted */
	char own[PATH_MAX];  /* our cgroup below it: "/..." */
};

struct cgroup {
	const struct cgroup_kernel *kernel;
	struct sbx_cgroup_features features;
	int host, dir; /* of ours; -1: none was made */
	char name[48]; /* of ours in host */
	bool moved;    /* host was our own cgroup */
};

#define CGROUP_NONE ((struct cgroup){.kernel = &cgroup_kernel, .host = -1, .dir = -1})

/*
 * Reads files as /proc/self/mountinfo and /proc/self/cgroup are. -ENOENT no cgroup v2 mounted,
 * -EXDEV our cgroup is not below what is mounted.
 */
int cgroup_find(const char *mountinfo, const char *self, struct cgroup_where *ret);
/*
 * Removes what killed mounts left and makes ours, as far as WHERE lets us; G->kernel is given. OURS
 * (N of them) are the processes that may be moved. Always leaves G fit for all the others:
 * G->dir is -1 and G->powers.reason says why when there is nothing to be had.
 */
void cgroup_open(struct cgroup *g, const struct cgroup_where *where, const pid_t *ours, size_t n);
/* Finds out what open would give, without changing anything. */
void cgroup_probe(const struct cgroup_where *where, const pid_t *ours, size_t n,
                  struct sbx_cgroup_features *ret);
/* Moves the calling process in, beside the jobs. Returns 0 or a negative errno. */
int cgroup_join(const struct cgroup *g);
/* Undoes open: what is left in ours is removed; who was moved is moved back. */
void cgroup_close(struct cgroup *g);

/*
 * Makes the leaf NUMBER in the group of the sandbox BOX, which has the limits of MOUNT. Returns an
 * O_DIRECTORY descriptor for clone3(2), or a negative errno: then nothing is left.
 */
int cgroup_job_make(const struct cgroup *g, const char *box, uint64_t number,
                    const struct isolation_settings *mount);
/* Limits a leaf for the job that it is for. Returns 0 or a negative errno. */
int cgroup_job_limit(const struct cgroup *g, int leaf, const struct sbx_limits *limits);
/* Moves PID (0: the caller) into a leaf. Returns 0 or a negative errno. */
int cgroup_job_enter(const struct cgroup *g, int leaf, pid_t pid);
/* SIGKILL to all of a leaf, at once; a negative errno where the kernel cannot (before 5.14). */
int cgroup_job_kill(const struct cgroup *g, int leaf);
/* Its memory.events, or -1. */
int cgroup_job_events(int leaf);
/* Whether EVENTS (-1: no) tells of a kill for want of memory. Does not allocate. */
bool cgroup_was_oom(int events);
/* Also that of the sandbox when it was the last. A process that is still in it is left to
 * cgroup_close. */
void cgroup_job_remove(const struct cgroup *g, const char *box, uint64_t number);

#endif
