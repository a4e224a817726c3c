#include "tests/lib/job_fixture.h"
#include "fs/job/wait.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/tmp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static void on_busy(bool busy, void *data)
{
	fixture_mark(data, busy ? 'B' : 'I');
}

static void on_left(void *data)
{
	fixture_mark(data, 'L');
}

static void on_changed(struct sbx_jobrec *rec, void *data)
{
	(void)rec;
	fixture_mark(data, 'c');
}

/* ---- the sandbox ---- */

static struct sbx_sandbox *inner_of(struct sbx_sandbox *outer)
{
	return sbx_container_of(outer, struct fixture, outer)->sandbox;
}

static int outer_root(struct sbx_sandbox *sb)
{
	return sbx_sandbox_root(inner_of(sb));
}

static int outer_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *job,
                      struct sbx_error *err)
{
	return inner_of(sb)->impl->commands->exec(inner_of(sb), spec, job, err);
}

static void outer_signal(struct sbx_job *job, int sig)
{
	inner_of(job->sandbox)->impl->commands->signal(job, sig);
}

static bool outer_alone(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct fixture, outer)->alone;
}

static uint64_t outer_output_max(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct fixture, outer)->output_max;
}

static const struct sbx_command_impl outer_commands = {.exec = outer_exec,
                                                       .signal = outer_signal,
                                                       .alone = outer_alone,
                                                       .output_max = outer_output_max};
static const struct sbx_sandbox_impl outer_impl = {.root = outer_root, .commands = &outer_commands};

/* ---- the table ---- */

void fixture_mark(struct fixture *fx, char c)
{
	size_t n;

	pthread_mutex_lock(&fx->lock);
	n = strlen(fx->trail);
	assert_true(n + 1 < sizeof(fx->trail));
	fx->trail[n] = c;
	pthread_mutex_unlock(&fx->lock);
}

void fixture_expect_trail(struct fixture *fx, const char *want)
{
	pthread_mutex_lock(&fx->lock);
	assert_string_equal(fx->trail, want);
	pthread_mutex_unlock(&fx->lock);
}

void fixture_prepare(struct fixture *fx)
{
	*fx = (struct fixture){
	        .settings = {.backend = (char *)"memory",
	                     .path = "/usr/bin:/bin",
	                     .net = "none",
	                     .mountpoint = "/view",
	                     .operation_timeout_ms = 600000,
	                     .limits = {.output_bytes = 64u << 20}},
	};
	pthread_mutex_init(&fx->lock, NULL);
	pthread_rwlock_init(&fx->turn, NULL);
	assert_non_null(tmp_make(fx->dir, sizeof(fx->dir), "sbx-job"));
}

void fixture_start(struct fixture *fx)
{
	char spill[96];

	snprintf(spill, sizeof(spill), "%s/jobs/id", fx->dir);
	assert_int_equal(sbx_loop_create(&fx->loop), 0);
	played_init(&fx->runner, fx->loop);
	fx->host = (struct sbx_host){
	        .settings = &fx->settings, .loop = fx->loop, .spawner = &fx->runner.base};
	assert_int_equal(sbx_backend_open(&fx->host, &fx->backend, NULL), 0);
	assert_int_equal(sbx_backend_create(fx->backend, &(struct sbx_create){.name = "box"},
	                                    &fx->sandbox, NULL),
	                 0);
	fx->sandbox->turn = fx->away ? &fx->turn : NULL;
	fx->outer = *fx->sandbox;
	fx->outer.impl = &outer_impl;
	fx->root = fx->sandbox->workdir;
	assert_int_equal(sbx_jobs_create(&(struct sbx_jobs_config){.settings = &fx->settings,
	                                                           .loop = fx->loop,
	                                                           .sandbox = &fx->outer,
	                                                           .view = "/view/box",
	                                                           .spill_dir = spill,
	                                                           .busy = on_busy,
	                                                           .left = on_left,
	                                                           .changed = on_changed,
	                                                           .data = fx},
	                                 &fx->jobs),
	                 0);
	assert_int_equal(pthread_create(&fx->thread, NULL, run_loop, fx->loop), 0);
}

void fixture_set_up(struct fixture *fx)
{
	fixture_prepare(fx);
	fixture_start(fx);
}

static void post_sem(void *data)
{
	sem_post(data);
}

void fixture_tear_down(struct fixture *fx)
{
	char sub[96];
	sem_t sem;

	sem_init(&sem, 0, 0);
	sbx_jobs_shutdown(fx->jobs, post_sem, &sem);
	fixture_wait(&sem);
	sbx_loop_stop(fx->loop);
	pthread_join(fx->thread, NULL);
	sbx_jobs_destroy(fx->jobs);
	sbx_loop_destroy(fx->loop);
	played_finish(&fx->runner);
	sbx_sandbox_close(fx->sandbox);
	sbx_backend_destroy(fx->backend);
	sem_destroy(&sem);
	pthread_mutex_destroy(&fx->lock);
	snprintf(sub, sizeof(sub), "%s/jobs", fx->dir);
	rmdir(sub);
	assert_int_equal(rmdir(fx->dir), 0);
}

