/*
 * A ring of lines seen as one endless stream of bytes: a reader is a position in it, so it may take
 * a line in pieces of any size. One that fell behind the oldest kept line goes on there. Its mark
 * stands between two lines, and is in no ring. Parked reads are answered from one posted call on
 * the loop thread, which holds a reference, so it may come after destroy.
 */
#include "fs/log/events.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log/log.h"
#include "fs/util/reply.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

#define KEPT 1000

struct line {
	char *text;
	size_t len;
	uint64_t at; /* position of the first byte */
};

/* A read that waits. */
struct deferred {
	struct deferred *next;
	struct sbx_events *ev;
	struct sbx_pending *p;
	struct sbx_events_reader *reader;
};

struct sbx_events {
	atomic_int refs;
	struct sbx_loop *loop;
	pthread_mutex_t lock; /* all below */
	struct line ring[KEPT];
	unsigned first, count;
	uint64_t end; /* position after the last line */
	struct deferred *deferred;
	bool posted; /* serve() is on its way */
	bool closed; /* nothing more will come */
};

int sbx_events_create(struct sbx_loop *loop, struct sbx_events **ret)
{
	struct sbx_events *ev = calloc(1, sizeof(*ev));

	if (!ev)
		return -ENOMEM;
	atomic_init(&ev->refs, 1);
	ev->loop = loop;
	pthread_mutex_init(&ev->lock, NULL);
	*ret = ev;
	return 0;
}

static void unref(struct sbx_events *ev)
{
	if (atomic_fetch_sub(&ev->refs, 1) > 1)
		return;
	assert(!ev->deferred);
	for (unsigned i = 0; i < KEPT; i++)
		free(ev->ring[i].text);
	pthread_mutex_destroy(&ev->lock);
	free(ev);
}

static struct deferred *take_deferred(struct sbx_events *ev)
{
	struct deferred *list;

	pthread_mutex_lock(&ev->lock);
	list = ev->deferred;
	ev->deferred = NULL;
	pthread_mutex_unlock(&ev->lock);
	return list;
}

static void answer_eof(struct sbx_events *ev)
{
	struct deferred *next;

	for (struct deferred *w = take_deferred(ev); w; w = next) {
		next = w->next;
		sbx_pending_data(w->p, NULL, 0);
		free(w);
	}
}

void sbx_events_destroy(struct sbx_events *ev)
{
	if (!ev)
		return;
	answer_eof(ev);
	unref(ev);
}

static struct line *line_at(struct sbx_events *ev, unsigned i)
{
	assert(i < KEPT);
	return &ev->ring[(ev->first + i) % KEPT];
}

