/*
 * Where a file of a sandbox that is elsewhere stands: its path, by which it is asked for and told
 * of. What the table of nodes remembers is where it was seen last, which may be a name that it has
 * no more: a file has several, and the machine moves them.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_PLACE_H
#define SANDBOXFS_FS_WORKSPACE_PLACE_H

#include <limits.h>

#include "fs/workspace/workspace.h"

/*
 * A path from the sandbox's root that leads to the file of NODE now. Looks for one in the whole
 * copy where none is known, and remembers it. -ENOENT: it has no name. -ENAMETOOLONG, -ESTALE...
 * The sandbox's turn is held.
 */
int ws_place_of(struct sbx_workspace *ws, struct sbx_node *node, char ret[PATH_MAX]);
/* The same of NAME in DIR, which need not be there. */
int ws_place_in(struct sbx_workspace *ws, struct sbx_node *dir, const char *name,
                char ret[PATH_MAX]);

#endif
