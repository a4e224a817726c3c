/*
 * rmdir and ctl/teardown: [loop] the jobs end; [pool] retire; [loop] out of sight, and the name is
 * free; [pool] remove; [loop] told. A removal that fails is told as well, and tried again: 1 s
 * later, 2 s, ... 60 s.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "fs/log/events.h"
#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define RETRY_FIRST_MS 1000
#define RETRY_LAST_MS  60000
#define HURRY_MS       5000

static struct waiter **waiters_end(struct box *box)
{
	struct waiter **w = &box->waiters;

	while (*w)
		w = &(*w)->next;
	return w;
}

static void add_waiter(struct box *box, bool complete, sbx_box_done done, void *data)
{
	struct waiter *w = sbx_must_alloc(sizeof(*w));

	assert(done);
	*w = (struct waiter){.done = done, .data = data, .complete = complete};
	*waiters_end(box) = w;
}

/* Takes out those who wait for no more than being out of sight, or all. The lock is held. */
static struct waiter *take_waiters(struct box *box, bool all)
{
	struct waiter *taken = NULL, **end = &taken, **w = &box->waiters;

	while (*w) {
		if (all || !(*w)->complete) {
			*end = *w;
			*w = (*w)->next;
			(*end)->next = NULL;
			end = &(*end)->next;
		} else {
			w = &(*w)->next;
		}
	}
	return taken;
}

static void tell_waiters(struct waiter *w, int code, const struct sbx_error *err)
{
	struct waiter *next;

	for (; w; w = next) {
		next = w->next;
		w->done(code, NULL, err, w->data);
		free(w);
	}
}

static void remove_work(void *data);

void sbx_box_remove(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	bool go;

	sbx_loop_timer_cancel(reg->config.loop, &box->retry);
	pthread_mutex_lock(&reg->lock);
	assert(box->pub.state == SBX_BOX_RETIRED);
	go = box->idle_removal && !reg->closing;
	if (go) {
		box->idle_removal = false;
		sbx_registry_begin(reg);
	}
	pthread_mutex_unlock(&reg->lock);
	if (go)
		sbx_pool_submit(reg->config.remover, remove_work, box);
}

bool sbx_box_begin_last_removal(struct box *box)
{
	if (!box->idle_removal || box->last_removal)
		return false;
	assert(box->pub.state == SBX_BOX_RETIRED);
	box->idle_removal = false;
	box->last_removal = true;
	sbx_registry_begin(box->pub.registry);
	return true;
}

void sbx_box_last_removal(struct box *box)
{
	sbx_pool_submit(box->pub.registry->config.remover, remove_work, box);
}

static void retry(struct sbx_timer *t)
{
	sbx_box_remove(t->data);
}

/* [loop] Somebody does not want to wait for the timer. */
static void retry_now(void *data)
{
	struct box *box = data;

	sbx_box_remove(box);
	sbx_box_unref(&box->pub);
}

/* [loop] The next mount's recovery finishes what does not succeed before the end of this one. */
static void remove_later(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;

	if (box->last_removal)
		return;
	box->retry_ms = box->retry_ms ? 2 * box->retry_ms : RETRY_FIRST_MS;
	if (box->retry_ms > RETRY_LAST_MS)
		box->retry_ms = RETRY_LAST_MS;
	box->retry.fn = retry;
	box->retry.data = box;
	sbx_loop_timer_set(reg->config.loop, &box->retry, box->retry_ms);
}

static void remove_failed(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;

	sbx_error_complete(&box->step_err, box->code, "removing", box->pub.name);
	/* The same for days is told once. */
	if (strcmp(box->why.text, box->step_err.text) != 0) {
		sbx_error_store(reg, NULL, &box->step_err);
		sbx_events_add(reg->events, "remove_failed", box->pub.name, box->step_err.text);
	}
	remove_later(box);
}

static void removed(struct box *box)
{
	if (box->code > 0) {
		sbx_error_store(box->pub.registry, NULL, &box->step_err);
		sbx_events_add(box->pub.registry->events, "dropped", box->pub.name,
		               box->step_err.text);
	}
	sbx_box_record_span(box, "cleanup", box->stop_ns);
	sbx_log_remove(box->pub.log);
	sbx_log_finish(box->pub.log);
	sbx_events_add(box->pub.registry->events, "removed", box->pub.name, NULL);
}

