/*
 * The walk over a tree, directory by directory. A directory is opened from the root by its path
 * each time, by the kernel and beneath it, so that however deep a tree is the walk holds few
 * descriptors, and none that leads out. Of a tree in layers only what the upper one has is visited;
 * where that replaces a directory altogether, or shows one of the base under another name, the
 * whole of it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "backends/git/capture_impl.h"
#include "backends/git/index_tree.h"
#include "backends/git/path_rules.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

uint64_t capture_ignore_work = (uint64_t)16 << 30;

/* A directory still to be visited. */
struct todo {
	char *path;
	bool upper, ignored;
};

struct walk {
	struct capture *c;
	struct todo *todo;
	size_t n, cap;
	/* The directory being visited. */
	struct todo here;
	int merged, list;
};

int capture_is_over(const struct capture *c)
{
	return c->options->cancelled && atomic_load(c->options->cancelled)
	               ? sbx_fail(c->err, EINTR, "cancelled")
	               : 0;
}

/* ---- what the lower layer shows no more ---- */

static void hide_below(struct capture *c, const char *dir)
{
	size_t lo = 0, hi = c->options->lower->n;

	if (*dir)
		sbx_index_below(c->options->lower, dir, strlen(dir), &lo, &hi);
	for (size_t i = lo; i < hi; i++)
		c->hidden[i] = true;
}

static void hide_one(struct capture *c, const char *path)
{
	const struct sbx_index_entry *e = sbx_index_find(c->options->lower, path, strlen(path));

	if (e)
		c->hidden[e - c->options->lower->at] = true;
}

static void hide(const struct walk *w, const char *path)
{
	if (!w->here.upper)
		return;
	hide_one(w->c, path);
	hide_below(w->c, path);
}

/* ---- what the index knows ---- */

static const struct sbx_index_entry *known(const struct capture *c, const char *path)
{
	return sbx_index_find(c->options->known, path, strlen(path));
}

static bool knows_below(const struct capture *c, const char *path)
{
	size_t lo, hi;

	sbx_index_below(c->options->known, path, strlen(path), &lo, &hi);
	return hi > lo;
}

/* ---- collecting ---- */

static int add_todo(struct walk *w, const char *path, bool upper, bool ignored)
{
	char *copy = strdup(path);

	if (!copy || SBX_GROW(w->todo, w->n, w->cap, 64)) {
		free(copy);
		return -ENOMEM;
	}
	w->todo[w->n++] = (struct todo){.path = copy, .upper = upper, .ignored = ignored};
	return 0;
}

static int add_item(struct capture *c, const char *path, const struct stat *st,
                    const struct sbx_index_entry *entry)
{
	char *copy = strdup(path);

	if (!copy || SBX_GROW(c->items, c->n, c->cap, 256)) {
		free(copy);
		return -ENOMEM;
	}
	c->items[c->n++] = (struct capture_item){.path = copy, .st = *st, .known = entry};
	return 0;
}

static int leave_out(struct capture *c, const char *path)
{
	c->ret->inexact = true;
	return sbx_strings_add(&c->ret->left_out, path);
}

/* ---- directories ---- */

