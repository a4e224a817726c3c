/* Who waits for what, over a journal, parcels, calls and a loop that the test plays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/remote/batch.h"
#include "backends/remote/parcel.h"
#include "backends/remote/sync.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

static struct remote_sync *sync_;
static struct sbx_sandbox sandbox;

/* ---- a loop: what is posted runs when the test says so, and the timer ends so ---- */

static struct posted {
	void (*fn)(void *data);
	void *data;
} posts[16];
static size_t nposts;
static struct sbx_timer *timer; /* NULL: none is set */
static uint64_t timer_ms;       /* that was set last */

void sbx_loop_post(struct sbx_loop *l, void (*fn)(void *data), void *data)
{
	(void)l;
	assert_true(nposts < SBX_ARRAY_SIZE(posts));
	posts[nposts++] = (struct posted){fn, data};
}

void sbx_pool_submit(struct sbx_pool *pool, void (*fn)(void *data), void *data)
{
	(void)pool;
	sbx_loop_post(NULL, fn, data);
}

void sbx_loop_timer_set(struct sbx_loop *l, struct sbx_timer *t, uint64_t ms)
{
	(void)l;
	timer = t;
	timer_ms = ms;
}

void sbx_loop_timer_cancel(struct sbx_loop *l, struct sbx_timer *t)
{
	(void)l;
	(void)t;
	timer = NULL;
}

static void run_posted(void)
{
	for (size_t i = 0; i < nposts; i++)
		posts[i].fn(posts[i].data);
	nposts = 0;
}

static void timer_end(void)
{
	struct sbx_timer *t = timer;

	assert_non_null(t);
	timer = NULL;
	t->fn(t);
}

/* ---- what the host has changed: all up to batch `noted` ---- */

static uint64_t noted, seen;

bool remote_journal_pending(struct remote_journal *j)
{
	(void)j;
	return noted > seen;
}

uint64_t remote_journal_noted(struct remote_journal *j)
{
	(void)j;
	return noted;
}

uint64_t remote_journal_seen(struct remote_journal *j)
{
	(void)j;
	return seen;
}

/* ---- a tree that has nothing to say ---- */

bool remote_tree_lags(struct remote_tree *t)
{
	(void)t;
	return false;
}

void remote_tree_ask(struct remote_tree *t, struct remote_text *body)
{
	(void)t;
	(void)body;
}

int remote_tree_take(struct remote_tree *t, const struct remote_reply *reply, uint64_t batch,
                     bool asked, bool *altered, struct sbx_error *err)
{
	(void)t;
	(void)reply;
	(void)batch;
	(void)asked;
	(void)altered;
	(void)err;
	return 0;
}

void remote_tree_refused(struct remote_tree *t, const char *path)
{
	(void)t;
	(void)path;
}

bool remote_batch_is_socket(const struct remote_batch *b, uint64_t number)
{
	(void)b;
	(void)number;
	return false;
}

bool remote_batch_moves(const struct remote_batch *b, uint64_t number, const char **from,
                        const char **to)
{
	(void)b;
	(void)number;
	(void)from;
	(void)to;
	return false;
}

/* ---- parcels: the test says when one is loaded ---- */

static struct remote_parcel *loading;
static unsigned loads;

void remote_parcel_load(struct remote_parcel *p)
{
	assert_null(loading);
	p->number = seen + 1;
	loading = p;
	loads++;
}

void remote_parcel_cancel(struct remote_parcel *p)
{
	(void)p;
}

void remote_parcel_release(struct remote_parcel *p)
{
	remote_text_release(&p->lines);
	p->number = 0;
}

void remote_parcel_delivered(struct remote_parcel *p)
{
	seen = p->number;
	remote_parcel_release(p);
}

static void load_end(int code)
{
	struct remote_parcel *p = loading;
	struct sbx_error err = SBX_ERROR_INIT;

	assert_non_null(p);
	loading = NULL;
	if (code)
		remote_parcel_release(p);
	else
		remote_text_printf(&p->lines, "batch %d\n", (int)p->number);
	p->apply_ms = 1000000;
	p->config.loaded(code ? sbx_fail(&err, -code, "it cannot be put") : 0, &err,
	                 p->config.data);
}

/* ---- calls: the test says when one ends ---- */

static struct remote_call *calls[8];
static size_t ncalls;

void remote_call_begin(struct remote_link *link, struct remote_call *call)
{
	(void)link;
	assert_true(ncalls < SBX_ARRAY_SIZE(calls));
	calls[ncalls++] = call;
}

const struct remote_frame *remote_reply_next(const struct remote_reply *reply, size_t *at,
                                             enum remote_frame_kind kind, const char *word)
{
	(void)reply;
	(void)at;
	(void)kind;
	(void)word;
	return NULL;
}

