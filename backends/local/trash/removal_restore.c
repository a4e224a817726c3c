/*
 * Files of the base are not copied where an index knows them: their entries stand for them. But for
 * the rules of what is ignored, which are read from the tree.
 */
#include "backends/local/trash/removal_restore.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/index_tree.h"
#include "backends/local/trash/removal_log.h"
#include "backends/support/beneath.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

#define INODE 20 /* in an entry's stat data */

struct link {
	uint64_t ino;
	char *path;
};

struct making {
	int dir, base;
	const struct sbx_index *index;
	struct sbx_removal_view *view;
	const struct sbx_index_entry **inodes; /* the index by them, once it is needed */
	struct link *files, *names;            /* names: links to be made to the files */
	size_t nfiles, files_cap, nnames, names_cap;
};

static int add_link(struct link **list, size_t *n, size_t *cap, const struct sbx_removal_entry *e)
{
	if (SBX_GROW(*list, *n, *cap, 256))
		return -ENOMEM;
	(*list)[*n] = (struct link){.ino = e->ino, .path = strdup(e->path)};
	return (*list)[*n].path ? (void)(*n)++, 0 : -ENOMEM;
}

/* --- the base's
 * ------------------------------------------------------------------------------------- */

static uint32_t inode_of(const struct sbx_index_entry *e)
{
	const unsigned char *p = e->stat + INODE;

	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int by_inode_of(const void *a, const void *b)
{
	uint32_t x = inode_of(*(const struct sbx_index_entry *const *)a),
	         y = inode_of(*(const struct sbx_index_entry *const *)b);

	return (x > y) - (x < y);
}

static int sort_inodes(struct making *m)
{
	if (m->inodes)
		return 0;
	m->inodes = calloc(m->index->n + 1, sizeof(*m->inodes));
	if (!m->inodes)
		return -ENOMEM;
	for (size_t i = 0; i < m->index->n; i++)
		m->inodes[i] = &m->index->at[i];
	qsort(m->inodes, m->index->n, sizeof(*m->inodes), by_inode_of);
	return 0;
}

/* A directory of the base may have been renamed: its files are known by their inodes. */
static int find(struct making *m, const struct sbx_removal_entry *k,
                const struct sbx_index_entry **ret)
{
	size_t low = 0, high = m->index->n;
	int r;

	*ret = sbx_index_find(m->index, k->path, strlen(k->path));
	if (*ret && inode_of(*ret) == (uint32_t)k->ino)
		return 0;
	r = sort_inodes(m);
	while (!r && low < high) {
		size_t mid = low + (high - low) / 2;

		if (inode_of(m->inodes[mid]) < (uint32_t)k->ino)
			low = mid + 1;
		else
			high = mid;
	}
	if (!r && low < m->index->n && inode_of(m->inodes[low]) == (uint32_t)k->ino)
		*ret = m->inodes[low];
	return r;
}

static int add_lower(struct sbx_removal_view *v, const struct sbx_index_entry *e, const char *path)
{
	if (v->n == v->cap) {
		size_t more = v->cap ? 2 * v->cap : 1024;
		struct sbx_index_entry *at = realloc(v->lower.at, more * sizeof(*at));
		char **paths = at ? realloc(v->paths, more * sizeof(*paths)) : NULL;

		if (at)
			v->lower.at = at;
		if (!paths)
			return -ENOMEM;
		v->paths = paths;
		v->cap = more;
	}
	v->paths[v->n] = strdup(path);
	if (!v->paths[v->n])
		return -ENOMEM;
	v->lower.at[v->n] = *e;
	v->lower.at[v->n].name = v->paths[v->n];
	v->lower.at[v->n].len = (uint32_t)strlen(path);
	v->lower.n = ++v->n;
	return 0;
}

static int copy_link(int src, int dir, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(src, "", target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, dir, name) < 0 && errno != EEXIST ? -errno : 0;
}

static int copy_file(int tree, const char *from, const struct stat *st, int dir, const char *name)
{
	_cleanup_fd_ int src = sbx_beneath_open(tree, from, O_RDONLY), out = -1;

	if (src < 0)
		return src;
	out = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	             (st->st_mode & 0700) | 0600);
	if (out < 0)
		return errno == EEXIST ? 0 : -errno;
	return sbx_file_copy(src, out);
}

