/*
 * Sending what the host has changed. Rides that board while nothing is unsent are ready at once.
 * Else the journal is cut, the batch is put into the machine (parcel.c), and every ride carries its
 * lines until one has landed, because the runner does them once however often they come. So no
 * command waits for the end of another's call: where a ride is to see newer changes, the batch is
 * first brought to its end by a call of its own. A ride waits for what was changed before it
 * boarded, and for nothing later, or a host that keeps changing something would keep it for ever.
 *
 * All but the entries from other threads happens on the loop.
 */
#include "backends/remote/sync.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/deadline.h"
#include "backends/remote/parcel.h"
#include "backends/remote/works.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define QUIET_MS      2000  /* from the last change to a flush by itself */
#define QUIET_LAST_MS 20000 /* and from the first one at most */
#define BUSY_MS       200   /* the same while a command runs, which may wait for the change */
#define RETRY_MS      5000  /* after a flush by itself that failed; then twice as long */
#define RETRY_LAST_MS 300000
#define RETRY_EDIT_MS 15000 /* where the host goes on changing files */
#define FLUSH_MS      60000 /* deadline of a call that has no other purpose */

/* The call of a flush, and who waits for it. One at a time. */
struct flushing {
	struct remote_ride ride;
	struct remote_call call;
	struct remote_reply reply;
	struct sbx_want *wants;
	bool under_way;
	bool alone;  /* by itself: nobody asked for it */
	bool asks;   /* for what the machine has where that is not known */
	bool missed; /* the timer ended meanwhile: some changes came too late for it */
	int code;
	struct sbx_error err;
};

struct remote_sync {
	struct remote_sync_config config;
	struct remote_link *link;
	int code; /* positive: failed for good */
	char text[512];
	struct remote_ride *boarding; /* in their order */
	struct remote_parcel parcel;  /* the batch that is not confirmed yet */
	bool loading;
	bool confirming; /* by a call of its own, since there are newer changes */
	struct remote_call confirm;
	struct flushing flush;
	struct sbx_want *waiting; /* for the next flush */
	struct sbx_timer timer;
	uint64_t retry_ms;
	pthread_mutex_t lock; /* all below: from other threads */
	struct remote_ride *arrived;
	struct sbx_want *wanted;
	bool posted, closing;
	bool armed;                 /* the timer is, or will be */
	uint64_t due_ms;            /* when it ends; all by sbx_now_ms() */
	bool backs_off;             /* it is for a flush that failed */
	uint64_t failed_ms;         /* when one did last */
	uint64_t first_ms, last_ms; /* of the changes since the last flush by itself; 0: none */
	bool busy;
	bool awaited; /* what is not sent yet, by somebody */
};

static void advance(struct remote_sync *s);

/* --- from other threads -----------------------------------------------------------------------
 */

static void append_ride(struct remote_ride **list, struct remote_ride *ride)
{
	while (*list)
		list = &(*list)->next;
	ride->next = NULL;
	*list = ride;
}

static void append_want(struct sbx_want **list, struct sbx_want *w)
{
	while (*list)
		list = &(*list)->next;
	w->next = NULL;
	*list = w;
}

/* [loop] Takes over what has arrived. */
static void arrived(void *data)
{
	struct remote_sync *s = data;
	struct remote_ride *ride, *next_ride;
	struct sbx_want *w, *next_want;

	pthread_mutex_lock(&s->lock);
	s->posted = false;
	ride = s->arrived;
	w = s->wanted;
	s->arrived = NULL;
	s->wanted = NULL;
	pthread_mutex_unlock(&s->lock);
	for (; ride; ride = next_ride) {
		next_ride = ride->next;
		append_ride(&s->boarding, ride);
	}
	for (; w; w = next_want) {
		next_want = w->next;
		append_want(&s->waiting, w);
	}
	advance(s);
	remote_works_end(s->config.works);
}

