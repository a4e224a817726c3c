/* Bases from commits: the files as a checkout would write them, and the index that belongs to them.
 */
#ifndef SANDBOXFS_LOCAL_OVERLAY_BASE_GIT_H
#define SANDBOXFS_LOCAL_OVERLAY_BASE_GIT_H

#include "backends/local/overlay/base.h"
#include "sandboxfs/identity.h"

struct git_repository;

struct sbx_base_commit {
	struct sbx_base_recipe recipe; /* first; data points to this */
	char key[SBX_BASE_KEY_MAX];
	char *source;  /* the repository */
	char tree[65]; /* hexadecimal */
	char commit[65];
	struct sbx_identity owner; /* of the files */
	bool filtered;             /* settings may change what is written */
};

/*
 * The recipe for what COMMIT (hexadecimal) of the repository SOURCE checks out to, owned by OWNER.
 * Only root makes files for another. The index tells OWNER's files as the daemon's own, as the
 * mount does. REPO is SOURCE, open; NULL: it is opened. *ret is freed by sbx_base_commit_free.
 */
int sbx_base_commit_new(const char *source, struct git_repository *repo, const char *commit,
                        const struct sbx_identity *owner, struct sbx_base_commit **ret,
                        struct sbx_error *err);
/* Takes the recipe of one; accepts NULL. */
void sbx_base_commit_free(struct sbx_base_recipe *recipe);
/* Resolves HEAD, or BASE when it is not NULL, to a commit: 40 or 64 hexadecimal digits. */
int sbx_base_commit_resolve(const char *source, const char *base, char ret[65]);

#endif
