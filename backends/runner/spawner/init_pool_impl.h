/* Between init_pool.c, who serves and ends, and init_pool_make.c. */
#ifndef SANDBOXFS_RUNNER_SPAWNER_INIT_POOL_IMPL_H
#define SANDBOXFS_RUNNER_SPAWNER_INIT_POOL_IMPL_H

#include <sys/types.h>

#include "backends/runner/spawner/init_pool.h"

struct one {
	uint64_t job;  /* 0: it waits */
	uint64_t view; /* serial number of what it waits in */
	pid_t pid;
	int orders;        /* our end of its pipe */
	int work;          /* our end of its socket, -1: it gets no request any more */
	bool reuse;        /* it waits again after JOB, and says so */
	struct usage used; /* before JOB */
	int group, events; /* its cgroup and what that tells, or -1 */
	uint64_t number;   /* of its cgroup */
	char *box;         /* the sandbox of its cgroup */
};

struct inits {
	struct inits_config config;
	pid_t spawner;
	uint64_t made; /* numbers cgroups */
	bool reuse, ending;
	struct one *all;
	size_t n, cap;
};

/* A place that the host could have changed since is no place to wait in; nor can what has no end. */
bool inits_may_wait(const struct inits *inits, const struct view *view);
/*
 * Forks an init for VIEW (NULL: the host) and the sandbox BOX; REUSE: for more than one command. *RET is valid
 * until the next call. Returns 0 or a negative errno.
 */
int inits_make(struct inits *inits, const struct view *view, const char *box, bool reuse,
               struct one **ret);
/* ONE has ended, or was never begun. */
void inits_release(struct inits *inits, struct one *one);

#endif
