/*
 * Directories of the daemon's own: who can write there, or on the way there, decides what it does.
 */
#ifndef SANDBOXFS_OWN_DIR_H
#define SANDBOXFS_OWN_DIR_H

#include "sandboxfs/error.h"

/*
 * Opens PATH for reading, the daemon's directory for the purpose that WHAT names ("state",
 * "cache"). PATH has no symlinks and no "..". Each component is opened beneath the one before, and
 * made with mode 0700 where it is missing; never below a directory in which another user could put
 * something else in its place. So whoever reaches PATH by name later reaches the same directory.
 * -EACCES: a component belongs to another user, or others may write there. Returns the descriptor
 * or -errno with a sentence. Thread-safe.
 */
int sbx_dir_own(const char *path, const char *what, struct sbx_error *err);

#endif
