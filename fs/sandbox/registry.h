/*
 * The mount's sandboxes: a registry by name, and the life of each from mkdir to the last byte
 * removed. FUSE operations and control files come here; from here the backend is called.
 *
 * creating -> ready -> stopping -> (retired: out of the registry, removal goes on in the pool)
 *
 * struct sbx_box is reference counted: the registry holds one until it is retired, each node and
 * each open control file its own. A retired box answers -ESTALE. Once it is removed its nodes go.
 */
#ifndef SANDBOXFS_FS_SANDBOX_REGISTRY_H
#define SANDBOXFS_FS_SANDBOX_REGISTRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/job/job.h"
#include "fs/job/request.h"
#include "fs/log/denials.h"
#include "fs/log/log.h"
#include "fs/net/proxy.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/pool.h"

enum sbx_box_state {
	SBX_BOX_CREATING,
	SBX_BOX_READY,
	SBX_BOX_STOPPING,
	SBX_BOX_FAILED,
	SBX_BOX_RETIRED
};

struct sbx_node;

struct sbx_box {
	uint64_t number; /* unique in this daemon, never reused; 1.. */
	struct sbx_registry *registry;
	/* Under the registry's lock; use sbx_box_name() for a copy. */
	char *name;
	enum sbx_box_state state;
	/* Set once before the box is ready, constant then: */
	struct sbx_sandbox *sandbox;
	struct sbx_jobs *jobs;
	struct sbx_log *log;
	struct sbx_events *events;
	struct sbx_denials *denials;
	struct sbx_proxy *proxy; /* of net=allow, once a job has run; loop thread */
	bool hides_git; /* what commands make as .git is not shown (fs/workspace/nested_git.h) */
	unsigned own_results; /* its sandbox's */
	ino_t root_ino;       /* st_ino of the root of a sandbox that may be elsewhere */
	/* The root's attributes that the kernel may keep. Atomic: */
	uint64_t root_handed;    /* its node id, else 0 */
	int64_t root_changed_ns; /* its st_ctim; 0: too young to tell a later change by it */
	struct sbx_node *nodes;  /* what the observer knows of it; under the observer's lock */
	bool retired; /* state is SBX_BOX_RETIRED: asked at every request, so without the lock;
	                 atomic */
	bool snapshot_failed; /* the last one asked for was not made; atomic */
	bool busy;       /* a job runs: what is kept of its files must be short-lived; atomic */
	bool refreshing; /* what is known of its root is asked for; atomic */
	unsigned begun;  /* how often that has begun; atomic */
	/* Times that others than the host may begin or have ended to change files. Atomic. */
	uint32_t changes;
	int refs;                  /* atomic */
	pthread_mutex_t root_lock; /* retired, and using the sandbox's root */
	/* Held from reading to setting the defaults of jobs, so that no change is lost. */
	pthread_mutex_t defaults_lock;
	/* private members follow in fs/sandbox/registry_impl.h by embedding */
};

struct sbx_http;
struct sbx_registry;
struct sbx_secret;

/* Whoever shows the sandboxes. It is told when what it has shown is outdated. */
struct sbx_observer {
	/*
	 * A job starts in BOX, which was idle (BUSY), or the last one has ended: names and
	 * attributes are to be asked for again. On the thread that starts the job, or the loop.
	 */
	void (*invalidate)(struct sbx_box *box, bool busy, void *data);
	/* The same: one of several has ended. */
	void (*wrote)(struct sbx_box *box, void *data);
	/*
	 * Files of BOX are others than they were, and not by a job. Any thread, also before
	 * anything is shown.
	 */
	void (*altered)(struct sbx_box *box, void *data);
	/*
	 * The file or directory open at NEW has the name of the one open at OLD: who has that means
	 * this one from now on. As altered; its sandbox's turn is held alone.
	 */
	void (*replaced)(struct sbx_box *box, int old, int new, void *data);
	/* A sandbox has come, or has another name. [loop] Before whoever asked for it is told. */
	void (*shown)(void *data);
	/* The sandbox is no longer there: its nodes are stale. [loop] */
	void (*retired)(struct sbx_box *box, void *data);
	/* What it consisted of is gone: nothing is to refer to it for longer than needed. [pool] */
	void (*removed)(struct sbx_box *box, void *data);
};

struct sbx_registry_config {
	const struct sbx_settings *settings;
	struct sbx_backend *backend;
	struct sbx_loop *loop;
	struct sbx_pool *pool; /* for what no command can make long */
	/* Wide, for what one can: none of it is waited for by other sandboxes. */
	struct sbx_pool *lane;
	struct sbx_pool *remover;              /* wide; takes away what nobody looks at any more */
	struct sbx_http *http;                 /* NULL: no pull request is opened */
	const struct sbx_secret *github_token; /* both as fs/sandbox/push.h; may be NULL */
	const char *github_api;
	const struct sbx_observer *observer; /* or NULL */
	void *observer_data;
};

/*
 * Makes an empty registry. CONFIG is copied; all that it points to must live as long. Destroy
 * *ret. 0, -ENOMEM, or the errno with which the network proxy or the event streams could not be
 * made.
 */
int sbx_registry_create(const struct sbx_registry_config *config, struct sbx_registry **ret);
/*
 * [start] Calls the backend's recover and fills the registry. Blocks. Nothing goes on by itself
 * afterwards, so the registry may be destroyed without a shutdown, as when the mount fails.
 */
