/* Comparing and merging parsed indexes, path by path, and what of one may count for another. */
#include "backends/git/index_merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/index.h"

#define MODE_AT 24 /* in the stat data of an entry */

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

/* ---- what a command's index says, and what it may say ---- */

static bool same_place(const struct sbx_index_entry *a, const struct sbx_index_entry *b)
{
	return sbx_index_compare(a, b) == 0;
}

static bool same_content(const struct sbx_index_entry *a, const struct sbx_index_entry *b)
{
	return sbx_index_mode(a) == sbx_index_mode(b) &&
	       memcmp(a->oid, b->oid, sizeof(a->oid)) == 0;
}

/* The entry of INDEX in the place of E, or NULL. AT goes along with an E that goes on. */
static const struct sbx_index_entry *beside(const struct sbx_index *index, size_t *at,
                                            const struct sbx_index_entry *e)
{
	while (*at < index->n && sbx_index_compare(&index->at[*at], e) < 0)
		++*at;
	return *at < index->n && same_place(&index->at[*at], e) ? &index->at[*at] : NULL;
}

static void clear_stat(struct sbx_index_entry *e)
{
	unsigned char mode[4];

	memcpy(mode, e->stat + MODE_AT, sizeof(mode));
	memset(e->stat, 0, sizeof(e->stat));
	memcpy(e->stat + MODE_AT, mode, sizeof(mode));
}

int sbx_index_bare(const struct sbx_index *index, const struct sbx_index *trusted,
                   struct sbx_index *ret)
{
	struct sbx_index bare = {.at = calloc(index->n + 1, sizeof(*bare.at))};
	size_t at = 0;

	if (!bare.at)
		return -ENOMEM;
	for (size_t i = 0; i < index->n; i++) {
		struct sbx_index_entry e = index->at[i];
		const struct sbx_index_entry *t = beside(trusted, &at, &e);
		const uint16_t intent = e.extended & SBX_INDEX_INTENT;

		if (intent && !(t && t->extended & SBX_INDEX_INTENT))
			continue;
		clear_stat(&e);
		e.flags &= SBX_INDEX_STAGE;
		e.extended = intent;
		if (t) {
			e.extended |= t->extended & SBX_INDEX_SKIP;
			if (same_content(t, &e))
				e.flags |= t->flags & SBX_INDEX_VALID;
		}
		bare.at[bare.n++] = e;
	}
	*ret = bare;
	return 0;
}

bool sbx_index_flags_differ(const struct sbx_index *a, const struct sbx_index *b)
{
	size_t at = 0;

	for (size_t i = 0; i < a->n; i++) {
		const struct sbx_index_entry *e = beside(b, &at, &a->at[i]);

		if (e && same_content(e, &a->at[i]) && !same_entry(e, &a->at[i]))
			return true;
	}
	return false;
}

/* Whether OWN announces the file (git add -N) and INDEX does not have it. */
static bool is_announced(const struct sbx_index_entry *own, const struct sbx_index *index,
                         size_t at)
{
	const struct sbx_index_entry *e = at < index->n ? &index->at[at] : NULL;

	return own->extended & SBX_INDEX_INTENT &&
	       !(e && !sbx_index_compare_names(e->name, e->len, own->name, own->len));
}

int sbx_index_dress(const struct sbx_index *index, const struct sbx_index *own,
                    const struct sbx_index *then, const struct sbx_index *now,
                    struct sbx_index *ret)
{
	struct sbx_index dressed = {.at = calloc(index->n + own->n + 1, sizeof(*dressed.at))};
	size_t i = 0, at_own = 0, at_then = 0, at_now = 0;

	if (!dressed.at)
		return -ENOMEM;
	while (i < index->n || at_own < own->n) {
		struct sbx_index_entry *e = &dressed.at[dressed.n];
		const struct sbx_index_entry *o = at_own < own->n ? &own->at[at_own] : NULL;
		const int order = i == index->n ? 1 : !o ? -1 : sbx_index_compare(&index->at[i], o);

		at_own += order >= 0;
		if (order > 0) {
			if (is_announced(o, index, i)) {
				*e = *o;
				dressed.n++;
			}
			continue;
		}
		*e = index->at[i++];
		dressed.n++;
		if (order == 0 && same_content(e, o)) {
			const struct sbx_index_entry *a = beside(then, &at_then, e);
			const struct sbx_index_entry *b = beside(now, &at_now, e);

			memcpy(e->stat, o->stat, sizeof(e->stat));
			if (!a || !b || same_entry(a, b) || !same_content(a, b)) {
				e->flags = o->flags;
				e->extended = o->extended;
			}
		}
	}
	*ret = dressed;
	return 0;
}
