#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#include "sandboxfs/loop.h"

static struct sbx_loop *loop;
static char trail[32];

static int set_up(void **state)
{
	(void)state;
	memset(trail, 0, sizeof(trail));
	return sbx_loop_create(&loop);
}

static int tear_down(void **state)
{
	(void)state;
	sbx_loop_destroy(loop);
	return 0;
}

static void mark(const char *c)
{
	trail[strlen(trail)] = *c;
}

static void mark_posted(void *data)
{
	mark(data);
}

static void stop_posted(void *data)
{
	(void)data;
	sbx_loop_stop(loop);
}

static void mark_timer(struct sbx_timer *t)
{
	mark(t->data);
	if (*(char *)t->data == 'z')
		sbx_loop_stop(loop);
}

static void posted_work_runs_in_order(void **state)
{
	(void)state;
	sbx_loop_post(loop, mark_posted, "a");
	sbx_loop_post(loop, mark_posted, "b");
	sbx_loop_post(loop, stop_posted, NULL);
	sbx_loop_run(loop);
	assert_string_equal(trail, "ab");
}

static void timers_fire_in_order_of_their_time(void **state)
{
	struct sbx_timer z = {.fn = mark_timer, .data = "z"};
	struct sbx_timer a = {.fn = mark_timer, .data = "a"};
	struct sbx_timer b = {.fn = mark_timer, .data = "b"};
	struct sbx_timer never = {.fn = mark_timer, .data = "n"};

	(void)state;
	sbx_loop_timer_set(loop, &z, 9);
	sbx_loop_timer_set(loop, &never, 2);
	sbx_loop_timer_set(loop, &b, 5);
	sbx_loop_timer_set(loop, &a, 1);
	sbx_loop_timer_cancel(loop, &never);
	sbx_loop_run(loop);
	assert_string_equal(trail, "abz");
}

static void arming_an_armed_timer_moves_it(void **state)
{
	struct sbx_timer a = {.fn = mark_timer, .data = "a"};
	struct sbx_timer z = {.fn = mark_timer, .data = "z"};

	(void)state;
	sbx_loop_timer_set(loop, &a, 1000000);
	sbx_loop_timer_set(loop, &a, 1);
	sbx_loop_timer_set(loop, &z, 4);
	sbx_loop_run(loop);
	assert_string_equal(trail, "az");
}

static struct sbx_watch pair[2];

static void drop_other(struct sbx_watch *w, uint32_t events)
{
	assert_true(events & EPOLLIN);
	mark("w");
	sbx_loop_unwatch(loop, w == &pair[0] ? &pair[1] : &pair[0]);
	sbx_loop_stop(loop);
}

static void unwatched_in_the_same_batch_is_not_called(void **state)
{
	int a[2], b[2];

	(void)state;
	assert_int_equal(pipe(a), 0);
	assert_int_equal(pipe(b), 0);
	assert_int_equal(write(a[1], "x", 1), 1);
	assert_int_equal(write(b[1], "x", 1), 1);
	pair[0] = (struct sbx_watch){.fd = a[0], .fn = drop_other};
	pair[1] = (struct sbx_watch){.fd = b[0], .fn = drop_other};
	assert_int_equal(sbx_loop_watch(loop, &pair[0], EPOLLIN), 0);
	assert_int_equal(sbx_loop_watch(loop, &pair[1], EPOLLIN), 0);
	sbx_loop_run(loop);
	assert_string_equal(trail, "w");
	for (int i = 0; i < 2; i++) {
		close(a[i]);
		close(b[i]);
	}
}

static void post_again(struct sbx_timer *t)
{
	sbx_loop_post(loop, mark_posted, "b");
	sbx_loop_post(loop, t->data ? stop_posted : mark_posted, "c");
	mark("a");
}

/* Nothing else would wake it. */
static void work_posted_by_the_loop_itself_runs(void **state)
{
	struct sbx_timer t[2] = {{.fn = post_again}, {.fn = post_again, .data = trail}};

	(void)state;
	sbx_loop_timer_set(loop, &t[0], 0);
	sbx_loop_timer_set(loop, &t[1], 20);
	sbx_loop_run(loop);
	assert_string_equal(trail, "abcab");
}

static void post_more(void *data)
{
	mark("p");
	sbx_loop_post(loop, data ? post_more : stop_posted, NULL);
}

static void work_that_posts_work_is_followed_by_it(void **state)
{
	(void)state;
	sbx_loop_post(loop, post_more, trail);
	sbx_loop_run(loop);
	assert_string_equal(trail, "pp");
}

static void destroy_runs_what_was_posted(void **state)
{
	struct sbx_loop *other;

	(void)state;
	assert_int_equal(sbx_loop_create(&other), 0);
	sbx_loop_post(other, mark_posted, "d");
	sbx_loop_destroy(other);
	assert_string_equal(trail, "d");
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(posted_work_runs_in_order),
	        CASE(timers_fire_in_order_of_their_time),
	        CASE(arming_an_armed_timer_moves_it),
	        CASE(unwatched_in_the_same_batch_is_not_called),
	        CASE(work_posted_by_the_loop_itself_runs),
	        CASE(work_that_posts_work_is_followed_by_it),
	        CASE(destroy_runs_what_was_posted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
