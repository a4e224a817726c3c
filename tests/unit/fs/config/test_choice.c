#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/config/choice.h"
#include "fs/config/options.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

static const char *const variables[] = {"SANDBOXFS_BACKEND", "VERCEL",         "VERCEL_TOKEN",
                                        "VERCEL_OIDC_TOKEN", "VERCEL_TEAM_ID", "VERCEL_PROJECT_ID"};

static struct sbx_settings settings;
static struct sbx_error err;
static const char *why;
static char *note;

static int set_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	setenv("XDG_CONFIG_HOME", scratch_make(), 1);
	settings = (struct sbx_settings){0};
	err = SBX_ERROR_INIT;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_settings_release(&settings);
	free(note);
	note = NULL;
	scratch_remove();
	return 0;
}

static void is_taken(const char *backend, const char *reason)
{
	sbx_settings_release(&settings);
	if (sbx_choice_find(&settings, &why, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(settings.backend, backend);
	assert_string_equal(why, reason);
}

static int check(void)
{
	free(note);
	return sbx_choice_check(&settings, &note, &err);
}

static void the_stronger_names_it(void **state)
{
	(void)state;
	is_taken("local", "as nothing names another");
	setenv("VERCEL", "1", 1);
	is_taken("vercel", "because VERCEL is 1");
	scratch_write(scratch_path("sandboxfs.json"), "{\"backend\": \"memory\"}");
	is_taken("memory", "because the configuration file names it");
	setenv("SANDBOXFS_BACKEND", "local", 1);
	is_taken("local", "because SANDBOXFS_BACKEND names it");
}

static void one_that_nobody_knows_is_told(void **state)
{
	(void)state;
	setenv("SANDBOXFS_BACKEND", "docker", 1);
	assert_int_equal(sbx_choice_find(&settings, &why, &err), -EINVAL);
	assert_non_null(strstr(err.text, "SANDBOXFS_BACKEND: "));
}

static void what_it_lacks_is_told(void **state)
{
	(void)state;
	is_taken("local", "as nothing names another");
	assert_int_equal(check(), 0);
	setenv("VERCEL", "1", 1);
	is_taken("vercel", "because VERCEL is 1");
	assert_int_equal(check(), -EACCES);
	assert_non_null(strstr(err.text, "Vercel token required (set VERCEL_TOKEN"));
	setenv("VERCEL_TOKEN", "a secret token", 1);
	assert_int_equal(check(), -EACCES);
	assert_non_null(strstr(err.text, "VERCEL_TEAM_ID is not set"));
	assert_null(strstr(err.text, "secret"));
	assert_null(getenv("VERCEL_TOKEN"));
	setenv("VERCEL_TOKEN", "a secret token", 1);
	setenv("VERCEL_TEAM_ID", "team_x", 1);
	setenv("VERCEL_PROJECT_ID", "prj_x", 1);
	assert_int_equal(check(), 0);
}

/* The claims of the second are {"owner_id":"t","project_id":"p","exp":9999999999}. */
static void the_end_of_a_token_is_told(void **state)
{
	(void)state;
	setenv("SANDBOXFS_BACKEND", "vercel", 1);
	is_taken("vercel", "because SANDBOXFS_BACKEND names it");
	setenv("VERCEL_OIDC_TOKEN", "e30.eyJvd25lcl9pZCI6InQiLCJwcm9qZWN0X2lkIjoicCIsImV4cCI6MX0.c",
	       1);
	assert_int_equal(check(), -EKEYREJECTED);
	assert_non_null(strstr(err.text, "VERCEL_OIDC_TOKEN has expired at 1970-01-01 00:00 UTC"));
	assert_null(note);
	setenv("VERCEL_OIDC_TOKEN",
	       "e30.eyJvd25lcl9pZCI6InQiLCJwcm9qZWN0X2lkIjoicCIsImV4cCI6OTk5OTk5OTk5OX0.c", 1);
	assert_int_equal(check(), 0);
	assert_string_equal(note, "VERCEL_OIDC_TOKEN holds until 2286-11-20 17:46 UTC");
}

static void one_that_cannot_be_opened_is_told(void **state)
{
	(void)state;
	setenv("SANDBOXFS_BACKEND", "daytona", 1);
	unsetenv("DAYTONA_API_KEY");
	is_taken("daytona", "because SANDBOXFS_BACKEND names it");
	assert_int_equal(check(), -EACCES);
	assert_non_null(strstr(err.text, "Daytona API key required"));
	setenv("DAYTONA_API_KEY", "a secret key", 1);
	assert_int_equal(check(), 0);
	assert_null(getenv("DAYTONA_API_KEY"));
	setenv("SANDBOXFS_BACKEND", "dagger", 1);
	setenv("DAGGER_SESSION_PORT", "1", 1);
	unsetenv("DAGGER_SESSION_TOKEN");
	is_taken("dagger", "because SANDBOXFS_BACKEND names it");
	assert_int_equal(check(), -EACCES);
	assert_non_null(strstr(err.text, "DAGGER_SESSION_TOKEN"));
	unsetenv("DAGGER_SESSION_PORT");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(the_stronger_names_it),
	        CASE(one_that_nobody_knows_is_told),
	        CASE(what_it_lacks_is_told),
	        CASE(the_end_of_a_token_is_told),
	        CASE(one_that_cannot_be_opened_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
