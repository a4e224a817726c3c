/*
 * A change is named by paths, so a place whose path is not known, or is too long, is not changed.
 * What has no name any more is nobody's but who has it open: nothing is told of that.
 */
#include "fs/workspace/changes.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "fs/workspace/nested_git.h"
#include "fs/workspace/place.h"

static struct sbx_sandbox *sandbox_of(const struct sbx_node *node)
{
	return sbx_node_box(node)->sandbox;
}

static bool is_told(struct sbx_workspace *ws, struct sbx_node *node)
{
	return !sbx_node_stored(ws->inodes, node);
}

/* Whether NAME in DIR is of the machine where the sandbox really is. */
static bool is_name_told(struct sbx_workspace *ws, struct sbx_node *dir, const char *name)
{
	return !sbx_nested_is(sbx_node_box(dir), name) && is_told(ws, dir);
}

static int unnamed(int r, struct sbx_error *err)
{
	return sbx_fail(err, -r, "where the file is in the sandbox cannot be told: %s",
	                strerror(-r));
}

static int path_of(struct sbx_workspace *ws, struct sbx_node *node, char ret[PATH_MAX],
                   struct sbx_error *err)
{
	int r = ws_place_of(ws, node, ret);

	return r < 0 ? unnamed(r, err) : 0;
}

static int path_in(struct sbx_workspace *ws, struct sbx_node *dir, const char *name,
                   char ret[PATH_MAX], struct sbx_error *err)
{
	int r = ws_place_in(ws, dir, name, ret);

	return r < 0 ? unnamed(r, err) : 0;
}

static const struct sbx_change *meant(const struct ws_change *c)
{
	return c->takes ? &c->meant : NULL;
}

static int admit(struct ws_change *c, struct sbx_sandbox *sandbox, struct sbx_error *err)
{
	int r = sandbox->impl->away->admit(sandbox, meant(c), err);

	if (r == 0)
		c->sandbox = sandbox;
	else if (!err->code)
		sbx_fail(err, -r, "the change cannot be noted: %s", strerror(-r));
	return r;
}

static void tell(struct ws_change *c, const struct sbx_change *what)
{
	struct sbx_sandbox *sandbox = c->sandbox;

	c->sandbox = NULL;
	sandbox->impl->away->changed(sandbox, what);
}

static void drop(struct ws_change *c)
{
	struct sbx_sandbox *sandbox = c->sandbox;

	c->sandbox = NULL;
	sandbox->impl->away->dropped(sandbox, meant(c));
}

/* What was meant was done, or (R < 0) was not. */
static void end_meant(struct ws_change *c, int r)
{
	assert(r < 0 || c->takes);
	if (r < 0)
		drop(c);
	else
		tell(c, &c->meant);
}

/* C is to do what KIND says to what WAS says. */
static void mean(struct ws_change *c, enum sbx_change_kind kind)
{
	c->takes = true;
	c->meant = (struct sbx_change){
	        .kind = kind,
	        .path = c->path,
	        .to = kind == SBX_CHANGE_GONE ? NULL : c->to,
	        .ino = c->was.st_ino,
	        .mode = c->was.st_mode,
	};
}

/* --- names -------------------------------------------------------------------------------------
 */

static int name_paths(struct ws_change *c, struct sbx_workspace *ws, struct sbx_node *dir,
                      const char *name, struct sbx_node *linked, struct sbx_error *err)
{
	int r = path_in(ws, dir, name, linked ? c->to : c->path, err);

	return r || !linked ? r : path_of(ws, linked, c->path, err);
}

int ws_change_begin_made(struct ws_change *c, struct sbx_workspace *ws, struct sbx_node *dir,
                         int dirfd, const char *name, struct sbx_node *linked,
                         struct sbx_error *err)
{
	const bool away = sbx_is_away(sandbox_of(dir));
	bool told;
	int r;

	c->sandbox = NULL;
	c->takes = false;
	if (!away)
		return 0;
	told = is_name_told(ws, dir, name);
	if (linked && told != is_told(ws, linked))
		return -EXDEV;
	if (!told)
		return 0;
	r = name_paths(c, ws, dir, name, linked, err);
	if (r < 0)
		return r;
	c->there = fstatat(dirfd, name, &c->was, AT_SYMLINK_NOFOLLOW) == 0;
	return admit(c, sandbox_of(dir), err);
}

/* Of a name that was opened, and may have been there. */
static bool is_made(const struct ws_change *c, const struct ws_new *what)
{
	return !what->open || !c->there;
}

