/*
 * Who waits for what is missing, and what is asked for them. The loop thread looks at all who wait
 * whenever something has happened, and asks for what nobody has asked for yet: what several want
 * goes in one request. Answers are taken over in the pool (fetch_apply.c).
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/deadline.h"
#include "backends/remote/fetch.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define CALLS_MOST  2 /* of a kind at once */
#define ITEMS_MOST  200
#define TEXT_MOST   ((size_t)32 << 10) /* of the paths in a request */
#define CHUNKS_MOST 8                  /* of a file in a request */
#define AHEAD       4                  /* chunks of a file that is read from front to back */

/* What is to be asked for, as those who wait are looked through. */
struct plan {
	struct remote_fetch *names, *data, *loads;
	struct remote_ahead *ahead;
	bool changes;
	uint64_t next_ns;
};

static void pump(struct remote_tree *t);

static uint64_t period_ns(const struct remote_tree *t, const struct sbx_want *w)
{
	return (w->need == SBX_NEED_DATA ? t->times.data_ms : t->times.names_ms) * 1000000;
}

static void run_pump(void *data)
{
	struct remote_tree *t = data;

	pthread_mutex_lock(&t->lock);
	t->kicked = false;
	pthread_mutex_unlock(&t->lock);
	pump(t);
	remote_evict(t, false);
	remote_under_way(t, -1);
}

void remote_fetch_kick(struct remote_tree *t)
{
	bool post;

	pthread_mutex_lock(&t->lock);
	post = !t->kicked;
	t->kicked = true;
	t->under_way += post;
	pthread_mutex_unlock(&t->lock);
	if (post)
		sbx_loop_post(t->cfg.loop, run_pump, t);
}

static void on_timer(struct sbx_timer *timer)
{
	pump(timer->data);
}

void remote_fetch_init(struct remote_tree *t)
{
	t->timer = (struct sbx_timer){.fn = on_timer, .data = t};
}

void remote_tree_want(struct remote_tree *t, struct sbx_want *w)
{
	w->next = NULL;
	w->part = NULL;
	w->due_ns = sbx_now_ns() + period_ns(t, w);
	pthread_mutex_lock(&t->lock);
	*t->incoming_end = w;
	t->incoming_end = &w->next;
	pthread_mutex_unlock(&t->lock);
	remote_fetch_kick(t);
}

/* Takes W out of a list; whether it was there. */
static bool take_out(struct sbx_want **list, struct sbx_want ***end, struct sbx_want *w)
{
	struct sbx_want **at = list;

	while (*at && *at != w)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = w->next;
	if (!*at)
		*end = at;
	w->next = NULL;
	return true;
}

static void unwanted(void *data)
{
	struct sbx_want *w = data;
	struct sbx_error err;

	sbx_fail(&err, EINTR, "interrupted");
	w->done(w, EINTR, &err);
}

void remote_tree_unwant(struct remote_tree *t, struct sbx_want *w)
{
	bool was;

	pthread_mutex_lock(&t->lock);
	was = take_out(&t->incoming, &t->incoming_end, w) || take_out(&t->wants, &t->wants_end, w);
	pthread_mutex_unlock(&t->lock);
	if (was)
		sbx_loop_post(t->cfg.loop, unwanted, w);
}

void remote_tree_connect(struct remote_tree *t, struct remote_link *link, const char *workdir,
                         bool refresh)
{
	char *copy = strdup(workdir);

	pthread_mutex_lock(&t->lock);
	assert(!t->link);
	t->workdir = copy;
	t->link = link;
	t->refreshing = refresh;
	pthread_mutex_unlock(&t->lock);
	remote_evict(t, true);
	remote_fetch_kick(t);
}

void remote_tree_fail(struct remote_tree *t, int code, const char *text)
{
	struct remote_failure *f = remote_failure_new(code, UINT64_MAX, text);

	pthread_mutex_lock(&t->lock);
	if (f) {
		remote_failure_unref(t->failed);
		t->failed = f;
	}
	for (struct remote_fetch *i = t->fetches; i; i = i->next)
		remote_call_cancel(&i->call);
	pthread_mutex_unlock(&t->lock);
	pump(t);
}

/* One more thing to be asked for; NULL: no memory. */
static struct remote_item *add_item(struct remote_fetch **f, struct remote_tree *t,
                                    enum remote_fetch_kind kind, uint64_t ino, const char *path)
{
	if (!*f)
		*f = remote_fetch_new(t, kind);
	return *f ? remote_fetch_add(*f, ino, path) : NULL;
}

static bool has_room(const struct remote_fetch *f)
{
	return !f || (f->n < ITEMS_MOST && f->text < TEXT_MOST);
}

