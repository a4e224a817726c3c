/* The worktree of a sandbox in the source: its entry, its branch, its files. */
#ifndef SANDBOXFS_BACKENDS_GIT_WORKTREE_H
#define SANDBOXFS_BACKENDS_GIT_WORKTREE_H

#include <stdatomic.h>

#include "backends/git/repository.h"

/*
 * Registers the worktree, locked with the reason "sandboxfs", makes the branch unless it is there,
 * and writes workdir/.git. TREE is workdir, open. EEXIST the entry is there. On failure the caller
 * calls sbx_git_detach. Caller holds the lock.
 */
int sbx_git_attach(const struct sbx_git_worktree *wt, int tree, struct sbx_error *err);
/* The line in a tree's .git that leads host git to the worktree's entry; malloc'd. */
char *sbx_git_host_link(const struct sbx_git_worktree *wt);
/* Whether a power cut has left in the worktree's entry neither what is checked out nor what is
 * staged. */
bool sbx_git_entry_is_blank(const struct sbx_git_worktree *wt);
/* Writes again what a power cut has left empty in the worktree's entry. Best effort. */
void sbx_git_mend_entry(const struct sbx_git_worktree *wt);
/*
 * Fills the working tree from base and writes its index. CANCELLED (may be NULL) is polled: EINTR.
 * Long; without the lock.
 */
int sbx_git_checkout(const char *source, const struct sbx_git_worktree *wt, atomic_bool *cancelled,
                     struct sbx_error *err);
/*
 * Takes back what attach did: the entry, and the branch if it was created by us, is checked out
 * nowhere, and has no commits of its own. Success when any of it, or the repository, is gone. Takes
 * the lock.
 */
int sbx_git_detach(const struct sbx_git_worktree *wt, struct sbx_error *err);

/*
 * Removes the entries whose working tree lies in TREES (our state directory) and which known() does
 * not know. Takes the lock.
 */
int sbx_git_sweep(const char *common, const char *trees,
                  bool (*known)(const char *worktree, void *data), void *data,
                  struct sbx_error *err);

#endif
