/*
 * The loop thread owns the list of waits: it begins them, as well, so that a client who is
 * interrupted meets a wait that is either in no backend yet or known to it.
 */
#include "fs/sandbox/await.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"

static struct box *box_of(const struct sbx_await *a)
{
	return sbx_container_of(a->box, struct box, pub);
}

/* Why nobody waits any more, if that is not whoever waited. 0, or an errno with its sentence. */
static int reason(const struct sbx_await *a, struct sbx_error *ret)
{
	if (a->over)
		sbx_fail(ret, ESTALE, "the sandbox is gone");
	else if (a->late)
		sbx_fail(ret, ETIMEDOUT, "%s has not come for %u s: see ctl/info",
		         *a->want.path ? a->want.path : "what the sandbox holds",
		         a->most_ms / 1000);
	return ret->code;
}

static void finish(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct sbx_error local = SBX_ERROR_INIT;
	struct box *box = box_of(a);

	if (code && reason(a, &local))
		code = local.code;
	else if (code && (!err || !err->code))
		sbx_fail(&local, code, "%s", strerror(code));
	a->done(a, code, local.code || !err ? &local : err);
	sbx_box_left(box);
}

static void link_in(struct sbx_registry *reg, struct sbx_await *a)
{
	a->next = reg->awaits;
	if (a->next)
		a->next->prev = a;
	reg->awaits = a;
}

static void unlink_from(struct sbx_registry *reg, struct sbx_await *a)
{
	if (a->next)
		a->next->prev = a->prev;
	*(a->prev ? &a->prev->next : &reg->awaits) = a->next;
}

/* [loop] */
static void answered(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct sbx_await *a = w->data;

	assert(code >= 0);
	sbx_loop_timer_cancel(a->box->registry->config.loop, &a->timer);
	unlink_from(a->box->registry, a);
	finish(a, code, err);
}

/* Whether there is still something to wait for. */
static bool goes_on(const struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	bool ret;

	pthread_mutex_lock(&reg->lock);
	ret = box->pub.state != SBX_BOX_RETIRED && !reg->closing;
	pthread_mutex_unlock(&reg->lock);
	return ret;
}

static void on_timer(struct sbx_timer *t)
{
	struct sbx_await *a = t->data;

	a->late = !a->given_up;
	sbx_await_cancel(a);
}

/* [loop] */
static void begin(void *data)
{
	struct sbx_await *a = data;
	struct sbx_sandbox *sb = a->box->sandbox;

	a->over = !goes_on(box_of(a));
	if (a->over || a->given_up) {
		finish(a, EINTR, NULL);
		return;
	}
	a->want.done = answered;
	a->want.data = a;
	link_in(a->box->registry, a);
	a->timer.fn = on_timer;
	a->timer.data = a;
	if (a->most_ms)
		sbx_loop_timer_set(a->box->registry->config.loop, &a->timer, a->most_ms);
	if (a->flush) {
		a->want.need = SBX_NEED_SENT;
		sb->impl->away->flush(sb, &a->want);
	} else {
		sb->impl->away->want(sb, &a->want);
	}
}

void sbx_box_await(struct sbx_box *pub, struct sbx_await *a)
{
	struct sbx_registry *reg = pub->registry;

	assert(sbx_is_away(pub->sandbox) && a->done);
	a->box = sbx_box_ref(pub);
	if (!a->want.path)
		a->want.path = "";
	pthread_mutex_lock(&reg->lock);
	sbx_registry_begin(reg);
	pthread_mutex_unlock(&reg->lock);
	sbx_loop_post(reg->config.loop, begin, a);
}

void sbx_await_cancel(struct sbx_await *a)
{
	struct sbx_sandbox *sb;

	if (a->given_up)
		return;
	a->given_up = true;
	/* Else it is seen when it is begun. */
	if (!a->want.done)
		return;
	sb = a->box->sandbox;
	sb->impl->away->unwant(sb, &a->want);
}

static struct sbx_await *next_of(struct sbx_registry *reg, const struct sbx_box *box)
{
	struct sbx_await *a = reg->awaits;

	while (a && (a->given_up || (box && a->box != box)))
		a = a->next;
	return a;
}

/* A backend may tell within the call that gives up one wait, and so free it. */
void sbx_awaits_end(struct sbx_registry *reg, const struct sbx_box *box)
{
	struct sbx_await *a;

	while ((a = next_of(reg, box))) {
		a->over = true;
		sbx_await_cancel(a);
	}
}
