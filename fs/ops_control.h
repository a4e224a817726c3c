/* The control connection: FUSE operations over the control files of fs/control.h. */
#ifndef SANDBOXFS_FS_OPS_CONTROL_H
#define SANDBOXFS_FS_OPS_CONTROL_H

#include <fuse_lowlevel.h>

#include "fs/open_dir.h"
#include "fs/park.h"
#include "fs/sandbox.h"

struct sbx_control_nodes;

/* What the operations share; reached through struct sbx_connection. */
struct sbx_controls {
	struct sbx_registry *registry;
	struct sbx_park *park;
	struct sbx_control_nodes *nodes;
	struct sbx_open_dirs dirs;
	uint64_t id_bit; /* set in every node id given out; 0 on a connection of its own */
};

int sbx_controls_init(struct sbx_controls *c);
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

extern const struct fuse_lowlevel_ops sbx_control_ops;

#endif
