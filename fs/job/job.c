/*
 * The life of a job: its start, what the backend reports, time-outs, signals, the end.
 *
 * A start goes from a request to the backend on the caller's thread: nothing between a client's
 * write and the start of its command waits for another thread. The record is in the table before
 * the backend is asked, because the backend may report from the loop thread before it has returned
 * here; whoever of the two comes second cleans up (struct sbx_job_run).
 *
 * All that follows happens on the loop thread, so nothing of it races with itself; the lock is for
 * those who look on from elsewhere.
 */
#include "fs/job/job.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/job_table.h"
#include "fs/job/plan.h"
#include "fs/job/stdin.h"
#include "fs/job/wait.h"
#include "fs/util/utf8.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/strv.h"

static uint64_t bit(int sig)
{
	assert(sig >= 1 && sig <= 64);
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
	assert(rec->run);
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
	if (rec->run && !sbx_sandbox_takes(rec->jobs->sandbox, sig)) {
		r = -EOPNOTSUPP;
	} else if (rec->run) {
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
	assert(jobs->stopping && !jobs->live);
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
	assert(jobs->running > 0);
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
	assert(jobs->live > 0);
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

/*
 * REC, which is in the list, could not be started because of CODE (an errno) and TEXT. Returns a
 * record that has become too much, to be released without the lock, or NULL. Lock held.
 */
static struct sbx_jobrec *set_failed(struct sbx_jobrec *rec, int code, const char *text)
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
	assert(sbx_jobrec_active(rec));
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
		return set_failed(rec, exit->code, exit->error.text);
	set_ended(rec, exit);
	return prune(rec->jobs);
}

static struct sbx_job_run *run_of(struct sbx_job *job)
{
	return sbx_container_of(job, struct sbx_job_run, job);
}

/* The end is told. */
static void before_end_done(void *data)
{
	struct sbx_job_run *run = data;
	struct sbx_jobrec *rec = sbx_job_ref(run->rec);
	struct sbx_jobs *jobs = rec->jobs;
	struct sbx_jobrec *old;
	bool handed;

	leave(jobs);
	pthread_mutex_lock(&jobs->lock);
	assert(rec->run == run && !run->ended);
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
	assert(sbx_jobrec_active(rec));
	rec->end_ns = sbx_now_ns();
	pthread_mutex_unlock(&jobs->lock);
	if (!jobs->before_end ||
	    !jobs->before_end(rec, &run->exit, before_end_done, run, jobs->data))
		before_end_done(run);
}

/* ---- what else the backend reports ---- */

static void on_started(struct sbx_job *job)
{
	struct sbx_jobrec *rec = run_of(job)->rec;
	struct sbx_jobs *jobs = rec->jobs;
	uint64_t timeout_ms, start_ns;

	pthread_mutex_lock(&jobs->lock);
	assert(rec->state == SBX_JOB_STARTING);
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

	assert(stream == 1 || stream == 2);
	sbx_output_append(rec->out[stream - 1], buf, len);
	sbx_job_tell(rec);
}

static void on_discarded(struct sbx_job *job, int stream, uint64_t n)
{
	struct sbx_jobrec *rec = run_of(job)->rec;

	assert(stream == 1 || stream == 2);
	sbx_output_discard(rec->out[stream - 1], n);
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
	const struct sbx_denial_report denied = {
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

/* For the job of a struct sbx_job_run. */
static const struct sbx_job_events run_events = {
        .started = on_started,
        .output = on_output,
        .ended = on_ended,
        .denied = on_denied,
        .discarded = on_discarded,
};

/* ---- what comes of the call to the backend ---- */

/*
 * The outcome of sbx_sandbox_exec: the job runs, or CODE (negative errno) with ERR. RUN is given
 * away. Any thread, no lock held.
 */
static void handed_over(struct sbx_job_run *run)
{
	struct sbx_jobs *jobs = run->rec->jobs;

	pthread_mutex_lock(&jobs->lock);
	assert(!run->handed);
	run->handed = true;
	if (run->ended)
		sbx_loop_post(jobs->loop, reap, run);
	else if (run->signals)
		sbx_loop_post(jobs->loop, deliver_posted, sbx_job_ref(run->rec));
	pthread_mutex_unlock(&jobs->lock);
}

static void refused(struct sbx_job_run *run, int code, const struct sbx_error *err)
{
	struct sbx_jobrec *rec = run->rec;
	struct sbx_jobs *jobs = rec->jobs;
	struct sbx_jobrec *old;

	leave(jobs);
	pthread_mutex_lock(&jobs->lock);
	assert(!run->handed && !run->ended);
	old = set_failed(rec, -code, err->text);
	sbx_stdin_abort(rec);
	pthread_mutex_unlock(&jobs->lock);
	sbx_job_unref(old);
	if (jobs->changed)
		jobs->changed(rec, jobs->data);
	sbx_job_tell_soon(rec);
	sbx_loop_post(jobs->loop, reap, run);
}

/* One call of sbx_job_start. */
struct start {
	struct sbx_jobs *jobs;
	const struct sbx_request *req;
	enum sbx_job_kind kind;
	struct sbx_jobrec *named;
	struct sbx_error *err;
	struct sbx_plan plan;
	struct sbx_asked asked;
	struct sbx_stdin_source source;
	struct sbx_jobrec *rec; /* the result, a reference */
	struct sbx_job_run *run;
	bool repeated;
};

/* ---- ids ---- */

static bool same_stdin(const struct sbx_asked *a, const struct sbx_request *req)
{
	bool has = req->set & SBX_REQ_STDIN && req->stdin_data;

	if (a->has_stdin != has)
		return false;
	return !has || (a->stdin_len == req->stdin_len &&
	                memcmp(a->stdin_data, req->stdin_data, a->stdin_len) == 0);
}

static bool same_request(const struct sbx_asked *a, const struct sbx_request *req)
{
	const char *cwd = req->set & SBX_REQ_CWD ? req->cwd : NULL;
	bool same_cwd = a->cwd && cwd ? strcmp(a->cwd, cwd) == 0 : !a->cwd && !cwd;

	return same_cwd && sbx_strv_equal(a->argv, req->argv) && sbx_strv_equal(a->env, req->env) &&
	       same_stdin(a, req);
}

/* Whether the request's id has been used: 0 no, 1 for the same request (s->rec), or -errno. Lock
 * held. */
static int look_up_id(struct start *s)
{
	const char *id = s->req->id;
	struct sbx_jobrec *rec;

	if (!id)
		return 0;
	if (s->named && strcmp(s->named->name, id) != 0)
		return sbx_fail(s->err, EINVAL, "the id \"%s\" is not the name of the job, \"%s\"",
		                id, s->named->name);
	rec = sbx_jobs_by_name(s->jobs, id);
	if (!rec || rec->state == SBX_JOB_PREPARED || rec->state == SBX_JOB_FAILED)
		return 0;
	if (!same_request(&rec->asked, s->req))
		return sbx_fail(s->err, EEXIST, "the id \"%s\" was used for a different request",
		                id);
	s->rec = sbx_job_ref(rec);
	s->repeated = true;
	return 1;
}

/* ---- taking a place in the table ---- */

static int copy_asked(const struct start *s, struct sbx_asked *ret)
{
	const struct sbx_request *req = s->req;
	const char *cwd = req->set & SBX_REQ_CWD ? req->cwd : NULL;
	struct sbx_asked a = {.stdin_len = req->stdin_len};
	bool keep;

	a.has_stdin = req->set & SBX_REQ_STDIN && req->stdin_data;
	keep = a.has_stdin && (req->id || s->named);
	a.argv = sbx_strv_copy(req->argv);
	a.env = sbx_strv_copy(req->env);
	a.cwd = cwd ? strdup(cwd) : NULL;
	a.dir = strdup(s->plan.cwd);
	a.stdin_data = keep ? malloc(a.stdin_len + 1) : NULL;
	if (!a.argv || !a.dir || (req->env && !a.env) || (cwd && !a.cwd) ||
	    (keep && !a.stdin_data)) {
		sbx_asked_release(&a);
		return -ENOMEM;
	}
	if (keep && a.stdin_len)
		memcpy(a.stdin_data, req->stdin_data, a.stdin_len);
	*ret = a;
	return 0;
}

/* Whether there is room for one more, as REC (NULL: a new record). Lock held. */
static int admit(const struct start *s, const struct sbx_jobrec *rec)
{
	const struct sbx_jobs *jobs = s->jobs;
	uint64_t most = s->plan.limits.jobs;

	if (jobs->stopping)
		return sbx_fail(s->err, EBUSY, "the sandbox is stopping");
	if (rec && !rec->listed)
		return sbx_fail(s->err, ENOENT, "job \"%s\" was removed", rec->name);
	if (rec && sbx_jobrec_active(rec))
		return sbx_fail(s->err, EBUSY, "job \"%s\" is running", rec->name);
	if (jobs->running && sbx_sandbox_alone(jobs->sandbox))
		return sbx_fail(s->err, EOPNOTSUPP,
		                "a command is running, and a sandbox of this backend runs one at a "
		                "time: wait for it or kill it");
	if (most && jobs->running >= most)
		return sbx_fail(s->err, EAGAIN,
		                "%u job%s running, and no more than %" PRIu64 " may at once",
		                jobs->running, jobs->running == 1 ? " is" : "s are", most);
	return 0;
}

static int make_outputs(const struct start *s, uint64_t number, struct sbx_output *out[2])
{
	out[0] = out[1] = NULL;
	for (int i = 0; i < 2; i++) {
		_cleanup_free_ char *path = NULL;
		int r;

		if (asprintf(&path, "%s/%" PRIu64 ".%d", s->jobs->spill_dir, number, i + 1) < 0) {
			path = NULL;
			r = -ENOMEM;
		} else {
			r = sbx_output_create(path, s->plan.limits.output_bytes, &out[i]);
		}
		if (r < 0) {
			sbx_output_unref(out[0]);
			return r;
		}
	}
	return 0;
}

/* Puts what is asked for into REC, in place of what an earlier run left. Lock held. */
static void set_up(struct start *s, struct sbx_jobrec *rec, struct sbx_output *out[2])
{
	assert(!rec->run && !s->run->rec);
	sbx_asked_release(&rec->asked);
	sbx_output_unref(rec->out[0]);
	sbx_output_unref(rec->out[1]);
	rec->asked = s->asked;
	rec->out[0] = out[0];
	rec->out[1] = out[1];
	s->asked = (struct sbx_asked){0};
	rec->kind = s->kind;
	rec->state = SBX_JOB_STARTING;
	rec->exit = (struct sbx_exit){0};
	rec->start_error = SBX_ERROR_INIT;
	rec->start_ns = sbx_now_ns();
	rec->end_ns = 0;
	rec->time_ns = sbx_real_ns();
	rec->timeout_ms = s->plan.timeout_ms;
	rec->sent = 0;
	rec->timed_out = false;
	rec->track = s->req->track;
	sbx_strv_free(rec->changed);
	rec->changed = NULL;
	free(rec->hint);
	rec->hint = NULL;
	rec->run = s->run;
	s->run->rec = sbx_job_ref(rec);
	sbx_job_bind_waiters(rec);
	sbx_stdin_choose(rec, s->req, &s->source);
}

/* Gives REC the next number and puts it at the end of the table. Lock held. */
static void enter_number(struct sbx_jobs *jobs, struct sbx_jobrec *rec)
{
	assert(!sbx_jobrec_active(rec));
	rec->number = ++jobs->numbers;
	if (!rec->named)
		snprintf(rec->name, sizeof(rec->name), "%" PRIu64, rec->number);
	if (rec->listed)
		sbx_jobs_unlink(jobs, rec);
	sbx_jobs_link(jobs, rec);
}

/* Makes REC the youngest of the list; NULL: a new record. Lock held. */
static int enlist(struct start *s, struct sbx_jobrec *rec)
{
	struct sbx_jobs *jobs = s->jobs;
	struct sbx_output *out[2];
	int r;

	rec = rec ? sbx_job_ref(rec) : sbx_jobrec_new(jobs, s->req->id);
	if (!rec)
		return -ENOMEM;
	r = make_outputs(s, jobs->numbers + 1, out);
	if (r < 0) {
		sbx_job_unref(rec);
		return r;
	}
	enter_number(jobs, rec);
	set_up(s, rec, out);
	s->rec = rec;
	return 0;
}

/* Lock held. */
static int take_place(struct start *s)
{
	struct sbx_jobrec *rec = s->named;
	int r = look_up_id(s);

	if (r)
		return r;
	if (!rec && s->req->id)
		rec = sbx_jobs_by_name(s->jobs, s->req->id);
	r = admit(s, rec);
	if (r < 0)
		return r;
	r = enlist(s, rec);
	return r < 0 ? sbx_fail(s->err, -r, "out of memory") : 0;
}

/* 0, 1 when the id was known, or -errno. Tells of the first job before anything of it can run. */
static int enter(struct start *s)
{
	struct sbx_jobs *jobs = s->jobs;
	bool first = false;
	int r;

	pthread_mutex_lock(&jobs->turn);
	pthread_mutex_lock(&jobs->lock);
	r = take_place(s);
	if (!r) {
		first = jobs->running++ == 0;
		jobs->live++;
	}
	pthread_mutex_unlock(&jobs->lock);
	if (first && jobs->busy)
		jobs->busy(true, jobs->data);
	pthread_mutex_unlock(&jobs->turn);
	return r;
}

/* ---- handing over ---- */

static int hand_over(struct start *s)
{
	_cleanup_fd_ int fd = -1, feed = -1;
	struct sbx_exec spec = {
	        .argv = s->req->argv,
	        .env = s->plan.env,
	        .program = s->plan.program,
	        .cwd = s->plan.cwd,
	        .timeout_ms = s->plan.timeout_ms,
	        .background = s->kind == SBX_JOB_SPAWN,
	        .live = s->kind == SBX_JOB_RUN,
	        .limits = s->plan.limits,
	};
	int r;

	if (s->source.pipe && sbx_is_away(s->jobs->sandbox))
		return sbx_fail(s->err, EOPNOTSUPP,
		                "a command of this backend reads no stdin that is written while it "
		                "runs: write it before the command starts, and close it");
	r = sbx_stdin_source_open(&s->source, &fd, &feed);

	if (r < 0)
		return sbx_fail(s->err, -r, "standard input cannot be provided: %s", strerror(-r));
	spec.stdin_fd = fd;
	r = sbx_sandbox_exec(s->jobs->sandbox, &spec, &s->run->job, s->err);
	if (r < 0 && !s->err->code)
		sbx_fail(s->err, -r, "%s", strerror(-r));
	if (r == 0 && feed >= 0)
		sbx_stdin_attach(s->rec, sbx_steal_fd(&feed));
	return r;
}

/* Of what a request can be refused for, what is policy and no mistake. */
static void tell_denied(const struct start *s, int code)
{
	const struct sbx_denial_report denied = {
	        .kind = code == -EPERM ? SBX_DENIED_PROGRAM : SBX_DENIED_PATH,
	        .what = s->err->text,
	};

	if ((code == -EPERM || code == -EACCES) && s->jobs->denied)
		s->jobs->denied(&denied, s->jobs->data);
}

static int prepare(struct start *s)
{
	int r;

	pthread_mutex_lock(&s->jobs->lock);
	r = look_up_id(s);
	pthread_mutex_unlock(&s->jobs->lock);
	if (r)
		return r;
	r = sbx_plan_make(s->jobs, s->req, &s->plan, s->err);
	if (r < 0) {
		tell_denied(s, r);
		return r;
	}
	s->run = calloc(1, sizeof(*s->run));
	if (s->run)
		s->run->job.events = &run_events;
	r = s->run ? copy_asked(s, &s->asked) : -ENOMEM;
	return r < 0 ? sbx_fail(s->err, -r, "out of memory") : 0;
}

static int go(struct start *s)
{
	int r = prepare(s);

	if (!r)
		r = enter(s);
	if (r)
		return r < 0 ? r : 0;
	r = hand_over(s);
	if (r < 0)
		refused(s->run, r, s->err);
	else
		handed_over(s->run);
	s->run = NULL; /* belongs to the loop now */
	return r;
}

/* ---- what is refused before it has a place ---- */

/* Whether REC is free to tell of a start that was refused. Lock held. */
static bool may_tell(const struct sbx_jobrec *rec, const struct sbx_jobrec *named)
{
	return rec->listed && !sbx_jobrec_active(rec) &&
	       (rec == named || rec->state == SBX_JOB_PREPARED || rec->state == SBX_JOB_FAILED);
}

/* The record of the job that was meant, or a new one. A reference. Lock held. */
static struct sbx_jobrec *place_of(struct sbx_jobs *jobs, const char *id, struct sbx_jobrec *named)
{
	struct sbx_jobrec *rec = named ? named : id ? sbx_jobs_by_name(jobs, id) : NULL;

	if (rec && may_tell(rec, named))
		return sbx_job_ref(rec);
	return sbx_jobrec_new(jobs, rec ? NULL : id);
}

/* Lock held; returns a record to be released. */
static struct sbx_jobrec *put_refused(struct sbx_jobs *jobs, struct sbx_jobrec *rec,
                                      struct sbx_asked *asked, const struct sbx_error *err)
{
	enter_number(jobs, rec);
	sbx_asked_release(&rec->asked);
	rec->asked = *asked;
	*asked = (struct sbx_asked){0};
	for (int i = 0; i < 2; i++) {
		sbx_output_unref(rec->out[i]);
		rec->out[i] = NULL;
	}
	rec->exit = (struct sbx_exit){0};
	rec->start_ns = rec->end_ns = sbx_now_ns();
	rec->timed_out = false;
	rec->track = 0;
	sbx_strv_free(rec->changed);
	rec->changed = NULL;
	free(rec->hint);
	rec->hint = NULL;
	sbx_job_bind_waiters(rec);
	return set_failed(rec, err->code, err->text);
}

struct sbx_jobrec *sbx_job_refuse(struct sbx_jobs *jobs, const struct sbx_request *req,
                                  enum sbx_job_kind kind, struct sbx_jobrec *named,
                                  const struct sbx_error *err)
{
	struct sbx_asked asked = {.argv = req ? sbx_strv_copy(req->argv) : NULL};
	struct sbx_jobrec *rec = NULL, *old = NULL;

	pthread_mutex_lock(&jobs->lock);
	if (!jobs->stopping)
		rec = place_of(jobs, req ? req->id : NULL, named);
	if (rec) {
		rec->kind = kind;
		old = put_refused(jobs, rec, &asked, err);
	}
	pthread_mutex_unlock(&jobs->lock);
	sbx_asked_release(&asked);
	sbx_job_unref(old);
	if (!rec)
		return NULL;
	if (jobs->changed)
		jobs->changed(rec, jobs->data);
	sbx_job_tell_soon(rec);
	return rec;
}

int sbx_job_start(struct sbx_jobs *jobs, const struct sbx_request *req, enum sbx_job_kind kind,
                  struct sbx_jobrec *named, struct sbx_jobrec **ret, bool *repeated,
                  struct sbx_error *err)
{
	struct sbx_error local = SBX_ERROR_INIT;
	struct start s = {
	        .jobs = jobs, .req = req, .kind = kind, .named = named, .err = err ? err : &local};
	int r = go(&s);

	free(s.run);
	sbx_plan_release(&s.plan);
	sbx_asked_release(&s.asked);
	if (r < 0 && !s.rec)
		s.rec = sbx_job_refuse(jobs, req, kind, named, s.err);
	*ret = s.rec;
	if (r < 0)
		return r;
	*repeated = s.repeated;
	return 0;
}
