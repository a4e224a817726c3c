/* The names of jobs: ids that repeat, names, numbers, and how long a job is remembered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/wait.h"
#include "tests/lib/job_fixture.h"

static struct fixture fx;

static int set_up(void **state)
{
	(void)state;
	fixture_set_up(&fx);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_tear_down(&fx);
	return 0;
}

/* ---- ids ---- */

static void a_repeated_id_gives_the_first_job(void **state)
{
	char *argv[] = {"make", "-j", NULL}, *env[] = {"A=1", NULL};
	struct sbx_request req = {.argv = argv,
	                          .env = env,
	                          .set = SBX_REQ_CWD | SBX_REQ_STDIN,
	                          .cwd = ".",
	                          .stdin_data = "in",
	                          .stdin_len = 2,
	                          .id = "build"};
	struct sbx_jobrec *first, *again;
	bool repeated;

	(void)state;
	assert_int_equal(fixture_start_request(&fx, &req, NULL, &first, &repeated), 0);
	assert_false(repeated);
	assert_string_equal(sbx_job_name(first), "build");
	assert_int_equal(fixture_start_request(&fx, &req, NULL, &again, &repeated), 0);
	assert_true(repeated);
	assert_ptr_equal(first, again);
	sbx_job_unref(again);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(first);
	assert_int_equal(fixture_start_request(&fx, &req, NULL, &again, &repeated), 0);
	assert_true(repeated);
	assert_int_equal(atomic_load(&fx.runner.execs), 1);
	sbx_job_unref(again);
	sbx_job_unref(first);
}

static void an_id_for_a_different_request_is_refused(void **state)
{
	char *argv[] = {"make", NULL}, *other[] = {"make", "all", NULL}, *env[] = {"A=1", NULL};
	struct sbx_request req = {.argv = argv, .id = "build"}, r;
	struct sbx_jobrec *rec;
	bool repeated;

	(void)state;
	assert_int_equal(fixture_start_request(&fx, &req, NULL, &rec, &repeated), 0);
	r = req;
	r.argv = other;
	fixture_expect_refused(&fx, &r, NULL, EEXIST, "\"build\" was used for a different");
	r = req;
	r.env = env;
	fixture_expect_refused(&fx, &r, NULL, EEXIST, "build");
	r = req;
	r.set = SBX_REQ_CWD;
	r.cwd = "";
	fixture_expect_refused(&fx, &r, NULL, EEXIST, "build");
	r = req;
	r.set = SBX_REQ_STDIN;
	r.stdin_data = "x";
	r.stdin_len = 1;
	fixture_expect_refused(&fx, &r, NULL, EEXIST, "build");
	sbx_job_unref(rec);
}

static void an_id_whose_start_failed_may_be_used_again(void **state)
{
	char *argv[] = {"make", NULL}, *other[] = {"cmake", NULL};
	struct sbx_request req = {.argv = argv, .id = "build"};
	struct sbx_jobrec *rec;
	bool repeated;

	(void)state;
	assert_int_equal(fixture_start_request(&fx, &req, NULL, &rec, &repeated), 0);
	played_ended(fixture_last(&fx), SBX_END_FAILED, ENOENT);
	fixture_await_end(rec);
	sbx_job_unref(rec);
	req.argv = other;
	assert_int_equal(fixture_start_request(&fx, &req, NULL, &rec, &repeated), 0);
	assert_false(repeated);
	sbx_job_unref(rec);
}

/* ---- named jobs ---- */

static struct sbx_jobrec *prepare(const char *name)
{
	struct sbx_jobrec *rec;

	assert_int_equal(sbx_job_prepare(fx.jobs, name, &rec, NULL), 0);
	return rec;
}

static void a_prepared_job_runs_under_its_name_again_and_again(void **state)
{
	char *argv[] = {"make", NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *rec = prepare("build"), *run;
	bool repeated;

	(void)state;
	fixture_expect_status(rec, "- idle\n");
	assert_null(sbx_job_argv_json(rec));
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(fixture_start_request(&fx, &req, rec, &run, &repeated), 0);
		assert_false(repeated);
		assert_ptr_equal(run, rec);
		assert_int_equal(sbx_job_number(rec), 2 * i - 1); /* one was refused */
		assert_int_equal(sbx_job_output_size(rec, 1), 0);
		fixture_expect_refused(&fx, &req, rec, EBUSY, "\"build\" is running");
		played_output(fixture_last(&fx), 1, "x", 1);
		played_ended(fixture_last(&fx), SBX_END_EXITED, (int)i);
		fixture_await_end(rec);
		assert_int_equal(sbx_job_code(rec), i);
		assert_int_equal(sbx_job_output_size(rec, 1), 1);
		sbx_job_unref(run);
	}
	assert_string_equal(sbx_job_name(rec), "build");
	sbx_job_unref(rec);
}

