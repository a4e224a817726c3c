#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sandboxfs/grow.h"

struct item {
	uint64_t number;
	char text[24];
};

static void what_is_in_it_stays(void **state)
{
	struct item *at = NULL;
	size_t n = 0, cap = 0;

	(void)state;
	for (; n < 1000; n++) {
		assert_int_equal(SBX_GROW(at, n, cap, 3), 0);
		assert_true(n < cap);
		at[n] = (struct item){.number = n};
	}
	for (size_t i = 0; i < n; i++)
		assert_int_equal(at[i].number, i);
	assert_int_equal(cap, 1536);
	free(at);
}

static void there_is_room_already(void **state)
{
	struct item *at = NULL, *before;
	size_t cap = 0;

	(void)state;
	assert_int_equal(SBX_GROW(at, 0, cap, 2), 0);
	before = at;
	assert_int_equal(SBX_GROW(at, 1, cap, 2), 0);
	assert_ptr_equal(at, before);
	assert_int_equal(cap, 2);
	assert_int_equal(SBX_GROW(at, 2, cap, 2), 0);
	assert_int_equal(cap, 4);
	free(at);
}

static void what_is_too_much_is_refused(void **state)
{
	/* Not for the compiler to see. */
	static const volatile size_t caps[] = {SIZE_MAX / 4, SIZE_MAX / 2 + 1};
	struct item *at = malloc(sizeof(*at)), *before = at;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		size_t cap = caps[i];

		assert_int_equal(SBX_GROW(at, cap, cap, 2), -ENOMEM);
		assert_ptr_equal(at, before);
		assert_int_equal(cap, caps[i]);
	}
	free(at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_is_in_it_stays),
	        cmocka_unit_test(there_is_room_already),
	        cmocka_unit_test(what_is_too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
