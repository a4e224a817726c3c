/* Writing the files of a commit. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_CHECKOUT_H
#define SANDBOXFS_LOCAL_OVERLAY_CHECKOUT_H

#include <git2.h>

#include "backends/local/overlay/base_git.h"

struct sbx_fill {
	const struct sbx_base_commit *commit;
	int dir;  /* receives the index */
	int tree; /* empty; receives the files */
	bool filtered;
	atomic_bool *cancelled;
};

/* Fills tree with what is in ROOT of REPO, by several threads. EINTR cancelled, EINVAL names that
 * git would not write. */
int sbx_base_fill(struct sbx_fill *fill, git_repository *repo, git_tree *root,
                  struct sbx_base_facts *facts, struct sbx_error *err);

/* Compares the files in DIR/tree with DIR/index, by stat(2) alone: 0; -EIO they differ; -EINTR. */
int sbx_base_verify(int dir, atomic_bool *cancelled);

#endif
