/* Sandboxes that begin as a tree in git's objects says: a state that another had, or an entry of the trash. */
#ifndef SANDBOXFS_LOCAL_CREATE_FROM_H
#define SANDBOXFS_LOCAL_CREATE_FROM_H

#include <git2.h>

#include "backends/local/local_impl.h"

struct sbx_aside;

struct sbx_local_seed {
	git_oid commit, tree; /* what the files are to be */
	git_oid staged;       /* git: the tree of the index; else that of HEAD */
	bool has_staged;
	char head[GIT_OID_HEXSZ + 1]; /* git: where the branch begins */
	char base[GIT_OID_HEXSZ + 1]; /* git: what it is made from, and `base` then */
	char *branch; /* git: the branch to have, where nothing else is asked for and it can be had; or NULL */
	struct sbx_aside *repos; /* repositories in the tree, or NULL */
	git_repository *objects; /* where commit is, unless the source has it */
};
void sbx_local_seed_release(struct sbx_local_seed *seed);

/* As sbx_backend_impl.create, for an origin of the kind TRASH, or SNAPSHOT. */
int sbx_local_create_trash(struct sbx_local *b, const struct sbx_create *req,
                           struct sbx_sandbox **ret, struct sbx_error *err);
int sbx_local_create_rev(struct sbx_local *b, const struct sbx_create *req,
                         struct sbx_sandbox **ret, struct sbx_error *err);

/*
 * As sbx_local_plan_git (create.c), from where SEED begins: on the branch that it would have,
 * unless REQ asks for another or it cannot be had.
 */
int sbx_local_plan_as(struct sbx_local *b, const struct sbx_create *req,
                      const struct sbx_local_seed *seed, struct sbx_record *rec,
                      git_repository **opened, struct sbx_error *err);
/* A create that begins as SEED (NULL: as the source) says (create.c). */
int sbx_local_create_as(struct sbx_local *b, const struct sbx_create *req,
                        const struct sbx_local_seed *seed, struct sbx_sandbox **ret,
                        struct sbx_error *err);
/* Its last step: SB, made from the seed's base, becomes what the seed says. */
int sbx_local_grow(struct sbx_sandbox *sb, const struct sbx_local_seed *seed,
                   atomic_bool *cancelled, struct sbx_error *err);

#endif
