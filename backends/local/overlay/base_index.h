/* The index of a base, parsed: whoever records a tree needs it, so the last one that was asked for
 * stays in memory. Thread-safe. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_BASE_INDEX_H
#define SANDBOXFS_LOCAL_OVERLAY_BASE_INDEX_H

#include <sys/stat.h>

#include "backends/git/index.h"
#include "backends/local/overlay/base.h"

/* Shared: nothing of it may be changed. */
struct sbx_base_index {
	struct sbx_index index;
	struct stat of;        /* the file */
	unsigned char end[20]; /* its checksum */
	atomic_uint users;
};

/* That of the base whose directory is BASE, to be given back. ENOENT: it has none; what
 * sbx_index_parse returns. */
int sbx_base_index_get(struct sbx_bases *bases, int base, struct sbx_base_index **ret,
                       struct sbx_error *err);
/* Accepts NULL. */
void sbx_base_index_put(struct sbx_base_index *index);
/* INDEX once more, to be given back, when the file "index" in DIR says the same by its checksum:
 * *AT is its time. Or NULL. */
struct sbx_base_index *sbx_base_index_same(struct sbx_base_index *index, int dir,
                                           struct timespec *at);

#endif
