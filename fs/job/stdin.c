/*
 * jobs/ID/stdin. What is written before the start is kept and handed over as a sealed memory file,
 * so a command sees a plain file at its beginning. When somebody holds the file open at the start,
 * the command gets a pipe instead. Writers put bytes into a queue and, from their own thread, as
 * much of it into the pipe as fits; the loop goes on when there is room. Only the loop closes the
 * pipe and answers those who had to wait, in `settle`, which brings everything up to date whatever
 * the occasion.
 *
 * The daemon ignores SIGPIPE: a command that closes its input must not end it.
 */
#include "fs/job/stdin.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "fs/job/job_table.h"
#include "fs/util/reply.h"
#include "sandboxfs/cleanup.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* A write that waits for room. */
struct sbx_stdin_deferred {
	struct sbx_stdin_deferred *next;
	struct sbx_jobrec *rec;
	struct sbx_pending *p;
	bool refused; /* in no list, the answer is on its way */
	size_t len;
	char data[];
};

static void on_event(struct sbx_watch *w, uint32_t events);

/* ---- the queue; lock held ---- */

static size_t queued(const struct sbx_stdin *in)
{
	assert(in->off <= in->len && in->len <= in->cap);
	return in->len - in->off;
}

static void drop_queue(struct sbx_stdin *in)
{
	free(in->buf);
	in->buf = NULL;
	in->off = in->len = in->cap = 0;
}

static int enqueue(struct sbx_stdin *in, const void *data, size_t len)
{
	if (in->off && in->len + len > in->cap) {
		memmove(in->buf, in->buf + in->off, queued(in));
		in->len -= in->off;
		in->off = 0;
	}
	if (in->len + len > in->cap) {
		size_t cap = in->len + len > 2 * in->cap ? in->len + len : 2 * in->cap;
		char *buf = realloc(in->buf, cap);

		if (!buf)
			return -ENOMEM;
		in->buf = buf;
		in->cap = cap;
	}
	memcpy(in->buf + in->len, data, len);
	in->len += len;
	return 0;
}

/* Moves queued bytes into the pipe until it is full, and asks to be told of room for the rest. */
static void pump(struct sbx_jobrec *rec)
{
	struct sbx_stdin *in = &rec->in;
	bool arm;

	while (in->watch.fd >= 0 && !in->broken && queued(in)) {
		ssize_t n = write(in->watch.fd, in->buf + in->off, queued(in));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		in->broken = n < 0;
		in->off += n > 0 ? (size_t)n : 0;
	}
	if (!queued(in) || in->broken)
		drop_queue(in);
	arm = queued(in) > 0;
	if (in->watch.fd >= 0 && arm != in->armed &&
	    !sbx_loop_rewatch(rec->jobs->loop, &in->watch, arm ? EPOLLOUT : 0))
		in->armed = arm;
}

/* ---- the pipe ---- */

/* Takes those whose bytes fit now, or all when nobody reads any more. Lock held. */
static struct sbx_stdin_deferred *admit(struct sbx_jobrec *rec)
{
	struct sbx_stdin *in = &rec->in;
	struct sbx_stdin_deferred *list = in->deferred, **end = &list;

	while (*end && (in->broken || queued(in) < SBX_STDIN_QUEUE_MAX)) {
		if (!in->broken && enqueue(in, (*end)->data, (*end)->len) < 0)
			in->broken = true;
		end = &(*end)->next;
		pump(rec);
	}
	in->deferred = *end;
	if (!in->deferred)
		in->deferred_tail = &in->deferred;
	*end = NULL;
	return list;
}

static void answer(struct sbx_stdin_deferred *list, bool broken)
{
	struct sbx_stdin_deferred *next;

	for (; list; list = next) {
		next = list->next;
		if (broken)
			sbx_pending_error(list->p, EPIPE);
		else
			sbx_pending_count(list->p, list->len);
		free(list);
	}
}

