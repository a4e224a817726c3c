/*
 * The daemon's side of the spawner: runner.c finds its program, starts and stops it, send.c sends
 * it requests, jobs.c has the jobs that it runs, policy.c tells which isolation is in force.
 *
 * Requests go out under a lock from any thread. Reports come in on the loop thread, which owns
 * everything else of a job.
 */
#ifndef SANDBOXFS_RUNNER_RUNNER_IMPL_H
#define SANDBOXFS_RUNNER_RUNNER_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "backends/runner/isolation/cgroup.h"
#include "backends/runner/spawner/protocol.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/spawner.h"

#define SPAWNER_BUCKETS  256
#define SPAWNER_BUF_SIZE ((size_t)256 * 1024)

struct job {
	struct sbx_job *caller; /* whose part this is */
	struct sbx_spawner *sp;
	struct job *next;  /* in its bucket; under sp->lock */
	struct job *fresh; /* in sp->fresh */
	uint64_t number;
	pid_t init;  /* 0 until STARTED */
	int pipe[2]; /* stdout, stderr; -1 once at its end. Owned here while not watched. */
	struct sbx_watch watch[2];
	struct sbx_timer drain;
	struct sbx_timer look; /* armed while a pipe cannot be watched */
	bool started, leader_ended, ended;
	struct spawn_report last; /* of the leader's end */
	char *cwd, *sandbox;      /* sandbox: its id */
	char program[];           /* for the sentence when it cannot be started */
};

struct outgoing {
	struct outgoing *next;
	int fds[SPAWN_FDS], n_fds;
	size_t len;
	char bytes[];
};

struct sbx_spawner {
	const struct sbx_settings *settings;
	struct sbx_loop *loop;
	pid_t pid;
	struct spawn_features features;
	struct cgroup group;
	struct sbx_watch watch; /* the socket */

	pthread_mutex_t lock; /* the next five */
	int fd;               /* the socket; -1 when the spawner is gone */
	uint64_t jobs;
	struct job *table[SPAWNER_BUCKETS];
	struct outgoing *head, **tail;

	struct job *fresh; /* started in this batch, perhaps to be watched; loop thread */
	char *buf;         /* loop thread */
};

/*
 * Under the lock. Sends a message, or queues it when the socket takes no more: it never waits,
 * since the spawner may itself be waiting for us to read. 0 or a negative errno; -EPIPE: the
 * spawner is gone.
 */
int spawner_post(struct sbx_spawner *sp, const void *bytes, size_t len, const int *fds, int n_fds);
/* Loop thread. Sends what is queued, as far as the socket takes it; a job that cannot be sent has
 * failed. */
void spawner_flush(struct sbx_spawner *sp);
/* Under the lock: drops what is queued. */
void spawner_drop_queue(struct sbx_spawner *sp);

/* Loop thread. The job NUMBER could not be handed over, for ERR (an errno). */
void spawner_fail_job(struct sbx_spawner *sp, uint64_t number, int err);

/* Loop thread. Handles one report; returns what sbx_receive_fds does. */
ssize_t spawner_receive(struct sbx_spawner *sp, int sock, int flags);
/* sbx_watch.fn of the spawner's socket. */
void spawner_on_socket(struct sbx_watch *w, uint32_t events);
/* Spawner and inits are gone, or going, and with them all that they ran. */
void spawner_lose_everything(struct sbx_spawner *sp);

#endif
