/* Objects of the source that a mark needs, kept from `git gc` there. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_HISTORY_KEEP_H
#define SANDBOXFS_BACKENDS_LOCAL_HISTORY_KEEP_H

#include "backends/local/history/history_impl.h"

/* Keeps from `git gc` in the source what MARK needs of it. ALL as opened with that. */
int sbx_local_history_keep(const struct sbx_snapshot_context *context, git_repository *all,
                           const git_oid *mark, struct sbx_error *err);
/*
 * Sees to it that the source has the tree STAGED with all below, but for what the commit HEAD (may
 * be NULL) has: the host's git finds what is staged there alone.
 */
int sbx_local_history_give_staged(const struct sbx_snapshot_context *context, git_repository *all,
                                  const git_oid *staged, const git_oid *head,
                                  struct sbx_error *err);
/* Lets go of what only other marks than MARK (NULL: all) needed. */
void sbx_local_history_keep_only(const struct sbx_snapshot_context *context, git_repository *all,
                                 const git_oid *mark);

#endif
