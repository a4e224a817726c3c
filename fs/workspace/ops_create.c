/*
 * What makes names, and what links say. Translation only: the node of the directory, its
 * descriptor, one system call beneath it, the answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/fuse/session.h"
#include "fs/util/symlink.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/ops_root.h"
#include "fs/workspace/owner.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/walls.h"

/* Whose it is to be, now that it was made in DIR (R: 0 or -errno). What stands in the store is the daemon's. */
static int give(struct sbx_node *dir, const struct sbx_nested *n, int r)
{
	return r < 0 || n->store >= 0
	               ? r
	               : sbx_owner_give(sbx_node_box(dir), n->dirfd, n->dirfd, n->name);
}

/* Answers after NAME was made in DIR (R: 0 or -errno, with ERR where there is more to say). */
static void made_in(fuse_req_t req, struct sbx_node *dir, const char *name, int r,
                    const struct sbx_error *err)
{
	if (r < 0 && err->code)
		ws_refuse(req, sbx_node_box(dir), err);
	else if (r < 0)
		ws_reply(req, r);
	else
		ws_reply_lookup(req, dir, name);
}

/* The same, where NAME may be a .git that is kept apart. DIRFD is DIR's. */
static void made_nested_in(fuse_req_t req, struct sbx_node *dir, int dirfd, const char *name, int r,
                           const struct sbx_error *err)
{
	if (r == 0)
		ws_note_nested(ws_of(req), dir, dirfd, name);
	made_in(req, dir, name, r, err);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;
	bool last = false;

	if (parent == SBX_NODE_ROOT_ID) {
		root_mkdir(req, name);
		return;
	}
	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	r = sbx_nested_make(sbx_node_box(dir), f->fd, name, true, &n, &err);
	if (r == 0) {
		do {
			r = mkdirat(n.dirfd, n.name, mode & 01777) < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(dir), r, &last));
		r = sbx_nested_made(&n, f->fd, give(dir, &n, r));
	}
	made_nested_in(req, dir, f->fd, name, r, &err);
	ws_put(ws, dir, f);
}

static int mknod_refused(mode_t mode, const char *name, struct sbx_error *err)
{
	if (sbx_without("special"))
		return 0;
	if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode))
		return sbx_fail(err, EPERM, "%s: devices cannot be made in a sandbox", name);
	if (mode & (S_ISUID | S_ISGID))
		return sbx_fail(err, EPERM, "%s: setuid and setgid are not available in a sandbox",
		                name);
	return 0;
}

static void made_fifo(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct fuse_entry_param e;
	struct sbx_node *node;
	struct stat st;
	int r = sbx_node_lookup(ws->inodes, dir, name, &st, &node);

	if (r < 0) {
		ws_reply(req, r);
		return;
	}
	sbx_node_own_fifo(ws->inodes, node, &st);
	ws_entry(ws, node, &st, &e);
	sbx_node_put(ws->inodes, node);
	if (fuse_reply_entry(req, &e) != 0)
		sbx_node_forget(ws->inodes, e.ino, 1);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;
	bool last = false;

	(void)rdev;
	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	r = mknod_refused(mode, name, &err);
	if (r == 0)
		r = sbx_nested_make(sbx_node_box(dir), f->fd, name, false, &n, &err);
	if (r == 0) {
		do {
			r = mknodat(n.dirfd, n.name, mode, 0) < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(dir), r, &last));
		r = sbx_nested_made(&n, f->fd, give(dir, &n, r));
	}
	if (r == 0 && S_ISFIFO(mode))
		made_fifo(req, dir, name);
	else
		made_nested_in(req, dir, f->fd, name, r, &err);
	ws_put(ws, dir, f);
}

/* Whether a link with TARGET in DIR is fit to be made or followed. */
static int check_link(struct sbx_workspace *ws, struct sbx_node *dir, const char *target,
                      struct sbx_error *err)
{
	struct sbx_box *box = sbx_node_box(dir);
	char path[PATH_MAX], view[PATH_MAX], name[64];
	_cleanup_fd_ int root = -1;
	int r = sbx_node_path(ws->inodes, dir, path, sizeof(path));

	if (r < 0)
		return sbx_fail(err, -r, "the directory of the link cannot be found");
	sbx_box_name(box, name);
	if (snprintf(view, sizeof(view), "%s/%s", ws->settings->mountpoint, name) >=
	    (int)sizeof(view))
		return sbx_fail(err, ENAMETOOLONG, "the path of the mount is too long");
	root = sbx_box_root(box);
	return root < 0 ? sbx_fail(err, -root, "the sandbox is gone")
	                : sbx_confine_link(root, path, target, view, err);
}

/*
 * The same before TARGET is given to a client. Where it is steep a command could put a link in the way of the client's walk, so then
 * none may run.
 */
static int check_followed(struct sbx_workspace *ws, struct sbx_node *dir, const char *target,
                          struct sbx_error *err)
{
	struct sbx_box *box = sbx_node_box(dir);
	const unsigned begun = __atomic_load_n(&box->begun, __ATOMIC_SEQ_CST);
	int r = check_link(ws, dir, target, err);