/* Loop thread. */
static void update_pipe(struct sbx_jobrec *rec)
{
	struct sbx_stdin *in = &rec->in;
	struct sbx_stdin_deferred *list;
	bool broken;
	int fd = -1;

	pthread_mutex_lock(&rec->jobs->lock);
	pump(rec);
	list = admit(rec);
	broken = in->broken;
	if (broken || (!in->openers && !queued(in) && !in->deferred && in->live)) {
		fd = sbx_loop_unwatch(rec->jobs->loop, &in->watch);
		in->broken = in->broken || fd >= 0;
		in->armed = false;
	}
	pthread_mutex_unlock(&rec->jobs->lock);
	sbx_cleanup_fd(&fd);
	answer(list, broken);
}

static void update_pipe_posted(void *data)
{
	struct sbx_jobrec *rec = data;

	update_pipe(rec);
	sbx_job_unref(rec);
}

static void update_pipe_soon(struct sbx_jobrec *rec)
{
	sbx_loop_post(rec->jobs->loop, update_pipe_posted, sbx_job_ref(rec));
}

static void on_event(struct sbx_watch *w, uint32_t events)
{
	struct sbx_jobrec *rec = w->data;

	if (events & (EPOLLERR | EPOLLHUP)) {
		pthread_mutex_lock(&rec->jobs->lock);
		rec->in.broken = true;
		pthread_mutex_unlock(&rec->jobs->lock);
	}
	update_pipe(rec);
}

void sbx_stdin_attach(struct sbx_jobrec *rec, int feed)
{
	struct sbx_stdin *in = &rec->in;

	assert(feed >= 0);
	pthread_mutex_lock(&rec->jobs->lock);
	assert(in->watch.fd < 0);
	if (in->live && !in->broken) {
		in->watch = (struct sbx_watch){.fd = feed, .fn = on_event, .data = rec};
		if (sbx_loop_watch(rec->jobs->loop, &in->watch, 0) < 0)
			in->watch.fd = -1;
		else
			feed = -1;
		in->broken = feed >= 0;
		pump(rec);
	}
	pthread_mutex_unlock(&rec->jobs->lock);
	sbx_cleanup_fd(&feed);
	update_pipe_soon(rec);
}

void sbx_stdin_end(struct sbx_jobrec *rec)
{
	bool live;

	pthread_mutex_lock(&rec->jobs->lock);
	live = rec->in.live;
	rec->in.broken = rec->in.broken || live;
	pthread_mutex_unlock(&rec->jobs->lock);
	if (!live)
		return;
	update_pipe(rec);
	pthread_mutex_lock(&rec->jobs->lock);
	rec->in.live = false;
	pthread_mutex_unlock(&rec->jobs->lock);
}

static void refuse_posted(void *data)
{
	answer(data, true);
}

void sbx_stdin_abort(struct sbx_jobrec *rec)
{
	struct sbx_stdin *in = &rec->in;
	struct sbx_stdin_deferred *list = in->deferred;

	if (!in->live)
		return;
	in->live = false;
	in->broken = true;
	in->deferred = NULL;
	in->deferred_tail = &in->deferred;
	for (struct sbx_stdin_deferred *w = list; w; w = w->next)
		w->refused = true;
	if (list)
		sbx_loop_post(rec->jobs->loop, refuse_posted, list);
}

void sbx_stdin_consumed(struct sbx_jobrec *rec)
{
	if (!rec->in.live)
		drop_queue(&rec->in);
}

/* ---- at the start ---- */

void sbx_stdin_choose(struct sbx_jobrec *rec, const struct sbx_request *req,
                      struct sbx_stdin_source *ret)
{
	struct sbx_stdin *in = &rec->in;

	assert(!in->live && !in->deferred);
	*ret = (struct sbx_stdin_source){0};
	in->live = in->broken = in->armed = false;
	if (req->set & SBX_REQ_STDIN) {
		ret->data = req->stdin_data;
		ret->len = req->stdin_len;
	} else if (in->openers) {
		ret->pipe = in->live = true;
	} else if (queued(in)) {
		ret->data = in->buf + in->off;
		ret->len = queued(in);
	}
}

static int memory_file(const char *data, size_t len)
{
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	_cleanup_fd_ int fd = memfd_create("stdin", flags | MFD_NOEXEC_SEAL);
	int r;

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create("stdin", flags);
	if (fd < 0)
		return -errno;
	r = sbx_write_all(fd, data, len);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -errno;
	return sbx_steal_fd(&fd);
}

