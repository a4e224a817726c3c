/* Operations on whole directory trees, for both halves of the program. */
#ifndef SANDBOXFS_TREE_H
#define SANDBOXFS_TREE_H

#include "sandboxfs/error.h"

/*
 * Removes NAME below DIRFD, whatever it is; success when nothing is there. Permissions and, where
 * the caller may, the immutable and append-only flags are taken off on the way. May be repeated
 * after a failure. EBUSY: a mount point in the tree. Blocks. Thread-safe.
 */
int sbx_tree_remove(int dirfd, const char *name, struct sbx_error *err);

#endif
