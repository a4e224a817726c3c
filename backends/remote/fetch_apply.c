/*
 * A request from its making to its end: it is sent, its answer is taken over in the pool, and then
 * the loop thread looks at who waited for it.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/deadline.h"
#include "backends/remote/fetch.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/pool.h"

struct remote_fetch *remote_fetch_new(struct remote_tree *t, enum remote_fetch_kind kind)
{
	struct remote_fetch *f = calloc(1, sizeof(*f));

	if (f) {
		f->tree = t;
		f->kind = kind;
	}
	return f;
}

void remote_fetch_free(struct remote_fetch *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		free(f->items[i].path);
	free(f->items);
	free(f);
}

struct remote_item *remote_fetch_add(struct remote_fetch *f, uint64_t ino, const char *path)
{
	_cleanup_free_ char *copy = strdup(path);

	if (!copy || SBX_GROW(f->items, f->n, f->cap, 8))
		return NULL;
	f->text += strlen(path) + 16;
	f->items[f->n] = (struct remote_item){.ino = ino, .path = sbx_steal_ptr(&copy)};
	return &f->items[f->n++];
}

static void write_body(struct remote_fetch *f)
{
	struct remote_text *body = &f->call.body;
	size_t i;

	switch (f->kind) {
	case FETCH_NAMES:
		remote_text_printf(body, "r_list %d",
		                   f->n == 1 ? REMOTE_NAMES_MAX : REMOTE_ENTRIES_MAX);
		for (i = 0; i < f->n; i++)
			remote_text_word(body, f->items[i].path[0] ? f->items[i].path : ".");
		break;
	case FETCH_DATA:
		for (i = 0; i < f->n; i++) {
			remote_text_printf(body, "r_read %zu", i);
			remote_text_word(body, f->items[i].path);
			remote_text_printf(body, " %llu %llu\n",
			                   (unsigned long long)f->items[i].offset,
			                   (unsigned long long)f->items[i].length);
		}
		return;
	case FETCH_AHEAD:
		remote_text_printf(body, "r_gather %llu %llu", (unsigned long long)REMOTE_SMALL,
		                   (unsigned long long)REMOTE_FILL);
		for (i = 0; i < f->n; i++)
			remote_text_word(body, f->items[i].path);
		break;
	default:
		remote_tree_ask(f->tree, body);
		return;
	}
	remote_text_add(body, "\n");
}

static void ended(void *data)
{
	remote_fetch_ended(data);
}

static void apply(void *data)
{
	struct remote_fetch *f = data;

	remote_fetch_apply(f);
	remote_reply_release(&f->reply);
	if (f->altered)
		sbx_sandbox_altered(f->tree->cfg.sandbox);
	sbx_loop_post(f->tree->cfg.loop, ended, f);
}

static void leave_calls(struct remote_fetch *f)
{
	struct remote_fetch **at = &f->tree->fetches;

	pthread_mutex_lock(&f->tree->lock);
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	pthread_mutex_unlock(&f->tree->lock);
}

static void answered(struct remote_call *call, int code, struct remote_reply *reply,
                     const struct sbx_error *err)
{
	struct remote_fetch *f = call->data;

	leave_calls(f);
	f->code = code < 0 ? -code : code;
	if (code) {
		f->err = *err;
		remote_fetch_ended(f);
		return;
	}
	f->reply = *reply;
	*reply = (struct remote_reply){0};
	sbx_pool_submit(f->tree->cfg.pool, apply, f);
}

void remote_fetch_begin(struct remote_fetch *f)
{
	static const char *const ops[] = {[FETCH_LOAD] = "load",
	                                  [FETCH_NAMES] = "names",
	                                  [FETCH_DATA] = "read",
	                                  [FETCH_AHEAD] = "gather",
	                                  [FETCH_CHANGES] = "changes"};
	struct remote_tree *t = f->tree;
	const bool data = f->kind == FETCH_DATA || f->kind == FETCH_AHEAD;

	f->seen = t->cfg.seen(t->cfg.data);
	f->call.op = ops[f->kind];
	f->call.safe = true;
	f->call.deadline_ms =
	        (data ? t->times.data_ms : t->times.names_ms) / 2 + remote_bytes_ms(f->bytes);
	f->call.done = answered;
	f->call.data = f;
	write_body(f);
	pthread_mutex_lock(&t->lock);
	f->floor_ns = t->known_ns;
	f->next = t->fetches;
	t->fetches = f;
	t->under_way++;
	pthread_mutex_unlock(&t->lock);
	remote_call_begin(t->link, &f->call);
}

/* Whether PATH leads to the inode; then it is known. */
static bool load(struct remote_tree *t, const char *path, uint64_t ino)
{
	_cleanup_fd_ int fd = sbx_beneath_open(t->root, *path ? path : ".", O_PATH);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != ino)
		return false;
	return S_ISDIR(st.st_mode) ? remote_dir_load(t, path) != NULL
	                           : remote_node_load(t, fd, &st, NULL, NULL) != NULL;
}

