#include <errno.h>
#include <pthread.h>
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
#include "tests/lib/scratch.h"
#include "tests/lib/vercel_fixture.h"

#define ODD "'\"\\$`%!\n\t*?[]{}()<>|&;#~ %s%d\\n\\\\ ''' $(id) -\x01\x7f"

static struct sbx_machine *m;

/* A script that leaves a line in the file "ran" of the tree each time that it runs. */
#define ONCE "echo x >>\"$HOME/ran\"; echo out"

/* What was begun for an answer that was lost may still be running. */
static void has_run(int times)
{
	char script[160], want[16];

	snprintf(script, sizeof(script),
	         "until [ $(wc -l <\"$HOME/ran\") -ge %d ]; do sleep 0.05; done; "
	         "wc -l <\"$HOME/ran\"",
	         times);
	snprintf(want, sizeof(want), "%d\n", times);
	vercel_runs(m, script, want);
}

/* ---- scripts ---- */

static void execute_takes_one_request(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	vercel_runs(m, "echo one; echo 'two  \"three\"' && printf %s \"$#\"",
	            "one\ntwo  \"three\"\n0");
	assert_int_equal(vercel_count("run"), 1);
	assert_int_equal(vercel_count("all"), 1);
	vercel_runs(m, "", "");
	vercel_runs(m, "printf 'a\\nb'", "a\nb");
	vercel_drop(m);
}

static void execute_ends_with_any_status(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_runs(m, "echo out; echo err >&2; exit 7", "out\n");
	vercel_runs(m, "echo out; kill -9 $$", "out\n");
	vercel_drop(m);
}

static void execute_has_no_input(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_runs(m, "cat\necho behind\ncat | wc -c", "behind\n0\n");
	vercel_drop(m);
}

/* What a script has in a here-document comes out of od as it is. */
static void check_quoted(const char *text)
{
	char script[512], want[1024];
	size_t n = 0;

	snprintf(script, sizeof(script), "od -An -tx1 -v <<'END' | tr -d ' \\n'\n%s\nEND\n", text);
	for (; *text; text++)
		n += (size_t)snprintf(want + n, sizeof(want) - n, "%02x", (unsigned char)*text);
	n += (size_t)snprintf(want + n, sizeof(want) - n, "0a");
	assert_true(n < sizeof(want));
	vercel_runs(m, script, want);
}

static void whatever_a_script_has_comes_through(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	check_quoted("plain");
	check_quoted(ODD);
	check_quoted(ODD "\xc3\xa4\xff"
	                 "7");
	check_quoted("\xff\xfe\x80\xc0");
	vercel_runs(m,
	            "cd \"$HOME\" && touch 'a\xff' && for f in a*; do printf %s \"$f\" | "
	            "od -An -tx1; done",
	            " 61 ff\n");
	vercel_drop(m);
}

/* Else printf would take it for an option. */
static void no_format_begins_with_a_dash(void **state)
{
	struct json_object *words = vercel_command_words("-x \xe4", 4, NULL);

	(void)state;
	assert_int_equal(json_object_array_length(words), 4);
	assert_string_equal(json_object_get_string(json_object_array_get_idx(words, 3)),
	                    "\\055x \\344");
	json_object_put(words);
}

static void a_script_may_be_long(void **state)
{
	static char script[SBX_SCRIPT_MAX + 1];

	(void)state;
	m = vercel_made(NULL);
	memset(script, ' ', SBX_SCRIPT_MAX);
	memcpy(script + SBX_SCRIPT_MAX - 9, "echo long", 9);
	script[SBX_SCRIPT_MAX] = '\0';
	vercel_runs(m, script, "long\n");
	/* In several words, each of which a command line takes. */
	memset(script + 2, 0xe4, SBX_SCRIPT_MAX - 20);
	memcpy(script, ": ", 2);
	memcpy(script + SBX_SCRIPT_MAX - 18, "\necho   very  long", 18);
	vercel_runs(m, script, "very long\n");
	vercel_drop(m);
}

static void output_may_be_long(void **state)
{
	struct sbx_machine_run run = {.answer_max = 5000000};
	_cleanup_free_ char *out = NULL;

	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(vercel_try_run(m, &run, "head -c 3000000 /dev/zero | base64", &out), 0);
	assert_int_equal(strlen(out), 4000000 + 52632);
	vercel_drop(m);
}

