#include "fs/sandbox/submit.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>

#include "fs/job/wait.h"
#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/registry.h"

#define LET_GO_MS 1000 /* after which a client that is killed does not wait for its command */

void sbx_submission_init(struct sbx_submission *s)
{
	pthread_mutex_init(&s->lock, NULL);
}

void sbx_submission_finish(struct sbx_submission *s)
{
	assert(!s->job && !s->patience.due_ns);
	pthread_mutex_destroy(&s->lock);
}

static struct sbx_loop *loop_of(const struct sbx_submission *s)
{
	return sbx_registry_loop(s->box->registry);
}

/* [loop] The job has ended (exec) or runs (spawn, run), or could not be started. */
static void moved(struct sbx_jobrec *job, void *data)
{
	struct sbx_submission *s = data;
	struct sbx_error err = SBX_ERROR_INIT;

	pthread_mutex_lock(&s->lock);
	assert(s->job == job);
	s->job = NULL;
	pthread_mutex_unlock(&s->lock);
	sbx_loop_timer_cancel(loop_of(s), &s->patience);
	s->done(job, sbx_job_start_error(job, &err), &err, s->data);
}

/* Lock held. */
static int start(struct sbx_submission *s, struct sbx_jobrec **failed, struct sbx_error *err)
{
	struct sbx_jobrec *job = NULL;
	bool repeated;
	int r;

	if (s->cancelled)
		return sbx_fail(err, EINTR, "given up before the command was started");
	r = sbx_job_start(s->box->jobs, &s->request, s->kind, s->into, &job, &repeated, err);
	if (r < 0) {
		*failed = job;
		return r;
	}
	s->job = job;
	s->waiter = s->kind == SBX_JOB_EXEC ? sbx_job_on_ended(job, moved, s)
	                                    : sbx_job_on_started(job, moved, s);
	return 1;
}

/* The table has been entered, and what comes before a command is done. Lock held. */
static int start_entered(struct sbx_submission *s, struct sbx_jobrec **failed,
                         struct sbx_error *err)
{
	int r;

	s->request.track = s->track.number;
	r = start(s, failed, err);
	if (s->request.track && (r < 0 || sbx_job_track(s->job) != s->request.track))
		sbx_box_track_drop(s->box, s->request.track);
	sbx_jobs_entered(s->box->jobs);
	sbx_request_release(&s->request);
	return r;
}

/* [loop] What the host did to git's state is inside, and the tree is marked. */
static void on_prepared(void *data)
{
	struct sbx_submission *s = data;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_jobrec *failed = NULL;
	int r;

	pthread_mutex_lock(&s->lock);
	r = start_entered(s, &failed, &err);
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		s->done(failed, r, &err, s->data);
}

static void on_released(void *data);

/* Lock held. */
static int enter(struct sbx_submission *s, struct sbx_jobrec **failed, struct sbx_error *err)
{
	if (!sbx_jobs_enter(s->box->jobs, on_released, s) ||
	    sbx_box_track_begin(s->box, &s->track, on_prepared, s))
		return 1;
	return start_entered(s, failed, err);
}

/* [loop] The tree is whole again. */
static void on_released(void *data)
{
	struct sbx_submission *s = data;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_jobrec *failed = NULL;
	int r;

	pthread_mutex_lock(&s->lock);
	if (s->cancelled) {
		r = sbx_fail(&err, EINTR, "given up before the command was started");
		sbx_request_release(&s->request);
	} else {
		r = enter(s, &failed, &err);
	}
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		s->done(failed, r, &err, s->data);
}

int sbx_submit(struct sbx_submission *s, struct sbx_request *req, struct sbx_jobrec **failed,
               struct sbx_error *err)
{
	int r;

	pthread_mutex_lock(&s->lock);
	assert(!s->job);
	s->request = *req;
	s->cancelled = false;
	*failed = NULL;
	r = enter(s, failed, err);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* The job goes on to its end without who has submitted it. */
static void let_go(struct sbx_timer *t)
{
	struct sbx_submission *s = t->data;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_jobrec *job;

	pthread_mutex_lock(&s->lock);
	job = s->job;
	s->job = NULL;
	pthread_mutex_unlock(&s->lock);
	sbx_job_forget_waiter(job, s->waiter);
	/* Who handles the signal would repeat the request after EINTR. */
	sbx_fail(&err, ETIMEDOUT, "job %s was killed with its client, and has not ended yet",
	         sbx_job_name(job));
	s->done(job, -ETIMEDOUT, &err, s->data);
}

void sbx_submission_cancel(struct sbx_submission *s)
{
	struct sbx_jobrec *job;

	pthread_mutex_lock(&s->lock);
	s->cancelled = true;
	sbx_work_cancel(&s->track.work);
	job = s->job ? sbx_job_ref(s->job) : NULL;
	pthread_mutex_unlock(&s->lock);
	if (!job)
		return;
	sbx_job_kill(job, SIGKILL);
	if (!s->patience.due_ns) {
		s->patience = (struct sbx_timer){.fn = let_go, .data = s};
		sbx_loop_timer_set(loop_of(s), &s->patience, LET_GO_MS);
	}
	sbx_job_unref(job);
}
