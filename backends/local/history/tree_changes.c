/* The differences of two trees as a list, and the index that follows from it. */
#include "backends/local/history/tree_changes.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/git/git_impl.h"
#include "backends/local/history/history_impl.h"
#include "sandboxfs/grow.h"

#define GITLINK 0160000

/* Adds the change that makes PATH what ENTRY is in its tree; GONE: PATH goes. */
static int add_change(struct tree_changes *a, const char *path, const git_tree_entry *entry,
                      bool gone)
{
	uint32_t mode = git_tree_entry_filemode(entry);
	struct tree_change c = {.path = strdup(path),
	                        .mode = gone ? 0 : mode,
	                        .directory = gone && mode == GITLINK,
	                        .oid = *git_tree_entry_id(entry)};

	if (!c.path || SBX_GROW(a->at, a->n, a->cap, 64)) {
		free(c.path);
		return sbx_no_memory(a->err);
	}
	if (S_ISREG(c.mode))
		c.mode = S_IFREG | (c.mode & 0100 ? 0755 : 0644);
	c.entry.name = c.path;
	c.entry.len = (uint32_t)strlen(c.path);
	memcpy(c.entry.oid, c.oid.id, sizeof(c.entry.oid));
	for (int i = 0; i < 4; i++)
		c.entry.stat[24 + i] = (unsigned char)(c.mode >> (24 - 8 * i));
	a->at[a->n++] = c;
	return 0;
}

/* ---- comparing ---- */

static bool is_tree(const git_tree_entry *e)
{
	return e && git_tree_entry_type(e) == GIT_OBJECT_TREE;
}

static bool same_entry(const git_tree_entry *x, const git_tree_entry *y)
{
	return x && y && git_tree_entry_filemode(x) == git_tree_entry_filemode(y) &&
	       git_oid_equal(git_tree_entry_id(x), git_tree_entry_id(y));
}

static bool same_kind(const git_tree_entry *x, const git_tree_entry *y)
{
	return (git_tree_entry_filemode(x) & S_IFMT) == (git_tree_entry_filemode(y) & S_IFMT);
}

static int list_trees(struct tree_changes *a, const char *dir, const git_oid *from,
                      const git_oid *to);

/* X and Y have the same name in DIR, and are trees both or neither; one may be NULL. */
static int list_pair(struct tree_changes *a, const char *dir, const git_tree_entry *x,
                     const git_tree_entry *y)
{
	_cleanup_free_ char *path = NULL;
	bool trees = is_tree(x) || is_tree(y);
	int r = 0;

	/* What is below a tree that is the same need not be read: so all this costs what differs.
	 */
	if (same_entry(x, y))
		return 0;
	path = sbx_format("%s%s%s", dir, git_tree_entry_name(x ? x : y), trees ? "/" : "");
	if (!path)
		return sbx_no_memory(a->err);
	if (strlen(path) >= PATH_MAX)
		return sbx_fail(a->err, ENAMETOOLONG, "cannot compare: a path is too long");
	if (trees)
		return list_trees(a, path, x ? git_tree_entry_id(x) : NULL,
		                  y ? git_tree_entry_id(y) : NULL);
	if (x && (!y || !same_kind(x, y)))
		r = add_change(a, path, x, true);
	return r || !y ? r : add_change(a, path, y, false);
}

static int list_entries(struct tree_changes *a, const char *dir, const git_tree *x,
                        const git_tree *y)
{
	size_t i = 0, k = 0, n = x ? git_tree_entrycount(x) : 0, m = y ? git_tree_entrycount(y) : 0;
	int r = 0;

	while (!r && (i < n || k < m)) {
		const git_tree_entry *from = i < n ? git_tree_entry_byindex(x, i) : NULL;
		const git_tree_entry *to = k < m ? git_tree_entry_byindex(y, k) : NULL;
		int c = !from ? 1 : !to ? -1 : git_tree_entry_cmp(from, to);

		r = list_pair(a, dir, c <= 0 ? from : NULL, c >= 0 ? to : NULL);
		i += c <= 0;
		k += c >= 0;
	}
	return r;
}

/* DIR is empty or ends with a slash. A tree that is NULL has nothing in it. */
static int list_trees(struct tree_changes *a, const char *dir, const git_oid *from,
                      const git_oid *to)
{
	_cleanup_git_(tree) git_tree *x = NULL;
	_cleanup_git_(tree) git_tree *y = NULL;
	int r = from ? git_tree_lookup(&x, a->repo, from) : 0;

	if (!r && to)
		r = git_tree_lookup(&y, a->repo, to);
	return r ? sbx_git_fail(a->err, r, "cannot compare") : list_entries(a, dir, x, y);
}

int tree_changes_list(struct tree_changes *a, const git_oid *from, const git_oid *to)
{
	return git_oid_equal(from, to) ? 0 : list_trees(a, "", from, to);
}

static int compare_changes(const void *a, const void *b)
{
	const struct tree_change *x = a, *y = b;
	int r = strcmp(x->path, y->path);

	/* Of two for one path the one that makes it counts for the index. */
	return r ? r : (x->mode != 0) - (y->mode != 0);
}

/* ---- the index ---- */

void tree_changes_release(struct tree_changes *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->at[i].path);
	free(a->at);
	a->at = NULL;
	a->n = a->cap = 0;
}

int tree_changes_stage(struct tree_changes *a, struct sbx_index *index)
{
	struct sbx_index out = {.at = calloc(index->n + a->n + 1, sizeof(*out.at))};
	size_t size = 0, i = 0, k = 0;
	char *at;

	if (!out.at)
		return -ENOMEM;
	if (a->n)
		qsort(a->at, a->n, sizeof(*a->at), compare_changes);
	while (i < index->n || k < a->n) {
		int c = i == index->n ? 1
		        : k == a->n   ? -1
		                      : sbx_index_compare_names(index->at[i].name, index->at[i].len,
		                                                a->at[k].path, a->at[k].entry.len);

		if (c < 0) {
			out.at[out.n++] = index->at[i++];
			continue;
		}
		i += c == 0;
		while (k + 1 < a->n && strcmp(a->at[k].path, a->at[k + 1].path) == 0)
			k++;
		if (a->at[k].mode)
			out.at[out.n++] = a->at[k].entry;
		k++;
	}
	for (i = 0; i < out.n; i++)
		size += out.at[i].len;
	out.names = at = malloc(size + 1);
	if (!at) {
		free(out.at);
		return -ENOMEM;
	}
	for (i = 0; i < out.n; i++) {
		memcpy(at, out.at[i].name, out.at[i].len);
		out.at[i].name = at;
		at += out.at[i].len;
	}
	sbx_index_release(index);
	*index = out;
	return 0;
}

int sbx_local_history_stage(git_repository *repo, struct sbx_index *index, const git_oid *from,
                            const git_oid *to, struct sbx_error *err)
{
	struct tree_changes a = {.repo = repo, .err = err};
	int r = tree_changes_list(&a, from, to);

	if (!r) {
		r = tree_changes_stage(&a, index);
		if (r)
			sbx_fail(err, -r, "out of memory");
	}
	tree_changes_release(&a);
	return r;
}