/*
 * INO is not where it was looked for. It may have been moved, and who waits asks again; but it may
 * be gone as well, and there is an end to that.
 */
static void lose(struct remote_tree *t, uint64_t ino)
{
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, ino);
	if (!n) {
		n = remote_node_put(t, ino, S_IFREG);
		if (n)
			remote_node_gone(t, n);
	}
	if (n && ++n->lost <= 3) {
		n->replaced = true;
		n->retry_ns = sbx_now_ns();
	} else if (n) {
		remote_node_fail(t, n,
		                 remote_failure_new(ESTALE,
		                                    sbx_now_ns() + t->times.failed_ms * 1000000,
		                                    "the file is not there any more"));
	}
	pthread_mutex_unlock(&t->lock);
}

static void load_all(void *data)
{
	struct remote_fetch *f = data;
	struct remote_tree *t = f->tree;
	struct remote_hold hold;

	remote_hold_begin(&hold, t);
	for (size_t i = 0; i < f->n; i++) {
		if (!load(t, f->items[i].path, f->items[i].ino))
			lose(t, f->items[i].ino);
		remote_hold_breathe(&hold);
	}
	remote_hold_end(&hold);
	sbx_loop_post(t->cfg.loop, ended, f);
}

void remote_fetch_load(struct remote_fetch *f)
{
	remote_under_way(f->tree, 1);
	sbx_pool_submit(f->tree->cfg.pool, load_all, f);
}

/* Whether what is known of PATH is still the host's own. */
static bool is_touched(const struct remote_fetch *f, const char *path)
{
	return f->tree->cfg.touched(path, f->seen, f->tree->cfg.data);
}

/*
 * Why the directory PATH, which the machine knows of, is not listed: it keeps its names to itself
 * (EACCES), or has too many (EFBIG). It may say as well that none is there, which the host does not
 * see before its own changes below it are sent; or a newer answer has come meanwhile: then it is
 * asked again (-1).
 */
static int why_unlisted(const struct remote_fetch *f, const char *path)
{
	const struct remote_frame *frame;
	const struct remote_listed *l;
	struct remote_manifest m;
	struct sbx_error err;
	bool closed = true, cut = false;
	size_t at = 0;

	while (closed && (frame = remote_reply_next(&f->reply, &at, REMOTE_MANIFEST, NULL))) {
		if (remote_manifest_read(frame->bytes, frame->len, 0, &m, &err))
			break;
		l = remote_manifest_find(&m, path);
		closed = !l || (S_ISDIR(l->mode) && !l->complete);
		cut |= l && l->cut;
		remote_manifest_release(&m);
	}
	if (!closed || is_touched(f, path))
		return -1;
	return cut ? EFBIG : EACCES;
}

/* Whether the directories of F have too many names for one listing, which says nothing of them. */
static bool is_crowded(const struct remote_fetch *f)
{
	const struct remote_frame *frame;
	struct remote_manifest m;
	struct sbx_error err;
	bool more = false;
	size_t at = 0;

	if (f->n < 2)
		return false;
	while (!more && (frame = remote_reply_next(&f->reply, &at, REMOTE_MANIFEST, NULL))) {
		if (remote_manifest_read(frame->bytes, frame->len, 0, &m, &err))
			break;
		more = m.more;
		remote_manifest_release(&m);
	}
	return more;
}

static void apply_names(struct remote_fetch *f)
{
	struct remote_tree *t = f->tree;
	bool crowded;

	f->code = -remote_take(t, &f->reply, f->seen, f->floor_ns, REMOTE_ASKED_NOTHING,
	                       &f->altered, &f->err);
	crowded = !f->code && is_crowded(f);
	for (size_t i = 0; i < f->n && !f->code; i++) {
		struct remote_node *n;
		bool listed;

		pthread_mutex_lock(&t->lock);
		n = remote_node_find(t, f->items[i].ino);
		/* Another file may have its number by now. */
		listed = !n || !n->dir || n->dir->listed || n->gone;
		/* By halves it is found soon which of them has so many. */
		if (n && n->dir)
			n->dir->crowd = listed || !crowded ? 0 : f->n / 2;
		pthread_mutex_unlock(&t->lock);
		if (!listed && !crowded)
			f->items[i].code = why_unlisted(f, f->items[i].path);
	}
}

