/* The plain system calls with EINTR, short counts and partial results taken care of. */
#include "backends/support/fsutil.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

#define SCAN_BUFFER   32768
#define HOLD_TRIES    100
#define HOLD_PAUSE_NS 20000000

static bool is_dot(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/*
 * The type of D. The kernel answers from what it knows, so a mount point of our own is not asked.
 */
static unsigned char type_of(int dirfd, const struct dirent64 *d)
{
	const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
	struct statx stx;

	if (d->d_type != DT_UNKNOWN || statx(dirfd, d->d_name, flags, STATX_TYPE, &stx) < 0)
		return d->d_type;
	return IFTODT(stx.stx_mode);
}

int sbx_dir_scan(int dirfd, int (*fn)(const char *name, unsigned char type, void *data), void *data)
{
	_cleanup_free_ char *buf = malloc(SCAN_BUFFER);
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	if (lseek(dirfd, 0, SEEK_SET) < 0)
		return -errno;
	while ((n = getdents64(dirfd, buf, SCAN_BUFFER)) > 0) {
		for (ssize_t at = 0; at < n;) {
			struct dirent64 *d = (struct dirent64 *)(buf + at);
			int r;

			at += d->d_reclen;
			if (is_dot(d->d_name))
				continue;
			r = fn(d->d_name, type_of(dirfd, d), data);
			if (r)
				return r;
		}
	}
	/* It was removed while it was open: POSIX has that read as empty. */
	return n < 0 && errno != ENOENT ? -errno : 0;
}

static int add_name(const char *name, unsigned char type, void *data)
{
	(void)type;
	return sbx_strings_add(data, name);
}

int sbx_dir_names(int dirfd, struct sbx_strings *names)
{
	return sbx_dir_scan(dirfd, add_name, names);
}

int sbx_dir_open(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int sbx_dir_make(int dirfd, const char *name, unsigned mode)
{
	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	return sbx_dir_open(dirfd, name);
}

ssize_t sbx_read_all(int fd, void *buf, size_t size)
{
	size_t have = 0;

	while (have < size) {
		ssize_t n = read(fd, (char *)buf + have, size - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

int sbx_dir_hold(int fd)
{
	const struct timespec pause = {.tv_nsec = HOLD_PAUSE_NS};

	for (int i = 0; i < HOLD_TRIES; i++) {
		if (flock(fd, LOCK_SH | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR))
			return 0;
		nanosleep(&pause, NULL);
	}
	return -EBUSY;
}

int sbx_file_read(int dirfd, const char *name, size_t max, char **ret)
{
	_cleanup_fd_ int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ char *buf = NULL;
	struct stat st;
	ssize_t have;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if ((size_t)st.st_size > max)
		return -EFBIG;
	buf = malloc(max + 2);
	if (!buf)
		return -ENOMEM;
	have = sbx_read_all(fd, buf, max + 1);
	if (have < 0 || (size_t)have > max)
		return have < 0 ? (int)have : -EFBIG;
	buf[have] = '\0';
	*ret = sbx_steal_ptr(&buf);
	return 0;
}

int sbx_write_all(int fd, const void *data, size_t len)
{
	for (const char *at = data; len;) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

bool sbx_file_is_blank(int dirfd, const char *name)
{
	_cleanup_fd_ int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	char text[4096];
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	n = read(fd, text, sizeof(text));
	return n == 0 || (n > 0 && memchr(text, '\0', (size_t)n));
}

int sbx_write_out(int fd)
{
	const unsigned all =
	        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

	if (sync_file_range(fd, 0, 0, all) == 0)
		return 0;
	return errno == EIO || errno == ENOSPC || fdatasync(fd) < 0 ? -errno : 0;
}

struct writing {
	int dir;
	bool wait;
};

static int write_out_all(int dirfd, bool wait);

static int write_out_one(const char *name, unsigned char type, void *data)
{
	const struct writing *w = data;
	_cleanup_fd_ int fd = -1;

	if (type != DT_REG && type != DT_DIR)
		return 0;
	fd = openat(w->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (type == DT_DIR)
		return write_out_all(fd, w->wait);
	if (w->wait)
		return sbx_write_out(fd);
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return 0;
}

static int write_out_all(int dirfd, bool wait)
{
	struct writing w = {.dir = dirfd, .wait = wait};

	return sbx_dir_scan(dirfd, write_out_one, &w);
}

/* All are on their way before one is waited for. */
int sbx_dir_write_out(int dirfd)
{
	int r = write_out_all(dirfd, false);

	return r ? r : write_out_all(dirfd, true);
}

static int create(int dirfd, const char *name, const char *text, bool out)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	int r;

	if (fd < 0)
		return -errno;
	r = sbx_write_all(fd, text, strlen(text));
	if (!r && out)
		r = sbx_write_out(fd);
	if (close(fd) < 0 && !r)
		r = -errno;
	if (r)
		unlinkat(dirfd, name, 0);
	return r;
}

int sbx_file_create(int dirfd, const char *name, const char *text)
{
	return create(dirfd, name, text, false);
}

static int replace(int dirfd, const char *name, const char *temp, const char *text, bool out)
{
	int r;

	if (unlinkat(dirfd, temp, 0) < 0 && errno != ENOENT)
		return -errno;
	r = create(dirfd, temp, text, out);
	if (r)
		return r;
	if (renameat(dirfd, temp, dirfd, name) < 0) {
		r = -errno;
		unlinkat(dirfd, temp, 0);
	}
	return r;
}

int sbx_file_replace(int dirfd, const char *name, const char *temp, const char *text)
{
	return replace(dirfd, name, temp, text, true);
}

int sbx_file_replace_soon(int dirfd, const char *name, const char *temp, const char *text)
{
	return replace(dirfd, name, temp, text, false);
}

int sbx_file_copy(int in, int out)
{
	ssize_t n;

	while ((n = copy_file_range(in, NULL, out, NULL, SSIZE_MAX, 0)) > 0)
		;
	if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS))
		while ((n = sendfile(out, in, NULL, 1 << 30)) > 0)
			;
	return n < 0 ? -errno : 0;
}

char *sbx_format(const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : text;
}

bool sbx_path_within(const char *path, const char *top)
{
	size_t n = strlen(top);

	while (n > 1 && top[n - 1] == '/')
		n--;
	if (n == 1)
		return true;
	return strncmp(path, top, n) == 0 && (path[n] == '/' || !path[n]);
}
