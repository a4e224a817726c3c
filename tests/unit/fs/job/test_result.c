/* Results and log members as programs read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <json-c/json.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/job_fixture.h"

static struct fixture fx;

static int set_up(void **state)
{
	(void)state;
	fixture_set_up(&fx);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_tear_down(&fx);
	return 0;
}

static struct json_object *member(struct json_object *obj, const char *key)
{
	struct json_object *value = NULL;

	if (!json_object_object_get_ex(obj, key, &value))
		fail_msg("%s is missing", key);
	return value;
}

static void expect(struct json_object *obj, const char *key, const char *want)
{
	const char *text = json_object_to_json_string_ext(member(obj, key), JSON_C_TO_STRING_PLAIN);

	assert_string_equal(text, want);
}

static void a_result_has_exactly_the_promised_keys(void **state)
{
	static const char *const keys[] = {"id",
	                                   "argv",
	                                   "cwd",
	                                   "exitCode",
	                                   "signal",
	                                   "timedOut",
	                                   "oomKilled",
	                                   "durationMs",
	                                   "stdout",
	                                   "stderr",
	                                   "stdoutTruncated",
	                                   "stderrTruncated",
	                                   "stdoutBytes",
	                                   "stderrBytes",
	                                   "changedFiles"};
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");
	struct json_object *obj;

	(void)state;
	played_output(fixture_last(&fx), 1, "hello\n", 6);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 2);
	fixture_await_end(rec);
	obj = sbx_job_result(rec);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		member(obj, keys[i]);
	assert_int_equal(json_object_object_length(obj), sizeof(keys) / sizeof(*keys));
	expect(obj, "id", "\"1\"");
	expect(obj, "argv", "[\"make\"]");
	expect(obj, "cwd", "\".\"");
	expect(obj, "exitCode", "2");
	expect(obj, "signal", "null");
	expect(obj, "timedOut", "false");
	expect(obj, "oomKilled", "false");
	expect(obj, "stdout", "\"hello\\n\"");
	expect(obj, "stderr", "\"\"");
	expect(obj, "stdoutTruncated", "false");
	expect(obj, "stdoutBytes", "6");
	expect(obj, "changedFiles", "null");
	json_object_put(obj);
	sbx_job_unref(rec);
}

static void a_result_before_the_end_has_no_code(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make"), *named;
	struct json_object *obj = sbx_job_result(rec);

	(void)state;
	expect(obj, "exitCode", "null");
	assert_non_null(member(obj, "durationMs"));
	json_object_put(obj);
	assert_int_equal(sbx_job_prepare(fx.jobs, "build", &named, NULL), 0);
	obj = sbx_job_result(named);
	expect(obj, "id", "\"build\"");
	expect(obj, "argv", "null");
	expect(obj, "durationMs", "null");
	json_object_put(obj);
	sbx_job_unref(named);
	sbx_job_unref(rec);
}

static void signals_and_memory_are_named(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");
	struct json_object *obj;

	(void)state;
	played_ended(fixture_last(&fx), SBX_END_OOM, SIGKILL);
	fixture_await_end(rec);
	obj = sbx_job_result(rec);
	expect(obj, "exitCode", "137");
	expect(obj, "signal", "\"SIGKILL\"");
	expect(obj, "oomKilled", "true");
	json_object_put(obj);
	sbx_job_unref(rec);
}

static void bytes_that_are_not_text_go_as_base64(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");
	struct json_object *obj;

	(void)state;
	played_output(fixture_last(&fx), 1, "\xff\xfe\xfd", 3);
	played_output(fixture_last(&fx), 2, "a\0b", 3);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	obj = sbx_job_result(rec);
	assert_string_equal(json_object_get_string(member(obj, "stdoutBase64")), "//79");
	assert_false(json_object_object_get_ex(obj, "stdout", NULL));
	expect(obj, "stderr", "\"a\\u0000b\"");
	json_object_put(obj);
	sbx_job_unref(rec);
}

static struct sbx_jobrec *run_with_output(const char *unit, size_t times)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");
	size_t n = strlen(unit);
	char *buf = malloc(n * times);

	for (size_t i = 0; i < times; i++)
		memcpy(buf + i * n, unit, n);
	played_output(fixture_last(&fx), 1, buf, n * times);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	free(buf);
	return rec;
}

static void a_mebibyte_is_embedded_whole(void **state)
{
	struct sbx_jobrec *rec = run_with_output("0123456789abcdef", 65536);
	struct json_object *obj = sbx_job_result(rec);

	(void)state;
	assert_int_equal(json_object_get_string_len(member(obj, "stdout")), 1048576);
	assert_null(strstr(json_object_get_string(member(obj, "stdout")), "left out"));
	json_object_put(obj);
	sbx_job_unref(rec);
}

static void more_is_shown_by_head_and_tail_cut_between_characters(void **state)
{
	/* 3 does not divide 512 KiB: both cuts fall into a character. */
	struct sbx_jobrec *rec = run_with_output("\xe2\x82\xac", 500000);
	struct json_object *obj = sbx_job_result(rec);
	const char *text = json_object_get_string(member(obj, "stdout")), *mark, *after;
	unsigned long left_out;

	(void)state;
	mark = strstr(text, "\n[... ");
	assert_non_null(mark);
	assert_int_equal(sscanf(mark, "\n[... %lu bytes left out ...]", &left_out), 1);
	after = strchr(mark + 1, '\n') + 1;
	assert_int_equal((mark - text) % 3, 0);
	assert_int_equal(strlen(after) % 3, 0);
	assert_int_equal((size_t)(mark - text) + left_out + strlen(after), 1500000);
	assert_true((size_t)(mark - text) <= 524288 && strlen(after) <= 524288);
	expect(obj, "stdoutTruncated", "false");
	expect(obj, "stdoutBytes", "1500000");
	json_object_put(obj);
	sbx_job_unref(rec);
}

