/* The provider by the settings of a mount and the environment. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "backends/dagger/dagger.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/secret.h"
#include "tests/lib/scratch.h"

static const char *const variables[] = {"DAGGER_SESSION_PORT", "DAGGER_IMAGE",
                                        "_EXPERIMENTAL_DAGGER_CLI_BIN", "GITHUB_API_URL"};

static struct sbx_secret *token;
static struct sbx_settings settings;

static const struct sbx_secret *secret_of(const char *name, void *data)
{
	(void)data;
	return strcmp(name, "DAGGER_SESSION_TOKEN") == 0 ? token : NULL;
}

static const struct sbx_host host = {.settings = &settings, .secret = secret_of};

static int set_up(void **state)
{
	(void)state;
	scratch_make();
	for (size_t i = 0; i < SBX_ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	setenv("PATH", scratch_path("."), 1);
	settings = (struct sbx_settings){.source = (char *)(uintptr_t) "org/repo"};
	token = NULL;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_secret_free(token);
	scratch_remove();
	return 0;
}

static void is_good(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_dagger_check(&host, &err) < 0)
		fail_msg("%s", err.text);
}

static void is_refused(int code, const char *text)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_dagger_check(&host, &err), -code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" has no \"%s\"", err.text, text);
}

static void a_session_is_given_or_can_be_started(void **state)
{
	(void)state;
	is_refused(ENOENT, "DAGGER_SESSION_PORT is not set, and there is no program dagger");
	scratch_write(scratch_path("dagger"), "");
	is_refused(ENOENT, "there is no program dagger");
	assert_int_equal(chmod(scratch_path("dagger"), 0755), 0);
	is_good();
	setenv("_EXPERIMENTAL_DAGGER_CLI_BIN", scratch_path("other"), 1);
	is_refused(ENOENT, "other");
	setenv("DAGGER_SESSION_PORT", "8080", 1);
	is_refused(EACCES, "DAGGER_SESSION_TOKEN is not");
	assert_int_equal(sbx_secret_make("token", &token), 0);
	is_good();
}

static void settings_are_checked(void **state)
{
	(void)state;
	assert_int_equal(sbx_secret_make("token", &token), 0);
	setenv("DAGGER_SESSION_PORT", "none", 1);
	is_refused(EINVAL, "DAGGER_SESSION_PORT is no port");
	setenv("DAGGER_SESSION_PORT", "8080", 1);
	setenv("DAGGER_IMAGE", "rootfs:relative", 1);
	is_refused(EINVAL, "wants an absolute path");
	setenv("DAGGER_IMAGE", "", 1);
	is_good();
}

static void sources_are_checked(void **state)
{
	static const struct {
		const char *source;
		int code;
	} rows[] = {{NULL, 0},
	            {"/any/path", 0},
	            {"org/repo", 0},
	            {"https://github.com/org/repo", 0},
	            {"https://example.org/any/repo.git", 0},
	            {"git@example.org:any/repo", 0},
	            {"nothing of the kind", EINVAL},
	            {"https://github.com/\xff/repo", EILSEQ},
	            {"/any/\xff", EILSEQ}};

	(void)state;
	assert_int_equal(sbx_secret_make("token", &token), 0);
	setenv("DAGGER_SESSION_PORT", "8080", 1);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		settings.source = (char *)(uintptr_t)rows[i].source;
		if (rows[i].code)
			is_refused(rows[i].code, "");
		else
			is_good();
	}
}

static void its_secret_is_the_token(void **state)
{
	(void)state;
	assert_string_equal(sbx_dagger_secrets[0], "DAGGER_SESSION_TOKEN");
	assert_null(sbx_dagger_secrets[1]);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_session_is_given_or_can_be_started),
	        CASE(settings_are_checked),
	        CASE(sources_are_checked),
	        CASE(its_secret_is_the_token),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
