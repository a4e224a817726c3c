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

#define ENTERPRISE "https://git.example.org/api/v3"
#define LOOPBACK   "http://127.0.0.1:8080"

static void check_accepted(const char *url, const char *api)
{
	struct sbx_github_repo repo = {0};
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_github_parse(url, api, &repo, &err) != 0)
		fail_msg("%s with %s: %s", url, api, err.text);
	assert_string_equal(repo.owner, "acme");
	assert_string_equal(repo.name, "widgets");
}

static void forms_of_a_repository_are_known(void **state)
{
	static const char *const urls[] = {
	        "acme/widgets",
	        "acme/widgets.git",
	        "https://github.com/acme/widgets",
	        "https://github.com/acme/widgets.git",
	        "https://github.com/acme/widgets/",
	        "HTTPS://GitHub.com/acme/widgets",
	        "https://www.github.com/acme/widgets",
	        "https://user:pass@github.com/acme/widgets.git",
	        "https://github.com:443/acme/widgets.git",
	        "git@github.com:acme/widgets",
	        "git@github.com:acme/widgets.git",
	        "github.com:acme/widgets.git",
	        "ssh://git@github.com/acme/widgets",
	        "ssh://git@github.com:22/acme/widgets.git",
	        "ssh://git@ssh.github.com:443/acme/widgets.git",
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(urls); i++)
		check_accepted(urls[i], SBX_GITHUB_API);
}

static void the_host_of_the_api_counts_as_github(void **state)
{
	(void)state;
	check_accepted("https://git.example.org/acme/widgets.git", ENTERPRISE);
	check_accepted("git@git.example.org:acme/widgets.git", ENTERPRISE);
	check_accepted("https://github.com/acme/widgets.git", ENTERPRISE);
	check_accepted("https://acme.ghe.com/acme/widgets", "https://api.acme.ghe.com");
	check_accepted("http://127.0.0.1:9/acme/widgets.git", LOOPBACK);
	check_accepted("http://[::1]:9/acme/widgets.git", "http://[::1]:8080");
}

static void check_refused(const char *url, const char *api)
{
	struct sbx_github_repo repo;
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_github_parse(url, api, &repo, &err) != -EINVAL)
		fail_msg("%s was not refused", url);
	assert_true(strlen(err.text) > 20);
	assert_null(strstr(err.text, "secret"));
}

static void others_are_refused_in_words(void **state)
{
	static const char *const urls[] = {
	        "",
	        "widgets",
	        ".",
	        "./my-project",
	        "../acme/widgets",
	        "/Users/x/repo",
	        "/acme/widgets",
	        "~/widgets",
	        "acme/",
	        "/widgets",
	        "acme//widgets",
	        "acme/widgets/tree",
	        "acme/..",
	        "-acme/widgets",
	        "acme/wid gets",
	        "acme/widgets?x=1",
	        "acme/%2e%2e",
	        "https://gitlab.com/acme/widgets",
	        "https://x:secret@gitlab.com/acme/widgets",
	        "https://github.com",
	        "https://github.com/",
	        "https://github.com/acme",
	        "https://github.com/acme/widgets/pulls",
	        "https://github.com.evil.org/acme/widgets",
	        "https://evil.org@/acme/widgets",
	        "https://github.com@evil.org/acme/widgets",
	        "https://evilgithub.com/acme/widgets",
	        "https://github.com\\@evil.org/acme/widgets",
	        "http://github.com/acme/widgets",
	        "git://github.com/acme/widgets",
	        "ftp://github.com/acme/widgets",
	        "file:///acme/widgets",
	        "git@gitlab.com:acme/widgets.git",
	        "git@github.com:widgets.git",
	        "git@github.com:/acme/widgets.git",
	        "ssh://git@gitlab.com/acme/widgets",
	        "https://git.example.org/acme/widgets",
	        "https:///acme/widgets",
	        ":acme/widgets",
	        "C:\\acme\\widgets",
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(urls); i++)
		check_refused(urls[i], SBX_GITHUB_API);
	/* Only an API that is asked so itself. */
	check_refused("http://git.example.org/acme/widgets", ENTERPRISE);
	check_refused("https://a.com/acme/widgets", "https://");
}

static void names_that_are_too_long_are_refused(void **state)
{
	char url[400] = "acme/";

	(void)state;
	memset(url + 5, 'x', 300);
	check_refused(url, SBX_GITHUB_API);
}

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
	        cmocka_unit_test(forms_of_a_repository_are_known),
	        cmocka_unit_test(the_host_of_the_api_counts_as_github),
	        cmocka_unit_test(others_are_refused_in_words),
	        cmocka_unit_test(names_that_are_too_long_are_refused),
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
