/*
 * Everything below is reached through the descriptor of the state directory, which is checked
 * once: who cannot write to that directory cannot redirect anything later.
 */
#include "backends/local/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

static int take_lock(struct sbx_state *st, const char *path, struct sbx_error *err)
{
	struct stat at;

	st->lock = openat(st->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (st->lock < 0)
		return sbx_fail(err, errno, "cannot lock the state directory %s: %s", path,
		                strerror(errno));
	if (flock(st->lock, LOCK_EX | LOCK_NB) == 0) {
		if (fstat(st->lock, &at) < 0 || futimens(st->lock, NULL) < 0)
			return sbx_fail(err, errno, "cannot lock the state directory %s: %s", path,
			                strerror(errno));
		st->since = at.st_mtim;
		return 0;
	}
	if (errno == EWOULDBLOCK)
		return sbx_fail(err, EBUSY, "the state directory %s is in use by another mount",
		                path);
	return sbx_fail(err, errno, "cannot lock the state directory %s: %s", path,
	                strerror(errno));
}

/* The path as the kernel knows it: what git is told must compare equal to what it finds. */
static int canonical_path(int fd, char **ret)
{
	char link[40], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	*ret = strdup(path);
	return *ret ? 0 : -ENOMEM;
}

static int open_rooms(struct sbx_state *st)
{
	const struct {
		const char *name;
		int *fd;
	} rooms[] = {
	        {"meta", &st->meta}, {"trees", &st->trees}, {"trash", &st->trash},
	        {"home", &st->home}, {"git", &st->git},     {"nested", &st->nested},
	        {"kept", &st->kept},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++) {
		*rooms[i].fd = sbx_dir_make(st->dir, rooms[i].name, 0700);
		if (*rooms[i].fd < 0)
			return *rooms[i].fd;
	}
	return canonical_path(st->dir, &st->path);
}

int sbx_state_open(const char *path, struct sbx_state *ret, struct sbx_error *err)
{
	struct sbx_state st = SBX_STATE_CLOSED;
	int r = st.dir = sbx_dir_own(path, "state", err);

	if (r >= 0)
		r = take_lock(&st, path, err);
	if (!r) {
		r = open_rooms(&st);
		if (r)
			sbx_fail(err, -r, "cannot use the state directory %s: %s", path,
			         strerror(-r));
	}
	if (r) {
		sbx_state_close(&st);
		return r;
	}
	*ret = st;
	return 0;
}

void sbx_state_close(struct sbx_state *st)
{
	sbx_cleanup_fd(&st->meta);
	sbx_cleanup_fd(&st->trees);
	sbx_cleanup_fd(&st->trash);
	sbx_cleanup_fd(&st->home);
	sbx_cleanup_fd(&st->git);
	sbx_cleanup_fd(&st->nested);
	sbx_cleanup_fd(&st->kept);
	sbx_cleanup_fd(&st->lock);
	sbx_cleanup_fd(&st->dir);
	free(st->path);
	st->path = NULL;
}

static bool in_use(const struct sbx_state *st, const char *id)
{
	const int rooms[] = {st->trees, st->trash, st->home, st->git, st->nested, st->kept};
	_cleanup_free_ char *record = sbx_format("%s.json", id);

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++)
		if (faccessat(rooms[i], id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	return record && faccessat(st->meta, record, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int sbx_state_new_id(const struct sbx_state *st, const char *name, char **ret)
{
	for (;;) {
		_cleanup_free_ char *id = NULL;
		uint32_t random;

		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -errno;
		id = sbx_format("%s-%08x", name, random);
		if (!id)
			return -ENOMEM;
		if (!in_use(st, id)) {
			*ret = sbx_steal_ptr(&id);
			return 0;
		}
	}
}

/* Moving a directory elsewhere changes its "..", so it must be writable itself. */
static int rename_tree(const struct sbx_state *st, const char *id)
{
	_cleanup_fd_ int fd = -1;
	char link[40];

	if (renameat(st->trees, id, st->trash, id) == 0 || errno == ENOENT)
		return 0;
	if (errno != EACCES)
		return -errno;
	fd = openat(st->trees, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	chmod(link, 0700);
	return renameat(st->trees, id, st->trash, id) < 0 ? -errno : 0;
}

int sbx_state_trash(const struct sbx_state *st, const char *id, struct sbx_error *err)
{
	int r = rename_tree(st, id);

	/* A tree of this id is in the trash already: this one was put back by somebody. Erased
	 * later. */
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	if (r)
		return sbx_fail(err, -r, "cannot move the working tree of %s away: %s", id,
		                strerror(-r));
	return 0;
}

int sbx_state_erase(const struct sbx_state *st, const char *id, struct sbx_error *err)
{
	const int rooms[] = {st->trash, st->trees, st->home, st->git, st->nested, st->kept};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++) {
		int r = sbx_tree_remove(rooms[i], id, err);

		if (r)
			return r;
	}
	return 0;
}

bool sbx_state_has_tree(const struct sbx_state *st, const char *id)
{
	struct stat sb;

	return fstatat(st->trees, id, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(sb.st_mode);
}

void sbx_state_set_clean(const struct sbx_state *st)
{
	int fd = openat(st->dir, "clean", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
}

bool sbx_state_take_clean(const struct sbx_state *st)
{
	return unlinkat(st->dir, "clean", 0) == 0;
}
