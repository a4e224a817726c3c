/* The life of jobs: states, waiters, time-outs, signals, the end of a table. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/wait.h"
#include "tests/lib/job_fixture.h"

static struct fixture fx;
static struct fixture gone; /* a second one, for what outlives it */

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

/* ---- states and order ---- */

static void a_job_runs_from_start_to_end(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");
	struct played_job *job = fixture_last(&fx);

	(void)state;
	assert_string_equal(job->argv[0], "make");
	assert_null(job->argv[1]);
	assert_string_equal(job->cwd, "");
	assert_null(job->program);
	assert_int_equal(job->stdin_fd, -1);
	assert_string_equal(sbx_job_name(rec), "1");
	fixture_expect_status(rec, "- running job=1 wall_ms=");
	assert_int_equal(sbx_job_code(rec), -1);
	played_started(job);
	fixture_await_start(rec);
	assert_false(sbx_job_ended(rec));
	played_ended(job, SBX_END_EXITED, 3);
	fixture_await_end(rec);
	assert_true(sbx_job_ended(rec));
	assert_int_equal(sbx_job_code(rec), 3);
	fixture_expect_status(rec, "3 exited job=1 wall_ms=");
	sbx_job_unref(rec);
}

static void the_status_line_has_its_exact_form(void **state)
{
	struct sbx_jobrec *rec = fixture_run_job(&fx, "true", 0);
	char line[256], rest[64];
	unsigned long wall;

	(void)state;
	sbx_job_status(rec, line, sizeof(line));
	assert_int_equal(sscanf(line, "0 exited job=1 wall_ms=%lu %63[^\n]", &wall, rest), 2);
	assert_string_equal(rest, "user_ms=3 sys_ms=1 max_rss_kb=2100");
	sbx_job_unref(rec);
	fixture_expect_status(NULL, "- idle\n");
}

static void a_status_that_does_not_fit_is_cut_not_overrun(void **state)
{
	struct sbx_jobrec *rec = fixture_run_job(&fx, "true", 0);
	char line[8] = "xxxxxxx";

	(void)state;
	assert_int_equal(sbx_job_status(rec, line, 4), 3);
	assert_string_equal(line, "0 e");
	assert_int_equal(line[4], 'x');
	sbx_job_unref(rec);
}

static void everyone_is_told_in_the_promised_order(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");

	(void)state;
	fixture_expect_trail(&fx, "B");
	sbx_job_on_ended(rec, fixture_mark_end, &fx);
	sbx_job_on_started(rec, fixture_mark_start, &fx);
	played_started(fixture_last(&fx));
	fixture_await_start(rec);
	fixture_expect_trail(&fx, "Bcs");
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	fixture_expect_trail(&fx, "BcsIce");
	sbx_job_unref(rec);
}

static void busy_is_told_once_for_jobs_that_overlap(void **state)
{
	struct sbx_jobrec *one = fixture_start_job(&fx, "one");
	struct played_job *first = fixture_last(&fx);
	struct sbx_jobrec *two = fixture_start_job(&fx, "two");

	(void)state;
	assert_int_equal(sbx_jobs_running(fx.jobs), 2);
	played_ended(first, SBX_END_EXITED, 0);
	fixture_await_end(one);
	fixture_expect_trail(&fx, "BLc");
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(two);
	fixture_expect_trail(&fx, "BLcIc");
	assert_int_equal(sbx_jobs_running(fx.jobs), 0);
	sbx_job_unref(one);
	sbx_job_unref(two);
}

static void who_holds_it_together_tells_of_each_that_wrote(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_jobs_hold(fx.jobs, true, NULL, &err), 0);
	assert_int_equal(sbx_jobs_hold(fx.jobs, true, NULL, &err), 0);
	assert_int_equal(sbx_jobs_hold(fx.jobs, false, NULL, &err), 0);
	fixture_expect_trail(&fx, "B");
	sbx_jobs_release(fx.jobs, true);
	fixture_expect_trail(&fx, "BL");
	sbx_jobs_release(fx.jobs, false);
	fixture_expect_trail(&fx, "BL");
	sbx_jobs_release(fx.jobs, true);
	fixture_expect_trail(&fx, "BLI");
}

