/*
 * The backend's [pool] calls for a box, with their results told on the loop thread.
 *
 * Works are for somebody who waits: snapshots, restores, diffs. Each box has a queue of its own,
 * so that a box with much to do takes no more than one thread of the pool.
 *
 * A sync brings git state over: before a command starts when the host has moved it, and after one
 * has ended when that has. A box has one sync at a time; callers that come while one is under way
 * share the next.
 *
 * A save brings what a box holds to where neither the daemon's death nor a power cut loses it. An
 * fsync waits for a save, and shares it with others that come meanwhile. Boxes whose changes are
 * in memory are saved unasked as well: soon after a write through the mount, when the last job
 * has ended, and at the end. Saves have threads of their own, because copying and waiting for the
 * disk would keep the pool from other boxes.
 */
#include "fs/sandbox/backend_work.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/mitigations.h"

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

	assert(w->code < 0);
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
	atomic_store(&w->cancelled, !sbx_mitigation_off("cancel"));
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
	assert(box->works == w);
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
	assert(w);
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

	assert(w->run && w->done);
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

/* Takes W out of the queue of BOX, unless it is the first, which is being done. The lock is held.
 */
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

/* --- rounds: who comes while one is under way shares the next -------------------------------- */

/*
 * W waits for the next of ROUNDS, which are BOX's, and the box is there until W is answered, by
 * sbx_box_left. True: the caller begins that round, which ends with round_over.
 */
static bool join(struct box *box, struct sbx_rounds *rounds, struct sbx_waiting *w)
{
	struct sbx_registry *reg = box->pub.registry;
	bool first;

	sbx_box_ref(&box->pub);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_begin(reg);
	first = sbx_rounds_join(rounds, w);
	pthread_mutex_unlock(&reg->lock);
	return first;
}

/*
 * [loop] A round is over: returns who waited for it, for answer. *MORE: the caller begins the next,
 * before it answers or after.
 */
static struct sbx_waiting *round_over(struct box *box, struct sbx_rounds *rounds, bool *more)
{
	struct sbx_registry *reg = box->pub.registry;
	struct sbx_waiting *over;

	pthread_mutex_lock(&reg->lock);
	assert(rounds->now);
	over = sbx_rounds_end(rounds);
	*more = rounds->now;
	pthread_mutex_unlock(&reg->lock);
	return over;
}

/* [loop] Answers all of LIST with CODE. BOX may be gone then, unless another round has begun. */
static void answer(struct box *box, struct sbx_waiting *list, int code)
{
	sbx_rounds_answer(list, code, sbx_box_left, box);
}

/* --- git state ----------------------------------------------------------------------------------
 */

struct sync_waiter {
	struct sbx_waiting in;
	void (*then)(void *data);
	void *data;
};

static void sync_work(void *data);

/* [loop] */
static void answer_sync(struct sbx_waiting *in, int code)
{
	struct sync_waiter *w = sbx_container_of(in, struct sync_waiter, in);

	(void)code;
	w->then(w->data);
	free(w);
}

/* [loop] */
static void sync_done(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct sbx_waiting *over;
	bool more;

	if (box->sync_err.code) {
		sbx_error_store(reg, &box->pub, &box->sync_err);
		sbx_box_event(reg, box, "git", box->sync_err.text);
	}
	over = round_over(box, &box->syncs, &more);
	if (more)
		sbx_pool_submit(reg->config.lane, sync_work, box);
	answer(box, over, 0);
}

/* [pool] */
static void sync_work(void *data)
{
	struct box *box = data;

	box->sync_err = SBX_ERROR_INIT;
	pthread_mutex_lock(&box->backend_lock);
	if (!box->taken_down)
		sbx_sandbox_sync(box->pub.sandbox, &box->sync_err);
	pthread_mutex_unlock(&box->backend_lock);
	sbx_loop_post(box->pub.registry->config.loop, sync_done, box);
}