static void output_that_is_too_long_is_refused(void **state)
{
	struct sbx_machine_run run = {.answer_max = 1000};
	_cleanup_free_ char *out = NULL;

	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(vercel_try_run(m, &run, "printf %01000d 0", &out), 0);
	sbx_cleanup_free(&out);
	assert_int_equal(vercel_try_run(m, &run, "printf %01001d 0", &out), -EMSGSIZE);
	vercel_said_to(EMSGSIZE, "the output is too long");
	vercel_drop(m);
}

/* Seed 003: options.sudo. */
static void execute_with_sudo(void **state)
{
	(void)state;
	vercel_config.sudo = true;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_runs(m, "basename \"$HOME\"", "root\n");
	assert_non_null(strstr(vercel_control("commands/%s", vercel_name_of(m)), "\"sudo\": true"));
	vercel_drop(m);
}

static void a_packet_may_be_a_byte(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_fault("run", "bytes", "");
	vercel_runs(m, "echo one; echo two", "one\ntwo\n");
	vercel_drop(m);
}

static void many_run_at_once(void **state)
{
	static struct vercel_flight flights[16];

	(void)state;
	memset(flights, 0, sizeof(flights));
	m = vercel_made(NULL);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(flights); i++)
		vercel_begin_run(m, &flights[i], "sleep 0.2; echo done");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(flights); i++) {
		assert_int_equal(vercel_await(&flights[i]), 0);
		assert_string_equal(flights[i].out, "done\n");
		free(flights[i].out);
	}
	vercel_drop(m);
}

static void an_image_without_sh_is_told(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_fault("run", "status",
	             ", \"status\": 400, \"body\": \"{\\\"error\\\": {\\\"code\\\": "
	             "\\\"executable_not_found\\\", \\\"message\\\": \\\"executable file not found "
	             "in $PATH: sh\\\"}}\"");
	assert_int_equal(vercel_tries(m, "true", true), -ENOENT);
	vercel_said_to(ENOENT, "the image of the sandbox has no sh");
	vercel_drop(m);
}

/* ---- time ---- */

static void a_deadline_ends_it(void **state)
{
	struct sbx_machine_run run = {.deadline_ms = 300};
	_cleanup_free_ char *out = NULL;
	const uint64_t begun = sbx_now_ms();

	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(vercel_try_run(m, &run, "sleep 60", &out), -ETIMEDOUT);
	assert_true(sbx_now_ms() - begun < 30000);
	vercel_drop(m);
}

static void it_is_given_up(void **state)
{
	struct vercel_flight f = {.run.safe = true};

	(void)state;
	m = vercel_made(NULL);
	vercel_begin_run(m, &f, "touch \"$HOME/begun\"; sleep 60");
	while (!scratch_exists(vercel_file(m, "begun")))
		usleep(1000);
	m->provider->impl->cancel_run(m, &f.run);
	assert_int_equal(vercel_await(&f), -EINTR);
	m->provider->impl->cancel_run(m, &f.run);
	vercel_drop(m);
}

static void it_is_given_up_before_it_has_begun(void **state)
{
	struct vercel_flight f = {.run.safe = false};

	(void)state;
	m = vercel_made(NULL);
	vercel_begin_run(m, &f, "echo x");
	m->provider->impl->cancel_run(m, &f.run);
	vercel_await(&f);
	free(f.out);
	vercel_drop(m);
}

/* ---- streams that break ---- */

/* A script runs once though the stream breaks HOW behind its first line, and its output is whole.
 */
static void is_taken_up_again(const char *how)
{
	m = vercel_made(NULL);
	vercel_forget();
	vercel_fault("run", how, ", \"lines\": 1");
	vercel_runs(m, ONCE, "out\n");
	assert_int_equal(vercel_count("run"), 1);
	assert_int_equal(vercel_count("command"), 1);
	assert_int_equal(vercel_count("logs"), 1);
	has_run(1);
	vercel_drop(m);
}

static void a_stream_that_is_cut_is_taken_up_again(void **state)
{
	(void)state;
	is_taken_up_again("cut");
}

static void a_stream_that_ends_is_taken_up_again(void **state)
{
	(void)state;
	is_taken_up_again("end");
}

static void a_stream_that_is_closed_is_taken_up_again(void **state)
{
	(void)state;
	is_taken_up_again("error");
}

