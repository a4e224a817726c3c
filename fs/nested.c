#include "fs/nested.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox.h"
#include "sandboxfs/cleanup.h"

#define DOTGIT ".git"

bool sbx_nested_is(const struct sbx_box *box, const char *name)
{
	return name[0] == '.' && box && box->hides_git && strcmp(name, DOTGIT) == 0;
}

static void plain(struct sbx_nested *n, int dirfd, const char *name)
{
	*n = (struct sbx_nested){.dirfd = dirfd, .name = name, .store = -1};
}

/* What the placeholder NAME in DIRFD is called in the store. */
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

/* An empty one may be what a daemon that was killed has left: it will do. */
static int take_over(int dirfd, const char *name, bool dir, struct sbx_nested *ret,
                     struct sbx_error *err)
{
	int r = make_key(dirfd, name, ret);

	if (r == 0 && faccessat(ret->dirfd, ret->key, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	if (r == 0 && ret->dir == dir && is_empty(dirfd, name, dir))
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
	r = r == -EEXIST ? take_over(dirfd, name, dir, ret, err)
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
	if (n->store >= 0)
		unlinkat(dirfd, name, n->dir ? AT_REMOVEDIR : 0);
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
