/*
 * A tree on the disks of this machine: when it is safe there, what it may hold, and what the
 * backend saves of what is removed. Calls are marked as in sandbox.h.
 */
#ifndef SANDBOXFS_STORAGE_H
#define SANDBOXFS_STORAGE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"
#include "sandboxfs/sandbox.h"

/* All are mandatory. */
struct sbx_storage_impl {
	/*
	 * [pool] Returns when all that was written is on disk, together with what leads to it:
	 * neither the daemon's death nor a power cut loses it. Without NOW it gives up (0) while
	 * the sandbox is busy, and as soon as a command starts. The content of regular files that
	 * are on disk anyhow is the caller's to sync.
	 */
	int (*barrier)(struct sbx_sandbox *sb, bool now, struct sbx_error *err);
	/* [any] Sets the limit on what the sandbox may hold to MB MiB. EOPNOTSUPP: it has none. */
	int (*resize)(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err);
	/*
	 * [any] Tells that NAME in the directory DIRFD of the tree is about to be removed through
	 * the mount, or, with NAME NULL, that something else is about to be written: what a
	 * removal of all takes with it can be saved as it was. Takes microseconds.
	 */
	void (*before_write)(struct sbx_sandbox *sb, int dirfd, const char *name);
	/*
	 * [any] Gives back some of the room that what was removed takes, as a write found none
	 * (ENOSPC, EDQUOT). Whether it did: the write is to be tried again. It is to be tried once
	 * more when not, as another thread may have done so just before. Takes milliseconds.
	 */
	bool (*make_room)(struct sbx_sandbox *sb);
	/* [any] The next remove goes on without what it cannot save. */
	void (*discard)(struct sbx_sandbox *sb);
};

/* Whether a synced file of the tree needs a barrier to be safe. [any] */
static inline bool sbx_sandbox_needs_barrier(const struct sbx_sandbox *sb)
{
	return sb->impl->storage && (sb->unsaved || !atomic_load(&sb->anchored));
}

/* [pool] As the member; 0 where the tree is not on this machine's disks. */
static inline int sbx_sandbox_barrier(struct sbx_sandbox *sb, bool now, struct sbx_error *err)
{
	return sb->impl->storage ? sb->impl->storage->barrier(sb, now, err) : 0;
}

/* [any] As the member; -EOPNOTSUPP also where the tree is not on this machine's disks. */
static inline int sbx_sandbox_resize(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err)
{
	if (!sb->impl->storage)
		return sbx_fail(err, EOPNOTSUPP, "this backend has no limit of disk_mb");
	return sb->impl->storage->resize(sb, mb, err);
}

/* [any] As the member; does nothing where the tree is not on this machine's disks. */
static inline void sbx_sandbox_before_write(struct sbx_sandbox *sb, int dirfd, const char *name)
{
	if (sb->impl->storage)
		sb->impl->storage->before_write(sb, dirfd, name);
}

/* [any] As the member; false where the tree is not on this machine's disks. */
static inline bool sbx_sandbox_make_room(struct sbx_sandbox *sb)
{
	return sb->impl->storage && sb->impl->storage->make_room(sb);
}

/* [any] As the member; does nothing where the tree is not on this machine's disks. */
static inline void sbx_sandbox_discard(struct sbx_sandbox *sb)
{
	if (sb->impl->storage)
		sb->impl->storage->discard(sb);
}

#endif
