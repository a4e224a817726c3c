/*
 * The mounter: a process of the spawner's that mounts overlays. Its mount namespace holds nothing
 * but the bases, the layers and the mounted trees. No mount of the host's is copied there, so it
 * keeps none alive. It ends with the daemon, and the kernel takes the mounts down with it.
 */
#ifndef SANDBOXFS_RUNNER_ISOLATION_MOUNTER_H
#define SANDBOXFS_RUNNER_ISOLATION_MOUNTER_H

#include "sandboxfs/spawner.h"

/* ---- the daemon's side; threads may call at once, and wait for each other ---- */

struct sbx_mounter;

/*
 * [pool] Has the spawner start a room over the directories BASES and TREES (absolute, existing).
 * EOPNOTSUPP where sandboxes have no mount namespaces of their own.
 */
int sbx_mounter_open(struct sbx_spawner *sp, const char *bases, const char *trees,
                     struct sbx_mounter **ret, struct sbx_error *err);
/* The process ends, its mounts go when the last descriptor into them is closed. Accepts NULL. */
void sbx_mounter_close(struct sbx_mounter *mounter);
/*
 * [pool] Makes a disk of MB MiB for ID, in memory, to be filled with upper and work before the tree
 * is mounted: these are then used instead of those in TREES. Returns an O_PATH descriptor of its
 * root or a negative errno.
 */
int sbx_mounter_disk(struct sbx_mounter *mounter, const char *id, uint64_t mb,
                     struct sbx_error *err);
/* [pool] Gives the disk of ID another size. ENOSPC: more is in use. */
int sbx_mounter_resize(struct sbx_mounter *mounter, const char *id, uint64_t mb,
                       struct sbx_error *err);
/*
 * [pool] Mounts TREES/ID/upper (and work) over BASES/BASE. Returns an O_PATH descriptor of the root
 * or a negative errno; what is mounted for ID already is taken away first.
 */
int sbx_mounter_mount(struct sbx_mounter *mounter, const char *id, const char *base,
                      struct sbx_error *err);
/* [pool] Takes tree and disk of ID away. Who has descriptors into it may go on using them. */
void sbx_mounter_unmount(struct sbx_mounter *mounter, const char *id);

/* ---- the spawner's side; single-threaded ---- */

/*
 * Forks the room, which serves SOCK until its other end is closed. Returns a descriptor of its
 * mount namespace or a negative errno; a failure has been told on SOCK.
 */
int mounter_start(int sock, const char *bases, const char *trees);
/*
 * A detached copy of the tree of ID, to be mounted by the calling process, which is alone in the
 * mount namespace OWN and is back in it, at its root, afterwards. Descriptor or negative errno.
 */
int mounter_take(int mounter, int own, const char *id);

/* The directories on the disk of a sandbox of limited size, besides the upper layer. */
enum disk_place { DISK_HOME, DISK_REPO, DISK_TMP, DISK_SHM, DISK_PLACES };
/*
 * Detached copies of these of the disk of ID, as mounter_take; -1 in RET for what is not there. 0
 * or a negative errno.
 */
int mounter_take_disk(int mounter, int own, const char *id, int ret[DISK_PLACES]);

#endif
