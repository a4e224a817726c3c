#include "fs/util/symlink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"
#include "sandboxfs/openat2.h"

#define LINKS_MAX 40 /* as the kernel has it */

bool sbx_symlink_climbs(const char *target, unsigned depth)
{
	bool named = false;

	while (*target) {
		size_t len = strcspn(target, "/");

		if (len == 2 && !memcmp(target, "..", 2)) {
			if (named || depth == 0)
				return false;
			depth--;
		} else if (len > 1 || (len == 1 && *target != '.')) {
			named = true;
		}
		target += len + strspn(target + len, "/");
	}
	return true;
}

/* The first part of PATH, which is moved behind it; empty at the end. */
static int next_part(const char **path, char ret[NAME_MAX + 1])
{
	const char *from = *path + strspn(*path, "/");
	size_t len = strcspn(from, "/");

	*path = from + len;
	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret, from, len);
	ret[len] = '\0';
	return 0;
}

/* Takes the last part of PATH away. */
static void climb(char *path)
{
	char *slash = strrchr(path, '/');

	*(slash ? slash : path) = '\0';
}

/* Adds NAME to PATH, of SIZE bytes. */
static int descend(char *path, size_t size, const char *name)
{
	size_t len = strlen(path);
	int n = snprintf(path + len, size - len, "%s%s", len ? "/" : "", name);

	return n < (int)(size - len) ? 0 : -ENAMETOOLONG;
}

/* Whether PATH is TOP or below it. */
static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '/' || !path[len]);
}

/* A link's text where the walk along it begins. */
struct entry {
	char at[PATH_MAX]; /* a directory, from the sandbox's root */
	const char *rest;  /* where to from there; does not begin with ".." */
};

/*
 * Follows the front of TARGET, of a link in DIR, up to the first name beneath the root. Above the
 * root, where an absolute target begins and a relative one may climb to, only the way to VIEW is
 * allowed.
 */
static int enter(const char *view, const char *dir, const char *target, struct entry *ret)
{
	char at[2 * PATH_MAX] = "", part[NAME_MAX + 1];
	const char *rest = target;
	int r = 0;

	/* Without the first slash of VIEW. */
	view++;
	if (*target != '/' &&
	    (descend(at, sizeof(at), view) || (*dir && descend(at, sizeof(at), dir))))
		return -ENAMETOOLONG;
	for (;;) {
		r = next_part(&rest, part);
		if (r || !*part)
			break;
		if (!strcmp(part, ".."))
			climb(at);
		else if (strcmp(part, ".") != 0 && is_below(at, view))
			break;
		else if (strcmp(part, ".") != 0)
			r = descend(at, sizeof(at), part);
		if (r || (*at && !is_below(at, view) && !is_below(view, at)))
			return r ? r : -EACCES;
		target = rest;
	}
	if (!is_below(at, view))
		return -EACCES;
	ret->rest = target + strspn(target, "/");
	snprintf(ret->at, sizeof(ret->at), "%s", at + strlen(view) + (at[strlen(view)] == '/'));
	return 0;
}

