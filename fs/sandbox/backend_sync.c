/*
 * Git state is brought over in the pool: before a command starts when the host has moved it, and after one has
 * ended when that has. One at a time for a box; who comes while one is under way shares the next.
 */
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"

struct sync_waiter {
	struct sbx_waiting in;
	void (*then)(void *data);
	void *data;
};

static void sync_work(void *data);

/* [loop] */
static void answer(struct sbx_waiting *in, int code)
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
	over = sbx_box_round_over(box, &box->syncs, &more);
	if (more)
		sbx_pool_submit(reg->config.lane, sync_work, box);
	sbx_box_answer(box, over, 0);
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
	*w = (struct sync_waiter){.in.answer = answer, .then = then, .data = data};
	if (sbx_box_join(box, &box->syncs, &w->in))
		sbx_pool_submit(pub->registry->config.lane, sync_work, box);
	return true;
}
