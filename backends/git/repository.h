/*
 * The git half of the local backend: a linked worktree per sandbox, made and unmade by
 * libgit2 and by writing the few administrative files directly. No program is ever run: no hook, no
 * filter driver, no fsmonitor. Working trees are only reached through the path in the state
 * directory.
 *
 * Functions open a repository handle of their own, so they may be used from several threads. What
 * changes refs or worktree entries holds the lock of the repository.
 */
#ifndef SANDBOXFS_GIT_REPOSITORY_H
#define SANDBOXFS_GIT_REPOSITORY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "sandboxfs/error.h"

/* Counted; call once per backend, not concurrently. 0 or a negative errno. */
int sbx_git_init(void);
/* Takes back one sbx_git_init. The last one ends libgit2, which no thread may use any more. */
void sbx_git_shutdown(void);

/* The errno (positive) for what libgit2 answered: return code, error class, message. */
int sbx_git_errno(int code, int klass, const char *message);

/*
 * Looks at the directory SOURCE: 1 it is the top of a git repository (*common: its common
 * directory, the caller's), 0 a plain directory, also one that merely lies inside some
 * repository. With a repository, BASE (may be NULL) must name a commit. EINVAL bare, damaged, or
 * without a commit; ENOENT no such base; EACCES owned by another user.
 */
int sbx_git_probe(const char *source, const char *base, char **common, struct sbx_error *err);
/* Whether SOURCE lies inside a repository; *top is its .git directory, the caller's. */
bool sbx_git_surrounded(const char *source, char **top);

/* The branch and the commit that a new sandbox begins with. */
struct sbx_git_plan {
	char *branch; /* short name; not the one wished for where that was to be kept apart */
	char *base;   /* hexadecimal commit */
	bool exists;  /* the branch is there already and is continued */
	bool told;    /* the branch wished for was there, with something on it */
};

/* The choices where the branch asked for is there already. */
enum sbx_git_exists {
	SBX_GIT_NEW, /* BRANCH-2, BRANCH-3...; one without commits of its own is taken as it is */
	SBX_GIT_REFUSE,   /* EEXIST */
	SBX_GIT_CONTINUE, /* it is checked out as it stands */
};

struct sbx_git_plan_options {
	const char *source;
	const char *base; /* asked for this sandbox, or NULL */
	const char
	        *fallback; /* the mount's base, or NULL; a branch that is continued outranks it */
	const char *branch;
	enum sbx_git_exists exists;
	bool fixed; /* base is what the sandbox begins as, which its caller cannot omit */
	/* NULL, or gets the source as it was opened, unless that is a worktree: the caller frees
	 * it. */
	struct git_repository **opened;
};

/* Whether BRANCH may be the name of one. */
bool sbx_git_branch_ok(const char *branch);

/*
 * Locks the repository against other daemons and threads that change its refs and worktree entries.
 * Returns a descriptor to close, or -errno.
 */
int sbx_git_lock(const char *common);

/*
 * Decides branch and commit, changing nothing. EINVAL a bad branch name, not a commit, or wish.base
 * differs from where a branch that is to be continued stands; ENOENT no such base; EEXIST the
 * branch is there and is to be refused; EBUSY it is checked out (err names where) and no other will
 * do. Caller holds the lock.
 */
int sbx_git_plan(const struct sbx_git_plan_options *options, const char *common,
                 struct sbx_git_plan *ret, struct sbx_error *err);

/*
 * After R, a failure to read COMMIT of SOURCE: returns R, or fills ERR anew where the reason is
 * that SOURCE is a partial clone.
 */
int sbx_git_explain_missing(const char *source, const char *commit, int r, struct sbx_error *err);

/* A worktree of ours, as the record describes it. Strings are borrowed. */
struct sbx_git_worktree {
	const char *common;
	const char *worktree; /* name of the entry */
	const char *workdir;  /* absolute */
	const char *branch;
	const char *base;
	const char *start;           /* hexadecimal commit that the branch begins at; NULL: base */
	const char *link;            /* text of workdir/.git; NULL: leads to the entry */
	struct git_repository *repo; /* common, open; NULL: it is opened where it is needed */
	struct sbx_git_spares *spares; /* or NULL */
	bool branch_created;
};

/*
 * Writes user.name and user.email, as they hold in SOURCE on the host (NULL: outside of
 * repositories), to .gitconfig in the directory HOME; a file that is there is left alone. OTHERS:
 * commands see another owner than the index tells, which git is not to take for a change. 0 or
 * -errno.
 */
int sbx_git_identity(const char *source, int home, bool others);

#endif