/* Lock held. */
static void post_arrived(struct remote_sync *s)
{
	if (s->posted)
		return;
	s->posted = true;
	remote_works_begin(s->config.works);
	sbx_loop_post(s->config.loop, arrived, s);
}

void remote_sync_board(struct remote_sync *s, struct remote_ride *ride)
{
	ride->sync = s;
	ride->body = (struct remote_text){0};
	ride->apply_ms = 0;
	ride->needs = remote_journal_noted(s->config.journal);
	ride->batch = ride->seen = 0;
	ride->carries = false;
	pthread_mutex_lock(&s->lock);
	append_ride(&s->arrived, ride);
	post_arrived(s);
	pthread_mutex_unlock(&s->lock);
}

void remote_sync_flush(struct remote_sync *s, struct sbx_want *w)
{
	pthread_mutex_lock(&s->lock);
	append_want(&s->wanted, w);
	post_arrived(s);
	pthread_mutex_unlock(&s->lock);
}

/* --- rides ------------------------------------------------------------------------------------
 */

/* Gives RIDE what is not confirmed, and its turn. */
static void set_off(struct remote_sync *s, struct remote_ride *ride)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	ride->seen = remote_journal_seen(s->config.journal);
	if (s->parcel.number) {
		remote_text_add_n(&ride->body, s->parcel.lines.at, s->parcel.lines.n);
		ride->apply_ms = s->parcel.apply_ms;
		ride->batch = ride->seen = s->parcel.number;
		ride->carries = true;
	}
	r = ride->body.failed ? sbx_no_memory(&err) : 0;
	if (r < 0)
		remote_text_release(&ride->body);
	else
		remote_works_begin(s->config.works);
	ride->ready(ride, r, &err);
}

static void fail_rides(struct remote_sync *s, int code, const char *text)
{
	struct remote_ride *ride = s->boarding, *next;
	struct sbx_error err = SBX_ERROR_INIT;

	s->boarding = NULL;
	sbx_fail(&err, code, "%s", text);
	for (; ride; ride = next) {
		next = ride->next;
		ride->ready(ride, -code, &err);
	}
}

/* Takes the first ride out that has all it needs in the machine, or in the parcel. */
static struct remote_ride *take_satisfied(struct remote_sync *s)
{
	const uint64_t reach =
	        s->parcel.number ? s->parcel.number : remote_journal_seen(s->config.journal);
	struct remote_ride **at = &s->boarding, *ride;

	while (*at && (*at)->needs > reach)
		at = &(*at)->next;
	ride = *at;
	if (ride)
		*at = ride->next;
	return ride;
}

uint64_t remote_ride_seen(const struct remote_ride *ride)
{
	return ride->seen;
}

bool remote_sync_leave(struct remote_ride *ride)
{
	struct remote_sync *s = ride->sync;
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_ride **lists[] = {&s->boarding, &s->arrived};
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(lists) && !found; i++)
		for (struct remote_ride **at = lists[i]; *at && !found; at = &(*at)->next)
			if (*at == ride) {
				*at = ride->next;
				found = true;
				break;
			}
	pthread_mutex_unlock(&s->lock);
	if (found)
		ride->ready(ride, sbx_fail(&err, EINTR, "given up"), &err);
	return found;
}

/* --- pauses -----------------------------------------------------------------------------------
 */

static void arm(struct remote_sync *s, uint64_t ms)
{
	pthread_mutex_lock(&s->lock);
	s->armed = !s->closing;
	s->due_ms = sbx_now_ms() + ms;
	s->backs_off = s->retry_ms != 0;
	pthread_mutex_unlock(&s->lock);
	if (s->armed)
		sbx_loop_timer_set(s->config.loop, &s->timer, ms);
}

/* With the lock: whether what is changed is not to wait for what follows. */
static bool is_urgent(const struct remote_sync *s)
{
	return s->busy || s->awaited;
}

