/*
 * Sandboxes whose changes are in memory: they are saved when the last job has ended, and at the end.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "fs/sandbox.h"
#include "fs/sandbox_impl.h"
#include "fs/text.h"

/* In the log too: at the end of the mount nothing else is read any more. */
static void tell_failure(struct box *box, const struct sbx_error *err)
{
	struct json_object *extra = json_object_new_object();

	json_object_object_add(extra, "error", sbx_text_json(err->text, strlen(err->text)));
	sbx_log_record(box->pub.log, "save_failed", extra);
	sbx_error_store(box->pub.registry, &box->pub, err);
	sbx_box_event(box->pub.registry, box, "save_failed", err->text);
}

static void save(struct box *box)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r = 0;

	pthread_mutex_lock(&box->backend_lock);
	if (!box->taken_down)
		r = sbx_sandbox_barrier(box->pub.sandbox, &err);
	pthread_mutex_unlock(&box->backend_lock);
	if (r < 0) {
		sbx_error_complete(&err, r, "saving", box->pub.sandbox->id);
		tell_failure(box, &err);
	}
}

/* [pool] */
static void save_work(void *data)
{
	struct box *box = data;

	save(box);
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
		sbx_pool_submit(reg->config.pool, save_work, box);
}

void sbx_registry_save_all(struct sbx_registry *reg)
{
	for (size_t i = 0; i < reg->n; i++)
		if (reg->boxes[i]->pub.sandbox && reg->boxes[i]->pub.sandbox->unsaved)
			save(reg->boxes[i]);
}
