/*
 * A file that was taken out of a tree may have another name there, which stays: an ignored one, or
 * one that a restore has no need to change. What is written to it from then on is no part of what
 * was taken.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/history/aside.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

#define COPY "apart" /* in a->dir */

/* One name, of those kept, of a file that has several. */
struct kept_name {
	struct stat st;
	char *path; /* below a->files; NULL: one of a->links */
};

struct kept_names {
	struct kept_name *items;
	size_t n, cap;
};

static void names_release(struct kept_names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->items[i].path);
	free(l->items);
}

/* Takes PATH over, also on failure. */
static int add(struct kept_names *l, const struct stat *st, char *path)
{
	_cleanup_free_ char *owned = path;

	if (SBX_GROW(l->items, l->n, l->cap, 64))
		return -ENOMEM;
	l->items[l->n++] = (struct kept_name){.st = *st, .path = sbx_steal_ptr(&owned)};
	return 0;
}

static int list_one(struct kept_names *l, struct sbx_strings *dirs, int fd, const char *dir,
                    const char *name)
{
	struct stat st;
	char *path;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) && st.st_nlink < 2)
		return 0;
	path = dir ? sbx_format("%s%s%s", dir, *dir ? "/" : "", name) : NULL;
	if (dir && !path)
		return -ENOMEM;
	if (S_ISDIR(st.st_mode)) {
		int r = path ? sbx_strings_add(dirs, path) : 0;

		free(path);
		return r;
	}
	return add(l, &st, path);
}

/* DIR NULL: of the directory TOP itself, without paths. */
static int list_dir(struct kept_names *l, struct sbx_strings *dirs, int top, const char *dir)
{
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	_cleanup_fd_ int fd =
	        sbx_beneath_open(top, dir && *dir ? dir : ".", O_RDONLY | O_DIRECTORY);
	int r = fd < 0 ? fd : sbx_dir_names(fd, &names);

	for (size_t i = 0; i < names.n && !r; i++)
		r = list_one(l, dirs, fd, dir, names.items[i]);
	return r;
}

static int list_all(const struct sbx_aside *a, struct kept_names *l)
{
	_cleanup_(sbx_strings_release) struct sbx_strings dirs = {0};
	int r = sbx_strings_add(&dirs, "");

	for (size_t i = 0; i < dirs.n && !r; i++)
		r = list_dir(l, &dirs, a->files, dirs.items[i]);
	return r ? r : list_dir(l, NULL, a->links, NULL);
}

static int compare(const void *a, const void *b)
{
	const struct stat *x = &((const struct kept_name *)a)->st;
	const struct stat *y = &((const struct kept_name *)b)->st;

	if (x->st_dev != y->st_dev)
		return x->st_dev < y->st_dev ? -1 : 1;
	return (x->st_ino > y->st_ino) - (x->st_ino < y->st_ino);
}

/* A copy takes the place of PATH; of one that was copied before a link to that. */
static int set_apart(const struct sbx_aside *a, const struct kept_name *k, int links)
{
	const char *slash = strrchr(k->path, '/');
	_cleanup_free_ char *dir =
	        slash ? strndup(k->path, (size_t)(slash - k->path)) : strdup(".");
	_cleanup_fd_ int src =
	        dir ? sbx_beneath_open(a->files, dir, O_PATH | O_DIRECTORY) : -ENOMEM;
	const char *name = slash ? slash + 1 : k->path;
	struct sbx_copy copy = {.src = src, .links = links, .ours = true};
	int r;

	if (src < 0)
		return src;
	copy.dst = sbx_dir_make(a->dir, COPY, 0700);
	if (copy.dst < 0)
		return copy.dst;
	r = sbx_copy_entry(&copy, name, (unsigned char)((k->st.st_mode & S_IFMT) >> 12));
	if (!r && renameat(copy.dst, name, src, name) < 0)
		r = -errno;
	if (r)
		unlinkat(copy.dst, name, 0);
	close(copy.dst);
	return r;
}

static int part_each(const struct sbx_aside *a, const struct kept_names *l, int links)
{
	int r = 0;

	for (size_t i = 0, end; i < l->n && !r; i = end) {
		for (end = i + 1; end < l->n && !compare(&l->items[i], &l->items[end]);)
			end++;
		if (l->items[i].st.st_nlink <= end - i)
			continue;
		for (size_t k = i; k < end && !r; k++)
			if (l->items[k].path)
				r = set_apart(a, &l->items[k], links);
	}
	return r;
}

int sbx_aside_part(struct sbx_aside *a)
{
	_cleanup_(names_release) struct kept_names l = {0};
	_cleanup_fd_ int links = -1;
	int r;

	if (!a->several)
		return 0;
	r = list_all(a, &l);
	if (!r && l.n) {
		qsort(l.items, l.n, sizeof(*l.items), compare);
		links = sbx_dir_make(a->dir, "parted", 0700);
		r = links < 0 ? links : part_each(a, &l, links);
		sbx_tree_remove(a->dir, "parted", NULL);
		sbx_tree_remove(a->dir, COPY, NULL);
	}
	return r && !a->err->code
	               ? sbx_fail(a->err, -r, "cannot keep what is replaced: %s", strerror(-r))
	               : r;
}