static void end_within_exec(struct played_job *job)
{
	played_started(job);
	played_output(job, 1, "quick\n", 6);
	played_ended(job, SBX_END_EXITED, 0);
	fixture_sync(&fx);
}

static void a_job_may_end_before_exec_has_returned(void **state)
{
	struct sbx_jobrec *rec;

	(void)state;
	fx.runner.on_exec = end_within_exec;
	rec = fixture_start_job(&fx, "true");
	assert_true(sbx_job_ended(rec));
	assert_int_equal(sbx_job_output_size(rec, 1), 6);
	sbx_job_unref(rec);
	fixture_sync(&fx);
	assert_int_equal(atomic_load(&fx.runner.live), 0);
}

static void started_may_be_skipped(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "true");

	(void)state;
	sbx_job_on_started(rec, fixture_mark_start, &fx);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	fixture_expect_trail(&fx, "BIcs");
	sbx_job_unref(rec);
}

static void a_waiter_that_comes_late_is_called_at_once(void **state)
{
	struct sbx_jobrec *rec = fixture_run_job(&fx, "true", 0);

	(void)state;
	fixture_await_start(rec);
	fixture_await_end(rec);
	sbx_job_unref(rec);
}

static struct sbx_job_waiter *to_forget;

static void forget_on_loop(void *data)
{
	sbx_job_forget_waiter(data, to_forget);
}

static void a_forgotten_waiter_is_not_called(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");

	(void)state;
	to_forget = sbx_job_on_ended(rec, fixture_mark_end, &fx);
	sbx_loop_post(fx.loop, forget_on_loop, rec);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	fixture_expect_trail(&fx, "BIc");
	sbx_job_unref(rec);
}

static void forget_other(struct sbx_jobrec *rec, void *data)
{
	(void)data;
	sbx_job_forget_waiter(rec, to_forget);
}

static void a_waiter_may_forget_another_that_is_due_too(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");

	(void)state;
	sbx_job_on_ended(rec, forget_other, NULL);
	to_forget = sbx_job_on_ended(rec, fixture_mark_end, &fx);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	fixture_expect_trail(&fx, "BIc");
	sbx_job_unref(rec);
}

static void post_sem(struct sbx_jobrec *rec, void *data)
{
	(void)rec;
	sem_post(data);
}

static void output_is_awaited_and_read_while_it_grows(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");
	char buf[16];
	sem_t sem;

	(void)state;
	sem_init(&sem, 0, 0);
	played_started(fixture_last(&fx));
	sbx_job_on_output(rec, 1, 0, post_sem, &sem);
	played_output(fixture_last(&fx), 2, "warning\n", 8);
	played_output(fixture_last(&fx), 1, "abc", 3);
	fixture_wait(&sem);
	assert_int_equal(sbx_job_output_size(rec, 1), 3);
	assert_int_equal(sbx_job_output_read(rec, 1, buf, sizeof(buf), 1), 2);
	assert_memory_equal(buf, "bc", 2);
	assert_int_equal(sbx_job_output_read(rec, 2, buf, sizeof(buf), 0), 8);
	sbx_job_on_output(rec, 1, 3, post_sem, &sem);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_wait(&sem);
	assert_true(sbx_job_ended(rec));
	sem_destroy(&sem);
	sbx_job_unref(rec);
}

/* ---- starts that fail ---- */

static void a_refusal_by_the_backend_is_the_starts_own(void **state)
{
	char *argv[] = {"nope", NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *rec;

	(void)state;
	fx.runner.refuse = -ENOENT;
	fx.runner.refuse_text = "nope was not found";
	fixture_expect_refused(&fx, &req, NULL, ENOENT, "nope was not found");
	fx.runner.refuse_text = NULL;
	fixture_expect_refused(&fx, &req, NULL, ENOENT, "No such file");
	assert_int_equal(sbx_jobs_running(fx.jobs), 0);
	rec = sbx_job_find(fx.jobs, "1");
	fixture_expect_status(rec, "127 failed job=1 ENOENT nope was not found\n");
	sbx_job_unref(rec);
	rec = sbx_job_last_exec(fx.jobs);
	fixture_expect_status(rec, "127 failed job=2 ENOENT No such file");
	sbx_job_unref(rec);
	fixture_expect_trail(&fx, "BIcBIc");
}

static void a_start_that_fails_later_is_told_and_kept(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "nope"), *found;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	played_ended(fixture_last(&fx), SBX_END_FAILED, EACCES);
	fixture_await_start(rec);
	assert_int_equal(sbx_job_start_error(rec, &err), -EACCES);
	assert_int_equal(err.code, EACCES);
	assert_non_null(strstr(err.text, "nope: Permission denied"));
	assert_true(sbx_job_ended(rec));
	fixture_expect_status(rec, "126 failed job=1 EACCES nope: Permission denied");
	found = sbx_job_find(fx.jobs, "last");
	assert_ptr_equal(found, rec);
	sbx_job_unref(found);
	sbx_job_unref(rec);
}

