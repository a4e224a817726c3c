/*
 * mv MNT/A MNT/B: the new name is reserved, [pool] the backend renames, [loop] the box moves within
 * the array. Running jobs go on.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"

struct renaming {
	struct sbx_registry *reg;
	struct box *box;
	char *to;
	sbx_box_done done;
	void *data;
	int code;
	struct sbx_error err;
};

/* The old name's memory becomes the caller's. The lock is held. */
static char *take_new_name(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	char *old = box->pub.name;

	assert(box->new_name);
	sbx_registry_drop(reg, box);
	box->pub.name = box->new_name;
	assert(reg->n < reg->cap);
	sbx_registry_insert(reg, box);
	return old;
}

static void announce(struct renaming *ren, const char *old)
{
	const char *mountpoint = ren->reg->config.settings->mountpoint;
	_cleanup_free_ char *view = NULL, *text = NULL;

	if (asprintf(&view, "%s/%s", mountpoint, ren->to) >= 0)
		sbx_jobs_set_view(ren->box->pub.jobs, view);
	if (asprintf(&text, "was %s", old) >= 0)
		sbx_box_event(ren->reg, ren->box, "rename", text);
}

/* [loop] */
static void rename_done(void *data)
{
	struct renaming *ren = data;
	struct sbx_registry *reg = ren->reg;
	_cleanup_free_ char *old = NULL;

	pthread_mutex_lock(&reg->lock);
	assert(ren->box->new_name == ren->to);
	if (ren->code >= 0)
		old = take_new_name(ren->box);
	else
		sbx_error_complete(&ren->err, ren->code, "renaming", ren->box->pub.name);
	ren->box->new_name = NULL;
	pthread_mutex_unlock(&reg->lock);
	if (ren->code >= 0) {
		sbx_registry_shown(reg);
		announce(ren, old);
	} else {
		free(ren->to);
	}
	sbx_error_store(reg, NULL, &ren->err);
	ren->done(ren->code, ren->code >= 0 ? &ren->box->pub : NULL, &ren->err, ren->data);
	sbx_box_unref(&ren->box->pub);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
	free(ren);
}

/*
 * Takes the box's backend_lock. Elsewhere it may be held for as long as a network takes, and who
 * waits in rename(2) keeps everybody from the top of the mount.
 */
static int enter(struct renaming *ren)
{
	struct box *box = ren->box;
	char name[64];

	if (!sbx_is_away(box->pub.sandbox)) {
		pthread_mutex_lock(&box->backend_lock);
		return 0;
	}
	if (pthread_mutex_trylock(&box->backend_lock) == 0)
		return 0;
	sbx_box_name(&box->pub, name);
	return sbx_fail(&ren->err, EBUSY,
	                "another operation of %s is under way, which may take as long as its "
	                "machine does: rename it when that has ended",
	                name);
}

/* The box is entered. */
static int rename_box(struct renaming *ren)
{
	struct box *box = ren->box;
	int r = box->taken_down ? sbx_fail(&ren->err, ENOENT, "the sandbox was torn down meanwhile")
	                        : sbx_sandbox_rename(box->pub.sandbox, ren->to, &ren->err);

	if (r >= 0)
		sbx_log_rename(box->pub.log, ren->to);
	return r;
}

/* [pool] */
static void rename_work(void *data)
{
	struct renaming *ren = data;
	struct box *box = ren->box;
	bool entered;

	sbx_box_ref(&box->pub);
	ren->code = enter(ren);
	entered = ren->code == 0;
	if (entered)
		ren->code = rename_box(ren);
	/* A teardown that comes next is told of next. */
	sbx_loop_post(ren->reg->config.loop, rename_done, ren);
	if (entered)
		pthread_mutex_unlock(&box->backend_lock);
	sbx_box_unref(&box->pub);
}

/* The lock is held. 1: go on; 0: it is called that already. */
static int begin_rename(struct sbx_registry *reg, const char *from, const char *to,
                        struct renaming *ren, struct sbx_error *err)
{
	struct box *box = sbx_registry_locate(reg, from, NULL);

	if (!box || box->pub.state == SBX_BOX_CREATING)
		return sbx_fail(err, ENOENT, "there is no sandbox %s", from);
	if (reg->closing)
		return sbx_fail(err, EBUSY, "the mount is being taken down");
	if (box->pub.state != SBX_BOX_READY || box->new_name)
		return sbx_fail(err, EBUSY, "%s is being renamed or torn down", from);
	if (strcmp(from, to) == 0)
		return 0;
	if (sbx_registry_taken(reg, to))
		return sbx_fail(err, EEXIST, "there is a sandbox %s already", to);
	ren->to = strdup(to);
	if (!ren->to)
		return sbx_no_memory(err);
	ren->box = box;
	sbx_box_ref(&box->pub);
	box->new_name = ren->to;
	sbx_registry_begin(reg);
	return 1;
}

void sbx_registry_rename(struct sbx_registry *reg, const char *from, const char *to,
                         sbx_box_done done, void *data)
{
	struct renaming *ren = sbx_must_alloc(sizeof(*ren));
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_name_check(to, &err);

	*ren = (struct renaming){.reg = reg, .done = done, .data = data};
	if (r >= 0) {
		pthread_mutex_lock(&reg->lock);
		r = begin_rename(reg, from, to, ren, &err);
		pthread_mutex_unlock(&reg->lock);
	}
	if (r > 0) {
		/* One elsewhere waits for nothing, and so not for who fills the lane either. */
		sbx_pool_submit(sbx_is_away(ren->box->pub.sandbox) ? reg->config.pool
		                                                   : reg->config.lane,
		                rename_work, ren);
		return;
	}
	free(ren);
	sbx_tell_later(reg, r, &err, done, data);
}
