#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/remote/touched.h"

static void add(struct remote_touched *t, enum sbx_change_kind kind, const char *path,
                const char *to, uint64_t batch)
{
	const struct sbx_change c = {.kind = kind, .path = path, .to = to};

	assert_int_equal(remote_touched_add(t, &c, batch), 0);
}

static void contents_touch_the_file_alone(void **state)
{
	struct remote_touched t = {0};

	(void)state;
	add(&t, SBX_CHANGE_DATA, "d/a", NULL, 5);
	assert_true(remote_touched_since(&t, "d/a", 4));
	assert_false(remote_touched_since(&t, "d/a", 5));
	assert_false(remote_touched_since(&t, "d", 4));
	assert_false(remote_touched_since(&t, "d/ab", 4));
	assert_false(remote_touched_since(&t, "d/a/b", 4));
	remote_touched_release(&t);
}

static void a_name_touches_what_is_above_and_below(void **state)
{
	struct remote_touched t = {0};

	(void)state;
	add(&t, SBX_CHANGE_MOVED, "x/d", "y/e", 5);
	assert_true(remote_touched_since(&t, "", 4));
	assert_true(remote_touched_since(&t, "x", 4));
	assert_true(remote_touched_since(&t, "y", 4));
	assert_true(remote_touched_since(&t, "x/d/deep/below", 4));
	assert_true(remote_touched_since(&t, "y/e/deep/below", 4));
	assert_false(remote_touched_since(&t, "x/other", 4));
	assert_false(remote_touched_since(&t, "y/e/deep", 5));
	remote_touched_release(&t);
}

static void a_file_is_touched_by_any_name(void **state)
{
	const struct sbx_change data = {.kind = SBX_CHANGE_DATA, .path = "a", .ino = 12},
	                        moved = {.kind = SBX_CHANGE_MOVED,
	                                 .path = "b",
	                                 .to = "c",
	                                 .ino = 13};
	struct remote_touched t = {0};

	(void)state;
	assert_int_equal(remote_touched_add(&t, &data, 5), 0);
	assert_int_equal(remote_touched_add(&t, &moved, 5), 0);
	assert_true(remote_touched_file_since(&t, 12, 4));
	assert_false(remote_touched_file_since(&t, 12, 5));
	assert_false(remote_touched_file_since(&t, 1, 4));
	assert_false(remote_touched_file_since(&t, 13, 4));
	remote_touched_forget(&t, 5);
	assert_true(remote_touched_file_since(&t, 1, 4));
	assert_false(remote_touched_file_since(&t, 12, 5));
	remote_touched_release(&t);
}

static void what_is_forgotten_counts_as_touched(void **state)
{
	struct remote_touched t = {0};

	(void)state;
	add(&t, SBX_CHANGE_DATA, "a", NULL, 5);
	add(&t, SBX_CHANGE_DATA, "b", NULL, 7);
	remote_touched_forget(&t, 6);
	assert_int_equal(t.by_path.n, 1);
	assert_true(remote_touched_since(&t, "never", 5));
	assert_false(remote_touched_since(&t, "a", 6));
	assert_true(remote_touched_since(&t, "b", 6));
	remote_touched_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(contents_touch_the_file_alone),
	        cmocka_unit_test(a_name_touches_what_is_above_and_below),
	        cmocka_unit_test(a_file_is_touched_by_any_name),
	        cmocka_unit_test(what_is_forgotten_counts_as_touched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
