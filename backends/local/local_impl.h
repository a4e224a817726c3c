/* What the files of the local backend share. */
#ifndef SANDBOXFS_LOCAL_IMPL_H
#define SANDBOXFS_LOCAL_IMPL_H

#include <git2.h>
#include <pthread.h>

#include "backends/git/repository.h"
#include "backends/local/gitsync/private_repo.h"
#include "backends/local/state/record.h"
#include "backends/local/state/state.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/backend.h"

struct sbx_kept;
struct sbx_kept_row;
struct sbx_layers;
struct sbx_programs;
struct sbx_removed_watch;

enum sbx_local_kind { SBX_LOCAL_NONE, SBX_LOCAL_DIR, SBX_LOCAL_GIT };

/* Constant once opened. */
struct sbx_local {
	struct sbx_backend base;
	const struct sbx_host *host;
	struct sbx_state state;
	enum sbx_local_kind kind;
	char *common;                      /* git: the source's common directory */
	struct sbx_layers *layers;         /* NULL: none could be had, or none is needed */
	struct sbx_kept *kept;             /* NULL: there is no trash */
	struct sbx_removed_watch *removed; /* NULL: there is no trash, or recovery is not over */
	struct sbx_settler *settler;       /* NULL: recovery is not over */
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
	struct sbx_kept_row *kept; /* NULL: nothing was removed yet; made under lock */
	atomic_bool discard;       /* what cannot be saved may go */
	struct sbx_error lost;     /* it went, for that reason */
};

struct sbx_local_sandbox *sbx_local_downcast(struct sbx_sandbox *sb);

/* push.c: members of that table */
int sbx_local_remote(struct sbx_sandbox *sb, const char *name, bool written, char **ret,
                     struct sbx_error *err);
int sbx_local_push(struct sbx_sandbox *sb, const struct sbx_push_wish *wish, struct sbx_error *err);

/* Opens what REC describes, mounting its tree. On success REC is taken over and left zeroed. */
int sbx_local_sandbox_open(struct sbx_local *b, struct sbx_record *rec, struct sbx_sandbox **ret,
                           struct sbx_error *err);

/*
 * One whose teardown REC says is not finished, its tree wherever it is: only for remove and close. On success REC is
 * taken over. 0 or -ENOMEM.
 */
int sbx_local_sandbox_leaving(struct sbx_local *b, struct sbx_record *rec,
                              struct sbx_sandbox **ret);

/*
 * Has what leads to the tree of S reach the disk: the record, the names of its directories, what
 * makes it a worktree. Without that a power cut would leave of a synced file a number without a
 * name. Blocks. 0 or a negative errno.
 */
int sbx_local_anchor(struct sbx_local_sandbox *s, struct sbx_error *err);

/* Notes that the create of SB, opened before it was complete, is. */
int sbx_local_sandbox_ready(struct sbx_sandbox *sb, struct sbx_error *err);
/* Takes one that did not become ready back, and closes it. */
void sbx_local_sandbox_undo(struct sbx_sandbox *sb);

/* The worktree that REC describes; strings belong to REC and to *workdir (the caller's). False: not
 * git, or no memory. */
bool sbx_local_worktree(const struct sbx_local *b, const struct sbx_record *rec, char **workdir,
                        struct sbx_git_worktree *ret);

/* What the tree's .git says to commands, malloc'd; NULL without memory. */
char *sbx_local_git_link(const struct sbx_local *b, const struct sbx_record *rec);
/*
 * Write again what a power cut has left empty of the files that lead to the repository of REC: in the source's worktree
 * entry, before anything uses it; and the tree's .git, which commands go by, in ROOT.
 */
void sbx_local_git_mend_entry(const struct sbx_local *b, const struct sbx_record *rec);
void sbx_local_git_mend_link(const struct sbx_local *b, const struct sbx_record *rec, int root);
/* What commands have of git and the host has not: 0, also when there is none (*ret is NULL). STRINGS of REC are borrowed. */
int sbx_local_git_open(const struct sbx_local *b, const struct sbx_record *rec,
                       struct sbx_git_private **ret);

/*
 * Brings git's state in step (sbx_git_private_sync), once no command of S that left something locked is alive. The
 * caller has S->syncing.
 */
int sbx_local_git_sync(struct sbx_local_sandbox *s, struct sbx_error *err);

/*
 * What commands of ID are to see over names in the tree, for sbx_place.over: RET's items with a NULL after them, or
 * none and no items. Released by sbx_names_release. 0 or -errno.
 */
int sbx_local_covers(const struct sbx_local *b, const char *id, struct sbx_names *ret);

/*
 * The two halves of taking a sandbox down, from whatever state it is in. Both may be repeated; undo
 * is both, for a create that failed. REC's state is changed and, as far as the disk allows, stored.
 */
int sbx_local_retire(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);
int sbx_local_remove(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);
int sbx_local_undo(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);

/*
 * Brings what .worktreeinclude of the source names into REC's tree, which is filled but not mounted, and counts it in REC. As
 * sbx_include_files, but no such file is success.
 */
int sbx_local_include(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                      struct sbx_error *err);

int sbx_local_recover(struct sbx_backend *base, const struct sbx_recover *r, struct sbx_error *err);
int sbx_local_create(struct sbx_backend *base, const struct sbx_create *req,
                     struct sbx_sandbox **ret, struct sbx_error *err);

/* ---- steps of a create (create.c) ---- */

/* A fresh id and the name of REQ for REC, whose state is then that of a create. */
int sbx_local_begin(struct sbx_local *b, const struct sbx_create *req, struct sbx_record *rec,
                    struct sbx_error *err);
/* What the worktree's entry of ID is called; malloc'd, NULL without memory. */
char *sbx_local_entry_name(const char *id);
/* The branch that a sandbox NAME gets when none is asked for; the same. */
char *sbx_local_branch_for(const struct sbx_local *b, const char *name);
int sbx_local_store(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err);
/* Makes trees/ID; open in *ret. */
int sbx_local_make_tree(struct sbx_local *b, const char *id, int *ret, struct sbx_error *err);
/* EINVAL the mount's pattern makes no branch name. */
int sbx_local_check_pattern(const struct sbx_local *b, struct sbx_error *err);
/*
 * Which branch REQ asks for and where it begins: REC's branch, base and worktree. FROM (NULL: what REQ says) is the commit.
 * OPENED: as in sbx_git_wish. The caller holds the lock of the repository.
 */
int sbx_local_plan_git(struct sbx_local *b, const struct sbx_create *req, const char *from,
                       struct sbx_record *rec, git_repository **opened, struct sbx_error *err);

#endif
