/*
 * exec, spawn, run and jobs/ID/stdin: a write that holds a complete request starts a job inside
 * that write. exec answers when the job has ended, spawn and run when it has certainly been
 * started.
 */
#include <errno.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/request_file.h"
#include "fs/job/wait.h"
#include "fs/sandbox/submit.h"
#include "sandboxfs/cleanup.h"

struct requests {
	struct sbx_submission submission; /* has a lock of its own; all else is under the file's */
	struct sbx_request_parser parser;
	struct sbx_jobrec *last; /* whose result a read gives */
	bool stale;              /* the file's text is not yet that of last */
	bool told;               /* there is a job that tells how the present request failed */
};

static enum sbx_job_kind kind_of(struct sbx_control_handle *h)
{
	return (enum sbx_job_kind)h->node.row->arg;
}

static void exec_release(struct sbx_control_handle *h)
{
	struct requests *s = h->state;

	/* A run is a transaction on its open file: nobody can read it any more. */
	if (kind_of(h) == SBX_JOB_RUN && s->last)
		sbx_job_kill(s->last, SIGKILL);
	sbx_job_unref(s->last);
	sbx_request_parser_finish(&s->parser);
	sbx_submission_finish(&s->submission);
	free(s);
}

static int exec_feed(struct sbx_control_handle *h, const void *buf, size_t len,
                     struct sbx_error *err)
{
	struct requests *s = h->state;

	return sbx_request_parser_feed(&s->parser, buf, len, err);
}

static bool exec_unfinished(struct sbx_control_handle *h)
{
	struct requests *s = h->state;

	return sbx_request_parser_pending(&s->parser);
}

static void exec_drop(struct sbx_control_handle *h)
{
	struct requests *s = h->state;

	sbx_request_parser_reset(&s->parser);
}

/* Notes the job whose result a read will give; the lock is held. */
static void remember(struct sbx_control_handle *h, struct sbx_jobrec *job)
{
	struct requests *s = h->state;
	char *line = NULL;

	sbx_job_unref(s->last);
	s->last = job;
	s->stale = kind_of(h) == SBX_JOB_EXEC;
	if (kind_of(h) == SBX_JOB_RUN)
		h->cursor = 0;
	if (kind_of(h) == SBX_JOB_SPAWN &&
	    asprintf(&line, "%s%s\n", h->text.data ? h->text.data : "", sbx_job_name(job)) >= 0) {
		sbx_control_text_release(&h->text);
		sbx_control_text_take(line, &h->text);
	}
}

/*
 * Notes the job that a read tells of after a request that could not be started, if any; JOB is
 * taken over.
 */
static void remember_failed(struct sbx_control_handle *h, struct sbx_jobrec *job)
{
	if (job && kind_of(h) != SBX_JOB_SPAWN)
		remember(h, job);
	else
		sbx_job_unref(job);
}

/* exec_fail=errno. What the command was refused is the last error already, and stays in it. */
static int fail_with_code(struct sbx_jobrec *job, struct sbx_error *err)
{
	_cleanup_free_ char *hint = sbx_job_hint(job);

	return sbx_fail(err, EREMOTEIO, "job %s ended with code %d%s%s", sbx_job_name(job),
	                sbx_job_code(job), hint ? "; " : "", hint ? hint : "");
}

/* JOB, a reference, has ended or runs, or (CODE is negative) tells why not; the lock is held. */
static void take_job(struct sbx_control_handle *h, struct sbx_jobrec *job, int code)
{
	struct requests *s = h->state;

	s->told = job;
	if (code >= 0)
		remember(h, job);
	else
		remember_failed(h, job);
}

/* [loop] */
static void on_done(struct sbx_jobrec *job, int code, struct sbx_error *err, void *data)
{
	struct sbx_control_handle *h = data;

	pthread_mutex_lock(&h->lock);
	take_job(h, job ? sbx_job_ref(job) : NULL, code);
	pthread_mutex_unlock(&h->lock);
	if (code >= 0 && kind_of(h) == SBX_JOB_EXEC && sbx_job_code(job) != 0 &&
	    sbx_registry_settings(h->reg)->exec_fail_errno)
		code = fail_with_code(job, err);
	sbx_job_unref(job);
	sbx_request_file_done(h, code, err);
}