void fixture_wait(sem_t *sem)
{
	struct timespec ts;
	int r;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 30;
	do
		r = sem_timedwait(sem, &ts);
	while (r < 0 && errno == EINTR);
	assert_int_equal(r, 0);
}

void fixture_sync(struct fixture *fx)
{
	sem_t sem;

	sem_init(&sem, 0, 0);
	for (int turn = 0; turn < 4; turn++) {
		sbx_loop_post(fx->loop, post_sem, &sem);
		fixture_wait(&sem);
	}
	sem_destroy(&sem);
}

static void post_of_job(struct sbx_jobrec *rec, void *data)
{
	(void)rec;
	sem_post(data);
}

void fixture_await_end(struct sbx_jobrec *rec)
{
	sem_t sem;

	sem_init(&sem, 0, 0);
	sbx_job_on_ended(rec, post_of_job, &sem);
	fixture_wait(&sem);
	sem_destroy(&sem);
}

void fixture_await_start(struct sbx_jobrec *rec)
{
	sem_t sem;

	sem_init(&sem, 0, 0);
	sbx_job_on_started(rec, post_of_job, &sem);
	fixture_wait(&sem);
	sem_destroy(&sem);
}

struct sbx_jobrec *fixture_start_job(struct fixture *fx, const char *word)
{
	char *argv[] = {(char *)word, NULL};
	struct sbx_request req = {.argv = argv};
	struct sbx_jobrec *rec;
	bool repeated;

	assert_int_equal(sbx_job_start(fx->jobs, &req, SBX_JOB_EXEC, NULL, &rec, &repeated, NULL),
	                 0);
	assert_false(repeated);
	return rec;
}

struct sbx_jobrec *fixture_run_job(struct fixture *fx, const char *word, int code)
{
	struct sbx_jobrec *rec = fixture_start_job(fx, word);
	struct played_job *job = atomic_load(&fx->runner.last);

	played_started(job);
	played_ended(job, SBX_END_EXITED, code);
	fixture_await_end(rec);
	return rec;
}

void fixture_expect_refused(struct fixture *fx, const struct sbx_request *req,
                            struct sbx_jobrec *named, int code, const char *text)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_jobrec *rec = NULL;
	bool repeated = false;

	assert_int_equal(sbx_job_start(fx->jobs, req, SBX_JOB_EXEC, named, &rec, &repeated, &err),
	                 -code);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" is not in \"%s\"", text, err.text);
	/* A table that is stopping keeps no more of it. */
	if (rec)
		assert_int_equal(sbx_job_start_error(rec, NULL), -code);
	sbx_job_unref(rec);
}

void fixture_expect_status(struct sbx_jobrec *rec, const char *text)
{
	char line[SBX_STATUS_MAX];
	size_t n = sbx_job_status(rec, line, sizeof(line));

	assert_int_equal(n, strlen(line));
	assert_int_equal(line[n - 1], '\n');
	if (strncmp(line, text, strlen(text)) != 0)
		fail_msg("\"%s\" does not begin with \"%s\"", line, text);
}

static void awaited_count(struct sbx_pending *p, size_t n)
{
	struct awaited *a = (struct awaited *)p;

	a->count = n;
	sem_post(&a->given);
}

static void awaited_error(struct sbx_pending *p, int errnum)
{
	struct awaited *a = (struct awaited *)p;

	a->error = errnum;
	sem_post(&a->given);
}

void awaited_init(struct awaited *a, size_t size)
{
	static const struct sbx_pending_impl impl = {.count = awaited_count,
	                                             .error = awaited_error};

	*a = (struct awaited){.base = {.impl = &impl, .size = size}};
	sem_init(&a->given, 0, 0);
}

void fixture_mark_end(struct sbx_jobrec *rec, void *data)
{
	(void)rec;
	fixture_mark(data, 'e');
}

void fixture_mark_start(struct sbx_jobrec *rec, void *data)
{
	(void)rec;
	fixture_mark(data, 's');
}

struct played_job *fixture_last(struct fixture *fx)
{
	return atomic_load(&fx->runner.last);
}

int fixture_start_request(struct fixture *fx, const struct sbx_request *req,
                          struct sbx_jobrec *named, struct sbx_jobrec **rec, bool *repeated)
{
	return sbx_job_start(fx->jobs, req, SBX_JOB_EXEC, named, rec, repeated, NULL);
}
