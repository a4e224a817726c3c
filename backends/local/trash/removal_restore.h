/* A tree that was removed file by file, as backends/git/capture.h takes one: what was kept of it
 * above, what was the base's below. */
#ifndef SANDBOXFS_LOCAL_TRASH_REMOVAL_RESTORE_H
#define SANDBOXFS_LOCAL_TRASH_REMOVAL_RESTORE_H

#include "backends/git/index.h"
#include "sandboxfs/error.h"

struct sbx_removal_view {
	int tree;               /* open for reading */
	struct sbx_index lower; /* names are in paths */
	char **paths;
	size_t n, cap;
};

/*
 * Puts together what the directory DIR holds (removal_log.h), in DIR. BASE is the directory of the
 * base in the cache, or -1, and INDEX what it says of its files (NULL: nothing, and they are
 * copied). May be repeated. Release it.
 */
int sbx_removal_view_make(int dir, int base, const struct sbx_index *index,
                          struct sbx_removal_view *ret, struct sbx_error *err);
/* Frees what *VIEW owns. The files stay in DIR. */
void sbx_removal_view_release(struct sbx_removal_view *view);

#endif
