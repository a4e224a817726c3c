/*
 * Removal of a tree that somebody hostile may have made: any depth, any mode, any flag. All
 * processes that could still change it are dead, so a lost race is a failure that is retried,
 * not an attack to win.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

/* Directories found non-empty after a scan: some file systems skip entries while others are
 * deleted. */
#define RESCANS 1000

struct removal {
	struct sbx_levels levels;
	int fd; /* the top level's directory */
	int rescans;
};

static void clear_flags(int fd)
{
	int flags;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & (FS_IMMUTABLE_FL | FS_APPEND_FL))) {
		flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
		ioctl(fd, FS_IOC_SETFLAGS, &flags);
	}
}

static void make_writable(int fd)
{
	clear_flags(fd);
	fchmod(fd, 0700);
}

/* chmod of a directory that may not be opened: an O_PATH descriptor needs no permission on it. */
static void make_openable(int dirfd, const char *name)
{
	_cleanup_fd_ int fd = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char link[40];

	if (fd < 0)
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	chmod(link, 0700);
}

static int open_dir(int dirfd, const char *name)
{
	int fd = sbx_dir_open(dirfd, name);

	if (fd != -EACCES)
		return fd;
	make_openable(dirfd, name);
	return sbx_dir_open(dirfd, name);
}

static void clear_entry_flags(int dirfd, const char *name)
{
	_cleanup_fd_ int fd =
	        openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd >= 0)
		clear_flags(fd);
}

/* Unlinks or, with AT_REMOVEDIR, removes an entry of DIRFD. */
static int remove_entry(int dirfd, const char *name, int flags)
{
	if (unlinkat(dirfd, name, flags) == 0 || errno == ENOENT)
		return 0;
	if (errno != EACCES && errno != EPERM)
		return -errno;
	make_writable(dirfd);
	if (unlinkat(dirfd, name, flags) == 0 || errno == ENOENT)
		return 0;
	if (errno != EPERM)
		return -errno;
	clear_entry_flags(dirfd, name);
	return unlinkat(dirfd, name, flags) == 0 || errno == ENOENT ? 0 : -errno;
}

/* As remove_entry for the top of the tree: the directory around it is not ours to change. */
static int remove_top(int dirfd, const char *name, int flags)
{
	if (unlinkat(dirfd, name, flags) == 0 || errno == ENOENT)
		return 0;
	if (errno != EPERM)
		return -errno;
	clear_entry_flags(dirfd, name);
	return unlinkat(dirfd, name, flags) == 0 || errno == ENOENT ? 0 : -errno;
}

static int visit(const char *name, unsigned char type, void *data)
{
	struct removal *rm = data;

	if (type == DT_DIR)
		return sbx_strings_add(&sbx_levels_top(&rm->levels)->todo, name);
	return remove_entry(rm->fd, name, 0);
}

static int scan(struct removal *rm)
{
	int r = sbx_dir_scan(rm->fd, visit, rm);

	/* Nothing in a directory without the search bit can be looked at. */
	if (r == -EACCES) {
		make_writable(rm->fd);
		r = sbx_dir_scan(rm->fd, visit, rm);
	}
	return r;
}

static int enter(struct removal *rm, char *name)
{
	_cleanup_free_ char *owned = name;
	_cleanup_fd_ int fd = open_dir(rm->fd, name);
	int r;

	if (fd == -ENOENT)
		return 0;
	if (fd == -ENOTDIR || fd == -ELOOP)
		return remove_entry(rm->fd, name, 0);
	if (fd < 0)
		return fd;
	r = sbx_levels_push(&rm->levels, sbx_steal_ptr(&owned), fd);
	if (r)
		return r;
	close(rm->fd);
	rm->fd = sbx_steal_fd(&fd);
	return scan(rm);
}

/* The current directory is empty: goes up and removes it. */
static int leave(struct removal *rm)
{
	struct sbx_level *level = sbx_levels_top(&rm->levels);
	int up = sbx_levels_up(&rm->levels, rm->fd);
	int r;

	if (up == -EACCES) {
		make_writable(rm->fd);
		up = sbx_levels_up(&rm->levels, rm->fd);
	}
	if (up < 0)
		return up;
	close(rm->fd);
	rm->fd = up;
	r = remove_entry(up, level->name, AT_REMOVEDIR);
	if (r == -ENOTEMPTY && rm->rescans++ < RESCANS)
		r = sbx_strings_add(&level[-1].todo, level->name);
	sbx_levels_pop(&rm->levels);
	return r;
}

static int remove_contents(struct removal *rm)
{
	int r = sbx_levels_push(&rm->levels, NULL, rm->fd);

	if (!r)
		r = scan(rm);
	while (!r) {
		char *name = sbx_strings_take(&sbx_levels_top(&rm->levels)->todo);

		if (name)
			r = enter(rm, name);
		else if (rm->levels.n > 1)
			r = leave(rm);
		else
			break;
	}
	return r;
}

static int remove_dir(int dirfd, const char *name)
{
	/* An empty one goes without a descriptor. */
	int r = remove_top(dirfd, name, AT_REMOVEDIR);

	if (r == 0)
		return 0;
	for (int tries = 0; tries < 10; tries++) {
		struct removal rm = {.fd = open_dir(dirfd, name)};

		if (rm.fd < 0)
			return rm.fd == -ENOENT ? 0 : rm.fd;
		r = remove_contents(&rm);
		sbx_levels_release(&rm.levels);
		close(rm.fd);
		if (r)
			return r;
		r = remove_top(dirfd, name, AT_REMOVEDIR);
		if (r != -ENOTEMPTY)
			return r;
	}
	return r;
}

int sbx_tree_remove(int dirfd, const char *name, struct sbx_error *err)
{
	int r = remove_top(dirfd, name, 0);

	if (r == -EISDIR || r == -EPERM)
		r = remove_dir(dirfd, name);
	if (r)
		return sbx_fail(err, -r, "cannot remove %s: %s", name, strerror(-r));
	return 0;
}