bool sbx_box_sync(struct sbx_box *pub, void (*then)(void *data), void *data)
{
	struct box *box = sbx_container_of(pub, struct box, pub);
	struct sync_waiter *w;

	if (!sbx_sandbox_stale(pub->sandbox))
		return false;
	w = sbx_must_alloc(sizeof(*w));
	*w = (struct sync_waiter){.in.answer = answer_sync, .then = then, .data = data};
	if (join(box, &box->syncs, &w->in))
		sbx_pool_submit(pub->registry->config.lane, sync_work, box);
	return true;
}

/* --- saving -------------------------------------------------------------------------------------
 */

#define SAVE_MS      2000 /* from the first write that is not saved */
#define SAVE_SHARE   10   /* a saving is followed by a pause of so many times its length */
#define SAVE_LAST_MS 60000
/* An operation of the mount tells before it writes, and has written by then. */
#define WRITTEN_NS UINT64_C(1000000000)

struct save_waiter {
	struct sbx_waiting in;
	void (*then)(int code, void *data);
	void *data;
};

/* In the log too: at the end of the mount nothing else is read any more. */
static void tell_failure(struct box *box, const struct sbx_error *err)
{
	struct json_object *extra = json_object_new_object();

	json_object_object_add(extra, "error", sbx_text_json(err->text, strlen(err->text)));
	sbx_log_record(box->pub.log, "save_failed", extra);
	sbx_box_event(box->pub.registry, box, "save_failed", err->text);
}

/* [pool] 0, also when it gave up for a command, or a negative errno. */
static int save(struct box *box, bool now, struct sbx_error *err)
{
	int r;

	pthread_mutex_lock(&box->backend_lock);
	r = box->taken_down ? sbx_fail(err, ESTALE, "the sandbox is gone")
	                    : sbx_sandbox_barrier(box->pub.sandbox, now, err);
	pthread_mutex_unlock(&box->backend_lock);
	if (r < 0) {
		sbx_error_complete(err, r, "saving", box->pub.sandbox->id);
		sbx_error_store(box->pub.registry, &box->pub, err);
	}
	return r;
}

static void submit(struct box *box, void (*work)(void *data))
{
	sbx_pool_submit(box->pub.registry->config.lane, work, box);
}

/* --- with somebody who waits ------------------------------------------------------------------ */

/* [pool] */
static void flush_work(void *data);

/* Once, however often it is tried. */
static void note_outcome(struct box *box)
{
	if (box->save_code < 0 && !box->save_failing)
		tell_failure(box, &box->save_err);
	box->save_failing = box->save_code < 0;
}

/* [loop] */
static void answer_flush(struct sbx_waiting *in, int code)
{
	struct save_waiter *w = sbx_container_of(in, struct save_waiter, in);

	w->then(code, w->data);
	free(w);
}

/* [loop] Who is answered reads what is known of this saving, so the next begins after that. */
static void flush_done(void *data)
{
	struct box *box = data;
	struct sbx_waiting *over;
	bool more;

	note_outcome(box);
	over = round_over(box, &box->saves, &more);
	answer(box, over, box->save_code);
	if (more)
		submit(box, flush_work);
}

static void flush_work(void *data)
{
	struct box *box = data;

	box->save_err = SBX_ERROR_INIT;
	box->save_begun_ns = sbx_now_ns();
	box->save_code = save(box, true, &box->save_err);
	sbx_loop_post(box->pub.registry->config.loop, flush_done, box);
}

bool sbx_box_flush(struct sbx_box *pub, void (*then)(int code, void *data), void *data)
{
	struct box *box = sbx_container_of(pub, struct box, pub);
	struct save_waiter *w;

	if (!sbx_sandbox_needs_barrier(pub->sandbox))
		return false;
	w = sbx_must_alloc(sizeof(*w));
	*w = (struct save_waiter){.in.answer = answer_flush, .then = then, .data = data};
	if (join(box, &box->saves, &w->in))
		submit(box, flush_work);
	return true;
}

