/*
 * The engine of files whose writes are requests. A write, a flush or a read with something
 * unfinished is an operation: it starts request after request and is answered when
 * the last has ended, or the first could not be started. One operation of an open file is
 * active at a time, others wait in its queue; whoever made it active (the caller's
 * thread, then the loop) is the only one who touches it.
 *
 * An operation that has waited is answered on the loop thread only, as fs/util/reply.h demands. So
 * is one from the queue, because its cancel has been set.
 */
#include "fs/control/request_file.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "sandboxfs/loop.h"

enum op_kind { OP_WRITE, OP_FLUSH, OP_READ };

struct request_op {
	struct request_op *next;
	struct sbx_control_handle *h;
	struct sbx_pending *p;
	enum op_kind kind;
	bool deferred; /* p may be cancelled from now on */
	bool several;  /* the write holds more than one line */
	bool running;  /* an action has been begun and has not ended */
	unsigned n;    /* requests taken so far */
	size_t len;    /* of the write */
	char *data;    /* of a write in the queue */
};

static const struct request_file_impl *impl_of(struct sbx_control_handle *h)
{
	return h->node.row->ops->requests;
}

/* Whether TEXT is several lines of commands, rather than one or a document in JSON. */
static bool has_lines(const char *text, size_t len)
{
	size_t i = 0;
	const char *end;

	while (i < len && strchr(" \t\r\n", text[i]) && text[i])
		i++;
	if (i == len || text[i] == '{' || text[i] == '[')
		return false;
	end = memchr(text + i, '\n', len - i);
	if (!end || memchr(text, '\0', len))
		return false;
	for (end++; end < text + len; end++)
		if (!strchr(" \t\r\n", *end))
			return true;
	return false;
}

static void drive(struct request_op *op);
static void finish(struct request_op *op, int code, const struct sbx_error *err);

static void drive_queued(void *data)
{
	struct request_op *op = data;
	struct sbx_control_handle *h = op->h;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = 0;

	pthread_mutex_lock(&h->lock);
	assert(h->active == op);
	if (op->data)
		r = impl_of(h)->feed(h, op->data, op->len, &err);
	pthread_mutex_unlock(&h->lock);
	if (r < 0)
		finish(op, r, &err);
	else
		drive(op);
}

static void store_failure(struct request_op *op, const struct sbx_error *err)
{
	struct sbx_error numbered = *err;

	if (op->several || op->n > 1)
		snprintf(numbered.text, sizeof(numbered.text), "line %u: %.1000s", op->n,
		         err->text);
	sbx_control_store(op->h, &numbered);
}

/* Makes the next operation the active one. */
static void advance(struct sbx_control_handle *h, bool failed)
{
	struct request_op *next;

	pthread_mutex_lock(&h->lock);
	if (failed)
		impl_of(h)->drop(h);
	assert(h->active);
	next = h->queue;
	h->active = next;
	if (next)
		h->queue = next->next;
	pthread_mutex_unlock(&h->lock);
	if (next)
		sbx_loop_post(sbx_registry_loop(h->reg), drive_queued, next);
}

/* After the answer the file may be closed, so it comes last. */
static void finish(struct request_op *op, int code, const struct sbx_error *err)
{
	struct sbx_control_handle *h = op->h;
	struct request_op done = *op;

	if (code < 0) {
		store_failure(op, err);
		if (impl_of(h)->failed)
			impl_of(h)->failed(h, err);
	}
	assert(!op->running);
	free(op->data);
	free(op);
	advance(h, code < 0);
	if (code < 0)
		sbx_pending_error(done.p, -code);
	else if (done.kind == OP_WRITE)
		sbx_pending_count(done.p, done.len);
	else if (done.kind == OP_FLUSH)
		sbx_pending_error(done.p, 0);
	else
		impl_of(h)->serve(h, done.p);
}

/* Takes OP out of the queue; false when it is not there. The lock is held. */
static bool unqueue(struct request_op *op)
{
	struct request_op **at = &op->h->queue;

	while (*at && *at != op)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = op->next;
	return true;
}

/*
 * Only a client that is about to die is let go, and its command with it. After EINTR a client that
 * handles the signal would repeat its write, and the command would run twice.
 */
static void request_cancel(struct sbx_pending *p, bool fatal)
{
	struct request_op *op = p->owner;
	struct sbx_control_handle *h = op->h;
	bool queued, running;

	if (!fatal && op->kind != OP_READ)
		return;
	pthread_mutex_lock(&h->lock);
	queued = unqueue(op);
	running = fatal && op == h->active && op->running;
	pthread_mutex_unlock(&h->lock);
	if (queued) {
		free(op->data);
		free(op);
		sbx_pending_error(p, EINTR);
	} else if (running) {
		impl_of(h)->cancel(h);
	}
}

