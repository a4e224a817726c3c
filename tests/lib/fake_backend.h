/*
 * A backend that lives in memory and obeys the test, and the daemon's surroundings for it: a
 * loop on a thread of its own, a pool, settings. With it go answers that can be waited for.
 *
 * Its commands are words: `echo A B` prints, `err A` prints to stderr, `exit N`, `missing` cannot be
 * started, `hang` runs until it is signalled, `slow` until fake_job_end(), `write PATH TEXT` writes a file.
 */
#ifndef SANDBOXFS_TESTS_FAKE_BACKEND_H
#define SANDBOXFS_TESTS_FAKE_BACKEND_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "fs/sandbox/registry.h"
#include "fs/util/reply.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

struct fake_job;

struct fake_backend {
	struct sbx_backend base;
	struct sbx_loop *loop;
	const char *dir;          /* roots of sandboxes are made here */
	const char *const *found; /* names that recover finds, NULL-terminated, or NULL */
	/* Errno (positive) of the next calls, 0: success. */
	atomic_int create_code, retire_code, remove_code, rename_code, barrier_code;
	atomic_int remove_failures; /* so many removals fail with remove_code */
	atomic_int hurries;         /* calls of hurry that ask for it */
	atomic_int discards;        /* calls of discard, after which none fails */
	atomic_bool hold_create;    /* create waits for hold or for being cancelled */
	atomic_bool hold_remove;
	atomic_bool hold_history; /* as do calls of history */
	sem_t creating, removing, remembering,
	        saving;                    /* posted when a held call has been entered */
	atomic_int barriers, barriers_now; /* calls of barrier */
	atomic_bool hold_barrier;          /* the next one */
	bool unsaved;                  /* what sandboxes made from now on hold is, until barrier */
	bool history;                  /* sandboxes made from now on have it (fake_history.h) */
	atomic_int history_code;       /* errno of snapshot */
	atomic_int overlapping;        /* calls of history going on */
	atomic_int restores, contents; /* so many */
	char told[512];                /* message|author|ignored of the last snapshot */
	const struct sbx_trash *const *trashes; /* NULL-terminated, or NULL */
	char made_from[128]; /* what the last create was told: from|rev|trash|branch */
	sem_t hold;
	atomic_int sandboxes;  /* made and not removed */
	atomic_int objects;    /* not closed */
	atomic_int jobs;       /* not destroyed */
	atomic_int execs;      /* commands ever run */
	struct fake_job *last; /* most recently started; loop thread */
	unsigned ids;
};

void fake_backend_init(struct fake_backend *b, struct sbx_loop *loop, const char *dir);
void fake_backend_finish(struct fake_backend *b);
/* The most recently started `slow` prints or ends. Any thread. */
void fake_job_output(struct fake_backend *b, const char *text);
void fake_job_end(struct fake_backend *b, int code);

/* A daemon without FUSE. */
struct house {
	char dir[64];
	struct sbx_settings settings;
	struct sbx_loop *loop;
	struct sbx_pool *pool;
	struct fake_backend backend;
	struct sbx_registry *registry;
	pthread_t thread;
	atomic_int busy; /* times invalidate() said busy, less times it said idle */
};

void house_open(struct house *h);
/* Shuts everything down and asserts that nothing is left. */
void house_close(struct house *h);
/* In between, as at an unmount. */
void house_start(struct house *h);
void house_stop(struct house *h);

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
struct sbx_box *house_make(struct house *h, const char *name);
int house_teardown(struct house *h, const char *name, bool complete);

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
void answer_cancel(struct house *h, struct answer *a, bool fatal);
/* Returns when everything posted to the loop so far has run. */
void house_settle(struct house *h);

#endif
