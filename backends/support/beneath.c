/*
 * A lock that is made by link(2) from a file of ours is known to be ours afterwards: both names are
 * one inode as long as the replacing is unfinished.
 */
#include "backends/support/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/openat2.h"

int sbx_beneath_open(int dirfd, const char *path, int flags)
{
	const uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

	if (!(flags & O_PATH))
		flags |= O_NONBLOCK | O_NOCTTY;
	return sbx_openat2(dirfd, path, flags | O_NOFOLLOW, resolve);
}

/* Reads a file that may change meanwhile: the bytes that are read count. */
static int read_fd(int fd, size_t max, char **ret, size_t *len, struct timespec *mtime)
{
	_cleanup_free_ char *buf = NULL;
	struct stat st;
	ssize_t have;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return -ENOMEM;
	have = sbx_read_all(fd, buf, (size_t)st.st_size);
	if (have < 0)
		return (int)have;
	buf[have] = '\0';
	if (mtime)
		*mtime = st.st_mtim;
	*len = (size_t)have;
	*ret = sbx_steal_ptr(&buf);
	return 0;
}

int sbx_beneath_read(int dirfd, const char *path, size_t max, char **ret, size_t *len,
                     struct timespec *mtime)
{
	_cleanup_fd_ int fd = sbx_beneath_open(dirfd, path, O_RDONLY);

	return fd < 0 ? fd : read_fd(fd, max, ret, len, mtime);
}

int sbx_beneath_parent(int dirfd, const char *path, const char **name)
{
	_cleanup_fd_ int fd = sbx_beneath_open(dirfd, ".", O_PATH | O_DIRECTORY);
	char part[NAME_MAX + 1];
	const char *slash;

	while (fd >= 0 && (slash = strchr(path, '/'))) {
		int next;

		if ((size_t)(slash - path) >= sizeof(part))
			return -ENAMETOOLONG;
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdirat(fd, part, 0755) < 0 && errno != EEXIST)
			return -errno;
		next = sbx_beneath_open(fd, part, O_PATH | O_DIRECTORY);
		close(fd);
		fd = next;
		path = slash + 1;
	}
	*name = path;
	return sbx_steal_fd(&fd);
}

/* Up to this many bytes are waited for; more are on their way. */
#define WRITTEN_OUT ((size_t)64 << 10)

static int write_to(int fd, const void *data, size_t len, const struct timespec *mtime, bool wait)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
	                                  mtime ? *mtime : (struct timespec){0}};
	int r = sbx_write_all(fd, data, len);

	if (!r && wait && len <= WRITTEN_OUT)
		r = sbx_write_out(fd);
	else if (!r)
		sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return !r && mtime && futimens(fd, times) < 0 ? -errno : r;
}

