/* The control connection: FUSE operations over the control files of fs/control/control.h. */
#ifndef SANDBOXFS_FS_CONTROL_OPS_H
#define SANDBOXFS_FS_CONTROL_OPS_H

#include <fuse_lowlevel.h>

#include "fs/fuse/interrupt.h"
#include "fs/fuse/open_dir.h"
#include "fs/sandbox/registry.h"

struct sbx_buffers;
struct sbx_control_node;
struct sbx_control_nodes;
struct sbx_saves;

/* The state that the operations share; reached through struct sbx_connection. */
struct sbx_controls {
	struct sbx_registry *registry;
	struct sbx_deferred *deferred;
	struct sbx_control_nodes *nodes;
	struct sbx_buffers *buffers;
	struct sbx_saves *saves;
	struct sbx_open_dirs dirs;
	uint64_t id_bit; /* set in every node id given out; 0 on a connection of its own */
};

/* LOOP is that of the registry. 0 or -ENOMEM. */
int sbx_controls_init(struct sbx_controls *c, struct sbx_loop *loop);
/* BOX is retired: its nodes let go of it. Any thread. */
void sbx_controls_drop_box(struct sbx_controls *controls, const struct sbx_box *box);
/* After the session has ended. */
void sbx_controls_finish(struct sbx_controls *c);

/*
 * Fills e with the directory NAME/ctl of BOX, or MNT/ctl (NULL), counting a lookup. 0 or -errno.
 */
int sbx_controls_entry(struct sbx_controls *c, struct sbx_box *box, struct fuse_entry_param *e);
/* The kernel forgets N lookups of ID. */
void sbx_controls_forget(struct sbx_controls *c, uint64_t id, uint64_t n);

typedef void (*sbx_lookup_fn)(fuse_req_t req, fuse_ino_t parent, const char *name);

/* Whether the thread PID may be about to repeat a rename onto a control. */
bool sbx_save_announced(struct sbx_controls *c, pid_t pid);
/*
 * For a LOOKUP of NAME in PARENT, which is the directory DIR of controls: whether its thread
 * repeats a rename onto one of them. REQ is then answered by RESUME, on the loop thread, when the
 * request has been carried out; see fs/control/ops_save.c.
 */
bool sbx_save_waits(fuse_req_t req, const struct sbx_control_node *dir, fuse_ino_t parent,
                    const char *name, sbx_lookup_fn resume);

extern const struct fuse_lowlevel_ops sbx_control_ops;

#endif
