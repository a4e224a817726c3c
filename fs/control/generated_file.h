/*
 * Files that the backend makes when they are first read: content of snapshots, diffs. These are the
 * parts of a struct control_ops.
 */
#ifndef SANDBOXFS_FS_CONTROL_GENERATED_FILE_H
#define SANDBOXFS_FS_CONTROL_GENERATED_FILE_H

#include "fs/control/control_impl.h"

/* [pool] Writes what NODE holds to FD. */
typedef int (*generate_fn)(const struct sbx_control_node *node, atomic_bool *cancelled, int fd,
                           struct sbx_error *err);
/* Opens H; nothing is made yet. FN is called at the first read. 0 or -ENOMEM. */
int sbx_generated_open(struct sbx_control_handle *h, generate_fn fn, struct sbx_error *err);
/*
 * Answers P with what is at OFF, now or when FN has written the whole file; the errno of FN
 * otherwise.
 */
void sbx_generated_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p);
/* Cancels an FN that is under way, and closes H. No read is owed any more. */
void sbx_generated_release(struct sbx_control_handle *h);
/* A file without a name for LEN bytes (0: unknown), in memory or where the daemon keeps its state.
 * -errno. */
int sbx_nameless_file(struct sbx_registry *reg, uint64_t len);

#endif
