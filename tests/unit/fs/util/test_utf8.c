#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "fs/util/utf8.h"
#include "sandboxfs/strv.h"

static void valid_text_is_valid_to_its_end(void **state)
{
	static const char *const good[] = {"",
	                                   "abc",
	                                   "\xc2\x80",
	                                   "\xdf\xbf",
	                                   "\xe0\xa0\x80",
	                                   "\xed\x9f\xbf",
	                                   "\xef\xbf\xbf",
	                                   "\xf0\x90\x80\x80",
	                                   "\xf4\x8f\xbf\xbf",
	                                   "gr\xc3\xbc\xc3\x9f"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(sbx_utf8_span(good[i], strlen(good[i])), strlen(good[i]));
	assert_int_equal(sbx_utf8_span("a\0b", 3), 3);
}

static void what_utf8_forbids_ends_the_span(void **state)
{
	static const char *const bad[] = {"\x80",
	                                  "\xc0\x80",
	                                  "\xc1\xbf",
	                                  "\xe0\x9f\xbf",
	                                  "\xed\xa0\x80",
	                                  "\xf0\x8f\xbf\xbf",
	                                  "\xf5\x80\x80\x80",
	                                  "\xf4\x90\x80\x80",
	                                  "\xff",
	                                  "\xc3",
	                                  "\xe2\x82",
	                                  "\xc3("};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char text[16] = "ok";

		memcpy(text + 2, bad[i], strlen(bad[i]));
		assert_int_equal(sbx_utf8_span(text, 2 + strlen(bad[i])), 2);
	}
}

static void cuts_fall_between_characters(void **state)
{
	static const char euro[] = "a\xe2\x82\xac";

	(void)state;
	assert_int_equal(sbx_utf8_floor(euro, 4), 4);
	assert_int_equal(sbx_utf8_floor(euro, 3), 1);
	assert_int_equal(sbx_utf8_floor(euro, 2), 1);
	assert_int_equal(sbx_utf8_floor(euro, 1), 1);
	assert_int_equal(sbx_utf8_floor(euro, 0), 0);
	assert_int_equal(sbx_utf8_skip(euro + 2, 2), 2);
	assert_int_equal(sbx_utf8_skip(euro, 4), 0);
}

static void bytes_that_are_not_text_become_the_mark(void **state)
{
	struct json_object *s = sbx_text_json("a\xff\xc3(", 4);

	(void)state;
	assert_string_equal(json_object_get_string(s), "a\xef\xbf\xbd\xef\xbf\xbd(");
	json_object_put(s);
}

static void base64_pads_as_the_standard_says(void **state)
{
	static const char *const rows[][2] = {
	        {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
	        {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xfd", "//79"}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *s = sbx_base64(rows[i][0], strlen(rows[i][0]));

		assert_string_equal(s, rows[i][1]);
		free(s);
	}
}

static void lists_compare_by_content_and_absent_is_empty(void **state)
{
	char *ab[] = {"a", "b", NULL}, *a[] = {"a", NULL}, *none[] = {NULL};
	char **copy = sbx_strv_copy(ab);

	(void)state;
	assert_true(sbx_strv_equal(copy, ab));
	assert_false(sbx_strv_equal(a, ab));
	assert_false(sbx_strv_equal(ab, a));
	assert_true(sbx_strv_equal(NULL, none));
	assert_null(sbx_strv_copy(NULL));
	sbx_strv_free(copy);
}

static void what_is_appended_stands_behind_the_rest_up_to_the_limit(void **state)
{
	char *buf = NULL;
	size_t len = 0;

	(void)state;
	assert_int_equal(sbx_text_append(&buf, &len, "ab", 2, 4), 0);
	assert_int_equal(sbx_text_append(&buf, &len, "cde", 3, 4), -E2BIG);
	assert_string_equal(buf, "ab");
	assert_int_equal(sbx_text_append(&buf, &len, "c\0", 2, 4), 0);
	assert_int_equal(len, 4);
	assert_memory_equal(buf, "abc\0", 5);
	assert_int_equal(sbx_text_append(&buf, &len, "", 0, 4), 0);
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(valid_text_is_valid_to_its_end),
	        cmocka_unit_test(what_utf8_forbids_ends_the_span),
	        cmocka_unit_test(cuts_fall_between_characters),
	        cmocka_unit_test(bytes_that_are_not_text_become_the_mark),
	        cmocka_unit_test(base64_pads_as_the_standard_says),
	        cmocka_unit_test(lists_compare_by_content_and_absent_is_empty),
	        cmocka_unit_test(what_is_appended_stands_behind_the_rest_up_to_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