static void it_is_listened_to_for_a_while(void **state)
{
	(void)state;
	vercel_config.stream_ms = 400;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_forget();
	vercel_runs(m, "echo one; sleep 1; echo two", "one\ntwo\n");
	assert_int_equal(vercel_count("run"), 1);
	assert_true(vercel_count("command") >= 1);
	assert_int_equal(vercel_count("logs"), 1);
	vercel_drop(m);
}

static void it_goes_on_meanwhile(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_fault("run", "cut", ", \"lines\": 2");
	vercel_fault("command", "status", ", \"status\": 502, \"times\": 4");
	vercel_fault("logs", "cut", ", \"lines\": 1");
	vercel_runs(m, "echo one; sleep 0.3; echo two", "one\ntwo\n");
	vercel_drop(m);
}

static void its_end_may_be_long_in_coming(void **state)
{
	struct sbx_machine_run run = {.deadline_ms = 600};
	_cleanup_free_ char *out = NULL;

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("run", "cut", ", \"lines\": 1");
	assert_int_equal(vercel_try_run(m, &run, "sleep 60", &out), -ETIMEDOUT);
	vercel_said_to(ETIMEDOUT, "the sandbox has not answered in time");
	vercel_drop(m);
}

/* Nobody knows whether it has run: only one that may run twice is sent again. */
static void an_answer_that_is_lost_is_repeated_where_it_may_be(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	vercel_fault("run", "lost", "");
	assert_int_equal(vercel_tries(m, ONCE, false), -EREMOTEIO);
	assert_int_equal(vercel_count("run"), 1);
	vercel_fault("run", "lost", "");
	assert_int_equal(vercel_tries(m, ONCE, true), 0);
	assert_int_equal(vercel_count("run"), 3);
	has_run(3);
	vercel_drop(m);
}

static void a_failure_of_the_server_is_repeated_where_it_may_be(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	vercel_fault("run", "status", ", \"status\": 503");
	assert_int_equal(vercel_tries(m, "true", false), -EREMOTEIO);
	assert_int_equal(vercel_count("run"), 1);
	vercel_fault("run", "status", ", \"status\": 503");
	assert_int_equal(vercel_tries(m, "true", true), 0);
	vercel_fault("run", "later", ", \"seconds\": 1");
	assert_int_equal(vercel_tries(m, "true", false), 0);
	vercel_drop(m);
}

static void what_makes_no_sense_is_told(void **state)
{
	static const char *const answers[] = {"x", "[1]\\n", "{\\\"command\\\": {}}\\n",
	                                      "{\\\"command\\\": {\\\"id\\\": \\\"../x\\\"}}\\n"};

	(void)state;
	m = vercel_made(NULL);
	for (size_t i = 1; i < SBX_ARRAY_SIZE(answers); i++) {
		char members[256];

		snprintf(members, sizeof(members), ", \"body\": \"%s\"", answers[i]);
		vercel_fault("run", "answer", members);
		assert_int_equal(vercel_tries(m, "true", false), -EPROTO);
		vercel_said_to(EPROTO, "an answer of Vercel cannot be understood");
	}
	vercel_fault("run", "html", "");
	assert_true(vercel_tries(m, "true", false) < 0);
	vercel_drop(m);
}

static void a_refusal_shows_no_secret(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_fault("run", "echo", "");
	assert_int_equal(vercel_tries(m, "true", false), -EINVAL);
	vercel_said_to(EINVAL, "I got Bearer ***");
	vercel_drop(m);
}

/* ---- sessions ---- */

/* As the SDK does: it is asked, looked up with resume, and asked again. */
static void one_that_has_stopped_is_woken_by_three_requests(void **state)
{
	char before[64];

	(void)state;
	m = vercel_made(NULL);
	vercel_runs(m, "echo kept >\"$HOME/file\"", "");
	snprintf(before, sizeof(before), "%s", vercel_control("session/%s", vercel_name_of(m)));
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	vercel_forget();
	vercel_runs(m, "cat \"$HOME/file\"", "kept\n");
	assert_int_equal(vercel_count("run"), 2);
	assert_int_equal(vercel_count("look"), 1);
	assert_int_equal(vercel_count("all"), 3);
	assert_string_not_equal(vercel_control("session/%s", vercel_name_of(m)), before);
	/* The next goes to the new session at once. */
	vercel_runs(m, "echo x", "x\n");
	assert_int_equal(vercel_count("all"), 4);
	vercel_drop(m);
}

