/* All files of the copy, whose names are not in memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/tree_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

struct walk {
	struct remote_tree *tree;
	struct sbx_strings dirs; /* that were not entered yet */
	remote_visit_fn *fn;
	void *data;
};

/* Whether what cannot be opened for R is left out: it was moved, or the host has closed it. */
static bool passes(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EACCES || r == -ENAMETOOLONG;
}

static int visit(struct walk *walk, const char *dir, int dirfd, const char *name)
{
	_cleanup_free_ char *path = sbx_format("%s%s%s", dir, *dir ? "/" : "", name);
	_cleanup_fd_ int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (!path)
		return -ENOMEM;
	if (fd < 0 || fstat(fd, &st) < 0)
		return passes(-errno) ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return sbx_strings_add(&walk->dirs, path);
	return S_ISREG(st.st_mode) ? walk->fn(path, fd, &st, walk->data) : 0;
}

static int visit_all(struct walk *walk, const char *dir)
{
	_cleanup_fd_ int fd =
	        sbx_beneath_open(walk->tree->root, *dir ? dir : ".", O_RDONLY | O_DIRECTORY);
	struct sbx_strings names = {0};
	struct remote_hold hold;
	int r = fd >= 0 ? sbx_dir_names(fd, &names) : passes(fd) ? 0 : fd;

	remote_hold_begin(&hold, walk->tree);
	for (size_t i = 0; i < names.n && !r; i++) {
		r = visit(walk, dir, fd, names.items[i]);
		remote_hold_breathe(&hold);
	}
	remote_hold_end(&hold);
	sbx_strings_release(&names);
	return r;
}

int remote_walk(struct remote_tree *t, remote_visit_fn *fn, void *data)
{
	struct walk walk = {.tree = t, .fn = fn, .data = data};
	int r = sbx_strings_add(&walk.dirs, "");
	char *dir;

	while (!r && (dir = sbx_strings_take(&walk.dirs))) {
		r = visit_all(&walk, dir);
		free(dir);
	}
	sbx_strings_release(&walk.dirs);
	return r;
}