/* [loop] As after a change. */
static void arm_quiet(struct remote_sync *s)
{
	bool urgent;

	pthread_mutex_lock(&s->lock);
	urgent = is_urgent(s);
	pthread_mutex_unlock(&s->lock);
	if (!s->code)
		arm(s, urgent ? BUSY_MS : QUIET_MS);
}

/* [loop] The machine answers: what failed before is not waited with any longer. */
static void heard(struct remote_sync *s)
{
	bool waits;

	pthread_mutex_lock(&s->lock);
	waits = s->armed && s->backs_off;
	pthread_mutex_unlock(&s->lock);
	s->retry_ms = 0;
	if (waits)
		arm_quiet(s);
}

/* [loop] Who asks again and again, as by fsync, does not make the pauses longer. */
static void back_off(struct remote_sync *s, bool alone)
{
	bool armed;

	pthread_mutex_lock(&s->lock);
	armed = s->armed;
	s->failed_ms = sbx_now_ms();
	pthread_mutex_unlock(&s->lock);
	if (s->code || (armed && !alone))
		return;
	if (!s->retry_ms)
		s->retry_ms = RETRY_MS;
	else if (alone)
		s->retry_ms *= 2;
	arm(s, s->retry_ms < RETRY_LAST_MS ? s->retry_ms : RETRY_LAST_MS);
}

/* --- landing ----------------------------------------------------------------------------------
 */

/*
 * What step NUMBER was to change at PATH did not happen: the copy is not as the tree there. A
 * socket serves the host alone, which may have it for as long as nothing is told of its directory.
 */
static void doubt_refused(struct remote_sync *s, const char *path, uint64_t number)
{
	const char *from, *to;

	if (remote_batch_is_socket(s->parcel.batch, number))
		return;
	remote_tree_refused(s->config.tree, path);
	if (!remote_batch_moves(s->parcel.batch, number, &from, &to))
		return;
	remote_tree_refused(s->config.tree, from);
	remote_tree_refused(s->config.tree, to);
}

/* What a step met there, in words: its path, and why. */
static void take_refused(struct remote_sync *s, const struct remote_reply *reply)
{
	const struct remote_frame *f;
	char text[1024];
	size_t at = 0;

	while ((f = remote_reply_next(reply, &at, REMOTE_STEP, NULL))) {
		const size_t n = strnlen(f->bytes, f->len);

		snprintf(text, sizeof(text), "%.600s could not be changed there: %.300s", f->bytes,
		         n < f->len ? f->bytes + n + 1 : "it is not known why");
		sbx_sandbox_told(s->config.sandbox, "conflict", text);
		doubt_refused(s, f->bytes, f->a);
	}
}

/* A call that carried batch NUMBER has answered: the machine has it. */
static void confirmed(struct remote_sync *s, uint64_t number, const struct remote_reply *reply)
{
	if (!s->parcel.number || s->loading || s->parcel.number > number)
		return;
	take_refused(s, reply);
	remote_parcel_delivered(&s->parcel);
}

/* A call that carried batch NUMBER has failed by CODE: by ESTALE where what was put is gone. */
static void put_anew(struct remote_sync *s, uint64_t number, int code)
{
	if (code == -ESTALE && !s->loading && s->parcel.number == number)
		remote_parcel_release(&s->parcel);
}

void remote_sync_landed(struct remote_ride *ride, int code, const struct remote_reply *reply)
{
	struct remote_sync *s = ride->sync;

	if (ride->carries && code == 0)
		confirmed(s, ride->batch, reply);
	else if (ride->carries)
		put_anew(s, ride->batch, code);
	if (code == 0)
		heard(s);
	remote_text_release(&ride->body);
	advance(s);
	remote_works_end(s->config.works);
}

/* --- the parcel -------------------------------------------------------------------------------
 */

/* [loop] As remote_parcel_config.loaded. */
static void loaded(int code, const struct sbx_error *err, void *data)
{
	struct remote_sync *s = data;

	s->loading = false;
	if (code < 0)
		fail_rides(s, -code, err->text);
	advance(s);
	remote_works_end(s->config.works);
}