static void a_failed_start_is_the_last(void **state)
{
	struct sbx_jobrec *good = fixture_run_job(&fx, "true", 0);
	struct sbx_jobrec *bad = fixture_start_job(&fx, "nope"), *last;

	(void)state;
	played_ended(fixture_last(&fx), SBX_END_FAILED, ENOENT);
	fixture_await_end(bad);
	last = sbx_job_last_exec(fx.jobs);
	assert_ptr_equal(last, bad);
	sbx_job_unref(last);
	sbx_job_unref(good);
	sbx_job_unref(bad);
}

static void only_so_many_run_at_once(void **state)
{
	struct sbx_limits limits = {.jobs = 2};
	char *argv[] = {"three", NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *one, *two;

	(void)state;
	sbx_jobs_set_limits(fx.jobs, &limits);
	one = fixture_start_job(&fx, "one");
	two = fixture_start_job(&fx, "two");
	fixture_expect_refused(&fx, &req, NULL, EAGAIN, "no more than 2");
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(two);
	sbx_job_unref(fixture_start_job(&fx, "three"));
	sbx_job_unref(one);
	sbx_job_unref(two);
}

/* A command that has ended is in nobody's way from the moment in which its end is told. */
static void start_next(struct sbx_jobrec *rec, void *data)
{
	struct sbx_jobrec **next = data;

	(void)rec;
	*next = fixture_start_job(&fx, "next");
}

static void where_one_runs_at_a_time_the_second_is_refused(void **state)
{
	char *argv[] = {"second", NULL};
	struct sbx_request req = {.argv = argv}, again = {.argv = argv, .id = "id"};
	struct sbx_jobrec *one, *next = NULL, *same = NULL;
	struct played_job *first;
	bool repeated = false;

	(void)state;
	fx.alone = true;
	assert_int_equal(fixture_start_request(&fx, &again, NULL, &one, &repeated), 0);
	first = fixture_last(&fx);
	fixture_expect_refused(&fx, &req, NULL, EOPNOTSUPP, "one at a time");
	played_started(first);
	fixture_await_start(one);
	fixture_expect_refused(&fx, &req, NULL, EOPNOTSUPP, "one at a time");
	assert_int_equal(fixture_start_request(&fx, &again, NULL, &same, &repeated), 0);
	assert_true(repeated && same == one);
	sbx_job_on_ended(one, start_next, &next);
	played_output(first, 1, "late", 4);
	played_ended(first, SBX_END_EXITED, 0);
	fixture_await_end(one);
	fixture_sync(&fx);
	assert_non_null(next);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(next);
	assert_int_equal(atomic_load(&fx.runner.execs), 2);
	sbx_job_unref(next);
	sbx_job_unref(same);
	sbx_job_unref(one);
}

static void output_that_a_backend_does_not_bring_is_cut(void **state)
{
	char line[SBX_STATUS_MAX];
	struct sbx_jobrec *rec;

	(void)state;
	fx.output_max = 4;
	rec = fixture_start_job(&fx, "x");
	assert_int_equal(fixture_last(&fx)->limits.output_bytes, 4);
	played_output(fixture_last(&fx), 1, "12345", 5);
	played_output(fixture_last(&fx), 2, "1234", 4);
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	sbx_job_status(rec, line, sizeof(line));
	assert_non_null(strstr(line, "stdout_cut=1"));
	assert_int_equal(sbx_job_output_size(rec, 1), 4);
	assert_int_equal(sbx_job_output_size(rec, 2), 4);
	sbx_job_unref(rec);
}

/* ---- how jobs end ---- */

static void expect_end(enum sbx_end end, int code, int want, const char *status)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "x");

	played_started(fixture_last(&fx));
	played_ended(fixture_last(&fx), end, code);
	fixture_await_end(rec);
	assert_int_equal(sbx_job_code(rec), want);
	fixture_expect_status(rec, status);
	sbx_job_unref(rec);
}

