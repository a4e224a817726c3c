/*
 * The life of a job after its start: what the backend reports, time-outs, signals, the end. All of it
 * happens on the loop thread, so nothing here races with itself; the lock is for those
 * who look on from elsewhere.
 */
#include "fs/job/job.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/job_run.h"
#include "fs/job/job_table.h"
#include "sandboxfs/cleanup.h"

static uint64_t bit(int sig)
{
	return (uint64_t)1 << (sig - 1);
}

/* ---- signals ---- */

/* Sends what is to be sent, once the backend has the job. Loop thread. */
static void deliver(struct sbx_jobrec *rec)
{
	struct sbx_job *job = NULL;
	uint64_t signals = 0;

	pthread_mutex_lock(&rec->jobs->lock);
	if (rec->run && rec->run->handed) {
		job = &rec->run->job;
		signals = rec->run->signals;
		rec->run->signals = 0;
	}
	pthread_mutex_unlock(&rec->jobs->lock);
	for (int sig = 1; sig <= 64 && job; sig++)
		if (signals & bit(sig))
			sbx_job_signal(job, sig);
}

static void deliver_posted(void *data)
{
	struct sbx_jobrec *rec = data;

	deliver(rec);
	sbx_job_unref(rec);
}

/* Lock held. */
static void send_soon(struct sbx_jobrec *rec, int sig)
{
	rec->run->signals |= bit(sig);
	rec->sent |= bit(sig);
	sbx_loop_post(rec->jobs->loop, deliver_posted, sbx_job_ref(rec));
}

int sbx_job_kill(struct sbx_jobrec *rec, int sig)
{
	int r = -ESRCH;

	if (sig < 1 || sig > 64)
		return -EINVAL;
	pthread_mutex_lock(&rec->jobs->lock);
	if (rec->run) {
		send_soon(rec, sig);
		r = 0;
	}
	pthread_mutex_unlock(&rec->jobs->lock);
	return r;
}

/* Lock held. */
static void kill_all(struct sbx_jobs *jobs, int sig)
{
	for (struct sbx_jobrec *rec = jobs->first; rec; rec = rec->next)
		if (rec->run)
			send_soon(rec, sig);
}

void sbx_jobs_kill(struct sbx_jobs *jobs, int sig)
{
	if (sig < 1 || sig > 64)
		return;
	pthread_mutex_lock(&jobs->lock);
	kill_all(jobs, sig);
	pthread_mutex_unlock(&jobs->lock);
}

static void on_timer(struct sbx_timer *t)
{
	struct sbx_jobrec *rec = t->data;
	bool again;

	pthread_mutex_lock(&rec->jobs->lock);
	again = rec->timed_out;
	rec->timed_out = true;
	if (rec->run)
		rec->run->signals |= bit(again ? SIGKILL : SIGTERM);
	pthread_mutex_unlock(&rec->jobs->lock);
	if (!again)
		sbx_loop_timer_set(rec->jobs->loop, t, rec->jobs->grace_ms);
	deliver(rec);
}

/* Time counts from the request; that of the backend's own start is part of it. */
static void arm_timer(struct sbx_jobrec *rec, uint64_t timeout_ms, uint64_t start_ns)
{
	uint64_t spent_ms = (sbx_now_ns() - start_ns) / 1000000u;

	if (!timeout_ms)
		return;
	rec->timer.fn = on_timer;
	rec->timer.data = rec;
	sbx_loop_timer_set(rec->jobs->loop, &rec->timer,
	                   timeout_ms > spent_ms ? timeout_ms - spent_ms : 0);
}

/* ---- shutdown ---- */

/* One call of sbx_jobs_shutdown. */
struct sbx_jobs_done {
	struct sbx_jobs_done *next;
	void (*fn)(void *data);
	void *data;
};

/* Tells them when the last run is gone. Loop thread. */
static void check_done(struct sbx_jobs *jobs)
{
	struct sbx_jobs_done *next, *done = NULL;

	pthread_mutex_lock(&jobs->lock);
	if (!jobs->live) {
		done = jobs->done;
		jobs->done = NULL;
	}
	pthread_mutex_unlock(&jobs->lock);
	for (; done; done = next) {
		next = done->next;
		done->fn(done->data);
		free(done);
	}
}

static void check_done_posted(void *data)
{
	struct sbx_jobs *jobs = data;

	check_done(jobs);
	sbx_jobs_unref(jobs);
}

void sbx_jobs_shutdown(struct sbx_jobs *jobs, void (*done)(void *data), void *data)
{
	struct sbx_jobs_done *d = malloc(sizeof(*d));

	if (!d)
		abort();
	pthread_mutex_lock(&jobs->lock);
	*d = (struct sbx_jobs_done){.next = jobs->done, .fn = done, .data = data};
	jobs->done = d;
	jobs->stopping = true;
	kill_all(jobs, SIGKILL);
	pthread_mutex_unlock(&jobs->lock);
	sbx_loop_post(jobs->loop, check_done_posted, sbx_jobs_ref(jobs));
}

