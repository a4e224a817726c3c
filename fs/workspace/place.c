#include "fs/workspace/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/openat2.h"

#define DEPTH_MAX 256

/* Whether PATH leads from ROOT to the file numbered INO. */
static bool leads_to(int root, const char *path, ino_t ino)
{
	_cleanup_fd_ int fd = sbx_openat2(root, *path ? path : ".", O_PATH | O_NOFOLLOW,
	                                  RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == ino;
}

/* --- looking for it ----------------------------------------------------------------------------
 */

struct search {
	ino_t ino;
	char *path; /* of the directory that is looked at, then of what was found */
	unsigned depth;
};

static int search_dir(struct search *s, int dirfd, const char *name);

struct level {
	struct search *search;
	int dir;
};

/* 1: it is found. */
static int search_entry(const char *name, unsigned char type, void *data)
{
	struct level *l = data;
	struct search *s = l->search;
	const size_t len = strlen(s->path);
	struct stat st;
	int r = 0;

	if (snprintf(s->path + len, PATH_MAX - len, "%s%s", len ? "/" : "", name) >=
	    (int)(PATH_MAX - len)) {
		s->path[len] = '\0';
		return 0;
	}
	if (fstatat(l->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == s->ino)
		return 1;
	if (type == DT_DIR)
		r = search_dir(s, l->dir, name);
	if (r <= 0)
		s->path[len] = '\0';
	return r;
}

static int search_dir(struct search *s, int dirfd, const char *name)
{
	_cleanup_fd_ int dir = sbx_dir_open(dirfd, name);
	struct level l = {.search = s, .dir = dir};
	int r;

	/* What cannot be looked into does not hide it from anybody. */
	if (dir < 0 || s->depth == DEPTH_MAX)
		return 0;
	s->depth++;
	r = sbx_dir_scan(dir, search_entry, &l);
	s->depth--;
	return r < 0 ? 0 : r;
}

static int find(int root, ino_t ino, char ret[PATH_MAX])
{
	struct search s = {.ino = ino, .path = ret};

	ret[0] = '\0';
	return search_dir(&s, root, ".") > 0 ? 0 : -ENOENT;
}

/* Has the table see what stands at PATH. */
static void remember(struct sbx_workspace *ws, struct sbx_box *box, const char *path)
{
	char part[NAME_MAX + 1];
	struct sbx_node *dir, *node;
	struct stat st;

	if (sbx_node_special(ws->inodes, SBX_NODE_BOX, box, 0, &dir) < 0)
		return;
	while (*path) {
		const size_t n = strcspn(path, "/");

		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		path += n + strspn(path + n, "/");
		if (sbx_node_lookup(ws->inodes, dir, part, &st, &node) < 0)
			break;
		sbx_node_forget(ws->inodes, sbx_node_id(dir), 1);
		sbx_node_put(ws->inodes, dir);
		dir = node;
	}
	sbx_node_forget(ws->inodes, sbx_node_id(dir), 1);
	sbx_node_put(ws->inodes, dir);
}

/* -----------------------------------------------------------------------------------------------
 */

int ws_place_of(struct sbx_workspace *ws, struct sbx_node *node, char ret[PATH_MAX])
{
	struct sbx_box *box = sbx_node_box(node);
	const ino_t ino = sbx_node_ino(ws->inodes, node);
	_cleanup_fd_ int root = sbx_box_root(box);
	int r = sbx_node_path(ws->inodes, node, ret, PATH_MAX);

	if (root < 0)
		return root;
	if (r == -ENAMETOOLONG || (r == 0 && leads_to(root, ret, ino)))
		return r;
	r = find(root, ino, ret);
	if (r == 0)
		remember(ws, box, ret);
	return r;
}

int ws_place_in(struct sbx_workspace *ws, struct sbx_node *dir, const char *name,
                char ret[PATH_MAX])
{
	int r = ws_place_of(ws, dir, ret);
	size_t len;

	if (r < 0)
		return r;
	len = strlen(ret);
	return snprintf(ret + len, PATH_MAX - len, "%s%s", len ? "/" : "", name) <
	                       (int)(PATH_MAX - len)
	               ? 0
	               : -ENAMETOOLONG;
}
