/*
 * What is done to a box by the backend's [pool] calls for somebody who waits: snapshots, restores, diffs. Each box has
 * a queue of its own, so that one with much to do takes no more than one thread of the pool.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/walls.h"

static struct box *box_of(struct sbx_work *w)
{
	return sbx_container_of(w->box, struct box, pub);
}

static int stopping(struct sbx_error *err)
{
	return sbx_fail(err, EBUSY, "the sandbox is stopping");
}

/* The lock is held. */
static int admit(struct box *box, struct sbx_error *err)
{
	if (box->pub.state == SBX_BOX_RETIRED)
		return sbx_fail(err, ESTALE, "the sandbox is gone");
	if (box->pub.state != SBX_BOX_READY || box->pub.registry->closing)
		return stopping(err);
	return 0;
}

/* [loop] Refused before it was begun. */
static void refused(void *data)
{
	struct sbx_work *w = data;
	struct box *box = box_of(w);

	w->done(w);
	sbx_box_left(box);
}

static void record(struct sbx_work *w)
{
	struct json_object *extra = json_object_new_object();
	uint64_t ms = (sbx_now_ns() - w->begun_ns) / 1000000u;
	char seconds[32];

	snprintf(seconds, sizeof(seconds), "%llu.%03u", (unsigned long long)(ms / 1000u),
	         (unsigned)(ms % 1000u));
	if (w->detail[0])
		json_object_object_add(extra, "detail", json_object_new_string(w->detail));
	json_object_object_add(extra, "duration_sec",
	                       json_object_new_double_s((double)ms / 1e3, seconds));
	sbx_log_record(w->box->log, w->event, extra);
	sbx_box_event(w->box->registry, box_of(w), w->event, w->detail[0] ? w->detail : NULL);
}

static void cancel(struct sbx_work *w)
{
	atomic_store(&w->cancelled, !sbx_without("cancel"));
}

/* Lock held. */
static void give_up(struct sbx_work *w)
{
	w->box_goes = true;
	cancel(w);
}

static void work_run(void *data);

/* [loop] What it changed is told before its end is. */
static void work_done(void *data)
{
	struct sbx_work *w = data, *next;
	struct box *box = box_of(w);
	struct sbx_registry *reg = box->pub.registry;
	bool box_goes;

	pthread_mutex_lock(&reg->lock);
	box->works = next = w->next;
	box_goes = w->box_goes;
	pthread_mutex_unlock(&reg->lock);
	/* Clients without a signal would take EINTR for a reason to try again, for ever. */
	if (w->code == -EINTR && box_goes)
		w->code = stopping(&w->err);
	if (next)
		sbx_pool_submit(reg->config.lane, work_run, box);
	if (w->kind != SBX_WORK_BESIDE)
		sbx_jobs_release(box->pub.jobs, w->kind == SBX_WORK_WRITES);
	if (w->code < 0)
		sbx_error_complete(&w->err, w->code, "working on", box->pub.sandbox->id);
	else if (w->event)
		record(w);
	w->done(w);
	sbx_box_left(box);
}

/* [pool] */
static void work_run(void *data)
{
	struct box *box = data;
	struct sbx_work *w;

	pthread_mutex_lock(&box->pub.registry->lock);
	w = box->works;
	pthread_mutex_unlock(&box->pub.registry->lock);
	pthread_mutex_lock(&box->backend_lock);
	w->code = atomic_load(&w->cancelled)
	                  ? sbx_fail(&w->err, EINTR, "given up before it was begun")
	                  : w->run(w, &w->err);
	pthread_mutex_unlock(&box->backend_lock);
	sbx_loop_post(box->pub.registry->config.loop, work_done, w);
}

/* Whether it is the first. The lock is held. */
static bool append(struct box *box, struct sbx_work *w)
{
	struct sbx_work **end = &box->works;
	bool first = !*end;

	while (*end)
		end = &(*end)->next;
	*end = w;
	return first;
}

void sbx_box_work(struct sbx_box *pub, struct sbx_work *w)
{
	struct box *box = sbx_container_of(pub, struct box, pub);
	struct sbx_registry *reg = pub->registry;
	bool first = false;

	w->box = sbx_box_ref(pub);
	w->begun_ns = sbx_now_ns();
	w->next = NULL;
	w->box_goes = false;
	w->err = SBX_ERROR_INIT;
	pthread_mutex_lock(&reg->lock);
	sbx_registry_begin(reg);
	w->code = admit(box, &w->err);
	pthread_mutex_unlock(&reg->lock);
	if (w->code == 0 && w->kind != SBX_WORK_BESIDE)
		w->code = sbx_jobs_hold(pub->jobs, w->kind == SBX_WORK_WRITES, w->instead, &w->err);
	if (w->code < 0) {
		sbx_loop_post(reg->config.loop, refused, w);
		return;
	}
	pthread_mutex_lock(&reg->lock);
	if (box->pub.state != SBX_BOX_READY)
		give_up(w);
	first = append(box, w);
	pthread_mutex_unlock(&reg->lock);
	if (first)
		sbx_pool_submit(reg->config.lane, work_run, box);
}

/* [loop] Given up while it waited for its turn. */
static void dropped(void *data)
{
	struct sbx_work *w = data;

	if (w->kind != SBX_WORK_BESIDE)
		sbx_jobs_release(w->box->jobs, w->kind == SBX_WORK_WRITES);
	refused(w);
}

/* Takes W out of the queue of BOX, unless it is the first, which is being done. The lock is held. */
static bool unqueue(struct box *box, struct sbx_work *w)
{
	struct sbx_work **at = &box->works;

	while (*at && *at != w)
		at = &(*at)->next;
	if (!*at || at == &box->works)
		return false;
	*at = w->next;
	return true;
}

void sbx_work_cancel(struct sbx_work *w)
{
	struct sbx_registry *reg;
	bool waited;

	cancel(w);
	if (!w->box)
		return;
	reg = w->box->registry;
	pthread_mutex_lock(&reg->lock);
	waited = unqueue(box_of(w), w);
	pthread_mutex_unlock(&reg->lock);
	if (!waited)
		return;
	w->code = sbx_fail(&w->err, EINTR, "given up before it was begun");
	sbx_loop_post(reg->config.loop, dropped, w);
}

void sbx_box_cancel_works(struct box *box)
{
	for (struct sbx_work *w = box->works; w; w = w->next)
		give_up(w);
}
