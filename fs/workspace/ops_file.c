/*
 * Opening, closing and contents of files.
 *
 * Where OPEN can be answered with ENOSYS it is, and the kernel remembers: from then on it opens,
 * reads from its page cache and closes without asking (fuse(4), FUSE_NO_OPEN_SUPPORT). So no
 * request goes by a handle: the descriptor belongs to the node, and O_APPEND is seen at each write.
 *
 * Opens are ordinary with controls=inline, since control files need them and ENOSYS is for a whole
 * connection, and with io=passthrough, where the answer names the backing file that the kernel
 * reads and writes by itself: for what is opened for writing and for what is large. The handle only
 * says that the open is counted (fs/fuse/passthrough.h); reads and writes that still come here go
 * by the node.
 *
 * A file that is open for writing cannot be executed. So the kernel is given a descriptor that is
 * read only: it opens the backing file anew with each open, as the client did. A descriptor that
 * can write is put before the answer, because the client may have the file executed as soon as it
 * has that.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/fuse/passthrough.h"
#include "fs/sandbox/backend_work.h"
#include "fs/workspace/changes.h"
#include "fs/workspace/tree.h"
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
static void drop_set_id(int fd)
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

/* The kernel opens for writing by itself, and any failure of its own is EIO: so it is tried here.
 */
static int may_write(struct sbx_workspace *ws, struct sbx_node *node)
{
	struct sbx_fd *f;
	int r = sbx_node_fd(ws->inodes, node, SBX_FD_WRITE, &f);

	if (r < 0)
		return r;
	drop_set_id(f->fd);
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

/*
 * Opens NODE as FI has it, where opens are asked for: fills FI for the answer. 0, or why it cannot
 * be written (-ETXTBSY...). uncount undoes it, with the handle.
 */
static int open_node(struct sbx_workspace *ws, struct sbx_node *node, struct fuse_file_info *fi)
{
	fi->fh = 0;
	fi->keep_cache = 1;
	fi->noflush = 1;
	return ws->passthrough && sbx_node_kind(node) == SBX_NODE_FILE ? open_counted(ws, node, fi)
	                                                               : 0;
}

static void uncount(struct sbx_workspace *ws, uint64_t id, uint64_t fh)
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
	/*
	 * An open for writing counts as a write, because writes that the kernel makes by itself
	 * are not heard of.
	 */
	if (sbx_node_kind(node) == SBX_NODE_FILE && (fi->flags & O_ACCMODE) != O_RDONLY)
		ws_edited(node);
	r = open_node(ws, node, fi);
	sbx_node_put(ws->inodes, node);
	if (r < 0)
		ws_reply(req, r);
	else if (fuse_reply_open(req, fi) != 0)
		uncount(ws, ino, fi->fh);
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	ws_reply(req, ws_of(req)->opens ? 0 : -ENOSYS);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	uncount(ws_of(req), ino, fi->fh);
	ws_reply(req, 0);
}

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

/* Spliced from one cache to the other where that is worth it; not moved, since commands read the
 * file as well. */
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
	if (sbx_node_kind(node) == SBX_NODE_TEXT || sbx_node_kind(node) == SBX_NODE_GITFILE) {
		ws_reply_text(req,
		              sbx_node_kind(node) == SBX_NODE_TEXT
		                      ? sbx_top_files[sbx_node_which(node)].text
		                      : ws_gitfile(node),
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
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_node *node = file_fd(req, ino, SBX_FD_WRITE, &f);
	ssize_t n = -1;
	int r;
	bool last = false;

	if (!node)
		return;
	drop_set_id(f->fd);
	r = ws_change_data(ws, node, f->fd, &err);
	/* Appending is the file's business: a command may append to it at the same time. */
	if (r == 0)
		do {
			n = pwritev2(f->fd, &iov, 1, off, fi->flags & O_APPEND ? RWF_APPEND : 0);
			r = n < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(node), r, &last));
	sbx_fd_put(ws->inodes, f);
	if (n < 0)
		ws_answer(req, sbx_node_box(node), r, &err);
	else
		fuse_reply_write(req, (size_t)n);
	sbx_node_put(ws->inodes, node);
}

/*
 * A parked fsync, whose file is synced, but not what holds it. As with a native one the client
 * waits, whatever signal comes.
 */
struct syncing {
	struct sbx_pending pending;
	struct sbx_workspace *ws;
};

/* [loop] */
static void synced(int code, void *data)
{
	struct syncing *s = data;

	sbx_deferred_remove(s->ws->deferred, &s->pending);
	ws_reply(s->pending.req, code);
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
	sbx_deferred_add(s->ws->deferred, req, &s->pending);
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
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_fd *f;
	struct sbx_node *node = file_fd(req, ino, SBX_FD_WRITE, &f);
	int r;
	bool last = false;

	(void)fi;
	if (!node)
		return;
	r = ws_change_data(ws, node, f->fd, &err);
	if (r == 0)
		do {
			r = fallocate(f->fd, mode, off, len) < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(node), r, &last));
	sbx_fd_put(ws->inodes, f);
	ws_answer(req, sbx_node_box(node), r, &err);
	sbx_node_put(ws->inodes, node);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
                        fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len,
                        int flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_fd *from, *to;
	struct sbx_node *src, *dst;
	ssize_t n = -1;
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
	r = ws_change_data(ws, dst, to->fd, &err);
	if (r == 0)
		do {
			n = copy_file_range(from->fd, &in_off, to->fd, &out_off, len,
			                    (unsigned)flags);
			r = n < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(dst), r, &last));
	sbx_fd_put(ws->inodes, to);
	ws_put(ws, src, from);
	if (n < 0)
		ws_answer(req, sbx_node_box(dst), r, &err);
	else
		fuse_reply_write(req, (size_t)n);
	sbx_node_put(ws->inodes, dst);
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
	struct sbx_node *dir, *node;
	struct sbx_fd *dfd;
	struct stat st;
	int fd, r;

	dir = ws_dir(req, parent, name, &dfd);
	if (!dir)
		return;
	/* Always for both: what is written may be read back by mmap or another client. */
	fd = ws_tree_make(ws, dir, dfd->fd, name,
	                  &(struct ws_new){.mode = S_IFREG | mode,
	                                   .file = -1,
	                                   .open = true,
	                                   .flags = fi->flags & (O_EXCL | O_TRUNC)},
	                  &err);
	r = fd < 0 ? fd : 0;
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
	r = open_node(ws, node, fi);
	ws_entry(ws, node, &st, &e);
	sbx_node_put(ws->inodes, node);
	if (r < 0) {
		sbx_node_forget(ws->inodes, e.ino, 1);
		ws_reply(req, r);
	} else if (fuse_reply_create(req, &e, fi) != 0) {
		uncount(ws, e.ino, fi->fh);
		sbx_node_forget(ws->inodes, e.ino, 1);
	}
}