static void load_begin(struct remote_sync *s)
{
	s->loading = true;
	remote_works_begin(s->config.works);
	remote_parcel_load(&s->parcel);
}

/* [loop] Its manifest is left to the calls that carried the batch before. */
static void confirm_called(struct remote_call *call, int code, struct remote_reply *reply,
                           const struct sbx_error *err)
{
	struct remote_sync *s = call->data;

	s->confirming = false;
	if (code < 0) {
		/* It finds no place there, and what later batches remove makes some. */
		const bool full = code == -ENOSPC || code == -EDQUOT;
		const bool again = full && !s->parcel.cleared;

		put_anew(s, s->parcel.number, code);
		if (full) {
			remote_parcel_release(&s->parcel);
			s->parcel.full = true;
		}
		if (!again)
			fail_rides(s, -code, err->text);
	} else {
		confirmed(s, UINT64_MAX, reply);
	}
	advance(s);
	remote_works_end(s->config.works);
}

/*
 * Who boards is to see changes that are newer than the batch, which others carry already, perhaps
 * in calls that take long: a call of its own brings it to its end.
 */
static void confirm_begin(struct remote_sync *s)
{
	s->confirming = true;
	remote_works_begin(s->config.works);
	s->confirm =
	        (struct remote_call){.op = "sync",
	                             .safe = true,
	                             .deadline_ms = remote_deadline(FLUSH_MS) + s->parcel.apply_ms,
	                             .done = confirm_called,
	                             .data = s};
	remote_text_add_n(&s->confirm.body, s->parcel.lines.at, s->parcel.lines.n);
	remote_call_begin(s->link, &s->confirm);
}

/* --- a flush ----------------------------------------------------------------------------------
 */

static void flush_end(struct remote_sync *s, int code, const struct sbx_error *err)
{
	struct sbx_want *w = s->flush.wants, *next;

	s->flush.wants = NULL;
	s->flush.under_way = false;
	for (; w; w = next) {
		next = w->next;
		w->done(w, -code, err);
	}
	if (code == 0) {
		heard(s);
		if (!s->code &&
		    (s->flush.missed || (!s->flush.asks && remote_tree_lags(s->config.tree))))
			arm(s, QUIET_MS);
	} else {
		back_off(s, s->flush.alone);
	}
	advance(s);
}

/* [loop] */
static void flush_taken(void *data)
{
	struct remote_sync *s = data;

	remote_reply_release(&s->flush.reply);
	flush_end(s, s->flush.code, &s->flush.err);
	remote_works_end(s->config.works);
}

/* [pool] */
static void flush_take(void *data)
{
	struct remote_sync *s = data;
	bool altered = false;

	s->flush.code = remote_tree_take(s->config.tree, &s->flush.reply, s->flush.ride.seen,
	                                 s->flush.asks, &altered, &s->flush.err);
	if (altered)
		sbx_sandbox_altered(s->config.sandbox);
	sbx_loop_post(s->config.loop, flush_taken, s);
}

/* [loop] The rest of the reply is looked at in the pool. */
static void flush_called(struct remote_call *call, int code, struct remote_reply *reply,
                         const struct sbx_error *err)
{
	struct remote_sync *s = call->data;

	remote_sync_landed(&s->flush.ride, code, reply);
	if (code < 0) {
		flush_end(s, code, err);
		return;
	}
	s->flush.reply = *reply;
	*reply = (struct remote_reply){0};
	remote_works_begin(s->config.works);
	sbx_pool_submit(s->config.pool, flush_take, s);
}

