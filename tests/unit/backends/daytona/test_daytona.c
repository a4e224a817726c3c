#include <errno.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/secret.h"
#include "tests/lib/daytona_fixture.h"
#include "tests/lib/repo.h"

/* ---- settings ---- */

/* The provider of these settings is refused by CODE and a sentence with TEXT. */
static void check_refused(const struct sbx_daytona_config *config, int code, const char *text)
{
	struct sbx_provider *p;
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_daytona_provider(config, &p, &err), -code);
	if (!strstr(err.text, text))
		fail_msg("%s", err.text);
}

static void there_must_be_a_key(void **state)
{
	struct sbx_daytona_config config = daytona_config;

	(void)state;
	config.key = NULL;
	check_refused(&config, EACCES,
	              "Daytona API key required (set DAYTONA_API_KEY or pass opts.daytona.apiKey)");
}

static void settings_that_cannot_be_are_refused(void **state)
{
	const struct sbx_daytona_config good = daytona_config;
	struct sbx_daytona_config config = good;

	(void)state;
	config.api_url = "ftp://daytona";
	check_refused(&config, EINVAL, "DAYTONA_API_URL");
	config = good;
	config.memory_gb = 4;
	check_refused(&config, EINVAL, "a snapshot has its own");
	config.image = "debian:12";
	config.snapshot = "daytona-small";
	check_refused(&config, EINVAL, "not from both");
	config.snapshot = NULL;
	config.image = "debian\nRUN id";
	check_refused(&config, EINVAL, "blank");
}

static void names_of_variables_are_names(void **state)
{
	static const char *const wrong[] = {"A-B=1",  "=1",    "1A=1", "$(id)=1",
	                                    "A\nB=1", "A B=1", "A"};
	struct sbx_daytona_config config = daytona_config;
	char pair[32], want[128], *env[] = {pair, NULL};

	(void)state;
	config.env = env;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(wrong); i++) {
		snprintf(pair, sizeof(pair), "%s", wrong[i]);
		snprintf(want, sizeof(want), "Invalid env key \"%.*s\" \u2014 must match",
		         (int)strcspn(pair, "="), pair);
		if (strchr(want, '\n'))
			*strchr(want, '\n') = '?';
		check_refused(&config, EINVAL, want);
	}
}

static void networks_that_have_no_word_are_refused(void **state)
{
	static const char *const rules[] = {"a.org:8080", "a.org/private", "[::1]", "10.0.0.1:80"};
	struct sbx_daytona_config config = daytona_config;
	char net[64];

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rules); i++) {
		snprintf(net, sizeof(net), "allow:b.org,%s", rules[i]);
		config.net = net;
		check_refused(&config, EOPNOTSUPP, rules[i]);
	}
}

static void a_source_is_checked_without_a_request(void **state)
{
	static const char *const paths[] = {"./x", "../x/y",  "/x/y",
	                                    "~/x", "widgets", "file:///x/y"};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_daytona_check_source(NULL, NULL, &err), 0);
	assert_int_equal(sbx_daytona_check_source("acme/widgets", NULL, &err), 0);
	assert_int_equal(sbx_daytona_check_source(".", NULL, &err), -EINVAL);
	assert_string_equal(err.text, "Daytona sandbox requires a GitHub repo URL (e.g. org/repo), "
	                              "not a local path");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(paths); i++) {
		assert_int_equal(sbx_daytona_check_source(paths[i], NULL, &err), -EINVAL);
		assert_non_null(strstr(err.text, "not a local path"));
	}
	assert_int_equal(daytona_count("all"), 0);
}

static void settings_come_from_the_environment(void **state)
{
	struct sbx_daytona_config config = {.net = "host"};

	(void)state;
	setenv("DAYTONA_API_URL", "https://daytona.example.org/api", 1);
	setenv("DAYTONA_TARGET", "eu", 1);
	setenv("DAYTONA_ORGANIZATION_ID", "", 1);
	sbx_daytona_environment(&config);
	assert_string_equal(config.api_url, "https://daytona.example.org/api");
	assert_string_equal(config.target, "eu");
	assert_null(config.organization);
	assert_null(config.snapshot);
	assert_int_equal(config.idle_min, 30);
	assert_string_equal(config.net, "host");
	unsetenv("DAYTONA_API_URL");
	unsetenv("DAYTONA_TARGET");
	unsetenv("DAYTONA_ORGANIZATION_ID");
}

