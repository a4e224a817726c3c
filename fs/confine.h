/*
 * Which symbolic links may be made and followed through the mount: those that stay inside
 * their sandbox.
 */
#ifndef SANDBOXFS_FS_CONFINE_H
#define SANDBOXFS_FS_CONFINE_H

#include <stdbool.h>

#include "sandboxfs/error.h"

/*
 * Whether a link in directory DIR (relative to ROOT_FD, the sandbox's root; "" for the root itself) with
 * TARGET stays beneath the root. VIEW is the absolute path at which the root is seen (MNT/NAME);
 * absolute targets below it are inside. 0, -EACCES with a sentence, -ENAMETOOLONG. A target that
 * does not exist is judged as far as it does. Thread-safe.
 *
 * Two walls: the kernel resolves the target beneath the root (openat2(2) RESOLVE_BENEATH), and,
 * because a command may swap directories between this check and the client's own walk, ".." may stand
 * only at the beginning and no more often than DIR is deep.
 */
int sbx_confine_link(int root_fd, const char *dir, const char *target, const char *view,
                     struct sbx_error *err);

/* Whether ".." stands in the relative TARGET only in front, and at most DEPTH times. */
bool sbx_confine_climbs(const char *target, unsigned depth);

#endif
