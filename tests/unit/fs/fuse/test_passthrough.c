/* The kind of open that holds for a file, and how long its id is kept. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fs/fuse/passthrough.h"

#define BOX 7

static struct sbx_passthrough *pt;
static int opened, closed, last_closed, refusal;

static int fake_open(void *data, int fd)
{
	(void)data;
	(void)fd;
	return refusal ? refusal : ++opened;
}

static void fake_close(void *data, int id)
{
	(void)data;
	closed++;
	last_closed = id;
}

static int setup(void **state)
{
	static const struct sbx_backing_calls calls = {fake_open, fake_close, NULL};

	(void)state;
	opened = closed = last_closed = refusal = 0;
	return sbx_passthrough_create(&calls, 2, &pt);
}

static int teardown(void **state)
{
	(void)state;
	sbx_passthrough_destroy(pt);
	return 0;
}

static void the_first_open_decides_for_the_others(void **state)
{
	(void)state;
	assert_int_equal(sbx_passthrough_join(pt, 1), -ENOENT);
	assert_int_equal(sbx_passthrough_choose(pt, 1, BOX, -1), 0);
	assert_int_equal(sbx_passthrough_join(pt, 1), 0);
	assert_int_equal(sbx_passthrough_choose(pt, 1, BOX, 3), 0);
	assert_int_equal(sbx_passthrough_choose(pt, 2, BOX, 3), 1);
	assert_int_equal(sbx_passthrough_join(pt, 2), 1);
	assert_int_equal(sbx_passthrough_choose(pt, 2, BOX, -1), 1);
	assert_int_equal(opened, 1);
}

static void cached_kind_ends_with_the_last_release(void **state)
{
	(void)state;
	sbx_passthrough_choose(pt, 1, BOX, -1);
	sbx_passthrough_join(pt, 1);
	sbx_passthrough_release(pt, 1);
	assert_int_equal(sbx_passthrough_join(pt, 1), 0);
	sbx_passthrough_release(pt, 1);
	sbx_passthrough_release(pt, 1);
	assert_int_equal(sbx_passthrough_join(pt, 1), -ENOENT);
	assert_int_equal(sbx_passthrough_choose(pt, 1, BOX, 3), 1);
}

static void id_is_kept_for_the_next_open(void **state)
{
	(void)state;
	assert_int_equal(sbx_passthrough_choose(pt, 1, BOX, 3), 1);
	sbx_passthrough_release(pt, 1);
	assert_int_equal(closed, 0);
	assert_int_equal(sbx_passthrough_join(pt, 1), 1);
	assert_int_equal(opened, 1);
}

static void least_recently_used_id_goes_first(void **state)
{
	(void)state;
	for (uint64_t node = 1; node <= 3; node++)
		assert_int_equal(sbx_passthrough_choose(pt, node, BOX, 3), node);
	for (uint64_t node = 1; node <= 2; node++)
		sbx_passthrough_release(pt, node);
	assert_int_equal(sbx_passthrough_join(pt, 1), 1);
	sbx_passthrough_release(pt, 1);
	sbx_passthrough_release(pt, 3);
	assert_int_equal(closed, 1);
	assert_int_equal(last_closed, 2);
	assert_int_equal(sbx_passthrough_join(pt, 2), -ENOENT);
}

static void any_number_may_be_open(void **state)
{
	(void)state;
	for (uint64_t node = 1; node <= 5000; node++)
		assert_int_equal(sbx_passthrough_choose(pt, node, BOX, 3), node);
	assert_int_equal(closed, 0);
	for (uint64_t node = 1; node <= 5000; node++)
		sbx_passthrough_release(pt, node);
	assert_int_equal(closed, 4998);
}

static void forgotten_node_keeps_its_id_while_open(void **state)
{
	(void)state;
	sbx_passthrough_choose(pt, 1, BOX, 3);
	sbx_passthrough_forget(pt, 1);
	assert_int_equal(closed, 0);
	sbx_passthrough_release(pt, 1);
	assert_int_equal(closed, 1);
	sbx_passthrough_choose(pt, 2, BOX, 3);
	sbx_passthrough_release(pt, 2);
	sbx_passthrough_forget(pt, 2);
	assert_int_equal(closed, 2);
	sbx_passthrough_forget(pt, 3);
}

static void torn_down_sandbox_keeps_none(void **state)
{
	(void)state;
	sbx_passthrough_choose(pt, 1, BOX, 3);
	sbx_passthrough_choose(pt, 2, BOX, 3);
	sbx_passthrough_choose(pt, 3, BOX + 1, 3);
	sbx_passthrough_release(pt, 2);
	sbx_passthrough_release(pt, 3);
	sbx_passthrough_drop_box(pt, BOX);
	assert_int_equal(closed, 1);
	assert_int_equal(last_closed, 2);
	sbx_passthrough_release(pt, 1);
	assert_int_equal(closed, 2);
	assert_int_equal(sbx_passthrough_join(pt, 3), 3);
}

static void what_the_kernel_refuses_goes_through_the_cache(void **state)
{
	(void)state;
	refusal = -ELOOP;
	assert_int_equal(sbx_passthrough_choose(pt, 1, BOX, 3), 0);
	refusal = 0;
	assert_int_equal(sbx_passthrough_join(pt, 1), 0);
	sbx_passthrough_release(pt, 1);
	sbx_passthrough_release(pt, 1);
	assert_int_equal(sbx_passthrough_choose(pt, 1, BOX, 3), 1);
}

static void destroy_closes_every_id(void **state)
{
	(void)state;
	sbx_passthrough_choose(pt, 1, BOX, 3);
	sbx_passthrough_choose(pt, 2, BOX, 3);
	sbx_passthrough_release(pt, 2);
	sbx_passthrough_destroy(pt);
	pt = NULL;
	assert_int_equal(closed, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(the_first_open_decides_for_the_others, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(cached_kind_ends_with_the_last_release, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(id_is_kept_for_the_next_open, setup, teardown),
	        cmocka_unit_test_setup_teardown(least_recently_used_id_goes_first, setup, teardown),
	        cmocka_unit_test_setup_teardown(any_number_may_be_open, setup, teardown),
	        cmocka_unit_test_setup_teardown(forgotten_node_keeps_its_id_while_open, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(torn_down_sandbox_keeps_none, setup, teardown),
	        cmocka_unit_test_setup_teardown(what_the_kernel_refuses_goes_through_the_cache,
	                                        setup, teardown),
	        cmocka_unit_test_setup_teardown(destroy_closes_every_id, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
