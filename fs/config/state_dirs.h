/* The state directories of this user. */
#ifndef SANDBOXFS_FS_CONFIG_STATE_DIRS_H
#define SANDBOXFS_FS_CONFIG_STATE_DIRS_H

#include <stdbool.h>

/* --list-state, or with REMOVE --prune, on stdout: the exit code. */
int sbx_states(bool remove);

#endif