static void one_that_is_stopping_is_waited_for(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\", \"waits\": 4}",
	            vercel_name_of(m));
	vercel_forget();
	vercel_runs(m, "echo up", "up\n");
	assert_int_equal(vercel_count("run"), 2);
	vercel_drop(m);
}

/* The time that it takes to wake is not that of the script. */
/* One whose session ends again and again is there all the same. */
static void one_that_stops_again_is_not_gone(void **state)
{
	static const int statuses[] = {410, 422, 404};

	(void)state;
	m = vercel_made(NULL);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(statuses); i++) {
		char members[64];

		snprintf(members, sizeof(members), ", \"status\": %d, \"times\": 2", statuses[i]);
		vercel_forget();
		vercel_fault("run", "status", members);
		assert_int_equal(vercel_tries(m, "true", true), -EBUSY);
		assert_int_equal(vercel_count("run"), 2);
		assert_true(vercel_count("look") <= 2);
	}
	vercel_runs(m, "echo up", "up\n");
	vercel_drop(m);
}

static void waking_may_take_longer_than_the_deadline(void **state)
{
	struct sbx_machine_run run = {.deadline_ms = 800};
	_cleanup_free_ char *out = NULL;

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("look", "later", ", \"seconds\": 1");
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	assert_int_equal(vercel_try_run(m, &run, "echo up", &out), 0);
	assert_string_equal(out, "up\n");
	vercel_drop(m);
}

static void one_that_stops_meanwhile_is_told(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_fault("command", "asleep", "");
	vercel_fault("run", "cut", ", \"lines\": 1");
	assert_int_equal(vercel_tries(m, "sleep 1", false), -EREMOTEIO);
	vercel_said_to(EREMOTEIO, "the sandbox has stopped while it was used");
	/* What may run twice does so in the next session. */
	vercel_fault("command", "asleep", "");
	vercel_fault("run", "cut", ", \"lines\": 1");
	assert_int_equal(vercel_tries(m, ONCE, true), 0);
	vercel_drop(m);
}

static void one_that_is_gone_is_told(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"deleted\"}", vercel_name_of(m));
	assert_int_equal(vercel_tries(m, "true", true), -ESTALE);
	vercel_said_to(ESTALE, "the sandbox is no more at Vercel");
	vercel_drop(m);
}

static void one_that_kept_nothing_is_told(void **state)
{
	(void)state;
	vercel_config.ephemeral = true;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	assert_int_equal(vercel_tries(m, "true", true), -ESTALE);
	vercel_said_to(ESTALE, "the sandbox has stopped, and Vercel has kept nothing of it");
	vercel_drop(m);
}

static void one_that_does_not_wake_is_told(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	vercel_fault("look", "status", ", \"status\": 500, \"times\": 9");
	assert_int_equal(vercel_tries(m, "true", true), -EREMOTEIO);
	vercel_said_to(EREMOTEIO, "Vercel failed (HTTP 500)");
	vercel_tell("reset", "{}");
	assert_int_equal(vercel_tries(m, "true", true), 0);
	vercel_drop(m);
}

static void many_wake_it_at_once(void **state)
{
	static struct vercel_flight flights[8];

	(void)state;
	memset(flights, 0, sizeof(flights));
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\", \"waits\": 2}",
	            vercel_name_of(m));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(flights); i++)
		vercel_begin_run(m, &flights[i], "echo up");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(flights); i++) {
		assert_int_equal(vercel_await(&flights[i]), 0);
		free(flights[i].out);
	}
	vercel_drop(m);
}

/* What runs in a session is lost with it; what waits for it is not. */
static void a_closed_network_stays_closed(void **state)
{
	(void)state;
	vercel_config.net = "none";
	vercel_provide();
	m = vercel_made(NULL);
	vercel_tell("switch", "{\"echoes_policy\": false}");
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	vercel_runs(m, "echo up", "up\n");
	assert_int_equal(vercel_count("policy"), 1);
	/* One that is open, and stays so, is not used. */
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	vercel_fault("policy", "answer",
	             ", \"body\": \"{\\\"session\\\": {\\\"networkPolicy\\\": {\\\"mode\\\": "
	             "\\\"allow-all\\\"}}}\"");
	assert_int_equal(vercel_tries(m, "echo open >\"$HOME/open\"", true), -EOPNOTSUPP);
	vercel_said_to(EOPNOTSUPP, "does not close the network");
	vercel_runs(m, "ls \"$HOME\"", "");
	vercel_drop(m);
}

