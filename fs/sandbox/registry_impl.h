/*
 * Declarations that the files of this folder share: registry.c is the registry, setup.c makes a
 * box's log, events and jobs, create.c, teardown.c and rename.c are the lives of its boxes,
 * backend_work.c has the backend's long calls for one, await.c waits for what is elsewhere,
 * track.c records what commands change,
 * report.c lists and describes, recover.c is recovery and shutdown.
 *
 * Make, teardown and rename are chains that alternate between the pool, where the backend may
 * block, and the loop thread, where states change and callers are told. A chain counts as in
 * flight until its last step on the loop, so that a shutdown can wait for it.
 *
 * There is one lock, the registry's. It is never held while the backend, a job table, an event
 * stream or a caller's done function is called, so it nests in nothing.
 */
#ifndef SANDBOXFS_FS_SANDBOX_REGISTRY_IMPL_H
#define SANDBOXFS_FS_SANDBOX_REGISTRY_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/registry.h"
#include "fs/util/rounds.h"
#include "sandboxfs/loop.h"

/* Somebody who wants to hear of a teardown. */
struct waiter {
	struct waiter *next;
	sbx_box_done done;
	void *data;
	bool complete; /* not before everything is removed */
};

#define TRACKED 32u /* commands whose changes are kept */

/* The record of a tracked command: marks of the tree, named by the place in the array (track.c). */
struct tracked {
	uint64_t number; /* 0: free */
	bool running;    /* from before its start to behind its end */
	bool ended;      /* the mark after it is there */
	bool undone;
};

struct box {
	struct sbx_box pub;
	struct box *next; /* in retired or in doomed; registry's lock */
	/* Registry's lock: */
	struct sbx_creation *creation; /* while creating */
	char *new_name;                /* while a rename to it goes on: reserved */
	struct waiter *waiters;
	struct sbx_error error;
	bool shut; /* the shutdown has seen to it */
	/* One [pool] call of the backend at a time for one sandbox. */
	pthread_mutex_t backend_lock;
	bool idle_removal; /* it is retired, and waits for another attempt; registry's lock */
	bool last_removal; /* the shutdown has tried it; registry's lock */
	bool warned; /* somebody who tore it down was told that it cannot be removed; registry's
	                lock */
	struct sbx_error why; /* it is not gone yet; registry's lock */
	bool taken_down; /* it is asked to be removed, and for nothing else any more; backend_lock
	                  */
	struct sbx_rounds syncs;   /* of bringing git state over; registry's lock */
	struct sbx_error sync_err; /* handed from the pool to the loop */
	struct sbx_rounds saves;   /* of saving what is written; registry's lock */
	struct sbx_error save_err; /* of the last saving; handed from the pool to the loop */
	int save_code;
	uint64_t save_begun_ns; /* the same */
	_Atomic uint64_t
	        edited_ns;    /* when something was last about to be written through the mount */
	atomic_bool save_due; /* that was noticed, and will be saved */
	bool save_failing;    /* loop thread: the last saving failed, and that was told */
	struct sbx_timer save_timer; /* loop thread */
	struct sbx_work *works; /* that are to be done, the first of them now; registry's lock */
	struct tracked tracked[TRACKED]; /* registry's lock */
	uint64_t tracked_numbers;
	struct sbx_push *pushes; /* the first is under way; registry's lock */
	char *push_result;       /* of the last, a line of JSON, or NULL; registry's lock */
	/* Loop thread: */
	struct sbx_timer lifetime;
	struct sbx_timer retry;
	uint64_t retry_ms;
	uint64_t stop_ns; /* when the teardown began */
	/* Outcome of the pool's last step, handed to the loop: */
	int code;
	struct sbx_error step_err;
};

/* Words with which a job can end, in the order of counters.jobs_ended. */
extern const char *const sbx_end_words[];
enum { END_WORDS = 7 };

struct counters {
	uint64_t creates, create_failures, teardowns, removals, remove_failures;
	uint64_t jobs_ended[END_WORDS];
};

struct sbx_registry {
	struct sbx_registry_config config;
	struct sbx_events *events;
	struct sbx_egress *egress; /* with net=allow; else NULL */
	struct sbx_pusher *pusher;
	int64_t time_ms;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t idle;  /* inflight became 0 */
	struct box **boxes;   /* sorted by name */
	size_t n, cap;
	struct box *retired;      /* being removed, oldest last */
	struct box *doomed;       /* without references, for the loop thread to free */
	struct sbx_await *awaits; /* loop thread, without the lock */
	unsigned posts;           /* calls with the registry that wait in the loop */
	bool stopped;             /* destroyed, but for those */
	bool closing;
	unsigned inflight; /* operations that the shutdown waits for */
	uint64_t next_number;
	struct sbx_error error;
	struct counters counters;
};

struct sbx_creation {
	struct sbx_registry *reg;
	struct box *box;
	char *base, *branch, *branch_exists;
	char *origin, *rev, *trash; /* of a fork: in words, and which state or entry */
	struct sbx_work work;       /* of a fork, on what it comes from */
	atomic_bool cancelled;
	sbx_box_done done;
	void *data;
	int code;
	struct sbx_error err;
	uint64_t begun_ns;
};

/* As sbx_jobs_config.denied; DATA is the box. */
void sbx_box_denied(const struct sbx_denial_report *denied, void *data);
/*
 * [loop] REC has ended with EXIT. When it failed and said why, the pool looks for what it was
 * refused and tells it, then comes sbx_box_track_end with then(arg), which is called in any case.
 * False: there is nothing to be heard.
 */