static void each_end_has_its_word_and_code(void **state)
{
	(void)state;
	expect_end(SBX_END_EXITED, 255, 255, "255 exited job=1 ");
	expect_end(SBX_END_SIGNALED, SIGSEGV, 139, "139 signaled job=2 ");
	expect_end(SBX_END_OOM, SIGKILL, 137, "137 oom job=3 ");
	expect_end(SBX_END_LOST, 0, -1, "- lost job=4 ");
}

static void a_killed_job_says_so(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "sleep");

	(void)state;
	played_started(fixture_last(&fx));
	assert_int_equal(sbx_job_kill(rec, SIGTERM), 0);
	fixture_await_end(rec);
	fixture_expect_status(rec, "143 killed job=1 ");
	assert_int_equal(sbx_job_kill(rec, SIGTERM), -ESRCH);
	sbx_job_unref(rec);
}

static void a_signal_of_its_own_is_not_a_kill(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "x");

	(void)state;
	fx.runner.survives = (uint64_t)1 << (SIGUSR1 - 1);
	played_started(fixture_last(&fx));
	assert_int_equal(sbx_job_kill(rec, SIGUSR1), 0);
	fixture_sync(&fx);
	assert_int_equal(atomic_load(&fixture_last(&fx)->signals), (uint64_t)1 << (SIGUSR1 - 1));
	played_ended(fixture_last(&fx), SBX_END_SIGNALED, SIGSEGV);
	fixture_await_end(rec);
	fixture_expect_status(rec, "139 signaled ");
	sbx_job_unref(rec);
}

static void what_is_no_signal_is_refused(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "x");

	(void)state;
	assert_int_equal(sbx_job_kill(rec, 0), -EINVAL);
	assert_int_equal(sbx_job_kill(rec, 65), -EINVAL);
	assert_int_equal(sbx_job_kill(rec, -1), -EINVAL);
	sbx_job_unref(rec);
}

static void kill_within_exec(struct played_job *job)
{
	struct sbx_jobrec *rec = sbx_job_find(fx.jobs, "last");

	(void)job;
	assert_int_equal(sbx_job_kill(rec, SIGKILL), 0);
	fixture_sync(&fx);
	sbx_job_unref(rec);
}

static void a_kill_during_the_start_is_delivered_after_it(void **state)
{
	struct sbx_jobrec *rec;

	(void)state;
	fx.runner.on_exec = kill_within_exec;
	rec = fixture_start_job(&fx, "x");
	fixture_await_end(rec);
	fixture_expect_status(rec, "137 killed ");
	sbx_job_unref(rec);
}

static void kill_reaches_every_running_job(void **state)
{
	struct sbx_jobrec *one = fixture_start_job(&fx, "one"),
	                  *two = fixture_start_job(&fx, "two");

	(void)state;
	sbx_jobs_kill(fx.jobs, SIGKILL);
	fixture_await_end(one);
	fixture_await_end(two);
	fixture_expect_status(one, "137 killed ");
	fixture_expect_status(two, "137 killed ");
	sbx_job_unref(one);
	sbx_job_unref(two);
}

static struct sbx_jobrec *start_with_timeout(uint64_t ms)
{
	char *argv[] = {"sleep", NULL};
	struct sbx_request req = {.argv = argv, .set = SBX_REQ_TIMEOUT, .timeout_ms = ms};
	struct sbx_jobrec *rec;
	bool repeated;

	assert_int_equal(fixture_start_request(&fx, &req, NULL, &rec, &repeated), 0);
	return rec;
}

static void a_timeout_ends_with_124_and_keeps_the_output(void **state)
{
	struct sbx_jobrec *rec = start_with_timeout(5);

	(void)state;
	played_started(fixture_last(&fx));
	played_output(fixture_last(&fx), 1, "partial", 7);
	fixture_await_end(rec);
	fixture_expect_status(rec, "124 timeout job=1 ");
	assert_int_equal(sbx_job_output_size(rec, 1), 7);
	sbx_job_unref(rec);
}

