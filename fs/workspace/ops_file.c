/*
 * Contents of files. Mostly nothing is known here of opens (fs/workspace/ops_open.c), so no request goes by a handle:
 * the descriptor belongs to the node, and O_APPEND is seen at each write. One that can write is put before the answer: who
 * has that may have the file executed, which the kernel refuses while it is open for writing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/owner.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"

/* The node of a regular file's contents with a descriptor for WANT, or answers. */
static struct sbx_node *file_fd(fuse_req_t req, fuse_ino_t ino, enum sbx_fd_want want,
                                struct sbx_fd **ret)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	int r;
	bool last = false;

	if (!node)
		return NULL;
	do {
		r = sbx_node_kind(node) == SBX_NODE_FILE ? sbx_node_fd(ws->inodes, node, want, ret)
		    : want == SBX_FD_WRITE               ? -EACCES
		                                         : -EINVAL;
	} while (want == SBX_FD_WRITE && ws_make_room(ws, sbx_node_box(node), r, &last));
	if (r == 0 && want == SBX_FD_WRITE)
		ws_edited(node);
	if (r == 0)
		return node;
	ws_unreached(req, node, r, false);
	sbx_node_put(ws->inodes, node);
	return NULL;
}

/* Spliced from one cache to the other where that is worth it; not moved, since commands read the file as well. */
static void read_splicing(fuse_req_t req, const struct sbx_fd *f, size_t size, off_t off)
{
	struct fuse_bufvec data = FUSE_BUFVEC_INIT(size);

	data.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	data.buf[0].fd = f->fd;
	data.buf[0].pos = off;
	fuse_reply_data(req, &data, 0);
}

static void read_copying(fuse_req_t req, struct sbx_node *node, struct sbx_fd *f, size_t size,
                         off_t off)
{
	_cleanup_free_ char *buf = malloc(size);
	ssize_t n = buf ? pread(f->fd, buf, size, off) : -1;
	int r = buf ? -errno : -ENOMEM;

	ws_put(ws_of(req), node, f);
	if (n < 0)
		ws_reply(req, r);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node;
	struct sbx_fd *f;

	(void)fi;
	node = ws_node(req, ino);
	if (!node)
		return;
	if (sbx_node_kind(node) == SBX_NODE_README || sbx_node_kind(node) == SBX_NODE_GITFILE) {
		ws_reply_text(
		        req, sbx_node_kind(node) == SBX_NODE_README ? sbx_readme : ws_gitfile(node),
		        size, off);
		sbx_node_put(ws->inodes, node);
		return;
	}
	sbx_node_put(ws->inodes, node);
	node = file_fd(req, ino, SBX_FD_READ, &f);
	if (!node)
		return;
	if (f->mode != O_RDONLY) {
		read_copying(req, node, f, size, off);
		return;
	}
	read_splicing(req, f, size, off);
	ws_put(ws, node, f);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
              struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = size};
	struct sbx_fd *f;
	struct sbx_node *node = file_fd(req, ino, SBX_FD_WRITE, &f);
	ssize_t n;
	int r;
	bool last = false;

	if (!node)
		return;
	ws_drop_set_id(f->fd);
	/* Appending is the file's business: a command may append to it at the same time. */
	do {
		n = pwritev2(f->fd, &iov, 1, off, fi->flags & O_APPEND ? RWF_APPEND : 0);
		r = n < 0 ? -errno : 0;
	} while (ws_make_room(ws, sbx_node_box(node), r, &last));
	ws_put(ws, node, f);
	if (n < 0)
		ws_reply(req, r);
	else
		fuse_reply_write(req, (size_t)n);
}

/* A parked fsync, whose file is synced, but not what holds it. */
struct syncing {
	struct sbx_parked parked;
	struct sbx_workspace *ws;
};

/* As with a native one the client waits, whatever signal comes. */
static void go_on(struct sbx_parked *p, bool fatal)
{
	(void)p;
	(void)fatal;
}

/* [loop] */
static void synced(int code, void *data)
{
	struct syncing *s = data;

	sbx_park_remove(s->ws->park, &s->parked);
	ws_reply(s->parked.req, code);
	free(s);
}