static void later(struct plan *p, uint64_t ns)
{
	if (ns < p->next_ns)
		p->next_ns = ns;
}

/* Whether a directory that is listed with CROWD at most fits in with those of F. */
static bool has_room_among(const struct remote_fetch *f, size_t crowd)
{
	return has_room(f) && (!f || ((!crowd || f->n < crowd) && (!f->crowd || f->n < f->crowd)));
}

static void plan_names(struct remote_tree *t, struct plan *p, const struct sbx_want *w,
                       struct remote_node *n)
{
	const size_t crowd = n->dir->crowd;

	if (t->names_calls >= CALLS_MOST || !has_room_among(p->names, crowd))
		return;
	n->dir->asked = add_item(&p->names, t, FETCH_NAMES, w->ino, w->path) != NULL;
	if (n->dir->asked && crowd && (!p->names->crowd || crowd < p->names->crowd))
		p->names->crowd = crowd;
}

static bool has_chunk(const struct remote_node *n, uint64_t i)
{
	return n->state == REMOTE_PART && (n->chunks[i / 64] >> (i % 64) & 1);
}

/* The chunks of N that W needs first. */
static void choose_chunks(const struct remote_node *n, const struct sbx_want *w, uint64_t *from,
                          uint64_t *end)
{
	const uint64_t size = n->version.size, chunks = remote_chunks(size);
	uint64_t last = chunks;

	*from = 0;
	*end = chunks;
	if (size <= REMOTE_WHOLE) {
		/* Of what a crash has left half made not even the size is known. */
		*end = size ? chunks : CHUNKS_MOST;
		return;
	}
	*from = w->off / REMOTE_CHUNK;
	while (*from < chunks && has_chunk(n, *from))
		++*from;
	if (w->len && w->len < size - w->off)
		last = remote_chunks(w->off + w->len);
	if (*from && has_chunk(n, *from - 1) && last < *from + AHEAD)
		last = *from + AHEAD;
	for (*end = *from + 1; *end < last && *end < chunks && *end < *from + CHUNKS_MOST; ++*end)
		if (has_chunk(n, *end))
			break;
}

/* What lies beside the file of W is likely to be wanted next. */
static void plan_ahead(struct remote_tree *t, struct plan *p, const struct sbx_want *w)
{
	struct remote_node *dir;
	struct remote_ahead *a;

	if (p->ahead || t->ahead_calls)
		return;
	a = remote_ahead_new(t, w->path);
	dir = a ? remote_dir_find(t, a->dir) : NULL;
	if (!dir) {
		remote_ahead_free(a);
		return;
	}
	p->ahead = a;
}

static void plan_data(struct remote_tree *t, struct plan *p, const struct sbx_want *w,
                      struct remote_node *n)
{
	uint64_t from, end, bytes;
	struct remote_item *item;

	if (t->data_calls >= CALLS_MOST || !has_room(p->data))
		return;
	choose_chunks(n, w, &from, &end);
	bytes = (end - from) * REMOTE_CHUNK;
	if (n->version.size && bytes > n->version.size)
		bytes = n->version.size;
	if (p->data && p->data->bytes + bytes > REMOTE_WHOLE)
		return;
	item = add_item(&p->data, t, FETCH_DATA, w->ino, n->elsewhere ? n->elsewhere : w->path);
	if (!item)
		return;
	p->data->bytes += bytes;
	item->offset = from * REMOTE_CHUNK;
	item->length = n->version.size ? bytes : end * REMOTE_CHUNK;
	n->coming = from;
	n->coming_end = end;
	if (n->version.size <= REMOTE_SMALL)
		plan_ahead(t, p, w);
}

/* W has ended by F, which may be NULL: all is well. */
static bool end_by(struct sbx_want *w, struct remote_failure *f)
{
	w->part = f ? remote_failure_ref(f) : NULL;
	return true;
}

static bool end_with(struct sbx_want *w, int code, const char *text)
{
	w->part = remote_failure_new(code, 0, text);
	return true;
}

/* What its number is not known of, or whose name is gone: another name may lead to it, or another
 * file may have the name. */
static bool judge_lost(struct remote_tree *t, struct plan *p, struct sbx_want *w,
                       const struct remote_node *n)
{
	if (n && n->replaced && w->due_ns - period_ns(t, w) <= n->retry_ns)
		return end_by(w, NULL);
	if (!t->loads && has_room(p->loads))
		add_item(&p->loads, t, FETCH_LOAD, w->ino, w->path);
	return false;
}

/* When W has waited long enough for N, which may be NULL. A request may be sent twice until then.
 */
