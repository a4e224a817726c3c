/* What takes names away or moves them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/workspace/move_dir.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/ops_root.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"

/* WHAT: "removed", "renamed" or "replaced". */
static int refuse_change(struct sbx_workspace *ws, struct sbx_box *box, const char *name,
                         const char *what)
{
	struct sbx_error err = SBX_ERROR_INIT;
	const int r =
	        sbx_fail(&err, EPERM, "%s is of the mount itself: it cannot be %s", name, what);

	sbx_error_store(ws->registry, box, &err);
	return r;
}

/* Where controls are listed, rm -rf of a sandbox removes them first and must go on. */
static int remove_control(struct sbx_workspace *ws, struct sbx_node *dir, const char *name)
{
	struct sbx_box *box = sbx_node_box(dir);

	return box && ws->settings->ctl_listed ? 0 : refuse_change(ws, box, name, "removed");
}

static int remove_name(fuse_req_t req, struct sbx_node *dir, int dirfd, const char *name, int flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_box *box = sbx_node_box(dir);
	struct sbx_nested n;
	struct sbx_hold hold;
	bool last = false;
	int r = sbx_nested_find(box, dirfd, name, &n);

	if (r < 0)
		return r;
	sbx_box_edited(box);
	sbx_hold_name(ws->inodes, dir, name, &hold);
	/* After that: it may make one link more. */
	if (!flags && n.store < 0)
		sbx_sandbox_changing(box->sandbox, dirfd, name);
	/* Of a name of the base it takes a file that says so. */
	do {
		r = unlinkat(n.dirfd, n.name, flags) < 0 ? -errno : 0;
	} while (ws_make_room(ws, box, r, &last));
	sbx_hold_release(ws->inodes, &hold, r == 0);
	if (r == 0)
		sbx_nested_drop(&n, dirfd, name);
	sbx_nested_release(&n);
	return r;
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir = ws_node(req, parent);
	struct sbx_fd *f;
	int r;

	if (!dir)
		return;
	if (ws_is_control(ws, dir, name)) {
		ws_reply(req, remove_control(ws, dir, name));
		sbx_node_put(ws->inodes, dir);
		return;
	}
	sbx_node_put(ws->inodes, dir);
	dir = ws_parent(req, parent, name, &f);
	if (!dir)
		return;
	r = remove_name(req, dir, f->fd, name, 0);
	ws_reply(req, r);
	ws_put(ws, dir, f);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;

	if (parent == SBX_NODE_ROOT_ID) {
		root_rmdir(req, name);
		return;
	}
	dir = ws_parent(req, parent, name, &f);
	if (!dir)
		return;
	r = ws_is_control(ws, dir, name) ? remove_control(ws, dir, name)
	                                 : remove_name(req, dir, f->fd, name, AT_REMOVEDIR);
	if (r == -ENOTEMPTY && ws_rmdir_hidden(req, dir, f, name))
		return;
	ws_reply(req, r);
	ws_put(ws, dir, f);
}

/* One rename within a sandbox, and what it needs. */
struct renaming {
	fuse_req_t req;
	struct sbx_workspace *ws;
	struct sbx_node *dir, *newdir;
	struct sbx_fd *fd, *newfd;
	char *name, *newname;
	unsigned flags;
};

static int rename_names(struct renaming *rn, bool by_moving)
{
	struct sbx_inodes *inodes = rn->ws->inodes;
	struct sbx_box *box = sbx_node_box(rn->dir);
	int r;
	bool last = false;

	/* A file of the base is copied before it can have another name. */
	do {
		r = ws_rename_at(inodes, box, rn->fd->fd, rn->name, rn->newfd->fd, rn->newname,
		                 rn->flags, by_moving);
	} while (ws_make_room(rn->ws, box, r, &last));
	return r == -EXDEV && by_moving ? sbx_move_dir(inodes, box, rn->fd->fd, rn->name,
	                                               rn->newfd->fd, rn->newname, rn->flags)
	                                : r;
}

/* The nodes go where the names have gone. Returns whether links moved along. */
static bool move_nodes(struct renaming *rn)
{
	struct sbx_inodes *inodes = rn->ws->inodes;
	bool links;

	ws_moved_nested(rn->ws, rn->dir, rn->name, rn->newdir, rn->newname,
	                rn->flags & RENAME_EXCHANGE);
	ws_note_nested(rn->ws, rn->newdir, rn->newfd->fd, rn->newname);
	if (rn->flags & RENAME_EXCHANGE)
		ws_note_nested(rn->ws, rn->dir, rn->fd->fd, rn->name);
	links = sbx_node_moved(inodes, rn->dir, rn->name, rn->newdir, rn->newname);
	if (rn->flags & RENAME_EXCHANGE)
		links |= sbx_node_moved(inodes, rn->newdir, rn->newname, rn->dir, rn->name);
	return links;
}

