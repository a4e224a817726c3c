/* What push.c and push_remote.c share. */
#ifndef SANDBOXFS_GIT_PUSH_IMPL_H
#define SANDBOXFS_GIT_PUSH_IMPL_H

#include "backends/git/git_impl.h"
#include "backends/git/push.h"

SBX_GIT_CLEANUP(remote, git_remote, git_remote_free)
SBX_GIT_CLEANUP(refspec, git_refspec, git_refspec_free)

/*
 * Where a push to the remote NAME (NULL: "origin") goes: the caller's, in *ret. A path relative to the source's top is
 * absolute. ENOENT: no such remote.
 */
int sbx_git_push_url(git_repository *repo, const char *common, const char *name, char **ret,
                     struct sbx_error *err);
/* When it goes to a path: whether that can be written to, as sbx_git_push has it. */
int sbx_git_push_path(const struct sbx_git_push *from, const char *url, struct sbx_error *err);

#endif
