/*
 * The standard input of a command: a request's text, kept bytes, or a pipe that is written while
 * it runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/job_fixture.h"

static struct fixture fx;
static struct sbx_jobrec *rec;
static char *argv[] = {"cat", NULL};

static int set_up(void **state)
{
	(void)state;
	fixture_set_up(&fx);
	assert_int_equal(sbx_job_prepare(fx.jobs, "build", &rec, NULL), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_job_unref(rec);
	fixture_tear_down(&fx);
	return 0;
}

static void start(const struct sbx_request *req)
{
	struct sbx_jobrec *run;
	bool repeated;

	assert_int_equal(sbx_job_start(fx.jobs, req, SBX_JOB_EXEC, rec, &run, &repeated, NULL), 0);
	sbx_job_unref(run);
	played_started(fixture_last(&fx));
}

static void start_plain(void)
{
	struct sbx_request req = {.argv = argv};

	start(&req);
}

static void end_job(void)
{
	played_ended(fixture_last(&fx), SBX_END_EXITED, 0);
	fixture_await_end(rec);
}

/* Writes and returns the errno, 0 when all was taken. */
static int write_all(const void *buf, size_t len)
{
	struct awaited a;

	awaited_init(&a, len);
	sbx_job_stdin_write(rec, buf, len, &a.base);
	fixture_wait(&a.given);
	if (!a.error)
		assert_int_equal(a.count, len);
	sem_destroy(&a.given);
	return a.error;
}

/* What the command gets until LEN bytes or the end. */
static size_t read_stdin(char *buf, size_t len)
{
	size_t done = 0;
	ssize_t n;

	while (done < len && (n = read(fixture_last(&fx)->stdin_fd, buf + done, len - done)) > 0)
		done += (size_t)n;
	return done;
}

static void expect_stdin(const char *want)
{
	char buf[64];
	size_t n = read_stdin(buf, sizeof(buf));

	assert_int_equal(n, strlen(want));
	assert_memory_equal(buf, want, n);
}

static void close_reader(void)
{
	close(fixture_last(&fx)->stdin_fd);
	fixture_last(&fx)->stdin_fd = -1;
}

static void without_anything_it_is_dev_null(void **state)
{
	(void)state;
	start_plain();
	assert_int_equal(fixture_last(&fx)->stdin_fd, -1);
}

