/* JSON held to one reading: sbx_json_parse(). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "fs/util/json.h"

static struct sbx_error err;

static int parse_bytes(const char *text, size_t len, bool final, size_t *used)
{
	struct json_object *obj = NULL;
	/* An exact copy, so that a sanitizer sees every byte read past the end. */
	char *copy = malloc(len ? len : 1);
	size_t n = 0;
	int r;

	memcpy(copy, text, len);
	err = SBX_ERROR_INIT;
	r = sbx_json_parse(copy, len, final, &obj, &n, &err);
	json_object_put(obj);
	free(copy);
	if (used)
		*used = n;
	return r;
}

static int parse(const char *text)
{
	return parse_bytes(text, strlen(text), true, NULL);
}

static void accepts_every_kind_of_value(void **state)
{
	static const char *const good[] = {
	        "{}",
	        "[]",
	        " [1] ",
	        "{\"a\":[true,false,null,\"x\"]}",
	        "[1.5,-2e3]",
	        "12",
	        "null",
	        "\"x\"",
	        "[\"\\ud83d\\ude00\",\"\xf0\x9f\x98\x80\"]",
	        "[\"\\\\u0000\"]",
	        "{\"a\":{\"a\":1},\"b\":{\"a\":1}}",
	        "[{\"a\":1},{\"a\":2}]",
	        "[\"a:b{[,\"]",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(parse(good[i]), 1);
}

static void refuses_what_is_not_json(void **state)
{
	static const char *const bad[] = {
	        "{a:1}",      "['a']",       "[1,]",      "{\"a\":1,}", "[NaN]",
	        "[Infinity]", "[-Infinity]", "[01]",      "[1.]",       "[+1]",
	        "[TRUE]",     "[/*c*/1]",    "[\"\\x\"]", "[\"a\tb\"]", "[\"a\nb\"]",
	        "]",          "{\"a\" 1}",   "[\"a\"}",   "nul",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(parse(bad[i]), -EINVAL);
		assert_int_equal(err.code, EINVAL);
		assert_true(err.text[0] != '\0');
	}
}

static void refuses_invalid_utf8(void **state)
{
	static const char *const bad[] = {
	        "[\"\xff\"]",     "[\"\xc0\x80\"]", "[\"\xed\xa0\x80\"]", "[\"\xf5\x80\x80\x80\"]",
	        "[\"\xe2\x82\"]", "[\"\x80\"]",     "[\"\xe0\x80\x80\"]", "[\"\xf4\x90\x80\x80\"]",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(parse(bad[i]), -EINVAL);
		assert_non_null(strstr(err.text, "not UTF-8"));
	}
	assert_int_equal(parse("[\xff]"), -EINVAL);
}

static void refuses_nul_however_written(void **state)
{
	(void)state;
	assert_int_equal(parse("[\"a\\u0000b\"]"), -EINVAL);
	assert_non_null(strstr(err.text, "u0000"));
	assert_int_equal(parse("{\"\\u0000\":1}"), -EINVAL);
	assert_int_equal(parse_bytes("[\"a\0b\"]", 7, false, NULL), -EINVAL);
	assert_int_equal(parse_bytes("[1\0]", 4, false, NULL), -EINVAL);
	assert_int_equal(parse_bytes("\0", 1, false, NULL), -EINVAL);
}

/* json-c would make U+FFFD of it, so that two texts say the same file. */
static void refuses_half_of_a_surrogate_pair(void **state)
{
	static const char *const bad[] = {
	        "[\"\\ud800\"]",          "[\"\\udfff\"]",
	        "[\"\\uD83D\\n\"]",       "[\"\\ud83d\\ud83d\\ude00\"]",
	        "[\"\\ude00\\ud83d\"]",   "[\"\\ud83dx\\ude00\"]",
	        "[\"\\ud83d\\\\ude00\"]", "{\"\\udc00\":1}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(parse(bad[i]), -EINVAL);
		assert_non_null(strstr(err.text, "surrogate"));
	}
	assert_int_equal(parse("[\"\\uD83D\\uDE00 \\ud7ff \\ue000 \\\\ud800\"]"), 1);
}

static void refuses_duplicate_keys_at_any_level_by_name(void **state)
{
	(void)state;
	assert_int_equal(parse("{\"one\":1,\"one\":2}"), -EINVAL);
	assert_string_equal(err.text, "duplicate key \"one\"");
	assert_int_equal(parse("{\"a\":[{\"b\":{},\"c\":1,\"b\":[]}]}"), -EINVAL);
	assert_string_equal(err.text, "duplicate key \"b\"");
}

static void sees_through_escapes_in_duplicate_keys(void **state)
{
	(void)state;
	assert_int_equal(parse("{\"ab\":1,\"\\u0061b\":2}"), -EINVAL);
	assert_string_equal(err.text, "duplicate key \"ab\"");
	assert_int_equal(parse("{\"a\\\"b\":1,\"a\\u0022b\":2}"), -EINVAL);
	assert_int_equal(parse("{\"\":1,\"\":2}"), -EINVAL);
}

static void refuses_more_than_32_levels(void **state)
{
	char text[2001];

	(void)state;
	for (size_t depth = 1; depth <= 1000; depth += depth < 40 ? 1 : 240) {
		memset(text, '[', depth);
		memset(text + depth, ']', depth);
		text[2 * depth] = '\0';
		assert_int_equal(parse(text), depth <= 32 ? 1 : -EINVAL);
	}
}

static void is_incomplete_at_every_proper_beginning(void **state)
{
	const char *text = "{\"a\":[1,\"\xe2\x82\xac\\n\"],\"b\":{\"c\":null}}";
	size_t used;

	(void)state;
	for (size_t n = 0; n < strlen(text); n++) {
		assert_int_equal(parse_bytes(text, n, false, NULL), 0);
		assert_int_equal(parse_bytes(text, n, true, NULL), -EINVAL);
		assert_string_equal(err.text, "incomplete JSON");
	}
	assert_int_equal(parse_bytes(text, strlen(text), false, &used), 1);
	assert_int_equal(used, strlen(text));
}

static void used_ends_with_the_value(void **state)
{
	size_t used;

	(void)state;
	assert_int_equal(parse_bytes(" [1] \n x", 8, false, &used), 1);
	assert_int_equal(used, 4);
	assert_int_equal(parse_bytes("{}{}", 4, false, &used), 1);
	assert_int_equal(used, 2);
}

static void feed_goes_on_byte_by_byte(void **state)
{
	const char *text = " {\"k\":\"\xf0\x9f\x98\x80\",\"n\":[-12.5e1]} ";
	struct json_tokener *tok = NULL;
	struct json_object *obj = NULL;
	size_t used = 0, n;
	int r = 0;

	(void)state;
	for (n = 0; r == 0 && n < strlen(text); n++)
		r = sbx_json_feed(&tok, text, n, n + 1, &obj, &used, &err);
	assert_int_equal(r, 1);
	assert_null(tok);
	assert_int_equal(used, strlen(text) - 1);
	assert_int_equal(n, strlen(text) - 1);
	json_object_put(obj);
}

static void feed_can_be_given_up(void **state)
{
	struct json_tokener *tok = NULL;
	struct json_object *obj;
	size_t used;

	(void)state;
	assert_int_equal(sbx_json_feed(&tok, "[[1,", 0, 4, &obj, &used, NULL), 0);
	assert_non_null(tok);
	sbx_json_feed_end(&tok);
	assert_null(tok);
	sbx_json_feed_end(&tok);
}

static void clip_keeps_characters_whole(void **state)
{
	char text[200];

	(void)state;
	assert_int_equal(sbx_clip("abc", 3), 3);
	for (size_t i = 0; i < sizeof(text); i += 2)
		memcpy(text + i, "\xc3\xa9", 2);
	assert_int_equal(sbx_clip(text, 200), 100);
	assert_int_equal(sbx_clip(text + 1, 199), 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(accepts_every_kind_of_value),
	        cmocka_unit_test(refuses_what_is_not_json),
	        cmocka_unit_test(refuses_invalid_utf8),
	        cmocka_unit_test(refuses_nul_however_written),
	        cmocka_unit_test(refuses_half_of_a_surrogate_pair),
	        cmocka_unit_test(refuses_duplicate_keys_at_any_level_by_name),
	        cmocka_unit_test(sees_through_escapes_in_duplicate_keys),
	        cmocka_unit_test(refuses_more_than_32_levels),
	        cmocka_unit_test(is_incomplete_at_every_proper_beginning),
	        cmocka_unit_test(used_ends_with_the_value),
	        cmocka_unit_test(feed_goes_on_byte_by_byte),
	        cmocka_unit_test(feed_can_be_given_up),
	        cmocka_unit_test(clip_keeps_characters_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
