/* The node ids of control nodes, and the open files of the controls. */
#ifndef SANDBOXFS_FS_CONTROL_NODES_H
#define SANDBOXFS_FS_CONTROL_NODES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/control/control.h"
#include "fs/control/ops.h"
#include "fs/control/save_buffer.h"
#include "fs/fuse/connection.h"

/* The controls of the connection that REQ came from. Not once REQ is answered. */
static inline struct sbx_controls *controls_of(fuse_req_t req)
{
	return ((struct sbx_connection *)fuse_req_userdata(req))->controls;
}

/* A copy of the node of INO with references of its own; or answers and returns false. */
bool sbx_controls_node(fuse_req_t req, fuse_ino_t ino, struct sbx_control_node *ret);
/* The same without an answer. */
bool sbx_controls_find(struct sbx_controls *c, fuse_ino_t ino, struct sbx_control_node *ret);
/* As sbx_control_getattr, and all the rest of ST. */
int sbx_controls_stat(struct sbx_controls *c, const struct sbx_control_node *node, struct stat *st);
/* Fills e for NODE, which is taken over, counting a lookup. KEEP: its name never means anything
 * else. */
int sbx_controls_fill(struct sbx_controls *c, struct sbx_control_node *node, bool keep,
                      struct fuse_entry_param *e);
/* An open file. One that is open when the connection ends is never released by the kernel. */
struct sbx_open_file {
	struct sbx_open_file *next, **at; /* of sbx_control_nodes */
	struct sbx_control_handle *handle;
	/* Of who has it open (fs/workspace/holders.h). */
	uint64_t ino;
	pid_t opener;
	atomic_int writer;
	atomic_ullong owner; /* the table of descriptors that the last write was made from */
	atomic_ullong pos;   /* where the last write ended */
	atomic_bool closed;  /* a descriptor was, since the last write */
	atomic_bool broken;  /* whoever wrote last was ended by a signal */
};

/* INO is open once more, as HANDLE, which is taken over. NULL: no memory, and it is released. */
struct sbx_open_file *sbx_controls_opened(struct sbx_controls *controls, fuse_ino_t ino,
                                          struct sbx_control_handle *handle);
/* INO has been closed. What is unfinished is carried out, or refused where F is broken, first. */
void sbx_controls_closed(struct sbx_controls *controls, fuse_ino_t ino, struct sbx_open_file *f);
/* How many open files besides F have its ino and pos, and no descriptor of theirs was closed. */
unsigned sbx_controls_others(struct sbx_controls *controls, const struct sbx_open_file *f);
/* Notes a write or a close, which sbx_controls_others may count otherwise. */
void sbx_controls_changed(struct sbx_controls *controls);
/* How many of them were noted so far. */
uint64_t sbx_controls_changes(struct sbx_controls *controls);

#endif
