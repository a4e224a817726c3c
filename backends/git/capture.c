/*
 * The merge of a capture: the files found in the tree, those that the lower layer still shows,
 * and the entries of the index. All three lists are sorted, so one pass is enough.
 */
#include "backends/git/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/capture_impl.h"
#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/index_tree.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"

struct merging {
	struct capture *c;
	struct sbx_index *out;
	const struct sbx_index *lower, *known;
	size_t at_lower, at_known;
};

static int compare_items(const void *a, const void *b)
{
	const struct capture_item *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static bool is_named(const struct sbx_index *index, size_t at, const char *name, size_t len)
{
	return at < index->n && index->at[at].len == len &&
	       memcmp(index->at[at].name, name, len) == 0;
}

static void skip(const struct sbx_index *index, size_t *at, const char *name, size_t len)
{
	while (is_named(index, *at, name, len))
		++*at;
}

static void take(struct merging *m, const struct sbx_index_entry *e)
{
	m->out->at[m->out->n] = *e;
	m->out->at[m->out->n++].flags &= (uint16_t)~CAPTURE_STAGES;
}

/* A submodule stays as long as its directory does. */
static bool is_directory(const struct capture *c, const struct sbx_index_entry *e)
{
	_cleanup_free_ char *path = strndup(e->name, e->len);
	_cleanup_fd_ int fd =
	        path ? sbx_beneath_open(c->options->root, path, O_PATH | O_DIRECTORY) : -1;

	return fd >= 0;
}

/* Takes a file that the lower layer shows and the index does not know. */
static int take_untracked(struct merging *m, const struct sbx_index_entry *lower)
{
	struct capture *c = m->c;
	_cleanup_free_ char *path = strndup(lower->name, lower->len);
	bool ignored = false;
	int r = path ? 0 : -ENOMEM;

	if (!r && !c->options->ignored)
		r = capture_rules_ignore(&c->rules, path, &ignored);
	if (!r && !ignored)
		take(m, lower);
	return r;
}

static int decide(struct merging *m, const struct capture_item *item,
                  const struct sbx_index_entry *lower, const struct sbx_index_entry *known)
{
	if (item) {
		if (!item->gone)
			take(m, &item->entry);
		else if (known && !(known->flags & CAPTURE_STAGES))
			take(m, known);
		return 0;
	}
	if (lower) {
		if (!known)
			return take_untracked(m, lower);
		take(m, sbx_index_same_content(known, lower) && !(known->flags & CAPTURE_STAGES) &&
		                        !(known->extended & CAPTURE_INTENT_FLAG)
		                ? known
		                : lower);
	} else if (known && (known->extended & CAPTURE_SKIP_FLAG)) {
		take(m, known);
	} else if (known && sbx_index_mode(known) == CAPTURE_GITLINK && is_directory(m->c, known)) {
		take(m, known);
	}
	return 0;
}

static const struct sbx_index_entry *before(const struct sbx_index *index, size_t at, size_t end)
{
	return at < end ? &index->at[at] : NULL;
}

/* Takes the entries of lower and index up to there, where nothing was found. */
static int merge_known(struct merging *m, size_t lower_end, size_t known_end)
{
	int r = 0;

	while (!r && (m->at_lower < lower_end || m->at_known < known_end)) {
		const struct sbx_index_entry *l = before(m->lower, m->at_lower, lower_end);
		const struct sbx_index_entry *k = before(m->known, m->at_known, known_end);
		int order = !l   ? 1
		            : !k ? -1
		                 : sbx_index_compare_names(l->name, l->len, k->name, k->len);

		r = decide(m, NULL, order <= 0 && !m->c->hidden[m->at_lower] ? l : NULL,
		           order >= 0 ? k : NULL);
		m->at_lower += order <= 0;
		if (order >= 0)
			skip(m->known, &m->at_known, k->name, k->len);
	}
	return r;
}

static int merge_item(struct merging *m, const struct capture_item *item)
{
	size_t len = strlen(item->path);
	int r = merge_known(m, sbx_index_at(m->lower, item->path, len),
	                    sbx_index_at(m->known, item->path, len));

	if (!r)
		r = decide(m, item, NULL,
		           is_named(m->known, m->at_known, item->path, len)
		                   ? &m->known->at[m->at_known]
		                   : NULL);
	skip(m->lower, &m->at_lower, item->path, len);
	skip(m->known, &m->at_known, item->path, len);
	return r;
}

static int merge(struct merging *m)
{
	const struct capture *c = m->c;
	int r = 0;

	for (size_t i = 0; i < c->n && !r; i++)
		r = merge_item(m, &c->items[i]);
	return r ? r : merge_known(m, m->lower->n, m->known->n);
}

/* Changed about while the walk went on, something may have been met as a file and as a directory:
 * one has to go. */
static bool is_below_file(const struct sbx_index *index, size_t at)
{
	const struct sbx_index_entry *e = &index->at[at];
	const char *slash = e->name + (at ? sbx_index_shared(e - 1, e) : 0);
	const char *end = e->name + e->len;

	for (; (slash = memchr(slash, '/', (size_t)(end - slash))); slash++)
		if (sbx_index_find(index, e->name, (size_t)(slash - e->name)))
			return true;
	return false;
}

static int drop_below_files(struct sbx_index *index)
{
	bool *drop = calloc(index->n + 1, sizeof(*drop));
	size_t kept = 0;
	bool any = false;

	if (!drop)
		return -ENOMEM;
	/*
	 * An entry below the same path as the one before it, which is a file, goes or stays with
	 * that.
	 */
	for (size_t i = 0; i < index->n; i++) {
		drop[i] = is_below_file(index, i);
		any |= drop[i];
	}
	for (size_t i = 0; any && i < index->n; i++) {
		const struct sbx_index_entry *e = &index->at[i];

		for (size_t at = 0; at < e->len && !drop[i]; at++)
			drop[i] = e->name[at] == '/' && sbx_index_find(index, e->name, at);
	}
	for (size_t i = 0; any && i < index->n; i++)
		if (!drop[i])
			index->at[kept++] = index->at[i];
	if (any)
		index->n = kept;
	free(drop);
	return 0;
}

/*
 * A directory with files in it is no submodule that is not checked out, whatever an index calls it:
 * nobody looks into such.
 */
static void drop_full_submodules(struct sbx_index *index)
{
	size_t kept = 0, lo, hi;

	for (size_t i = 0; i < index->n; i++) {
		const struct sbx_index_entry e = index->at[i];

		lo = hi = 0;
		/* What is below comes later. */
		if (sbx_index_mode(&e) == CAPTURE_GITLINK) {
			const struct sbx_index rest = {.at = index->at + i, .n = index->n - i};

			sbx_index_below(&rest, e.name, e.len, &lo, &hi);
		}
		if (lo == hi)
			index->at[kept++] = e;
	}
	index->n = kept;
}

/* Has the index own the names of its entries. */
static int own_names(struct sbx_index *index)
{
	size_t size = 0;
	char *at;

	for (size_t i = 0; i < index->n; i++)
		size += index->at[i].len;
	index->names = at = malloc(size + 1);
	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < index->n; i++) {
		memcpy(at, index->at[i].name, index->at[i].len);
		index->at[i].name = at;
		at += index->at[i].len;
	}
	return 0;
}

