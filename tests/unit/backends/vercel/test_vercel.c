/* Settings, tokens, and what is told of the provider. */
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

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "tests/lib/vercel_fixture.h"

static struct sbx_machine *m;

static void is_refused(int code, const char *text)
{
	struct sbx_provider *p;
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_vercel_provider(&vercel_config, &p, &err), -code);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" has no \"%s\"", err.text, text);
	assert_null(strstr(err.text, "secret"));
	assert_int_equal(sbx_vercel_provider(&vercel_config, &p, NULL), -code);
}

/* ---- tokens ---- */

static void put_base64url(char *to, const char *text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	                             "0123456789-_";
	unsigned bits = 0, n = 0;

	for (; *text; text++) {
		bits = bits << 8 | (unsigned char)*text;
		for (n += 8; n >= 6; n -= 6)
			*to++ = digits[bits >> (n - 6) & 63];
	}
	if (n)
		*to++ = digits[bits << (6 - n) & 63];
	*to = '\0';
}

/* A JWT with CLAIMS. */
static const struct sbx_secret *jwt(const char *claims)
{
	char middle[512], text[700];

	put_base64url(middle, claims);
	snprintf(text, sizeof(text), "eyJhbGciOiJSUzI1NiJ9.%s.c2lnbmF0dXJlLXNlY3JldA", middle);
	return vercel_secret(text);
}

static void without_a_token_it_says_what_to_set(void **state)
{
	(void)state;
	vercel_config.token = NULL;
	is_refused(EACCES, "Vercel token required (set VERCEL_TOKEN, VERCEL_TEAM_ID and "
	                   "VERCEL_PROJECT_ID, or VERCEL_OIDC_TOKEN by `vercel env pull`)");
}

static void a_token_needs_a_team_and_a_project(void **state)
{
	(void)state;
	vercel_config.team = NULL;
	is_refused(EACCES, "VERCEL_TOKEN names no team, and VERCEL_TEAM_ID is not set");
	vercel_config.team = VERCEL_TEAM;
	vercel_config.project = "";
	is_refused(EACCES, "VERCEL_TOKEN names no project, and VERCEL_PROJECT_ID is not set");
}

static void check_chosen(const char *variable, const char *team, const char *project, int64_t exp)
{
	struct vercel_token t;
	struct sbx_error err = SBX_ERROR_INIT;

	if (vercel_token_choose(&vercel_config, &t, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(t.variable, variable);
	assert_string_equal(t.team, team);
	assert_string_equal(t.project, project);
	assert_int_equal(t.expires_s, exp);
}

static void a_jwt_names_both(void **state)
{
	(void)state;
	vercel_config.oidc = jwt("{\"owner_id\":\"team_o\",\"project_id\":\"prj_o\",\"exp\":7}");
	check_chosen("VERCEL_TOKEN", VERCEL_TEAM, VERCEL_PROJECT, 0);
	vercel_config.team = NULL;
	check_chosen("VERCEL_OIDC_TOKEN", "team_o", "prj_o", 7);
	vercel_config.token = NULL;
	vercel_config.team = "team_other";
	vercel_config.project = "prj_other";
	check_chosen("VERCEL_OIDC_TOKEN", "team_o", "prj_o", 7);
	/* Without a project, that of the environment. */
	vercel_config.oidc = jwt("{\"owner_id\":\"team_o\"}");
	check_chosen("VERCEL_OIDC_TOKEN", "team_o", "prj_other", 0);
}

static void what_is_no_jwt_is_a_token(void **state)
{
	static const char *const texts[] = {"a.b",     "a.b.c.d", "a.!!.c",
	                                    "a.e30.c", "a..c",    "a.W10.c"};

	(void)state;
	vercel_config.token = NULL;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++) {
		vercel_config.oidc = vercel_secret(texts[i]);
		check_chosen("VERCEL_OIDC_TOKEN", VERCEL_TEAM, VERCEL_PROJECT, 0);
	}
}

static void what_has_no_claims_is_a_token(void **state)
{
	(void)state;
	vercel_config.token = NULL;
	vercel_config.oidc = jwt("{\"owner_id\":5,\"exp\":\"x\"}");
	check_chosen("VERCEL_OIDC_TOKEN", VERCEL_TEAM, VERCEL_PROJECT, 0);
	vercel_config.oidc = jwt("[1]");
	check_chosen("VERCEL_OIDC_TOKEN", VERCEL_TEAM, VERCEL_PROJECT, 0);
}

static void a_refused_token_is_told(void **state)
{
	(void)state;
	vercel_config.token = vercel_secret("another secret");
	vercel_provide();
	assert_int_equal(vercel_try_make(vercel_name(), NULL, &m), -EKEYREJECTED);
	vercel_said_to(EKEYREJECTED, "Vercel does not accept VERCEL_TOKEN for the team team_test");
}

static void one_that_has_expired_is_told_in_words(void **state)
{
	(void)state;
	vercel_config.token = NULL;
	vercel_config.oidc = jwt("{\"owner_id\":\"team_test\",\"project_id\":\"prj_test\","
	                         "\"exp\":1700000000}");
	vercel_provide();
	assert_int_equal(vercel_try_make(vercel_name(), NULL, &m), -EKEYREJECTED);
	assert_string_equal(vercel_error()->text,
	                    "VERCEL_OIDC_TOKEN has expired at 2023-11-14 22:13 UTC; `vercel env "
	                    "pull` brings a new one");
}

static void one_that_has_not_is_another_matter(void **state)
{
	(void)state;
	vercel_config.token = NULL;
	vercel_config.oidc = jwt("{\"owner_id\":\"team_test\",\"project_id\":\"prj_test\","
	                         "\"exp\":99999999999}");
	vercel_provide();
	assert_int_equal(vercel_try_make(vercel_name(), NULL, &m), -EKEYREJECTED);
	assert_string_equal(vercel_error()->text,
	                    "Vercel does not accept VERCEL_OIDC_TOKEN for the team team_test; "
	                    "`vercel env pull` brings a new one");
}

/* ---- settings ---- */

static void what_cannot_be_is_refused(void **state)
{
	char low[] = "80", high[] = "65536", word[] = "x";
	char *lists[] = {low, high, word};
	struct sbx_strings ports = {NULL, 1};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(lists); i++) {
		char *items[] = {lists[i], NULL};

		ports.items = items;
		vercel_config.ports = &ports;
		is_refused(EINVAL, "a port is a number from 1024 to 65535");
	}
	vercel_config.ports = NULL;
	vercel_config.vcpus = 3;
	is_refused(EINVAL, "Vercel takes 1 vcpu, or an even number up to 32");
	vercel_config.vcpus = 34;
	is_refused(EINVAL, "Vercel takes 1 vcpu, or an even number up to 32");
	vercel_config.vcpus = 1;
	vercel_config.life_ms = 999;
	is_refused(EINVAL, "lives for a second to a day");
	vercel_config.life_ms = 0;
	vercel_config.runtime = "node24";
	vercel_config.image = "x";
	is_refused(EINVAL, "from an image or with a runtime, not with both");
}

