/*
 * A thread that has the kernel drop its copies of listings. The kernel locks a page of such a copy
 * while it reads the page into the memory of a client. That memory may be a file of a file system
 * that does not answer, or of this one, and whoever drops the page waits for as long. So no thread
 * that serves anybody drops it: they wait for this thread, but not if it is held up.
 */
#ifndef SANDBOXFS_FS_FUSE_INVALIDATOR_H
#define SANDBOXFS_FS_FUSE_INVALIDATOR_H

#include <stddef.h>
#include <stdint.h>

/* How long a client of the mount is kept waiting for what it has changed to be seen. */
#define SBX_FORGET_WAIT_MS 250

struct sbx_forgetter;

/* FORGET drops what the kernel has of directory ID; it may block. -ENOMEM, -EAGAIN. */
int sbx_forgetter_create(void (*forget)(uint64_t id, void *data), void *data,
                         struct sbx_forgetter **ret);
/*
 * Waits for what was begun, SBX_FORGET_WAIT_MS at most: if that is held up, the thread is left to
 * itself, and so is DATA. Accepts NULL.
 */
void sbx_forgetter_destroy(struct sbx_forgetter *f);
/*
 * Has FORGET called for N directories, and waits for that, WAIT_MS at most (0: not at all), and not
 * while the thread is known to be held up. What is too much for the queue is not done. Any thread.
 */
void sbx_forgetter_add(struct sbx_forgetter *f, const uint64_t *ids, size_t n, unsigned wait_ms);

#endif
