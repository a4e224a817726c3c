#include "backends/remote/ask.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"

#define LOOK_MS 100

/* A ride of a thread: it goes on when the loop says so. */
struct walk {
	struct remote_ride ride;
	struct sbx_loop *loop;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool there;
	bool leaving; /* leave_ride is on its way to the loop */
	int code;
	struct sbx_error err;
	const struct remote_reply *reply; /* of the call, NULL: it failed */
};

static void move(struct walk *w, int code, const struct sbx_error *err)
{
	pthread_mutex_lock(&w->lock);
	w->there = true;
	w->code = code;
	if (err)
		w->err = *err;
	pthread_cond_signal(&w->moved);
	pthread_mutex_unlock(&w->lock);
}

static void await(struct walk *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->there)
		pthread_cond_wait(&w->moved, &w->lock);
	w->there = false;
	pthread_mutex_unlock(&w->lock);
}

/* [loop] */
static void leave_ride(void *data)
{
	struct walk *w = data;

	remote_sync_leave(&w->ride);
	pthread_mutex_lock(&w->lock);
	w->leaving = false;
	pthread_cond_signal(&w->moved);
	pthread_mutex_unlock(&w->lock);
}

/* What it boards for may take minutes to be put, and others wait for this thread to give up. */
static void await_ready(struct walk *w, const atomic_bool *cancelled)
{
	pthread_mutex_lock(&w->lock);
	while (!w->there || w->leaving) {
		const struct timespec until =
		        sbx_clock_after(CLOCK_REALTIME, LOOK_MS * INT64_C(1000000));

		if (!w->there && cancelled && atomic_load(cancelled)) {
			cancelled = NULL;
			w->leaving = true;
			sbx_loop_post(w->loop, leave_ride, w);
		}
		pthread_cond_timedwait(&w->moved, &w->lock, &until);
	}
	w->there = false;
	pthread_mutex_unlock(&w->lock);
}

/* [loop] */
static void ready(struct remote_ride *ride, int code, const struct sbx_error *err)
{
	move(sbx_container_of(ride, struct walk, ride), code, err);
}

/* [loop] */
static void land(void *data)
{
	struct walk *w = data;

	remote_sync_landed(&w->ride, w->code, w->reply);
	move(w, 0, NULL);
}

/* [wait] Its own call has ended by CODE. */
static void await_landing(struct walk *w, int code, const struct remote_reply *reply)
{
	w->code = code;
	w->reply = reply;
	sbx_loop_post(w->loop, land, w);
	await(w);
}

static int take_over(struct remote_box *box, bool asked, const struct remote_reply *reply,
                     uint64_t seen, struct sbx_error *err)
{
	bool altered = false;
	int r = remote_tree_take(box->tree, reply, seen, asked, &altered, err);

	if (altered)
		sbx_sandbox_altered(&box->base);
	return r;
}

int remote_box_ask(struct remote_box *box, struct remote_ask *ask, atomic_bool *cancelled,
                   struct remote_reply *reply, struct sbx_error *err)
{
	struct walk w = {.ride.ready = ready,
	                 .loop = box->backend->host->loop,
	                 .lock = PTHREAD_MUTEX_INITIALIZER,
	                 .moved = PTHREAD_COND_INITIALIZER};
	struct remote_call call = {
	        .op = ask->op, .safe = ask->safe, .deadline_ms = ask->deadline_ms};
	int r;

	remote_sync_board(box->sync, &w.ride);
	await_ready(&w, cancelled);
	if (w.code < 0) {
		remote_text_release(&ask->body);
		return sbx_fail(err, -w.code, "%s", w.err.text);
	}
	remote_text_add(&call.body, w.ride.body.at ? w.ride.body.at : "");
	remote_text_add(&call.body, ask->body.at ? ask->body.at : "");
	call.body.failed |= w.ride.body.failed || ask->body.failed;
	remote_text_release(&ask->body);
	if (ask->writes)
		remote_tree_ask(box->tree, &call.body);
	r = remote_call_perform(box->link, &call, cancelled, reply, err);
	await_landing(&w, r, r < 0 ? NULL : reply);
	if (r == 0)
		r = take_over(box, ask->writes, reply, remote_ride_seen(&w.ride), err);
	else if (ask->writes)
		remote_tree_distrust(box->tree);
	if (r < 0)
		remote_reply_release(reply);
	return r;
}

/* --- waiting for what others do ---------------------------------------------------------------
 */

/* A want of a thread. */
struct wanting {
	struct sbx_want want;
	struct remote_box *box;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool done;
	bool leaving; /* leave is on its way to the loop */
	int code;
	struct sbx_error err;
};

/* [any] */
static void want_done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct wanting *s = sbx_container_of(w, struct wanting, want);

	pthread_mutex_lock(&s->lock);
	s->done = true;
	s->code = code;
	if (code)
		s->err = *err;
	pthread_cond_signal(&s->moved);
	pthread_mutex_unlock(&s->lock);
}

/* [loop] */
static void leave(void *data)
{
	struct wanting *s = data;

	if (s->want.need == SBX_NEED_UP)
		remote_box_unwant_up(s->box, &s->want);
	else
		remote_sync_unwant(s->box->sync, &s->want);
	pthread_mutex_lock(&s->lock);
	s->leaving = false;
	pthread_cond_signal(&s->moved);
	pthread_mutex_unlock(&s->lock);
}

static int await_want(struct wanting *s, atomic_bool *cancelled, struct sbx_error *err)
{
	pthread_mutex_lock(&s->lock);
	while (!s->done || s->leaving) {
		const struct timespec until =
		        sbx_clock_after(CLOCK_REALTIME, LOOK_MS * INT64_C(1000000));

		if (!s->done && cancelled && atomic_load(cancelled)) {
			cancelled = NULL;
			s->leaving = true;
			sbx_loop_post(s->box->backend->host->loop, leave, s);
		}
		pthread_cond_timedwait(&s->moved, &s->lock, &until);
	}
	pthread_mutex_unlock(&s->lock);
	return s->code ? sbx_fail(err, s->code, "%s", s->err.text) : 0;
}

int remote_box_await(struct remote_box *box, bool flushed, atomic_bool *cancelled,
                     struct sbx_error *err)
{
	struct wanting up = {.want = {.need = SBX_NEED_UP, .done = want_done},
	                     .box = box,
	                     .lock = PTHREAD_MUTEX_INITIALIZER,
	                     .moved = PTHREAD_COND_INITIALIZER};
	struct wanting sent = up;
	int r = 0;

	if (!remote_box_is_up(box)) {
		remote_box_want_up(box, &up.want);
		r = await_want(&up, cancelled, err);
	}
	if (r || !flushed)
		return r;
	sent.want.need = SBX_NEED_SENT;
	remote_sync_flush(box->sync, &sent.want);
	return await_want(&sent, cancelled, err);
}
