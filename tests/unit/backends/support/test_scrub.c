#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sandboxfs/scrub.h"

static void check_scrubbed(const char *text, const char *want)
{
	char copy[256];

	snprintf(copy, sizeof(copy), "%s", text);
	sbx_scrub(copy, "secret");
	assert_string_equal(copy, want);
}

static void secrets_are_taken_out_of_texts(void **state)
{
	(void)state;
	check_scrubbed("secret", "***");
	check_scrubbed("a secret, secret!secretsecret", "a ***, ***!******");
	check_scrubbed("at https://u:p@host/x@y", "at https://host/x@y");
	check_scrubbed("'http://u:p@ss@host' and ssh://git@h/x", "'http://host' and ssh://h/x");
	check_scrubbed("https://host/x", "https://host/x");
	check_scrubbed("://@", "://");
	check_scrubbed("", "");
	check_scrubbed("secre", "secre");
}

static void bytes_may_hold_nul(void **state)
{
	char data[] = "\0secret\0and secret";
	size_t len = sbx_scrub_bytes(data, sizeof(data), "secret");

	(void)state;
	assert_int_equal(len, sizeof("\0***\0and ***"));
	assert_memory_equal(data, "\0***\0and ***", len);
	assert_int_equal(sbx_scrub_bytes(data, len, NULL), len);
	assert_int_equal(sbx_scrub_bytes(data, 0, "secret"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(secrets_are_taken_out_of_texts),
	        cmocka_unit_test(bytes_may_hold_nul),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
