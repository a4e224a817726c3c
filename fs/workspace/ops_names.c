/* Requests that take names away and move them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/sandbox/backend_work.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/ops_root.h"
#include "fs/workspace/tree.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/tree.h"

/* A parked rmdir of what holds nothing but a .git that a command made. */
struct clearing {
	struct sbx_pending pending;
	struct sbx_workspace *ws;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int fd; /* of what is to be removed */
	int result;
	char name[];
};

/* [loop] */
static void cleared(void *data)
{
	struct clearing *c = data;

	sbx_deferred_remove(c->ws->deferred, &c->pending);
	ws_put(c->ws, c->dir, c->f);
	ws_reply(c->pending.req, c->result);
	free(c);
}

/* [pool] */
static void clear(void *data)
{
	struct clearing *c = data;
	struct sbx_hold hold;

	c->result = sbx_tree_remove(c->fd, ".git", NULL);
	close(c->fd);
	sbx_hold_name(c->ws->inodes, c->dir, c->name, &hold);
	if (c->result == 0 && unlinkat(c->f->fd, c->name, AT_REMOVEDIR) < 0)
		c->result = -errno;
	sbx_hold_release(c->ws->inodes, &hold, c->result == 0);
	sbx_loop_post(sbx_registry_loop(c->ws->registry), cleared, c);
}

/* It is elsewhere, with all that nobody here has looked at. */
static void refuse_hidden(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_error err;

	sbx_fail(&err, ENOTEMPTY,
	         "a command has made .git in %s, which is not shown; let a command remove it",
	         name);
	ws_refuse(req, sbx_node_box(dir), &err);
}

/*
 * Takes over an rmdir of NAME in DIR, with both, when only what is not shown keeps it from being
 * empty; answers later. False: it is not so.
 */
static bool rmdir_hidden(fuse_req_t req, struct sbx_node *dir, struct sbx_fd *f, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	_cleanup_fd_ int fd = -1;
	struct clearing *c;

	if (!sbx_node_box(dir)->hides_git)
		return false;
	fd = openat(f->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || !sbx_nested_alone(sbx_node_box(dir), fd))
		return false;
	if (sbx_is_away(sbx_node_box(dir)->sandbox)) {
		refuse_hidden(req, dir, name);
		ws_put(ws, dir, f);
		return true;
	}
	c = calloc(1, sizeof(*c) + strlen(name) + 1);
	if (!c)
		return false;
	c->ws = ws;
	c->dir = dir;
	c->f = f;
	c->fd = sbx_steal_fd(&fd);
	memcpy(c->name, name, strlen(name));
	sbx_deferred_add(ws->deferred, req, &c->pending);
	sbx_pool_submit(sbx_registry_lane(ws->registry), clear, c);
	return true;
}

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

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir = ws_node(req, parent);
	struct sbx_error err = SBX_ERROR_INIT;
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
	r = ws_tree_remove(ws, dir, f->fd, name, 0, &err);
	ws_answer(req, sbx_node_box(dir), r, &err);
	ws_put(ws, dir, f);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
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
	                                 : ws_tree_remove(ws, dir, f->fd, name, AT_REMOVEDIR, &err);
	if (r == -ENOTEMPTY && rmdir_hidden(req, dir, f, name))
		return;
	ws_answer(req, sbx_node_box(dir), r, &err);
	ws_put(ws, dir, f);
}

/* A rename within a sandbox, and who has asked for it. */
struct renaming {
	struct ws_rename what;
	fuse_req_t req;
};

/* Of names that are not a sandbox's to give up. 0 or -errno. */
static int check_rename(const struct ws_rename *what)
{
	struct sbx_box *box = sbx_node_box(what->dir);

	if (box != sbx_node_box(what->newdir))
		return -EXDEV;
	if (ws_is_control(what->ws, what->dir, what->name))
		return refuse_change(what->ws, box, what->name, "renamed");
	if (ws_is_control(what->ws, what->newdir, what->newname))
		return refuse_change(what->ws, box, what->newname, "replaced");
	return 0;
}

static void rename_end(struct renaming *rn, int r, const struct sbx_error *err)
{
	const struct ws_rename *w = &rn->what;

	ws_answer(rn->req, sbx_node_box(w->dir), r, err);
	ws_put(w->ws, w->newdir, w->newfd);
	ws_put(w->ws, w->dir, w->fd);
}

/* [pool] */
static void move_work(void *data)
{
	struct renaming *rn = data;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = ws_tree_rename(&rn->what, true, &err);

	rename_end(rn, r, &err);
	free(rn->what.name);
	free(rn->what.newname);
	free(rn);
}

/* Moving what is in a directory may take long, and no worker of the connection is to be held up by
 * it. */
static bool move_later(const struct renaming *rn)
{
	struct renaming *copy = malloc(sizeof(*copy));
	char *name = strdup(rn->what.name), *newname = strdup(rn->what.newname);

	if (!copy || !name || !newname) {
		free(copy);
		free(name);
		free(newname);
		return false;
	}
	*copy = *rn;
	copy->what.name = name;
	copy->what.newname = newname;
	sbx_pool_submit(sbx_registry_lane(rn->what.ws->registry), move_work, copy);
	return true;
}

static void rename_in_box(struct renaming *rn)
{
	const struct sbx_box *box = sbx_node_box(rn->what.dir);
	struct sbx_error err = SBX_ERROR_INIT;
	int r = check_rename(&rn->what);

	if (r == 0) {
		r = ws_tree_rename(&rn->what, false, &err);
		if (r == -EXDEV && box->sandbox->tree.emulate_dir_rename && move_later(rn))
			return;
	}
	rename_end(rn, r, &err);
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
		                                 .what = {.ws = ws,
		                                          .dir = dir,
		                                          .newdir = newdir,
		                                          .fd = f,
		                                          .newfd = newf,
		                                          .name = (char *)(uintptr_t)name,
		                                          .newname = (char *)(uintptr_t)newname,
		                                          .flags = flags}});
	else
		ws_put(ws, dir, f);
}