/* [loop] */
static void remove_done(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct waiter *waiters;
	bool gone = box->code >= 0;

	sbx_loop_timer_cancel(reg->config.loop, &box->retry);
	if (gone)
		removed(box);
	else
		remove_failed(box);
	pthread_mutex_lock(&reg->lock);
	if (gone) {
		struct box **p = &reg->retired;

		while (*p != box)
			p = &(*p)->next;
		*p = box->next;
		reg->counters.removals++;
	} else {
		reg->counters.remove_failures++;
		box->why = box->step_err;
		assert(!box->idle_removal);
		box->idle_removal = true;
	}
	waiters = take_waiters(box, true);
	box->warned |= waiters != NULL;
	pthread_mutex_unlock(&reg->lock);
	tell_waiters(waiters, gone ? 0 : box->code, &box->step_err);
	if (gone)
		sbx_box_unref(&box->pub);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
}

static int sweep_file(const char *name, unsigned char type, void *data)
{
	(void)type;
	unlinkat(*(const int *)data, name, 0);
	return 0;
}

void sbx_output_sweep(int jobs, const char *id)
{
	_cleanup_fd_ int fd = sbx_dir_open(jobs, id);

	if (fd >= 0)
		sbx_dir_scan(fd, sweep_file, &fd);
	unlinkat(jobs, id, AT_REMOVEDIR);
}

/* The kernel may remember the box itself for long. */
static void sweep_output(const struct box *box)
{
	_cleanup_fd_ int state =
	        sbx_dir_open(AT_FDCWD, box->pub.registry->config.settings->state_dir);
	_cleanup_fd_ int jobs = state < 0 ? -1 : sbx_dir_open(state, "jobs");

	if (jobs >= 0)
		sbx_output_sweep(jobs, box->pub.sandbox->id);
}

/* [pool] */
static void remove_work(void *data)
{
	struct box *box = data;
	const struct sbx_registry_config *config = &box->pub.registry->config;

	box->step_err = SBX_ERROR_INIT;
	pthread_mutex_lock(&box->backend_lock);
	box->code = sbx_sandbox_remove(box->pub.sandbox, &box->step_err);
	pthread_mutex_unlock(&box->backend_lock);
	if (box->code >= 0) {
		sweep_output(box);
		if (config->observer)
			config->observer->removed(&box->pub, config->observer_data);
	}
	sbx_loop_post(config->loop, remove_done, box);
}

/* [loop] A teardown that the backend refuses is given up: everything is as before. */
static void retire_refused(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	struct waiter *waiters;

	sbx_error_complete(&box->step_err, box->code, "tearing down", box->pub.name);
	sbx_error_store(reg, NULL, &box->step_err);
	sbx_jobs_resume(box->pub.jobs);
	pthread_mutex_lock(&reg->lock);
	assert(box->pub.state == SBX_BOX_STOPPING);
	if (!reg->closing)
		sbx_sandbox_hurry(box->pub.sandbox, 0);
	box->pub.state = SBX_BOX_READY;
	if (!reg->closing)
		sbx_box_arm_lifetime(box, RETRY_LAST_MS);
	waiters = take_waiters(box, true);
	pthread_mutex_unlock(&reg->lock);
	sbx_box_event(reg, box, "teardown_failed", box->step_err.text);
	tell_waiters(waiters, box->code, &box->step_err);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
}

/* [loop] Out of sight: the name is free. The registry's reference goes on to the removal. */
static void retire_done(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct waiter *waiters;

	if (box->code < 0) {
		retire_refused(box);
		return;
	}
	sbx_loop_timer_cancel(reg->config.loop, &box->lifetime);
	sbx_box_save_no_more(box);
	pthread_mutex_lock(&reg->lock);
	assert(box->pub.state == SBX_BOX_STOPPING);
	sbx_registry_drop(reg, box);
	box->pub.state = SBX_BOX_RETIRED;
	pthread_mutex_lock(&box->pub.root_lock);
	__atomic_store_n(&box->pub.retired, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&box->pub.root_lock);
	box->next = reg->retired;
	reg->retired = box;
	reg->counters.teardowns++;
	waiters = take_waiters(box, false);
	pthread_mutex_unlock(&reg->lock);
	sbx_awaits_end(reg, &box->pub);
	sbx_proxy_destroy(box->pub.proxy);
	box->pub.proxy = NULL;
	if (reg->config.observer)
		reg->config.observer->retired(&box->pub, reg->config.observer_data);
	sbx_box_event(reg, box, "teardown", NULL);
	sbx_events_close(box->pub.events);
	tell_waiters(waiters, 0, &box->step_err);
	sbx_pool_submit(reg->config.remover, remove_work, box);
}