bool sbx_box_hear(struct box *box, struct sbx_jobrec *rec, const struct sbx_exit *exit,
                  void (*then)(void *arg), void *arg);
/* Writes a record of EVENT with the time since BEGUN_NS to the box's log. */
void sbx_box_record_span(struct box *box, const char *event, uint64_t begun_ns);
/* Somebody waits for the end of what BOX is at: it has some seconds. The lock is held. */
void sbx_box_hurry(struct box *box);
/*
 * Has done called on the loop thread, as the contract has it, for what is known before anything was
 * begun. A failure's sentence is stored.
 */
void sbx_tell_later(struct sbx_registry *reg, int code, const struct sbx_error *err,
                    sbx_box_done done, void *data);
/* Memory or no daemon: these outcomes could not be told to anyone. */
void *sbx_must_alloc(size_t size);
/* Fills *err from code where the backend left it empty. */
void sbx_error_complete(struct sbx_error *err, int code, const char *what, const char *name);

/* A box named NAME with one reference, CREATING, in no list. NULL when memory is short. */
struct box *sbx_box_new(struct sbx_registry *reg, const char *name);
/* [pool, start] Gives the box its sandbox and opens log, events and jobs. A sandbox elsewhere is
 * not begun by that. */
int sbx_box_attach(struct box *box, struct sbx_sandbox *sandbox);
/* Undoes it; the sandbox stays the caller's. No job has run. */
void sbx_box_detach(struct box *box);
/* Removes the spilled output of the jobs of ID, in the directory JOBS of all such. May block. */
void sbx_output_sweep(int jobs, const char *id);
/* Loop thread, perhaps with the registry's lock: the clock of run_timeout_ms, which ends in
 * LEAST_MS or later. */
void sbx_box_arm_lifetime(struct box *box, uint64_t least_ms);
/*
 * [loop] Saves what a box has in memory, in the background, unless a command starts; nothing where
 * it has nothing.
 */
void sbx_box_save(struct box *box);
/* [loop] The box goes: what is written is not going to be saved by itself any more. */
void sbx_box_save_no_more(struct box *box);
/* The same for all, here and now, when nothing else goes on any more. */
void sbx_registry_save_all(struct sbx_registry *reg);
/* [loop] DATA, a box: one operation of it that the shutdown waits for has ended, and with it a
 * reference. */
void sbx_box_left(void *data);
/* One event, in the stream of the box (may be NULL) and in the mount's. */
void sbx_box_event(struct sbx_registry *reg, struct box *box, const char *event, const char *text);

/* With the registry's lock held: */
/*
 * Has fn(reg) called on the loop thread, perhaps as late as in sbx_loop_destroy: then the last of
 * these frees the registry. fn ends with sbx_registry_posted, lock held, which takes the lock away.
 */
void sbx_registry_post(struct sbx_registry *reg, void (*fn)(void *data));
/*
 * Ends the fn of sbx_registry_post: unlocks the registry, and frees it if this was the last one
 * of a destroyed registry. REG must not be used afterwards.
 */
void sbx_registry_posted(struct sbx_registry *reg);
/*
 * The box NAME, borrowed, or NULL. *AT (may be NULL) is its index, or the one where it would
 * stand.
 */
struct box *sbx_registry_locate(struct sbx_registry *reg, const char *name, size_t *at);
/* Whether NAME is a box's, or is reserved by a rename that goes on. */
bool sbx_registry_taken(struct sbx_registry *reg, const char *name);
/* Puts BOX where its name belongs; it takes over one reference. 0 or -ENOMEM. */
int sbx_registry_insert(struct sbx_registry *reg, struct box *box);
/* Takes BOX out of the list, if it is there. Its reference becomes the caller's. */
void sbx_registry_drop(struct sbx_registry *reg, struct box *box);
/* Tells that MNT shows a name it did not show before. Loop thread; no lock held. */
void sbx_registry_shown(struct sbx_registry *reg);
/* One more operation that the shutdown waits for. */
void sbx_registry_begin(struct sbx_registry *reg);
/* One operation less; the last one wakes the shutdown. */
void sbx_registry_end(struct sbx_registry *reg);
/* Gives up what is being pushed. */
void sbx_box_cancel_pushes(struct box *box);
/* [loop] Ends the waits for what is elsewhere of BOX, or (NULL) all: nothing comes any more. No
 * lock is held. */
void sbx_awaits_end(struct sbx_registry *reg, const struct sbx_box *box);
/* [loop] A retired box, which the registry has, is removed. Nobody is at it. */
void sbx_box_remove(struct box *box);
/*
 * At the end of the mount: whether BOX waits for another attempt of its removal, which is begun
 * then, once; the lock is held. The caller goes on with sbx_box_last_removal, without it.
 */
bool sbx_box_begin_last_removal(struct box *box);
/* Submits the removal that sbx_box_begin_last_removal has begun to the pool of removers. */
void sbx_box_last_removal(struct box *box);
/* A ready box becomes a stopping one. */
void sbx_box_stop_begin(struct box *box);
/* Whoever does something with the box is asked to give up. */
void sbx_box_cancel_works(struct box *box);

/* Without it: the teardown of the stopping box goes its way. */
void sbx_box_stop(struct box *box);

#endif
