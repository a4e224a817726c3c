/* What a sandbox that goes has committed and no ref of the source has. */
#ifndef SANDBOXFS_LOCAL_GIT_LEFT_H
#define SANDBOXFS_LOCAL_GIT_LEFT_H

#include "backends/local/git_refs.h"

/* Whether there is anything of its own in the private repository REPO, a descriptor. Quick. */
bool sbx_git_left_any(int repo);
/*
 * Brings to TARGET every commit that a ref, a reflog or HEAD of REPO names, and sets *RET to one that leads to all of
 * those which no lasting ref of SOURCE (the same as TARGET, or a repository it borrows from) leads to. WHOSE is for
 * its message. 0 nothing is left, 1 *ret is set, or -errno with a sentence. *LOST: some cannot be brought, as they are damaged or too large.
 */
int sbx_git_left_bring(git_repository *target, git_repository *source, int repo, const char *whose,
                       git_oid *ret, bool *lost, struct sbx_error *err);

#endif
