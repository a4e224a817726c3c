/*
 * The daemon without FUSE: a loop on a thread of its own, a pool, settings, a registry over a
 * backend whose calls the test rules (faults.h). With it go answers that can be waited for.
 *
 * Its commands are words: `echo A B` prints, `err A` prints to stderr, `exit N`, `missing` cannot
 * be started, `hang` and `slow` run until a signal or registry_fixture_end(), `write PATH TEXT`
 * makes TEXT all that a file holds, and any other does nothing.
 */
#ifndef SANDBOXFS_TESTS_HOUSE_H
#define SANDBOXFS_TESTS_HOUSE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "fs/sandbox/registry.h"
#include "fs/util/reply.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "tests/lib/faults.h"
#include "tests/lib/played.h"

struct registry_fixture {
	char dir[64];
	struct sbx_settings settings;
	struct sbx_host host;
	struct sbx_loop *loop;
	struct sbx_pool *pool;
	struct played runner;
	struct faults backend;
	struct played_away away; /* of sandboxes made after registry_fixture_play_away */
	struct sbx_registry *registry;
	pthread_t thread;
	atomic_int altered, replaced; /* how often the observer was told */
	atomic_int busy;              /* times invalidate() said busy, less times it said idle */
};

/* As a mount that is told BACKEND and SOURCE, which may be NULL. */
void registry_fixture_open(struct registry_fixture *h, const char *backend, const char *source);
/* Shuts everything down and asserts that nothing is left. */
void registry_fixture_close(struct registry_fixture *h);
/* In between, as at an unmount. */
void registry_fixture_start(struct registry_fixture *h);
void registry_fixture_stop(struct registry_fixture *h);

/* What is made from now on is elsewhere. */
void registry_fixture_play_away(struct registry_fixture *h);

/* The outcome of make, teardown, rename. */
struct outcome {
	sem_t come;
	int code;
	struct sbx_box *box; /* referenced */
	struct sbx_error err;
};

void outcome_init(struct outcome *o);
void outcome_done(int code, struct sbx_box *box, const struct sbx_error *err, void *data);
/* Waits, and returns the code. */
int outcome_wait(struct outcome *o);
void outcome_finish(struct outcome *o);

/* make() and waiting; asserts success. A reference. */
struct sbx_box *registry_fixture_make(struct registry_fixture *h, const char *name);
int registry_fixture_teardown(struct registry_fixture *h, const char *name, bool complete);

/* An answer that can be waited for. */
struct answer {
	struct sbx_pending p;
	sem_t come;
	int errnum; /* of an error */
	ssize_t n;  /* of data and of a count; -1 */
	char *data; /* NUL-terminated */
};

void answer_init(struct answer *a, size_t size);
void answer_wait(struct answer *a);
bool answer_come(struct answer *a); /* without waiting, and without taking it */
void answer_finish(struct answer *a);
/* Cancels as FUSE would, on the loop thread, and waits until cancel has returned. */
void answer_cancel(struct registry_fixture *h, struct answer *a, bool fatal);
/* Returns when everything posted to the loop so far has run. */
void registry_fixture_settle(struct registry_fixture *h);
/* Says what the most recent command prints, and that it ends. */
void registry_fixture_print(struct registry_fixture *h, const char *text);
void registry_fixture_end(struct registry_fixture *h, int code);
/* Returns when SEM is posted; fails when that takes too long. */
void wait_sem(sem_t *sem);

#endif