void ws_change_made(struct ws_change *c, int dirfd, const char *name, const struct ws_new *what,
                    int r)
{
	struct sbx_change told = {.kind = SBX_CHANGE_MADE, .path = c->path, .target = what->target};
	struct stat st;

	if (!c->sandbox)
		return;
	/* A name that is gone again already was never seen by anybody. */
	if (r < 0 || (!is_made(c, what) && !(what->flags & O_TRUNC)) ||
	    fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		drop(c);
		return;
	}
	told.ino = st.st_ino;
	told.mode = st.st_mode;
	if (what->linked) {
		told.kind = SBX_CHANGE_LINKED;
		told.to = c->to;
	} else if (!is_made(c, what)) {
		told.kind = SBX_CHANGE_EMPTIED;
	}
	tell(c, &told);
}

int ws_change_begin_removed(struct ws_change *c, struct sbx_workspace *ws, struct sbx_node *dir,
                            int dirfd, const char *name, struct sbx_error *err)
{
	int r;

	c->sandbox = NULL;
	c->takes = false;
	if (!sbx_is_away(sandbox_of(dir)) || !is_name_told(ws, dir, name))
		return 0;
	r = path_in(ws, dir, name, c->path, err);
	if (r == 0 && fstatat(dirfd, name, &c->was, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r < 0)
		return r;
	mean(c, SBX_CHANGE_GONE);
	return admit(c, sandbox_of(dir), err);
}

void ws_change_removed(struct ws_change *c, int r)
{
	if (c->sandbox)
		end_meant(c, r);
}

/* --- moving ------------------------------------------------------------------------------------
 */

int ws_change_begin_rename(struct ws_change *c, const struct ws_rename *rn, struct sbx_error *err)
{
	struct stat target;
	bool from, to, over;
	int r;

	c->sandbox = NULL;
	c->takes = false;
	if (!sbx_is_away(sandbox_of(rn->dir)))
		return 0;
	from = is_name_told(rn->ws, rn->dir, rn->name);
	to = is_name_told(rn->ws, rn->newdir, rn->newname);
	if (from != to)
		return -EXDEV;
	if (!from)
		return 0;
	r = path_in(rn->ws, rn->dir, rn->name, c->path, err);
	if (r == 0)
		r = path_in(rn->ws, rn->newdir, rn->newname, c->to, err);
	if (r == 0 && fstatat(rn->fd->fd, rn->name, &c->was, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r < 0)
		return r;
	over = fstatat(rn->newfd->fd, rn->newname, &target, AT_SYMLINK_NOFOLLOW) == 0;
	/* Two names of one file: rename(2) does nothing then. */
	if (over && target.st_ino == c->was.st_ino)
		return 0;
	mean(c, rn->flags & RENAME_EXCHANGE ? SBX_CHANGE_SWAPPED : SBX_CHANGE_MOVED);
	if (over && c->meant.kind == SBX_CHANGE_MOVED)
		c->meant.over = target.st_ino;
	return admit(c, sandbox_of(rn->dir), err);
}

void ws_change_renamed(struct ws_change *c, int r)
{
	if (c->sandbox)
		end_meant(c, r);
}

/* --- a file ------------------------------------------------------------------------------------
 */

int ws_change_begin_node(struct ws_change *c, struct sbx_workspace *ws, struct sbx_node *node,
                         int fd, struct sbx_error *err)
{
	int r;

	c->sandbox = NULL;
	c->takes = false;
	if (!sbx_is_away(sandbox_of(node)) || !is_told(ws, node))
		return 0;
	if (fstat(fd, &c->was) < 0)
		return -errno;
	if (c->was.st_nlink == 0)
		return 0;
	c->fd = fd;
	r = path_of(ws, node, c->path, err);
	return r < 0 ? r : admit(c, sandbox_of(node), err);
}

void ws_change_end(struct ws_change *c, enum sbx_change_kind kind, int r)
{
	struct sbx_change what = {.kind = kind, .path = c->path};

	if (!c->sandbox)
		return;
	if (kind == SBX_CHANGE_STATUS && fstat(c->fd, &c->was) < 0)
		r = -errno;
	what.ino = c->was.st_ino;
	what.mode = c->was.st_mode;
	if (r < 0)
		drop(c);
	else
		tell(c, &what);
}

int ws_change_data(struct sbx_workspace *ws, struct sbx_node *node, int fd, struct sbx_error *err)
{
	struct ws_change c;
	int r = ws_change_begin_node(&c, ws, node, fd, err);

	if (r == 0)
		ws_change_end(&c, SBX_CHANGE_DATA, 0);
	return r;
}
