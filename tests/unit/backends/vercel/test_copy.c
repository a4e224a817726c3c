/* Copies of a sandbox: by a snapshot, which ends its session. */
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

#include <cmocka.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/vercel_fixture.h"

static struct sbx_machine *m;

static int try_copy(const char *name, struct sbx_machine **ret, atomic_bool *cancelled)
{
	return m->provider->impl->copy(m, name, ret, cancelled, vercel_error());
}

static struct sbx_machine *copied(void)
{
	struct sbx_machine *copy;
	const int r = try_copy(vercel_name(), &copy, NULL);

	if (r)
		fail_msg("%d: %s", r, vercel_error()->text);
	return copy;
}

/* Whether the origin is there, and nothing else. */
static bool is_alone(void)
{
	const char *living = vercel_control("living"), *name = vercel_name_of(m);
	const size_t n = strlen(name);

	return strncmp(living, name, n) == 0 && strcmp(living + n, "\n") == 0;
}

static void to_state(const char *to, int waits)
{
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"%s\", \"waits\": %d}", vercel_name_of(m),
	            to, waits);
}

/* ---- what it is ---- */

static void a_copy_begins_as_its_origin_is(void **state)
{
	struct sbx_machine *copy;

	(void)state;
	m = vercel_made(vercel_source());
	vercel_runs(m, "cd \"$HOME\" && echo both >both && git add both", "");
	copy = copied();
	vercel_runs(copy, "cd \"$HOME\" && cat both README.md && git status --short",
	            "both\nhello\nA  both\n");
	vercel_runs(copy, "cd \"$HOME\" && echo copy >own", "");
	vercel_runs(m, "cd \"$HOME\" && cat both && echo origin >own", "both\n");
	vercel_runs(copy, "cat \"$HOME/own\"", "copy\n");
	vercel_runs(m, "cat \"$HOME/own\"", "origin\n");
	vercel_drop(m);
	vercel_runs(copy, "cat \"$HOME/both\"", "both\n");
	vercel_drop(copy);
}

static void it_takes_three_requests(void **state)
{
	struct sbx_machine *copy;

	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	copy = copied();
	assert_int_equal(vercel_count("look"), 1);
	assert_int_equal(vercel_count("snapshot"), 1);
	assert_int_equal(vercel_count("create"), 1);
	assert_int_equal(vercel_count("all"), 3);
	vercel_drop(copy);
	vercel_drop(m);
}

static void one_that_sleeps_is_not_woken(void **state)
{
	struct sbx_machine *copy;

	(void)state;
	m = vercel_made(NULL);
	vercel_runs(m, "echo kept >\"$HOME/file\"", "");
	to_state("stopped", 3);
	vercel_forget();
	copy = copied();
	assert_int_equal(vercel_count("snapshot"), 0);
	assert_int_equal(vercel_count("create"), 1);
	vercel_forget();
	vercel_runs(copy, "cat \"$HOME/file\"", "kept\n");
	assert_int_equal(vercel_count("all"), 1);
	vercel_drop(copy);
	vercel_drop(m);
}

static void it_has_the_label_and_the_network(void **state)
{
	struct sbx_machine *copy, *same;

	(void)state;
	vercel_config.net = "none";
	vercel_provide();
	m = vercel_made(NULL);
	copy = copied();
	assert_int_equal(vercel_provider->impl->adopt(vercel_provider, copy->handle, &same, NULL),
	                 0);
	vercel_forget();
	vercel_runs(same, "echo here", "here\n");
	assert_int_equal(vercel_count("policy"), 0);
	vercel_provider->impl->release(same);
	assert_non_null(strstr(vercel_control("box/%s", vercel_name_of(copy)),
	                       "\"sandboxfs\": \"" VERCEL_LABEL_OF_TESTS "\""));
	vercel_drop(copy);
	vercel_drop(m);
}

/* Though its commands start above that. */
static void its_tree_is_where_that_of_the_origin_is(void **state)
{
	const char *name = vercel_name();
	struct sbx_machine *copy;
	char members[1024];

	(void)state;
	m = vercel_made(NULL);
	snprintf(members, sizeof(members),
	         ", \"body\": \"{\\\"sandbox\\\": {\\\"name\\\": \\\"%s\\\", "
	         "\\\"persistent\\\": true, \\\"status\\\": \\\"running\\\"}, "
	         "\\\"session\\\": {\\\"id\\\": \\\"sbx_1\\\", \\\"status\\\": "
	         "\\\"running\\\", \\\"cwd\\\": \\\"%.*s\\\"}}\"",
	         name, (int)(strrchr(m->workdir, '/') - m->workdir), m->workdir);
	vercel_fault("create", "answer", members);
	assert_int_equal(try_copy(name, &copy, NULL), 0);
	assert_string_equal(copy->workdir, m->workdir);
	vercel_drop(copy);
	vercel_drop(m);
}

/* ---- what is refused ---- */

static void check_refused(int code, const char *text)
{
	struct sbx_machine *copy;

	assert_int_equal(try_copy(vercel_name(), &copy, NULL), -code);
	assert_null(copy);
	vercel_said_to(code, text);
}

static void an_ephemeral_one_is_not_copied(void **state)
{
	(void)state;
	vercel_config.ephemeral = true;
	vercel_provide();
	m = vercel_made(NULL);
	check_refused(EOPNOTSUPP, "ephemeral");
	vercel_runs(m, "echo lives", "lives\n");
	vercel_drop(m);
}

