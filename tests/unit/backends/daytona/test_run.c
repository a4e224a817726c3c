#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "tests/lib/daytona_fixture.h"
#include "tests/lib/scratch.h"

#define ODD "'\"\\$`%!\n\t*?[]{}()<>|&;#~ %s%d\\n\\\\ ''' $(id) -\x01\x7f"

static int try(struct sbx_machine *m, const char *script)
{
	_cleanup_free_ char *out = NULL;

	return daytona_try_run(m, &(struct sbx_machine_run){.safe = false}, script, &out);
}

static int try_safe(struct sbx_machine *m, const char *script)
{
	_cleanup_free_ char *out = NULL;

	return daytona_try_run(m, &(struct sbx_machine_run){.safe = true}, script, &out);
}

/* ---- scripts ---- */

static void a_script_runs(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_runs(m, "echo one; echo 'two  \"three\"' && printf %s \"$HOME\" | wc -l",
	             "one\ntwo  \"three\"\n0\n");
	daytona_runs(m, "", "");
	daytona_runs(m, "printf 'a\\nb'", "a\nb");
	daytona_drop(m);
}

static void its_status_is_no_failure(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_runs(m, "echo out; exit 7", "out\n");
	daytona_runs(m, "echo out; kill -9 $$", "out\n");
	daytona_drop(m);
}

/* The toolbox gives the command to a shell as its standard input. */
static void it_reads_nothing_of_itself(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_runs(m, "cat\necho behind\ncat | wc -c", "behind\n0\n");
	daytona_drop(m);
}

/* What a script has in a here-document comes out of od as it is. */
static void check_quoted(struct sbx_machine *m, const char *text)
{
	char script[512], want[1024];
	size_t n = 0;

	snprintf(script, sizeof(script), "od -An -tx1 -v <<'END' | tr -d ' \\n'\n%s\nEND\n", text);
	for (; *text; text++)
		n += (size_t)snprintf(want + n, sizeof(want) - n, "%02x", (unsigned char)*text);
	n += (size_t)snprintf(want + n, sizeof(want) - n, "0a");
	assert_true(n < sizeof(want));
	daytona_runs(m, script, want);
}

static void whatever_a_script_has_comes_through(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	check_quoted(m, "plain");
	check_quoted(m, ODD);
	check_quoted(m, ODD "\xc3\xa4\xff"
	                    "7");
	check_quoted(m, "\xff\xfe\x80\xc0");
	daytona_runs(m, "touch 'a\xff' && for f in a*; do printf %s \"$f\" | od -An -tx1; done",
	             " 61 ff\n");
	daytona_drop(m);
}

static void a_script_may_be_long(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	char *script = malloc(SBX_SCRIPT_MAX + 1);

	(void)state;
	memset(script, ' ', SBX_SCRIPT_MAX);
	memcpy(script + SBX_SCRIPT_MAX - 9, "echo long", 9);
	script[SBX_SCRIPT_MAX] = '\0';
	daytona_runs(m, script, "long\n");
	free(script);
	daytona_drop(m);
}

static void output_may_be_long(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct sbx_machine_run run = {.answer_max = 5000000};
	_cleanup_free_ char *out = NULL;

	(void)state;
	assert_int_equal(daytona_try_run(m, &run, "head -c 3000000 /dev/zero | base64", &out), 0);
	assert_int_equal(strlen(out), 4000000 + 52632);
	daytona_drop(m);
}

/* ---- time ---- */

static void a_deadline_ends_it(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct sbx_machine_run run = {.deadline_ms = 300};
	_cleanup_free_ char *out = NULL;
	uint64_t begun = sbx_now_ms();

	(void)state;
	assert_int_equal(daytona_try_run(m, &run, "sleep 60", &out), -ETIMEDOUT);
	assert_true(sbx_now_ms() - begun < 30000);
	daytona_drop(m);
}

static void the_toolbox_may_give_up_first(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"status\", \"status\": 408}");
	assert_int_equal(try(m, "echo x"), -ETIMEDOUT);
	assert_int_equal(daytona_count("execute"), 1);
	daytona_drop(m);
}

static void it_is_given_up(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct daytona_flight f = {.code = 0};
	uint64_t begun = sbx_now_ms();

	(void)state;
	daytona_begin_run(m, &f, "sleep 60");
	m->provider->impl->cancel_run(m, &f.run);
	assert_int_equal(daytona_await(&f), -EINTR);
	daytona_begin_run(m, &f, ": >begun; sleep 60");
	daytona_runs(m, "while ! [ -e begun ]; do sleep 0.1; done", "");
	m->provider->impl->cancel_run(m, &f.run);
	assert_int_equal(daytona_await(&f), -EINTR);
	assert_true(sbx_now_ms() - begun < 30000);
	/* Behind the end there is nothing to give up. */
	m->provider->impl->cancel_run(m, &f.run);
	daytona_drop(m);
}