static int list_found(const struct capture *c)
{
	struct sbx_captured *ret = c->ret;

	ret->found.at = calloc(c->n + 1, sizeof(*ret->found.at));
	if (!ret->found.at)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		const struct sbx_index_entry *e =
		        sbx_index_find(&ret->index, c->items[i].path, strlen(c->items[i].path));

		/* What was seen before is not mapped for writing: its time would be another. */
		if (e && !c->items[i].gone && (c->items[i].believed || !c->options->busy))
			ret->found.at[ret->found.n++] = *e;
	}
	return 0;
}

static int list_empty(struct capture *c)
{
	int r = 0;

	for (size_t i = 0; i < c->dirs.n && !r; i++) {
		const char *dir = c->dirs.items[i];
		size_t lo, hi;

		sbx_index_below(&c->ret->index, dir, strlen(dir), &lo, &hi);
		/* It may be a submodule. */
		if (lo == hi && !sbx_index_find(&c->ret->index, dir, strlen(dir))) {
			c->ret->inexact = true;
			r = sbx_strings_add(&c->ret->left_out, dir);
		}
	}
	return r;
}

static int put_together(struct capture *c)
{
	static const struct sbx_index none;
	const struct sbx_capture_options *w = c->options;
	struct merging m = {.c = c,
	                    .out = &c->ret->index,
	                    .lower = w->lower ? w->lower : &none,
	                    .known = w->known};
	int r;

	if (c->n)
		qsort(c->items, c->n, sizeof(*c->items), compare_items);
	m.out->at = calloc(c->n + m.lower->n + m.known->n + 1, sizeof(*m.out->at));
	if (!m.out->at)
		return -ENOMEM;
	r = merge(&m);
	drop_full_submodules(m.out);
	if (!r)
		r = drop_below_files(m.out);
	if (!r)
		r = own_names(m.out);
	if (!r)
		r = list_found(c);
	return r ? r : list_empty(c);
}

