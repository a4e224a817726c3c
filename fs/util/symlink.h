/*
 * Symbolic links that may be made and followed through the mount: those that stay inside their
 * sandbox.
 */
#ifndef SANDBOXFS_FS_UTIL_SYMLINK_H
#define SANDBOXFS_FS_UTIL_SYMLINK_H

#include <stdbool.h>

#include "sandboxfs/error.h"

/*
 * Whether a link in directory DIR (relative to ROOT_FD, the sandbox's root; "" for the root itself)
 * with TARGET stays beneath the root. VIEW is the absolute path at which the root is seen
 * (MNT/NAME); absolute targets below it are inside. 0, -EACCES with a sentence, -ENAMETOOLONG,
 * -ENOMEM. A target that does not exist is judged as far as it does. Thread-safe.
 *
 * The kernel resolves the target beneath the root (openat2(2) RESOLVE_BENEATH), link by link where
 * one of them is absolute. No path of VIEW's is opened, because the daemon answers there itself.
 */
int sbx_symlink_check(int root_fd, const char *dir, const char *target, const char *view,
                      struct sbx_error *err);

/*
 * Whether ".." stands behind a name in TARGET. Where that leads is known only while nobody can put
 * a link in the name's place: the client's walk asks for no leave to climb.
 */
bool sbx_symlink_is_steep(const char *target);

/* Whether ".." stands in the relative TARGET only in front, and at most DEPTH times. */
bool sbx_symlink_climbs(const char *target, unsigned depth);

#endif
