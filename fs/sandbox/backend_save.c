/*
 * Saving what a box holds, to where neither the daemon's death nor a power cut loses it. An fsync
 * waits for that, and shares it with others that come meanwhile. Boxes whose changes are in memory
 * are saved unasked as well: soon after something was written through the mount, when the last job
 * has ended, and at the end. Threads of its own do it, since copying and waiting for the disk would
 * keep the pool from other boxes.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"

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
static void answer(struct sbx_waiting *in, int code)
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
	over = sbx_box_round_over(box, &box->saves, &more);
	sbx_box_answer(box, over, box->save_code);
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
	*w = (struct save_waiter){.in.answer = answer, .then = then, .data = data};
	if (sbx_box_join(box, &box->saves, &w->in))
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
