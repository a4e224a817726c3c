/* The destination of a push, from the settings of its remote. */
#ifndef SANDBOXFS_PUSH_REMOTE_H
#define SANDBOXFS_PUSH_REMOTE_H

#include "backends/git/git_impl.h"
#include "backends/push/push.h"

SBX_GIT_CLEANUP(refspec, git_refspec, git_refspec_free)

/*
 * Where a push to the remote NAME (NULL: "origin") goes: the caller's, in *ret. A path relative to
 * the source's top is absolute. ENOENT: no such remote.
 */
int push_url(git_repository *repo, const char *common, const char *name, char **ret,
             struct sbx_error *err);
/* When it goes to a path: whether that can be written to, as sbx_git_push has it. */
int push_check_path(const struct sbx_git_push *from, const char *url, struct sbx_error *err);
/* The path that URL is, part of its text; NULL: it is SCHEME://... or HOST:PATH. */
const char *push_path_of(const char *url);

#endif