/*
 * By the whole of their permissions, which a tree of git can hold though git does not write them.
 */
static int write_exact(struct capture *c)
{
	struct sbx_index index = {.at = calloc(c->n + 1, sizeof(*index.at))};
	int r;

	if (!index.at)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		const struct capture_item *item = &c->items[i];
		const uint32_t mode = S_IFREG | (item->st.st_mode & 01777);

		if (!item->exact || item->gone ||
		    !sbx_index_find(&c->ret->index, item->path, item->entry.len))
			continue;
		index.at[index.n] = item->entry;
		memcpy(index.at[index.n].oid, item->bytes, sizeof(item->bytes));
		for (int k = 0; k < 4; k++)
			index.at[index.n].stat[24 + k] = (unsigned char)(mode >> (24 - 8 * k));
		index.n++;
	}
	r = index.n ? sbx_index_write_tree(&index, c->odb, c->writer, NULL, NULL, &c->ret->exact)
	            : 0;
	c->ret->has_exact = index.n > 0;
	free(index.at);
	return r ? sbx_git_fail(c->err, r, "cannot record the tree") : 0;
}

static int write_trees(struct capture *c)
{
	const struct sbx_capture_options *w = c->options;
	int r = sbx_index_write_tree(&c->ret->index, c->odb, c->writer, w->lower, w->lower_tree,
	                             &c->ret->tree);

	return r ? sbx_git_fail(c->err, r, "cannot record the tree") : 0;
}

static int capture(struct capture *c)
{
	const struct sbx_capture_options *w = c->options;
	int r = capture_rules_open(&c->rules, w->repo, w->root);

	if (!r && w->lower && !(c->hidden = calloc(w->lower->n + 1, sizeof(*c->hidden))))
		r = -ENOMEM;
	if (!r && git_repository_odb(&c->odb, w->repo))
		r = sbx_git_fail(c->err, GIT_ERROR, "cannot open the objects");
	if (!r)
		r = sbx_object_writer_open(c->odb, w->common, &c->writer);
	if (!r)
		r = capture_walk(c);
	if (!r)
		r = capture_hash(c);
	if (!r)
		r = put_together(c);
	if (!r)
		r = write_trees(c);
	if (!r && w->exact)
		r = write_exact(c);
	return r ? r : sbx_object_writer_wait(c->writer, c->err);
}

int sbx_capture(const struct sbx_capture_options *options, struct sbx_captured *ret,
                struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	struct capture c = {.options = options, .ret = ret, .err = &own};
	int r, written;

	*ret = (struct sbx_captured){0};
	clock_gettime(CLOCK_REALTIME_COARSE, &ret->begun);
	sbx_git_durable_begin();
	r = capture(&c);
	written = sbx_git_durable_end();
	r = r ? r : written;
	capture_tighten(&c);
	if (r && !own.code)
		sbx_fail(&own, -r, "cannot record the tree: %s", strerror(-r));
	if (r && err)
		*err = own;
	for (size_t i = 0; i < c.n; i++)
		free(c.items[i].path);
	free(c.items);
	free(c.hidden);
	sbx_strings_release(&c.dirs);
	capture_rules_close(&c.rules);
	git_index_free(c.attributes);
	sbx_object_writer_close(c.writer);
	git_odb_free(c.odb);
	if (r)
		sbx_captured_release(ret);
	return r;
}

void sbx_captured_release(struct sbx_captured *captured)
{
	sbx_index_release(&captured->index);
	free(captured->found.at);
	sbx_strings_release(&captured->left_out);
	sbx_strings_release(&captured->nested);
	*captured = (struct sbx_captured){0};
}
