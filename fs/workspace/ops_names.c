/*
 * Taking names away and moving them, and what that needs where a .git is kept apart from the tree
 * (fs/workspace/nested_git.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/gitdir.h"
#include "fs/workspace/kernel_cache.h"
#include "fs/workspace/move_dir.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/ops_root.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/tree.h"

/* One rename that a .git has part in. */
struct moving {
	struct sbx_inodes *inodes;
	struct sbx_box *box;
	bool by_copying; /* the store and the tree may be two file systems */
};

static int move(const struct moving *m, int dirfd, const char *name, int newdirfd,
                const char *newname, unsigned flags)
{
	int r = renameat2(dirfd, name, newdirfd, newname, flags) < 0 ? -errno : 0;

	if (r != -EXDEV || !m->by_copying)
		return r;
	return sbx_move_across(m->inodes, m->box, dirfd, name, newdirfd, newname, flags);
}

/* Out of the store. */
static int move_out(const struct moving *m, int dirfd, const char *name, int newdirfd,
                    const char *newname, unsigned flags)
{
	struct sbx_nested n;
	int r = sbx_nested_find(m->box, dirfd, name, &n);

	if (r < 0)
		return r;
	r = move(m, n.dirfd, n.name, newdirfd, newname, flags);
	if (r == 0) {
		_cleanup_fd_ int fd =
		        openat(newdirfd, newname, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		sbx_nested_drop(&n, dirfd, name);
		/* There no command has been at it. */
		if (fd >= 0)
			sbx_gitdir_sign(m->box, fd);
	}
	sbx_nested_release(&n);
	return r;
}

/* Into the store, perhaps over what stands there. */
static int move_in(const struct moving *m, int dirfd, const char *name, int newdirfd,
                   const char *newname, unsigned flags)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct stat st;
	int r = sbx_nested_find(m->box, newdirfd, newname, &n);

	if (r == 0) {
		r = move(m, dirfd, name, n.dirfd, n.name, flags);
		sbx_nested_release(&n);
		return r;
	}
	if (r != -ENOENT)
		return r;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = sbx_nested_make(m->box, newdirfd, newname, S_ISDIR(st.st_mode), &n, &err);
	if (r < 0)
		return r;
	return sbx_nested_made(&n, newdirfd, move(m, dirfd, name, n.dirfd, n.name, flags));
}

static int move_one(const struct moving *m, int dirfd, const char *name, int newdirfd,
                    const char *newname, unsigned flags)
{
	bool out = sbx_nested_is(m->box, name), in = sbx_nested_is(m->box, newname);

	return out && in ? sbx_nested_carry(m->box, dirfd, name, newdirfd, newname, flags)
	       : out     ? move_out(m, dirfd, name, newdirfd, newname, flags)
	       : in      ? move_in(m, dirfd, name, newdirfd, newname, flags)
	                 : move(m, dirfd, name, newdirfd, newname, flags);
}

/* In three steps, as no two of the places need be on one file system. */
static int exchange(const struct moving *m, int dirfd, const char *name, int newdirfd,
                    const char *newname)
{
	char temp[48];
	int r;

	sbx_move_temp(temp);
	r = move_one(m, dirfd, name, newdirfd, temp, RENAME_NOREPLACE);
	if (r < 0)
		return r;
	r = move_one(m, newdirfd, newname, dirfd, name, RENAME_NOREPLACE);
	if (r < 0) {
		move_one(m, newdirfd, temp, dirfd, name, RENAME_NOREPLACE);
		return r;
	}
	return move_one(m, newdirfd, temp, newdirfd, newname, RENAME_NOREPLACE);
}

/*
 * As renameat2(2), where either may be a .git that is kept apart. 0 or -errno. -EXDEV: it takes
 * copying, which may take long; BY_COPYING allows it.
 */
static int rename_at(struct sbx_inodes *inodes, struct sbx_box *box, int dirfd, const char *name,
                     int newdirfd, const char *newname, unsigned flags, bool by_copying)
{
	const struct moving m = {.inodes = inodes, .box = box, .by_copying = by_copying};

	if (!sbx_nested_is(box, name) && !sbx_nested_is(box, newname)) {
		const bool signs = sbx_gitdir_may_sign(box, newdirfd, name, newname);

		if (renameat2(dirfd, name, newdirfd, newname, flags) < 0)
			return -errno;
		if (signs)
			sbx_gitdir_sign(box, newdirfd);
		return 0;
	}
	if (!(flags & RENAME_EXCHANGE))
		return move_one(&m, dirfd, name, newdirfd, newname, flags);
	/* No half of it is to be done here, if the other has to be done in the pool. */
	return box->sandbox->tree.emulate_dir_rename && !by_copying
	               ? -EXDEV
	               : exchange(&m, dirfd, name, newdirfd, newname);
}

/* The path of NAME in DIR from the sandbox's root. */
static bool path_in(struct sbx_workspace *ws, struct sbx_node *dir, const char *name,
                    char buf[PATH_MAX])
{
	size_t len;

	if (sbx_node_path(ws->inodes, dir, buf, PATH_MAX) < 0)
		return false;
	len = strlen(buf);
	return snprintf(buf + len, PATH_MAX - len, "%s%s", len ? "/" : "", name) <
	       (int)(PATH_MAX - len);
}

void ws_note_nested(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name)
{
	char path[PATH_MAX];

	if (sbx_nested_is(sbx_node_box(dir), name) && path_in(ws, dir, name, path))
		sbx_nested_note(sbx_node_box(dir), dirfd, name, path);
}

/* NAME in DIR is NEWNAME in NEWDIR now, and, when SWAPPED, the other way round. */
static void moved_nested(struct sbx_workspace *ws, struct sbx_node *dir, const char *name,
                         struct sbx_node *newdir, const char *newname, bool swapped)
{
	char old[PATH_MAX], new[PATH_MAX];

	if (sbx_node_box(dir)->hides_git && path_in(ws, dir, name, old) &&
	    path_in(ws, newdir, newname, new))
		sbx_nested_moved(sbx_node_box(dir), old, new, swapped);
}

/* A parked rmdir of what holds nothing but a .git that a command made. */
struct clearing {
	struct sbx_parked parked;
	struct sbx_workspace *ws;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int fd; /* of what is to be removed */
	int result;
	char name[];
};

static void keep_going(struct sbx_parked *p, bool fatal)
{
	(void)p;
	(void)fatal;
}

/* [loop] */
static void cleared(void *data)
{
	struct clearing *c = data;

	sbx_park_remove(c->ws->park, &c->parked);
	ws_put(c->ws, c->dir, c->f);
	ws_reply(c->parked.req, c->result);
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

/*
 * Takes over an rmdir of NAME in DIR, with both, when only what is not shown keeps it from being empty; answers
 * later. False: it is not so.
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
	c = calloc(1, sizeof(*c) + strlen(name) + 1);
	if (!c)
		return false;
	c->ws = ws;
	c->dir = dir;
	c->f = f;
	c->fd = sbx_steal_fd(&fd);
	memcpy(c->name, name, strlen(name));
	c->parked.req = req;
	c->parked.cancel = keep_going;
	sbx_park_add(ws->park, &c->parked);
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
	if (r == -ENOTEMPTY && rmdir_hidden(req, dir, f, name))
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
		r = rename_at(inodes, box, rn->fd->fd, rn->name, rn->newfd->fd, rn->newname,
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

	moved_nested(rn->ws, rn->dir, rn->name, rn->newdir, rn->newname,
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
