/* The label of a state directory: it stays, and no other directory has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/label.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

/* Of all: containers that mount the same source at the same place have no other. */
#define PATH "/home/user/.local/state/sandboxfs/mnt"

static int setup(void **state)
{
	(void)state;
	scratch_make();
	scratch_mkdir(scratch_path("a"));
	scratch_mkdir(scratch_path("b"));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scratch_remove();
	return 0;
}

static char *label_of(const char *name, const char *path)
{
	_cleanup_fd_ int dir = sbx_dir_open(-1, scratch_path("%s", name));
	struct sbx_error err = SBX_ERROR_INIT;
	char *label = NULL;

	if (remote_label(dir, path, &label, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(strlen(label), 16);
	return label;
}

static void a_directory_keeps_its_label(void **state)
{
	_cleanup_free_ char *first = label_of("a", PATH), *again = label_of("a", PATH);

	(void)state;
	assert_string_equal(first, again);
	assert_int_equal(scratch_count(scratch_path("a")), 1);
}

static void two_at_one_path_have_two(void **state)
{
	_cleanup_free_ char *a = label_of("a", PATH), *b = label_of("b", PATH);

	(void)state;
	assert_string_not_equal(a, b);
}

static void a_copy_elsewhere_has_another(void **state)
{
	_cleanup_free_ char *here = label_of("a", PATH), *there = label_of("a", PATH ".copy");

	(void)state;
	assert_string_not_equal(here, there);
}

static void one_that_is_damaged_is_drawn_anew(void **state)
{
	static const char *const texts[] = {"", "0123456789abcdef0123456789abcde",
	                                    "0123456789abcdef0123456789abcdeG",
	                                    "0123456789abcdef0123456789abcdef0"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++) {
		scratch_write(scratch_path("a/label"), texts[i]);
		scratch_write(scratch_path("b/label"), texts[i]);
		two_at_one_path_have_two(NULL);
		a_directory_keeps_its_label(NULL);
	}
}

static void without_a_place_for_it_there_is_none(void **state)
{
	_cleanup_fd_ int dir = sbx_dir_open(-1, scratch_path("a"));
	struct sbx_error err = SBX_ERROR_INIT;
	char *label = NULL;

	(void)state;
	scratch_mkdir(scratch_path("a/label"));
	assert_true(remote_label(dir, PATH, &label, &err) < 0);
	assert_null(label);
	assert_non_null(strstr(err.text, PATH "/label cannot be kept: "));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_directory_keeps_its_label),          CASE(two_at_one_path_have_two),
	        CASE(a_copy_elsewhere_has_another),         CASE(one_that_is_damaged_is_drawn_anew),
	        CASE(without_a_place_for_it_there_is_none),
	};

	return cmocka_run_group_tests_name("label", tests, NULL, NULL);
}
