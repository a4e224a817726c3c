/*
 * Git state is brought over in the pool: before a command starts when the host has moved it, and after one has
 * ended when that has. One at a time for a box; who comes while one is under way shares the next.
 */
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox.h"
#include "fs/sandbox_impl.h"
#include "sandboxfs/cleanup.h"

struct sync_waiter {
	struct sync_waiter *next;
	void (*then)(void *data);
	void *data;
};

static void sync_work(void *data);

/* [loop] */
static void sync_done(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct sync_waiter *w, *next;

	if (box->sync_err.code) {
		sbx_error_store(reg, &box->pub, &box->sync_err);
		sbx_box_event(reg, box, "git", box->sync_err.text);
	}
	pthread_mutex_lock(&reg->lock);
	w = box->sync_now;
	box->sync_now = box->sync_next;
	box->sync_next = NULL;
	next = box->sync_now;
	pthread_mutex_unlock(&reg->lock);
	if (next)
		sbx_pool_submit(reg->config.pool, sync_work, box);
	for (; w; w = next) {
		next = w->next;
		w->then(w->data);
		free(w);
		pthread_mutex_lock(&reg->lock);
		sbx_registry_end(reg);
		pthread_mutex_unlock(&reg->lock);
		sbx_box_unref(&box->pub);
	}
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
	struct sbx_registry *reg = pub->registry;
	struct sync_waiter *w, **end;
	bool first;

	if (!sbx_sandbox_stale(pub->sandbox))
		return false;
	w = sbx_must_alloc(sizeof(*w));
	*w = (struct sync_waiter){.then = then, .data = data};
	sbx_box_ref(pub);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_begin(reg);
	first = !box->sync_now;
	end = first ? &box->sync_now : &box->sync_next;
	while (*end)
		end = &(*end)->next;
	*end = w;
	pthread_mutex_unlock(&reg->lock);
	if (first)
		sbx_pool_submit(reg->config.pool, sync_work, box);
	return true;
}