static void what_it_starts_goes_on(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	assert_true(m->provider->impl->can & SBX_PROVIDER_DETACHES);
	daytona_runs(m,
	             "mkfifo go; (setsid sh -c 'read x <go; echo $x >done' >/dev/null 2>&1 "
	             "</dev/null &) ",
	             "");
	daytona_runs(m, "echo now >go; while ! [ -s done ]; do :; done; cat done", "now\n");
	daytona_drop(m);
}

static void several_run_at_once(void **state)
{
	enum { MANY = 20 };
	struct sbx_machine *m = daytona_made(NULL);
	struct daytona_flight flights[MANY] = {{.code = 0}};

	(void)state;
	/* Each waits for all. */
	for (int i = 0; i < MANY; i++)
		daytona_begin_run(
		        m, &flights[i],
		        ": >$(mktemp here.XXXXXX); while [ $(ls here.* | wc -l) -lt 20 ]; "
		        "do sleep 0.1; done");
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(daytona_await(&flights[i]), 0);
		free(flights[i].out);
	}
	daytona_drop(m);
}

/* ---- lost answers ---- */

static void a_lost_answer_is_asked_for_again_when_that_is_safe(void **state)
{
	static const char *const faults[] = {"lost", "cut", "reset"};
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		daytona_forget();
		daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"%s\"}", faults[i]);
		assert_int_equal(try_safe(m, "echo x"), 0);
		assert_int_equal(daytona_count("execute"), 2);
		daytona_forget();
		daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"%s\"}", faults[i]);
		assert_int_equal(try(m, "echo x"), -EREMOTEIO);
		assert_int_equal(daytona_count("execute"), 1);
	}
	daytona_forget();
	daytona_runs(m, "echo x", "x\n");
	assert_int_equal(daytona_count("all"), 1);
	daytona_drop(m);
}

static void answers_that_are_none_are_told(void **state)
{
	static const struct {
		const char *fault;
		int code;
	} rows[] = {
	        {"{\"op\": \"execute\", \"fault\": \"html\"}", EPROTO},
	        {"{\"op\": \"execute\", \"fault\": \"answer\", \"body\": \"\"}", EPROTO},
	        {"{\"op\": \"execute\", \"fault\": \"answer\", \"body\": \"{}\"}", EPROTO},
	        {"{\"op\": \"execute\", \"fault\": \"answer\", \"body\": \"[1]\"}", EPROTO},
	        {"{\"op\": \"execute\", \"fault\": \"answer\", \"body\": \"{\\\"result\\\": 7}\"}",
	         EPROTO},
	        {"{\"op\": \"execute\", \"fault\": \"status\", \"status\": 500}", EREMOTEIO},
	        {"{\"op\": \"execute\", \"fault\": \"status\", \"status\": 400}", EINVAL},
	        {"{\"op\": \"execute\", \"fault\": \"status\", \"status\": 401}", EKEYREJECTED},
	        {"{\"op\": \"execute\", \"fault\": \"status\", \"status\": 413}", EFBIG},
	        {"{\"op\": \"execute\", \"fault\": \"later\", \"seconds\": 100}", EAGAIN},
	        {"{\"op\": \"execute\", \"fault\": \"echo\"}", EINVAL},
	};
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		daytona_tell("fault", "%s", rows[i].fault);
		if (try(m, "echo x") != -rows[i].code)
			fail_msg("%s: %s", rows[i].fault, daytona_error()->text);
	}
	daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"bytes\"}");
	daytona_runs(m, "echo piecemeal", "piecemeal\n");
	daytona_drop(m);
}

static void output_that_is_too_long_is_told(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct sbx_machine_run run = {.answer_max = 100};
	_cleanup_free_ char *out = NULL;

	(void)state;
	assert_int_equal(daytona_try_run(m, &run, "head -c 101 /dev/zero | tr '\\0' x", &out),
	                 -EMSGSIZE);
	assert_int_equal(daytona_try_run(m, &run, "head -c 300000 /dev/zero | tr '\\0' x", &out),
	                 -EMSGSIZE);
	assert_int_equal(daytona_try_run(m, &run, "head -c 100 /dev/zero | tr '\\0' x", &out), 0);
	assert_int_equal(strlen(out), 100);
	daytona_drop(m);
}

/* ---- sleep and death ---- */

static void one_that_is_gone_is_told(void **state)
{
	static const int statuses[] = {401, 400, 404, 502};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(statuses); i++) {
		struct sbx_machine *m = daytona_made(NULL);

		daytona_forget();
		daytona_tell("switch", "{\"gone\": %d}", statuses[i]);
		daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"gone\"}");
		assert_int_equal(try_safe(m, "echo x"), -ESTALE);
		assert_int_equal(daytona_count("look"), 1);
		daytona_provider->impl->release(m);
	}
}

static void one_that_sleeps_is_woken(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_config.kept = true;
	daytona_provide();
	m = daytona_made(NULL);
	daytona_runs(m, "echo kept >file", "");
	daytona_forget();
	daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"asleep\"}");
	daytona_runs(m, "cat file", "kept\n");
	assert_int_equal(daytona_count("start"), 1);
	assert_int_equal(daytona_count("execute"), 2);
	daytona_drop(m);
}