/* --- by itself -------------------------------------------------------------------------------- */

static void save_in_time(struct sbx_timer *t);

/* [loop] */
static void arm(struct box *box, uint64_t ms)
{
	box->save_timer.fn = save_in_time;
	box->save_timer.data = box;
	sbx_loop_timer_set(box->pub.registry->config.loop, &box->save_timer, ms);
}

static enum sbx_box_state state_of(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	enum sbx_box_state state;

	pthread_mutex_lock(&reg->lock);
	state = reg->closing ? SBX_BOX_RETIRED : box->pub.state;
	pthread_mutex_unlock(&reg->lock);
	return state;
}

/* Whether something may have been written that the last saving did not find. */
static bool is_behind(struct box *box)
{
	return box->save_code < 0 || atomic_load(&box->edited_ns) + WRITTEN_NS > box->save_begun_ns;
}

/* [loop] */
static void saved_in_time(int code, void *data)
{
	struct box *box = data;
	uint64_t ms = (sbx_now_ns() - box->save_begun_ns) / 1000000u * SAVE_SHARE;

	(void)code;
	ms = ms < SAVE_MS ? SAVE_MS : ms > SAVE_LAST_MS ? SAVE_LAST_MS : ms;
	if (state_of(box) == SBX_BOX_RETIRED)
		return;
	atomic_store(&box->save_due, false);
	if (is_behind(box) && !atomic_exchange(&box->save_due, true))
		arm(box, ms);
}

static void save_in_time(struct sbx_timer *t)
{
	struct box *box = t->data;
	const enum sbx_box_state state = state_of(box);

	/* A teardown does not wait for it, but may be refused. */
	if (state == SBX_BOX_STOPPING)
		arm(box, SAVE_MS);
	else if (state != SBX_BOX_RETIRED)
		sbx_box_flush(&box->pub, saved_in_time, box);
}

/* [loop] */
static void begin_time(void *data)
{
	struct box *box = data;

	if (state_of(box) != SBX_BOX_RETIRED)
		arm(box, SAVE_MS);
	sbx_box_left(box);
}

void sbx_box_edited(struct sbx_box *pub)
{
	struct box *box = sbx_container_of(pub, struct box, pub);
	struct sbx_registry *reg = pub->registry;

	if (!pub->sandbox->unsaved)
		return;
	atomic_store_explicit(&box->edited_ns, sbx_now_ns(), memory_order_relaxed);
	if (atomic_exchange(&box->save_due, true))
		return;
	sbx_box_ref(pub);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_begin(reg);
	pthread_mutex_unlock(&reg->lock);
	sbx_loop_post(reg->config.loop, begin_time, box);
}

void sbx_box_save_no_more(struct box *box)
{
	sbx_loop_timer_cancel(box->pub.registry->config.loop, &box->save_timer);
}

/* --- at the end of jobs, and of all ----------------------------------------------------------- */

static void save_and_tell(struct box *box)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (save(box, false, &err) < 0 && err.code != ESTALE)
		tell_failure(box, &err);
}

/* [pool] */
static void save_work(void *data)
{
	struct box *box = data;

	save_and_tell(box);
	sbx_loop_post(box->pub.registry->config.loop, sbx_box_left, box);
}

void sbx_box_save(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	bool go;

	if (!box->pub.sandbox->unsaved)
		return;
	pthread_mutex_lock(&reg->lock);
	go = box->pub.state == SBX_BOX_READY && !reg->closing;
	if (go) {
		sbx_box_ref(&box->pub);
		sbx_registry_begin(reg);
	}
	pthread_mutex_unlock(&reg->lock);
	if (go)
		submit(box, save_work);
}

void sbx_registry_save_all(struct sbx_registry *reg)
{
	for (size_t i = 0; i < reg->n; i++)
		if (reg->boxes[i]->pub.sandbox && reg->boxes[i]->pub.sandbox->unsaved)
			save_and_tell(reg->boxes[i]);
}