static uint64_t end_of_wait(const struct sbx_want *w, const struct remote_node *n)
{
	uint64_t bytes = 0;

	if (n && w->need == SBX_NEED_DATA)
		bytes = n->version.size < REMOTE_WHOLE ? n->version.size : REMOTE_WHOLE;
	return w->due_ns + 2 * remote_bytes_ms(bytes) * 1000000;
}

/* Whether W has ended, and w->part says how; or else what is to be done for it. */
static bool judge(struct remote_tree *t, struct plan *p, struct sbx_want *w, uint64_t now)
{
	struct remote_node *n = remote_node_find(t, w->ino);
	const bool stale = w->need == SBX_NEED_ATTR ||
	                   (w->need == SBX_NEED_NAMES && n && n->dir && n->dir->listed);

	if (remote_is_here(t, n, w->need, w->off, w->len))
		return end_by(w, NULL);
	if (t->failed)
		return end_by(w, t->failed);
	/* While the machine is being made nothing has been asked for yet. */
	if (!t->link || t->refreshing)
		w->due_ns = now + period_ns(t, w);
	if (now >= end_of_wait(w, n))
		return end_with(w, ETIMEDOUT, "the sandbox's provider did not answer in time");
	later(p, end_of_wait(w, n));
	if ((stale && !t->link) || t->refreshing)
		return false;
	if (stale) {
		if (t->changes && t->changes->until_ns > now)
			return end_by(w, t->changes);
		p->changes = true;
		return false;
	}
	if (n && n->failure && n->failure->until_ns > now)
		return end_by(w, n->failure);
	if (!n || n->gone)
		return judge_lost(t, p, w, n);
	/* By another of its names it may be found. */
	if (w->due_ns - period_ns(t, w) <= n->astray_ns)
		return end_by(w, NULL);
	if (!t->link)
		return false;
	if (w->need == SBX_NEED_NAMES && !n->dir)
		return end_with(w, ENOTDIR, "it is no directory");
	if (n->version.size > REMOTE_LARGE)
		return end_with(w, EFBIG, "the file is too large to be fetched");
	if (n->retry_ns > now)
		later(p, n->retry_ns);
	else if (n->dir && !n->dir->asked)
		plan_names(t, p, w, n);
	else if (!n->dir && n->coming == n->coming_end)
		plan_data(t, p, w, n);
	return false;
}

/* Moves those who have ended to *ENDED, and plans for the others. */
static void look_through(struct remote_tree *t, struct plan *p, struct sbx_want **ended)
{
	struct sbx_want **at, *w;
	const uint64_t now = sbx_now_ns();

	*t->wants_end = t->incoming;
	if (t->incoming)
		t->wants_end = t->incoming_end;
	t->incoming = NULL;
	t->incoming_end = &t->incoming;
	for (at = &t->wants; (w = *at);) {
		if (!judge(t, p, w, now)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = NULL;
		*ended = w;
		ended = &w->next;
	}
	t->wants_end = at;
}

static void start(struct remote_tree *t, struct plan *p)
{
	if (p->loads) {
		t->loads++;
		remote_fetch_load(p->loads);
	}
	if (p->names) {
		t->names_calls++;
		remote_fetch_begin(p->names);
	}
	if (p->data) {
		t->data_calls++;
		remote_fetch_begin(p->data);
	}
	if (p->ahead) {
		t->ahead_calls++;
		remote_ahead_begin(p->ahead);
	}
	if (p->changes && !t->changes_calls) {
		struct remote_fetch *f = remote_fetch_new(t, FETCH_CHANGES);

		if (f) {
			t->changes_calls++;
			remote_fetch_begin(f);
		}
	}
}

static void tell(struct sbx_want *w)
{
	struct remote_failure *f = w->part;
	struct sbx_error err = f ? f->err : SBX_ERROR_INIT;

	w->done(w, err.code, &err);
}

static void pump(struct remote_tree *t)
{
	struct sbx_want *ended = NULL, *next;
	struct plan p = {.next_ns = UINT64_MAX};
	const uint64_t now = sbx_now_ns();

	pthread_mutex_lock(&t->lock);
	look_through(t, &p, &ended);
	pthread_mutex_unlock(&t->lock);
	if (!t->wants)
		sbx_loop_timer_cancel(t->cfg.loop, &t->timer);
	else if (p.next_ns != UINT64_MAX)
		sbx_loop_timer_set(t->cfg.loop, &t->timer,
		                   p.next_ns > now ? (p.next_ns - now) / 1000000 + 1 : 0);
	start(t, &p);
	for (; ended; ended = next) {
		struct remote_failure *f = ended->part;

		next = ended->next;
		tell(ended);
		pthread_mutex_lock(&t->lock);
		remote_failure_unref(f);
		pthread_mutex_unlock(&t->lock);
	}
}
