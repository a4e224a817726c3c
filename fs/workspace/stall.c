/*
 * A parked operation is one allocation: its arguments, copied, and what it waits for. The waiting
 * is the loop thread's, from the beginning to the end, so that a client who is interrupted meets no
 * other thread. What is passed again is parked no more: who interrupts it then waits for the local
 * disk at most.
 */
#include "fs/workspace/stall.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox/await.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

/*
 * Each round brings one thing that an operation needs, if it is not taken away again at once. What
 * is still not here after so many is not going to be.
 */
#define ROUNDS 20

/*
 * Who looks for a name in a sandbox's root holds a lock of the kernel's, for which rmdir of the
 * sandbox waits, and with that everybody at the top; a new name there keeps even the way to the
 * controls closed. A machine that is being made may take longer than that can be borne.
 */
#define ROOT_MOST_MS 30000

struct stalled {
	struct sbx_pending pending;
	struct sbx_await await;
	struct sbx_workspace *ws;
	struct sbx_box *box; /* a reference */
	struct ws_call call;
	struct stat attr;
	struct fuse_file_info fi;
	char bytes[]; /* path, name, newname, data */
};

static void stalled_free(struct stalled *s)
{
	sbx_box_unref(s->box);
	free(s);
}

/* [loop] Other signals do not interrupt a system call on a disk either. */
static void cancel(struct sbx_pending *p, bool fatal)
{
	if (fatal)
		sbx_await_cancel(&sbx_container_of(p, struct stalled, pending)->await);
}

/* [lane] */
static void pass_again(void *data)
{
	struct stalled *s = data;

	ws_pass(&s->call);
	stalled_free(s);
}

/* [loop] The reason is nobody's mistake where the client has gone. */
static void refuse(struct stalled *s, int code, const struct sbx_error *err)
{
	if (code == EINTR)
		ws_reply(s->pending.req, -code);
	else
		ws_refuse(s->pending.req, s->box, err);
	stalled_free(s);
}

/* [loop] */
static void arrived(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct stalled *s = sbx_container_of(a, struct stalled, await);

	sbx_deferred_remove(s->ws->deferred, &s->pending);
	if (code)
		refuse(s, code, err);
	else
		sbx_pool_submit(sbx_registry_lane(s->ws->registry), pass_again, s);
}

/* [loop] */
static void flushed(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct stalled *s = sbx_container_of(a, struct stalled, await);

	sbx_deferred_remove(s->ws->deferred, &s->pending);
	if (code) {
		refuse(s, code, err);
		return;
	}
	ws_reply(s->pending.req, 0);
	stalled_free(s);
}

static size_t length(const char *s)
{
	return s ? strlen(s) + 1 : 0;
}

static const void *keep(char **at, const void *from, size_t len)
{
	void *copy = *at;

	if (!from)
		return NULL;
	memcpy(copy, from, len);
	*at += len;
	return copy;
}

static struct stalled *stalled_new(const struct ws_call *c, const struct ws_absent *absent)
{
	const size_t data = c->data ? c->size : 0;
	struct stalled *s = calloc(1, sizeof(*s) + length(absent->path) + length(c->name) +
	                                      length(c->newname) + data);
	char *at = s ? s->bytes : NULL;

	if (!s)
		return NULL;
	s->call = *c;
	s->await.want = (struct sbx_want){.need = absent->need,
	                                  .path = keep(&at, absent->path, length(absent->path)),
	                                  .ino = absent->ino,
	                                  .off = absent->off,
	                                  .len = absent->len};
	s->call.name = keep(&at, c->name, length(c->name));
	s->call.newname = keep(&at, c->newname, length(c->newname));
	s->call.data = keep(&at, c->data, data);
	if (c->attr) {
		s->attr = *c->attr;
		s->call.attr = &s->attr;
	}
	if (c->fi) {
		s->fi = *c->fi;
		s->call.fi = &s->fi;
	}
	return s;
}

static void park(struct stalled *s, fuse_req_t req, struct sbx_box *box)
{
	s->ws = ws_of(req);
	s->box = sbx_box_ref(box);
	s->pending.cancel = cancel;
	sbx_deferred_add(s->ws->deferred, req, &s->pending);
	sbx_box_await(box, &s->await);
}

void ws_stall(const struct ws_call *c, const struct ws_absent *absent)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct stalled *s;

	if (c->rounds == ROUNDS) {
		sbx_fail(&err, ETIMEDOUT, "/%s has come %d times, and is still not here",
		         absent->path, ROUNDS);
		ws_refuse(c->req, absent->box, &err);
		return;
	}
	s = stalled_new(c, absent);
	if (!s) {
		ws_reply(c->req, -ENOMEM);
		return;
	}
	s->call.rounds++;
	s->await.done = arrived;
	if (absent->need == SBX_NEED_SENT) {
		s->await.flush = true;
		s->await.want = (struct sbx_want){.path = ""};
	}
	if (absent->need == SBX_NEED_NAMES && !*absent->path)
		s->await.most_ms = ROOT_MOST_MS;
	park(s, c->req, absent->box);
}

void ws_stall_flush(fuse_req_t req, struct sbx_box *box)
{
	struct stalled *s = calloc(1, sizeof(*s));

	if (!s) {
		ws_reply(req, -ENOMEM);
		return;
	}
	s->await.flush = true;
	s->await.done = flushed;
	park(s, req, box);
}