/* Opens PATH beneath ROOT_FD for looking only; -errno. */
static int open_beneath(int root_fd, const char *path, int flags, uint64_t resolve)
{
	return sbx_openat2(root_fd, *path ? path : ".", flags | O_PATH,
	                   resolve | RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
}

/* A walk by hand: the kernel's beneath a root takes every absolute link for a way out. */
struct walk {
	int root;
	const char *view;
	char at[PATH_MAX];       /* through no link */
	char todo[8 * PATH_MAX]; /* a path from there */
	unsigned links;
};

static int set_todo(struct walk *w, const char *front, const char *rest)
{
	char *copy;
	int n = asprintf(&copy, "%s/%s", front, rest);

	if (n < 0)
		return -ENOMEM;
	if ((size_t)n < sizeof(w->todo))
		memcpy(w->todo, copy, (size_t)n + 1);
	free(copy);
	return (size_t)n < sizeof(w->todo) ? 0 : -ENAMETOOLONG;
}

/* Follows the link at w->at, whose text is TEXT. */
static int follow(struct walk *w, const char *text, const char *rest)
{
	char dir[PATH_MAX];
	struct entry e;
	int r;

	memcpy(dir, w->at, sizeof(dir));
	climb(dir);
	r = enter(w->view, dir, text, &e);
	if (r)
		return r;
	memcpy(w->at, e.at, sizeof(w->at));
	return set_todo(w, e.rest, rest);
}

/* One name further. 1: the walk ends here, as nothing is there, or not yet. */
static int step(struct walk *w, const char *name, const char *rest)
{
	char text[PATH_MAX];
	int r = descend(w->at, sizeof(w->at), name), fd;
	ssize_t n;

	if (r)
		return r;
	fd = open_beneath(w->root, w->at, O_NOFOLLOW, RESOLVE_NO_SYMLINKS);
	if (fd == -EXDEV || fd == -ELOOP || fd == -EAGAIN)
		return -EACCES; /* something was swapped */
	if (fd < 0)
		return 1;
	n = readlinkat(fd, "", text, sizeof(text) - 1);
	close(fd);
	if (n < 0)
		return set_todo(w, "", rest);
	text[n] = '\0';
	return w->links++ < LINKS_MAX ? follow(w, text, rest) : 1;
}

/* 0: along PATH from AT the root is not left, as far as PATH exists; -EACCES it is, or another
 * error. */
static int walk_beneath(int root, const char *view, const char *at, const char *path)
{
	_cleanup_free_ struct walk *w = calloc(1, sizeof(*w));
	char part[NAME_MAX + 1];
	int r = w ? 0 : -ENOMEM;

	if (w) {
		w->root = root;
		w->view = view;
		snprintf(w->at, sizeof(w->at), "%s", at);
		r = set_todo(w, "", path);
	}
	while (!r) {
		const char *rest = w->todo;

		r = next_part(&rest, part);
		if (r == -ENAMETOOLONG || !*part)
			return 0; /* nothing has such a name */
		if (strcmp(part, "..") != 0 && strcmp(part, ".") != 0)
			r = step(w, part, rest);
		else if (part[1] && !*w->at)
			r = -EACCES;
		else {
			if (part[1])
				climb(w->at);
			r = set_todo(w, "", rest);
		}
	}
	return r > 0 ? 0 : r;
}

/* As walk_beneath, by the kernel where it can tell. */
static int stays_beneath(int root, const char *view, const struct entry *e)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s%s%s", e->at, *e->at && *e->rest ? "/" : "",
	                 e->rest);
	int fd = n < (int)sizeof(path) ? open_beneath(root, path, 0, 0) : -EXDEV;

	if (fd >= 0)
		close(fd);
	return fd == -EXDEV || fd == -EAGAIN ? walk_beneath(root, view, e->at, e->rest) : 0;
}

bool sbx_symlink_is_steep(const char *target)
{
	/* Deeper than any link can be. */
	return !sbx_symlink_climbs(target, PATH_MAX);
}

int sbx_symlink_check(int root_fd, const char *dir, const char *target, const char *view,
                      struct sbx_error *err)
{
	struct entry e;
	int r;

	if (sbx_mitigation_off("links"))
		return 0;
	r = enter(view, dir, target, &e);
	if (!r)
		r = stays_beneath(root_fd, view, &e);
	if (r == -EACCES)
		return sbx_fail(err, EACCES, "a link to %s would lead out of the sandbox", target);
	if (r == -ENAMETOOLONG)
		return sbx_fail(err, ENAMETOOLONG, "the path of the link's target is too long");
	return r ? sbx_fail(err, -r, "a link cannot be followed: %s", strerror(-r)) : 0;
}
