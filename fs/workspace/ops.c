/* The table of the workspace connection and what is agreed on with the kernel. */
#include <errno.h>

#include "fs/workspace/gate.h"
#include "fs/workspace/workspace.h"

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	const struct sbx_workspace *ws = ((struct sbx_connection *)userdata)->workspace;

	/*
	 * No writeback cache: the kernel would own size and times, and not see what a command
	 * appended. O_TRUNC comes as setattr, since mostly there is no OPEN to carry it.
	 */
	conn->want &= ~(unsigned)(FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_WRITEBACK_CACHE |
	                          FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_MOVE |
	                          FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS |
	                          FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_HANDLE_KILLPRIV);
	conn->want |= conn->capable &
	              (FUSE_CAP_SPLICE_WRITE | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_PARALLEL_DIROPS |
	               FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_AUTO_INVAL_DATA |
	               FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_EXPIRE_ONLY);
	/* Reads that are parked count, and are not to hold up those that need not be. */
	conn->max_background = ws->away ? 1024 : 64;
	conn->time_gran = 1;
#ifdef HAVE_PASSTHROUGH
	if (ws->passthrough) {
		conn->want |= conn->capable & FUSE_CAP_PASSTHROUGH;
		conn->max_backing_stack_depth = FUSE_BACKING_STACKED_OVER; /* an overlay */
	}
#endif
}

const struct fuse_lowlevel_ops sbx_workspace_ops = {
        .init = op_init,
        .lookup = gate_lookup,
        .forget = op_forget,
        .forget_multi = op_forget_multi,
        .getattr = gate_getattr,
        .setattr = gate_setattr,
        .access = op_access,
        .readlink = op_readlink,
        .mknod = gate_mknod,
        .mkdir = gate_mkdir,
        .unlink = gate_unlink,
        .rmdir = gate_rmdir,
        .symlink = gate_symlink,
        .rename = gate_rename,
        .link = gate_link,
        .open = op_open,
        .read = gate_read,
        .write = gate_write,
        .flush = op_flush,
        .release = op_release,
        .fsync = gate_fsync,
        .opendir = gate_opendir,
        .readdir = gate_readdir,
        .readdirplus = gate_readdirplus,
        .releasedir = op_releasedir,
        .fsyncdir = gate_fsyncdir,
        .statfs = op_statfs,
        .setxattr = op_setxattr,
        .getxattr = op_getxattr,
        .listxattr = op_listxattr,
        .removexattr = op_removexattr,
        .create = gate_create,
        .fallocate = gate_fallocate,
        .copy_file_range = gate_copy_file_range,
        .lseek = gate_lseek,
};