void remote_reply_release(struct remote_reply *reply)
{
	(void)reply;
}

/* The oldest call. */
static void call_end(int code)
{
	struct remote_call *call = calls[0];
	struct remote_reply reply = {0};
	struct sbx_error err = SBX_ERROR_INIT;

	assert_true(ncalls > 0);
	memmove(calls, calls + 1, --ncalls * sizeof(*calls));
	remote_text_release(&call->body);
	call->done(call, code ? sbx_fail(&err, -code, "no answer") : 0, code ? NULL : &reply, &err);
	run_posted();
}

/* ---- rides and wants ---- */

struct rider {
	struct remote_ride ride;
	bool ready;
	int code;
};

static void on_ready(struct remote_ride *ride, int code, const struct sbx_error *err)
{
	struct rider *r = sbx_container_of(ride, struct rider, ride);

	(void)err;
	assert_false(r->ready);
	r->ready = true;
	r->code = code;
}

static void board(struct rider *r)
{
	*r = (struct rider){.ride.ready = on_ready};
	remote_sync_board(sync_, &r->ride);
	run_posted();
}

static void land(struct rider *r, int code)
{
	struct remote_reply reply = {0};

	assert_true(r->ready && !r->code);
	remote_sync_landed(&r->ride, code, code ? NULL : &reply);
}

static void change(void)
{
	noted++;
	remote_sync_changed(sync_);
	run_posted();
}

static void want_done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	(void)err;
	*(int *)w->data = code;
}

/* An fsync that is answered by a put that fails. */
static void flush_in_vain(void)
{
	int code = 0;
	struct sbx_want w = {.need = SBX_NEED_SENT, .done = want_done, .data = &code};

	remote_sync_flush(sync_, &w);
	run_posted();
	load_end(-ECONNREFUSED);
	assert_int_equal(code, ECONNREFUSED);
}

/* The host changes something, and what is sent by itself fails: twice. */
static void fail_alone(void)
{
	remote_sync_busy(sync_, true); /* so that the timer alone says when */
	change();
	timer_end();
	load_end(-ECONNREFUSED);
	assert_int_equal(timer_ms, 5000);
	timer_end();
	load_end(-ECONNREFUSED);
	assert_int_equal(timer_ms, 10000);
}

static int set_up(void **state)
{
	const struct remote_sync_config config = {.sandbox = &sandbox};

	(void)state;
	noted = seen = 0;
	loads = 0;
	ncalls = 0;
	nposts = 0;
	loading = NULL;
	timer = NULL;
	assert_int_equal(remote_sync_create(&config, &sync_), 0);
	remote_sync_connect(sync_, (struct remote_link *)&sandbox);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remote_sync_fail(sync_, ESTALE, "it is over");
	run_posted();
	remote_sync_destroy(sync_);
	return 0;
}

/* ---- tests ---- */

static void a_ride_waits_for_nothing_that_was_changed_later(void **state)
{
	struct rider first, second;

	(void)state;
	change();
	board(&first);
	assert_int_equal(loads, 1);
	change();
	board(&second);
	load_end(0);
	assert_true(first.ready);
	assert_int_equal(remote_ride_seen(&first.ride), 1);
	assert_string_equal(first.ride.body.at, "batch 1\n");
	/* What the second is to see is put once the machine has the first batch. */
	assert_false(second.ready);
	assert_int_equal(ncalls, 1);
	change();
	call_end(0);
	assert_int_equal(seen, 1);
	assert_int_equal(loads, 2);
	load_end(0);
	assert_true(second.ready);
	assert_int_equal(remote_ride_seen(&second.ride), 2);
	assert_int_equal(ncalls, 0);
	land(&first, 0);
	land(&second, 0);
	assert_int_equal(seen, 2);
}

/* Ten thousand directories take longer than a call that brings none may. */
static void who_brings_a_batch_has_the_time_for_it(void **state)
{
	struct sbx_want w = {.need = SBX_NEED_SENT, .done = want_done, .data = &(int){0}};
	struct rider first, second, none;

	(void)state;
	change();
	board(&first);
	load_end(0);
	assert_int_equal(first.ride.apply_ms, 1000000);
	/* By a call of its own. */
	change();
	board(&second);
	assert_int_equal(ncalls, 1);
	assert_int_equal(calls[0]->deadline_ms, 1060000);
	call_end(0);
	load_end(0);
	land(&first, 0);
	land(&second, 0);
	change();
	remote_sync_flush(sync_, &w);
	run_posted();
	load_end(0);
	assert_int_equal(ncalls, 1);
	assert_int_equal(calls[0]->deadline_ms, 1060000);
	call_end(0);
	board(&none);
	assert_int_equal(none.ride.apply_ms, 0);
	land(&none, 0);
}