static void without_encryption_it_is_this_host_alone(void **state)
{
	(void)state;
	vercel_config.api_url = "ftp://vercel.com/api";
	is_refused(EINVAL, "VERCEL_API_URL is no https URL");
	vercel_config.api_url = "http://vercel.com/api";
	is_refused(EINVAL, "VERCEL_API_URL is to be asked without encryption");
	vercel_config.api_url = "http://127.0.0.1.example.org/api";
	is_refused(EINVAL, "VERCEL_API_URL is to be asked without encryption");
}

static bool can(unsigned bit)
{
	return vercel_provider->impl->can & bit;
}

static void it_says_what_it_can(void **state)
{
	(void)state;
	assert_true(can(SBX_PROVIDER_DETACHES) && can(SBX_PROVIDER_PARALLEL));
	assert_true(can(SBX_PROVIDER_BLOCKS_NETWORK) && can(SBX_PROVIDER_FILTERS_HOSTS));
	assert_true(can(SBX_PROVIDER_SLEEPS) && !can(SBX_PROVIDER_EPHEMERAL));
	assert_int_equal(vercel_provider->impl->idle_ms, 300000);
	vercel_config.ephemeral = true;
	vercel_config.life_ms = 5000;
	vercel_provide();
	assert_true(!can(SBX_PROVIDER_SLEEPS) && can(SBX_PROVIDER_EPHEMERAL));
	assert_int_equal(vercel_provider->impl->idle_ms, 5000);
}

static void it_says_what_it_is(void **state)
{
	struct json_object *obj = json_object_new_object();
	const char *text;

	(void)state;
	vercel_config.token = NULL;
	vercel_config.oidc = jwt("{\"owner_id\":\"team_o\",\"project_id\":\"prj_o\",\"exp\":7}");
	vercel_config.api_url = NULL;
	vercel_provide();
	vercel_provider->impl->info(vercel_provider, obj);
	text = json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PLAIN |
	                                                   JSON_C_TO_STRING_NOSLASHESCAPE);
	assert_string_equal(text, "{\"url\":\"https://vercel.com/api\",\"team\":\"team_o\","
	                          "\"project\":\"prj_o\",\"token\":\"VERCEL_OIDC_TOKEN\","
	                          "\"token_expires\":7000,\"runtime\":\"python3.13\","
	                          "\"sudo\":false,\"ephemeral\":false}");
	json_object_put(obj);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, vercel_set_up, vercel_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(without_a_token_it_says_what_to_set),
	        CASE(a_token_needs_a_team_and_a_project),
	        CASE(a_jwt_names_both),
	        CASE(what_is_no_jwt_is_a_token),
	        CASE(what_has_no_claims_is_a_token),
	        CASE(a_refused_token_is_told),
	        CASE(one_that_has_expired_is_told_in_words),
	        CASE(one_that_has_not_is_another_matter),
	        CASE(what_cannot_be_is_refused),
	        CASE(without_encryption_it_is_this_host_alone),
	        CASE(it_says_what_it_can),
	        CASE(it_says_what_it_is),
	};

	return cmocka_run_group_tests(tests, vercel_servers_start, vercel_servers_stop);
}
