/*
 * Waiters of a job. One function tells all whose time has come, whatever the occasion; it is called
 * on the loop thread only, so one that was forgotten there is never called afterwards. A waiter
 * belongs to the run it was made for: when a named job runs again, those of the run before are due.
 */
#include "fs/job/wait.h"

#include <assert.h>
#include <stdlib.h>

#include "fs/job/job_table.h"

enum wait_for { FOR_START, FOR_END, FOR_OUTPUT };

struct sbx_job_waiter {
	struct sbx_job_waiter *next;
	enum wait_for what;
	int stream;
	uint64_t have;
	uint64_t run; /* number of the run, 0: the first to come */
	uint64_t age;
	sbx_job_fn fn;
	void *data;
};

/* Lock held. */
static bool is_due(const struct sbx_jobrec *rec, const struct sbx_job_waiter *w)
{
	if (w->run && w->run != rec->number)
		return true;
	if (rec->state == SBX_JOB_ENDED || rec->state == SBX_JOB_FAILED)
		return true;
	switch (w->what) {
	case FOR_START:
		return rec->state == SBX_JOB_RUNNING;
	case FOR_OUTPUT:
		return rec->out[w->stream - 1] &&
		       sbx_output_size(rec->out[w->stream - 1]) > w->have;
	default:
		return false;
	}
}

/* Takes the first due one made before AGE. Lock held. */
static struct sbx_job_waiter *take_due(struct sbx_jobrec *rec, uint64_t age)
{
	for (struct sbx_job_waiter **at = &rec->waiters; *at; at = &(*at)->next) {
		struct sbx_job_waiter *w = *at;

		if (w->age > age || !is_due(rec, w))
			continue;
		*at = w->next;
		if (!w->next)
			rec->waiters_tail = at;
		return w;
	}
	return NULL;
}

void sbx_job_tell(struct sbx_jobrec *rec)
{
	struct sbx_jobs *jobs = rec->jobs;
	struct sbx_job_waiter *w;
	uint64_t age;

	sbx_job_ref(rec);
	pthread_mutex_lock(&jobs->lock);
	age = jobs->waiters;
	while ((w = take_due(rec, age))) {
		pthread_mutex_unlock(&jobs->lock);
		w->fn(rec, w->data);
		free(w);
		sbx_job_unref(rec);
		pthread_mutex_lock(&jobs->lock);
	}
	pthread_mutex_unlock(&jobs->lock);
	sbx_job_unref(rec);
}

static void tell_posted(void *data)
{
	struct sbx_jobrec *rec = data;

	sbx_job_tell(rec);
	sbx_job_unref(rec);
}

void sbx_job_tell_soon(struct sbx_jobrec *rec)
{
	sbx_loop_post(rec->jobs->loop, tell_posted, sbx_job_ref(rec));
}

static struct sbx_job_waiter *add(struct sbx_jobrec *rec, const struct sbx_job_waiter *proto)
{
	struct sbx_jobs *jobs = rec->jobs;
	struct sbx_job_waiter *w = malloc(sizeof(*w));
	bool due;

	if (!w)
		abort();
	*w = *proto;
	sbx_job_ref(rec);
	pthread_mutex_lock(&jobs->lock);
	w->age = ++jobs->waiters;
	w->run = rec->state == SBX_JOB_PREPARED ? 0 : rec->number;
	*rec->waiters_tail = w;
	rec->waiters_tail = &w->next;
	due = is_due(rec, w);
	pthread_mutex_unlock(&jobs->lock);
	if (due)
		sbx_job_tell_soon(rec);
	return w;
}

void sbx_job_bind_waiters(struct sbx_jobrec *rec)
{
	for (struct sbx_job_waiter *w = rec->waiters; w; w = w->next)
		if (!w->run)
			w->run = rec->number;
}

struct sbx_job_waiter *sbx_job_on_started(struct sbx_jobrec *rec, sbx_job_fn fn, void *data)
{
	return add(rec, &(struct sbx_job_waiter){.what = FOR_START, .fn = fn, .data = data});
}

struct sbx_job_waiter *sbx_job_on_ended(struct sbx_jobrec *rec, sbx_job_fn fn, void *data)
{
	return add(rec, &(struct sbx_job_waiter){.what = FOR_END, .fn = fn, .data = data});
}

struct sbx_job_waiter *sbx_job_on_output(struct sbx_jobrec *rec, int stream, uint64_t have,
                                         sbx_job_fn fn, void *data)
{
	assert(stream == 1 || stream == 2);
	return add(rec, &(struct sbx_job_waiter){.what = FOR_OUTPUT,
	                                         .stream = stream,
	                                         .have = have,
	                                         .fn = fn,
	                                         .data = data});
}

void sbx_job_forget_waiter(struct sbx_jobrec *rec, struct sbx_job_waiter *w)
{
	struct sbx_job_waiter **at = &rec->waiters;

	pthread_mutex_lock(&rec->jobs->lock);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	if (!w->next)
		rec->waiters_tail = at;
	pthread_mutex_unlock(&rec->jobs->lock);
	free(w);
	sbx_job_unref(rec);
}
