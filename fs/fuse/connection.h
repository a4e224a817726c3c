/* The user data of a FUSE connection: the trees it serves, either or both. */
#ifndef SANDBOXFS_FS_FUSE_CONNECTION_H
#define SANDBOXFS_FS_FUSE_CONNECTION_H

struct sbx_controls;
struct sbx_workspace;

struct sbx_connection {
	struct sbx_workspace *workspace;
	struct sbx_controls *controls;
};

#endif