bool sbx_jobs_stopping(struct sbx_jobs *jobs)
{
	bool stopping;

	pthread_mutex_lock(&jobs->lock);
	stopping = jobs->stopping;
	pthread_mutex_unlock(&jobs->lock);
	return stopping;
}

void sbx_jobs_resume(struct sbx_jobs *jobs)
{
	pthread_mutex_lock(&jobs->lock);
	jobs->stopping = false;
	pthread_mutex_unlock(&jobs->lock);
}

/* ---- the end ---- */

/* One command fewer can write. No lock held. */
static void leave(struct sbx_jobs *jobs)
{
	bool idle;

	pthread_mutex_lock(&jobs->turn);
	pthread_mutex_lock(&jobs->lock);
	idle = --jobs->running == 0;
	pthread_mutex_unlock(&jobs->lock);
	if (idle && jobs->busy)
		jobs->busy(false, jobs->data);
	if (!idle && jobs->left)
		jobs->left(jobs->data);
	pthread_mutex_unlock(&jobs->turn);
}

/* Frees RUN, whose job the backend has forgotten or never had. Loop thread. */
static void reap(void *data)
{
	struct sbx_job_run *run = data;
	struct sbx_jobrec *rec = run->rec;
	struct sbx_jobs *jobs = sbx_jobs_ref(rec->jobs);

	free(run);
	sbx_job_unref(rec);
	pthread_mutex_lock(&jobs->lock);
	jobs->live--;
	pthread_mutex_unlock(&jobs->lock);
	check_done(jobs);
	sbx_jobs_unref(jobs);
}

/* Takes the oldest job that nobody named out of the list when there are too many. Lock held. */
static struct sbx_jobrec *prune(struct sbx_jobs *jobs)
{
	struct sbx_jobrec *shown = sbx_jobs_last_exec(jobs);
	struct sbx_jobrec *rec = jobs->first;

	if (jobs->ended <= SBX_JOBS_KEPT)
		return NULL;
	while (rec && (rec->named || rec->state != SBX_JOB_ENDED || rec == shown))
		rec = rec->next;
	if (!rec)
		return NULL;
	sbx_job_ref(rec);
	jobs->ended--;
	sbx_jobs_unlink(jobs, rec);
	return rec;
}

/* As prune, of the starts that failed: who tries for ever does not push out what has run. */
static struct sbx_jobrec *prune_failed(struct sbx_jobs *jobs)
{
	struct sbx_jobrec *shown = sbx_jobs_last_exec(jobs);
	struct sbx_jobrec *rec = jobs->first;

	if (jobs->failed <= SBX_JOBS_FAILED)
		return NULL;
	while (rec && (rec->named || rec->state != SBX_JOB_FAILED || rec == shown))
		rec = rec->next;
	if (!rec)
		return NULL;
	sbx_job_ref(rec);
	jobs->failed--;
	sbx_jobs_unlink(jobs, rec);
	return rec;
}

struct sbx_jobrec *sbx_jobrec_fail(struct sbx_jobrec *rec, int code, const char *text)
{
	rec->state = SBX_JOB_FAILED;
	rec->run = NULL;
	rec->time_ns = sbx_real_ns();
	code = code > 0 ? code : EIO;
	sbx_fail(&rec->start_error, code, "%s", text[0] ? text : strerror(code));
	if (!rec->named && rec->listed)
		rec->jobs->failed++;
	return prune_failed(rec->jobs);
}

/* Lock held. */
static void set_ended(struct sbx_jobrec *rec, const struct sbx_exit *exit)
{
	rec->state = SBX_JOB_ENDED;
	rec->run = NULL;
	rec->exit = *exit;
	rec->time_ns = sbx_real_ns();
	if (!rec->named)
		rec->jobs->ended++;
	sbx_stdin_consumed(rec);
}

/* Lock held; returns a record that is to be released. */
static struct sbx_jobrec *set_outcome(struct sbx_jobrec *rec, const struct sbx_exit *exit)
{
	if (exit->end == SBX_END_FAILED)
		return sbx_jobrec_fail(rec, exit->code, exit->error.text);
	set_ended(rec, exit);
	return prune(rec->jobs);
}

static struct sbx_job_run *run_of(struct sbx_job *job)
{
	return sbx_container_of(job, struct sbx_job_run, job);
}

/* The end is told. */
static void settled(void *data)
{
	struct sbx_job_run *run = data;
	struct sbx_jobrec *rec = sbx_job_ref(run->rec);
	struct sbx_jobs *jobs = rec->jobs;
	struct sbx_jobrec *old;
	bool handed;

	leave(jobs);
	pthread_mutex_lock(&jobs->lock);
	old = set_outcome(rec, &run->exit);
	run->ended = true;
	handed = run->handed;
	pthread_mutex_unlock(&jobs->lock);
	sbx_job_unref(old);
	if (jobs->changed)
		jobs->changed(rec, jobs->data);
	sbx_job_tell(rec);
	/* Not from within the backend's call. */
	if (handed)
		sbx_loop_post(jobs->loop, reap, run);
	sbx_job_unref(rec);
}

