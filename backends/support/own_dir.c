/* A walk along a path that no other user could have changed, one component at a time. */
#include "sandboxfs/own_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

/* How far a walk along PATH has come. */
struct walk {
	const char *path, *what;
	uid_t top;   /* owns the directory that the walk began at */
	bool shared; /* any user may make entries where the walk is, and the sticky bit is set */
};

static int refuse_part(const struct walk *w, int len, const char *why, struct sbx_error *err)
{
	return sbx_fail(err, EACCES, "the %s directory %s: %.*s %s", w->what, w->path, len, w->path,
	                why);
}

/*
 * The owner of a directory may put something else in the place of each entry. In a user namespace
 * root's directories belong to nobody: who owns the top is trusted, except where any user makes
 * entries.
 */
static bool is_trusted(const struct walk *w, uid_t owner)
{
	return owner == 0 || owner == geteuid() || (owner == w->top && !w->shared);
}

/* Root chose the group of its directory; an own group usually has one member. */
static bool is_group_trusted(const struct stat *st)
{
	return st->st_uid == 0 || st->st_gid == 0 || st->st_gid == getegid();
}

/* LEN is that of the part of the path that leads to FD. */
static int check_part(struct walk *w, int fd, int len, struct sbx_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return sbx_fail(err, errno, "the %s directory %s: %s", w->what, w->path,
		                strerror(errno));
	if (sbx_mitigation_off("own_parents"))
		return 0;
	if (!is_trusted(w, st.st_uid))
		return refuse_part(w, len, "belongs to another user", err);
	w->shared = (st.st_mode & S_ISVTX) && (st.st_mode & 022);
	if (w->shared || !(st.st_mode & 022))
		return 0;
	if ((st.st_mode & 002) || !is_group_trusted(&st))
		return refuse_part(w, len, "is writable by others, who could replace what is below",
		                   err);
	return 0;
}

/*
 * Of the descriptor that a walk is at, the one of its entry NAME, which is made if it is missing.
 */
static int enter(int fd, const char *name)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int next = openat(fd, name, flags);

	if (next < 0 && errno == ENOENT) {
		/* Who made it meanwhile is looked at as if it had been there. */
		if (mkdirat(fd, name, 0700) < 0 && errno != EEXIST)
			return -errno;
		next = openat(fd, name, flags);
	}
	return next < 0 ? -errno : next;
}

/* Of the directory that the walk is at: AT is its entry of LEN bytes, in the path. */
static int next_part(struct walk *w, int *fd, const char *at, int len, struct sbx_error *err)
{
	char name[NAME_MAX + 1];
	int next;

	if (snprintf(name, sizeof(name), "%.*s", len, at) >= (int)sizeof(name))
		next = -ENAMETOOLONG;
	else
		next = enter(*fd, name);
	if (next < 0)
		return sbx_fail(err, -next, "cannot use the %s directory %s: %.*s: %s", w->what,
		                w->path, (int)(at - w->path) + len, w->path, strerror(-next));
	sbx_cleanup_fd(fd);
	*fd = next;
	/* The last one is looked at more closely, see check_own. */
	return at[len + strspn(at + len, "/")] ? check_part(w, next, (int)(at - w->path) + len, err)
	                                       : 0;
}

static int check_own(const struct walk *w, int fd, struct sbx_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return sbx_fail(err, errno, "%s directory %s: %s", w->what, w->path,
		                strerror(errno));
	if (st.st_uid != geteuid())
		return sbx_fail(err, EACCES, "the %s directory %s belongs to another user", w->what,
		                w->path);
	if (st.st_mode & 022)
		return sbx_fail(err, EACCES,
		                "the %s directory %s is writable by others (chmod 700 mends it)",
		                w->what, w->path);
	return 0;
}

static int begin(struct walk *w, struct sbx_error *err)
{
	const char *top = w->path[0] == '/' ? "/" : ".";
	_cleanup_fd_ int fd = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return sbx_fail(err, errno, "the %s directory %s: %s", w->what, w->path,
		                strerror(errno));
	w->top = st.st_uid;
	r = check_part(w, fd, 1, err);
	return r ? r : sbx_steal_fd(&fd);
}

int sbx_dir_own(const char *path, const char *what, struct sbx_error *err)
{
	struct walk w = {.path = path, .what = what};
	_cleanup_fd_ int fd = begin(&w, err), dir = -1;
	const char *at = path + strspn(path, "/");
	int r = fd;

	while (r >= 0 && *at) {
		size_t len = strcspn(at, "/");

		r = next_part(&w, &fd, at, (int)len, err);
		at += len;
		at += strspn(at, "/");
	}
	if (r < 0)
		return r;
	dir = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return sbx_fail(err, errno, "cannot use the %s directory %s: %s", what, path,
		                strerror(errno));
	r = check_own(&w, dir, err);
	return r ? r : sbx_steal_fd(&dir);
}
