#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/github.h"

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

static void the_token_is_for_github_alone(void **state)
{
	static const struct {
		const char *url, *api;
		bool is;
	} rows[] = {
	        {"https://github.com/acme/widgets.git", NULL, true},
	        {"https://github.com/acme/widgets.git", "", true},
	        {"https://user@GitHub.com:443/acme/widgets.git", SBX_GITHUB_API, true},
	        {"https://github.com/acme/widgets.git", ENTERPRISE, true},
	        {"https://git.example.org/acme/widgets.git", ENTERPRISE, true},
	        {"https://acme.ghe.com/acme/widgets", "https://api.acme.ghe.com", true},
	        {"http://127.0.0.1:9/acme/widgets.git", LOOPBACK, true},
	        {"https://git.example.org/acme/widgets.git", NULL, false},
	        {"http://github.com/acme/widgets.git", NULL, false},
	        {"http://github.com/acme/widgets.git", LOOPBACK, false},
	        {"http://git.example.org/acme/widgets.git", ENTERPRISE, false},
	        {"http://127.0.0.1:9/acme/widgets.git", NULL, false},
	        {"http://127.0.0.1:9/acme/widgets.git", "ftp://127.0.0.1", false},
	        {"https://github.com@127.0.0.1/acme/widgets.git", NULL, false},
	        {"https://127.0.0.1/github.com/acme/widgets.git", NULL, false},
	        {"https://127.0.0.1?@github.com/acme/widgets.git", NULL, false},
	        {"https://127.0.0.1\\@github.com/acme/widgets.git", NULL, false},
	        {"https://github.com.example.org/acme/widgets.git", NULL, false},
	        {"https:///acme/widgets.git", NULL, false},
	        {"git@github.com:acme/widgets.git", NULL, false},
	        {"ssh://git@github.com/acme/widgets.git", NULL, false},
	        {"/acme/widgets", NULL, false},
	        {"acme/widgets", NULL, false},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		if (sbx_github_token_is_for(rows[i].url, rows[i].api) != rows[i].is)
			fail_msg("%s with %s", rows[i].url, rows[i].api ? rows[i].api : "none");
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

static void a_clone_goes_to_the_host_that_is_named(void **state)
{
	static const struct {
		const char *url, *api, *want;
	} rows[] = {
	        {"acme/widgets", SBX_GITHUB_API, "https://github.com/acme/widgets.git"},
	        {"acme/widgets.git", ENTERPRISE, "https://git.example.org/acme/widgets.git"},
	        {"acme/widgets", LOOPBACK "/x", LOOPBACK "/acme/widgets.git"},
	        {"https://u:secret@github.com:443/acme/widgets/", SBX_GITHUB_API,
	         "https://github.com:443/acme/widgets.git"},
	        {"http://127.0.0.1:9/acme/widgets", LOOPBACK,
	         "http://127.0.0.1:9/acme/widgets.git"},
	        {"git@github.com:acme/widgets.git", SBX_GITHUB_API,
	         "https://github.com/acme/widgets.git"},
	        {"ssh://git@ssh.github.com:443/acme/widgets", SBX_GITHUB_API,
	         "https://github.com/acme/widgets.git"},
	        {"git@git.example.org:acme/widgets", ENTERPRISE,
	         "https://git.example.org/acme/widgets.git"},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		_cleanup_free_ char *url = NULL;

		assert_int_equal(sbx_github_clone_url(rows[i].url, rows[i].api, &url, NULL), 0);
		assert_string_equal(url, rows[i].want);
	}
}

static void what_is_no_repository_is_not_cloned(void **state)
{
	char *url = NULL;

	(void)state;
	assert_int_equal(sbx_github_clone_url(".", SBX_GITHUB_API, &url, NULL), -EINVAL);
	assert_int_equal(sbx_github_clone_url("acme/widgets", "https://", &url, NULL), -EINVAL);
	assert_null(url);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(forms_of_a_repository_are_known),
	        cmocka_unit_test(the_host_of_the_api_counts_as_github),
	        cmocka_unit_test(the_token_is_for_github_alone),
	        cmocka_unit_test(others_are_refused_in_words),
	        cmocka_unit_test(names_that_are_too_long_are_refused),
	        cmocka_unit_test(a_clone_goes_to_the_host_that_is_named),
	        cmocka_unit_test(what_is_no_repository_is_not_cloned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