/*
 * A file of the base is copied up before it has another name. It is held meanwhile, because an ordinary user's overlay may
 * forget that the copy is that file.
 */
static int rename_between(struct renaming *rn, bool by_moving)
{
	struct sbx_inodes *inodes = rn->ws->inodes;
	struct sbx_box *box = sbx_node_box(rn->dir);
	const bool exchange = rn->flags & RENAME_EXCHANGE;
	struct sbx_hold source = {0}, target = {0};
	int r;

	if (box != sbx_node_box(rn->newdir))
		return -EXDEV;
	if (ws_is_control(rn->ws, rn->dir, rn->name))
		return refuse_change(rn->ws, box, rn->name, "renamed");
	if (ws_is_control(rn->ws, rn->newdir, rn->newname))
		return refuse_change(rn->ws, box, rn->newname, "replaced");
	if (box->sandbox->tree.unstable_before_ns)
		sbx_hold_name(inodes, rn->dir, rn->name, &source);
	sbx_hold_name(inodes, rn->newdir, rn->newname, &target);
	r = rename_names(rn, by_moving);
	if (!exchange)
		sbx_hold_release(inodes, &target, r == 0);
	/* What was copied has other inode numbers, and its former ones are given to others. */
	if (r == 0 && (move_nodes(rn) || by_moving))
		ws_look_again(rn->ws);
	if (exchange)
		sbx_hold_release(inodes, &target, false);
	sbx_hold_release(inodes, &source, false);
	return r;
}

static void rename_end(struct renaming *rn, int r)
{
	ws_reply(rn->req, r);
	ws_put(rn->ws, rn->newdir, rn->newfd);
	ws_put(rn->ws, rn->dir, rn->fd);
}

/* [pool] */
static void move_work(void *data)
{
	struct renaming *rn = data;

	rename_end(rn, rename_between(rn, true));
	free(rn->name);
	free(rn->newname);
	free(rn);
}

/* Moving what is in a directory may take long, and no worker of the connection is to be held up by it. */
static bool move_later(const struct renaming *rn)
{
	struct renaming *copy = malloc(sizeof(*copy));
	char *name = strdup(rn->name), *newname = strdup(rn->newname);

	if (!copy || !name || !newname) {
		free(copy);
		free(name);
		free(newname);
		return false;
	}
	*copy = *rn;
	copy->name = name;
	copy->newname = newname;
	sbx_pool_submit(sbx_registry_lane(rn->ws->registry), move_work, copy);
	return true;
}

static void rename_in_box(struct renaming *rn)
{
	const struct sbx_box *box = sbx_node_box(rn->dir);
	int r = rename_between(rn, false);

	if (r == -EXDEV && box == sbx_node_box(rn->newdir) &&
	    box->sandbox->tree.emulate_dir_rename && move_later(rn))
		return;
	rename_end(rn, r);
}

/* Whether NAME in the directory PARENT is not a sandbox's to give up; then it has been told. */
static bool is_of_the_mount(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir;
	bool is;

	if (sbx_node_get(ws->inodes, parent, &dir) < 0)
		return false;
	is = ws_is_control(ws, dir, name);
	if (is)
		ws_reply(req, refuse_change(ws, sbx_node_box(dir), name, "renamed"));
	sbx_node_put(ws->inodes, dir);
	return is;
}

/* Renames at the top, or between the top and a sandbox. Returns whether it answered. */
static bool rename_top(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                       const char *newname, unsigned flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_box *box;

	if (parent != SBX_NODE_ROOT_ID && newparent != SBX_NODE_ROOT_ID)
		return false;
	if (is_of_the_mount(req, parent, name))
		return true;
	if (parent != newparent) {
		ws_reply(req, -EXDEV); /* mv then copies, which makes or empties a sandbox */
		return true;
	}
	box = flags & RENAME_NOREPLACE ? sbx_registry_find(ws->registry, newname) : NULL;
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		ws_reply(req, -EINVAL);
	else if (box)
		ws_reply(req, -EEXIST);
	else
		root_rename(req, name, newname);
	sbx_box_unref(box);
	return true;
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
               const char *newname, unsigned flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir, *newdir;
	struct sbx_fd *f, *newf;

	/* A whiteout is a device node; what else may come is unknown. */
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
		ws_reply(req, -EINVAL);
		return;
	}
	if (rename_top(req, parent, name, newparent, newname, flags))
		return;
	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	newdir = ws_dir(req, newparent, newname, &newf);
	if (newdir)
		rename_in_box(&(struct renaming){.req = req,
		                                 .ws = ws,
		                                 .dir = dir,
		                                 .newdir = newdir,
		                                 .fd = f,
		                                 .newfd = newf,
		                                 .name = (char *)(uintptr_t)name,
		                                 .newname = (char *)(uintptr_t)newname,
		                                 .flags = flags});
	else
		ws_put(ws, dir, f);
}
