/* Declarations that the files of the local backend share. */
#ifndef SANDBOXFS_LOCAL_IMPL_H
#define SANDBOXFS_LOCAL_IMPL_H

#include <git2.h>

#include "backends/git/repository.h"
#include "backends/local/gitsync/private_repo.h"
#include "backends/local/state/objects.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/backend.h"

/* push.c */
extern const struct sbx_remote_impl sbx_local_remote;

/* Opens what REC describes, mounting its tree. On success REC is taken over and left zeroed. */
int sbx_local_sandbox_open(struct sbx_local *b, struct sbx_record *rec, struct sbx_sandbox **ret,
                           struct sbx_error *err);

/*
 * One whose teardown REC says is not finished, its tree wherever it is: only for remove and close.
 * On success REC is taken over. 0 or -ENOMEM.
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

/*
 * Lists the paths that commands of ID see over names in the tree, for sbx_place.over: RET's items
 * with a NULL after them, or none and no items. Released by sbx_strings_release. 0 or -errno.
 */
int sbx_local_covers(const struct sbx_local *b, const char *id, struct sbx_strings *ret);

/* As sbx_backend_impl.recover. */
int sbx_local_recover(struct sbx_backend *base, const struct sbx_recover *r, struct sbx_error *err);

#endif
