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

#define SBX_NESTED_AT ".at" /* see nested */

/* All are mandatory. */
struct sbx_git_impl {
	/*
	 * [any] What the file .git in the root says to the host, whatever the tree holds there; constant.
	 * NULL: the tree's own.
	 */
	const char *(*gitfile)(struct sbx_sandbox *sb);
	/*
	 * [pool] Before the host goes by gitfile: sees to it that nothing in the tree is run for
	 * that. EPERM: it cannot be done, and the file is not to be had; another errno likewise.
	 */
	int (*guard)(struct sbx_sandbox *sb, struct sbx_error *err);

	/*
	 * [any] A descriptor, the caller's, of a directory on the tree's file system that no command reaches and that goes
	 * with the sandbox, for what the host keeps of names that it shares with commands; made when MAKE.
	 * A symbolic link X.at in it tells where in the tree X has its place, so that commands see it there, read only.
	 * -ENOENT not made yet.
	 */
	int (*nested)(struct sbx_sandbox *sb, bool make);
};

static inline const char *sbx_sandbox_gitfile(struct sbx_sandbox *sb)
{
	return sb->impl->git ? sb->impl->git->gitfile(sb) : NULL;
}

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
