/*
 * sync: a write is answered when all that was changed until then is where the sandbox really is: on
 * the machine that it is on, or on this one's disk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/request_file.h"
#include "fs/sandbox/await.h"
#include "fs/sandbox/backend_work.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

/* A saving to the disk goes on when the client who wanted it has died. Loop thread. */
struct saving {
	struct sbx_control_handle *h; /* NULL: nobody waits any more */
};

struct syncing {
	bool due; /* under the file's lock */
	/* What the present write waits for; under the file's lock while that begins: */
	struct saving *saving;
	struct sbx_await flush;
	bool flushing;
};

static int sync_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	h->state = calloc(1, sizeof(struct syncing));
	return h->state ? 0 : sbx_no_memory(err);
}

static void sync_release(struct sbx_control_handle *h)
{
	free(h->state);
}

/* Whatever is written. */
static int sync_feed(struct sbx_control_handle *h, const void *buf, size_t len,
                     struct sbx_error *err)
{
	struct syncing *s = h->state;

	(void)buf;
	(void)err;
	s->due |= len > 0;
	return 0;
}

static bool sync_unfinished(struct sbx_control_handle *h)
{
	(void)h;
	return false;
}

static void sync_drop(struct sbx_control_handle *h)
{
	struct syncing *s = h->state;

	s->due = false;
}

static void set_nothing(struct sbx_control_handle *h)
{
	struct syncing *s = h->state;

	pthread_mutex_lock(&h->lock);
	s->saving = NULL;
	s->flushing = false;
	pthread_mutex_unlock(&h->lock);
}

/* [loop] */
static void flushed(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct sbx_control_handle *h = a->data;

	set_nothing(h);
	sbx_request_file_done(h, -code, err);
}

/* [loop] */
static void saved(int code, void *data)
{
	struct saving *w = data;
	struct sbx_control_handle *h = w->h;
	struct sbx_error err = SBX_ERROR_INIT;

	free(w);
	if (!h)
		return;
	if (code < 0)
		sbx_error_fetch(h->reg, h->node.box, &err);
	if (code < 0 && err.code != -code)
		sbx_fail(&err, -code, "%s", strerror(-code));
	set_nothing(h);
	sbx_request_file_done(h, code, &err);
}

/* [loop] There was nothing to be saved. */
static void saved_already(void *data)
{
	saved(0, data);
}

/* The lock is held. */
static int begin_saving(struct sbx_control_handle *h, struct syncing *s, struct sbx_error *err)
{
	struct saving *w = malloc(sizeof(*w));

	if (!w)
		return sbx_no_memory(err);
	w->h = h;
	s->saving = w;
	if (!sbx_box_flush(h->node.box, saved, w))
		sbx_loop_post(sbx_registry_loop(h->reg), saved_already, w);
	return 1;
}

static int sync_start(struct sbx_control_handle *h, bool final, struct sbx_error *err)
{
	struct syncing *s = h->state;

	(void) final;
	if (!s->due)
		return 0;
	s->due = false;
	if (!sbx_is_away(h->node.box->sandbox))
		return begin_saving(h, s, err);
	s->flushing = true;
	s->flush = (struct sbx_await){.flush = true, .done = flushed, .data = h};
	sbx_box_await(h->node.box, &s->flush);
	return 1;
}

static void sync_cancel(struct sbx_control_handle *h)
{
	struct syncing *s = h->state;
	struct sbx_error err = SBX_ERROR_INIT;
	bool flushing;

	pthread_mutex_lock(&h->lock);
	flushing = s->flushing;
	if (s->saving)
		s->saving->h = NULL;
	s->saving = NULL;
	pthread_mutex_unlock(&h->lock);
	if (flushing) {
		sbx_await_cancel(&s->flush);
		return;
	}
	sbx_fail(&err, EINTR, "nobody waits for the sandbox to be saved any more");
	sbx_request_file_done(h, -EINTR, &err);
}

static const struct request_file_impl sync_requests = {
        .whole = true,
        .feed = sync_feed,
        .start = sync_start,
        .unfinished = sync_unfinished,
        .drop = sync_drop,
        .cancel = sync_cancel,
        .serve = sbx_control_serve_cursor,
};

const struct control_ops sbx_control_sync_ops = {
        .open = sync_open,
        .release = sync_release,
        .requests = &sync_requests,
};