static bool same_file(int dirfd, const char *a, const char *b)
{
	struct stat one, other;

	return fstatat(dirfd, a, &one, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(dirfd, b, &other, AT_SYMLINK_NOFOLLOW) == 0 && one.st_ino == other.st_ino &&
	       one.st_dev == other.st_dev;
}

struct lock_names {
	char temp[NAME_MAX + 1], lock[NAME_MAX + 1];
};

static bool make_names(const char *name, struct lock_names *ret)
{
	return snprintf(ret->temp, sizeof(ret->temp), "%s" SBX_LOCKED_SUFFIX, name) <
	               (int)sizeof(ret->temp) &&
	       snprintf(ret->lock, sizeof(ret->lock), "%s.lock", name) < (int)sizeof(ret->lock);
}

static void clear(int dirfd, const struct lock_names *names)
{
	if (same_file(dirfd, names->temp, names->lock))
		unlinkat(dirfd, names->lock, 0);
	unlinkat(dirfd, names->temp, 0);
}

void sbx_locked_clear(int dirfd, const char *name)
{
	struct lock_names names;

	if (make_names(name, &names))
		clear(dirfd, &names);
}

/* The lock with DATA in it; descriptor or -errno. */
static int take(int dirfd, const struct lock_names *names, const void *data, size_t len,
                const struct timespec *mtime, bool wait)
{
	_cleanup_fd_ int fd = -1;
	int r;

	clear(dirfd, names);
	fd = openat(dirfd, names->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = write_to(fd, data, len, mtime, wait);
	if (!r && linkat(dirfd, names->temp, dirfd, names->lock, 0) < 0)
		r = errno == EEXIST ? -EBUSY : -errno;
	if (r)
		unlinkat(dirfd, names->temp, 0);
	return r ? r : sbx_steal_fd(&fd);
}

static int put(int dirfd, const char *name, const struct lock_names *names)
{
	int r = 0;

	if (renameat(dirfd, names->lock, dirfd, name) < 0) {
		r = -errno;
		unlinkat(dirfd, names->lock, 0);
	}
	unlinkat(dirfd, names->temp, 0);
	return r;
}

int sbx_locked_take(int dirfd, const char *name, const void *data, size_t len,
                    const struct timespec *mtime)
{
	_cleanup_fd_ int fd = -1;
	struct lock_names names;

	if (!make_names(name, &names))
		return -ENAMETOOLONG;
	fd = take(dirfd, &names, data, len, mtime, false);
	return fd < 0 ? fd : 0;
}

int sbx_locked_put(int dirfd, const char *name)
{
	struct lock_names names;

	return make_names(name, &names) ? put(dirfd, name, &names) : -ENAMETOOLONG;
}

int sbx_locked_open(int dirfd, const char *name)
{
	struct lock_names names;

	return make_names(name, &names) ? take(dirfd, &names, "", 0, NULL, false) : -ENAMETOOLONG;
}

int sbx_locked_begin(int dirfd, const char *name)
{
	_cleanup_fd_ int fd = sbx_locked_open(dirfd, name);

	return fd < 0 ? fd : 0;
}

struct sbx_seen sbx_seen_now(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return (struct sbx_seen){0};
	return (struct sbx_seen){.ino = st.st_ino,
	                         .size = (unsigned long long)st.st_size,
	                         .mtime = st.st_mtim,
	                         .ctime = st.st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool sbx_seen_same(int dirfd, const char *name, const struct sbx_seen *seen)
{
	const struct sbx_seen now = sbx_seen_now(dirfd, name);

	return now.ino == seen->ino && now.size == seen->size &&
	       same_time(now.mtime, seen->mtime) && same_time(now.ctime, seen->ctime);
}

int sbx_locked_open_seen(int dirfd, const char *name, const struct sbx_seen *seen)
{
	int fd = sbx_locked_open(dirfd, name);

	if (fd < 0 || sbx_seen_same(dirfd, name, seen))
		return fd;
	sbx_locked_end(dirfd, name);
	close(fd);
	return -EAGAIN;
}

int sbx_locked_commit(int dirfd, const char *name, int fd, const void *data, size_t len,
                      const struct timespec *mtime)
{
	struct lock_names names;
	int r = make_names(name, &names) ? write_to(fd, data, len, mtime, true) : -ENAMETOOLONG;

	if (!r)
		return put(dirfd, name, &names);
	sbx_locked_end(dirfd, name);
	return r;
}

void sbx_locked_end(int dirfd, const char *name)
{
	sbx_locked_clear(dirfd, name);
}

static int replace(int dirfd, const char *name, const void *data, size_t len,
                   const struct timespec *mtime, bool wait)
{
	_cleanup_fd_ int fd = -1;
	struct lock_names names;

	if (!make_names(name, &names))
		return -ENAMETOOLONG;
	fd = take(dirfd, &names, data, len, mtime, wait);
	return fd < 0 ? fd : put(dirfd, name, &names);
}

int sbx_locked_replace(int dirfd, const char *name, const void *data, size_t len,
                       const struct timespec *mtime)
{
	return replace(dirfd, name, data, len, mtime, true);
}

int sbx_locked_replace_soon(int dirfd, const char *name, const void *data, size_t len,
                            const struct timespec *mtime)
{
	return replace(dirfd, name, data, len, mtime, false);
}
