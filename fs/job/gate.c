/*
 * Commands and those who must not meet one: a restore, a fork of the whole tree. Either waits for
 * nobody: who comes to a table with commands is refused, and commands that come to a held table are
 * put off, not refused, since it is held for moments.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "fs/job/job_table.h"

struct sbx_jobs_queued {
	struct sbx_jobs_queued *next;
	void (*then)(void *data);
	void *data;
};

/* INSTEAD: see sbx_jobs_hold. Lock held. */
static int may_hold(const struct sbx_jobs *jobs, const char *instead, struct sbx_error *err)
{
	const char *also = instead ? "; or " : "";

	assert(jobs->writers <= jobs->held);
	if (jobs->stopping)
		return sbx_fail(err, EBUSY, "the sandbox is stopping");
	if (!instead)
		instead = "";
	if (jobs->running > 1)
		return sbx_fail(err, EBUSY,
		                "%u commands are running and may change files meanwhile: wait for "
		                "them or kill them%s%s",
		                jobs->running, also, instead);
	if (jobs->running)
		return sbx_fail(err, EBUSY,
		                "a command is running and may change files meanwhile: wait for it "
		                "or kill it%s%s",
		                also, instead);
	if (jobs->entering)
		return sbx_fail(err, EBUSY, "a command is about to start: wait for it%s%s", also,
		                instead);
	return 0;
}

int sbx_jobs_hold(struct sbx_jobs *jobs, bool writes, const char *instead, struct sbx_error *err)
{
	bool first = false;
	int r;

	pthread_mutex_lock(&jobs->turn);
	pthread_mutex_lock(&jobs->lock);
	r = may_hold(jobs, instead, err);
	if (r == 0) {
		jobs->held++;
		first = writes && jobs->writers++ == 0;
	}
	pthread_mutex_unlock(&jobs->lock);
	if (first && jobs->busy)
		jobs->busy(true, jobs->data);
	pthread_mutex_unlock(&jobs->turn);
	return r;
}

static void tell_queued(struct sbx_jobs *jobs, struct sbx_jobs_queued *q)
{
	struct sbx_jobs_queued *next;

	for (; q; q = next) {
		next = q->next;
		sbx_loop_post(jobs->loop, q->then, q->data);
		free(q);
	}
}

void sbx_jobs_release(struct sbx_jobs *jobs, bool writes)
{
	struct sbx_jobs_queued *queued = NULL;
	bool last;

	pthread_mutex_lock(&jobs->turn);
	pthread_mutex_lock(&jobs->lock);
	assert(jobs->held > 0 && jobs->writers >= writes);
	last = writes && --jobs->writers == 0;
	pthread_mutex_unlock(&jobs->lock);
	if (last && jobs->busy)
		jobs->busy(false, jobs->data);
	if (writes && !last && jobs->left)
		jobs->left(jobs->data);
	/* Not before that: a command that starts now is told of after it. */
	pthread_mutex_lock(&jobs->lock);
	if (--jobs->held == 0) {
		queued = jobs->queued;
		jobs->queued = NULL;
	}
	pthread_mutex_unlock(&jobs->lock);
	pthread_mutex_unlock(&jobs->turn);
	tell_queued(jobs, queued);
}

/* Lock held. */
static void queue(struct sbx_jobs *jobs, void (*then)(void *data), void *data)
{
	struct sbx_jobs_queued *q = malloc(sizeof(*q)), **end = &jobs->queued;

	if (!q)
		abort();
	*q = (struct sbx_jobs_queued){.then = then, .data = data};
	while (*end)
		end = &(*end)->next;
	*end = q;
}

bool sbx_jobs_enter(struct sbx_jobs *jobs, void (*then)(void *data), void *data)
{
	bool free_to;

	pthread_mutex_lock(&jobs->lock);
	free_to = !jobs->held;
	if (free_to)
		jobs->entering++;
	else
		queue(jobs, then, data);
	pthread_mutex_unlock(&jobs->lock);
	return free_to;
}

void sbx_jobs_entered(struct sbx_jobs *jobs)
{
	pthread_mutex_lock(&jobs->lock);
	assert(jobs->entering > 0);
	jobs->entering--;
	pthread_mutex_unlock(&jobs->lock);
}
