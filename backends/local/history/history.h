/*
 * The history of a sandbox in the local backend: its snapshots and marks, and how its tree is
 * recorded.
 *
 *   STATE/git/ID/history/   a bare repository. For sandboxes of git it borrows the source's objects
 *                           and holds only what is not to be seen there (marks, trees that a diff
 *                           compares); for the others it holds everything.
 *     snapshots             a line each: commit, time in ms; oldest first
 *     marks/NAME            a commit: its tree is the sandbox's, its parent is where HEAD stood,
 *                           its message the rest of the git state
 *     seen                  an index of the last capture, so that files need not be read again
 *     pruned                not git: how many objects were left after the last pruning
 *     index, lower, base    not git: the index of the last snapshot; that of the layer below; the
 *                           commit of the tree as it was made
 *     left                  not git: paths that were there and are not recorded (repositories,
 *                           empty directories)
 *     aside, repos          what a restore took away; repositories in the trees of snapshots
 *                           (aside.h)
 *     restoring             the commit that a restore under way leads to
 *
 * Snapshots of a sandbox of git are commits in the source. refs/sandboxfs/snapshots/ID/COMMIT
 * keeps them from `git gc` for as long as the sandbox lives; a snapshot that the next one was
 * made upon needs no ref. Commits that stand on a branch stay with the branch.
 */
#ifndef SANDBOXFS_LOCAL_HISTORY_HISTORY_H
#define SANDBOXFS_LOCAL_HISTORY_HISTORY_H

#include <git2.h>

#include "backends/git/capture.h"
#include "backends/local/state/objects.h"
#include "sandboxfs/history.h"

/* A sandbox, by its record. All borrowed. */
struct sbx_snapshot_context {
	const struct sbx_local *b;
	const struct sbx_record *rec;
	int root; /* the tree, as the host sees it */
	int disk; /* of limited size, that holds the upper layer; -1: it is in the state directory
	             (trees/ or trash/) */
};

/*
 * Member of the table of sandboxfs/history.h, which promises the rest. Work that commands have
 * committed and staged was brought over to the host's side before.
 */
int sbx_local_history_snapshot(const struct sbx_snapshot_context *context,
                               const struct sbx_snapshot_options *options, char id[SBX_REV_MAX],
                               struct sbx_error *err);
/* As the member of that table. */
int sbx_local_history_list(const struct sbx_snapshot_context *context,
                           int (*fn)(const struct sbx_snapshot *s, void *data), void *data,
                           struct sbx_error *err);
/* As the member of that table; what commands have committed and staged was brought over before. */
int sbx_local_history_restore(const struct sbx_snapshot_context *context, const char *rev,
                              atomic_bool *cancelled, struct sbx_error *err);
/* As the member of that table; what commands have committed and staged was brought over before. */
int sbx_local_history_diff(const struct sbx_snapshot_context *context,
                           const struct sbx_diff_options *options, int fd, struct sbx_error *err);

struct sbx_local_history_index;
/* A repository that is open. */
struct sbx_local_history_repo {
	git_repository *git;
	bool stored; /* what is written goes to the store of the source (git/store.h) */
};
struct sbx_local_history_options {
	bool keep; /* objects go to where the sandbox's branch is; else to what goes with the
	              sandbox */
	bool ignored;
	bool exact; /* also what git does not record of files: struct sbx_captured.exact */
	/*
	 * Of a mark that is put before a restore: where what goes is kept, and whether that is all.
	 */
	const char *aside;
	bool clean;
	/* The caller awaits what is written (git/durable.h), and says then what was seen. */
	bool awaited;
	atomic_bool *cancelled;
	struct sbx_local_history_index
	        *known; /* receives the index of the host's side, the caller's then; may be NULL */
	struct sbx_local_history_repo *repo; /* receives what was written to, likewise */
};

/*
 * Records the tree. For a sandbox of git its worktree's entry must still be there (before detach).
 * ret->index is what `git add -A` would have staged; nothing of the git state is changed. Cost
 * grows with what changed.
 */
int sbx_local_history_capture(const struct sbx_snapshot_context *context,
                              const struct sbx_local_history_options *options,
                              struct sbx_captured *ret, struct sbx_error *err);

/*
 * The repository in which snapshots are: the source, or the sandbox's own. With ALL the objects of
 * marks are seen too and what is written stays with the sandbox. Opened as bare, so that libgit2
 * never looks into a tree. *ret is freed by the caller.
 */
int sbx_local_history_open(const struct sbx_snapshot_context *context, bool all,
                           git_repository **ret, struct sbx_error *err);
/* STATE/git/ID/history, made when it is not there; a descriptor to close, or -errno. */
int sbx_local_history_dir(const struct sbx_snapshot_context *context, struct sbx_error *err);

/* A REV, resolved in a repository that was opened with ALL. */
struct sbx_local_history_rev {
	git_oid commit, tree;
	bool mark;
};
/* Finds REV, which is not NULL, in ALL. 0 or -errno with a sentence: ENOENT, there is none. */
int sbx_local_history_resolve(const struct sbx_snapshot_context *context, git_repository *all,
                              const char *rev, struct sbx_local_history_rev *ret,
                              struct sbx_error *err);

/* For sandboxes that are full copies of a directory, once they are: records what they began as. */
int sbx_local_history_begin(const struct sbx_snapshot_context *context, atomic_bool *cancelled,
                            struct sbx_error *err);
/* Takes the sandbox's refs out of the source; success when there are none, or no source. EBUSY: git
 * is at work there. */
int sbx_local_history_forget(const struct sbx_snapshot_context *context, struct sbx_error *err);
/* Completes a restore that was broken off. For recovery, before the sandbox is used. */
void sbx_local_history_recover(const struct sbx_snapshot_context *context);

#endif