static void one_that_is_no_more_is_told(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	to_state("failed", 0);
	check_refused(EREMOTEIO, "failed");
	to_state("deleted", 0);
	check_refused(ESTALE, "gone");
	vercel_provider->impl->release(m);
}

static void a_name_is_taken_once(void **state)
{
	struct sbx_machine *copy;

	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(try_copy(vercel_name_of(m), &copy, NULL), -EEXIST);
	assert_null(copy);
	vercel_runs(m, "echo lives", "lives\n");
	vercel_drop(m);
}

/* ---- faults ---- */

static const struct {
	const char *name, *members;
	int code;
} faults[] = {
        {"lost", "", EREMOTEIO},
        {"reset", "", EREMOTEIO},
        {"cut", "", EREMOTEIO},
        {"html", "", EPROTO},
        {"answer", ", \"body\": \"{}\"", EPROTO},
        {"answer", ", \"body\": \"{\\\"snapshot\\\": {\\\"id\\\": \\\"../x\\\"}}\"", EPROTO},
        {"status", ", \"status\": 500", EREMOTEIO},
        {"status", ", \"status\": 401", EKEYREJECTED},
        {"status", ", \"status\": 422", EBUSY},
        {"later", ", \"seconds\": 5000", EAGAIN},
        {"echo", "", EINVAL},
};

/* Whether it is made, or not for that reason: the origin goes on, and nothing else is left. */
static void meet(const char *op, size_t i, int times)
{
	struct sbx_machine *copy;
	char members[256];
	int r;

	vercel_forget();
	snprintf(members, sizeof(members), "%s, \"times\": %d", faults[i].members, times);
	vercel_fault(op, faults[i].name, members);
	r = try_copy(vercel_name(), &copy, NULL);
	if (r == 0)
		vercel_drop(copy);
	else if (r != -faults[i].code)
		fail_msg("%s %s%s: %d, %s", op, faults[i].name, members, r, vercel_error()->text);
	assert_true(vercel_count("create") <= 1 || faults[i].code == EAGAIN);
	vercel_tell("reset", "{}");
	if (!is_alone())
		fail_msg("%s %s%s: %s is left", op, faults[i].name, members,
		         vercel_control("living"));
	vercel_runs(m, "cat \"$HOME/file\"", "kept\n");
}

static void whatever_fails_leaves_the_origin_alone(void **state)
{
	static const char *const ops[] = {"look", "snapshot", "create"};

	(void)state;
	vercel_config.ask_ms = 2000;
	vercel_provide();
	m = vercel_made(NULL);
	vercel_runs(m, "echo kept >\"$HOME/file\"", "");
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++)
		for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
			meet(ops[o], i, 1);
			meet(ops[o], i, 9);
		}
	vercel_drop(m);
}

static void a_snapshot_that_was_not_answered_is_found(void **state)
{
	static const char *const lost[] = {"lost", "cut"};
	struct sbx_machine *copy;

	(void)state;
	m = vercel_made(NULL);
	vercel_runs(m, "echo kept >\"$HOME/file\"", "");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(lost); i++) {
		vercel_runs(m, "true", "");
		vercel_forget();
		vercel_fault("snapshot", lost[i], "");
		copy = copied();
		assert_int_equal(vercel_count("snapshot"), 1);
		vercel_runs(copy, "cat \"$HOME/file\"", "kept\n");
		vercel_drop(copy);
	}
	vercel_drop(m);
}

static void *cancel_soon(void *cancelled)
{
	const struct timespec pause = {.tv_nsec = 200000000};

	nanosleep(&pause, NULL);
	atomic_store((atomic_bool *)cancelled, true);
	return NULL;
}

static void a_copy_is_given_up(void **state)
{
	static const char *const ops[] = {"look", "snapshot", "create"};

	(void)state;
	m = vercel_made(NULL);
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++) {
		const char *name = vercel_name();
		atomic_bool cancelled = false;
		struct sbx_machine *copy;
		pthread_t thread;

		vercel_runs(m, "true", "");
		vercel_forget();
		vercel_fault(ops[o], "stall_after", "");
		pthread_create(&thread, NULL, cancel_soon, &cancelled);
		assert_int_equal(try_copy(name, &copy, &cancelled), -EINTR);
		pthread_join(thread, NULL);
		assert_null(copy);
		vercel_tell("reset", "{}");
		assert_int_equal(vercel_provider->impl->unmake(vercel_provider, name, NULL, NULL,
		                                               vercel_error()),
		                 0);
		assert_true(is_alone());
	}
	vercel_drop(m);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, vercel_set_up, vercel_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_copy_begins_as_its_origin_is),
	        CASE(it_takes_three_requests),
	        CASE(one_that_sleeps_is_not_woken),
	        CASE(it_has_the_label_and_the_network),
	        CASE(its_tree_is_where_that_of_the_origin_is),
	        CASE(an_ephemeral_one_is_not_copied),
	        CASE(one_that_is_no_more_is_told),
	        CASE(a_name_is_taken_once),
	        CASE(whatever_fails_leaves_the_origin_alone),
	        CASE(a_snapshot_that_was_not_answered_is_found),
	        CASE(a_copy_is_given_up),
	};

	return cmocka_run_group_tests(tests, vercel_servers_start, vercel_servers_stop);
}