/* [loop] */
static void flush_ready(struct remote_ride *ride, int code, const struct sbx_error *err)
{
	struct flushing *f = sbx_container_of(ride, struct flushing, ride);
	struct remote_sync *s = sbx_container_of(f, struct remote_sync, flush);

	if (code < 0) {
		flush_end(s, code, err);
		return;
	}
	f->asks = remote_tree_lags(s->config.tree);
	if (!ride->carries && !f->asks) {
		remote_sync_landed(ride, -ECANCELED, NULL);
		flush_end(s, 0, err);
		return;
	}
	f->call = (struct remote_call){.op = "sync",
	                               .body = ride->body,
	                               .safe = true,
	                               .deadline_ms = remote_deadline(FLUSH_MS) + ride->apply_ms,
	                               .done = flush_called,
	                               .data = s};
	ride->body = (struct remote_text){0};
	if (f->asks)
		remote_tree_ask(s->config.tree, &f->call.body);
	remote_call_begin(s->link, &f->call);
}

static void flush_begin(struct remote_sync *s)
{
	s->flush.under_way = true;
	s->flush.alone = !s->waiting;
	s->flush.wants = s->waiting;
	s->flush.asks = s->flush.missed = false;
	s->flush.err = SBX_ERROR_INIT;
	s->waiting = NULL;
	s->flush.ride = (struct remote_ride){
	        .ready = flush_ready, .needs = remote_journal_noted(s->config.journal), .sync = s};
	append_ride(&s->boarding, &s->flush.ride);
}

static void fail_wants(struct remote_sync *s)
{
	struct sbx_want *w = s->waiting, *next;
	struct sbx_error err = SBX_ERROR_INIT;

	s->waiting = NULL;
	sbx_fail(&err, s->code, "%s", s->text);
	for (; w; w = next) {
		next = w->next;
		w->done(w, s->code, &err);
	}
}

void remote_sync_unwant(struct remote_sync *s, struct sbx_want *w)
{
	struct sbx_want **lists[] = {&s->wanted, &s->waiting, &s->flush.wants};
	struct sbx_error err = SBX_ERROR_INIT;
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(lists) && !found; i++)
		for (struct sbx_want **at = lists[i]; *at; at = &(*at)->next)
			if (*at == w) {
				*at = w->next;
				found = true;
				break;
			}
	pthread_mutex_unlock(&s->lock);
	if (found) {
		sbx_fail(&err, EINTR, "given up");
		w->done(w, EINTR, &err);
	}
}

/* --- by itself --------------------------------------------------------------------------------
 */

/* [any] With the lock: for how many ms to wait for changes that follow. A tar is one batch. */
static uint64_t unquiet_for(const struct remote_sync *s)
{
	uint64_t now = sbx_now_ms(), due = s->last_ms + QUIET_MS;

	if (is_urgent(s) || !s->first_ms)
		return 0;
	if (due > s->first_ms + QUIET_LAST_MS)
		due = s->first_ms + QUIET_LAST_MS;
	return due > now ? due - now : 0;
}

/* [loop] */
static void in_time(struct sbx_timer *t)
{
	struct remote_sync *s = t->data;
	uint64_t rest;

	pthread_mutex_lock(&s->lock);
	s->armed = false;
	rest = unquiet_for(s);
	if (!rest) {
		s->first_ms = s->last_ms = 0;
		s->awaited = false;
	}
	pthread_mutex_unlock(&s->lock);
	if (rest) {
		arm(s, rest);
		return;
	}
	if (s->flush.under_way)
		s->flush.missed = true;
	else if (s->link && !s->code &&
	         (remote_journal_pending(s->config.journal) || remote_tree_lags(s->config.tree))) {
		flush_begin(s);
		advance(s);
	}
}

/* [loop] */
static void arm_posted(void *data)
{
	struct remote_sync *s = data;
	const uint64_t now = sbx_now_ms();
	uint64_t pause;

	pthread_mutex_lock(&s->lock);
	pause = s->backs_off && s->due_ms > now ? s->due_ms - now : 0;
	pthread_mutex_unlock(&s->lock);
	if (!pause)
		arm_quiet(s);
	else if (!s->code)
		arm(s, pause);
	remote_works_end(s->config.works);
}