	if (r || !sbx_confine_is_steep(target) || sbx_without("links"))
		return r;
	if (__atomic_load_n(&box->busy, __ATOMIC_SEQ_CST) ||
	    __atomic_load_n(&box->begun, __ATOMIC_SEQ_CST) != begun)
		return sbx_fail(
		        err, EACCES,
		        "a link to %s climbs behind a name: it is followed while no command runs",
		        target);
	return 0;
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;
	bool last = false;

	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	r = check_link(ws, dir, target, &err);
	if (r == 0)
		r = sbx_nested_make(sbx_node_box(dir), f->fd, name, false, &n, &err);
	if (r == 0) {
		do {
			r = symlinkat(target, n.dirfd, n.name) < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(dir), r, &last));
		r = sbx_nested_made(&n, f->fd, give(dir, &n, r));
	}
	made_nested_in(req, dir, f->fd, name, r, &err);
	ws_put(ws, dir, f);
}

/*
 * Whether the client's thread PID, which waits for an answer, only asks for the text of a link:
 * the kernel asks the same to follow one. Where it cannot be told, as on a machine that lets nobody
 * look at other processes (Yama), the answer is no.
 */
static bool only_reads(pid_t pid)
{
	char path[40], text[64];
	_cleanup_fd_ int fd = -1;
	ssize_t n;
	long call;

	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
	fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	call = strtol(text, NULL, 10);
#ifdef SYS_readlink
	if (call == SYS_readlink)
		return true;
#endif
	return call == SYS_readlinkat;
}

/*
 * What becomes of TEXT, which leads out: it is told to who does not follow it, so that git, tar and
 * cp go on. The kernel must not keep it for others, so NODE has to be one that is looked up each
 * time. A text that does not climb itself is told to all: the link that it leads to is judged by
 * itself.
 */
static int tell_refused(const struct sbx_node *node, const char *text, pid_t client,
                        struct sbx_error *err)
{
	const bool gentle = *text != '/' && sbx_confine_climbs(text, 0);

	if (!gentle && !(sbx_node_steep(node) && only_reads(client)))
		return -EACCES;
	*err = (struct sbx_error)SBX_ERROR_INIT;
	return 0;
}

/*
 * The link's text, when following it stays inside or CLIENT does not follow it. The link's own
 * directory is its parent as last seen.
 */
static int read_link(struct sbx_workspace *ws, struct sbx_node *node, pid_t client,
                     char buf[PATH_MAX], struct sbx_error *err)
{
	struct sbx_node *dir;
	struct sbx_fd *f;
	ssize_t n;
	int r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, &f);

	if (r < 0)
		return r;
	n = readlinkat(f->fd, "", buf, PATH_MAX - 1);
	r = -errno;
	sbx_fd_put(ws->inodes, f);
	if (n < 0)
		return r;
	buf[n] = '\0';
	/* The kernel would keep the text: have it look again, for a node that says so. */
	if (sbx_confine_is_steep(buf) && !sbx_node_steep(node))
		return -ESTALE;
	dir = sbx_node_parent(ws->inodes, node);
	if (!dir)
		return -ESTALE;
	r = check_followed(ws, dir, buf, err);
	sbx_node_put(ws->inodes, dir);
	return err->code == EACCES ? tell_refused(node, buf, client, err) : r;
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	struct sbx_error err = SBX_ERROR_INIT;
	char buf[PATH_MAX];
	int r;

	if (!node)
		return;
	if (sbx_node_kind(node) != SBX_NODE_FILE) {
		_cleanup_free_ char *target = ws_special_target(ws, node);

		sbx_node_put(ws->inodes, node);
		if (target)
			fuse_reply_readlink(req, target);
		else
			ws_reply(req, -ENOMEM);
		return;
	}
	r = read_link(ws, node, fuse_req_ctx(req)->pid, buf, &err);
	if (err.code)
		ws_refuse(req, sbx_node_box(node), &err);
	else if (r < 0)
		ws_reply(req, r);
	else
		fuse_reply_readlink(req, buf);
	sbx_node_put(ws->inodes, node);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino), *dir;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_fd *f = NULL, *dfd;
	char proc[32];
	int r;
	bool last = false;

	if (!node)
		return;
	dir = ws_dir(req, newparent, newname, &dfd);
	if (!dir) {
		sbx_node_put(ws->inodes, node);
		return;
	}
	if (sbx_node_kind(node) != SBX_NODE_FILE)
		r = -EPERM;
	else if (sbx_node_box(node) != sbx_node_box(dir))
		r = -EXDEV;
	else
		r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, &f);
	if (r == 0)
		r = sbx_nested_make(sbx_node_box(dir), dfd->fd, newname, false, &n, &err);
	if (r == 0) {
		/* By descriptor, so it is this file and no other that gets the name. */
		snprintf(proc, sizeof(proc), "/proc/self/fd/%d", f->fd);
		do {
			r = linkat(AT_FDCWD, proc, n.dirfd, n.name, AT_SYMLINK_FOLLOW) < 0 ? -errno
			                                                                   : 0;
		} while (ws_make_room(ws, sbx_node_box(dir), r, &last));
		r = sbx_nested_made(&n, dfd->fd, r);
	}
	/* The kernel brings it up to date only where both names have one node. */
	if (r == 0 && sbx_node_box(node)->sandbox->tree.splits_links)
		sbx_channel_forget_attr(ws->channel, sbx_node_id(node));
	made_nested_in(req, dir, dfd->fd, newname, r, &err);
	ws_put(ws, dir, dfd);
	ws_put(ws, node, f);
}
