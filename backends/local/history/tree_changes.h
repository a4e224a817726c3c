/* The differences of two trees, path by path. */
#ifndef SANDBOXFS_LOCAL_HISTORY_TREE_CHANGES_H
#define SANDBOXFS_LOCAL_HISTORY_TREE_CHANGES_H

#include <git2.h>

#include "backends/git/index.h"

struct tree_change {
	char *path;
	uint32_t mode;  /* it is to have; 0: it is to be gone */
	bool directory; /* to be gone: a submodule's */
	git_oid oid;
	struct sbx_index_entry entry; /* its name is path; without stat data at first */
};

/* repo and err are borrowed; the rest is zero to start. */
struct tree_changes {
	git_repository *repo;
	struct sbx_error *err;
	struct tree_change *at;
	size_t n, cap;
};

/* Lists what makes TO of FROM. A file that becomes a link or a submodule is there twice, gone
 * first. */
int tree_changes_list(struct tree_changes *a, const git_oid *from, const git_oid *to);
/* Has INDEX say the same. Sorts the list. 0 or -ENOMEM. */
int tree_changes_stage(struct tree_changes *a, struct sbx_index *index);
/* Frees the list with its paths. repo and err stay the caller's. */
void tree_changes_release(struct tree_changes *a);

#endif
