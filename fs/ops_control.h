/* The control connection: FUSE operations over the control files of fs/control.h. */
#ifndef SANDBOXFS_FS_OPS_CONTROL_H
#define SANDBOXFS_FS_OPS_CONTROL_H

#include <fuse_lowlevel.h>

#include "fs/park.h"
#include "fs/sandbox.h"

struct sbx_control_nodes;

/* User data of the connection. */
struct sbx_controls {
	struct sbx_registry *registry;
	struct sbx_park *park;
	struct sbx_control_nodes *nodes;
	struct fuse_session *session;
};

int sbx_controls_init(struct sbx_controls *c);
/* After the session has ended. */
void sbx_controls_finish(struct sbx_controls *c);

extern const struct fuse_lowlevel_ops sbx_control_ops;

#endif
