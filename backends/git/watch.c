/*
 * Refs are replaced by rename, so the directories they lie in tell of them. A command may make what
 * it likes of its repository: every path is resolved beneath, through no link, or the stat could
 * end up in our own mount.
 */
#include "backends/git/watch.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

#define MOST     256
#define GRAIN_NS INT64_C(12000000) /* of file times: a tick of the slowest clock */

struct sbx_watched {
	int where;
	char *path;
	uint64_t ino, size;
	int64_t mtime, ctime;
	bool fresh; /* another change may leave no trace */
};

static void look(struct sbx_watched *e, int dirfd)
{
	struct stat st = {0};
	int r;

	if (!strchr(e->path, '/')) {
		r = fstatat(dirfd, e->path, &st, AT_SYMLINK_NOFOLLOW);
	} else {
		_cleanup_fd_ int fd = sbx_beneath_open(dirfd, e->path, O_PATH);

		r = fd < 0 ? -1 : fstat(fd, &st);
	}
	if (r < 0)
		st = (struct stat){0};
	e->ino = st.st_ino;
	e->size = (uint64_t)st.st_size;
	e->mtime = sbx_timespec_ns(&st.st_mtim);
	e->ctime = sbx_timespec_ns(&st.st_ctim);
}

static int append(struct sbx_git_watch *w, const struct sbx_watched *e)
{
	if (SBX_GROW(w->at, w->n, w->cap, 16))
		return -ENOMEM;
	w->at[w->n++] = *e;
	return 0;
}

static int add_one(struct sbx_git_watch *w, int where, int dirfd, const char *path)
{
	struct sbx_watched e = {.where = where, .path = strdup(path)};

	assert(where >= 0);
	if (!e.path)
		return -ENOMEM;
	look(&e, dirfd);
	e.fresh = e.ctime > sbx_real_ns() - GRAIN_NS;
	if (append(w, &e)) {
		free(e.path);
		return -ENOMEM;
	}
	return 0;
}

struct below {
	const char *path;
	struct sbx_strings *dirs;
};

static int find_dir(const char *name, unsigned char type, void *data)
{
	struct below *b = data;
	_cleanup_free_ char *path = sbx_format("%s/%s", b->path, name);

	if (type != DT_DIR)
		return 0;
	return path ? sbx_strings_add(b->dirs, path) : -ENOMEM;
}

int sbx_git_watch_add(struct sbx_git_watch *w, int where, int dirfd, const char *path, bool deep)
{
	struct sbx_strings todo = {0};
	int r = sbx_strings_add(&todo, path);
	char *at;

	while (!r && (at = sbx_strings_take(&todo))) {
		_cleanup_fd_ int fd = -1;
		struct below b = {.path = at, .dirs = &todo};

		if (w->n == MOST)
			w->vague = true;
		else
			r = add_one(w, where, dirfd, at);
		if (!r && deep && !w->vague)
			fd = sbx_beneath_open(dirfd, at, O_RDONLY | O_DIRECTORY);
		if (fd >= 0)
			r = sbx_dir_scan(fd, find_dir, &b);
		free(at);
	}
	sbx_strings_release(&todo);
	return r;
}

static bool has_moved(const struct sbx_watched *e, int dirfd)
{
	struct sbx_watched now = *e;

	look(&now, dirfd);
	return e->fresh || now.ino != e->ino || now.size != e->size || now.mtime != e->mtime ||
	       now.ctime != e->ctime;
}

bool sbx_git_watch_moved(const struct sbx_git_watch *w, const int dirfds[], int where)
{
	if (w->vague || !w->n)
		return true;
	for (size_t i = 0; i < w->n; i++)
		if ((where < 0 || w->at[i].where == where) &&
		    has_moved(&w->at[i], dirfds[w->at[i].where]))
			return true;
	return false;
}

void sbx_git_watch_release(struct sbx_git_watch *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->at[i].path);
	free(w->at);
	*w = (struct sbx_git_watch){0};
}