/* ---- a short life ---- */

static void it_lives_longer_by_use(void **state)
{
	(void)state;
	vercel_config.life_ms = 5000;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_forget();
	vercel_runs(m, "sleep 6; echo alive", "alive\n");
	assert_int_equal(vercel_count("extend"), 1);
	vercel_runs(m, "echo alive", "alive\n");
	assert_int_equal(vercel_count("look"), 0);
	vercel_drop(m);
}

static void one_that_cannot_live_longer_is_used_and_woken(void **state)
{
	(void)state;
	vercel_config.life_ms = 1000;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_tell("switch", "{\"most_ms\": 1000}");
	vercel_runs(m, "echo one", "one\n");
	vercel_runs(m, "echo two", "two\n");
	assert_int_equal(vercel_count("extend"), 1);
	sleep(1);
	vercel_runs(m, "echo three", "three\n");
	vercel_drop(m);
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

	(void)state;
	m = vercel_made(NULL);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		struct vercel_flight f = {.run.safe = false};

		vercel_fault("run", rows[i].fault, rows[i].members);
		vercel_begin_run(m, &f, "echo x");
		assert_true(vercel_await(&f) < 0);
		if (f.run.not_run != rows[i].not_run)
			fail_msg("%s%s", rows[i].fault, rows[i].members);
	}
	vercel_drop(m);
}

static int set_up_narrow(void **state)
{
	int r;

	vercel_per_host = 1;
	r = vercel_set_up(state);
	vercel_per_host = 0;
	return r;
}

static void one_that_is_held_holds_up_nobody(void **state)
{
	struct vercel_flight f = {.run = {.held = true}};

	(void)state;
	m = vercel_made(NULL);
	vercel_begin_run(m, &f, "until [ -e \"$HOME/go\" ]; do sleep 0.05; done; echo went");
	vercel_runs(m, "touch \"$HOME/go\"", "");
	assert_int_equal(vercel_await(&f), 0);
	assert_string_equal(f.out, "went\n");
	free(f.out);
	vercel_drop(m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, vercel_set_up, vercel_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(execute_takes_one_request),
	        CASE(execute_ends_with_any_status),
	        CASE(execute_has_no_input),
	        CASE(whatever_a_script_has_comes_through),
	        cmocka_unit_test(no_format_begins_with_a_dash),
	        CASE(a_script_may_be_long),
	        CASE(output_may_be_long),
	        CASE(output_that_is_too_long_is_refused),
	        CASE(execute_with_sudo),
	        CASE(a_packet_may_be_a_byte),
	        CASE(many_run_at_once),
	        cmocka_unit_test_setup_teardown(one_that_is_held_holds_up_nobody, set_up_narrow,
	                                        vercel_tear_down),
	        CASE(an_image_without_sh_is_told),
	        CASE(a_deadline_ends_it),
	        CASE(it_is_given_up),
	        CASE(it_is_given_up_before_it_has_begun),
	        CASE(a_stream_that_is_cut_is_taken_up_again),
	        CASE(a_stream_that_ends_is_taken_up_again),
	        CASE(a_stream_that_is_closed_is_taken_up_again),
	        CASE(it_is_listened_to_for_a_while),
	        CASE(it_goes_on_meanwhile),
	        CASE(its_end_may_be_long_in_coming),
	        CASE(an_answer_that_is_lost_is_repeated_where_it_may_be),
	        CASE(a_failure_of_the_server_is_repeated_where_it_may_be),
	        CASE(what_makes_no_sense_is_told),
	        CASE(a_refusal_shows_no_secret),
	        CASE(one_that_has_stopped_is_woken_by_three_requests),
	        CASE(one_that_is_stopping_is_waited_for),
	        CASE(one_that_stops_again_is_not_gone),
	        CASE(waking_may_take_longer_than_the_deadline),
	        CASE(one_that_stops_meanwhile_is_told),
	        CASE(one_that_is_gone_is_told),
	        CASE(one_that_kept_nothing_is_told),
	        CASE(one_that_does_not_wake_is_told),
	        CASE(many_wake_it_at_once),
	        CASE(a_closed_network_stays_closed),
	        CASE(it_lives_longer_by_use),
	        CASE(it_is_known_whether_it_has_not_run),
	        CASE(one_that_cannot_live_longer_is_used_and_woken),
	};

	return cmocka_run_group_tests(tests, vercel_servers_start, vercel_servers_stop);
}