/* Fills item I with what came of L. Whether there was anything. */
static int fill_item(struct remote_fetch *f, struct remote_item *item, const char *word,
                     const struct remote_listed *l, uint64_t begun)
{
	const struct remote_frame *frame;
	bool any = false;
	size_t at = 0;
	int r = 0;

	while (r >= 0 && (frame = remote_reply_next(&f->reply, &at, REMOTE_DATA, word))) {
		r = remote_fill(f->tree, l, begun, frame->a, frame->bytes, frame->len);
		item->filled |= r > 0;
		any |= frame->len > 0;
	}
	if (item->filled)
		item->code = 0;
	/* Behind the end of a file that was cut meanwhile there is nothing to be read. */
	else if (S_ISREG(l->mode) && item->offset < l->size && !any && !is_touched(f, item->path))
		item->code = EACCES;
	return r < 0 ? r : 0;
}

/* Takes over what the machine says of item I. */
static int apply_item(struct remote_fetch *f, size_t i)
{
	struct remote_news w = {.tree = f->tree, .seen = f->seen};
	struct remote_item *item = &f->items[i];
	const struct remote_frame *frame;
	const struct remote_listed *l;
	struct remote_manifest m;
	char word[24];
	size_t at = 0;
	int r;

	item->code = -1;
	snprintf(word, sizeof(word), "%zu", i);
	frame = remote_reply_next(&f->reply, &at, REMOTE_MANIFEST, word);
	if (!frame)
		return sbx_fail(&f->err, EPROTO, "the machine did not say what a file is");
	w.begun = frame->a;
	w.begun_ns = remote_machine_time(f->tree, frame->a, f->floor_ns);
	r = remote_manifest_read(frame->bytes, frame->len, w.begun_ns, &m, &f->err);
	if (r)
		return r;
	r = remote_apply(&w, &m);
	f->altered |= w.altered;
	l = remote_manifest_find(&m, item->path);
	if (!r && l)
		r = fill_item(f, item, word, l, frame->a);
	remote_manifest_release(&m);
	return r;
}

/* A name of the file that is looked for. */
struct search {
	uint64_t ino;
	char *path;
};

static int find_name(const char *path, int fd, const struct stat *st, void *data)
{
	struct search *s = data;

	(void)fd;
	if (st->st_ino != s->ino)
		return 0;
	s->path = strdup(path);
	return 1;
}

/*
 * Who waits for a file knows one of its names, which the machine, or the host, may have given to
 * another one meanwhile. It is asked for by another of its names then.
 */
static void note_astray(struct remote_tree *t, const struct remote_item *item)
{
	_cleanup_fd_ int fd = sbx_beneath_open(t->root, item->path, O_PATH);
	struct search s = {.ino = item->ino};
	struct remote_node *n;
	struct stat st;
	bool absent;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == item->ino)
		return;
	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, item->ino);
	absent = n && !n->gone && n->state == REMOTE_ABSENT;
	pthread_mutex_unlock(&t->lock);
	if (absent)
		remote_walk(t, find_name, &s);
	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, item->ino);
	if (n) {
		n->astray_ns = sbx_now_ns();
		free(n->elsewhere);
		n->elsewhere = sbx_steal_ptr(&s.path);
	}
	pthread_mutex_unlock(&t->lock);
	free(s.path);
}

static void apply_data(struct remote_fetch *f)
{
	int r = 0;

	pthread_mutex_lock(&f->tree->taking);
	for (size_t i = 0; i < f->n && !r; i++) {
		r = apply_item(f, i);
		if (!r)
			note_astray(f->tree, &f->items[i]);
	}
	pthread_mutex_unlock(&f->tree->taking);
	if (r && f->err.code != -r)
		sbx_fail(&f->err, -r, "contents cannot be written to the copy: %s", strerror(-r));
	f->code = -r;
}

/* The bytes of the files one by one, as there is no tar there. */
static int fill_ahead(struct remote_fetch *f, const struct remote_manifest *m, uint64_t begun)
{
	const struct remote_frame *frame;
	size_t at = 0;
	int r = 0;

	while (r >= 0 && (frame = remote_reply_next(&f->reply, &at, REMOTE_DATA, NULL))) {
		const unsigned long i = strtoul(frame->word, NULL, 10);
		const struct remote_listed *l =
		        i < f->n ? remote_manifest_find(m, f->items[i].path) : NULL;

		if (l && l->size == frame->len)
			r = remote_fill(f->tree, l, begun, 0, frame->bytes, frame->len);
	}
	return r < 0 ? r : 0;
}

static int apply_gathered(struct remote_fetch *f, const struct remote_frame *list,
                          struct remote_news *w)
{
	const struct remote_frame *tar;
	struct remote_manifest m;
	size_t at = 0;
	int r = remote_manifest_read(list->bytes, list->len, w->begun_ns, &m, &f->err);