static uint64_t signals_seen;

static void keep_signals(struct sbx_jobrec *rec, void *data)
{
	(void)rec;
	(void)data;
	signals_seen = atomic_load(&fixture_last(&fx)->signals);
}

static void a_job_that_ignores_sigterm_is_killed_after_the_grace(void **state)
{
	const uint64_t term = (uint64_t)1 << (SIGTERM - 1), kill = (uint64_t)1 << (SIGKILL - 1);
	struct sbx_jobrec *rec;

	(void)state;
	fx.jobs->grace_ms = 5;
	fx.runner.survives = term;
	rec = start_with_timeout(5);
	sbx_job_on_ended(rec, keep_signals, NULL);
	played_started(fixture_last(&fx));
	fixture_await_end(rec);
	assert_int_equal(signals_seen, term | kill);
	fixture_expect_status(rec, "124 timeout ");
	sbx_job_unref(rec);
}

static void a_default_timeout_counts_where_none_is_asked_for(void **state)
{
	struct sbx_jobrec *rec;

	(void)state;
	sbx_jobs_set_timeout(fx.jobs, 5);
	rec = fixture_start_job(&fx, "sleep");
	played_started(fixture_last(&fx));
	fixture_await_end(rec);
	fixture_expect_status(rec, "124 timeout ");
	sbx_job_unref(rec);
}

static void a_job_that_ends_in_time_is_left_alone(void **state)
{
	struct sbx_jobrec *rec = start_with_timeout(600000);

	(void)state;
	played_started(fixture_last(&fx));
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	fixture_expect_status(rec, "0 exited ");
	assert_int_equal(rec->timer.due_ns, 0);
	sbx_job_unref(rec);
}

static void large_output_is_gone_with_a_forgotten_job(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "make");
	static char big[100000];
	char path[128];

	(void)state;
	memset(big, 'x', sizeof(big));
	snprintf(path, sizeof(path), "%s/jobs/id/1.1", fx.dir);
	played_output(fixture_last(&fx), 1, big, sizeof(big));
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
	assert_int_equal(access(path, F_OK), 0);
	sbx_job_unref(rec);
	assert_int_equal(sbx_job_remove(fx.jobs, "1", NULL), 0);
	fixture_sync(&fx);
	assert_int_equal(access(path, F_OK), -1);
}

static void output_left_by_a_killed_daemon_is_removed(void **state)
{
	char path[128];
	FILE *f;

	(void)state;
	fixture_prepare(&gone);
	snprintf(path, sizeof(path), "%s/jobs", gone.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/jobs/id", gone.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/jobs/id/7.1", gone.dir);
	f = fopen(path, "we");
	assert_non_null(f);
	fclose(f);
	fixture_start(&gone);
	assert_int_equal(access(path, F_OK), -1);
	fixture_tear_down(&gone);
}

/* ---- the end of a table ---- */

static void sem_posted(void *data)
{
	sem_post(data);
}

static void shutdown_kills_refuses_and_tells_when_all_is_gone(void **state)
{
	struct sbx_jobrec *rec = fixture_start_job(&fx, "sleep");
	char *argv[] = {"x", NULL};
	struct sbx_request req = {.argv = argv};
	sem_t sem;

	(void)state;
	sem_init(&sem, 0, 0);
	played_started(fixture_last(&fx));
	sbx_jobs_shutdown(fx.jobs, sem_posted, &sem);
	sbx_jobs_shutdown(fx.jobs, sem_posted, &sem);
	fixture_wait(&sem);
	fixture_wait(&sem);
	assert_int_equal(atomic_load(&fx.runner.live), 0);
	fixture_expect_status(rec, "137 killed ");
	fixture_expect_refused(&fx, &req, NULL, EBUSY, "stopping");
	sbx_jobs_resume(fx.jobs);
	sbx_job_unref(fixture_run_job(&fx, "x", 0));
	sem_destroy(&sem);
	sbx_job_unref(rec);
}