void ws_reply_synced(fuse_req_t req, struct sbx_box *box)
{
	struct syncing *s;

	if (!sbx_sandbox_needs_barrier(box->sandbox)) {
		ws_reply(req, 0);
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		ws_reply(req, -ENOMEM);
		return;
	}
	s->ws = ws_of(req);
	s->parked.req = req;
	s->parked.cancel = go_on;
	sbx_park_add(s->ws->park, &s->parked);
	if (!sbx_box_flush(box, synced, s))
		synced(0, s);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_fd *f;
	struct sbx_node *node = file_fd(req, ino, SBX_FD_READ, &f);
	int r;

	(void)fi;
	if (!node)
		return;
	r = (datasync ? fdatasync(f->fd) : fsync(f->fd)) < 0 ? -errno : 0;
	sbx_fd_put(ws->inodes, f);
	if (r == 0)
		ws_reply_synced(req, sbx_node_box(node));
	else
		ws_reply(req, r);
	sbx_node_put(ws->inodes, node);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                  struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_fd *f;
	struct sbx_node *node = file_fd(req, ino, SBX_FD_WRITE, &f);
	int r;
	bool last = false;

	(void)fi;
	if (!node)
		return;
	do {
		r = fallocate(f->fd, mode, off, len) < 0 ? -errno : 0;
	} while (ws_make_room(ws, sbx_node_box(node), r, &last));
	ws_put(ws, node, f);
	ws_reply(req, r);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
                        fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len,
                        int flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_fd *from, *to;
	struct sbx_node *src, *dst;
	ssize_t n;
	int r;
	bool last = false;

	(void)in_fi;
	(void)out_fi;
	src = file_fd(req, in, SBX_FD_READ, &from);
	if (!src)
		return;
	dst = file_fd(req, out, SBX_FD_WRITE, &to);
	if (!dst) {
		ws_put(ws, src, from);
		return;
	}
	do {
		n = copy_file_range(from->fd, &in_off, to->fd, &out_off, len, (unsigned)flags);
		r = n < 0 ? -errno : 0;
	} while (ws_make_room(ws, sbx_node_box(dst), r, &last));
	ws_put(ws, dst, to);
	ws_put(ws, src, from);
	if (n < 0)
		ws_reply(req, r);
	else
		fuse_reply_write(req, (size_t)n);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_fd *f;
	struct sbx_node *node = file_fd(req, ino, SBX_FD_READ, &f);
	off_t at;
	int r;

	(void)fi;
	if (!node)
		return;
	/* Nobody uses the position of the descriptor: every read and write names its own. */
	at = lseek(f->fd, off, whence);
	r = -errno;
	ws_put(ws, node, f);
	if (at < 0)
		ws_reply(req, r);
	else
		fuse_reply_lseek(req, at);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct fuse_entry_param e;
	struct sbx_nested n;
	struct sbx_node *dir, *node;
	struct sbx_fd *dfd;
	struct stat st;
	int fd = -1, r;
	bool last = false;

	dir = ws_dir(req, parent, name, &dfd);
	if (!dir)
		return;
	r = sbx_nested_make(sbx_node_box(dir), dfd->fd, name, false, &n, &err);
	/* Always for both: what is written may be read back by mmap or another client. */
	if (r == 0) {
		do {
			fd = openat(n.dirfd, n.name,
			            O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY |
			                    O_NONBLOCK | (fi->flags & (O_EXCL | O_TRUNC)),
			            mode & 01777);
			r = fd < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(dir), r, &last));
		/* A link was planted where there was nothing: have the client look again. */
		r = sbx_nested_made(&n, dfd->fd, r == -ELOOP ? -ESTALE : r);
	}
	if (r == 0)
		ws_note_nested(ws, dir, dfd->fd, name);
	if (r == 0)
		r = sbx_owner_give(sbx_node_box(dir), dfd->fd, fd, "");
	if (r < 0 && fd >= 0)
		close(fd);
	if (r == 0)
		r = sbx_node_adopt(ws->inodes, dir, name, fd, O_RDWR, &st, &node);
	if (r < 0) {
		if (err.code)
			ws_refuse(req, sbx_node_box(dir), &err);
		else
			ws_reply(req, r);
		ws_put(ws, dir, dfd);
		return;
	}
	ws_put(ws, dir, dfd);
	r = ws_open(ws, node, fi);
	ws_entry(ws, node, &st, &e);
	sbx_node_put(ws->inodes, node);
	if (r < 0) {
		sbx_node_forget(ws->inodes, e.ino, 1);
		ws_reply(req, r);
	} else if (fuse_reply_create(req, &e, fi) != 0) {
		ws_closed(ws, e.ino, fi->fh);
		sbx_node_forget(ws->inodes, e.ino, 1);
	}
}