static void a_requests_text_is_a_sealed_file_at_its_beginning(void **state)
{
	struct sbx_request req = {
	        .argv = argv, .set = SBX_REQ_STDIN, .stdin_data = "a\0b\n", .stdin_len = 4};
	char buf[8];
	struct stat st;

	(void)state;
	start(&req);
	assert_int_equal(fstat(fixture_last(&fx)->stdin_fd, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(read_stdin(buf, sizeof(buf)), 4);
	assert_memory_equal(buf, "a\0b\n", 4);
	assert_int_equal(pwrite(fixture_last(&fx)->stdin_fd, "x", 1, 0), -1);
	assert_int_equal(ftruncate(fixture_last(&fx)->stdin_fd, 0), -1);
}

static void null_means_nothing_whatever_was_kept(void **state)
{
	struct sbx_request req = {.argv = argv, .set = SBX_REQ_STDIN};

	(void)state;
	assert_int_equal(write_all("kept", 4), 0);
	start(&req);
	assert_int_equal(fixture_last(&fx)->stdin_fd, -1);
}

static void what_was_written_before_is_read_by_the_next_run_only(void **state)
{
	(void)state;
	sbx_job_stdin_open(rec);
	assert_int_equal(write_all("one ", 4), 0);
	sbx_job_stdin_close(rec);
	assert_int_equal(write_all("two", 3), 0);
	start_plain();
	expect_stdin("one two");
	end_job();
	start_plain();
	assert_int_equal(fixture_last(&fx)->stdin_fd, -1);
	end_job();
	assert_int_equal(write_all("three", 5), 0);
	start_plain();
	expect_stdin("three");
}

static void kept_bytes_survive_a_start_that_fails(void **state)
{
	struct sbx_request req = {.argv = argv};

	(void)state;
	assert_int_equal(write_all("again", 5), 0);
	fx.runner.refuse = -ENOENT;
	fixture_expect_refused(&fx, &req, rec, ENOENT, "");
	fx.runner.refuse = 0;
	start_plain();
	expect_stdin("again");
}

static void more_than_is_kept_is_refused(void **state)
{
	const size_t part = 16u << 20;
	char *buf = calloc(1, part);

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(write_all(buf, part), 0);
	assert_int_equal(write_all(buf, 1), EFBIG);
	free(buf);
}

static void a_file_that_is_open_at_the_start_feeds_a_pipe(void **state)
{
	struct stat st;

	(void)state;
	sbx_job_stdin_open(rec);
	assert_int_equal(write_all("early ", 6), 0);
	start_plain();
	assert_int_equal(fstat(fixture_last(&fx)->stdin_fd, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(fcntl(fixture_last(&fx)->stdin_fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(write_all("late", 4), 0);
	sbx_job_stdin_close(rec);
	expect_stdin("early late");
	end_job();
}

static void the_pipe_stays_open_until_the_last_is_closed(void **state)
{
	(void)state;
	sbx_job_stdin_open(rec);
	start_plain();
	sbx_job_stdin_open(rec);
	sbx_job_stdin_close(rec);
	assert_int_equal(write_all("x", 1), 0);
	sbx_job_stdin_close(rec);
	expect_stdin("x");
	sbx_job_stdin_open(rec);
	assert_int_equal(write_all("y", 1), EPIPE);
	sbx_job_stdin_close(rec);
}

static void a_reader_that_is_gone_answers_epipe(void **state)
{
	int error = 0;

	(void)state;
	sbx_job_stdin_open(rec);
	start_plain();
	close_reader();
	fixture_sync(&fx);
	error = write_all("x", 1);
	assert_int_equal(error, EPIPE);
	sbx_job_stdin_close(rec);
}

static void a_job_without_a_pipe_or_at_its_end_answers_epipe(void **state)
{
	(void)state;
	start_plain();
	sbx_job_stdin_open(rec);
	assert_int_equal(write_all("x", 1), EPIPE);
	sbx_job_stdin_close(rec);
	end_job();
	sbx_job_stdin_open(rec);
	start_plain();
	end_job();
	assert_int_equal(write_all("x", 1), EPIPE);
	sbx_job_stdin_close(rec);
}

static void an_unnamed_job_keeps_nothing(void **state)
{
	struct sbx_jobrec *plain = fixture_run_job(&fx, "true", 0), *named = rec;

	(void)state;
	rec = plain;
	sbx_job_stdin_open(rec);
	assert_int_equal(write_all("x", 1), EPIPE);
	sbx_job_stdin_close(rec);
	rec = named;
	sbx_job_unref(plain);
}

/* ---- a command that does not read ---- */

#define PART (256u * 1024)

static char *part;
static struct awaited waiting;

/* The pipe holds 64 KiB and the queue takes what comes while it has less than 1 MiB. */
#define TAKEN 5

static void fill_up(void)
{
	part = calloc(1, PART);
	for (unsigned n = 0; n < TAKEN; n++)
		assert_int_equal(write_all(part, PART), 0);
}

static void defer_one(void)
{
	awaited_init(&waiting, PART);
	sbx_job_stdin_write(rec, part, PART, &waiting.base);
	assert_int_equal(sem_trywait(&waiting.given), -1);
	assert_non_null(waiting.base.cancel);
}

static void undefer(void)
{
	sem_destroy(&waiting.given);
	free(part);
}

static void start_and_fill(void)
{
	sbx_job_stdin_open(rec);
	start_plain();
	fill_up();
	defer_one();
}

static void a_write_waits_for_room_and_loses_nothing(void **state)
{
	char *buf = malloc(PART);

	(void)state;
	start_and_fill();
	for (unsigned i = 0; i < TAKEN + 1; i++)
		assert_int_equal(read_stdin(buf, PART), PART);
	fixture_wait(&waiting.given);
	assert_int_equal(waiting.error, 0);
	assert_int_equal(waiting.count, PART);
	sbx_job_stdin_close(rec);
	assert_int_equal(read_stdin(buf, 1), 0);
	free(buf);
	undefer();
}

static void cancel_posted(void *data)
{
	struct awaited *a = data;

	a->base.cancel(&a->base, false);
}

static void a_signal_ends_the_waiting_write(void **state)
{
	(void)state;
	start_and_fill();
	sbx_loop_post(fx.loop, cancel_posted, &waiting);
	fixture_wait(&waiting.given);
	assert_int_equal(waiting.error, EINTR);
	sbx_job_stdin_close(rec);
	undefer();
}

static void the_end_of_the_job_ends_the_waiting_write(void **state)
{
	(void)state;
	start_and_fill();
	end_job();
	fixture_wait(&waiting.given);
	assert_int_equal(waiting.error, EPIPE);
	sbx_job_stdin_close(rec);
	undefer();
}

static void closing_the_reader_ends_the_waiting_write(void **state)
{
	(void)state;
	start_and_fill();
	close_reader();
	fixture_wait(&waiting.given);
	assert_int_equal(waiting.error, EPIPE);
	sbx_job_stdin_close(rec);
	undefer();
}

static struct awaited deferred_early;

/* Within exec, before there is a pipe: the queue is all there is. */
static void write_within_exec(struct played_job *job)
{
	(void)job;
	part = calloc(1, PART);
	for (int i = 0; i < 4; i++)
		assert_int_equal(write_all(part, PART), 0);
	awaited_init(&deferred_early, PART);
	sbx_job_stdin_write(rec, part, PART, &deferred_early.base);
	assert_int_equal(sem_trywait(&deferred_early.given), -1);
}

static void bytes_written_during_the_start_wait_for_the_pipe(void **state)
{
	char *buf = malloc(PART);

	(void)state;
	fx.runner.on_exec = write_within_exec;
	sbx_job_stdin_open(rec);
	start_plain();
	for (int i = 0; i < 5; i++)
		assert_int_equal(read_stdin(buf, PART), PART);
	fixture_wait(&deferred_early.given);
	assert_int_equal(deferred_early.error, 0);
	sbx_job_stdin_close(rec);
	sem_destroy(&deferred_early.given);
	free(buf);
	free(part);
}

static void end_within_exec(struct played_job *job)
{
	write_within_exec(job);
	played_ended(job, SBX_END_EXITED, 0);
	fixture_wait(&deferred_early.given);
	assert_int_equal(deferred_early.error, EPIPE);
}

static void a_job_that_ends_before_its_pipe_is_attached_leaves_none(void **state)
{
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *run;
	bool repeated;

	(void)state;
	fx.runner.on_exec = end_within_exec;
	sbx_job_stdin_open(rec);
	assert_int_equal(sbx_job_start(fx.jobs, &req, SBX_JOB_EXEC, rec, &run, &repeated, NULL), 0);
	assert_int_equal(rec->in.watch.fd, -1);
	assert_int_equal(write_all("x", 1), EPIPE);
	sbx_job_stdin_close(rec);
	sbx_job_unref(run);
	sem_destroy(&deferred_early.given);
	free(part);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(without_anything_it_is_dev_null),
	        CASE(a_requests_text_is_a_sealed_file_at_its_beginning),
	        CASE(null_means_nothing_whatever_was_kept),
	        CASE(what_was_written_before_is_read_by_the_next_run_only),
	        CASE(kept_bytes_survive_a_start_that_fails),
	        CASE(more_than_is_kept_is_refused),
	        CASE(a_file_that_is_open_at_the_start_feeds_a_pipe),
	        CASE(the_pipe_stays_open_until_the_last_is_closed),
	        CASE(a_reader_that_is_gone_answers_epipe),
	        CASE(a_job_without_a_pipe_or_at_its_end_answers_epipe),
	        CASE(an_unnamed_job_keeps_nothing),
	        CASE(a_write_waits_for_room_and_loses_nothing),
	        CASE(a_signal_ends_the_waiting_write),
	        CASE(the_end_of_the_job_ends_the_waiting_write),
	        CASE(closing_the_reader_ends_the_waiting_write),
	        CASE(bytes_written_during_the_start_wait_for_the_pipe),
	        CASE(a_job_that_ends_before_its_pipe_is_attached_leaves_none),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
