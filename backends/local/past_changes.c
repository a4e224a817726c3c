/* What differs between two trees, as a list, and what an index says after it. */
#include "backends/local/past_changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/local/git_impl.h"
#include "backends/local/past_impl.h"

#define GITLINK 0160000

static int add_change(struct past_changes *a, const git_diff_file *file, bool gone)
{
	struct past_change c = {.path = strdup(file->path), .mode = gone ? 0 : file->mode};

	if (c.path && a->n == a->cap) {
		size_t cap = a->cap ? 2 * a->cap : 64;
		struct past_change *at = realloc(a->at, cap * sizeof(*at));

		if (!at) {
			free(c.path);
			return -ENOMEM;
		}
		a->at = at;
		a->cap = cap;
	}
	if (!c.path)
		return -ENOMEM;
	if (S_ISREG(c.mode))
		c.mode = S_IFREG | (c.mode & 0100 ? 0755 : 0644);
	c.oid = file->id;
	c.entry.name = c.path;
	c.entry.len = (uint32_t)strlen(c.path);
	memcpy(c.entry.oid, file->id.id, sizeof(c.entry.oid));
	for (int i = 0; i < 4; i++)
		c.entry.stat[24 + i] = (unsigned char)(c.mode >> (24 - 8 * i));
	a->at[a->n++] = c;
	return 0;
}

/* What a type change consists of comes as two. */
int past_changes_list(struct past_changes *a, const git_oid *from, const git_oid *to)
{
	_cleanup_git_(tree) git_tree *x = NULL;
	_cleanup_git_(tree) git_tree *y = NULL;
	git_diff_options opts = GIT_DIFF_OPTIONS_INIT;
	git_diff *diff = NULL;
	int r = git_tree_lookup(&x, a->repo, from), added = 0;

	if (!r)
		r = git_tree_lookup(&y, a->repo, to);
	if (!r)
		r = git_diff_tree_to_tree(&diff, a->repo, x, y, &opts);
	for (size_t i = 0; !r && !added && i < git_diff_num_deltas(diff); i++) {
		const git_diff_delta *d = git_diff_get_delta(diff, i);
		bool gone = d->status == GIT_DELTA_DELETED;

		added = add_change(a, gone ? &d->old_file : &d->new_file, gone);
		if (!added && gone)
			a->at[a->n - 1].directory = d->old_file.mode == GITLINK;
	}
	git_diff_free(diff);
	if (added)
		return sbx_fail(a->err, -added, "out of memory");
	return r ? sbx_git_fail(a->err, r, "cannot compare") : 0;
}

static int compare_changes(const void *a, const void *b)
{
	const struct past_change *x = a, *y = b;
	int r = strcmp(x->path, y->path);

	/* Of two for one path the one that makes it counts for the index. */
	return r ? r : (x->mode != 0) - (y->mode != 0);
}

/* ---- the index ---- */

void past_changes_release(struct past_changes *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->at[i].path);
	free(a->at);
	a->at = NULL;
	a->n = a->cap = 0;
}

int past_changes_stage(struct past_changes *a, struct sbx_index *index)
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

int sbx_past_stage(git_repository *repo, struct sbx_index *index, const git_oid *from,
                   const git_oid *to, struct sbx_error *err)
{
	struct past_changes a = {.repo = repo, .err = err};
	int r = past_changes_list(&a, from, to);

	if (!r) {
		r = past_changes_stage(&a, index);
		if (r)
			sbx_fail(err, -r, "out of memory");
	}
	past_changes_release(&a);
	return r;
}
