/* What rename and rmdir have to do besides where a .git is kept apart from the tree (fs/workspace/nested_git.h). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/gitdir.h"
#include "fs/workspace/move_dir.h"
#include "fs/workspace/nested_git.h"
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

int ws_rename_at(struct sbx_inodes *inodes, struct sbx_box *box, int dirfd, const char *name,
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

void ws_moved_nested(struct sbx_workspace *ws, struct sbx_node *dir, const char *name,
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

bool ws_rmdir_hidden(fuse_req_t req, struct sbx_node *dir, struct sbx_fd *f, const char *name)
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