static void deferred(struct request_op *op)
{
	if (!op->deferred) {
		sbx_pending_defer(op->p, request_cancel, op);
		op->deferred = true;
	}
}

static void drive(struct request_op *op)
{
	struct sbx_control_handle *h = op->h;
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	pthread_mutex_lock(&h->lock);
	assert(h->active == op && !op->running);
	r = impl_of(h)->start(h, op->kind != OP_WRITE, &err);
	if (r != 0)
		op->n++;
	if (r > 0) {
		deferred(op);
		op->running = true;
	}
	pthread_mutex_unlock(&h->lock);
	if (r <= 0)
		finish(op, r, &err);
}

void sbx_request_file_done(struct sbx_control_handle *h, int code, const struct sbx_error *err)
{
	struct request_op *op;

	pthread_mutex_lock(&h->lock);
	op = h->active;
	assert(op && op->running);
	op->running = false;
	pthread_mutex_unlock(&h->lock);
	if (code < 0)
		finish(op, code, err);
	else
		drive(op);
}

static struct request_op *op_new(struct sbx_control_handle *h, enum op_kind kind,
                                 struct sbx_pending *p)
{
	struct request_op *op = calloc(1, sizeof(*op));

	if (op)
		*op = (struct request_op){.h = h, .p = p, .kind = kind};
	return op;
}

/* The lock is held. */
static int enqueue(struct request_op *op, const void *buf)
{
	struct request_op **end = &op->h->queue;

	assert(op->h->active);
	if (buf && op->len) {
		op->data = malloc(op->len);
		if (!op->data)
			return -ENOMEM;
		memcpy(op->data, buf, op->len);
	}
	while (*end)
		end = &(*end)->next;
	*end = op;
	deferred(op);
	return 0;
}

void sbx_request_file_write(struct sbx_control_handle *h, const void *buf, size_t len,
                            struct sbx_pending *p)
{
	struct request_op *op = op_new(h, OP_WRITE, p);
	struct sbx_error err = SBX_ERROR_INIT;
	bool queued;
	int r;

	if (!op) {
		sbx_pending_error(p, ENOMEM);
		return;
	}
	op->len = len;
	op->several = !impl_of(h)->whole && has_lines(buf, len);
	pthread_mutex_lock(&h->lock);
	queued = h->active;
	if (queued) {
		r = enqueue(op, buf);
	} else {
		h->active = op;
		r = impl_of(h)->feed(h, buf, len, &err);
	}
	pthread_mutex_unlock(&h->lock);
	if (!queued && r >= 0) {
		drive(op);
	} else if (!queued) {
		finish(op, r, &err);
	} else if (r < 0) {
		free(op);
		sbx_pending_error(p, -r);
	}
}

int sbx_request_file_broken(struct sbx_error *err)
{
	return sbx_fail(err, ECANCELED,
	                "the request was not complete when a signal ended the program that wrote "
	                "it: nothing was done");
}

void sbx_request_file_flush(struct sbx_control_handle *h, bool broken, struct sbx_pending *p)
{
	struct request_op *op = op_new(h, OP_FLUSH, p);
	struct sbx_error err = SBX_ERROR_INIT;
	bool needed;

	pthread_mutex_lock(&h->lock);
	/* While a request runs, what follows it is not the flush's affair. */
	needed = op && !h->active && impl_of(h)->unfinished(h);
	if (needed)
		h->active = op;
	pthread_mutex_unlock(&h->lock);
	if (needed && broken) {
		finish(op, sbx_request_file_broken(&err), &err);
		return;
	}
	if (needed) {
		drive(op);
		return;
	}
	sbx_pending_error(p, op ? 0 : ENOMEM);
	free(op);
}

void sbx_request_file_read(struct sbx_control_handle *h, struct sbx_pending *p)
{
	struct request_op *op = op_new(h, OP_READ, p);
	bool queued, unfinished = false;

	if (!op) {
		sbx_pending_error(p, ENOMEM);
		return;
	}
	pthread_mutex_lock(&h->lock);
	queued = h->active;
	if (queued) {
		enqueue(op, NULL);
	} else {
		unfinished = impl_of(h)->unfinished(h);
		if (unfinished)
			h->active = op;
	}
	pthread_mutex_unlock(&h->lock);
	if (queued)
		return;
	if (unfinished) {
		drive(op);
		return;
	}
	free(op);
	impl_of(h)->serve(h, p);
}
