/*
 * Files are renamed one by one, directories that the file system can rename as well; others are
 * made again one level down. A client cannot see more of it than a job can: the kernel holds the
 * locks of both parents until it is answered.
 */
#include "fs/workspace/move_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/workspace/nested_git.h"
#include "fs/workspace/owner.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/settings.h"
#include "sandboxfs/strv.h"
#include "sandboxfs/tree.h"

#define DEPTH_MAX 256
#define TRIES     10

struct move {
	struct sbx_inodes *tab;
	struct sbx_box *box;
	int depth;
};

static int read_names(int fd, struct sbx_strings *ret)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	_cleanup_dir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *d;

	if (!dir) {
		r = -errno;
		sbx_cleanup_fd(&copy);
		return r;
	}
	while (!r && (errno = 0, d = readdir(dir)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			r = sbx_strings_add(ret, d->d_name);
	return r ? r : -errno;
}

static int open_dir(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* A directory that is to be emptied must let us. */
static void unlock(int dirfd, const char *name)
{
	_cleanup_fd_ int fd = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (fd >= 0)
		chmod(proc, 0700);
}

static int move_dir(struct move *m, int from, const char *name, int to, const char *newname);

static int move_name(struct move *m, int from, int to, const char *name)
{
	_cleanup_fd_ int fd = openat(from, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (renameat(from, name, to, name) < 0)
		return -errno;
	if (fd >= 0)
		sbx_node_copied_up(m->tab, m->box, fd);
	return 0;
}

/* Moves the first *N of NAMES and counts them down to where it stops. */
static int move_names(struct move *m, int from, int to, const struct sbx_strings *names, size_t *n)
{
	int r = 0;

	while (*n && !r) {
		const char *name = names->items[*n - 1];

		r = sbx_nested_is(m->box, name) ? sbx_nested_carry(m->box, from, name, to, name, 0)
		                                : -ENOENT;
		if (r == -ENOENT)
			r = move_name(m, from, to, name);
		if (r == -EXDEV)
			r = move_dir(m, from, name, to, name);
		if (!r)
			--*n;
	}
	return r;
}

static int move_contents(struct move *m, int from, int to)
{
	struct sbx_strings names = {0};
	int r = read_names(from, &names);
	size_t left = names.n;

	if (!r)
		r = move_names(m, from, to, &names, &left);
	if (r) {
		struct sbx_strings moved = {.items = names.items + left, .n = names.n - left};
		size_t back = moved.n;

		move_names(m, to, from, &moved, &back);
	}
	sbx_strings_release(&names);
	return r;
}

/* Last of all: moving entries changes the times, and the mode may forbid it. */
static int copy_attributes(struct move *m, int to, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	int r = sbx_owner_give(m->box, -1, to, "");

	if (!r && (fchmod(to, st->st_mode & 03777) < 0 || futimens(to, times) < 0))
		r = -errno;
	return r;
}

/* A job may add entries meanwhile. */
static int empty(struct move *m, int from, const char *name, int old, int new)
{
	int r = -ENOTEMPTY;

	for (int i = 0; i < TRIES && r == -ENOTEMPTY; i++) {
		r = move_contents(m, old, new);
		if (!r && unlinkat(from, name, AT_REMOVEDIR) < 0)
			r = -errno;
	}
	return r;
}

static int fill(struct move *m, int from, const char *name, int new, const struct stat *st)
{
	_cleanup_fd_ int old = -1;
	int r;

	unlock(from, name);
	old = open_dir(from, name);
	if (old < 0)
		return old;
	r = empty(m, from, name, old, new);
	if (r) {
		fchmod(old, st->st_mode & 07777);
		return r;
	}
	sbx_node_replace(m->tab, m->box, old, new);
	return copy_attributes(m, new, st);
}

static int move_dir(struct move *m, int from, const char *name, int to, const char *newname)
{
	_cleanup_fd_ int new = -1;
	struct stat st;
	int r;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || m->depth >= DEPTH_MAX)
		return -EXDEV;
	if (mkdirat(to, newname, 0700) < 0)
		return -errno;
	new = open_dir(to, newname);
	m->depth++;
	r = new < 0 ? new : fill(m, from, name, new, &st);
	m->depth--;
	if (r)
		unlinkat(to, newname, AT_REMOVEDIR);
	return r;
}

/* Removes what rename(2) would replace: an empty directory. */
static int clear_target(int dirfd, const char *name, unsigned flags)
{
	if (flags & RENAME_NOREPLACE)
		return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? -EEXIST : 0;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int sbx_move_dir(struct sbx_inodes *tab, struct sbx_box *box, int dirfd, const char *name,
                 int newdirfd, const char *newname, unsigned flags)
{
	struct move m = {.tab = tab, .box = box};
	struct stat st;
	int r;

	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return -EXDEV;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -EXDEV;
	r = clear_target(newdirfd, newname, flags);
	return r ? r : move_dir(&m, dirfd, name, newdirfd, newname);
}

void sbx_move_temp(char ret[48])
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(ret, 48, ".sandboxfs-moving-%llx%lx", (unsigned long long)now.tv_sec, now.tv_nsec);
}

static int copy_data(int in, int out)
{
	ssize_t n;

	do
		n = sendfile(out, in, NULL, 1 << 20);
	while (n > 0);
	return n < 0 ? -errno : 0;
}

static int finish(struct move *m, int fd, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	const mode_t bits = S_ISDIR(st->st_mode) ? 03777 : 01777;
	int r = sbx_owner_give(m->box, -1, fd, "");

	if (!r && (fchmod(fd, st->st_mode & bits) < 0 || futimens(fd, times) < 0))
		r = -errno;
	return r;
}

static int copy_file(struct move *m, int from, const char *name, int to, const char *newname,
                     const struct stat *st)
{
	_cleanup_fd_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_fd_ int out = -1;
	int r;

	if (in < 0)
		return -errno;
	out = openat(to, newname, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	r = copy_data(in, out);
	return r ? r : finish(m, out, st);
}

/* Of what has no contents to be copied: a link, a FIFO or a socket. */
static int copy_special(struct move *m, int from, const char *name, int to, const char *newname,
                        const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	char target[PATH_MAX];
	ssize_t n;
	int r;

	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(from, name, target, sizeof(target) - 1);
		if (n < 0)
			return -errno;
		target[n] = '\0';
		r = symlinkat(target, to, newname);
	} else if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode)) {
		r = mknodat(to, newname, st->st_mode & (S_IFMT | 0777), 0);
	} else {
		return -EXDEV;
	}
	if (r < 0 || utimensat(to, newname, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return sbx_owner_give(m->box, -1, to, newname);
}

static int copy_one(struct move *m, int from, const char *name, int to, const char *newname);

static int copy_dir(struct move *m, int from, const char *name, int to, const char *newname,
                    const struct stat *st)
{
	_cleanup_fd_ int old = open_dir(from, name), new = -1;
	struct sbx_strings names = {0};
	int r;

	if (old < 0 || m->depth >= DEPTH_MAX)
		return old < 0 ? old : -EXDEV;
	if (mkdirat(to, newname, 0700) < 0)
		return -errno;
	new = open_dir(to, newname);
	r = new < 0 ? new : read_names(old, &names);
	m->depth++;
	for (size_t i = 0; i < names.n && !r; i++)
		r = copy_one(m, old, names.items[i], new, names.items[i]);
	m->depth--;
	sbx_strings_release(&names);
	return r ? r : finish(m, new, st);
}

static int copy_one(struct move *m, int from, const char *name, int to, const char *newname)
{
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode)   ? copy_dir(m, from, name, to, newname, &st)
	       : S_ISREG(st.st_mode) ? copy_file(m, from, name, to, newname, &st)
	                             : copy_special(m, from, name, to, newname, &st);
}

/* Who knows what stands below OLD means its copy from now on. */
static void follow_copies(struct move *m, int from, const char *name, int to, const char *newname)
{
	_cleanup_fd_ int old = openat(from, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int new = openat(to, newname, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int dir = old < 0 ? -1 : open_dir(from, name);
	struct sbx_strings names = {0};

	if (old < 0 || new < 0)
		return;
	sbx_node_replace(m->tab, m->box, old, new);
	if (dir >= 0 && read_names(dir, &names) == 0)
		for (size_t i = 0; i < names.n; i++)
			follow_copies(m, dir, names.items[i], new, names.items[i]);
	sbx_strings_release(&names);
}

int sbx_move_across(struct sbx_inodes *tab, struct sbx_box *box, int dirfd, const char *name,
                    int newdirfd, const char *newname, unsigned flags)
{
	struct move m = {.tab = tab, .box = box};
	char temp[48];
	int r;

	sbx_move_temp(temp);
	r = copy_one(&m, dirfd, name, newdirfd, temp);
	if (!r && renameat2(newdirfd, temp, newdirfd, newname, flags) < 0)
		r = -errno;
	if (r) {
		sbx_tree_remove(newdirfd, temp, NULL);
		return r;
	}
	follow_copies(&m, dirfd, name, newdirfd, newname);
	/* What is left of it is a copy. */
	sbx_tree_remove(dirfd, name, NULL);
	return 0;
}