/* [pool] */
static void retire_work(void *data)
{
	struct box *box = data;

	box->step_err = SBX_ERROR_INIT;
	pthread_mutex_lock(&box->backend_lock);
	box->code = sbx_sandbox_retire(box->pub.sandbox, &box->step_err);
	box->taken_down = box->code >= 0;
	pthread_mutex_unlock(&box->backend_lock);
	sbx_loop_post(box->pub.registry->config.loop, retire_done, box);
}

static void jobs_ended(void *data)
{
	struct box *box = data;

	sbx_pool_submit(box->pub.registry->config.lane, retire_work, box);
}

void sbx_box_stop_begin(struct box *box)
{
	assert(box->pub.state == SBX_BOX_READY);
	box->pub.state = SBX_BOX_STOPPING;
	sbx_box_cancel_pushes(box);
	box->stop_ns = sbx_now_ns();
	sbx_box_cancel_works(box);
	sbx_registry_begin(box->pub.registry);
}

void sbx_box_stop(struct box *box)
{
	sbx_jobs_shutdown(box->pub.jobs, jobs_ended, box);
}

void sbx_box_hurry(struct box *box)
{
	/* What is being made is another thread's until it is ready, and has nothing to bring over.
	 */
	if (box->pub.state != SBX_BOX_CREATING)
		sbx_sandbox_hurry(box->pub.sandbox, HURRY_MS);
}

/* By its name or, as another may have had that after it, by its id. */
static struct box *find_retired(struct sbx_registry *reg, const char *word)
{
	for (struct box *box = reg->retired; box; box = box->next)
		if (strcmp(box->pub.name, word) == 0 || strcmp(box->pub.sandbox->id, word) == 0)
			return box;
	return NULL;
}

/*
 * Whoever tears down what could not be removed does not wait for the next attempt; and who was told
 * that it cannot be saved wants it gone. The lock is held.
 */
static void press(struct sbx_registry *reg, struct box *box)
{
	if (box->warned)
		sbx_sandbox_discard(box->pub.sandbox);
	if (!box->idle_removal)
		return;
	sbx_box_ref(&box->pub);
	sbx_loop_post(reg->config.loop, retry_now, box);
}

/*
 * 1: the caller waits with others, and *stop (if set) is to be stopped; else there is nothing to
 * wait for. The lock is held.
 */
static int join_teardown(struct sbx_registry *reg, const char *name, bool complete,
                         sbx_box_done done, void *data, struct box **stop, struct sbx_error *err)
{
	struct box *box = sbx_registry_locate(reg, name, NULL);

	if (!box)
		box = complete ? find_retired(reg, name) : NULL;
	if (!box)
		return complete ? 0 : sbx_fail(err, ENOENT, "there is no sandbox %s", name);
	if (box->pub.state == SBX_BOX_CREATING)
		return sbx_fail(err, EBUSY, "%s is being created", name);
	if (box->pub.state == SBX_BOX_READY) {
		if (reg->closing)
			return sbx_fail(err, EBUSY, "the mount is being taken down");
		sbx_box_stop_begin(box);
		*stop = box;
	}
	if (box->last_removal && box->idle_removal)
		return sbx_fail(err, EBUSY,
		                "%s cannot be removed, and the mount is being taken down", name);
	/* Who waits in rmdir(2) keeps everybody from the directory. */
	if (!complete)
		sbx_box_hurry(box);
	add_waiter(box, complete, done, data);
	if (box->pub.state == SBX_BOX_RETIRED)
		press(reg, box);
	return 1;
}

void sbx_registry_teardown(struct sbx_registry *reg, const char *name, bool complete,
                           sbx_box_done done, void *data)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct box *stop = NULL;
	int r;

	pthread_mutex_lock(&reg->lock);
	/* An id may be longer than a name. */
	r = complete && find_retired(reg, name) ? 0 : sbx_name_check(name, &err);
	if (r >= 0)
		r = join_teardown(reg, name, complete, done, data, &stop, &err);
	pthread_mutex_unlock(&reg->lock);
	if (r <= 0)
		sbx_tell_later(reg, r, &err, done, data);
	else if (stop)
		sbx_box_stop(stop);
}
