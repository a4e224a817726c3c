#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/github/text.h"
#include "fs/job/request.h"
#include "sandboxfs/cleanup.h"

static void check_title(const char *prefix, const char *text, const char *want)
{
	_cleanup_free_ char *title = sbx_github_title(prefix, text);

	assert_string_equal(title, want);
}

static void titles_are_one_line_of_256_characters(void **state)
{
	char text[2 * 400 + 1] = "", want[11 + 2 * 246] = "[harness] ";

	(void)state;
	check_title("[harness]", "Mend it", "[harness] Mend it");
	check_title("", "Mend it", "Mend it");
	check_title("[harness]", "a\nb\tc", "[harness] a b c");
	for (size_t i = 0; i < 400; i++)
		memcpy(text + 2 * i, "\xc3\xa4", 2);
	for (size_t i = 0; i < 246; i++)
		memcpy(want + 10 + 2 * i, "\xc3\xa4", 2);
	check_title("[harness]", text, want);
}

static void check_refusal(long status, const char *body, const char *want)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_true(sbx_github_refusal(status, body, strlen(body), &err) < 0);
	assert_string_equal(err.text, want);
}

static void refusals_are_told_as_github_tells_them(void **state)
{
	(void)state;
	check_refusal(401, "{\"message\":\"Bad credentials\"}", "Bad credentials (HTTP 401)");
	check_refusal(422,
	              "{\"message\":\"Validation Failed\",\"errors\":[{\"message\":\"exists\"},"
	              "{\"field\":\"base\",\"code\":\"invalid\"},{\"field\":\"x\"},\"y\",7]}",
	              "Validation Failed: exists: base is invalid: x is refused: y (HTTP 422)");
	check_refusal(422, "{\"message\":\"a\",\"errors\":[7,[],null,{}]}", "a (HTTP 422)");
	check_refusal(400, "{\"message\":\"a\\nforged\",\"errors\":{}}", "a?forged (HTTP 400)");
	check_refusal(500, "<html>", "GitHub's API refused without a reason (HTTP 500)");
	check_refusal(500, "", "GitHub's API refused without a reason (HTTP 500)");
	check_refusal(502, "[]", "GitHub's API refused without a reason (HTTP 502)");
	check_refusal(301, "",
	              "GitHub's API leads elsewhere; is the repository called otherwise now? "
	              "(HTTP 301)");
}

static void refusals_are_errnos(void **state)
{
	static const struct {
		long status;
		int code;
	} rows[] = {{401, EACCES}, {403, EACCES},    {404, ENOENT},   {422, EINVAL},
	            {429, EAGAIN}, {500, EREMOTEIO}, {302, EREMOTEIO}};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		assert_int_equal(sbx_github_refusal(rows[i].status, "", 0, NULL), -rows[i].code);
}

static void members_of_answers_are_plain_lines(void **state)
{
	static const char *const bad[] = {"",           "[]",           "{",
	                                  "{}",         "{\"k\":7}",    "{\"k\":null}",
	                                  "{\"k\":[]}", "{\"k\":\"\"}", "{\"k\":\"a\\nb\"}"};
	const char *good = "{\"x\":{\"k\":\"no\"},\"k\":\"main\"}";
	char *value = NULL;

	(void)state;
	assert_int_equal(sbx_github_member(good, strlen(good), "k", &value, NULL), 0);
	assert_string_equal(value, "main");
	free(value);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(bad); i++)
		assert_int_equal(sbx_github_member(bad[i], strlen(bad[i]), "k", &value, NULL),
		                 -EBADMSG);
}

/* Requests */

/* Feeds the chunks one after the other and asks after each; the last must give the outcome WANT. */
static int take(struct sbx_push_request *ret, const char *const *chunks, size_t n)
{
	struct sbx_request_parser p;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = 0;

	sbx_request_parser_init(&p);
	for (size_t i = 0; i < n && r >= 0; i++) {
		sbx_push_request_release(ret);
		assert_int_equal(sbx_request_parser_feed(&p, chunks[i], strlen(chunks[i]), &err),
		                 0);
		r = sbx_push_parser_next(&p, false, ret, &err);
	}
	assert_true(r >= 0 || *err.text);
	sbx_request_parser_finish(&p);
	return r;
}
#define TAKE(ret, ...)                                                                             \
	take(ret, (const char *const[]){__VA_ARGS__},                                              \
	     SBX_ARRAY_SIZE(((const char *const[]){__VA_ARGS__})))

static void an_empty_line_pushes(void **state)
{
	struct sbx_push_request req = {0};

	(void)state;
	assert_int_equal(TAKE(&req, "\n"), 1);
	assert_false(req.pr);
	assert_int_equal(TAKE(&req, " \t\r\n"), 1);
	assert_int_equal(TAKE(&req, " "), 0);
	assert_int_equal(TAKE(&req, " ", "\n"), 1);
}

static void an_object_says_more(void **state)
{
	struct sbx_push_request req = {0};

	(void)state;
	assert_int_equal(TAKE(&req, "{\"pr\":true,\"remote\":\"up\",\"title\":\"t\",",
	                      "\"intent\":\"i\",\"blueprint\":\"b\",\"run\":\"r\"}\n"),
	                 1);
	assert_true(req.pr);
	assert_string_equal(req.remote, "up");
	assert_string_equal(req.title, "t");
	assert_string_equal(req.intent, "i");
	assert_string_equal(req.blueprint, "b");
	assert_string_equal(req.run, "r");
	sbx_push_request_release(&req);
}

static void the_newline_behind_an_object_is_no_empty_line(void **state)
{
	struct sbx_push_request req = {0};

	(void)state;
	assert_int_equal(TAKE(&req, "{}", "\n"), 0);
	assert_int_equal(TAKE(&req, "{}", " ", "\n"), 0);
	assert_int_equal(TAKE(&req, "{}", "\n", "\n"), 1);
	assert_int_equal(TAKE(&req, "{}\n", "\n"), 1);
	assert_int_equal(TAKE(&req, "{}", "\n{\"pr\":true}"), 1);
	assert_true(req.pr);
}

static void other_requests_are_refused(void **state)
{
	static const char *const bad[] = {"origin\n",          "[]\n",
	                                  "[\"pr\"]\n",        "{\"pr\":1}\n",
	                                  "{\"pr\":null}\n",   "{\"x\":1}\n",
	                                  "{\"run\":7}\n",     "{\"pr\":true,\"pr\":true}\n",
	                                  "{\"pr\":true} x\n", "{\"intent\":\"\\u0000\"}\n"};
	struct sbx_push_request req = {0};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(bad); i++)
		assert_int_equal(TAKE(&req, bad[i]), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(titles_are_one_line_of_256_characters),
	        cmocka_unit_test(refusals_are_told_as_github_tells_them),
	        cmocka_unit_test(refusals_are_errnos),
	        cmocka_unit_test(members_of_answers_are_plain_lines),
	        cmocka_unit_test(an_empty_line_pushes),
	        cmocka_unit_test(an_object_says_more),
	        cmocka_unit_test(the_newline_behind_an_object_is_no_empty_line),
	        cmocka_unit_test(other_requests_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