static int exec_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	struct requests *s = calloc(1, sizeof(*s));

	if (!s)
		return sbx_no_memory(err);
	s->submission = (struct sbx_submission){.box = h->node.box,
	                                        .kind = kind_of(h),
	                                        .into = h->node.job,
	                                        .done = on_done,
	                                        .data = h};
	sbx_submission_init(&s->submission);
	sbx_request_parser_init(&s->parser);
	h->state = s;
	return 0;
}

static int exec_start(struct sbx_control_handle *h, bool final, struct sbx_error *err)
{
	struct requests *s = h->state;
	struct sbx_jobrec *failed;
	struct sbx_request req;
	int r = sbx_request_parser_next(&s->parser, final, &req, err);

	s->told = false;
	if (r <= 0)
		return r;
	if (kind_of(h) == SBX_JOB_RUN && s->last && !sbx_job_ended(s->last)) {
		sbx_request_release(&req);
		return sbx_fail(err, EBUSY, "run takes one request at a time; job %s has not ended",
		                sbx_job_name(s->last));
	}
	r = sbx_submit(&s->submission, &req, &failed, err);
	if (r < 0)
		take_job(h, failed, r);
	return r;
}

/* The write is answered when the end of the job has come, as always. */
static void exec_cancel(struct sbx_control_handle *h)
{
	struct requests *s = h->state;

	sbx_submission_cancel(&s->submission);
}

/* Of what was refused before it could become a job. A run that goes on is not forgotten for it. */
static void exec_failed(struct sbx_control_handle *h, const struct sbx_error *err)
{
	struct requests *s = h->state;
	struct sbx_jobrec *job;

	pthread_mutex_lock(&h->lock);
	if (!s->told) {
		job = sbx_job_refuse(h->node.box->jobs, NULL, kind_of(h), h->node.job, err);
		if (kind_of(h) == SBX_JOB_RUN && s->last && !sbx_job_ended(s->last))
			sbx_job_unref(job);
		else
			remember_failed(h, job);
	}
	s->told = false;
	pthread_mutex_unlock(&h->lock);
}

static char *result_line(struct sbx_jobrec *job)
{
	struct json_object *obj = sbx_job_result(job);
	char *line = NULL;

	if (asprintf(&line, "%s\n",
	             json_object_to_json_string_ext(
	                     obj, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)) < 0)
		line = NULL;
	json_object_put(obj);
	return line;
}

static void exec_serve(struct sbx_control_handle *h, struct sbx_pending *p)
{
	struct requests *s = h->state;
	struct sbx_jobrec *job;

	pthread_mutex_lock(&h->lock);
	job = s->last ? sbx_job_ref(s->last) : NULL;
	if (job && s->stale) {
		sbx_control_set_text(h, result_line(job));
		s->stale = false;
	}
	pthread_mutex_unlock(&h->lock);
	if (job && kind_of(h) == SBX_JOB_RUN)
		sbx_control_follow(h, job, p);
	else
		sbx_control_serve_cursor(h, p);
	sbx_job_unref(job);
}

static const struct request_file_impl exec_requests = {
        .feed = exec_feed,
        .start = exec_start,
        .unfinished = exec_unfinished,
        .drop = exec_drop,
        .cancel = exec_cancel,
        .failed = exec_failed,
        .serve = exec_serve,
};

const struct control_ops sbx_control_exec_ops = {
        .open = exec_open,
        .release = exec_release,
        .requests = &exec_requests,
};

/* stdin */

static int stdin_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	(void)err;
	sbx_job_stdin_open(h->node.job);
	return 0;
}

static void stdin_release(struct sbx_control_handle *h)
{
	sbx_job_stdin_close(h->node.job);
}

static void stdin_write(struct sbx_control_handle *h, const void *buf, size_t len,
                        struct sbx_pending *p)
{
	sbx_job_stdin_write(h->node.job, buf, len, p);
}

const struct control_ops sbx_control_stdin_ops = {
        .open = stdin_open,
        .release = stdin_release,
        .write = stdin_write,
};
