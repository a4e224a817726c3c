/* Finding one's way in an index, and the git trees that say the same as one. Thread-safe, but for
 * one odb. */
#ifndef SANDBOXFS_GIT_INDEX_TREE_H
#define SANDBOXFS_GIT_INDEX_TREE_H

#include <git2.h>

#include "backends/git/index.h"
#include "backends/git/object_writer.h"

/* Where the first entry is that does not come before the LEN bytes at NAME. */
size_t sbx_index_at(const struct sbx_index *index, const char *name, size_t len);
/* The first entry of NAME, of whatever stage, or NULL. */
const struct sbx_index_entry *sbx_index_find(const struct sbx_index *index, const char *name,
                                             size_t len);
/* Those in the directory DIR: from *LO to before *HI. */
void sbx_index_below(const struct sbx_index *index, const char *dir, size_t len, size_t *lo,
                     size_t *hi);
/* Whether both name the same content and mode. */
bool sbx_index_same_content(const struct sbx_index_entry *a, const struct sbx_index_entry *b);

/*
 * Writes the trees of INDEX, which has no stages, to ODB: *ret is the top one. BASE and BASE_TREE
 * (may be NULL) say the same as each other: where INDEX says it too, nothing is read or written, so
 * the cost is that of what differs. BESIDE (may be NULL) writes them, and is to be waited for. 0 or
 * libgit2's code.
 */
int sbx_index_write_tree(const struct sbx_index *index, git_odb *odb,
                         struct sbx_object_writer *beside, const struct sbx_index *base,
                         const git_oid *base_tree, git_oid *ret);

#endif