static void records_outlive_their_table(void **state)
{
	struct sbx_jobrec *ended, *named;
	char buf[8];

	(void)state;
	fixture_set_up(&gone);
	ended = fixture_start_job(&gone, "x");
	played_output(atomic_load(&gone.runner.last), 1, "kept", 4);
	played_ended(atomic_load(&gone.runner.last), SBX_END_EXITED, 0);
	fixture_await_end(ended);
	assert_int_equal(sbx_job_prepare(gone.jobs, "n", &named, NULL), 0);
	sbx_job_on_ended(named, fixture_mark_end, &fx);
	fixture_tear_down(&gone);
	fixture_expect_trail(&fx, "e");
	fixture_expect_status(ended, "0 exited ");
	assert_int_equal(sbx_job_output_read(ended, 1, buf, 8, 0), 4);
	assert_int_equal(sbx_job_kill(ended, SIGKILL), -ESRCH);
	sbx_job_unref(ended);
	sbx_job_unref(named);
}

static void play_one(struct played_job *job)
{
	played_started(job);
	played_output(job, 1, "hello\n", 6);
	played_ended(job, SBX_END_EXITED, 0);
}

static void *start_many(void *data)
{
	(void)data;
	for (int i = 0; i < 100; i++) {
		struct sbx_jobrec *rec = fixture_start_job(&fx, "x");

		fixture_await_end(rec);
		if (sbx_job_output_size(rec, 1) != 6)
			return (void *)"output is missing";
		sbx_job_unref(rec);
	}
	return NULL;
}

static void many_threads_may_start_jobs_at_once(void **state)
{
	pthread_t threads[4];
	void *wrong;

	(void)state;
	fx.runner.on_exec = play_one;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, start_many, NULL), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	assert_int_equal(sbx_jobs_running(fx.jobs), 0);
	assert_int_equal(atomic_load(&fx.runner.execs), 400);
	pthread_mutex_lock(&fx.lock);
	for (const char *c = fx.trail, *last = "I"; *c; c++)
		if (*c == 'B' || *c == 'I') {
			assert_int_not_equal(*c, *last);
			last = c;
		}
	pthread_mutex_unlock(&fx.lock);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_job_runs_from_start_to_end),
	        CASE(the_status_line_has_its_exact_form),
	        CASE(a_status_that_does_not_fit_is_cut_not_overrun),
	        CASE(everyone_is_told_in_the_promised_order),
	        CASE(busy_is_told_once_for_jobs_that_overlap),
	        CASE(who_holds_it_together_tells_of_each_that_wrote),
	        CASE(a_job_may_end_before_exec_has_returned),
	        CASE(started_may_be_skipped),
	        CASE(a_waiter_that_comes_late_is_called_at_once),
	        CASE(a_forgotten_waiter_is_not_called),
	        CASE(a_waiter_may_forget_another_that_is_due_too),
	        CASE(output_is_awaited_and_read_while_it_grows),
	        CASE(a_refusal_by_the_backend_is_the_starts_own),
	        CASE(a_start_that_fails_later_is_told_and_kept),
	        CASE(a_failed_start_is_the_last),
	        CASE(only_so_many_run_at_once),
	        CASE(output_that_a_backend_does_not_bring_is_cut),
	        CASE(where_one_runs_at_a_time_the_second_is_refused),
	        CASE(each_end_has_its_word_and_code),
	        CASE(a_killed_job_says_so),
	        CASE(a_signal_of_its_own_is_not_a_kill),
	        CASE(what_is_no_signal_is_refused),
	        CASE(a_kill_during_the_start_is_delivered_after_it),
	        CASE(kill_reaches_every_running_job),
	        CASE(a_timeout_ends_with_124_and_keeps_the_output),
	        CASE(a_job_that_ignores_sigterm_is_killed_after_the_grace),
	        CASE(a_default_timeout_counts_where_none_is_asked_for),
	        CASE(a_job_that_ends_in_time_is_left_alone),
	        CASE(large_output_is_gone_with_a_forgotten_job),
	        CASE(output_left_by_a_killed_daemon_is_removed),
	        CASE(shutdown_kills_refuses_and_tells_when_all_is_gone),
	        CASE(records_outlive_their_table),
	        CASE(many_threads_may_start_jobs_at_once),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
