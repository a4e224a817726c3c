/* Requests that make names, and the texts of links. */
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
#include "fs/workspace/ops_root.h"
#include "fs/workspace/tree.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

static int mknod_refused(mode_t mode, const char *name, struct sbx_error *err)
{
	if (sbx_mitigation_off("special"))
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
	                : sbx_symlink_check(root, path, target, view, err);
}

/* Makes NAME in the directory PARENT as WHAT says, and answers. */
static void make(fuse_req_t req, fuse_ino_t parent, const char *name, const struct ws_new *what)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_fd *f;
	struct sbx_node *dir = ws_dir(req, parent, name, &f);
	int r;

	if (!dir)
		return;
	r = what->target ? check_link(ws, dir, what->target, &err) : 0;
	if (r == 0 && !what->target && !S_ISDIR(what->mode))
		r = mknod_refused(what->mode, name, &err);
	if (r == 0)
		r = ws_tree_make(ws, dir, f->fd, name, what, &err);
	if (r < 0 && err.code)
		ws_refuse(req, sbx_node_box(dir), &err);
	else if (r < 0)
		ws_reply(req, r);
	else if (S_ISFIFO(what->mode))
		made_fifo(req, dir, name);
	else
		ws_reply_lookup(req, dir, name);
	ws_put(ws, dir, f);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	if (parent == SBX_NODE_ROOT_ID)
		root_mkdir(req, name);
	else
		make(req, parent, name, &(struct ws_new){.mode = S_IFDIR | mode, .file = -1});
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)rdev;
	make(req, parent, name, &(struct ws_new){.mode = mode, .file = -1});
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	make(req, parent, name, &(struct ws_new){.mode = S_IFLNK, .target = target, .file = -1});
}

/*
 * As check_link, before TARGET is given to a client. Where it is steep a command could put a link
 * in the way of the client's walk, so then none may run.
 */
static int check_followed(struct sbx_workspace *ws, struct sbx_node *dir, const char *target,
                          struct sbx_error *err)
{
	struct sbx_box *box = sbx_node_box(dir);
	const unsigned begun = __atomic_load_n(&box->begun, __ATOMIC_SEQ_CST);
	int r = check_link(ws, dir, target, err);

	if (r || !sbx_symlink_is_steep(target) || sbx_mitigation_off("links"))
		return r;
	if (__atomic_load_n(&box->busy, __ATOMIC_SEQ_CST) ||
	    __atomic_load_n(&box->begun, __ATOMIC_SEQ_CST) != begun)
		return sbx_fail(
		        err, EACCES,
		        "a link to %s climbs behind a name: it is followed while no command runs",
		        target);
	return 0;
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
 * Whether TEXT, which leads out, is told all the same: 0, or -EACCES. Clients that do not follow
 * it are told, so that git, tar and cp go on. The kernel must not keep it for others, so NODE has
 * to be one that is looked up each time. A text that does not climb itself is told to all,
 * because the link that it leads to is judged by itself.
 */
static int tell_refused(const struct sbx_node *node, const char *text, pid_t client,
                        struct sbx_error *err)
{
	const bool gentle = *text != '/' && sbx_symlink_climbs(text, 0);

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
	if (sbx_symlink_is_steep(buf) && !sbx_node_steep(node))
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
	struct sbx_fd *f = NULL, *dfd;
	int r;

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
		r = ws_tree_make(ws, dir, dfd->fd, newname,
		                 &(struct ws_new){.file = f->fd, .linked = node}, &err);
	/* The kernel brings it up to date only where both names have one node. */
	if (r == 0 && sbx_node_box(node)->sandbox->tree.splits_links)
		sbx_channel_forget_attr(ws->channel, sbx_node_id(node));
	if (r < 0 && err.code)
		ws_refuse(req, sbx_node_box(dir), &err);
	else if (r < 0)
		ws_reply(req, r);
	else
		ws_reply_lookup(req, dir, newname);
	ws_put(ws, dir, dfd);
	ws_put(ws, node, f);
}