static void info_has_no_secret(void **state)
{
	struct json_object *obj = json_object_new_object();
	const char *text;

	(void)state;
	daytona_provider->impl->info(daytona_provider, obj);
	text = json_object_to_json_string(obj);
	assert_non_null(strstr(text, "daytona-medium"));
	assert_non_null(strstr(text, "\"us\""));
	assert_null(strstr(text, "secret"));
	json_object_put(obj);
}

static void a_key_that_is_refused_is_told(void **state)
{
	struct sbx_secret *wrong;
	struct sbx_machine *m;

	(void)state;
	setenv("DAYTONA_TEST_WRONG", "dtn_anothersecretkey", 1);
	assert_int_equal(sbx_secret_take("DAYTONA_TEST_WRONG", &wrong), 0);
	daytona_config.key = wrong;
	daytona_provide();
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -EKEYREJECTED);
	assert_non_null(strstr(daytona_error()->text, "Invalid credentials"));
	assert_int_equal(daytona_count("all"), 1);
	sbx_secret_free(wrong);
}

static void nobody_there_is_told(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_config.api_url = "http://127.0.0.1:1/api";
	daytona_provide();
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -ECONNREFUSED);
	daytona_config.api_url = "http://example.invalid/api";
	daytona_provide();
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -EINVAL);
	assert_non_null(strstr(daytona_error()->text, "without encryption"));
}

/* ---- machines ---- */

static void a_machine_is_adopted_without_a_request(void **state)
{
	struct sbx_machine *m = daytona_made(NULL), *again;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	daytona_forget();
	assert_int_equal(daytona_provider->impl->adopt(daytona_provider, m->handle, &again, &err),
	                 0);
	assert_int_equal(daytona_count("all"), 0);
	assert_string_equal(again->handle, m->handle);
	assert_string_equal(again->workdir, m->workdir);
	assert_string_equal(again->room, m->room);
	daytona_runs(again, "echo adopted", "adopted\n");
	daytona_provider->impl->release(again);
	daytona_drop(m);
}

/* A mount makes the machine NAME, and ends. */
static void leave_one(const char *name, char *handle, size_t size)
{
	struct sbx_machine *m;

	assert_int_equal(daytona_try_make(name, NULL, &m), 0);
	snprintf(handle, size, "%s", m->handle);
	daytona_provider->impl->release(m);
}

/* Another mount takes over the machine NAME with HANDLE, and its network is NET. */
static struct sbx_machine *adopted(const char *handle, const char *net)
{
	struct sbx_machine *m;

	daytona_config.net = net;
	daytona_provide();
	daytona_forget();
	assert_int_equal(daytona_provider->impl->adopt(daytona_provider, handle, &m, NULL), 0);
	return m;
}

static void the_network_of_an_adopted_one_is_the_mount_s(void **state)
{
	static const struct {
		const char *net, *is;
		int sets;
	} rows[] = {
	        {"none", "none", 1},
	        {"none", "none", 0},
	        {"allow:a.org,10.1.2.3", "a.org|10.1.2.3/32", 1},
	        {"allow:b.org", "b.org|", 1},
	        {"allow:b.org", "b.org|", 0},
	        {"host", "|", 1},
	        {"host", "|", 0},
	};
	const char *name = daytona_name();
	struct sbx_machine *m = NULL;
	char handle[512];

	(void)state;
	leave_one(name, handle, sizeof(handle));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		if (m)
			daytona_provider->impl->release(m);
		m = adopted(handle, rows[i].net);
		daytona_runs(m, "echo one", "one\n");
		assert_string_equal(daytona_control("network/%s", name), rows[i].is);
		assert_int_equal(daytona_count("network"), rows[i].sets);
		assert_int_equal(daytona_count("look"), 1);
		daytona_runs(m, "echo two", "two\n");
		assert_int_equal(daytona_count("all"), 3 + rows[i].sets);
	}
	daytona_drop(m);
}

/* Nothing runs in a sandbox that is more open than the mount says, nor in one that sleeps. */
static void one_whose_network_cannot_be_set_is_not_used(void **state)
{
	struct daytona_flight f = {0};
	const char *name = daytona_name();
	struct sbx_machine *m;
	char handle[512];

	(void)state;
	leave_one(name, handle, sizeof(handle));
	m = adopted(handle, "none");
	daytona_tell("fault", "{\"op\": \"network\", \"fault\": \"status\", \"status\": 403}");
	daytona_begin_run(m, &f, "echo open");
	assert_true(daytona_await(&f) < 0);
	assert_true(f.run.not_run);
	assert_int_equal(daytona_count("execute"), 0);
	daytona_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", name);
	daytona_runs(m, "echo closed", "closed\n");
	assert_string_equal(daytona_control("network/%s", name), "none");
	daytona_drop(m);
}

