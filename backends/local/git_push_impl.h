/* What git_push.c and git_push_remote.c share. */
#ifndef SANDBOXFS_LOCAL_GIT_PUSH_IMPL_H
#define SANDBOXFS_LOCAL_GIT_PUSH_IMPL_H

#include "backends/local/git_impl.h"
#include "backends/local/git_push.h"

SBX_GIT_CLEANUP(remote, git_remote, git_remote_free)

/* The remote NAME (NULL: "origin"), one by a path relative to the source made absolute. */
int sbx_git_push_remote(git_repository *repo, const char *common, const char *name,
                        git_remote **ret, struct sbx_error *err);
/* Where a push to REMOTE goes. */
const char *sbx_git_push_url(const git_remote *remote);
/* When it goes to a path: whether that can be written to, as sbx_git_push has it. */
int sbx_git_push_path(const struct sbx_git_push *from, const char *url, struct sbx_error *err);

#endif