static int copy_base(const struct making *m, const char *from, const char *path)
{
	_cleanup_fd_ int tree = sbx_dir_open(m->base, "tree"), dir = -1;
	_cleanup_fd_ int src = tree < 0 ? tree : sbx_beneath_open(tree, from, O_PATH);
	const char *name;
	struct stat st;

	if (src < 0)
		return src == -ENOENT ? 0 : src;
	if (fstat(src, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)))
		return 0;
	dir = sbx_beneath_parent(m->view->tree, path, &name);
	if (dir < 0)
		return dir;
	return S_ISLNK(st.st_mode) ? copy_link(src, dir, name)
	                           : copy_file(tree, from, &st, dir, name);
}

static bool is_rules(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, ".gitignore") == 0;
}

static int take_base(struct making *m, const struct sbx_removal_entry *k)
{
	const struct sbx_index_entry *e;
	_cleanup_free_ char *from = NULL;
	int r;

	if (!m->index)
		return m->base < 0 ? 0 : copy_base(m, k->path, k->path);
	r = find(m, k, &e);
	if (r || !e)
		return r;
	from = strndup(e->name, e->len);
	r = from ? add_lower(m->view, e, k->path) : -ENOMEM;
	return r || !is_rules(k->path) ? r : copy_base(m, from, k->path);
}

/* --- what was kept
 * ----------------------------------------------------------------------------------- */

static int put(struct making *m, int from, const char *name, const char *path)
{
	const char *last;
	_cleanup_fd_ int dir = sbx_beneath_parent(m->view->tree, path, &last);

	if (dir < 0)
		return dir;
	return linkat(from, name, dir, last, 0) < 0 && errno != EEXIST && errno != ENOENT ? -errno
	                                                                                  : 0;
}

static int take(const struct sbx_removal_entry *k, void *data)
{
	struct making *m = data;
	int r;

	switch (k->kind) {
	case SBX_REMOVAL_BASE:
		return take_base(m, k);
	case SBX_REMOVAL_NAME:
		return add_link(&m->names, &m->nnames, &m->names_cap, k);
	default:
		r = put(m, m->dir, k->link, k->path);
		return r ? r : add_link(&m->files, &m->nfiles, &m->files_cap, k);
	}
}

static int by_inode(const void *a, const void *b)
{
	const struct link *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

static int link_names(struct making *m)
{
	int r = 0;

	if (!m->nfiles)
		return 0;
	qsort(m->files, m->nfiles, sizeof(*m->files), by_inode);
	for (size_t i = 0; i < m->nnames && !r; i++) {
		const struct link *file =
		        bsearch(&m->names[i], m->files, m->nfiles, sizeof(*m->files), by_inode);
		const char *name;
		_cleanup_fd_ int dir =
		        file ? sbx_beneath_parent(m->view->tree, file->path, &name) : -1;

		if (dir >= 0)
			r = put(m, dir, name, m->names[i].path);
	}
	return r;
}

/* --- together
 * --------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return sbx_index_compare(a, b);
}

/* Sorted, of equal names one. */
static void adjust(struct sbx_index *index)
{
	size_t n = 0;

	if (!index->n)
		return;
	qsort(index->at, index->n, sizeof(*index->at), by_name);
	for (size_t i = 0; i < index->n; i++)
		if (!n || sbx_index_compare(&index->at[n - 1], &index->at[i]) != 0)
			index->at[n++] = index->at[i];
	index->n = n;
}

static void free_links(struct link *list, size_t n)
{
	while (n)
		free(list[--n].path);
	free(list);
}

int sbx_removal_view_make(int dir, int base, const struct sbx_index *index,
                          struct sbx_removal_view *ret, struct sbx_error *err)
{
	struct sbx_removal_view view = {.tree = -1};
	struct making m = {.dir = dir, .base = base, .index = index, .view = &view};
	int r = sbx_tree_remove(dir, "tree", err);

	if (r)
		return r;
	view.tree = sbx_dir_make(dir, "tree", 0700);
	r = view.tree < 0 ? view.tree : sbx_removal_each(dir, take, &m);
	if (!r)
		r = link_names(&m);
	free_links(m.files, m.nfiles);
	free_links(m.names, m.nnames);
	free(m.inodes);
	if (r) {
		sbx_removal_view_release(&view);
		return sbx_fail(err, -r, "what was removed cannot be put together: %s",
		                strerror(-r));
	}
	adjust(&view.lower);
	*ret = view;
	return 0;
}

void sbx_removal_view_release(struct sbx_removal_view *view)
{
	while (view->n)
		free(view->paths[--view->n]);
	free(view->paths);
	free(view->lower.at);
	sbx_cleanup_fd(&view->tree);
	*view = (struct sbx_removal_view){.tree = -1};
}
