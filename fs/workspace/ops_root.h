/* Directory operations at the top of the mount: sandboxes come, go and change their name. */
#ifndef SANDBOXFS_FS_WORKSPACE_OPS_ROOT_H
#define SANDBOXFS_FS_WORKSPACE_OPS_ROOT_H

#include <fuse_lowlevel.h>

/* mkdir MNT/NAME: makes a sandbox. Answers REQ later, on the event loop thread. */
void root_mkdir(fuse_req_t req, const char *name);
/* rmdir MNT/NAME: tears the sandbox down. Answers REQ later, when the name is free. */
void root_rmdir(fuse_req_t req, const char *name);
/* mv MNT/NAME MNT/NEWNAME. Answers REQ later, on the event loop thread. */
void root_rename(fuse_req_t req, const char *name, const char *newname);

#endif
