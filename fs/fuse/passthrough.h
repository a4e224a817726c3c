/*
 * The open files of the workspace and the kind of each open (-o io=passthrough).
 *
 * The kernel wants all opens of a file at one time to be of one kind: through its page cache, or
 * passed through to one backing file, which it knows by an id. So the first open decides, and the
 * kind holds until the last is released. An id is kept for a while after that, because a file
 * that was opened is mostly opened again. It holds the backing file, so it goes when the kernel
 * forgets the node and when the sandbox is torn down.
 *
 * Nodes and sandboxes are numbers here (sbx_node_id, box->number). Thread-safe; no call waits.
 */
#ifndef SANDBOXFS_FS_FUSE_PASSTHROUGH_H
#define SANDBOXFS_FS_FUSE_PASSTHROUGH_H

#include <stdint.h>

#include "sandboxfs/error.h"

struct sbx_passthrough;

/* The kernel's side: sbx_channel_back and sbx_channel_unback. */
struct sbx_backing_calls {
	int (*open)(void *data, int fd); /* an id > 0, or -errno */
	void (*close)(void *data, int id);
	void *data;
};

/* At most MAX_IDLE ids are kept for files that are not open. -ENOMEM. */
int sbx_passthrough_create(const struct sbx_backing_calls *calls, unsigned max_idle,
                           struct sbx_passthrough **ret);
/* Closes every id. Accepts NULL. */
void sbx_passthrough_destroy(struct sbx_passthrough *pt);

/*
 * Counts an open of NODE of the kind that holds for it: its id, 0 for through the page cache;
 * -ENOENT when there is a choice, and nothing was counted.
 */
int sbx_passthrough_join(struct sbx_passthrough *pt, uint64_t node);
/*
 * Counts an open of NODE in BOX that makes the choice: passed through to FD, which stays the
 * caller's and should be read only, or through the page cache (FD < 0, or the kernel does not take
 * it). Returns the id or 0, of the kind that holds if another was quicker; -ENOMEM.
 */
int sbx_passthrough_choose(struct sbx_passthrough *pt, uint64_t node, uint64_t box, int fd);
/* One open of NODE less. Also after sbx_passthrough_forget. */
void sbx_passthrough_release(struct sbx_passthrough *pt, uint64_t node);
/* Drops the choice that was made for NODE. Files that are open by it stay so. */
void sbx_passthrough_forget(struct sbx_passthrough *pt, uint64_t node);
/* The same for every node of BOX, a box number. */
void sbx_passthrough_drop_box(struct sbx_passthrough *pt, uint64_t box);

/*
 * Whether this process may have passthrough, found by trying: -EOPNOTSUPP (built with a libfuse
 * before 3.17, or a kernel without it), -EPERM (not root), with a sentence. Forks, so not from
 * several threads.
 */
int sbx_passthrough_probe(struct sbx_error *err);

#endif
