/*
 * From a request to the backend, on the caller's thread: nothing between a client's write and the start of its
 * command waits for another thread. The record is in the table before the backend is asked, because
 * the backend may report from the loop thread before it has returned here; whoever of the two comes second
 * cleans up (struct sbx_job_run).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/strv.h"
#include "fs/job/job_run.h"
#include "fs/job/job_table.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"

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

	return same_cwd && sbx_list_equal(a->argv, req->argv) && sbx_list_equal(a->env, req->env) &&
	       same_stdin(a, req);
}

/* Whether the request's id has been used: 0 no, 1 for the same request (s->rec), or -errno. Lock held. */
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
	a.argv = sbx_list_copy(req->argv);
	a.env = sbx_list_copy(req->env);
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
	if (most && jobs->running >= most)
		return sbx_fail(s->err, EAGAIN,
		                "%u jobs are running, and no more than %" PRIu64 " may at once",
		                jobs->running, most);
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
	        .limits = s->plan.limits,
	};
	int r = sbx_stdin_source_open(&s->source, &fd, &feed);

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
	const struct sbx_denied denied = {
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
		s->run->job.events = &sbx_job_run_events;
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
		sbx_job_run_refused(s->run, r, s->err);
	else
		sbx_job_run_handed(s->run);
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
	return sbx_jobrec_fail(rec, err->code, err->text);
}

struct sbx_jobrec *sbx_job_refuse(struct sbx_jobs *jobs, const struct sbx_request *req,
                                  enum sbx_job_kind kind, struct sbx_jobrec *named,
                                  const struct sbx_error *err)
{
	struct sbx_asked asked = {.argv = req ? sbx_list_copy(req->argv) : NULL};
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
