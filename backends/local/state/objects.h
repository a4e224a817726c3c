/* The local backend and one of its sandboxes. */
#ifndef SANDBOXFS_LOCAL_STATE_OBJECTS_H
#define SANDBOXFS_LOCAL_STATE_OBJECTS_H

#include <assert.h>
#include <git2.h>
#include <pthread.h>

#include "backends/local/state/record.h"
#include "backends/local/state/state.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"

struct sbx_git_private;
struct sbx_git_spares;
struct sbx_removal_log;
struct sbx_removal_batch;
struct sbx_overlay;
struct sbx_programs;
struct sbx_removed_watch;
struct sbx_syncer;

enum sbx_local_kind { SBX_LOCAL_NONE, SBX_LOCAL_DIR, SBX_LOCAL_GIT };

/* Constant once opened. */
struct sbx_local {
	struct sbx_backend base;
	const struct sbx_host *host;
	struct sbx_state state;
	enum sbx_local_kind kind;
	char *common;                      /* git: the source's common directory */
	struct sbx_overlay *overlay;       /* NULL: none could be had, or none is needed */
	struct sbx_removal_log *kept;      /* NULL: there is no trash */
	struct sbx_removed_watch *removed; /* NULL: there is no trash, or recovery is not over */
	struct sbx_syncer *syncer;         /* NULL: recovery is not over */
	struct sbx_git_spares *spares;     /* for branches of new sandboxes, or NULL */
	pthread_rwlock_t removing;         /* held for reading while files of removed/ are copied */
	char *fleeting; /* why the state directory may not outlive a reboot, or NULL */
	char *flat;     /* why new trees are full copies, or NULL */
	bool clean; /* the last daemon ended in order: nothing of its commands is left to see to */
	bool recovered;
	struct sbx_programs *programs; /* NULL: nothing to guard */
	char *surrounding;             /* dir: .git of a repository the source lies in, or NULL */
};

/* One opened sandbox. */
struct sbx_local_sandbox {
	struct sbx_sandbox base;
	struct sbx_local *backend;
	struct sbx_record rec;
	char *home;
	char *gitfile;               /* NULL: not git */
	struct sbx_git_private *git; /* likewise */
	int root;
	int disk;                /* the disk of limited size that holds what changes, or -1 */
	atomic_bool saving;      /* what is on it is being saved */
	atomic_bool put_off;     /* that shall stop, for a command */
	atomic_bool furnished;   /* the home has what commands look for there */
	pthread_mutex_t lock;    /* base.name, rec.name; root and disk once it is being removed */
	pthread_mutex_t storing; /* rec, but for its name, and its file */
	pthread_mutex_t syncing; /* bringing git state over; retired */
	bool retired;
	bool warned;          /* a teardown was refused as commits would have been lost; syncing */
	git_repository *past; /* lock: for looking into snapshots; NULL until then */
	atomic_uint edits; /* what was written through the mount, and commands that were started */
	struct sbx_removal_batch *kept; /* NULL: nothing was removed yet; made under lock */
	atomic_bool discard;            /* what cannot be saved may go */
	struct sbx_error lost;          /* it went, for that reason */
};

/* SB as this backend's own, which it has to be. */
static inline struct sbx_local_sandbox *sbx_local_downcast(struct sbx_sandbox *sb)
{
	struct sbx_local_sandbox *s = sbx_container_of(sb, struct sbx_local_sandbox, base);

	assert(s->backend);
	return s;
}

#endif
