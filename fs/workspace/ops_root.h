/* Directory operations at the top of the mount: sandboxes come, go and change their name. */
#ifndef SANDBOXFS_FS_WORKSPACE_OPS_ROOT_H
#define SANDBOXFS_FS_WORKSPACE_OPS_ROOT_H

#include <fuse_lowlevel.h>

/* Each answers REQ, later and on the event loop thread. */
void root_mkdir(fuse_req_t req, const char *name);
void root_rmdir(fuse_req_t req, const char *name);
void root_rename(fuse_req_t req, const char *name, const char *newname);

#endif
