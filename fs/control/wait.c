/*
 * Reads that wait: jobs/ID/wait for an end, run for output, events for an event. They
 * hold no thread, and any signal to the client ends them, since nothing is lost by
 * reading again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/job/wait.h"
#include "fs/log/events.h"
#include "sandboxfs/cleanup.h"

#define PART_MAX (1024 * 1024)

/* A read that waits for a job. */
struct deferred {
	struct sbx_control_handle *h;
	struct sbx_pending *p;
	struct sbx_jobrec *job;
	struct sbx_job_waiter *waiter;
};

static void deferred_free(struct deferred *w)
{
	sbx_job_unref(w->job);
	free(w);
}

static void deferred_cancel(struct sbx_pending *p, bool fatal)
{
	struct deferred *w = p->owner;

	(void)fatal;
	/* The thread that parked it has let go of the lock once the waiter is known. */
	pthread_mutex_lock(&w->h->lock);
	sbx_job_forget_waiter(w->job, w->waiter);
	pthread_mutex_unlock(&w->h->lock);
	deferred_free(w);
	sbx_pending_error(p, EINTR);
}

/* The lock is held. */
static struct deferred *deferred(struct sbx_control_handle *h, struct sbx_jobrec *job,
                                 struct sbx_pending *p)
{
	struct deferred *w = malloc(sizeof(*w));

	if (!w)
		return NULL;
	*w = (struct deferred){.h = h, .p = p, .job = sbx_job_ref(job)};
	sbx_pending_defer(p, deferred_cancel, w);
	return w;
}

/* run */

static void follow_on(struct sbx_jobrec *job, void *data)
{
	struct deferred *w = data;
	struct deferred was = *w;

	(void)job;
	/* Not before the thread that parked it is done with it. */
	pthread_mutex_lock(&was.h->lock);
	pthread_mutex_unlock(&was.h->lock);
	free(w);
	sbx_control_follow(was.h, was.job, was.p);
	sbx_job_unref(was.job);
}

/* 0 when the read was parked, 1 with *n, or -errno. The lock is held. */
static int follow(struct sbx_control_handle *h, struct sbx_jobrec *job, struct sbx_pending *p,
                  void *buf, size_t size, ssize_t *n)
{
	/* Asked first: what comes between the two questions is not taken for the end. */
	bool ended = sbx_job_ended(job);
	struct deferred *w;

	*n = sbx_job_output_read(job, 1, buf, size, h->cursor);
	if (*n < 0)
		return (int)*n;
	h->cursor += (uint64_t)*n;
	if (*n > 0 || ended || size == 0)
		return 1;
	if (h->flags & O_NONBLOCK)
		return -EAGAIN;
	w = deferred(h, job, p);
	if (!w)
		return -ENOMEM;
	w->waiter = sbx_job_on_output(job, 1, h->cursor, follow_on, w);
	return 0;
}

void sbx_control_follow(struct sbx_control_handle *h, struct sbx_jobrec *job, struct sbx_pending *p)
{
	size_t size = p->size < PART_MAX ? p->size : PART_MAX;
	_cleanup_free_ char *buf = malloc(size + 1);
	ssize_t n = 0;
	int r = -ENOMEM;

	if (buf) {
		pthread_mutex_lock(&h->lock);
		r = follow(h, job, p, buf, size, &n);
		pthread_mutex_unlock(&h->lock);
	}
	if (r > 0)
		sbx_pending_data(p, buf, (size_t)n);
	else if (r < 0)
		sbx_pending_error(p, -r);
}

/* wait */

/* The line, once; the lock is held. */
static void fill_status(struct sbx_control_handle *h)
{
	char line[SBX_STATUS_MAX];

	if (h->filled)
		return;
	sbx_job_status(h->node.job, line, sizeof(line));
	sbx_control_set_text(h, strdup(line));
}

static void wait_over(struct sbx_jobrec *job, void *data)
{
	struct deferred *w = data;
	struct deferred was = *w;

	(void)job;
	pthread_mutex_lock(&was.h->lock);
	fill_status(was.h);
	pthread_mutex_unlock(&was.h->lock);
	deferred_free(w);
	sbx_control_serve_cursor(was.h, was.p);
}

static void wait_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	struct sbx_jobrec *job = h->node.job;
	struct deferred *w = NULL;
	int r = 0;

	(void)off;
	pthread_mutex_lock(&h->lock);
	if (!h->filled && !sbx_job_ended(job)) {
		r = h->flags & O_NONBLOCK ? -EAGAIN : -ENOMEM;
		w = h->flags & O_NONBLOCK ? NULL : deferred(h, job, p);
		if (w)
			w->waiter = sbx_job_on_ended(job, wait_over, w);
	} else {
		fill_status(h);
	}
	pthread_mutex_unlock(&h->lock);
	if (w)
		return;
	if (r < 0)
		sbx_pending_error(p, -r);
	else
		sbx_control_serve_cursor(h, p);
}

const struct control_ops sbx_control_wait_ops = {.read = wait_read};

/* events */

static struct sbx_events *events_of(struct sbx_control_handle *h)
{
	return h->node.box ? h->node.box->events : sbx_registry_events(h->reg);
}

static int events_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	struct sbx_events_reader *reader = malloc(sizeof(*reader));

	if (!reader)
		return sbx_no_memory(err);
	sbx_events_reader_init(events_of(h), reader);
	h->state = reader;
	return 0;
}

static void events_release(struct sbx_control_handle *h)
{
	sbx_events_reader_release(h->state);
	free(h->state);
}

static void events_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	(void)off;
	sbx_events_read(events_of(h), h->state, p, h->flags & O_NONBLOCK);
}

const struct control_ops sbx_control_events_ops = {
        .open = events_open, .release = events_release, .read = events_read};