static void what_is_no_handle_is_refused(void **state)
{
	static const char *const handles[] = {
	        "",
	        "x",
	        "[]",
	        "{}",
	        "{\"id\":\"a\"}",
	        "{\"id\":\"a\",\"toolbox\":\"http://x\",\"workdir\":\"w\",\"room\":\"/r\"}",
	        "{\"id\":\"../a\",\"toolbox\":\"http://x\",\"workdir\":\"/w\",\"room\":\"/r\"}",
	        "{\"id\":7,\"toolbox\":\"http://x\",\"workdir\":\"/w\",\"room\":\"/r\"}",
	};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_machine *m;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(handles); i++)
		assert_int_equal(
		        daytona_provider->impl->adopt(daytona_provider, handles[i], &m, &err),
		        -EPROTO);
}

static struct sbx_machine_look look(struct sbx_machine *m)
{
	struct sbx_error *err = daytona_error();
	struct sbx_machine_look found;

	if (daytona_provider->impl->look(m, &found, NULL, err) < 0)
		fail_msg("%s", err->text);
	return found;
}

static void to(struct sbx_machine *m, const char *state)
{
	daytona_tell("state", "{\"name\": \"%s\", \"to\": \"%s\"}", daytona_machine_of(m)->name,
	             state);
}

static void a_look_says_how_it_is(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct sbx_machine_look found = look(m);
	int64_t left_ms = found.expires_ms - sbx_real_ms();

	(void)state;
	assert_int_equal(found.state, SBX_MACHINE_UP);
	assert_string_equal(found.reason, "");
	assert_int_equal((int)found.cpus, 2);
	assert_int_equal(found.memory_mb, 4096);
	assert_int_equal(found.disk_mb, 8192);
	assert_string_equal(found.region, "us");
	assert_in_range(left_ms, 29 * 60000, 30 * 60000);
	to(m, "stopped");
	assert_int_equal(look(m).state, SBX_MACHINE_ASLEEP);
	to(m, "archived");
	assert_int_equal(look(m).state, SBX_MACHINE_ASLEEP);
	to(m, "resizing");
	assert_int_equal(look(m).state, SBX_MACHINE_CHANGING);
	to(m, "error");
	found = look(m);
	assert_int_equal(found.state, SBX_MACHINE_FAILED);
	assert_string_equal(found.reason, "its disk is broken");
	to(m, "destroyed");
	assert_int_equal(look(m).state, SBX_MACHINE_GONE);
	daytona_provider->impl->release(m);
}

static void a_state_that_nobody_has_heard_of_passes(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_tell("fault",
	             "{\"op\": \"look\", \"fault\": \"answer\", \"body\": \"{\\\"id\\\": "
	             "\\\"a\\\", \\\"state\\\": \\\"teleporting\\\", \\\"cpu\\\": \\\"x\\\", "
	             "\\\"memory\\\": -1, \\\"lastActivityAt\\\": 7}\"}");
	assert_int_equal(look(m).state, SBX_MACHINE_CHANGING);
	daytona_drop(m);
}

static void a_touch_keeps_it(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(daytona_provider->impl->touch(m, NULL, &err), 0);
	assert_int_equal(daytona_count("touch"), 1);
	to(m, "destroyed");
	assert_int_equal(daytona_provider->impl->touch(m, NULL, &err), -ESTALE);
	daytona_provider->impl->release(m);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, daytona_set_up, daytona_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(there_must_be_a_key),
	        CASE(settings_that_cannot_be_are_refused),
	        CASE(names_of_variables_are_names),
	        CASE(networks_that_have_no_word_are_refused),
	        CASE(a_source_is_checked_without_a_request),
	        CASE(settings_come_from_the_environment),
	        CASE(info_has_no_secret),
	        CASE(a_key_that_is_refused_is_told),
	        CASE(nobody_there_is_told),
	        CASE(a_machine_is_adopted_without_a_request),
	        CASE(the_network_of_an_adopted_one_is_the_mount_s),
	        CASE(one_whose_network_cannot_be_set_is_not_used),
	        CASE(what_is_no_handle_is_refused),
	        CASE(a_look_says_how_it_is),
	        CASE(a_state_that_nobody_has_heard_of_passes),
	        CASE(a_touch_keeps_it),
	};

	return cmocka_run_group_tests(tests, daytona_servers_start, daytona_servers_stop);
}
