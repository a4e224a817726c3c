/*
 * A node's name is looked up, made, removed and moved by its directory's descriptor. Every such
 * change is bracketed the same: a .git may stand in the store instead of the tree, the owner is
 * given, what is open is held, and what is kept of removed files makes room where there is none.
 */
#include "fs/workspace/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/gitdir.h"
#include "fs/workspace/changes.h"
#include "fs/workspace/kernel_cache.h"
#include "fs/workspace/move_dir.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/owner.h"
#include "sandboxfs/cleanup.h"

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

static void note_nested(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name)
{
	char path[PATH_MAX];

	if (sbx_nested_is(sbx_node_box(dir), name) && path_in(ws, dir, name, path))
		sbx_nested_note(sbx_node_box(dir), dirfd, name, path);
}

/* --- making -------------------------------------------------------------------------------------
 */

/* Once. 0 or -errno; of a regular file that is opened its descriptor. */
static int make_at(int dirfd, const char *name, const struct ws_new *what)
{
	char file[32];

	if (what->open)
		return openat(dirfd, name,
		              O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK |
		                      what->flags,
		              what->mode & 01777);
	if (what->file >= 0) {
		/* By descriptor, so it is this file and no other that gets the name. */
		snprintf(file, sizeof(file), "/proc/self/fd/%d", what->file);
		return linkat(AT_FDCWD, file, dirfd, name, AT_SYMLINK_FOLLOW);
	}
	if (what->target)
		return symlinkat(what->target, dirfd, name);
	if (S_ISDIR(what->mode))
		return mkdirat(dirfd, name, what->mode & 01777);
	return mknodat(dirfd, name, what->mode, 0);
}

/* Whose it is to be. What stands in the store is the daemon's. */
static int give(struct sbx_node *dir, int dirfd, const struct sbx_nested *n,
                const struct ws_new *what, int made)
{
	if (what->open)
		return sbx_owner_give(sbx_node_box(dir), dirfd, made, "");
	if (what->file >= 0 || n->store >= 0)
		return 0;
	return sbx_owner_give(sbx_node_box(dir), n->dirfd, n->dirfd, n->name);
}

static int make(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name,
                const struct ws_new *what, struct sbx_error *err)
{
	struct sbx_box *box = sbx_node_box(dir);
	_cleanup_fd_ int fd = -1;
	struct sbx_nested n;
	bool last = false;
	int r = sbx_nested_make(box, dirfd, name, S_ISDIR(what->mode), &n, err), made;

	if (r < 0)
		return r;
	do {
		made = make_at(n.dirfd, n.name, what);
		r = made < 0 ? -errno : 0;
	} while (ws_make_room(ws, box, r, &last));
	if (what->open)
		fd = made;
	if (r == 0)
		r = give(dir, dirfd, &n, what, made);
	/* A link was planted where there was nothing to open: have the client look again. */
	r = sbx_nested_made(&n, dirfd, what->open && r == -ELOOP ? -ESTALE : r);
	if (r < 0)
		return r;
	note_nested(ws, dir, dirfd, name);
	return what->open ? sbx_steal_fd(&fd) : 0;
}

int ws_tree_make(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name,
                 const struct ws_new *what, struct sbx_error *err)
{
	struct ws_change change;
	int r = ws_change_begin_made(&change, ws, dir, dirfd, name, what->linked, err);

	if (r < 0)
		return r;
	r = make(ws, dir, dirfd, name, what, err);
	ws_change_made(&change, dirfd, name, what, r);
	return r;
}

/* --- removing -----------------------------------------------------------------------------------
 */

static int take_away(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name,
                     int flags)
{
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
		sbx_sandbox_before_write(box->sandbox, dirfd, name);
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

int ws_tree_remove(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name,
                   int flags, struct sbx_error *err)
{
	struct ws_change change;
	int r = ws_change_begin_removed(&change, ws, dir, dirfd, name, err);

	if (r < 0)
		return r;
	r = take_away(ws, dir, dirfd, name, flags);
	ws_change_removed(&change, r);
	return r;
}

/* --- moving -------------------------------------------------------------------------------------
 */

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

/* NAME in DIR is NEWNAME in NEWDIR now, and, when SWAPPED, the other way round. */
static void moved_nested(struct sbx_workspace *ws, struct sbx_node *dir, const char *name,
                         struct sbx_node *newdir, const char *newname, bool swapped)
{
	char old[PATH_MAX], new[PATH_MAX];

	if (sbx_node_box(dir)->hides_git && path_in(ws, dir, name, old) &&
	    path_in(ws, newdir, newname, new))
		sbx_nested_moved(sbx_node_box(dir), old, new, swapped);
}

static int rename_names(const struct ws_rename *rn, bool by_moving)
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
static bool move_nodes(const struct ws_rename *rn)
{
	struct sbx_inodes *inodes = rn->ws->inodes;
	bool links;

	moved_nested(rn->ws, rn->dir, rn->name, rn->newdir, rn->newname,
	             rn->flags & RENAME_EXCHANGE);
	note_nested(rn->ws, rn->newdir, rn->newfd->fd, rn->newname);
	if (rn->flags & RENAME_EXCHANGE)
		note_nested(rn->ws, rn->dir, rn->fd->fd, rn->name);
	links = sbx_node_moved(inodes, rn->dir, rn->name, rn->newdir, rn->newname);
	if (rn->flags & RENAME_EXCHANGE)
		links |= sbx_node_moved(inodes, rn->newdir, rn->newname, rn->dir, rn->name);
	return links;
}

/*
 * A file of the base is copied up before it has another name. It is held meanwhile, because an
 * ordinary user's overlay may forget that the copy is that file.
 */
static int rename_held(const struct ws_rename *rn, bool by_moving)
{
	struct sbx_inodes *inodes = rn->ws->inodes;
	struct sbx_box *box = sbx_node_box(rn->dir);
	const bool exchange = rn->flags & RENAME_EXCHANGE;
	struct sbx_hold source = {0}, target = {0};
	int r;

	if (box->sandbox->tree.unstable_before_ns)
		sbx_hold_name(inodes, rn->dir, rn->name, &source);
	sbx_hold_name(inodes, rn->newdir, rn->newname, &target);
	r = rename_names(rn, by_moving);
	if (!exchange)
		sbx_hold_release(inodes, &target, r == 0);
	/* A copy has other inode numbers, and the former ones are given to others. */
	if (r == 0 && (move_nodes(rn) || by_moving))
		ws_look_again(rn->ws);
	if (exchange)
		sbx_hold_release(inodes, &target, false);
	sbx_hold_release(inodes, &source, false);
	return r;
}

int ws_tree_rename(const struct ws_rename *rn, bool by_moving, struct sbx_error *err)
{
	struct ws_change change;
	int r;

	if (sbx_node_box(rn->dir) != sbx_node_box(rn->newdir))
		return -EXDEV;
	r = ws_change_begin_rename(&change, rn, err);
	if (r < 0)
		return r;
	r = rename_held(rn, by_moving);
	ws_change_renamed(&change, r);
	return r;
}
