#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/clock.h"
#include "tests/lib/tree_fixture.h"

static void test_filled_at_once(void **state)
{
	struct remote_tree_stats stats;
	struct stat st;

	(void)state;
	at_machine("mkdir -p a/b; echo one >a/f; echo two >a/b/g; : >empty; chmod 755 a/f;"
	           "ln -s f a/link; ln -s '%s/a/f' absolute; mkfifo pipe; touch -d @1000.5 a/f",
	           tf.link.tree);
	refresh(true);
	assert_int_equal(tf.link.calls, 1);
	assert_int_equal(count_names(""), 4);
	expect_file("a/f", "one\n");
	expect_file("a/b/g", "two\n");
	expect_file("empty", "");
	assert_int_equal(tf.link.calls, 1);
	assert_int_equal(fstatat(tf.root, "a/f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(sbx_timespec_ns(&st.st_mtim), INT64_C(1000500000000));
	assert_int_equal(fstatat(tf.root, "absolute", &st, 0), 0);
	assert_int_equal(fstatat(tf.root, "pipe", &st, 0), 0);
	assert_true(S_ISFIFO(st.st_mode));
	remote_tree_stats(tf.tree, &stats);
	assert_int_equal(stats.files, 3);
	assert_int_equal(stats.here, 3);
	assert_int_equal(stats.bytes, 8);
}

static void test_names_then_data(void **state)
{
	struct stat st;

	(void)state;
	at_machine("mkdir -p a/b/c/d/e; echo deep >a/b/c/d/e/f; echo hello >top");
	assert_false(is_here("", SBX_NEED_NAMES));
	assert_int_equal(wait_for("top", SBX_NEED_ATTR), 0);
	assert_int_equal(fstatat(tf.root, "top", &st, 0), 0);
	assert_int_equal(st.st_size, 6);
	assert_false(is_here("top", SBX_NEED_DATA));
	expect_file("top", "hello\n");
	expect_file("a/b/c/d/e/f", "deep\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_filled_at_once, tree_setup, tree_teardown),
	        cmocka_unit_test_setup_teardown(test_names_then_data, tree_setup, tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
