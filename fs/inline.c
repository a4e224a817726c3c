/*
 * A node id tells by one bit which tree it belongs to; each operation goes to the table of that
 * tree. What differs from the two connections: files of the workspace are really opened
 * (fs/workspace/ops_file.c), and nothing moves between the trees.
 */
#include "fs/inline.h"

#include <errno.h>

#include "fs/control/control.h"
#include "fs/control/ops.h"
#include "fs/workspace/workspace.h"

static bool is_control(fuse_ino_t ino)
{
	return ino & SBX_INLINE_CONTROL;
}

static const struct fuse_lowlevel_ops *side(fuse_ino_t ino)
{
	return is_control(ino) ? &sbx_control_ops : &sbx_workspace_ops;
}

static void in_init(void *userdata, struct fuse_conn_info *conn)
{
	sbx_workspace_ops.init(userdata, conn);
	conn->want &= ~(unsigned)FUSE_CAP_CACHE_SYMLINKS; /* jobs/last */
}

/* Whether this is of the second walk of a rename onto a control, which waits. */
static bool repeats(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct sbx_connection *c = fuse_req_userdata(req);
	struct sbx_workspace *ws = c->workspace;
	struct sbx_control_node ctl;
	struct sbx_node *dir;
	struct sbx_box *box;
	bool waits;

	if (!sbx_save_announced(c->controls, fuse_req_ctx(req)->pid) ||
	    sbx_node_get(ws->inodes, parent, &dir) < 0)
		return false;
	waits = ws_is_ctl(ws, dir, name);
	if (waits) {
		box = sbx_node_box(dir);
		if (box)
			sbx_control_box_node(box, &ctl);
		else
			sbx_control_mount_node(&ctl);
		waits = sbx_save_waits(req, &ctl, parent, name, op_lookup);
		sbx_control_node_release(&ctl);
	}
	sbx_node_put(ws->inodes, dir);
	return waits;
}

static void in_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (is_control(parent) || !repeats(req, parent, name))
		side(parent)->lookup(req, parent, name);
}

static void in_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	side(ino)->forget(req, ino, n);
}

static void in_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct sbx_connection *c = fuse_req_userdata(req);

	for (size_t i = 0; i < count; i++)
		if (is_control(forgets[i].ino))
			sbx_controls_forget(c->controls, forgets[i].ino, forgets[i].nlookup);
		else
			sbx_node_forget(c->workspace->inodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void in_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	side(ino)->getattr(req, ino, fi);
}

static void in_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                       struct fuse_file_info *fi)
{
	side(ino)->setattr(req, ino, attr, set, fi);
}

static void in_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	side(ino)->access(req, ino, mask);
}

static void in_readlink(fuse_req_t req, fuse_ino_t ino)
{
	side(ino)->readlink(req, ino);
}

static void in_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	side(parent)->mknod(req, parent, name, mode, rdev);
}

static void in_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	side(parent)->mkdir(req, parent, name, mode);
}

static void in_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	side(parent)->unlink(req, parent, name);
}

static void in_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	side(parent)->rmdir(req, parent, name);
}

static void in_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	side(parent)->symlink(req, target, parent, name);
}

static void in_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                      const char *newname, unsigned flags)
{
	if (is_control(parent) != is_control(newparent))
		fuse_reply_err(req, EXDEV);
	else
		side(parent)->rename(req, parent, name, newparent, newname, flags);
}

static void in_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	if (is_control(ino) != is_control(newparent))
		fuse_reply_err(req, EXDEV);
	else
		side(ino)->link(req, ino, newparent, newname);
}

static void in_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
	side(parent)->create(req, parent, name, mode, fi);
}

static void in_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	side(ino)->open(req, ino, fi);
}

static void in_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
	side(ino)->read(req, ino, size, off, fi);
}

static void in_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                     struct fuse_file_info *fi)
{
	side(ino)->write(req, ino, buf, size, off, fi);
}

static void in_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	side(ino)->flush(req, ino, fi);
}

static void in_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	side(ino)->release(req, ino, fi);
}

static void in_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	side(ino)->fsync(req, ino, datasync, fi);
}

static void in_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	side(ino)->opendir(req, ino, fi);
}

static void in_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
	side(ino)->readdir(req, ino, size, off, fi);
}

static void in_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                           struct fuse_file_info *fi)
{
	side(ino)->readdirplus(req, ino, size, off, fi);
}

static void in_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	side(ino)->releasedir(req, ino, fi);
}

static void in_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	if (is_control(ino))
		fuse_reply_err(req, 0);
	else
		sbx_workspace_ops.fsyncdir(req, ino, datasync, fi);
}

static void in_statfs(fuse_req_t req, fuse_ino_t ino)
{
	op_statfs(req, is_control(ino) ? FUSE_ROOT_ID : ino);
}

static void in_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	if (is_control(ino))
		fuse_reply_err(req, EOPNOTSUPP);
	else
		op_getxattr(req, ino, name, size);
}

static void in_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t size, int flags)
{
	side(ino)->setxattr(req, ino, name, value, size, flags);
}

static void in_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	if (is_control(ino))
		fuse_reply_err(req, EOPNOTSUPP);
	else
		op_listxattr(req, ino, size);
}

static void in_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	if (is_control(ino))
		fuse_reply_err(req, EOPNOTSUPP);
	else
		op_removexattr(req, ino, name);
}

static void in_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                         struct fuse_file_info *fi)
{
	if (is_control(ino))
		fuse_reply_err(req, EOPNOTSUPP);
	else
		sbx_workspace_ops.fallocate(req, ino, mode, off, len, fi);
}

static void in_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off,
                               struct fuse_file_info *in_fi, fuse_ino_t out, off_t out_off,
                               struct fuse_file_info *out_fi, size_t len, int flags)
{
	if (is_control(in) || is_control(out))
		fuse_reply_err(req, EXDEV);
	else
		sbx_workspace_ops.copy_file_range(req, in, in_off, in_fi, out, out_off, out_fi, len,
		                                  flags);
}

static void in_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
                     struct fuse_file_info *fi)
{
	if (is_control(ino))
		fuse_reply_err(req, EINVAL);
	else
		sbx_workspace_ops.lseek(req, ino, off, whence, fi);
}

const struct fuse_lowlevel_ops sbx_inline_ops = {
        .init = in_init,
        .lookup = in_lookup,
        .forget = in_forget,
        .forget_multi = in_forget_multi,
        .getattr = in_getattr,
        .setattr = in_setattr,
        .access = in_access,
        .readlink = in_readlink,
        .mknod = in_mknod,
        .mkdir = in_mkdir,
        .unlink = in_unlink,
        .rmdir = in_rmdir,
        .symlink = in_symlink,
        .rename = in_rename,
        .link = in_link,
        .create = in_create,
        .open = in_open,
        .read = in_read,
        .write = in_write,
        .flush = in_flush,
        .release = in_release,
        .fsync = in_fsync,
        .opendir = in_opendir,
        .readdir = in_readdir,
        .readdirplus = in_readdirplus,
        .releasedir = in_releasedir,
        .fsyncdir = in_fsyncdir,
        .statfs = in_statfs,
        .setxattr = in_setxattr,
        .getxattr = in_getxattr,
        .listxattr = in_listxattr,
        .removexattr = in_removexattr,
        .fallocate = in_fallocate,
        .copy_file_range = in_copy_file_range,
        .lseek = in_lseek,
};
