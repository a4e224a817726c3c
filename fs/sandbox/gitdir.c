/*
 * Signatures of git directories that the host's git has made. A signature is a copy of the
 * directory's config, so a command that writes the same again has changed nothing. A directory
 * with hooks gets no signature. The signature stands in the store of names that are kept apart
 * (fs/workspace/nested_git.h), by the directory's inode and birth time.
 */
#include "fs/sandbox/gitdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/sandbox/registry.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define STRANGER  65534 /* nobody */
#define OWN       ".own"
#define NAME_SIZE 64

static bool is_quiet(const struct sbx_box *box)
{
	return !__atomic_load_n(&box->busy, __ATOMIC_SEQ_CST);
}

/*
 * Of a tree over a base what stands below it, and was never copied up, has changed before the base
 * was whole.
 */
static bool is_of_base(const struct sbx_box *box, const struct stat *st)
{
	return sbx_timespec_ns(&st->st_ctim) <= box->sandbox->tree.unstable_before_ns;
}

static bool has(int dirfd, const char *entry)
{
	return faccessat(dirfd, entry, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_sample(const char *name)
{
	const size_t n = strlen(name), m = strlen(".sample");

	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	       (n > m && strcmp(name + n - m, ".sample") == 0);
}

static bool has_hooks(int dirfd)
{
	int fd = openat(dirfd, "hooks", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		sbx_cleanup_fd(&fd);
		return has(dirfd, "hooks");
	}
	while ((e = readdir(dir)))
		if (!is_sample(e->d_name))
			return true;
	return false;
}

/*
 * Reads the settings that git would go by in DIRFD, behind a letter, because a link cannot have
 * an empty text. False: git would go by more than a config that is short and includes nothing.
 */
static bool read_settings(int dirfd, char ret[PATH_MAX])
{
	_cleanup_fd_ int fd =
	        openat(dirfd, "config", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	const bool absent = fd < 0 && errno == ENOENT;
	struct stat st;
	ssize_t n = 0;

	ret[0] = 'c';
	if (!absent)
		n = fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)
		            ? -1
		            : read(fd, ret + 1, PATH_MAX - 1);
	if (n < 0 || n == PATH_MAX - 1 || memchr(ret + 1, '\0', (size_t)n))
		return false;
	ret[n + 1] = '\0';
	return !strcasestr(ret, "[include") && !has(dirfd, "commondir") &&
	       !has(dirfd, "config.worktree") && !has_hooks(dirfd);
}

static bool name_of(int dirfd, char ret[NAME_SIZE])
{
	struct statx st;

	if (statx(dirfd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
		return false;
	snprintf(ret, NAME_SIZE, "%" PRIx64 "-%" PRIx64 "-%x" OWN, (uint64_t)st.stx_ino,
	         (uint64_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
	return true;
}

static bool is_signed(struct sbx_box *box, int dirfd)
{
	_cleanup_fd_ int store = sbx_sandbox_nested(box->sandbox, false);
	char name[NAME_SIZE], was[PATH_MAX], is[PATH_MAX];
	ssize_t n =
	        store >= 0 && name_of(dirfd, name) ? readlinkat(store, name, was, sizeof(was)) : -1;

	return n > 0 && read_settings(dirfd, is) && (size_t)n == strlen(is) &&
	       memcmp(was, is, (size_t)n) == 0;
}

bool sbx_gitdir_planted(struct sbx_box *box, int dirfd, const char *name, const struct stat *st)
{
	_cleanup_fd_ int fd = -1;
	char head[NAME_MAX + 8];

	if (!S_ISDIR(st->st_mode) || !box || !box->hides_git || is_of_base(box, st))
		return false;
	snprintf(head, sizeof(head), "%s%sHEAD", name, *name ? "/" : "");
	if (!has(dirfd, head))
		return false;
	fd = openat(dirfd, *name ? name : ".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || !has(fd, "HEAD"))
		return false;
	return (has(fd, "commondir") || (has(fd, "objects") && has(fd, "refs"))) &&
	       !is_signed(box, fd);
}

void sbx_gitdir_disown(struct stat *st)
{
	st->st_uid = geteuid() == STRANGER ? STRANGER - 1 : STRANGER;
	/* As one of its group the daemon's user may do what he may as its owner. */
	st->st_gid = getegid();
	st->st_mode |= (st->st_mode & S_IRWXU) >> 3;
}

static bool is_locked(const char *name, const char *newname)
{
	const size_t n = strlen(newname);

	return (strcmp(newname, "HEAD") == 0 || strcmp(newname, "config") == 0) &&
	       strncmp(name, newname, n) == 0 && strcmp(name + n, ".lock") == 0;
}

bool sbx_gitdir_may_sign(struct sbx_box *box, int dirfd, const char *name, const char *newname)
{
	char is[PATH_MAX];

	if (!is_locked(name, newname) || !box || !box->hides_git || !is_quiet(box))
		return false;
	return (read_settings(dirfd, is) && !is[1]) || is_signed(box, dirfd);
}

void sbx_gitdir_sign(struct sbx_box *box, int dirfd)
{
	_cleanup_fd_ int store = is_quiet(box) ? sbx_sandbox_nested(box->sandbox, true) : -1;
	char name[NAME_SIZE], is[PATH_MAX], temp[NAME_SIZE + 8];

	if (store < 0 || !name_of(dirfd, name) || !read_settings(dirfd, is))
		return;
	snprintf(temp, sizeof(temp), "%s.new", name);
	unlinkat(store, temp, 0);
	if (symlinkat(is, store, temp) == 0)
		renameat(store, temp, store, name);
}
