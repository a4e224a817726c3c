#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "fs/log/denials.h"
#include "sandboxfs/loop.h"

static struct sbx_loop *loop;
static struct sbx_denials *denials;
static int lines;
static char last_text[256], last_json[512];

static void tell(struct json_object *members, const char *text, void *data)
{
	assert_ptr_equal(data, &lines);
	lines++;
	snprintf(last_text, sizeof(last_text), "%s", text);
	snprintf(last_json, sizeof(last_json), "%s",
	         json_object_to_json_string_ext(members, JSON_C_TO_STRING_PLAIN));
	/* A number that comes later ends the wait for it. */
	if (strstr(text, "suppressed"))
		sbx_loop_stop(loop);
}

static int set_up(void **state)
{
	(void)state;
	lines = 0;
	return sbx_loop_create(&loop) < 0 || sbx_denials_create(loop, tell, &lines, &denials) < 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_denials_destroy(denials);
	sbx_loop_destroy(loop);
	return 0;
}

static void add(enum sbx_denied_kind kind, const char *what, uint64_t more)
{
	sbx_denials_add(denials,
	                &(struct sbx_denial_report){.kind = kind, .what = what, .more = more});
}

static void a_denial_is_one_line(void **state)
{
	(void)state;
	sbx_denials_add(denials, &(struct sbx_denial_report){.kind = SBX_DENIED_SYSCALL,
	                                                     .what = "mount",
	                                                     .class = "view",
	                                                     .program = "a\"b",
	                                                     .job = "7"});
	assert_int_equal(lines, 1);
	assert_string_equal(last_text, "syscall: mount by a\"b job=7");
	assert_string_equal(last_json,
	                    "{\"kind\":\"syscall\",\"what\":\"mount\",\"class\":\"view\","
	                    "\"program\":\"a\\\"b\",\"job\":\"7\"}");
	sbx_denials_add(denials, &(struct sbx_denial_report){.kind = SBX_DENIED_HOST,
	                                                     .what = "example.org:443",
	                                                     .reason = "not in the list"});
	assert_string_equal(last_text, "host: example.org:443: not in the list");
}

static void the_eleventh_of_a_second_is_only_counted(void **state)
{
	(void)state;
	for (int i = 0; i < 13; i++)
		add(SBX_DENIED_PATH, "out", 0);
	assert_int_equal(lines, 10);
	sbx_loop_run(loop);
	assert_int_equal(lines, 11);
	assert_string_equal(last_text, "path: 3 more suppressed");
	assert_string_equal(last_json, "{\"kind\":\"path\",\"suppressed\":3}");
}

static void kinds_are_counted_apart(void **state)
{
	(void)state;
	for (int i = 0; i < 11; i++)
		add(SBX_DENIED_PATH, "out", 0);
	add(SBX_DENIED_HOST, "example.org:80", 0);
	assert_int_equal(lines, 11);
	assert_string_equal(last_text, "host: example.org:80");
}

static void what_is_known_by_number_only_is_added(void **state)
{
	(void)state;
	add(SBX_DENIED_SYSCALL, NULL, 1000);
	add(SBX_DENIED_SYSCALL, "mount", 30);
	assert_int_equal(lines, 1);
	sbx_loop_run(loop);
	assert_string_equal(last_text, "syscall: 1030 more suppressed");
}

static void nothing_is_told_after_the_end(void **state)
{
	(void)state;
	for (int i = 0; i < 11; i++)
		add(SBX_DENIED_PATH, "out", 0);
	sbx_denials_destroy(denials);
	sbx_loop_destroy(loop); /* runs what was posted */
	assert_int_equal(lines, 10);
	assert_int_equal(set_up(state), 0);
}

static void very_long_words_are_cut(void **state)
{
	char what[4096];

	(void)state;
	memset(what, 'x', sizeof(what));
	what[sizeof(what) - 1] = '\0';
	sbx_denials_add(denials,
	                &(struct sbx_denial_report){.what = what, .program = what, .job = what});
	assert_int_equal(lines, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_denial_is_one_line),          CASE(the_eleventh_of_a_second_is_only_counted),
	        CASE(kinds_are_counted_apart),       CASE(what_is_known_by_number_only_is_added),
	        CASE(nothing_is_told_after_the_end), CASE(very_long_words_are_cut),
	};

	return cmocka_run_group_tests_name("denials", tests, NULL, NULL);
}
