/* Comparing and merging parsed indexes, path by path. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/local/git_index.h"

static bool same_entry(const struct sbx_index_entry *a, const struct sbx_index_entry *b)
{
	return a->flags == b->flags && a->extended == b->extended &&
	       sbx_index_mode(a) == sbx_index_mode(b) &&
	       memcmp(a->oid, b->oid, sizeof(a->oid)) == 0;
}

/* The entries of one path: one, or up to three of a merge that is not finished. */
struct group {
	const struct sbx_index_entry *at;
	size_t n;
};

static struct group group_at(const struct sbx_index *index, size_t i)
{
	struct group g = {.at = &index->at[i]};

	while (i + g.n < index->n &&
	       !sbx_index_compare_names(g.at->name, g.at->len, g.at[g.n].name, g.at[g.n].len))
		g.n++;
	return g;
}

static bool same_group(const struct group *a, const struct group *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (!same_entry(&a->at[i], &b->at[i]))
			return false;
	return true;
}

bool sbx_index_equal(const struct sbx_index *a, const struct sbx_index *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (sbx_index_compare(&a->at[i], &b->at[i]) != 0 ||
		    !same_entry(&a->at[i], &b->at[i]))
			return false;
	return true;
}

/* Groups of the next path in all three; an index that does not have it gives an empty one. */
static bool next_path(const struct sbx_index *const from[3], size_t at[3], struct group g[3])
{
	const struct sbx_index_entry *first = NULL;

	for (int i = 0; i < 3; i++) {
		const struct sbx_index_entry *e = &from[i]->at[at[i]];

		if (at[i] < from[i]->n &&
		    (!first ||
		     sbx_index_compare_names(e->name, e->len, first->name, first->len) < 0))
			first = e;
	}
	for (int i = 0; first && i < 3; i++) {
		const struct sbx_index_entry *e = &from[i]->at[at[i]];

		g[i] = (struct group){0};
		if (at[i] < from[i]->n &&
		    !sbx_index_compare_names(e->name, e->len, first->name, first->len))
			g[i] = group_at(from[i], at[i]);
		at[i] += g[i].n;
	}
	return first != NULL;
}

int sbx_index_merge(const struct sbx_index *base, const struct sbx_index *a,
                    const struct sbx_index *b, struct sbx_index *ret)
{
	const struct sbx_index *const from[3] = {base, a, b};
	struct sbx_index merged = {.at = calloc(a->n + b->n + 1, sizeof(*merged.at))};
	size_t at[3] = {0};
	struct group g[3];

	if (!merged.at)
		return -ENOMEM;
	while (next_path(from, at, g)) {
		const struct group *take = same_group(&g[1], &g[0]) ? &g[2] : &g[1];

		if (!same_group(&g[1], &g[0]) && !same_group(&g[2], &g[0]) &&
		    !same_group(&g[1], &g[2])) {
			free(merged.at);
			return 1;
		}
		if (take->n)
			memcpy(&merged.at[merged.n], take->at, take->n * sizeof(*take->at));
		merged.n += take->n;
	}
	*ret = merged;
	return 0;
}

void sbx_index_refresh(struct sbx_index *index, const struct sbx_index *known)
{
	size_t k = 0;

	for (size_t i = 0; i < index->n; i++) {
		while (k < known->n && sbx_index_compare(&known->at[k], &index->at[i]) < 0)
			k++;
		if (k < known->n && sbx_index_compare(&known->at[k], &index->at[i]) == 0 &&
		    same_entry(&known->at[k], &index->at[i]))
			memcpy(index->at[i].stat, known->at[k].stat, sizeof(index->at[i].stat));
	}
}
