/* push: a write is answered when the outcome is known, whatever it is; a read gives it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/request_file.h"
#include "fs/sandbox/push.h"
#include "sandboxfs/cleanup.h"

struct pushing {
	struct sbx_request_parser parser;
	struct sbx_push *push; /* while it goes on; both under the file's lock */
};

static int push_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	int r = sbx_push_check(h->node.box, err);
	struct pushing *s;

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return sbx_no_memory(err);
	sbx_request_parser_init(&s->parser);
	h->state = s;
	return 0;
}

static void push_release(struct sbx_control_handle *h)
{
	struct pushing *s = h->state;

	sbx_request_parser_finish(&s->parser);
	free(s);
}

static int push_feed(struct sbx_control_handle *h, const void *buf, size_t len,
                     struct sbx_error *err)
{
	struct pushing *s = h->state;

	return sbx_request_parser_feed(&s->parser, buf, len, err);
}

static bool push_unfinished(struct sbx_control_handle *h)
{
	struct pushing *s = h->state;

	return sbx_request_parser_pending(&s->parser);
}

static void push_drop(struct sbx_control_handle *h)
{
	struct pushing *s = h->state;

	sbx_request_parser_reset(&s->parser);
}

static void pushed(int code, const char *result, const struct sbx_error *err, void *data)
{
	struct sbx_control_handle *h = data;
	struct pushing *s = h->state;

	pthread_mutex_lock(&h->lock);
	s->push = NULL;
	if (code >= 0)
		sbx_control_set_text(h, strdup(result));
	pthread_mutex_unlock(&h->lock);
	sbx_request_file_done(h, code, err);
}

static int push_start(struct sbx_control_handle *h, bool final, struct sbx_error *err)
{
	struct pushing *s = h->state;
	struct sbx_push_request req = {0};
	int r = sbx_push_parser_next(&s->parser, final, &req, err);

	if (r <= 0)
		return r;
	r = sbx_push_begin(h->node.box, &req, pushed, h, &s->push, err);
	sbx_push_request_release(&req);
	return r < 0 ? r : 1;
}

static void push_cancel(struct sbx_control_handle *h)
{
	struct pushing *s = h->state;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_push *push;

	pthread_mutex_lock(&h->lock);
	push = s->push;
	s->push = NULL;
	pthread_mutex_unlock(&h->lock);
	if (!push)
		return;
	sbx_push_abandon(push);
	sbx_fail(&err, EINTR, "the push was given up");
	sbx_request_file_done(h, -EINTR, &err);
}

/* Replaces the answer of the push before by that of the one that has failed. */
static void push_failed(struct sbx_control_handle *h, const struct sbx_error *err)
{
	sbx_push_refused(h->node.box, err);
	pthread_mutex_lock(&h->lock);
	sbx_control_set_text(h, sbx_push_last(h->node.box));
	pthread_mutex_unlock(&h->lock);
}

/* Who has pushed nothing on this open file gets the outcome of the last push there was. */
static void push_serve(struct sbx_control_handle *h, struct sbx_pending *p)
{
	char *last = sbx_push_last(h->node.box);

	pthread_mutex_lock(&h->lock);
	if (!h->filled)
		sbx_control_set_text(h, last);
	else
		free(last);
	pthread_mutex_unlock(&h->lock);
	sbx_control_serve_cursor(h, p);
}

static uint64_t push_size(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	_cleanup_free_ char *last = sbx_push_last(node->box);

	(void)reg;
	return last ? strlen(last) : 0;
}

static const struct request_file_impl push_requests = {
        .feed = push_feed,
        .start = push_start,
        .unfinished = push_unfinished,
        .drop = push_drop,
        .cancel = push_cancel,
        .failed = push_failed,
        .serve = push_serve,
};

const struct control_ops sbx_control_push_ops = {
        .open = push_open,
        .release = push_release,
        .requests = &push_requests,
        .size = push_size,
};
