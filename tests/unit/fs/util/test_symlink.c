#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/util/symlink.h"
#include "tests/lib/tmp.h"

#define VIEW "/mnt/fix-1"

static char base[256];
static int root;

static int set_up(void **state)
{
	(void)state;
	if (!tmp_make(base, sizeof(base), "sandboxfs-confine"))
		return -1;
	root = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0 || mkdirat(root, "a", 0755) || mkdirat(root, "a/b", 0755) ||
	       symlinkat("/etc", root, "planted") || symlinkat("..", root, "a/up") ||
	       symlinkat("../..", root, "a/upup") || symlinkat("a", root, "inner");
}

static int tear_down(void **state)
{
	(void)state;
	unlinkat(root, "planted", 0);
	unlinkat(root, "inner", 0);
	unlinkat(root, "a/up", 0);
	unlinkat(root, "a/upup", 0);
	unlinkat(root, "a/b", AT_REMOVEDIR);
	unlinkat(root, "a", AT_REMOVEDIR);
	close(root);
	return rmdir(base);
}

static int link_in(const char *dir, const char *target)
{
	struct sbx_error err = {0};
	int r = sbx_symlink_check(root, dir, target, VIEW, &err);

	assert_true((r == 0) == (err.text[0] == '\0'));
	return r;
}

static void relative_targets_inside_are_allowed(void **state)
{
	(void)state;
	assert_int_equal(link_in("", "a"), 0);
	assert_int_equal(link_in("", "./a/b"), 0);
	assert_int_equal(link_in("", "."), 0);
	assert_int_equal(link_in("a/b", "../.."), 0);
	assert_int_equal(link_in("a/b", "../../a/new"), 0);
	assert_int_equal(link_in("a", "../inner/b"), 0);
}

static void dangling_targets_inside_are_allowed(void **state)
{
	(void)state;
	assert_int_equal(link_in("", "no/such/file"), 0);
	assert_int_equal(link_in("a", "../nothing"), 0);
}

static void climbing_past_the_root_is_refused(void **state)
{
	(void)state;
	assert_int_equal(link_in("", ".."), -EACCES);
	assert_int_equal(link_in("", "../other"), -EACCES);
	assert_int_equal(link_in("a", "../.."), -EACCES);
	assert_int_equal(link_in("a/b", "../../../x"), -EACCES);
	assert_int_equal(link_in("", "./.."), -EACCES);
	assert_int_equal(link_in("", ".//..//x"), -EACCES);
}

static void climbing_behind_a_name_is_judged_by_where_that_leads(void **state)
{
	(void)state;
	assert_int_equal(link_in("", "a/../x"), 0);
	assert_int_equal(link_in("a/b", "../b/../../x"), 0);
	assert_int_equal(link_in("", "a/../.."), -EACCES);
	assert_int_equal(link_in("a", "b/../../../x"), -EACCES);
	assert_int_equal(link_in("", "inner/b/../.."), 0);
	assert_int_equal(link_in("", "inner/../.."), -EACCES);
	/* The link is in a directory, and leads to the root. */
	assert_int_equal(link_in("", "a/up/.."), -EACCES);
	/* The kernel goes no further. */
	assert_int_equal(link_in("", "missing/../../x"), 0);
}

static void such_a_climb_is_told_from_one_in_front(void **state)
{
	(void)state;
	assert_true(sbx_symlink_is_steep("a/.."));
	assert_true(sbx_symlink_is_steep("../a/./../b"));
	assert_true(sbx_symlink_is_steep("/mnt/fix-1/a/.."));
	assert_false(sbx_symlink_is_steep("../../a/b"));
	assert_false(sbx_symlink_is_steep("./..//../a..b/.../c"));
	assert_false(sbx_symlink_is_steep(VIEW));
	assert_false(sbx_symlink_is_steep(""));
}

static void absolute_targets_are_allowed_below_the_view_only(void **state)
{
	(void)state;
	assert_int_equal(link_in("", VIEW), 0);
	assert_int_equal(link_in("a", VIEW "/a/b"), 0);
	assert_int_equal(link_in("a", "/./mnt//fix-1/./a"), 0);
	assert_int_equal(link_in("", "/etc/passwd"), -EACCES);
	assert_int_equal(link_in("", "/"), -EACCES);
	assert_int_equal(link_in("", "/mnt"), -EACCES);
	assert_int_equal(link_in("", VIEW "0/secret"), -EACCES);
	assert_int_equal(link_in("a", VIEW "/../other"), -EACCES);
	assert_int_equal(link_in("a", VIEW "/../fix-1/a"), 0);
	assert_int_equal(link_in("a", "/etc/.." VIEW), -EACCES);
}