int sbx_stdin_source_open(const struct sbx_stdin_source *src, int *fd, int *feed)
{
	int ends[2];
	int r;

	if (!src->pipe) {
		r = src->data ? memory_file(src->data, src->len) : -1;
		if (src->data && r < 0)
			return r;
		*fd = r;
		return 0;
	}
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	/* Of the open file, and each end is one of its own: the command's end goes on to block. */
	if (fcntl(ends[1], F_SETFL, O_WRONLY | O_NONBLOCK) < 0) {
		r = -errno;
		close(ends[0]);
		close(ends[1]);
		return r;
	}
	*fd = ends[0];
	*feed = ends[1];
	return 0;
}

/* ---- the file ---- */

void sbx_job_stdin_open(struct sbx_jobrec *rec)
{
	pthread_mutex_lock(&rec->jobs->lock);
	if (!rec->in.openers++ && !rec->in.live)
		rec->in.broken = false;
	pthread_mutex_unlock(&rec->jobs->lock);
}

void sbx_job_stdin_close(struct sbx_jobrec *rec)
{
	bool last;

	pthread_mutex_lock(&rec->jobs->lock);
	assert(rec->in.openers > 0);
	last = --rec->in.openers == 0 && rec->in.live;
	pthread_mutex_unlock(&rec->jobs->lock);
	if (last)
		update_pipe_soon(rec);
}

static void cancel(struct sbx_pending *p, bool fatal)
{
	struct sbx_stdin_deferred *w = p->owner;
	struct sbx_stdin *in = &w->rec->in;
	struct sbx_stdin_deferred **at = &in->deferred;

	(void)fatal;
	if (w->refused)
		return;
	pthread_mutex_lock(&w->rec->jobs->lock);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	if (!w->next)
		in->deferred_tail = at;
	pthread_mutex_unlock(&w->rec->jobs->lock);
	free(w);
	sbx_pending_error(p, EINTR);
}

/* Lock held. */
static int deferred(struct sbx_jobrec *rec, const void *buf, size_t len, struct sbx_pending *p)
{
	struct sbx_stdin_deferred *w = malloc(sizeof(*w) + len);

	if (!w)
		return -ENOMEM;
	*w = (struct sbx_stdin_deferred){.rec = rec, .p = p, .len = len};
	memcpy(w->data, buf, len);
	sbx_pending_defer(p, cancel, w);
	*rec->in.deferred_tail = w;
	rec->in.deferred_tail = &w->next;
	return 0;
}

/* Keeps bytes for a job that has yet to start. Lock held. */
static int keep(struct sbx_jobrec *rec, const void *buf, size_t len)
{
	if (sbx_jobrec_active(rec) || rec->in.broken || !rec->named)
		return -EPIPE;
	if (len > SBX_STDIN_KEEP_MAX - queued(&rec->in))
		return -EFBIG;
	return enqueue(&rec->in, buf, len);
}

/* 0: taken; 1: parked. Lock held. */
static int take(struct sbx_jobrec *rec, const void *buf, size_t len, struct sbx_pending *p)
{
	struct sbx_stdin *in = &rec->in;
	int r;

	if (!in->live)
		return keep(rec, buf, len);
	if (in->broken)
		return -EPIPE;
	if (in->deferred || queued(in) >= SBX_STDIN_QUEUE_MAX) {
		r = deferred(rec, buf, len, p);
		return r < 0 ? r : 1;
	}
	r = enqueue(in, buf, len);
	if (r < 0)
		return r;
	pump(rec);
	return in->broken ? -EPIPE : 0;
}

void sbx_job_stdin_write(struct sbx_jobrec *rec, const void *buf, size_t len, struct sbx_pending *p)
{
	int r;

	pthread_mutex_lock(&rec->jobs->lock);
	r = take(rec, buf, len, p);
	pthread_mutex_unlock(&rec->jobs->lock);
	if (r < 0)
		sbx_pending_error(p, -r);
	else if (r == 0)
		sbx_pending_count(p, len);
}
