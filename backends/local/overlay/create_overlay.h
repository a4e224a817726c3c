/* Creates and recovery where trees are in layers. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_CREATE_OVERLAY_H
#define SANDBOXFS_LOCAL_OVERLAY_CREATE_OVERLAY_H

#include "backends/git/repository.h"
#include "backends/local/overlay/base_git.h"
#include "backends/local/state/objects.h"
#include "backends/support/tree.h"

/*
 * The recipe for REC's commit, of which REC keeps the key. REPO is the source's, open; NULL: it is
 * opened. *ret is freed by sbx_base_commit_free.
 */
int sbx_local_overlay_plan(struct sbx_local *b, struct sbx_record *rec, git_repository *repo,
                           struct sbx_base_commit **ret, struct sbx_error *err);
/* Makes the layers of REC, whose directory in trees/ is there, and its `.git`; the upper one is
 * open in *ret. */
int sbx_local_overlay_make(struct sbx_local *b, const struct sbx_record *rec, int *ret,
                           struct sbx_error *err);
/* Gives the `.git` of its upper layer to whom the files belong. 0 or -errno. */
int sbx_local_overlay_own_git(struct sbx_local *b, const struct sbx_record *rec);
/* Puts the base below it and the base's index into the worktree's entry. */
int sbx_local_overlay_git(struct sbx_local *b, const struct sbx_record *rec,
                          const struct sbx_git_worktree *wt, const struct sbx_base_commit *commit,
                          atomic_bool *cancelled, struct sbx_error *err);
/*
 * The whole create of a layered copy of the source directory, REC's included. 1: it cannot be
 * layered (hard links, or it changes all the time) and nothing was begun.
 */
int sbx_local_overlay_dir(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                          struct sbx_error *err);
/* Sees to it that the layered tree of REC can be mounted again, making its base anew where that is
 * possible. */
int sbx_local_overlay_adopt(struct sbx_local *b, const struct sbx_record *rec,
                            struct sbx_error *err);
/* Has the base of the commit that new sandboxes start from prepared in the background. */
void sbx_local_overlay_prepare(struct sbx_local *b);

/*
 * Lists the entries that a copy of the source directory leaves out: at most SBX_BASE_SKIPS.
 * Returns how many.
 */
size_t sbx_local_skips(const struct sbx_local *b, struct sbx_skip *ret);

#endif