static void all_who_wait_wake_it_once(void **state)
{
	enum { MANY = 10 };
	struct sbx_machine *m;
	struct daytona_flight flights[MANY] = {{.code = 0}};

	(void)state;
	daytona_config.kept = true;
	daytona_config.pause_ms = 50;
	daytona_provide();
	m = daytona_made(NULL);
	daytona_forget();
	daytona_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}",
	             daytona_machine_of(m)->name);
	for (int i = 0; i < MANY; i++)
		daytona_begin_run(m, &flights[i], "echo x");
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(daytona_await(&flights[i]), 0);
		free(flights[i].out);
	}
	assert_int_equal(daytona_count("start"), 1);
	daytona_drop(m);
}

static void one_that_cannot_be_woken_says_why(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_config.kept = true;
	daytona_provide();
	m = daytona_made(NULL);
	daytona_tell("state", "{\"name\": \"%s\", \"to\": \"error\"}", daytona_machine_of(m)->name);
	assert_int_equal(try(m, "echo x"), -EREMOTEIO);
	assert_non_null(strstr(daytona_error()->text, "its disk is broken"));
	daytona_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}",
	             daytona_machine_of(m)->name);
	daytona_tell("fault", "{\"op\": \"start\", \"fault\": \"status\", \"status\": 403}");
	assert_int_equal(try(m, "echo x"), -EKEYREJECTED);
	daytona_drop(m);
}

static void waking_is_given_up(void **state)
{
	struct sbx_machine *m;
	struct daytona_flight f = {.code = 0};

	(void)state;
	daytona_config.kept = true;
	daytona_provide();
	m = daytona_made(NULL);
	daytona_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}",
	             daytona_machine_of(m)->name);
	daytona_tell("fault", "{\"op\": \"start\", \"fault\": \"stall\"}");
	daytona_begin_run(m, &f, "echo x");
	while (daytona_count("start") == 0)
		usleep(10000);
	m->provider->impl->cancel_run(m, &f.run);
	assert_int_equal(daytona_await(&f), -EINTR);
	daytona_drop(m);
}

static void it_is_known_whether_it_has_not_run(void **state)
{
	static const struct {
		const char *fault, *members;
		bool not_run;
	} rows[] = {
	        {"status", ", \"status\": 401", true},
	        {"status", ", \"status\": 400", true},
	        {"status", ", \"status\": 500", false},
	        {"later", ", \"seconds\": 1000", true},
	        {"lost", "", false},
	};

	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		struct daytona_flight f = {.run.safe = false};

		daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"%s\"%s}", rows[i].fault,
		             rows[i].members);
		daytona_begin_run(m, &f, "echo x");
		assert_true(daytona_await(&f) < 0);
		if (f.run.not_run != rows[i].not_run)
			fail_msg("%s%s", rows[i].fault, rows[i].members);
	}
	daytona_drop(m);
}

static int set_up_narrow(void **state)
{
	int r;

	daytona_per_host = 1;
	r = daytona_set_up(state);
	daytona_per_host = 0;
	return r;
}

static void one_that_is_held_holds_up_nobody(void **state)
{
	struct daytona_flight f = {.run = {.held = true}};
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_begin_run(m, &f, "until [ -e \"$HOME/go\" ]; do sleep 0.05; done; echo went");
	daytona_runs(m, "touch \"$HOME/go\"", "");
	assert_int_equal(daytona_await(&f), 0);
	assert_string_equal(f.out, "went\n");
	free(f.out);
	daytona_drop(m);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, daytona_set_up, daytona_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_script_runs),
	        CASE(its_status_is_no_failure),
	        CASE(it_reads_nothing_of_itself),
	        CASE(whatever_a_script_has_comes_through),
	        CASE(a_script_may_be_long),
	        CASE(output_may_be_long),
	        CASE(a_deadline_ends_it),
	        CASE(the_toolbox_may_give_up_first),
	        CASE(it_is_given_up),
	        cmocka_unit_test_setup_teardown(one_that_is_held_holds_up_nobody, set_up_narrow,
	                                        daytona_tear_down),
	        CASE(what_it_starts_goes_on),
	        CASE(several_run_at_once),
	        CASE(a_lost_answer_is_asked_for_again_when_that_is_safe),
	        CASE(answers_that_are_none_are_told),
	        CASE(output_that_is_too_long_is_told),
	        CASE(one_that_is_gone_is_told),
	        CASE(one_that_sleeps_is_woken),
	        CASE(all_who_wait_wake_it_once),
	        CASE(one_that_cannot_be_woken_says_why),
	        CASE(it_is_known_whether_it_has_not_run),
	        CASE(waking_is_given_up),
	};

	return cmocka_run_group_tests(tests, daytona_servers_start, daytona_servers_stop);
}
