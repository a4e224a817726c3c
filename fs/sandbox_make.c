/*
 * mkdir and ctl/create: [pool] the backend creates, the box is equipped; [loop] it is ready, or
 * nothing is left.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/sandbox.h"
#include "fs/sandbox_impl.h"
#include "sandboxfs/cleanup.h"

static void creation_free(struct sbx_creation *c)
{
	free(c->base);
	free(c->branch);
	free(c);
}

static void create_failed(struct sbx_creation *c)
{
	struct sbx_registry *reg = c->reg;

	sbx_error_complete(&c->err, c->code, "creating", c->box->pub.name);
	sbx_error_store(reg, NULL, &c->err);
	sbx_events_add(reg->events, "create_failed", c->box->pub.name, c->err.text);
}

/* [loop] The name is free before the caller hears of a failure, and the sandbox there before a success. */
static void create_done(void *data)
{
	struct sbx_creation *c = data;
	struct sbx_registry *reg = c->reg;
	struct box *box = c->box;

	pthread_mutex_lock(&reg->lock);
	box->creation = NULL;
	if (c->code >= 0) {
		box->pub.state = SBX_BOX_READY;
		reg->counters.creates++;
	} else {
		sbx_registry_drop(reg, box);
		reg->counters.create_failures++;
	}
	pthread_mutex_unlock(&reg->lock);
	if (c->code >= 0) {
		sbx_box_record_span(box, "create", c->begun_ns);
		sbx_box_event(reg, box, "create", NULL);
		sbx_box_arm_lifetime(box);
		c->done(0, &box->pub, &c->err, c->data);
	} else {
		create_failed(c);
		c->done(c->code, NULL, &c->err, c->data);
		sbx_box_unref(&box->pub);
	}
	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
	creation_free(c);
}

/* [pool] */
static void create_work(void *data)
{
	struct sbx_creation *c = data;
	struct sbx_create req = {.name = c->box->pub.name,
	                         .base = c->base,
	                         .branch = c->branch,
	                         .cancelled = &c->cancelled};
	struct sbx_sandbox *sandbox = NULL;

	c->code = atomic_load(&c->cancelled)
	                  ? sbx_fail(&c->err, EINTR, "creating %s was given up", req.name)
	                  : sbx_backend_create(c->reg->config.backend, &req, &sandbox, &c->err);
	if (c->code >= 0) {
		c->code = sbx_box_equip(c->box, sandbox);
		if (c->code < 0) {
			sbx_sandbox_retire(sandbox, NULL);
			sbx_sandbox_remove(sandbox, NULL);
			sbx_sandbox_close(sandbox);
		}
	}
	sbx_loop_post(c->reg->config.loop, create_done, c);
}

/* What can be refused at once. The lock is held. */
static int reserve(struct sbx_registry *reg, struct sbx_creation *c, const char *name,
                   struct sbx_error *err)
{
	if (reg->closing)
		return sbx_fail(err, EBUSY, "the mount is being taken down");
	if (sbx_registry_taken(reg, name))
		return sbx_fail(err, EEXIST, "there is a sandbox %s already", name);
	c->box = sbx_box_new(reg, name);
	if (!c->box || sbx_registry_insert(reg, c->box) < 0)
		return sbx_fail(err, ENOMEM, "memory is exhausted");
	c->box->pub.number = reg->next_number++;
	c->box->creation = c;
	sbx_registry_begin(reg);
	return 0;
}

static int check_make(struct sbx_registry *reg, const struct sbx_create_request *req,
                      struct sbx_error *err)
{
	const char *backend = reg->config.settings->backend;

	if (!req->name)
		return sbx_fail(err, EINVAL, "a create request needs a name");
	if (req->backend && strcmp(req->backend, backend) != 0)
		return sbx_fail(err, EOPNOTSUPP, "this mount's backend is %s, not %s", backend,
		                req->backend);
	if (req->repo)
		return sbx_fail(err, EOPNOTSUPP,
		                "the %s backend takes the repository of the mount, not \"repo\"",
		                backend);
	if (req->from)
		return sbx_fail(err, EOPNOTSUPP,
		                "fork is not available with the %s backend in this version.",
		                backend);
	return sbx_name_check(req->name, err);
}

static int copy_string(const char *from, char **ret)
{
	if (!from)
		return 0;
	*ret = strdup(from);
	return *ret ? 0 : -ENOMEM;
}

struct sbx_creation *sbx_registry_make(struct sbx_registry *reg,
                                       const struct sbx_create_request *req, sbx_box_done done,
                                       void *data)
{
	struct sbx_creation *c = sbx_must_alloc(sizeof(*c));
	struct sbx_error err = SBX_ERROR_INIT;
	int r = check_make(reg, req, &err);

	*c = (struct sbx_creation){
	        .reg = reg, .done = done, .data = data, .begun_ns = sbx_now_ns()};
	if (r >= 0 &&
	    (copy_string(req->base, &c->base) < 0 || copy_string(req->branch, &c->branch) < 0))
		r = sbx_fail(&err, ENOMEM, "memory is exhausted");
	if (r >= 0) {
		pthread_mutex_lock(&reg->lock);
		r = reserve(reg, c, req->name, &err);
		pthread_mutex_unlock(&reg->lock);
	}
	if (r < 0) {
		if (c->box)
			sbx_box_unref(&c->box->pub);
		creation_free(c);
		sbx_tell_later(reg, r, &err, done, data);
		return NULL;
	}
	sbx_pool_submit(reg->config.pool, create_work, c);
	return c;
}

void sbx_registry_cancel(struct sbx_creation *c)
{
	atomic_store(&c->cancelled, true);
}
