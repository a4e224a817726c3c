/* Bytes as URLs and printf(1) have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "backends/support/escape.h"
#include "sandboxfs/cleanup.h"

static void expect_percent(const char *text, const char *keep, const char *want)
{
	_cleanup_free_ char *escaped = sbx_escape_percent(text, keep);

	assert_string_equal(escaped, want);
}

static void what_a_url_takes_stays(void **state)
{
	(void)state;
	expect_percent("", "", "");
	expect_percent("aZ09-._~", "", "aZ09-._~");
	expect_percent("a b/c?d=e&f%", "", "a%20b%2Fc%3Fd%3De%26f%25");
	expect_percent("a b/c", "/", "a%20b/c");
	expect_percent("\xc3\xa4\n\x7f", "", "%C3%A4%0A%7F");
}

static void printf_takes_each_byte_by_its_number(void **state)
{
	(void)state;
	for (unsigned c = 0; c < 256; c++) {
		char text[SBX_OCTAL_SIZE + 1] = "", want[16];

		assert_ptr_equal(sbx_put_octal(text, (unsigned char)c), text + SBX_OCTAL_SIZE);
		snprintf(want, sizeof(want), "\\%03o", c);
		assert_string_equal(text, want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_a_url_takes_stays),
	        cmocka_unit_test(printf_takes_each_byte_by_its_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