static void a_ride_that_needs_nothing_is_ready_at_once(void **state)
{
	struct rider r;

	(void)state;
	board(&r);
	assert_true(r.ready);
	assert_null(r.ride.body.at);
	land(&r, 0);
	assert_int_equal(loads, 0);
}

static void a_ride_that_lands_ends_the_pause_of_what_failed(void **state)
{
	struct rider r;

	(void)state;
	fail_alone();
	board(&r);
	load_end(0);
	/* It carries what was changed; what is changed since waits no longer than ever. */
	change();
	assert_int_equal(timer_ms, 10000);
	land(&r, 0);
	assert_int_equal(timer_ms, 200);
	timer_end();
	load_end(-ECONNREFUSED);
	assert_int_equal(timer_ms, 5000);
}

static void a_ride_that_fails_ends_no_pause(void **state)
{
	struct rider r;

	(void)state;
	fail_alone();
	board(&r);
	load_end(0);
	land(&r, -ETIMEDOUT);
	assert_int_equal(timer_ms, 10000);
}

static void a_flush_ends_the_pause_of_what_failed(void **state)
{
	int code = -1;
	struct sbx_want w = {.need = SBX_NEED_SENT, .done = want_done, .data = &code};

	(void)state;
	fail_alone();
	remote_sync_flush(sync_, &w);
	run_posted();
	load_end(0);
	change();
	call_end(0);
	assert_int_equal(code, 0);
	assert_int_equal(timer_ms, 200);
}

static void who_asks_in_vain_makes_no_pause_longer(void **state)
{
	(void)state;
	fail_alone();
	for (int i = 0; i < 7; i++)
		flush_in_vain();
	assert_int_equal(timer_ms, 10000);
	timer_end();
	load_end(-ECONNREFUSED);
	assert_int_equal(timer_ms, 20000);
}

/* The machine may be there again, and whoever edits files hears of it by nothing else. */
static void an_edit_shortens_a_long_pause(void **state)
{
	(void)state;
	fail_alone();
	change();
	assert_int_equal(timer_ms, 10000);
	timer_end();
	load_end(-ECONNREFUSED);
	assert_int_equal(timer_ms, 20000);
	change();
	assert_in_range(timer_ms, 2000, 15000);
	timer_end();
	load_end(-ECONNREFUSED);
	assert_int_equal(timer_ms, 40000);
}

/* The timer has ended while an fsync was under way: what that did not send has one again. */
static void what_a_flush_did_not_send_is_sent_by_itself(void **state)
{
	int code = 0;
	struct sbx_want w = {.need = SBX_NEED_SENT, .done = want_done, .data = &code};

	(void)state;
	remote_sync_busy(sync_, true);
	change();
	remote_sync_flush(sync_, &w);
	run_posted();
	timer_end();
	assert_null(timer);
	load_end(-ECONNREFUSED);
	assert_int_equal(code, ECONNREFUSED);
	assert_non_null(timer);
	assert_int_equal(timer_ms, 5000);
}

/* The host goes on changing files: that is no reason to let anybody wait. */
static void what_is_awaited_waits_for_no_more(void **state)
{
	(void)state;
	change();
	assert_int_equal(timer_ms, 2000);
	remote_sync_awaited(sync_);
	run_posted();
	assert_int_equal(timer_ms, 200);
	change();
	assert_int_equal(loads, 0);
	timer_end();
	assert_int_equal(loads, 1);
	load_end(0);
	change();
	assert_int_equal(timer_ms, 2000);
}

/* A machine that does not answer is asked no sooner. */
static void what_is_awaited_ends_no_pause(void **state)
{
	(void)state;
	fail_alone();
	remote_sync_busy(sync_, false);
	remote_sync_awaited(sync_);
	run_posted();
	assert_true(timer_ms >= 9000);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_ride_waits_for_nothing_that_was_changed_later),
	        CASE(who_brings_a_batch_has_the_time_for_it),
	        CASE(a_ride_that_needs_nothing_is_ready_at_once),
	        CASE(a_ride_that_lands_ends_the_pause_of_what_failed),
	        CASE(a_ride_that_fails_ends_no_pause),
	        CASE(a_flush_ends_the_pause_of_what_failed),
	        CASE(who_asks_in_vain_makes_no_pause_longer),
	        CASE(an_edit_shortens_a_long_pause),
	        CASE(what_a_flush_did_not_send_is_sent_by_itself),
	        CASE(what_is_awaited_waits_for_no_more),
	        CASE(what_is_awaited_ends_no_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
