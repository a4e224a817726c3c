/*
 * A thread that has the kernel drop its copies of listings. Each page of such a copy is locked while it is read into the
 * memory of a client, which may be a file of a file system that does not answer, or of this one: whoever drops the page waits for as
 * long. So no thread that serves anybody does it; they wait for this one, but not if it is held up.
 */
#ifndef SANDBOXFS_FS_FUSE_INVALIDATOR_H
#define SANDBOXFS_FS_FUSE_INVALIDATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_forgetter;

/* FORGET drops what the kernel has of directory ID; it may block. -ENOMEM, -EAGAIN. */
int sbx_forgetter_create(void (*forget)(uint64_t id, void *data), void *data,
                         struct sbx_forgetter **ret);
/* Waits for what was begun, unless it is held up: then the thread is left to itself, and so is DATA. Accepts NULL. */
void sbx_forgetter_destroy(struct sbx_forgetter *f);
/*
 * Has FORGET called for N directories, and WAITs for it, a moment at most. What is too much while the thread is held up is not
 * done. Any thread.
 */
void sbx_forgetter_add(struct sbx_forgetter *f, const uint64_t *ids, size_t n, bool wait);

#endif
