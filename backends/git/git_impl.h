/* Declarations that the files of the git half share. */
#ifndef SANDBOXFS_GIT_GIT_IMPL_H
#define SANDBOXFS_GIT_GIT_IMPL_H

#include <git2.h>

#include "backends/git/calls.h"
#include "backends/git/repository.h"
#include "sandboxfs/cleanup.h"

/*
 * "TEXT: what libgit2 said", with the errno of CODE, which the last call answered. A code of ours
 * behind which there is no call
 * (-1) is a lack of memory.
 */
int sbx_git_fail(struct sbx_error *err, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Whether no descriptor can be had: libgit2 says then that what it was looking for is not there. */
bool sbx_git_lacks_descriptors(void);

/* Opens PATH itself, never a repository above it. libgit2's code. */
int sbx_git_open(const char *path, git_repository **ret);

/*
 * git_index_read_tree for a repository that may be damaged: libgit2 1.5 loses the entries that it
 * has read when a tree further on is missing, so all trees are looked at first. libgit2's code.
 */
int sbx_git_read_tree(git_index *index, const git_tree *tree);

/* Has libgit2 heed working-tree-encoding. Once after its start, not concurrently. 0 or -ENOMEM. */
int sbx_git_encoding_init(void);

/*
 * Where refs in the source begin that keep what a sandbox may go back to; then the worktree's name.
 * They are removed with the sandbox.
 */
#define SBX_GIT_SNAPSHOTS "refs/sandboxfs/snapshots/"
#define SBX_GIT_MARKS     "refs/sandboxfs/marks/"

/* Why our entries are locked, as the file says it. */
#define SBX_GIT_LOCKED "sandboxfs\n"

/* Makes the locked entry of WT, whose workdir need not be there, with HEAD saying so; NULL: without
 * one yet. 0 or -errno; EEXIST. Caller holds the lock. */
int sbx_git_write_entry(const struct sbx_git_worktree *wt, const char *head);

/* Where BRANCH is checked out, in words, the caller's; NULL: nowhere. Reads only HEAD files. */
int sbx_git_checked_out(const char *common, const char *branch, char **where);

/*
 * The patterns of what its user and the repository SOURCE itself ignore in every directory
 * (core.excludesFile, info/exclude). The caller's; NULL without memory.
 */
char *sbx_git_excludes(const char *source);

#define SBX_GIT_CLEANUP(name, type, free_fn)                                                       \
	static inline void sbx_cleanup_git_##name(type **p)                                        \
	{                                                                                          \
		free_fn(*p);                                                                       \
	}
SBX_GIT_CLEANUP(repository, git_repository, git_repository_free)
SBX_GIT_CLEANUP(tree, git_tree, git_tree_free)
SBX_GIT_CLEANUP(odb, git_odb, git_odb_free)
SBX_GIT_CLEANUP(object, git_object, git_object_free)
SBX_GIT_CLEANUP(reference, git_reference, git_reference_free)
SBX_GIT_CLEANUP(index, git_index, git_index_free)
SBX_GIT_CLEANUP(revwalk, git_revwalk, git_revwalk_free)
SBX_GIT_CLEANUP(iterator, git_reference_iterator, git_reference_iterator_free)
#define _cleanup_git_(name) _cleanup_(sbx_cleanup_git_##name)

#endif
