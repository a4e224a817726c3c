#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fs/util/name_status.h"
#include "sandboxfs/strv.h"

/* EXPECTED: the paths, each ended by a bar. */
static void expect(const char *text, const char *expected)
{
	struct sbx_strings list = {0};
	char have[1024] = "";
	size_t used = 0;

	assert_int_equal(sbx_names_read(text, strlen(text), &list), 0);
	for (size_t i = 0; i < list.n; i++) {
		used += (size_t)snprintf(have + used, sizeof(have) - used, "%s|", list.items[i]);
		assert_true(used < sizeof(have));
	}
	assert_string_equal(have, expected);
	sbx_strings_release(&list);
}

static void each_line_gives_its_path(void **state)
{
	(void)state;
	expect("", "");
	expect("A\ta\nM\tb c/d\nD\te\n", "a|b c/d|e|");
	expect("T\t-\n", "-|");
}

static void renamed_file_gives_both(void **state)
{
	(void)state;
	expect("R100\told\tnew\nA\tx\n", "old|new|x|");
}

static void quotes_are_taken_off(void **state)
{
	(void)state;
	expect("A\t\"a\\tb\\nc\"\n", "a\tb\nc|");
	expect("A\t\"q\\\"\\\\\"\n", "q\"\\|");
	expect("A\t\"\\001\\177\\303\\244\"\n", "\001\177\303\244|");
	expect("R090\t\"a\\tb\"\tc\n", "a\tb|c|");
	/* Nothing that is read beyond its end. */
	expect("A\t\"\n", "|");
	expect("A\t\"a\\\n", "a\\|");
	expect("A\t\"a\\00\n", "a00|");
}

static void last_line_must_be_whole(void **state)
{
	(void)state;
	expect("A\ta\nM\tb", "a|");
	expect("A\n", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_line_gives_its_path),
	        cmocka_unit_test(renamed_file_gives_both),
	        cmocka_unit_test(quotes_are_taken_off),
	        cmocka_unit_test(last_line_must_be_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