static void on_ended(struct sbx_job *job, const struct sbx_exit *exit)
{
	struct sbx_job_run *run = run_of(job);
	struct sbx_jobrec *rec = run->rec;
	struct sbx_jobs *jobs = rec->jobs;

	sbx_loop_timer_cancel(jobs->loop, &rec->timer);
	sbx_stdin_end(rec);
	sbx_output_seal(rec->out[0]);
	sbx_output_seal(rec->out[1]);
	run->exit = *exit;
	pthread_mutex_lock(&jobs->lock);
	rec->end_ns = sbx_now_ns();
	pthread_mutex_unlock(&jobs->lock);
	if (!jobs->settle || !jobs->settle(rec, &run->exit, settled, run, jobs->data))
		settled(run);
}

/* ---- what else the backend reports ---- */

static void on_started(struct sbx_job *job)
{
	struct sbx_jobrec *rec = run_of(job)->rec;
	struct sbx_jobs *jobs = rec->jobs;
	uint64_t timeout_ms, start_ns;

	pthread_mutex_lock(&jobs->lock);
	rec->state = SBX_JOB_RUNNING;
	timeout_ms = rec->timeout_ms;
	start_ns = rec->start_ns;
	sbx_stdin_consumed(rec);
	pthread_mutex_unlock(&jobs->lock);
	arm_timer(rec, timeout_ms, start_ns);
	if (jobs->changed)
		jobs->changed(rec, jobs->data);
	sbx_job_tell(rec);
}

static void on_output(struct sbx_job *job, int stream, const void *buf, size_t len)
{
	struct sbx_jobrec *rec = run_of(job)->rec;

	sbx_output_append(rec->out[stream - 1], buf, len);
	sbx_job_tell(rec);
}

/* Nobody waits for a time-out without a word. */
static const char *network_reason(const struct sbx_settings *settings, bool lookup)
{
	const bool allow = sbx_settings_hosts(settings) != NULL;

	if (allow && lookup)
		return "names are looked up by the proxy alone (net=allow), which HTTP_PROXY names";
	if (allow)
		return "the only way out is the proxy that HTTP_PROXY names, to the hosts of "
		       "net=allow";
	if (lookup)
		return "names cannot be looked up, as commands have no network (net=none): mount "
		       "with "
		       "-o net=allow:HOST,... or net=host";
	return "commands have no network (net=none): mount with -o net=allow:HOST,... or net=host";
}

static void on_denied(struct sbx_job *job, const struct sbx_denial *denial)
{
	struct sbx_job_run *run = run_of(job);
	struct sbx_jobs *jobs = run->rec->jobs;
	const struct sbx_denied denied = {
	        .kind = denial->network ? SBX_DENIED_NETWORK : SBX_DENIED_SYSCALL,
	        .reason = denial->network ? network_reason(jobs->settings, denial->lookup) : NULL,
	        .what = denial->call,
	        .class = denial->class,
	        .program = denial->program,
	        .job = sbx_job_name(run->rec),
	        .more = denial->more,
	};

	if (jobs->denied)
		jobs->denied(&denied, jobs->data);
}

const struct sbx_job_events sbx_job_run_events = {
        .started = on_started,
        .output = on_output,
        .ended = on_ended,
        .denied = on_denied,
};

/* ---- what comes of the call to the backend ---- */

void sbx_job_run_handed(struct sbx_job_run *run)
{
	struct sbx_jobs *jobs = run->rec->jobs;

	pthread_mutex_lock(&jobs->lock);
	run->handed = true;
	if (run->ended)
		sbx_loop_post(jobs->loop, reap, run);
	else if (run->signals)
		sbx_loop_post(jobs->loop, deliver_posted, sbx_job_ref(run->rec));
	pthread_mutex_unlock(&jobs->lock);
}

void sbx_job_run_refused(struct sbx_job_run *run, int code, const struct sbx_error *err)
{
	struct sbx_jobrec *rec = run->rec;
	struct sbx_jobs *jobs = rec->jobs;
	struct sbx_jobrec *old;

	leave(jobs);
	pthread_mutex_lock(&jobs->lock);
	old = sbx_jobrec_fail(rec, -code, err->text);
	sbx_stdin_abort(rec);
	pthread_mutex_unlock(&jobs->lock);
	sbx_job_unref(old);
	if (jobs->changed)
		jobs->changed(rec, jobs->data);
	sbx_job_tell_soon(rec);
	sbx_loop_post(jobs->loop, reap, run);
}
