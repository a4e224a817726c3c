/*
 * What a tree of git does not tell of files, in a tree of its own: their bytes and all of their
 * permissions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/git_impl.h"
#include "backends/local/history/history_impl.h"
#include "sandboxfs/grow.h"

struct reading {
	struct sbx_past_exacts *list;
	int r;
};

static int add(const char *dir, const git_tree_entry *entry, void *data)
{
	struct reading *reading = data;
	struct sbx_past_exacts *list = reading->list;

	if (git_tree_entry_type(entry) != GIT_OBJECT_BLOB)
		return 0;
	if (SBX_GROW(list->at, list->n, list->cap, 64))
		return reading->r = -ENOMEM;
	list->at[list->n] =
	        (struct sbx_past_exact){.path = sbx_format("%s%s", dir, git_tree_entry_name(entry)),
	                                .mode = (uint32_t)git_tree_entry_filemode_raw(entry),
	                                .oid = *git_tree_entry_id(entry)};
	return list->at[list->n++].path ? 0 : (reading->r = -ENOMEM);
}

static int compare(const void *a, const void *b)
{
	const struct sbx_past_exact *x = a, *y = b;

	return strcmp(x->path, y->path);
}

int past_exact_read(git_repository *all, const git_oid *tree, struct sbx_past_exacts *ret,
                    struct sbx_error *err)
{
	_cleanup_git_(tree) git_tree *top = NULL;
	struct reading reading = {.list = ret};
	int r = git_tree_lookup(&top, all, tree);

	if (!r)
		r = git_tree_walk(top, GIT_TREEWALK_PRE, add, &reading);
	if (reading.r)
		return sbx_fail(err, ENOMEM, "out of memory");
	if (r)
		return sbx_git_fail(err, r, "a mark cannot be read");
	if (ret->n)
		qsort(ret->at, ret->n, sizeof(*ret->at), compare);
	return 0;
}

const struct sbx_past_exact *past_exact_find(const struct sbx_past_exacts *list, const char *path)
{
	const struct sbx_past_exact key = {.path = (char *)(uintptr_t)path};

	return list && list->n ? bsearch(&key, list->at, list->n, sizeof(*list->at), compare)
	                       : NULL;
}

void past_exact_release(struct sbx_past_exacts *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->at[i].path);
	free(list->at);
	*list = (struct sbx_past_exacts){0};
}
