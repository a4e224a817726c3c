#include "fs/workspace/nested_git.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/registry.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

#define DOTGIT ".git"

#define AT_SIZE 64

static const char *at_name(const char *key, char buf[AT_SIZE])
{
	snprintf(buf, AT_SIZE, "%s%s", key, SBX_NESTED_PATH_SUFFIX);
	return buf;
}

bool sbx_nested_is(const struct sbx_box *box, const char *name)
{
	return name[0] == '.' && box && box->hides_git && strcmp(name, DOTGIT) == 0;
}

static void plain(struct sbx_nested *n, int dirfd, const char *name)
{
	*n = (struct sbx_nested){.dirfd = dirfd, .name = name, .store = -1};
}

/* The name in the store of the placeholder NAME in DIRFD. */
static int make_key(int dirfd, const char *name, struct sbx_nested *ret)
{
	struct statx st;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	ret->dir = S_ISDIR(st.stx_mode);
	snprintf(ret->key, sizeof(ret->key), "%" PRIx64 "-%" PRIx64 "-%x", (uint64_t)st.stx_ino,
	         (uint64_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
	return S_ISDIR(st.stx_mode) || S_ISREG(st.stx_mode) ? 0 : -ENOENT;
}

static void use_store(struct sbx_nested *n, int store)
{
	n->store = store;
	n->dirfd = store;
	n->name = n->key;
}

int sbx_nested_find(struct sbx_box *box, int dirfd, const char *name, struct sbx_nested *ret)
{
	_cleanup_fd_ int store = -1;
	int r;

	plain(ret, dirfd, name);
	if (!sbx_nested_is(box, name))
		return 0;
	r = make_key(dirfd, name, ret);
	if (r < 0)
		return r;
	store = sbx_sandbox_nested(box->sandbox, false);
	if (store < 0)
		return store;
	if (faccessat(store, ret->key, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	use_store(ret, sbx_steal_fd(&store));
	return 0;
}

void sbx_nested_release(struct sbx_nested *n)
{
	sbx_cleanup_fd(&n->store);
}

static int make_placeholder(int dirfd, const char *name, bool dir)
{
	int fd;

	if (dir)
		return mkdirat(dirfd, name, 0755) < 0 ? -errno : 0;
	fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static bool is_empty(int dirfd, const char *name, bool dir)
{
	struct stat st;
	int fd;
	DIR *d;
	int n = 0;

	if (!dir)
		return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == 0;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		sbx_cleanup_fd(&fd);
		return false;
	}
	while (n < 3 && readdir(d))
		n++;
	closedir(d);
	return n == 2;
}

/* Whether it is known here what NAME in DIRFD holds, where that may be elsewhere. */
static bool is_known(const struct sbx_box *box, int dirfd, const char *name, bool dir)
{
	struct stat st;

	return !sbx_is_away(box->sandbox) ||
	       (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	        sbx_away_here(box->sandbox, st.st_ino, dir ? SBX_NEED_NAMES : SBX_NEED_DATA, 0, 0));
}

/* An empty one may be what a daemon that was killed has left: it will do. */
static int take_over(const struct sbx_box *box, int dirfd, const char *name, bool dir,
                     struct sbx_nested *ret, struct sbx_error *err)
{
	int r = make_key(dirfd, name, ret);

	if (r == 0 && faccessat(ret->dirfd, ret->key, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (r == 0 && ret->dir == dir && is_empty(dirfd, name, dir) &&
	    is_known(box, dirfd, name, dir))
		return 0;
	return sbx_fail(err, EPERM,
	                "a command has made %s here, which is not shown; let a command remove it",
	                name);
}

int sbx_nested_make(struct sbx_box *box, int dirfd, const char *name, bool dir,
                    struct sbx_nested *ret, struct sbx_error *err)
{
	_cleanup_fd_ int store = -1;
	int r;

	plain(ret, dirfd, name);
	if (!sbx_nested_is(box, name))
		return 0;
	store = sbx_sandbox_nested(box->sandbox, true);
	if (store < 0)
		return store;
	ret->dirfd = store;
	r = make_placeholder(dirfd, name, dir);
	ret->made = r == 0;
	r = r == -EEXIST ? take_over(box, dirfd, name, dir, ret, err)
	    : r          ? r
	                 : make_key(dirfd, name, ret);
	if (r < 0) {
		if (ret->made)
			unlinkat(dirfd, name, dir ? AT_REMOVEDIR : 0);
		return r;
	}
	ret->dir = dir;
	use_store(ret, sbx_steal_fd(&store));
	return 0;
}

int sbx_nested_made(struct sbx_nested *n, int dirfd, int r)
{
	if (n->made && r < 0)
		sbx_nested_drop(n, dirfd, DOTGIT);
	sbx_nested_release(n);
	return r;
}

void sbx_nested_drop(const struct sbx_nested *n, int dirfd, const char *name)
{
	char at[AT_SIZE];

	if (n->store < 0)
		return;
	unlinkat(n->store, at_name(n->key, at), 0);
	unlinkat(dirfd, name, n->dir ? AT_REMOVEDIR : 0);
}

int sbx_nested_carry(struct sbx_box *box, int dirfd, const char *name, int newdirfd,
                     const char *newname, unsigned flags)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested from, to;
	int r = sbx_nested_find(box, dirfd, name, &from);

	if (r < 0)
		return r;
	r = sbx_nested_find(box, newdirfd, newname, &to);
	if (r == -ENOENT)
		r = sbx_nested_make(box, newdirfd, newname, from.dir, &to, &err);
	/* The new place has a placeholder of its own: one that moves may get another identity. */
	if (r == 0)
		r = sbx_nested_made(&to, newdirfd,
		                    renameat2(from.store, from.key, from.store, to.key, flags) < 0
		                            ? -errno
		                            : 0);
	if (r == 0 && strcmp(from.key, to.key) != 0)
		sbx_nested_drop(&from, dirfd, name);
	sbx_nested_release(&from);
	return r;
}

static void put_at(int store, const char *at, const char *path)
{
	char was[PATH_MAX], temp[AT_SIZE + 4];
	ssize_t n = readlinkat(store, at, was, sizeof(was) - 1);

	if (n > 0 && (size_t)n == strlen(path) && memcmp(was, path, (size_t)n) == 0)
		return;
	snprintf(temp, sizeof(temp), "%s.new", at);
	unlinkat(store, temp, 0);
	if (symlinkat(path, store, temp) == 0)
		renameat(store, temp, store, at);
}

void sbx_nested_note(struct sbx_box *box, int dirfd, const char *name, const char *path)
{
	struct sbx_nested n;
	char at[AT_SIZE];

	if (sbx_nested_find(box, dirfd, name, &n) == 0 && n.store >= 0)
		put_at(n.store, at_name(n.key, at), path);
	sbx_nested_release(&n);
}

/* Whether PATH is TOP or below it; then *RET is where below. */
static bool is_below(const char *path, const char *top, const char **ret)
{
	size_t n = strlen(top);

	*ret = path + n;
	return strncmp(path, top, n) == 0 && (path[n] == '/' || !path[n]);
}

/* The place that the link NAME tells, when it is below OLD, becomes one below NEW, and, when
 * SWAPPED, the other way round. */
static void move_at(int store, const char *name, const char *old, const char *new, bool swapped)
{
	char was[PATH_MAX], path[PATH_MAX];
	const char *rest, *top;
	ssize_t have = readlinkat(store, name, was, sizeof(was) - 1);

	if (have <= 0)
		return;
	was[have] = '\0';
	top = is_below(was, old, &rest) ? new : swapped &&is_below(was, new, &rest) ? old : NULL;
	if (top && snprintf(path, sizeof(path), "%s%s", top, rest) < (int)sizeof(path))
		put_at(store, name, path);
}

static bool is_at(const char *name)
{
	size_t len = strlen(name), suffix = strlen(SBX_NESTED_PATH_SUFFIX);

	return len > suffix && len < AT_SIZE &&
	       strcmp(name + len - suffix, SBX_NESTED_PATH_SUFFIX) == 0;
}

/* All names first: what is written anew could be met again. */
static int read_at(int store, struct sbx_strings *ret)
{
	DIR *dir = fdopendir(store);
	struct dirent *d;
	int r = 0;

	if (!dir) {
		close(store);
		return -ENOMEM;
	}
	while (!r && (d = readdir(dir)))
		if (is_at(d->d_name))
			r = sbx_strings_add(ret, d->d_name);
	closedir(dir);
	return r;
}

void sbx_nested_moved(struct sbx_box *box, const char *old, const char *new, bool swapped)
{
	_cleanup_fd_ int store = box->hides_git ? sbx_sandbox_nested(box->sandbox, false) : -1;
	int copy = store < 0 ? -1 : openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct sbx_strings names = {0};

	if (copy >= 0 && read_at(copy, &names) == 0)
		for (size_t i = 0; i < names.n; i++)
			move_at(store, names.items[i], old, new, swapped);
	sbx_strings_release(&names);
}

bool sbx_nested_alone(struct sbx_box *box, int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct sbx_nested n;
	struct dirent *d;
	bool hidden = false;

	if (!dir) {
		sbx_cleanup_fd(&fd);
		return false;
	}
	while ((d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (!sbx_nested_is(box, d->d_name))
			return false;
		hidden = true;
	}
	if (!hidden || sbx_nested_find(box, dirfd, DOTGIT, &n) != -ENOENT) {
		if (hidden)
			sbx_nested_release(&n);
		return false;
	}
	return true;
}
