/*
 * The gate in front of the operations of sandboxes whose files may be elsewhere
 * (sandboxfs/away.h): an operation is carried out when what it needs is here, with the sandbox's
 * turn held. Nothing at the top of the mount is gated, and no control.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_GATE_H
#define SANDBOXFS_FS_WORKSPACE_GATE_H

#include "fs/workspace/workspace.h"

struct ws_operation;

/* An operation with its arguments. What it points to is borrowed; by a parked one it is owned. */
struct ws_call {
	const struct ws_operation *op;
	fuse_req_t req;
	fuse_ino_t ino, other; /* the directory or the file; of two the second */
	const char *name, *newname;
	const void *data; /* of a write */
	size_t size;
	off_t off, to;
	unsigned flags;
	mode_t mode;
	struct stat *attr;
	struct fuse_file_info *fi;
	unsigned rounds; /* how often it was parked */
};

/* Carries C out and answers it, now or later. Any thread that may wait for the local disk. */
void ws_pass(struct ws_call *c);
/* Has what is known of the root of BOX, which is_away, brought up to date. Nobody waits. */
void ws_refresh(struct sbx_box *box);

/* The operations, as in workspace.h, behind the gate. */
void gate_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void gate_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void gate_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                  struct fuse_file_info *fi);
void gate_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                      struct fuse_file_info *fi);
void gate_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void gate_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void gate_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void gate_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                 struct fuse_file_info *fi);
void gate_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void gate_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void gate_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void gate_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                 const char *newname, unsigned flags);
void gate_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void gate_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                  struct fuse_file_info *fi);
void gate_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void gate_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                struct fuse_file_info *fi);
void gate_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                    struct fuse_file_info *fi);
void gate_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
                          fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len,
                          int flags);
void gate_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void gate_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void gate_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

#endif
