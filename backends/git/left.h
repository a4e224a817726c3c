/* Commits of a sandbox that no ref of the source leads to, saved when the sandbox is removed. */
#ifndef SANDBOXFS_GIT_LEFT_H
#define SANDBOXFS_GIT_LEFT_H

#include "backends/git/refs.h"

/* Whether there is anything of its own in the private repository REPO, a descriptor. Quick. */
bool sbx_git_left_any(int repo);
struct sbx_git_left {
	int repo;             /* the private repository, -1: there is none */
	const char *worktree; /* whose snapshots the source has, or NULL */
	const char *branch;   /* the sandbox's (short), or NULL */
	const char *whose;    /* for the message of the commit */
};

/*
 * Brings to TARGET every commit that a ref, a reflog or HEAD of the repository names, adds the
 * snapshots, and sets *RET to one that leads to all of those which no lasting ref of SOURCE (the
 * same as TARGET, or a repository it borrows from) leads to. 0 nothing is left, 1 *ret is set, or
 * -errno with a sentence. *LOST: some cannot be brought, as they are damaged or too large.
 */
int sbx_git_left_bring(git_repository *target, git_repository *source,
                       const struct sbx_git_left *of, git_oid *ret, bool *lost,
                       struct sbx_error *err);

/*
 * Copies into TARGET, which borrows from SOURCE, what COMMIT leads to and no lasting ref of SOURCE
 * other than BRANCH (short) does, so that a gc of SOURCE takes nothing of it away. 0 or libgit2's
 * code.
 */
int sbx_git_left_own(git_repository *target, git_repository *source, const char *branch,
                     const git_oid *commit);

#endif
