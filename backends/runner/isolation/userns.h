/* User namespaces by descriptor, each with one user and one group in it. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_USERNS_H
#define SANDBOXFS_RUNNER_ISOLATION_USERNS_H

#include <stdbool.h>
#include <sys/types.h>

#include "sandboxfs/identity.h"

/*
 * Makes a user namespace in which OUTSIDE, of the caller's, is called INSIDE. CLOSED: none can be
 * made below it, those in it have an eighth of the caller's inotify instances and a fourth of its
 * watches, and OUTSIDE owns it: a process that has become OUTSIDE may look into and signal those in
 * it. The caller needs to be privileged in its own, single-threaded, and to see a /proc. Returns a
 * descriptor or a negative errno.
 */
int userns_make(struct sbx_identity inside, struct sbx_identity outside, bool closed);

/*
 * Makes one, for mounts, in which every user has the number that it has here and no group has any.
 * For root; otherwise as above.
 */
int userns_make_without_groups(void);

#endif
