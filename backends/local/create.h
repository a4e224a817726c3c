/* Making a sandbox, and the steps of it that a fork has too. */
#ifndef SANDBOXFS_LOCAL_CREATE_H
#define SANDBOXFS_LOCAL_CREATE_H

#include <git2.h>

#include "backends/local/local_impl.h"

struct sbx_aside;

/* A sandbox that begins as a tree in git's objects says: a state that another had, or an entry of
 * the trash. */
struct sbx_local_origin {
	git_oid commit, tree; /* what the files are to be */
	git_oid staged;       /* git: the tree of the index; else that of HEAD */
	bool has_staged;
	char head[GIT_OID_HEXSZ + 1]; /* git: where the branch begins */
	char base[GIT_OID_HEXSZ + 1]; /* git: what it is made from, and `base` then */
	char *branch; /* git: the branch to have, where nothing else is asked for and it can be had;
	                 or NULL */
	struct sbx_aside *repos; /* repositories in the tree, or NULL */
	git_repository *objects; /* where commit is, unless the source has it */
};

/* As sbx_backend_impl.create. */
int sbx_local_create(struct sbx_backend *base, const struct sbx_create *req,
                     struct sbx_sandbox **ret, struct sbx_error *err);

/* A fresh id and the name of REQ for REC, whose state is then that of a create. */
int sbx_local_begin(struct sbx_local *b, const struct sbx_create *req, struct sbx_record *rec,
                    struct sbx_error *err);
/* The name of the worktree's entry of ID; malloc'd, NULL without memory. */
char *sbx_local_entry_name(const char *id);
/* The branch that a sandbox NAME gets when none is asked for; the same. */
char *sbx_local_branch_for(const struct sbx_local *b, const char *name);
/* Writes REC to the state directory, durably. 0 or -errno with a sentence. */
int sbx_local_store(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err);
/* Makes trees/ID; open in *ret. */
int sbx_local_make_tree(struct sbx_local *b, const char *id, int *ret, struct sbx_error *err);
/* EINVAL the mount's pattern makes no branch name. */
int sbx_local_check_pattern(const struct sbx_local *b, struct sbx_error *err);
/*
 * Which branch REQ asks for and where it begins: REC's branch, base and worktree. FROM (NULL: what
 * REQ says) is the commit. OPENED: as in sbx_git_plan_options. The caller holds the lock of the
 * repository.
 */
int sbx_local_plan_git(struct sbx_local *b, const struct sbx_create *req, const char *from,
                       struct sbx_record *rec, git_repository **opened, struct sbx_error *err);
/*
 * As sbx_local_plan_git, from where ORIGIN begins: on the branch that it would have,
 * unless REQ asks for another or it cannot be had.
 */
int sbx_local_plan_as(struct sbx_local *b, const struct sbx_create *req,
                      const struct sbx_local_origin *origin, struct sbx_record *rec,
                      git_repository **opened, struct sbx_error *err);

#endif