static void climbing_above_the_root_may_only_come_back(void **state)
{
	(void)state;
	assert_int_equal(link_in("", "../fix-1/a"), 0);
	assert_int_equal(link_in("a/b", "../../../../mnt/fix-1/x"), 0);
	assert_int_equal(link_in("", "../fix-1/../other"), -EACCES);
	assert_int_equal(link_in("", "../fix-10"), -EACCES);
	assert_int_equal(link_in("", "../fix-1/.."), -EACCES);
}

static void absolute_links_on_the_way_are_followed(void **state)
{
	(void)state;
	assert_int_equal(symlinkat(VIEW "/a", root, "abs"), 0);
	assert_int_equal(symlinkat(VIEW "/abs/b", root, "a/chain"), 0);
	assert_int_equal(symlinkat(VIEW "/..", root, "absout"), 0);
	assert_int_equal(symlinkat(VIEW "/round2", root, "round1"), 0);
	assert_int_equal(symlinkat("round1", root, "round2"), 0);
	assert_int_equal(link_in("", "abs"), 0);
	assert_int_equal(link_in("", "abs/chain/.."), 0);
	assert_int_equal(link_in("", "abs/../.."), -EACCES);
	assert_int_equal(link_in("", "abs/chain/../../x"), 0);
	assert_int_equal(link_in("", "abs/chain/../../../x"), -EACCES);
	assert_int_equal(link_in("", "abs/missing/x"), 0);
	assert_int_equal(link_in("", "absout/x"), -EACCES);
	assert_int_equal(link_in("", "abs/upup/x"), -EACCES);
	assert_int_equal(link_in("", "round1"), 0);
	for (int i = 0; i < 5; i++) {
		static const char *const made[] = {"abs", "a/chain", "absout", "round1", "round2"};

		assert_int_equal(unlinkat(root, made[i], 0), 0);
	}
}

static void leading_through_another_link_is_judged_by_where_that_leads(void **state)
{
	(void)state;
	assert_int_equal(link_in("", "planted/passwd"), -EACCES);
	assert_int_equal(link_in("", "a/up"), 0);
	assert_int_equal(link_in("", "a/upup/x"), -EACCES);
	assert_int_equal(link_in("", "inner/b"), 0);
}

static void magic_links_are_refused(void **state)
{
	(void)state;
	assert_int_equal(symlinkat("/proc/self/root", root, "magic"), 0);
	assert_int_equal(link_in("", "magic/etc"), -EACCES);
	assert_int_equal(unlinkat(root, "magic", 0), 0);
}

static void a_target_may_be_as_long_as_the_kernel_has_it(void **state)
{
	char target[PATH_MAX];

	(void)state;
	memset(target, 'x', sizeof(target) - 1);
	target[sizeof(target) - 1] = '\0';
	assert_int_equal(link_in("a/b", target), 0);
	for (int i = 1; i < (int)sizeof(target) - 1; i += 2)
		target[i] = '/';
	assert_int_equal(link_in("a/b", target), 0);
	memset(target, '.', sizeof(target) - 1);
	for (int i = 1; i < (int)sizeof(target) - 1; i += 2)
		target[i] = '/';
	assert_int_equal(link_in("a/b", target), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(relative_targets_inside_are_allowed),
	        cmocka_unit_test(dangling_targets_inside_are_allowed),
	        cmocka_unit_test(climbing_past_the_root_is_refused),
	        cmocka_unit_test(climbing_behind_a_name_is_judged_by_where_that_leads),
	        cmocka_unit_test(such_a_climb_is_told_from_one_in_front),
	        cmocka_unit_test(absolute_targets_are_allowed_below_the_view_only),
	        cmocka_unit_test(climbing_above_the_root_may_only_come_back),
	        cmocka_unit_test(absolute_links_on_the_way_are_followed),
	        cmocka_unit_test(leading_through_another_link_is_judged_by_where_that_leads),
	        cmocka_unit_test(magic_links_are_refused),
	        cmocka_unit_test(a_target_may_be_as_long_as_the_kernel_has_it),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