/* Index of the line that holds position AT, which is one of the kept. */
static unsigned find_line(struct sbx_events *ev, uint64_t at)
{
	unsigned low = 0, high = ev->count;

	assert(ev->count > 0);
	while (high - low > 1) {
		unsigned mid = (low + high) / 2;

		if (line_at(ev, mid)->at <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/* Copies the lines from R on, up to the position TO, at most SIZE bytes, and moves R. Lock held. */
static size_t take_lines(struct sbx_events *ev, struct sbx_events_reader *r, uint64_t to, char *buf,
                         size_t size)
{
	size_t done = 0;

	if (r->at >= to)
		return 0;
	for (unsigned i = find_line(ev, r->at); i < ev->count && done < size && r->at < to; i++) {
		struct line *l = line_at(ev, i);
		size_t skip = (size_t)(r->at - l->at);
		size_t n = l->len - skip < size - done ? l->len - skip : size - done;

		memcpy(buf + done, l->text + skip, n);
		done += n;
		r->at += n;
	}
	return done;
}

static size_t left_of_mark(const struct sbx_events_reader *r)
{
	assert(r->mark_told <= r->mark_len);
	return r->mark ? r->mark_len - r->mark_told : 0;
}

/* Copies what follows R, its mark in its place, at most SIZE bytes, and moves R. Lock held. */
static size_t take(struct sbx_events *ev, struct sbx_events_reader *r, char *buf, size_t size)
{
	size_t done, n;

	if (ev->count && r->at < line_at(ev, 0)->at)
		r->at = line_at(ev, 0)->at;
	done = left_of_mark(r) ? take_lines(ev, r, r->live, buf, size) : 0;
	n = r->at < r->live ? 0 : left_of_mark(r);
	if (n > size - done)
		n = size - done;
	if (n)
		memcpy(buf + done, r->mark + r->mark_told, n);
	r->mark_told += n;
	done += n;
	return left_of_mark(r) ? done : done + take_lines(ev, r, ev->end, buf + done, size - done);
}

/* Answers P with what there is; the lock is held and released. */
static void answer_unlock(struct sbx_events *ev, struct sbx_events_reader *r, struct sbx_pending *p)
{
	uint64_t left = ev->end - r->at + left_of_mark(r);
	size_t size = p->size < left ? p->size : (size_t)left;
	_cleanup_free_ char *buf = malloc(size ? size : 1);
	size_t n = buf ? take(ev, r, buf, size) : 0;

	assert(r->at <= ev->end);
	pthread_mutex_unlock(&ev->lock);
	if (buf)
		sbx_pending_data(p, buf, n);
	else
		sbx_pending_error(p, ENOMEM);
}

static void serve(void *data)
{
	struct sbx_events *ev = data;
	struct deferred *next, *list;

	pthread_mutex_lock(&ev->lock);
	ev->posted = false;
	pthread_mutex_unlock(&ev->lock);
	list = take_deferred(ev);
	for (struct deferred *w = list; w; w = next) {
		next = w->next;
		pthread_mutex_lock(&ev->lock);
		answer_unlock(ev, w->reader, w->p);
		free(w);
	}
	unref(ev);
}

void sbx_events_close(struct sbx_events *ev)
{
	pthread_mutex_lock(&ev->lock);
	ev->closed = true;
	pthread_mutex_unlock(&ev->lock);
	/* Those who have not seen the last lines get them first, and the end when they read again.
	 */
	atomic_fetch_add(&ev->refs, 1);
	serve(ev);
}

static void append(struct sbx_events *ev, char *text, size_t len)
{
	struct line *l;

	if (ev->count == KEPT) {
		ev->first = (ev->first + 1) % KEPT;
		ev->count--;
	}
	l = line_at(ev, ev->count++);
	free(l->text);
	*l = (struct line){.text = text, .len = len, .at = ev->end};
	ev->end += len;
}

static char *make_line(const char *event, const char *name, const char *text, size_t *len)
{
	struct json_object *extra = NULL;
	char *line;

	if (text) {
		extra = json_object_new_object();
		json_object_object_add(extra, "text", sbx_text_json(text, strlen(text)));
	}
	line = sbx_log_line(event, "sandbox", name, extra, len);
	json_object_put(extra);
	return line;
}

/* Takes LINE over; NULL: memory was exhausted. */
static void add(struct sbx_events *ev, char *line, size_t len)
{
	bool post;

	if (!line)
		return;
	pthread_mutex_lock(&ev->lock);
	append(ev, line, len);
	post = ev->deferred && !ev->posted;
	ev->posted |= post;
	pthread_mutex_unlock(&ev->lock);
	if (post) {
		atomic_fetch_add(&ev->refs, 1);
		sbx_loop_post(ev->loop, serve, ev);
	}
}

void sbx_events_add(struct sbx_events *ev, const char *event, const char *name, const char *text)
{
	size_t len;
	char *line = make_line(event, name, text, &len);

	add(ev, line, len);
}

void sbx_events_add_both(struct sbx_events *a, struct sbx_events *b, const char *event,
                         const char *name, const char *text)
{
	size_t len;
	char *line = make_line(event, name, text, &len);

	assert(a != b);
	add(a, line ? strdup(line) : NULL, len);
	add(b, line, len);
}

static void cancel(struct sbx_pending *p, bool fatal)
{
	struct deferred *w = p->owner;
	struct sbx_events *ev = w->ev;
	struct deferred **at;

	(void)fatal;
	pthread_mutex_lock(&ev->lock);
	for (at = &ev->deferred; *at != w;)
		at = &(*at)->next;
	*at = w->next;
	pthread_mutex_unlock(&ev->lock);
	free(w);
	sbx_pending_error(p, EINTR);
}

void sbx_events_reader_init(struct sbx_events *ev, struct sbx_events_reader *r)
{
	*r = (struct sbx_events_reader){0};
	r->mark = make_line("live", NULL, NULL, &r->mark_len);
	pthread_mutex_lock(&ev->lock);
	r->live = ev->end;
	pthread_mutex_unlock(&ev->lock);
}

void sbx_events_reader_release(struct sbx_events_reader *r)
{
	free(r->mark);
	*r = (struct sbx_events_reader){0};
}

/* Lock held. */
static bool is_ready(const struct sbx_events *ev, const struct sbx_events_reader *r)
{
	return r->at < ev->end || left_of_mark(r) || ev->closed;
}

void sbx_events_read(struct sbx_events *ev, struct sbx_events_reader *r, struct sbx_pending *p,
                     int nonblock)
{
	struct deferred *w;

	pthread_mutex_lock(&ev->lock);
	if (is_ready(ev, r)) {
		answer_unlock(ev, r, p);
		return;
	}
	w = nonblock ? NULL : malloc(sizeof(*w));
	if (w) {
		*w = (struct deferred){.next = ev->deferred, .ev = ev, .p = p, .reader = r};
		sbx_pending_defer(p, cancel, w);
		ev->deferred = w;
	}
	pthread_mutex_unlock(&ev->lock);
	if (!w)
		sbx_pending_error(p, nonblock ? EAGAIN : ENOMEM);
}