/* As git finds out: a file that leads to one, or a directory that has what every repository has. */
static bool is_repository(int dir)
{
	_cleanup_fd_ int git = -1;
	struct stat st;

	if (fstatat(dir, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	if (!S_ISDIR(st.st_mode))
		return S_ISREG(st.st_mode) && st.st_size > 0;
	git = sbx_beneath_open(dir, ".git", O_PATH | O_DIRECTORY);
	return git >= 0 && faccessat(git, "HEAD", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       faccessat(git, "objects", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       faccessat(git, "refs", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_nested(const struct walk *w, const char *path, const char *name)
{
	const struct sbx_strings *nested = w->c->options->nested;
	_cleanup_fd_ int dir = -1;

	for (size_t i = 0; nested && i < nested->n; i++)
		if (strcmp(nested->items[i], path) == 0)
			return true;
	dir = sbx_beneath_open(w->merged, name, O_PATH | O_DIRECTORY);
	return dir >= 0 && is_repository(dir);
}

/*
 * 1, 0, or -EFBIG, with a sentence: a command has made more rules for more names than can be tried.
 * Where such things are left out nothing is ignored from then on.
 */
static int is_ignored(struct walk *w, const char *path, bool directory)
{
	struct capture *c = w->c;

	if (w->here.ignored)
		return 1;
	if (sbx_ignore_work(c->rules.ignore) < capture_ignore_work)
		return sbx_ignore_match(c->rules.ignore, path, directory);
	return c->options->spare ? 0
	                         : sbx_fail(c->err, EFBIG,
	                                    "there are too many patterns in .gitignore for so many "
	                                    "files");
}

static int meet_directory(struct walk *w, const char *path, const char *name)
{
	struct capture *c = w->c;
	const struct sbx_index_entry *entry = known(c, path);
	const bool knows = knows_below(c, path);
	int ignored = 0;

	if (w->here.upper)
		hide_one(c, path);
	if (entry && sbx_index_mode(entry) == CAPTURE_GITLINK && is_nested(w, path, name)) {
		hide(w, path);
		c->ret->inexact = true;
		return sbx_strings_add(&c->ret->nested, path);
	}
	if (!knows && is_nested(w, path, name)) {
		int r = sbx_strings_add(&c->ret->nested, path);

		hide(w, path);
		return r ? r : leave_out(c, path);
	}
	if (knows || !c->options->ignored)
		ignored = is_ignored(w, path, true);
	if (ignored < 0)
		return ignored;
	return ignored && !knows ? leave_out(c, path)
	                         : add_todo(w, path, w->here.upper, ignored || w->here.ignored);
}

/* ---- entries ---- */

static int meet_file(struct walk *w, const char *path, const struct stat *st)
{
	struct capture *c = w->c;
	const struct sbx_index_entry *entry = known(c, path);
	int ignored;

	hide(w, path);
	ignored = !entry && !c->options->ignored ? is_ignored(w, path, false) : 0;
	if (ignored < 0)
		return ignored;
	return ignored ? leave_out(c, path) : add_item(c, path, st, entry);
}

static bool is_whiteout(const struct walk *w, const char *name, unsigned char type)
{
	struct stat st;

	return w->here.upper && type == DT_CHR &&
	       fstatat(w->list, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(0, 0);
}

static bool is_ours(const struct walk *w, const char *name)
{
	return !*w->here.path && strcmp(name, SBX_CAPTURE_TEMP) == 0;
}

/* The file .git that makes the tree a worktree. Each tree has its own. */
static bool is_gitfile(const struct walk *w, const char *name)
{
	struct stat st;

	return !*w->here.path && strcmp(name, ".git") == 0 &&
	       fstatat(w->merged, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static int meet(const char *name, unsigned char type, void *data)
{
	struct walk *w = data;
	_cleanup_free_ char *path =
	        sbx_format("%s%s%s", w->here.path, *w->here.path ? "/" : "", name);
	struct stat st;

	if (!path)
		return -ENOMEM;
	if (is_ours(w, name))
		return 0;
	if (!*w->here.path && strcmp(name, ".git") == 0) {
		w->c->ret->inexact |= !is_gitfile(w, name);
		return 0;
	}
	/* What git has no name for. */
	if (!sbx_git_component_ok(name, strlen(name)) || strlen(path) >= CAPTURE_PATH_MAX - 1)
		return is_whiteout(w, name, type) ? 0 : leave_out(w->c, path);
	if (is_whiteout(w, name, type) || fstatat(w->merged, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		hide(w, path);
		return 0;
	}
	if (S_ISDIR(st.st_mode))
		return meet_directory(w, path, name);
	if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
		return meet_file(w, path, &st);
	hide(w, path);
	return leave_out(w->c, path);
}

/* ---- the walk ---- */

static bool has_attribute(int fd, const char *name)
{
	return fgetxattr(fd, name, NULL, 0) > 0;
}

bool sbx_capture_replaces(int fd)
{
	return has_attribute(fd, "user.overlay.opaque") ||
	       has_attribute(fd, "trusted.overlay.opaque") ||
	       has_attribute(fd, "user.overlay.redirect") ||
	       has_attribute(fd, "trusted.overlay.redirect");
}

static int set_mode(int at, const char *path, mode_t mode)
{
	_cleanup_fd_ int fd = sbx_beneath_open(at, path, O_PATH | O_DIRECTORY);
	_cleanup_free_ char *proc = sbx_format("/proc/self/fd/%d", fd);

	return fd < 0 || !proc || chmod(proc, mode) < 0 ? -EACCES : 0;
}

/* Makes a directory that its owner may not read readable, for the time of the capture. */
static int loosen(struct capture *c, const char *path)
{
	struct capture_loose *loose = realloc(c->loose, (c->nloose + 1) * sizeof(*c->loose));
	_cleanup_fd_ int fd = sbx_beneath_open(c->options->root, path, O_PATH | O_DIRECTORY);
	_cleanup_free_ char *copy = strdup(path);
	struct stat st;

	if (loose)
		c->loose = loose;
	if (!loose || !copy)
		return -ENOMEM;
	if (fd < 0 || fstat(fd, &st) < 0 ||
	    set_mode(c->options->root, path, (st.st_mode & 07777) | 0700) < 0)
		return -EACCES;
	c->loose[c->nloose++] =
	        (struct capture_loose){.path = sbx_steal_ptr(&copy), .mode = st.st_mode & 07777};
	return 0;
}

void capture_tighten(struct capture *c)
{
	while (c->nloose) {
		struct capture_loose *l = &c->loose[--c->nloose];

		set_mode(c->options->root, l->path, l->mode);
		free(l->path);
	}
	free(c->loose);
}

static int open_directory(struct capture *c, int at, const char *path)
{
	const char *name = *path ? path : ".";
	int fd = sbx_beneath_open(at, name, O_RDONLY | O_DIRECTORY);

	if ((fd == -EACCES || (fd >= 0 && faccessat(fd, ".", X_OK, AT_EACCESS) < 0)) &&
	    loosen(c, name) == 0) {
		sbx_cleanup_fd(&fd);
		fd = sbx_beneath_open(at, name, O_RDONLY | O_DIRECTORY);
	}
	return fd;
}

static int visit(struct walk *w)
{
	struct capture *c = w->c;
	_cleanup_fd_ int merged = open_directory(c, c->options->root, w->here.path);
	_cleanup_fd_ int upper = -1;
	int r;

	/* Gone or replaced meanwhile: what is left of it is nothing. */
	if (merged < 0) {
		hide(w, w->here.path);
		return merged == -EMFILE || merged == -ENFILE || merged == -ENOMEM ? merged : 0;
	}
	if (w->here.upper) {
		upper = open_directory(c, c->options->upper, w->here.path);
		if (upper < 0 || sbx_capture_replaces(upper)) {
			hide_below(c, w->here.path);
			w->here.upper = false;
		}
	}
	w->merged = merged;
	w->list = w->here.upper ? upper : merged;
	r = capture_rules_enter(&c->rules, w->here.path);
	if (!r && *w->here.path)
		r = sbx_strings_add(&c->dirs, w->here.path);
	return r ? r : sbx_dir_scan(w->list, meet, w);
}

int capture_walk(struct capture *c)
{
	struct walk w = {.c = c};
	int r = add_todo(&w, "", c->options->upper >= 0, false);

	while (!r && w.n) {
		w.here = w.todo[--w.n];
		r = capture_is_over(c);
		if (!r)
			r = visit(&w);
		free(w.here.path);
	}
	while (w.n)
		free(w.todo[--w.n].path);
	free(w.todo);
	return r;
}
