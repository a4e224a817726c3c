/* Directories sort in an index as they do in a tree, whose names end with a slash to that end: one
 * pass goes over both. */
#include "backends/git/index_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"

#define TREE_MODE 040000

/* Of those from LO to before HI the first that does not come before NAME. */
static size_t first_at(const struct sbx_index *index, size_t lo, size_t hi, const char *name,
                       size_t len)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct sbx_index_entry *e = &index->at[mid];

		if (sbx_index_compare_names(e->name, e->len, name, len) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

size_t sbx_index_at(const struct sbx_index *index, const char *name, size_t len)
{
	return first_at(index, 0, index->n, name, len);
}

const struct sbx_index_entry *sbx_index_find(const struct sbx_index *index, const char *name,
                                             size_t len)
{
	size_t at = sbx_index_at(index, name, len);
	const struct sbx_index_entry *e = &index->at[at];

	return at < index->n && e->len == len && memcmp(e->name, name, len) == 0 ? e : NULL;
}

static bool is_below(const struct sbx_index_entry *e, const char *dir, size_t len)
{
	return e->len > len && e->name[len] == '/' && memcmp(e->name, dir, len) == 0;
}

void sbx_index_below(const struct sbx_index *index, const char *dir, size_t len, size_t *lo,
                     size_t *hi)
{
	size_t at = sbx_index_at(index, dir, len);

	/* Between "a" and "a/b" others may stand: "a-b". */
	while (at < index->n && index->at[at].len >= len &&
	       memcmp(index->at[at].name, dir, len) == 0 &&
	       (index->at[at].len == len || (unsigned char)index->at[at].name[len] < '/'))
		at++;
	*lo = at;
	while (at < index->n && is_below(&index->at[at], dir, len))
		at++;
	*hi = at;
}

bool sbx_index_same_content(const struct sbx_index_entry *a, const struct sbx_index_entry *b)
{
	return sbx_index_mode(a) == sbx_index_mode(b) &&
	       memcmp(a->oid, b->oid, sizeof(a->oid)) == 0;
}

/* ---- to trees ---- */

struct building {
	const struct sbx_index *index, *base;
	git_odb *odb;
	struct sbx_object_writer *beside; /* or NULL */
};

/* A part of both, of one directory, whose name is the first PREFIX bytes of each entry. */
struct range {
	size_t lo, hi, base_lo, base_hi;
	size_t prefix;
};

struct text {
	char *bytes;
	size_t len, cap;
};

static int append(struct text *t, uint32_t mode, const char *name, size_t len,
                  const unsigned char *oid)
{
	size_t need = t->len + len + GIT_OID_RAWSZ + 16;

	if (need > t->cap) {
		char *bytes = realloc(t->bytes, 2 * need);

		if (!bytes)
			return GIT_ERROR;
		t->bytes = bytes;
		t->cap = 2 * need;
	}
	t->len += (size_t)snprintf(t->bytes + t->len, t->cap - t->len, "%o ", mode);
	memcpy(t->bytes + t->len, name, len);
	t->len += len;
	t->bytes[t->len++] = '\0';
	memcpy(t->bytes + t->len, oid, GIT_OID_RAWSZ);
	t->len += GIT_OID_RAWSZ;
	return 0;
}

static bool same_range(const struct building *b, const struct range *r)
{
	if (r->hi - r->lo != r->base_hi - r->base_lo)
		return false;
	for (size_t i = 0; i < r->hi - r->lo; i++) {
		const struct sbx_index_entry *x = &b->index->at[r->lo + i],
		                             *y = &b->base->at[r->base_lo + i];

		/* The directory's name is the same. */
		if (x->len != y->len || !sbx_index_same_content(x, y) ||
		    memcmp(x->name + r->prefix, y->name + r->prefix, x->len - r->prefix) != 0)
			return false;
	}
	return true;
}

/* Where what is in DIR, from LO on, ends. */
static size_t end_of(const struct sbx_index *index, size_t lo, size_t hi, const char *dir,
                     size_t len)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (is_below(&index->at[mid], dir, len))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The tree of the name in the tree whose bytes these are; NULL: none. They were written by git. */
static const unsigned char *subtree(const char *data, size_t size, const char *name, size_t len)
{
	const char *end = data + size;

	while (data < end) {
		const char *space = memchr(data, ' ', (size_t)(end - data));
		const char *nul = space ? memchr(space, '\0', (size_t)(end - space)) : NULL;

		if (!nul || end - nul <= GIT_OID_RAWSZ)
			return NULL;
		if ((size_t)(nul - space - 1) == len && memcmp(space + 1, name, len) == 0)
			return *data == '4' || *data == '0' ? (const unsigned char *)nul + 1 : NULL;
		data = nul + 1 + GIT_OID_RAWSZ;
	}
	return NULL;
}

static int build(const struct building *b, const struct range *range, const git_oid *base_tree,
                 git_oid *ret);

/* The directory that begins at *AT; both positions move behind it. */
static int build_sub(const struct building *b, const struct range *range, size_t *at,
                     size_t *base_at, git_odb_object *base, size_t len, git_oid *ret)
{
	const char *dir = b->index->at[*at].name;
	struct range sub = {.lo = *at, .prefix = range->prefix + len + 1};
	const unsigned char *found;
	git_oid oid;

	sub.hi = end_of(b->index, sub.lo, range->hi, dir, sub.prefix - 1);
	sub.base_lo = first_at(b->base, *base_at, range->base_hi, dir, sub.prefix);
	sub.base_hi = end_of(b->base, sub.base_lo, range->base_hi, dir, sub.prefix - 1);
	*at = sub.hi;
	*base_at = sub.base_hi;
	found = base ? subtree(git_odb_object_data(base), git_odb_object_size(base),
	                       dir + range->prefix, len)
	             : NULL;
	if (!found)
		return build(b, &sub, NULL, ret);
	git_oid_fromraw(&oid, found);
	return build(b, &sub, &oid, ret);
}

static int build_entries(const struct building *b, const struct range *range, git_odb_object *base,
                         struct text *t)
{
	size_t base_at = range->base_lo;
	int r = 0;

	for (size_t i = range->lo; i < range->hi && !r;) {
		const struct sbx_index_entry *e = &b->index->at[i];
		const char *name = e->name + range->prefix;
		const char *slash = memchr(name, '/', e->len - range->prefix);
		size_t len = slash ? (size_t)(slash - name) : e->len - range->prefix;
		git_oid oid;

		if (slash) {
			r = build_sub(b, range, &i, &base_at, base, len, &oid);
			if (!r)
				r = append(t, TREE_MODE, name, len, oid.id);
		} else {
			r = append(t, sbx_index_mode(e), name, len, e->oid);
			i++;
		}
	}
	return r;
}

static int write_bytes(const struct building *b, const struct text *t, git_oid *ret)
{
	const char *bytes = t->bytes ? t->bytes : "";

	if (b->beside)
		return sbx_object_writer_put(b->beside, GIT_OBJECT_TREE, bytes, t->len, "the tree",
		                             ret);
	return git_odb_write(ret, b->odb, bytes, t->len, GIT_OBJECT_TREE);
}

static int build(const struct building *b, const struct range *range, const git_oid *base_tree,
                 git_oid *ret)
{
	git_odb_object *base = NULL;
	struct text t = {0};
	int r = 0;

	if (base_tree && same_range(b, range)) {
		*ret = *base_tree;
		return 0;
	}
	if (base_tree)
		r = git_odb_read(&base, b->odb, base_tree);
	if (!r)
		r = build_entries(b, range, base, &t);
	git_odb_object_free(base);
	if (!r)
		r = write_bytes(b, &t, ret);
	free(t.bytes);
	return r;
}

int sbx_index_write_tree(const struct sbx_index *index, git_odb *odb,
                         struct sbx_object_writer *beside, const struct sbx_index *base,
                         const git_oid *base_tree, git_oid *ret)
{
	static const struct sbx_index none;
	const struct building b = {.index = index,
	                           .base = base && base_tree ? base : &none,
	                           .odb = odb,
	                           .beside = beside};
	const struct range all = {.hi = index->n, .base_hi = b.base->n};

	int r;

	sbx_git_durable_begin();
	r = build(&b, &all, b.base == &none ? NULL : base_tree, ret);
	return sbx_git_durable_end() < 0 && !r ? GIT_ERROR : r;
}
