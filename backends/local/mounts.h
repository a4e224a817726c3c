/*
 * The mounts of a view. Called in a process that is alone in new mount and pid
 * namespaces and ends afterwards.
 */
#ifndef SANDBOXFS_BACKENDS_LOCAL_MOUNTS_H
#define SANDBOXFS_BACKENDS_LOCAL_MOUNTS_H

#include "backends/local/spawn_proto.h"
#include "sandboxfs/identity.h"

/*
 * Makes the mount namespace show what a command of REQ may see, and nothing else of the host. REQ may
 * be NULL (a trial, without a tree). TREE is a detached mount, WHO's already, to be seen as the tree, or -1: what
 * lies at workdir. In the places of REQ whoever owns the place on disk appears
 * as WHO, and is whom WHO's files belong to on disk. Returns 0 or a negative errno, then
 * *what says at which step.
 */
int mounts_build(const struct sbx_settings *settings, const struct spawn_request *req, int tree,
                 const struct sbx_identity *who, const char **what);

/*
 * Whether what lies at PATH, or in the nearest directory above it that exists, can appear as WHO's: 0, or
 * a negative errno (EINVAL: the file system cannot). For root; leaves nothing behind.
 */
int mounts_try_owner(const char *path, const struct sbx_identity *who);

#endif
