/*
 * Repositories in a plain source, which no snapshot records. The lower layer has them as they were,
 * so only what the upper layer has of them is gone through: it is taken, and what it replaced is
 * put in its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/capture.h"
#include "backends/git/git_impl.h"
#include "backends/local/history/aside.h"
#include "backends/local/history/history_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define LEFT_MAX ((size_t)64 << 20)
#define BLOCK    ((size_t)64 * 1024)

struct lowering {
	struct sbx_aside from; /* its files are the lower layer */
	struct sbx_aside *a;
	struct sbx_strings todo; /* directories that both layers have */
};

enum state { AS_BELOW, MERGED, REPLACED };

/* Finds out what the upper layer UPPER does to the directory PATH of the lower one. */
static enum state look(int upper, const char *path)
{
	_cleanup_free_ char *part = strdup(path);
	enum state state = MERGED;

	for (char *at = part; at && state == MERGED;) {
		char *slash = strchr(at, '/');
		int fd;

		if (slash)
			*slash = '\0';
		fd = sbx_beneath_open(upper, part, O_RDONLY | O_DIRECTORY);
		if (fd == -ENOENT)
			state = AS_BELOW;
		else if (fd < 0 || sbx_capture_replaces(fd))
			state = REPLACED;
		sbx_cleanup_fd(&fd);
		if (slash)
			*slash = '/';
		at = slash ? slash + 1 : NULL;
	}
	return part ? state : REPLACED;
}

static bool same_bytes(int a, int b)
{
	_cleanup_free_ char *buf = malloc(2 * BLOCK);
	ssize_t n, m;

	if (!buf)
		return false;
	do {
		n = read(a, buf, BLOCK);
		m = read(b, buf + BLOCK, BLOCK);
		if (n < 0 || n != m || memcmp(buf, buf + BLOCK, (size_t)n) != 0)
			return false;
	} while (n > 0);
	return true;
}

/* Whether NAME, a file of either layer, is the same in both. */
static bool is_same(int upper, int lower, const char *name, const struct stat *u,
                    const struct stat *l)
{
	_cleanup_fd_ int a = -1, b = -1;

	if (!S_ISREG(u->st_mode) || u->st_mode != l->st_mode || u->st_size != l->st_size ||
	    u->st_mtim.tv_sec != l->st_mtim.tv_sec || u->st_mtim.tv_nsec != l->st_mtim.tv_nsec)
		return false;
	a = openat(upper, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	b = openat(lower, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return a >= 0 && b >= 0 && same_bytes(a, b);
}

static bool is_merged(int upper, const char *name)
{
	_cleanup_fd_ int fd = sbx_beneath_open(upper, name, O_RDONLY | O_DIRECTORY);

	return fd >= 0 && !sbx_capture_replaces(fd);
}

static int lower_entry(struct lowering *lo, int upper, int lower, const char *name,
                       const char *path)
{
	struct stat u, l;

	if (fstatat(upper, name, &u, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstatat(lower, name, &l, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? sbx_aside_take(lo->a, path) : -errno;
	if (S_ISDIR(u.st_mode) && S_ISDIR(l.st_mode) && is_merged(upper, name))
		return sbx_strings_add(&lo->todo, path);
	return is_same(upper, lower, name, &u, &l) ? 0 : sbx_aside_put(&lo->from, lo->a, path);
}

static int lower_dir(struct lowering *lo, const char *dir)
{
	_cleanup_fd_ int upper = sbx_beneath_open(lo->a->own, dir, O_RDONLY | O_DIRECTORY);
	_cleanup_fd_ int lower = sbx_beneath_open(lo->from.files, dir, O_RDONLY | O_DIRECTORY);
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	int r = upper < 0 ? upper : lower < 0 ? lower : sbx_dir_names(upper, &names);

	for (size_t i = 0; i < names.n && !r; i++) {
		_cleanup_free_ char *path = sbx_format("%s/%s", dir, names.items[i]);

		r = path ? lower_entry(lo, upper, lower, names.items[i], path) : -ENOMEM;
	}
	return r;
}

static int lower_one(struct lowering *lo, const char *path)
{
	int r = 0;

	switch (look(lo->a->own, path)) {
	case AS_BELOW:
		return 0;
	case REPLACED:
		return sbx_aside_put(&lo->from, lo->a, path);
	case MERGED:
		r = sbx_aside_lowered(lo->a, path);
		if (!r)
			r = sbx_strings_add(&lo->todo, path);
		break;
	}
	while (!r) {
		_cleanup_free_ char *next = sbx_strings_take(&lo->todo);

		if (!next)
			break;
		r = lower_dir(lo, next);
	}
	return r;
}

static bool is_within(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (!path[n] || path[n] == '/');
}

static bool is_repository(int lower, const char *path)
{
	_cleanup_fd_ int dir = sbx_beneath_open(lower, path, O_PATH | O_DIRECTORY);

	return dir >= 0 && faccessat(dir, ".git", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether what is to be says nothing of PATH: neither the tree TO nor the list TOPS. */
static bool is_untold(const char *path, git_tree *to, const char *tops, size_t len)
{
	git_tree_entry *entry = NULL;
	const bool told = git_tree_entry_bypath(&entry, to, path) == 0;

	git_tree_entry_free(entry);
	for (const char *at = tops; !told && at < tops + len; at += strlen(at) + 1)
		if (is_within(path, at) || is_within(at, path))
			return false;
	return !told;
}

static int lower_all(struct lowering *lo, git_tree *to, const struct sbx_aside *repos,
                     const char *left, size_t len)
{
	_cleanup_free_ char *tops = NULL;
	size_t n = 0;
	int r = repos->files < 0 ? 0 : sbx_aside_list(repos, "tops", &tops, &n);

	for (const char *at = left; at < left + len && *at && !r; at += strlen(at) + 1)
		if (is_repository(lo->from.files, at) && is_untold(at, to, tops, n))
			r = lower_one(lo, at);
	return r;
}

static int lower_listed(const struct sbx_snapshot_context *context, git_tree *to,
                        const struct sbx_aside *repos, struct sbx_aside *a)
{
	_cleanup_fd_ int dir = sbx_local_history_dir(context, a->err);
	_cleanup_free_ char *left = NULL;
	struct lowering lo = {.from = sbx_no_aside, .a = a};
	size_t len;
	int r = dir < 0 ? dir
	                : sbx_beneath_read(dir, SBX_LOCAL_HISTORY_LEFT, LEFT_MAX, &left, &len,
	                                   NULL);

	if (r)
		return r == -ENOENT ? 0 : r;
	lo.from.context = context;
	lo.from.files = sbx_local_history_lower_tree(context);
	r = lo.from.files < 0 ? lo.from.files : lower_all(&lo, to, repos, left, len);
	sbx_strings_release(&lo.todo);
	sbx_cleanup_fd(&lo.from.files);
	return r;
}

int sbx_local_history_give_lower(const struct sbx_snapshot_context *context, git_repository *repo,
                                 const git_oid *tree, const struct sbx_aside *repos,
                                 struct sbx_aside *a)
{
	git_tree *to = NULL;
	int r;

	if (context->rec->common || !context->rec->layer)
		return 0;
	r = git_tree_lookup(&to, repo, tree);
	r = r ? sbx_git_fail(a->err, r, "a snapshot cannot be read")
	      : lower_listed(context, to, repos, a);
	git_tree_free(to);
	return r && !a->err->code
	               ? sbx_fail(a->err, -r, "cannot restore what was in the source: %s",
	                          strerror(-r))
	               : r;
}