/* The memory comes from the heap, so what is written behind its end would be found there. */
static void a_little_more_than_a_mebibyte_stays_within_its_memory(void **state)
{
	char *buf = malloc(1048577);
	struct sbx_jobrec *rec;
	struct json_object *obj;
	const char *text;

	(void)state;
	mallopt(M_MMAP_THRESHOLD, 64 * 1024 * 1024);
	memset(buf, 'x', 1048577);
	rec = fixture_start_job(&fx, "make");
	played_output(fixture_last(&fx), 1, buf, 1048577);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	obj = sbx_job_result(rec);
	text = json_object_get_string(member(obj, "stdout"));
	assert_non_null(strstr(text, "\n[... 1 bytes left out ...]\n"));
	assert_int_equal(strspn(text, "x"), 524288);
	assert_int_equal(strlen(strrchr(text, '\n') + 1), 524288);
	json_object_put(obj);
	sbx_job_unref(rec);
	free(buf);
}

static void output_past_its_limit_is_flagged_and_stays_text(void **state)
{
	struct sbx_limits limits = {.output_bytes = 100};
	struct sbx_jobrec *rec;
	struct json_object *obj;

	(void)state;
	sbx_jobs_set_limits(fx.jobs, &limits);
	rec = run_with_output("\xe2\x82\xac", 50);
	obj = sbx_job_result(rec);
	assert_int_equal(json_object_get_string_len(member(obj, "stdout")), 99);
	expect(obj, "stdoutTruncated", "true");
	expect(obj, "stderrTruncated", "false");
	expect(obj, "stdoutBytes", "150");
	assert_int_equal(sbx_job_output_size(rec, 1), 100);
	json_object_put(obj);
	sbx_job_unref(rec);
}

static void the_log_members_tell_what_happened(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "mak\xff");
	struct json_object *obj;
	const char *seconds;

	(void)state;
	played_output(fixture_last(&fx), 1, "private", 7);
	played_ended(fixture_last(&fx), SBX_END_SIGNALED, SIGSEGV);
	fixture_await_end(rec);
	obj = sbx_job_log_members(rec);
	expect(obj, "job", "\"1\"");
	expect(obj, "cmd", "[\"mak\xef\xbf\xbd\"]");
	expect(obj, "exit_code", "139");
	expect(obj, "signal", "\"SIGSEGV\"");
	expect(obj, "timed_out", "false");
	seconds = json_object_to_json_string(member(obj, "duration_sec"));
	assert_int_equal(strlen(strchr(seconds, '.')), 4);
	assert_false(json_object_object_get_ex(obj, "error", NULL));
	assert_null(strstr(json_object_to_json_string(obj), "private"));
	json_object_put(obj);
	sbx_job_unref(rec);
}

static void a_failed_start_is_logged_with_its_error(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "nope");
	struct json_object *obj;

	(void)state;
	played_ended(fixture_last(&fx), SBX_END_FAILED, ENOENT);
	fixture_await_end(rec);
	obj = sbx_job_log_members(rec);
	assert_non_null(strstr(json_object_get_string(member(obj, "error")),
	                       ": No such file or directory"));
	assert_false(json_object_object_get_ex(obj, "exit_code", NULL));
	json_object_put(obj);
	sbx_job_unref(rec);
}

static void argv_and_cwd_are_as_they_were_asked_for(void **state)
{
	char *argv[] = {"a", "b \"c\"", "/d", NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *rec;
	bool repeated;
	char *text;

	(void)state;
	assert_int_equal(sbx_job_start(fx.jobs, &req, SBX_JOB_RUN, NULL, &rec, &repeated, NULL), 0);
	text = sbx_job_argv_json(rec);
	assert_string_equal(text, "[\"a\",\"b \\\"c\\\"\",\"/d\"]");
	free(text);
	text = sbx_job_cwd(rec);
	assert_string_equal(text, ".");
	free(text);
	assert_true(sbx_job_time_ns(rec) > 0);
	sbx_job_unref(rec);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_result_has_exactly_the_promised_keys),
	        CASE(a_result_before_the_end_has_no_code),
	        CASE(signals_and_memory_are_named),
	        CASE(bytes_that_are_not_text_go_as_base64),
	        CASE(a_mebibyte_is_embedded_whole),
	        CASE(more_is_shown_by_head_and_tail_cut_between_characters),
	        CASE(a_little_more_than_a_mebibyte_stays_within_its_memory),
	        CASE(output_past_its_limit_is_flagged_and_stays_text),
	        CASE(the_log_members_tell_what_happened),
	        CASE(a_failed_start_is_logged_with_its_error),
	        CASE(argv_and_cwd_are_as_they_were_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
