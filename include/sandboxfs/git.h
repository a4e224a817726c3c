/*
 * A tree whose repositories the host and commands have each their own side of. Calls are marked as
 * in sandbox.h.
 */
#ifndef SANDBOXFS_GIT_H
#define SANDBOXFS_GIT_H

#include <errno.h>
#include <stdbool.h>

#include "sandboxfs/error.h"
#include "sandboxfs/sandbox.h"

#define SBX_NESTED_PATH_SUFFIX ".at" /* see nested */

/* All are mandatory. */
struct sbx_git_impl {
	/*
	 * [any] What the file .git in the root says to the host, whatever the tree holds there. It
	 * never changes. NULL: the tree's own.
	 */
	const char *(*gitfile)(struct sbx_sandbox *sb);
	/*
	 * [pool] Sees to it that nothing in the tree is run when the host goes by gitfile. It is
	 * called before the host does. On failure (EPERM, or another) the host does not get the
	 * file.
	 */
	int (*guard)(struct sbx_sandbox *sb, struct sbx_error *err);

	/*
	 * [any] Opens the directory, on the tree's file system, for what the host keeps of names
	 * that it shares with commands. No command reaches it, and it goes with the sandbox. A
	 * symbolic link X.at in it tells where in the tree X has its place: commands see X there,
	 * read only. The descriptor is the caller's. Without MAKE it is not made: -ENOENT.
	 */
	int (*nested)(struct sbx_sandbox *sb, bool make);
};

/* [any] As the member; NULL where the backend has no git. Borrowed, as long as SB is open. */
static inline const char *sbx_sandbox_gitfile(struct sbx_sandbox *sb)
{
	return sb->impl->git ? sb->impl->git->gitfile(sb) : NULL;
}

/* [pool] As the member; 0 where the backend has no git. */
static inline int sbx_sandbox_guard(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sb->impl->git ? sb->impl->git->guard(sb, err) : 0;
}

/* -EOPNOTSUPP: no name is kept apart. */
static inline int sbx_sandbox_nested(struct sbx_sandbox *sb, bool make)
{
	return sb->impl->git ? sb->impl->git->nested(sb, make) : -EOPNOTSUPP;
}

#endif
