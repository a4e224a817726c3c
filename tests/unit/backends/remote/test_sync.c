/* Who waits for what, over a journal, parcels and calls that the test plays. */
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

static struct sbx_loop *loop;
static struct remote_sync *sync_;
static struct sbx_sandbox sandbox;

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
                     bool *altered, struct sbx_error *err)
{
	(void)t;
	(void)reply;
	(void)batch;
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

/* All that is posted. */
static void run_posted(void)
{
	sbx_loop_stop(loop);
	sbx_loop_run(loop);
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
}

static int set_up(void **state)
{
	const struct remote_sync_config config = {.sandbox = &sandbox};
	struct remote_sync_config here = config;

	(void)state;
	noted = seen = 0;
	loads = 0;
	ncalls = 0;
	loading = NULL;
	assert_int_equal(sbx_loop_create(&loop), 0);
	here.loop = loop;
	assert_int_equal(remote_sync_create(&here, &sync_), 0);
	remote_sync_connect(sync_, (struct remote_link *)&sandbox);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remote_sync_fail(sync_, ESTALE, "it is over");
	run_posted();
	remote_sync_destroy(sync_);
	sbx_loop_destroy(loop);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(a_ride_waits_for_nothing_that_was_changed_later,
	                                        set_up, tear_down),
	        cmocka_unit_test_setup_teardown(a_ride_that_needs_nothing_is_ready_at_once, set_up,
	                                        tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
