/*
 * Declarations that remote.c (the backend), sandbox.c (its tables) and life.c (how a machine comes,
 * is looked after, and goes) share.
 *
 * The parts of a box (tree, journal, sync, jobs) are there from its first moment, so that what asks
 * for something waits in them. The link to the machine comes when that has been made.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_REMOTE_IMPL_H
#define SANDBOXFS_BACKENDS_REMOTE_REMOTE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "backends/local/state/state.h"
#include "backends/remote/jobs.h"
#include "backends/remote/journal.h"
#include "backends/remote/late.h"
#include "backends/remote/provider.h"
#include "backends/remote/record.h"
#include "backends/remote/sync.h"
#include "backends/remote/tree.h"
#include "backends/remote/works.h"
#include "sandboxfs/loop.h"

struct remote {
	struct sbx_backend base;
	struct sbx_backend_impl impl; /* carries the provider's name */
	const struct sbx_host *host;
	struct sbx_provider *provider;
	struct sbx_state state;
	atomic_bool ending;       /* what works for all sandboxes gives up */
	bool git;                 /* libgit2 has been started */
	struct sbx_pool *pool;    /* wide, for what waits for this host only: each end of a command
	                             needs it, and so do the answers that `waiters` wait for */
	struct sbx_pool *waiters; /* wide: each work may wait for a network, for minutes */
	int dir;                  /* STATE/remote */
	char *daemon;             /* unique for this daemon */
	char *label;              /* of all machines of this state directory */
	struct sbx_timer keeper;
	struct remote_late *late;
	struct remote_works works; /* of the keeper and the sweep */
	pthread_mutex_t lock;      /* all below */
	struct remote_box *boxes;
};

struct remote_box {
	struct sbx_sandbox base;
	struct remote *backend;
	struct remote_box *next; /* backend's lock */
	pthread_rwlock_t turn;   /* base.turn */
	int dir;                 /* STATE/remote/ID */
	struct remote_tree *tree;
	struct remote_journal *journal;
	struct remote_sync *sync;
	struct remote_jobs *jobs;
	struct remote_works works;
	struct remote_link *link; /* once there is a machine */
	bool anew;                /* an earlier daemon may have made one already */
	bool unsure;              /* a create without an answer may be carried out; lock */
	atomic_bool cancelled;    /* whoever makes the machine gives up */
	atomic_bool left;         /* whoever removes it as well */
	atomic_bool used;         /* through the mount, since the keeper has looked */
	pthread_mutex_t lock;     /* all below */
	struct remote_record rec;
	struct sbx_machine *machine;
	char progress[160]; /* what is being done while it is made */
	uint64_t begun_ns;  /* when that began */
	bool resting;       /* nothing is begun any more */
	bool awaits_idle;   /* its rest waits for the link */
	bool awaits_jobs;   /* and for the jobs */
	bool jobs_idle;     /* they have failed, and nothing of them is under way */
	bool verified;      /* since this daemon started */
	bool verifying;     /* that is under way */
	bool waking, woken; /* it is looked at before anything is asked of it; it was */
	bool gone;
	bool spared;         /* it has failed for now, and the next mount goes on with it */
	int failed;          /* the errno of making it; 0: not known */
	struct sbx_want *up; /* who waits for the end of making it */
	uint64_t used_ns, touched_ns;
	bool keeping;                 /* it is being looked at for the keeper */
	bool touching;                /* and touched before that */
	int64_t told_expires_ms;      /* the end that the user was told of */
	int64_t asked_expires_ms;     /* the end that came near, and was asked for again */
	struct sbx_machine_look look; /* the last one; state GONE: none */
	bool looked;
};

/* A box with all its parts, of REC, whose directory is there. Close it. */
int remote_box_open(struct remote *b, const struct remote_record *rec, struct remote_box **ret,
                    struct sbx_error *err);
/* [any] As sbx_sandbox_impl.close. */
void remote_box_close(struct remote_box *box);

/* [any] What the machine of the sandbox ID is called; the caller's. NULL: no memory. */
char *remote_machine_name(const char *id);

/* life.c */

/* [any] As sbx_away_impl.begin: makes the machine, or looks whether it is still there. */
void remote_box_begin(struct remote_box *box);
/* [any] Takes up the machine that the record names. */
int remote_box_adopt(struct remote_box *box, struct sbx_error *err);
/* As sbx_away_impl, of SBX_NEED_UP. */
bool remote_box_is_up(struct remote_box *box);
void remote_box_want_up(struct remote_box *box, struct sbx_want *w);
void remote_box_unwant_up(struct remote_box *box, struct sbx_want *w);
/* [loop] As remote_jobs_config.idle. */
void remote_box_jobs_idle(void *data);
/* [wait] Ends all that is under way, and begins nothing more. May be repeated. */
void remote_box_rest(struct remote_box *box);
/* [wait] Has the provider keep the machine, which was up, on this host: behind remote_box_rest. */
void remote_box_save(struct remote_box *box);
/* report.c: [any] adds "state" and "provider" to OBJ. */
void remote_box_report(struct remote_box *box, struct json_object *obj);
/* report.c: as sbx_sandbox_impl.policy. */
void remote_sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj);
/* [any] Looks after the machines from now on. */
void remote_keep_begin(struct remote *b);
/* [any] Whether a record names the machine, which has not failed. Of one that cannot be read, and
 * of all once the sandboxes are closed, the directory counts. */
bool remote_is_recorded(struct remote *b, const char *machine);
/* [any] In the background: machines of ours that no record names are removed. */
void remote_sweep_begin(struct remote *b);
/* Whether a create that has failed by CODE may still be carried out. */
bool remote_may_come_late(int code);
/* [wait] The machine of REC is no more. *CANCELLED: -EINTR. */
int remote_unmake(struct remote *b, const struct remote_record *rec, atomic_bool *cancelled,
                  struct sbx_error *err);

#endif
