#include "backends/remote/ask.h"

#include <pthread.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

/* A ride of a thread: it goes on when the loop says so. */
struct walk {
	struct remote_ride ride;
	struct sbx_loop *loop;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool there;
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

static int take_over(struct remote_box *box, const struct remote_reply *reply, uint64_t seen,
                     struct sbx_error *err)
{
	bool altered = false;
	int r = remote_tree_take(box->tree, reply, seen, &altered, err);

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
	await(&w);
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
		r = take_over(box, reply, remote_ride_seen(&w.ride), err);
	if (r < 0)
		remote_reply_release(reply);
	return r;
}
