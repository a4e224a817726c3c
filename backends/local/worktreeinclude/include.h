/* .worktreeinclude of the source, for the sandboxes of one backend. */
#ifndef SANDBOXFS_LOCAL_WORKTREEINCLUDE_INCLUDE_H
#define SANDBOXFS_LOCAL_WORKTREEINCLUDE_INCLUDE_H

#include "backends/local/state/objects.h"

/*
 * Brings what .worktreeinclude of the source names into REC's tree, which is filled but not
 * mounted, and counts it in REC. Success where there is no such file.
 */
int sbx_local_include(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                      struct sbx_error *err);
/*
 * The same once more, by way of the mounted tree, open in TREE, where REC was made with such files.
 */
int sbx_local_include_again(const struct sbx_local *b, const struct sbx_record *rec, int tree,
                            struct sbx_error *err);

#endif