/* [any] With the lock: when to send at the latest what is changed NOW. */
static uint64_t soon_ms(struct remote_sync *s, uint64_t now)
{
	const uint64_t again = s->failed_ms + RETRY_EDIT_MS;

	if (!s->armed)
		s->backs_off = false;
	if (!s->backs_off)
		return now + BUSY_MS;
	return again > now + QUIET_MS ? again : now + QUIET_MS;
}

/* [any] With the lock. */
static void send_soon(struct remote_sync *s, uint64_t now)
{
	const uint64_t soon = soon_ms(s, now);

	if (!s->closing && (!s->armed || ((is_urgent(s) || s->backs_off) && s->due_ms > soon))) {
		s->armed = true;
		s->due_ms = soon;
		remote_works_begin(s->config.works);
		sbx_loop_post(s->config.loop, arm_posted, s);
	}
}

void remote_sync_changed(struct remote_sync *s)
{
	uint64_t now = sbx_now_ms();

	pthread_mutex_lock(&s->lock);
	s->last_ms = now;
	if (!s->first_ms)
		s->first_ms = now;
	send_soon(s, now);
	pthread_mutex_unlock(&s->lock);
}

void remote_sync_awaited(struct remote_sync *s)
{
	pthread_mutex_lock(&s->lock);
	/* What is sent already has no timer. */
	if (s->armed) {
		s->awaited = true;
		send_soon(s, sbx_now_ms());
	}
	pthread_mutex_unlock(&s->lock);
}

void remote_sync_busy(struct remote_sync *s, bool busy)
{
	pthread_mutex_lock(&s->lock);
	s->busy = busy;
	pthread_mutex_unlock(&s->lock);
}

/* --- what comes next --------------------------------------------------------------------------
 */

/* [loop] Whoever changes something here calls it afterwards. */
static void advance(struct remote_sync *s)
{
	if (s->code) {
		fail_rides(s, s->code, s->text);
		fail_wants(s);
		return;
	}
	if (!s->link)
		return;
	if (s->waiting && !s->flush.under_way)
		flush_begin(s);
	/* Who sets off may end at once, and come here. */
	while (s->boarding && !s->loading && !s->confirming) {
		struct remote_ride *ride = take_satisfied(s);

		if (ride)
			set_off(s, ride);
		else if (s->parcel.number)
			confirm_begin(s);
		else
			load_begin(s);
	}
}

void remote_sync_connect(struct remote_sync *s, struct remote_link *link)
{
	s->link = link;
	s->parcel.config.link = link;
	if (remote_journal_pending(s->config.journal))
		remote_sync_changed(s);
	advance(s);
}

void remote_sync_fail(struct remote_sync *s, int code, const char *text)
{
	if (s->code)
		return;
	s->code = code;
	snprintf(s->text, sizeof(s->text), "%s", text);
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_mutex_unlock(&s->lock);
	sbx_loop_timer_cancel(s->config.loop, &s->timer);
	if (s->loading)
		remote_parcel_cancel(&s->parcel);
	advance(s);
}

int remote_sync_create(const struct remote_sync_config *config, struct remote_sync **ret)
{
	struct remote_sync *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->config = *config;
	s->timer = (struct sbx_timer){.fn = in_time, .data = s};
	s->parcel.config = (struct remote_parcel_config){.sandbox = config->sandbox,
	                                                 .loop = config->loop,
	                                                 .pool = config->pool,
	                                                 .journal = config->journal,
	                                                 .tree = config->tree,
	                                                 .loaded = loaded,
	                                                 .data = s};
	pthread_mutex_init(&s->lock, NULL);
	*ret = s;
	return 0;
}

void remote_sync_destroy(struct remote_sync *s)
{
	if (!s)
		return;
	assert(!s->boarding && !s->arrived && !s->flush.under_way && !s->loading);
	remote_parcel_release(&s->parcel);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
