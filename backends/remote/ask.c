#include "backends/remote/ask.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"

#define LOOK_MS 100

/* A thread that waits for the loop. */
struct waiter {
	struct remote_box *box;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t moved;
	bool done;
	bool leaving; /* leave is on its way to the loop */
	int code;
	struct sbx_error err;
	void (*leave)(struct waiter *w); /* [loop] gives up: done follows at once, or it has been */
};

static void waiter_init(struct waiter *w, struct remote_box *box, void (*leave)(struct waiter *w))
{
	*w = (struct waiter){.box = box,
	                     .lock = PTHREAD_MUTEX_INITIALIZER,
	                     .moved = PTHREAD_COND_INITIALIZER,
	                     .leave = leave};
}

/* [any] CODE: 0, or an errno with the sentence. */
static void waiter_done(struct waiter *w, int code, const struct sbx_error *err)
{
	pthread_mutex_lock(&w->lock);
	w->done = true;
	w->code = code;
	if (code)
		w->err = *err;
	pthread_cond_signal(&w->moved);
	pthread_mutex_unlock(&w->lock);
}

/* [loop] */
static void leave(void *data)
{
	struct waiter *w = data;

	w->leave(w);
	pthread_mutex_lock(&w->lock);
	w->leaving = false;
	pthread_cond_signal(&w->moved);
	pthread_mutex_unlock(&w->lock);
}

/* Once it is done; it is given up for *CANCELLED (may be NULL). What is awaited may take minutes,
 * and others wait for this thread to give up. */
static int waiter_await(struct waiter *w, const atomic_bool *cancelled, struct sbx_error *err)
{
	pthread_mutex_lock(&w->lock);
	while (!w->done || w->leaving) {
		const struct timespec until =
		        sbx_clock_after(CLOCK_REALTIME, LOOK_MS * INT64_C(1000000));

		if (!w->done && cancelled && atomic_load(cancelled)) {
			cancelled = NULL;
			w->leaving = true;
			sbx_loop_post(w->box->backend->host->loop, leave, w);
		}
		pthread_cond_timedwait(&w->moved, &w->lock, &until);
	}
	w->done = false;
	pthread_mutex_unlock(&w->lock);
	return w->code ? sbx_fail(err, w->code, "%s", w->err.text) : 0;
}

/* --- a request --------------------------------------------------------------------------------
 */

/* A ride of a thread: it goes on when the loop says so. */
struct walk {
	struct waiter waiter;
	struct remote_ride ride;
	int code;
	const struct remote_reply *reply; /* of the call, NULL: it failed */
};

/* [loop] */
static void leave_ride(struct waiter *w)
{
	remote_sync_leave(&sbx_container_of(w, struct walk, waiter)->ride);
}

/* [loop] */
static void ready(struct remote_ride *ride, int code, const struct sbx_error *err)
{
	waiter_done(&sbx_container_of(ride, struct walk, ride)->waiter, -code, err);
}

/* [loop] */
static void land(void *data)
{
	struct walk *w = data;

	remote_sync_landed(&w->ride, w->code, w->reply);
	waiter_done(&w->waiter, 0, NULL);
}

/* [wait] Its own call has ended by CODE. */
static void await_landing(struct walk *w, int code, const struct remote_reply *reply)
{
	w->code = code;
	w->reply = reply;
	sbx_loop_post(w->waiter.box->backend->host->loop, land, w);
	waiter_await(&w->waiter, NULL, NULL);
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
	struct walk w = {.ride.ready = ready};
	struct remote_call call = {
	        .op = ask->op, .safe = ask->safe, .deadline_ms = ask->deadline_ms};
	int r;

	waiter_init(&w.waiter, box, leave_ride);
	remote_sync_board(box->sync, &w.ride);
	r = waiter_await(&w.waiter, cancelled, err);
	if (r < 0) {
		remote_text_release(&ask->body);
		return r;
	}
	call.deadline_ms += w.ride.apply_ms;
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
	struct waiter waiter;
	struct sbx_want want;
};

/* [any] */
static void want_done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	waiter_done(&sbx_container_of(w, struct wanting, want)->waiter, code, err);
}

/* [loop] */
static void leave_want(struct waiter *w)
{
	struct wanting *s = sbx_container_of(w, struct wanting, waiter);

	if (s->want.need == SBX_NEED_UP)
		remote_box_unwant_up(w->box, &s->want);
	else
		remote_sync_unwant(w->box->sync, &s->want);
}

int remote_box_await(struct remote_box *box, bool flushed, atomic_bool *cancelled,
                     struct sbx_error *err)
{
	struct wanting s = {.want = {.need = SBX_NEED_UP, .done = want_done}};
	int r = 0;

	waiter_init(&s.waiter, box, leave_want);
	if (!remote_box_is_up(box)) {
		remote_box_want_up(box, &s.want);
		r = waiter_await(&s.waiter, cancelled, err);
	}
	if (r || !flushed)
		return r;
	s.want = (struct sbx_want){.need = SBX_NEED_SENT, .done = want_done};
	remote_sync_flush(box->sync, &s.want);
	return waiter_await(&s.waiter, cancelled, err);
}
