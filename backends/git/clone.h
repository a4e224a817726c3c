/* A repository of its own, with all that another has. */
#ifndef SANDBOXFS_BACKENDS_GIT_CLONE_H
#define SANDBOXFS_BACKENDS_GIT_CLONE_H

#include <stdatomic.h>

#include "sandboxfs/error.h"

/*
 * Makes the empty directory TO a repository with the commits and branches of SOURCE, which is one
 * on this host, and checks out BRANCH there; it is made at BASE (NULL: where SOURCE stands) unless
 * SOURCE has it. BRANCH NULL: BASE is checked out without one. ENOENT: no such base. Polls
 * *CANCELLED (may be NULL): EINTR. Long. Thread-safe for different TO.
 */
int sbx_git_clone(const char *source, const char *base, const char *branch, const char *to,
                  atomic_bool *cancelled, struct sbx_error *err);

#endif
