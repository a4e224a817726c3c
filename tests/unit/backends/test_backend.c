#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"

static void expect_name(const char *name, int r)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_name_check(name, &err), r);
	assert_int_equal(err.code, -r);
	assert_int_equal(err.text[0] != '\0', r != 0);
}

static void good_names_are_accepted(void **state)
{
	char longest[64];

	(void)state;
	memset(longest, 'a', 63);
	longest[63] = '\0';
	expect_name("a", 0);
	expect_name("0", 0);
	expect_name("Fix-1_b.c", 0);
	expect_name("ctl2", 0);
	expect_name("a..b", 0);
	expect_name(longest, 0);
}

static void bad_names_are_refused(void **state)
{
	static const char *const names[] = {"",   ".",   "..",     "-x",    "_x",       ".git",
	                                    "a/", "a b", "a\n",    "a\x7f", "\xc3\xa9", "a\xff",
	                                    "*",  "ctl", "README", "a:b",   "a@b"};
	char too_long[65];

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++)
		expect_name(names[i], -EINVAL);
	memset(too_long, 'a', 64);
	too_long[64] = '\0';
	expect_name(too_long, -EINVAL);
}

static void expect_open(const char *backend, int r, const char *words)
{
	struct sbx_settings settings = {.backend = (char *)(uintptr_t)backend};
	struct sbx_host host = {.settings = &settings};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_backend *b = NULL;

	assert_int_equal(sbx_backend_open(&host, &b, &err), r);
	assert_non_null(strstr(err.text, words));
	assert_null(b);
}

static void unknown_backends_are_refused(void **state)
{
	(void)state;
	expect_open("nonsense", -EINVAL, "nonsense");
	expect_open("", -EINVAL, "unknown backend");
}

static void known_but_absent_backends_say_so(void **state)
{
	(void)state;
	expect_open("daytona", -EOPNOTSUPP, "Daytona sandbox not yet implemented");
	expect_open("vercel", -EOPNOTSUPP, "not yet implemented");
	expect_open("dagger", -EOPNOTSUPP, "not yet implemented");
}

static void local_needs_a_state_directory(void **state)
{
	(void)state;
	expect_open("local", -EINVAL, "state directory");
	expect_open(NULL, -EINVAL, "state directory");
}

static int nothing_root(struct sbx_sandbox *sb)
{
	(void)sb;
	return 7;
}

static void absent_members_have_an_answer(void **state)
{
	static const struct sbx_sandbox_impl impl = {.root = nothing_root};
	struct sbx_sandbox sb = {.impl = &impl};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_sandbox_root(&sb), 7);
	assert_int_equal(sbx_sandbox_rename(&sb, "x", &err), -EOPNOTSUPP);
	assert_int_equal(sbx_sandbox_rename(&sb, "ctl", &err), -EINVAL);
	assert_int_equal(sbx_sandbox_exec(&sb, NULL, NULL, &err), -EOPNOTSUPP);
	assert_int_equal(sbx_sandbox_barrier(&sb, true, &err), 0);
	sbx_sandbox_info(&sb, NULL);
	sbx_sandbox_policy(&sb, NULL);
	sbx_sandbox_close(NULL);
	sbx_backend_destroy(NULL);
}

static void who_wants_no_socket_leaves_none_open(void **state)
{
	struct sbx_sandbox sb = {0};
	const struct sbx_sandbox_events silent = {0};
	int fd = dup(STDERR_FILENO);

	(void)state;
	sbx_sandbox_listening(&sb, fd);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	sb.events = &silent;
	assert_int_equal(dup2(STDERR_FILENO, fd), fd);
	sbx_sandbox_listening(&sb, fd);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(good_names_are_accepted),
	        cmocka_unit_test(bad_names_are_refused),
	        cmocka_unit_test(unknown_backends_are_refused),
	        cmocka_unit_test(known_but_absent_backends_say_so),
	        cmocka_unit_test(local_needs_a_state_directory),
	        cmocka_unit_test(absent_members_have_an_answer),
	        cmocka_unit_test(who_wants_no_socket_leaves_none_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
