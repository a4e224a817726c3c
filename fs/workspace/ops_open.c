/*
 * Opening and closing files. Where OPEN can be answered with ENOSYS it is, and the kernel remembers: from
 * then on it opens, reads from its page cache and closes without asking (fuse(4), FUSE_NO_OPEN_SUPPORT).
 *
 * Opens are ordinary with controls=inline, since control files need them and ENOSYS is for a whole connection, and
 * with io=passthrough, where the answer names the backing file that the kernel reads and writes by
 * itself: for what is opened for writing and for what is large. The handle only says that the open is counted
 * (fs/fuse/passthrough.h); reads and writes that still come here go by the node.
 *
 * What the kernel is given is read only: with each open it opens the backing file anew, as the client did. So
 * nothing of ours keeps a file from being executed; that the client itself has it open for writing does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/fuse/passthrough.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"

/* From here on a file is worth an id; below, one read of the whole costs as much. */
#define LARGE (64 * 1024)

#define COUNTED 1 /* fi->fh */

static bool writes(const struct fuse_file_info *fi)
{
	return (fi->flags & O_ACCMODE) != O_RDONLY;
}

/* Writing takes setuid and setgid away; the daemon's own rights could keep them (root). */
void ws_drop_set_id(int fd)
{
	struct stat st;

	if (geteuid() == 0 && fstat(fd, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)))
		fchmod(fd, st.st_mode & 01777);
}

/* A read-only descriptor of what F is; F's own where it is one. */
static int read_only(const struct sbx_fd *f, int *own)
{
	char proc[32];

	if (f->mode == O_RDONLY)
		return f->fd;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", f->fd);
	*own = open(proc, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	return *own;
}

/* Makes the choice for NODE, which is not open yet: the id or 0. */
static int choose(struct sbx_workspace *ws, struct sbx_node *node, bool writing)
{
	_cleanup_fd_ int own = -1;
	struct sbx_fd *f;
	struct stat st;
	int fd = -1, r = sbx_node_fd(ws->inodes, node, SBX_FD_READ, &f);

	if (r < 0)
		return r;
	if (writing || (fstat(f->fd, &st) == 0 && st.st_size >= LARGE))
		fd = read_only(f, &own);
	r = sbx_passthrough_choose(ws->passthrough, sbx_node_id(node), sbx_node_box(node)->number,
	                           fd);
	sbx_fd_put(ws->inodes, f);
	return r;
}

/* The kernel opens for writing by itself, and any failure of its own is EIO: so it is tried here. */
static int may_write(struct sbx_workspace *ws, struct sbx_node *node)
{
	struct sbx_fd *f;
	int r = sbx_node_fd(ws->inodes, node, SBX_FD_WRITE, &f);

	if (r < 0)
		return r;
	ws_drop_set_id(f->fd);
	sbx_fd_put(ws->inodes, f);
	return 0;
}

static int open_counted(struct sbx_workspace *ws, struct sbx_node *node, struct fuse_file_info *fi)
{
	int id, r = writes(fi) ? may_write(ws, node) : 0;

	if (r < 0)
		return r;
	id = sbx_passthrough_join(ws->passthrough, sbx_node_id(node));
	if (id == -ENOENT)
		id = choose(ws, node, writes(fi));
	if (id < 0)
		return id;
	fi->fh = COUNTED;
#ifdef HAVE_PASSTHROUGH
	fi->backing_id = id;
#endif
	/* The kernel takes no other answer, and drops what it has in its cache. */
	fi->keep_cache = id == 0;
	return 0;
}

int ws_open(struct sbx_workspace *ws, struct sbx_node *node, struct fuse_file_info *fi)
{
	fi->fh = 0;
	fi->keep_cache = 1;
	fi->noflush = 1;
	return ws->passthrough && sbx_node_kind(node) == SBX_NODE_FILE ? open_counted(ws, node, fi)
	                                                               : 0;
}

void ws_closed(struct sbx_workspace *ws, uint64_t id, uint64_t fh)
{
	if (fh == COUNTED)
		sbx_passthrough_release(ws->passthrough, id);
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node;
	int r;

	if (!ws->opens) {
		ws_reply(req, -ENOSYS);
		return;
	}
	node = ws_node(req, ino);
	if (!node)
		return;
	/* What the kernel writes by itself is not heard of. */
	if (sbx_node_kind(node) == SBX_NODE_FILE && (fi->flags & O_ACCMODE) != O_RDONLY)
		ws_edited(node);
	r = ws_open(ws, node, fi);
	sbx_node_put(ws->inodes, node);
	if (r < 0)
		ws_reply(req, r);
	else if (fuse_reply_open(req, fi) != 0)
		ws_closed(ws, ino, fi->fh);
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	ws_reply(req, ws_of(req)->opens ? 0 : -ENOSYS);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	ws_closed(ws_of(req), ino, fi->fh);
	ws_reply(req, 0);
}
