/*
 * The inits of the spawner, which are its children: those that wait in a sandbox's namespaces for
 * their request, and those that run one. Used by the spawner process, single-threaded.
 */
#ifndef SANDBOXFS_RUNNER_SPAWNER_INIT_POOL_H
#define SANDBOXFS_RUNNER_SPAWNER_INIT_POOL_H

#include <poll.h>

#include "backends/runner/isolation/namespaces.h"
#include "backends/runner/spawner/init.h"
#include "backends/runner/spawner/init_reuse.h"

struct pool;

/* The configuration of the pool. All that it points to must live as long. */
struct init_pool_config {
	const struct spawn_features *features;
	const struct isolation_settings *settings;
	struct views *views;
	const struct cgroup *cgroup;
	const struct filter *filter; /* NULL: none */
	struct rlimit nofile;        /* the limit commands get */
	char *message;               /* room for SPAWN_MESSAGE bytes that inits may use */
};

/* Returns 0 or -ENOMEM. */
int init_pool_create(const struct init_pool_config *config, struct pool **ret);

/*
 * Hands MSG, which is the SPAWN_EXEC of REQ, to an init of its sandbox; its descriptors stay the
 * caller's. Returns 0 or a negative errno with the stage: then the job has not begun.
 */
int init_pool_start(struct pool *pool, const struct spawn_message *msg,
                    const struct spawn_request *req, enum spawn_stage *stage);
/* Fills FDS with at most MAX descriptors to be polled for POLLHUP; returns how many. */
size_t init_pool_watch(const struct pool *pool, struct pollfd *fds, size_t max);
/* FD of init_pool_watch has hung up: the next init of that sandbox is made. Others' commands end
 * first. */
void init_pool_begun(struct pool *pool, int fd);
/* Has JOB's init send SIG to everything; SIGKILL leaves nothing alive. */
void init_pool_signal(struct pool *pool, uint64_t job, int sig);
/* Ends the inits that wait for sandboxes whose view is kept no more. */
void init_pool_drop_stale(struct pool *pool);
/* Of a job that was killed with its init, for want of memory or not. */
typedef void (*init_pool_gone_fn)(uint64_t job, bool oom, const struct usage *usage);
/* Takes those that ended; GONE is told of each that was killed with a job. Does not wait; they may
 * get successors. */
void init_pool_reap(struct pool *pool, init_pool_gone_fn gone);
/* Kills all, waits until all have ended. */
void init_pool_end(struct pool *pool, init_pool_gone_fn gone);

#endif
