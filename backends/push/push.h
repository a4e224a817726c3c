/*
 * Delivering a branch of a source repository to one of its remotes, as git push does, by libgit2:
 * no hook of the source runs, no credential helper, no git program. What waits for a server runs in
 * a program of its own, sandboxfs-push, because libgit2 can wait for ever and only the end of its
 * process ends that.
 */
#ifndef SANDBOXFS_PUSH_PUSH_H
#define SANDBOXFS_PUSH_PUSH_H

#include "sandboxfs/remote.h"

/* Where from, and what a path must not lead into. Strings are borrowed. */
struct sbx_git_push {
	const char *common;     /* the source's common directory */
	const char *branch;     /* short name */
	const char *mountpoint; /* absolute paths; NULL: none */
	const char *state;
};

/* As the member remote of sbx_history_impl. Blocks for the disk. Thread-safe. */
int sbx_git_remote_url(const char *common, const char *name, bool written, char **ret,
                       struct sbx_error *err);
/*
 * As the member push. On success the remote-tracking ref is where the branch is. A remote that is a
 * path gets the objects written; its hooks would not run, so one that has hooks to refuse by is
 * EOPNOTSUPP. Thread-safe.
 */
int sbx_git_push(const struct sbx_git_push *from, const struct sbx_push_options *options,
                 struct sbx_error *err);

#endif
