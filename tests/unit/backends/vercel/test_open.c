/* The provider by the settings of a mount and the environment. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/secret.h"

static const char *const variables[] = {
        "VERCEL_TEAM_ID",         "VERCEL_PROJECT_ID",      "VERCEL_API_URL",
        "VERCEL_SANDBOX_RUNTIME", "VERCEL_SANDBOX_IMAGE",   "VERCEL_SANDBOX_VCPUS",
        "VERCEL_SANDBOX_PORTS",   "VERCEL_SANDBOX_TIMEOUT", "VERCEL_SANDBOX_REGION",
        "VERCEL_SANDBOX_SUDO",    "GITHUB_API_URL"};

static struct sbx_secret *token;
static struct sbx_settings settings;
static struct sbx_provider *p;

static const struct sbx_secret *secret_of(const char *name, void *data)
{
	(void)data;
	return strcmp(name, "VERCEL_TOKEN") == 0 ? token : NULL;
}

static const struct sbx_host host = {.settings = &settings, .secret = secret_of};

static int set_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	setenv("VERCEL_TEAM_ID", "team_x", 1);
	setenv("VERCEL_PROJECT_ID", "prj_x", 1);
	setenv("VERCEL_TOKEN", "a secret token", 1);
	assert_int_equal(sbx_secret_take("VERCEL_TOKEN", &token), 0);
	settings = (struct sbx_settings){.source = (char *)(uintptr_t) "org/repo"};
	p = NULL;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	if (p)
		p->impl->destroy(p);
	sbx_secret_free(token);
	return 0;
}

static const struct sbx_vercel_config *opened(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_vercel_provider_of(&host, &p, &err) < 0)
		fail_msg("%s", err.text);
	return &vercel_of(p)->config;
}

static void is_refused(int code, const char *text)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_vercel_provider_of(&host, &p, &err), -code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" has no \"%s\"", err.text, text);
}

static void what_is_not_set_has_a_default(void **state)
{
	const struct sbx_vercel_config *c = opened();

	(void)state;
	assert_string_equal(c->api_url, "https://vercel.com/api");
	assert_string_equal(c->runtime, "python3.13");
	assert_null(c->image);
	assert_int_equal(c->life_ms, 300000);
	assert_false(c->ephemeral || c->sudo);
	assert_false(vercel_of(p)->net.open);
	assert_string_equal(vercel_of(p)->token.variable, "VERCEL_TOKEN");
	assert_string_equal(vercel_of(p)->token.team, "team_x");
	assert_string_equal(vercel_of(p)->token.project, "prj_x");
}

static void what_is_set_is_taken(void **state)
{
	char pair[] = "A=b";
	char *env[] = {pair, NULL};
	const struct sbx_vercel_config *c;

	(void)state;
	setenv("VERCEL_API_URL", "https://api.vercel.com/", 1);
	setenv("VERCEL_SANDBOX_IMAGE", "vercel/sandbox/node:24", 1);
	setenv("VERCEL_SANDBOX_VCPUS", "8", 1);
	setenv("VERCEL_SANDBOX_PORTS", "3000,8080", 1);
	setenv("VERCEL_SANDBOX_TIMEOUT", "600000", 1);
	setenv("VERCEL_SANDBOX_REGION", "fra1", 1);
	setenv("VERCEL_SANDBOX_SUDO", "1", 1);
	settings.ephemeral = true;
	settings.env = (struct sbx_strings){env, 1};
	settings.net = (char *)(uintptr_t) "host";
	c = opened();
	assert_string_equal(c->api_url, "https://api.vercel.com");
	assert_string_equal(c->image, "vercel/sandbox/node:24");
	assert_null(c->runtime);
	assert_string_equal(c->region, "fra1");
	assert_int_equal(c->vcpus, 8);
	assert_int_equal(c->life_ms, 600000);
	assert_true(c->ephemeral && c->sudo);
	assert_true(vercel_of(p)->net.open);
	assert_int_equal(vercel_of(p)->ports.n, 2);
	assert_string_equal(vercel_of(p)->ports.items[1], "8080");
	assert_string_equal(vercel_of(p)->env.items[0], "A=b");
}

static void what_is_set_to_nothing_is_not(void **state)
{
	(void)state;
	for (size_t i = 2; i < SBX_ARRAY_SIZE(variables); i++)
		setenv(variables[i], "", 1);
	assert_string_equal(opened()->runtime, "python3.13");
}

static void what_cannot_be_is_refused(void **state)
{
	(void)state;
	setenv("VERCEL_SANDBOX_VCPUS", "two", 1);
	is_refused(EINVAL, "VERCEL_SANDBOX_VCPUS is no number");
	setenv("VERCEL_SANDBOX_VCPUS", "99999999999999999999999", 1);
	is_refused(EINVAL, "VERCEL_SANDBOX_VCPUS is");
	setenv("VERCEL_SANDBOX_VCPUS", "", 1);
	setenv("VERCEL_SANDBOX_TIMEOUT", "-1", 1);
	is_refused(EINVAL, "VERCEL_SANDBOX_TIMEOUT is no number");
	unsetenv("VERCEL_SANDBOX_TIMEOUT");
	setenv("VERCEL_SANDBOX_PORTS", "80", 1);
	is_refused(EINVAL, "a port is a number from 1024 to 65535");
	unsetenv("VERCEL_SANDBOX_PORTS");
	settings.source = (char *)(uintptr_t) "/srv/repo";
	is_refused(EINVAL, "Vercel sandbox requires a GitHub repo URL");
}

static void both_tokens_are_secrets(void **state)
{
	(void)state;
	assert_string_equal(sbx_vercel_secrets[0], "VERCEL_TOKEN");
	assert_string_equal(sbx_vercel_secrets[1], "VERCEL_OIDC_TOKEN");
	assert_null(sbx_vercel_secrets[2]);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(what_is_not_set_has_a_default), CASE(what_is_set_is_taken),
	        CASE(what_is_set_to_nothing_is_not), CASE(what_cannot_be_is_refused),
	        CASE(both_tokens_are_secrets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