static void an_id_takes_the_prepared_job_of_its_name(void **state)
{
	char *argv[] = {"make", NULL};
	struct sbx_request req = {.argv = argv, .id = "build"};
	struct sbx_jobrec *rec = prepare("build"), *other = prepare("other"), *run;
	bool repeated;

	(void)state;
	fixture_expect_refused(&fx, &req, other, EINVAL, "is not the name of the job");
	assert_int_equal(fixture_start_request(&fx, &req, NULL, &run, &repeated), 0);
	assert_ptr_equal(run, rec);
	assert_false(repeated);
	sbx_job_unref(run);
	sbx_job_unref(rec);
	sbx_job_unref(other);
}

static void a_prepared_job_survives_a_failed_start(void **state)
{
	char *argv[] = {"nope", NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *rec = prepare("build"), *run;
	bool repeated;

	(void)state;
	assert_int_equal(fixture_start_request(&fx, &req, rec, &run, &repeated), 0);
	played_ended(fixture_last(&fx), SBX_END_FAILED, ENOENT);
	fixture_await_end(rec);
	sbx_job_unref(run);
	fx.runner.refuse = -E2BIG;
	fixture_expect_refused(&fx, &req, rec, E2BIG, "too long");
	fx.runner.refuse = 0;
	assert_int_equal(fixture_start_request(&fx, &req, rec, &run, &repeated), 0);
	assert_int_equal(sbx_job_start_error(rec, NULL), 0);
	sbx_job_unref(run);
	sbx_job_unref(rec);
}

static void waiting_for_a_prepared_job_lasts_to_its_end(void **state)
{
	char *argv[] = {"make", NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *rec = prepare("build"), *run;
	bool repeated;

	(void)state;
	sbx_job_on_started(rec, fixture_mark_start, &fx);
	sbx_job_on_ended(rec, fixture_mark_end, &fx);
	fixture_sync(&fx);
	fixture_expect_trail(&fx, "");
	assert_int_equal(fixture_start_request(&fx, &req, rec, &run, &repeated), 0);
	played_started(fixture_last(&fx));
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	fixture_expect_trail(&fx, "BcsIce");
	sbx_job_unref(run);
	sbx_job_unref(rec);
}

static void removing_a_prepared_job_ends_the_waiting_for_it(void **state)
{
	char *argv[] = {"make", NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *rec = prepare("build");

	(void)state;
	sbx_job_on_ended(rec, fixture_mark_end, &fx);
	assert_int_equal(sbx_job_remove(fx.jobs, "build", NULL), 0);
	fixture_await_end(rec);
	fixture_expect_trail(&fx, "e");
	assert_int_equal(sbx_job_start_error(rec, NULL), -ENOENT);
	fixture_expect_refused(&fx, &req, rec, ENOENT, "was removed");
	sbx_job_unref(rec);
}

static void names_are_checked_and_unique(void **state)
{
	struct sbx_jobrec *rec = prepare("build"), *other = NULL;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_job_prepare(fx.jobs, "build", &other, &err), -EEXIST);
	assert_non_null(strstr(err.text, "build"));
	assert_int_equal(sbx_job_prepare(fx.jobs, "12", &other, &err), -EINVAL);
	assert_int_equal(sbx_job_prepare(fx.jobs, "last", &other, &err), -EINVAL);
	assert_null(other);
	sbx_job_unref(rec);
}

static void removal_needs_a_job_that_does_not_run(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");

	(void)state;
	assert_int_equal(sbx_job_remove(fx.jobs, "1", NULL), -EBUSY);
	assert_int_equal(sbx_job_remove(fx.jobs, "2", NULL), -ENOENT);
	assert_int_equal(sbx_job_remove(fx.jobs, "none", NULL), -ENOENT);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	assert_int_equal(sbx_job_remove(fx.jobs, "1", NULL), 0);
	assert_null(sbx_job_find(fx.jobs, "1"));
	fixture_expect_status(rec, "0 exited ");
	sbx_job_unref(rec);
}

static void jobs_are_found_by_number_name_and_as_the_last(void **state)
{
	struct sbx_jobrec *one = fixture_run_job(&fx, "one", 0), *named = prepare("build"), *found;

	(void)state;
	found = sbx_job_find(fx.jobs, "1");
	assert_ptr_equal(found, one);
	sbx_job_unref(found);
	found = sbx_job_find(fx.jobs, "build");
	assert_ptr_equal(found, named);
	sbx_job_unref(found);
	found = sbx_job_find(fx.jobs, "last");
	assert_ptr_equal(found, one);
	sbx_job_unref(found);
	assert_null(sbx_job_find(fx.jobs, "0"));
	assert_null(sbx_job_find(fx.jobs, "01"));
	assert_null(sbx_job_find(fx.jobs, "1x"));
	assert_null(sbx_job_find(fx.jobs, ""));
	sbx_job_unref(one);
	sbx_job_unref(named);
}

static void a_spawned_job_is_not_the_last_exec(void **state)
{
	struct sbx_jobrec *one = fixture_run_job(&fx, "one", 0), *two, *last;
	char *argv[] = {"two", NULL};
	struct sbx_request req = {.argv = argv};
	bool repeated;

	(void)state;
	assert_int_equal(sbx_job_start(fx.jobs, &req, SBX_JOB_SPAWN, NULL, &two, &repeated, NULL),
	                 0);
	assert_int_equal(sbx_job_kind(two), SBX_JOB_SPAWN);
	last = sbx_job_last_exec(fx.jobs);
	assert_ptr_equal(last, one);
	sbx_job_unref(last);
	sbx_job_unref(one);
	sbx_job_unref(two);
}

static void count_jobs(struct sbx_jobrec *rec, void *data)
{
	/* The table is not locked: this may ask. */
	sbx_job_ended(rec);
	++*(unsigned *)data;
}

static void the_oldest_ended_jobs_are_forgotten_but_not_named_ones(void **state)
{
	struct sbx_jobrec *named = prepare("keep");
	unsigned n = 0;

	(void)state;
	for (int i = 0; i < SBX_JOBS_KEPT + 10; i++)
		sbx_job_unref(fixture_run_job(&fx, "x", 0));
	sbx_jobs_walk(fx.jobs, count_jobs, &n);
	assert_int_equal(n, SBX_JOBS_KEPT + 1);
	assert_null(sbx_job_find(fx.jobs, "10"));
	sbx_job_unref(sbx_job_find(fx.jobs, "11"));
	assert_non_null(named);
	sbx_job_unref(named);
}

static void play_one(struct played_job *job)
{
	played_started(job);
	played_output(job, 1, "hello\n", 6);
	played_ended(job, SBX_END_EXITED, 0);
}

static void *start_same(void *data)
{
	char *argv[] = {"make", NULL};
	struct sbx_request req = {.argv = argv, .id = data};
	struct sbx_jobrec *rec;
	bool repeated;

	if (fixture_start_request(&fx, &req, NULL, &rec, &repeated) < 0)
		return (void *)"refused";
	fixture_await_end(rec);
	sbx_job_unref(rec);
	return NULL;
}

static void one_id_asked_for_at_once_runs_once(void **state)
{
	pthread_t threads[4];
	void *wrong;

	(void)state;
	fx.runner.on_exec = play_one;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, start_same, "once"), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	assert_int_equal(atomic_load(&fx.runner.execs), 1);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_repeated_id_gives_the_first_job),
	        CASE(an_id_for_a_different_request_is_refused),
	        CASE(an_id_whose_start_failed_may_be_used_again),
	        CASE(a_prepared_job_runs_under_its_name_again_and_again),
	        CASE(an_id_takes_the_prepared_job_of_its_name),
	        CASE(a_prepared_job_survives_a_failed_start),
	        CASE(waiting_for_a_prepared_job_lasts_to_its_end),
	        CASE(removing_a_prepared_job_ends_the_waiting_for_it),
	        CASE(names_are_checked_and_unique),
	        CASE(removal_needs_a_job_that_does_not_run),
	        CASE(jobs_are_found_by_number_name_and_as_the_last),
	        CASE(a_spawned_job_is_not_the_last_exec),
	        CASE(the_oldest_ended_jobs_are_forgotten_but_not_named_ones),
	        CASE(one_id_asked_for_at_once_runs_once),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