int sbx_registry_recover(struct sbx_registry *reg, struct sbx_error *err);
/*
 * [start] The loop runs, and requests are served soon: what was recovered goes on. Removals are
 * finished, lifetimes run, and sandboxes elsewhere are begun. Once; a shutdown follows.
 */
void sbx_registry_resume(struct sbx_registry *reg);
/*
 * Ends everything: refuses new work, kills jobs, with settings->ephemeral tears all sandboxes down,
 * waits for removals that are going on, but some seconds only for those elsewhere. Called by the
 * main thread while loop and pool still run. Blocks.
 */
void sbx_registry_shutdown(struct sbx_registry *reg);
/* After loop and pool have stopped. Accepts NULL. */
void sbx_registry_destroy(struct sbx_registry *reg);

/* A reference to the ready (or failed, stopping) box NAME, or NULL. Any thread. */
struct sbx_box *sbx_registry_find(struct sbx_registry *reg, const char *name);
/* The same by box number, which outlives a rename. Any thread. */
struct sbx_box *sbx_registry_find_number(struct sbx_registry *reg, uint64_t number);
/* Calls fn for each box that MNT shows, in order of name; the registry is locked meanwhile. */
void sbx_registry_walk(struct sbx_registry *reg, void (*fn)(struct sbx_box *box, void *data),
                       void *data);
/* Takes one more reference and returns BOX. Any thread. */
struct sbx_box *sbx_box_ref(struct sbx_box *box);
void sbx_box_unref(struct sbx_box *box); /* accepts NULL */
/* Copies the present name into buf. */
void sbx_box_name(struct sbx_box *box, char buf[64]);
/*
 * Whether BOX is not retired. It may be retired the next moment; only sbx_box_root holds it. Any
 * thread.
 */
bool sbx_box_alive(struct sbx_box *box);
/*
 * A descriptor of the root of the tree, the caller's. -ESTALE once retired: what is removed keeps
 * nothing open, however long somebody refers to the box. Any thread.
 */
int sbx_box_root(struct sbx_box *box);

struct sbx_work;

/*
 * The outcome of a long operation, on the event loop thread. code: 0 or a negative errno (then err
 * has the sentence; it also stands in the mount's error file). box: of a create or
 * rename that went well; borrowed.
 */
typedef void (*sbx_box_done)(int code, struct sbx_box *box, const struct sbx_error *err,
                             void *data);

/*
 * mkdir and ctl/create. Returns a token for sbx_registry_cancel, or NULL when done was or will be
 * called with an early failure. -EEXIST, -EINVAL name, -EBUSY being created or shutting down,
 * and what the backend's create answers. Any thread.
 */
struct sbx_creation;
struct sbx_creation *sbx_registry_make(struct sbx_registry *reg,
                                       const struct sbx_create_request *req, sbx_box_done done,
                                       void *data);
/*
 * The same, as a fork of FROM: as it is now (REV NULL; -EBUSY while commands run there), or as it
 * was; REQ has name and branch only. ctl/create with "from" comes to the same.
 */
struct sbx_creation *sbx_registry_fork(struct sbx_box *from, const struct sbx_create_request *req,
                                       const char *rev, sbx_box_done done, void *data);
/* Asks a creation to stop; done follows with -EINTR or success. Loop thread, before done. */
void sbx_registry_cancel(struct sbx_creation *c);
/*
 * rmdir and ctl/teardown. done comes when the sandbox is out of sight and its name is free, or with
 * COMPLETE when it is really gone. A name that is not there: -ENOENT, but with COMPLETE
 * success. With COMPLETE NAME may also be the id of one whose removal goes on: that is tried again,
 * and once the failure of an attempt was told here, what it cannot save is dropped. Any thread.
 */
void sbx_registry_teardown(struct sbx_registry *reg, const char *name, bool complete,
                           sbx_box_done done, void *data);
/* mv MNT/A MNT/B. -ENOENT, -EEXIST target there, -EINVAL name. Any thread. */
void sbx_registry_rename(struct sbx_registry *reg, const char *from, const char *to,
                         sbx_box_done done, void *data);

/* The sentence of ctl/error. Any thread. BOX NULL: the mount's. code 0 is ignored. */
void sbx_error_store(struct sbx_registry *reg, struct sbx_box *box, const struct sbx_error *err);
/*
 * Copies the last sentence that was stored for BOX (NULL: the mount); code 0: there is none. Any
 * thread.
 */
void sbx_error_fetch(struct sbx_registry *reg, struct sbx_box *box, struct sbx_error *ret);

/* The settings of the mount; constant. Any thread. */
const struct sbx_settings *sbx_registry_settings(struct sbx_registry *reg);
/* The event loop of the configuration. Any thread. */
struct sbx_loop *sbx_registry_loop(struct sbx_registry *reg);
/* The wide pool of the configuration, for work that a command can make long. Any thread. */
struct sbx_pool *sbx_registry_lane(struct sbx_registry *reg);
/* The event stream of the mount; it lives as long as the registry. Any thread. */
struct sbx_events *sbx_registry_events(struct sbx_registry *reg);
/* When the registry was made: CLOCK_REALTIME, ms. */
int64_t sbx_registry_time_ms(struct sbx_registry *reg);

#endif