	if (r)
		return r;
	r = remote_apply(w, &m);
	tar = remote_reply_next(&f->reply, &at, REMOTE_TAR, NULL);
	if (!r && tar)
		r = remote_fill_tar(f->tree, &m, list->a, tar->bytes, tar->len, &f->err);
	else if (!r)
		r = fill_ahead(f, &m, list->a);
	remote_manifest_release(&m);
	return r;
}

static void apply_ahead(struct remote_fetch *f)
{
	struct remote_news w = {.tree = f->tree, .seen = f->seen};
	const struct remote_frame *list;
	size_t at = 0;

	list = remote_reply_next(&f->reply, &at, REMOTE_MANIFEST, NULL);
	if (!list)
		return;
	pthread_mutex_lock(&f->tree->taking);
	w.begun = list->a;
	w.begun_ns = remote_machine_time(f->tree, list->a, f->floor_ns);
	apply_gathered(f, list, &w);
	pthread_mutex_unlock(&f->tree->taking);
	f->altered = w.altered;
}

void remote_fetch_apply(struct remote_fetch *f)
{
	switch (f->kind) {
	case FETCH_NAMES:
		apply_names(f);
		break;
	case FETCH_DATA:
		apply_data(f);
		break;
	case FETCH_AHEAD:
		apply_ahead(f);
		break;
	case FETCH_CHANGES:
		f->code = -remote_take(f->tree, &f->reply, f->seen, f->floor_ns,
		                       REMOTE_ASKED_CHANGES, &f->altered, &f->err);
		break;
	case FETCH_LOAD:
		break;
	}
}

static const char *text_of(int code)
{
	/* R_CAP of list.sh is the other one. */
	_Static_assert(REMOTE_NAMES_MAX == 200000, "the text says so");
	return code == EFBIG ? "the directory is too large to be listed: 200000 names, in a "
	                       "listing of 48 MB, are the most"
	                     : "it cannot be read there";
}

/* Who waits for the file N goes on waiting from now on. */
static void prolong(struct remote_tree *t, const struct remote_node *n)
{
	const uint64_t due = sbx_now_ns() + t->times.data_ms * 1000000;

	for (struct sbx_want *w = t->wants; w; w = w->next)
		if (w->ino == n->ino && w->need == SBX_NEED_DATA)
			w->due_ns = due;
}

/* An item is not under way any more. The lock is held. */
static void end_item(struct remote_fetch *f, const struct remote_item *item)
{
	struct remote_tree *t = f->tree;
	struct remote_node *n = remote_node_find(t, item->ino);
	const uint64_t now = sbx_now_ns();
	const int code = f->code ? f->code : item->code;

	/* Another file may have the number by now. */
	if (!n || (f->kind == FETCH_NAMES) != (n->dir != NULL))
		return;
	n->coming = n->coming_end = 0;
	if (n->dir)
		n->dir->asked = false;
	/* What was fetched ahead was not asked for: who asks for it is told. */
	if (f->kind == FETCH_AHEAD || f->kind == FETCH_LOAD || n->gone)
		return;
	if (item->filled)
		prolong(t, n);
	if (code > 0)
		remote_node_fail(t, n,
		                 remote_failure_new(code, now + t->times.failed_ms * 1000000,
		                                    f->code ? f->err.text : text_of(code)));
	else if (code < 0)
		n->retry_ns = now + t->times.retry_ms * 1000000;
}

/* Whether something of F is to be asked for again because the host's changes are not sent. */
static bool awaits_changes(const struct remote_fetch *f)
{
	for (size_t i = 0; i < f->n && !f->code; i++)
		if (f->items[i].code < 0 && is_touched(f, f->items[i].path))
			return true;
	return false;
}

void remote_fetch_ended(struct remote_fetch *f)
{
	struct remote_tree *t = f->tree;

	if (t->cfg.awaited && awaits_changes(f))
		t->cfg.awaited(t->cfg.data);
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < f->n; i++)
		end_item(f, &f->items[i]);
	if (f->kind == FETCH_CHANGES && f->code) {
		remote_failure_unref(t->changes);
		t->changes = remote_failure_new(
		        f->code, sbx_now_ns() + t->times.failed_ms * 1000000, f->err.text);
	}
	pthread_mutex_unlock(&t->lock);
	t->loads -= f->kind == FETCH_LOAD;
	t->names_calls -= f->kind == FETCH_NAMES;
	t->data_calls -= f->kind == FETCH_DATA;
	t->ahead_calls -= f->kind == FETCH_AHEAD;
	t->changes_calls -= f->kind == FETCH_CHANGES;
	remote_fetch_free(f);
	remote_fetch_kick(t);
	remote_under_way(t, -1);
}
