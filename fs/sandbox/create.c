/*
 * mkdir, ctl/create and ctl/fork: [pool] the backend creates, the box is equipped; [loop] it is
 * ready, or nothing is left. A fork is work on the sandbox that it comes from, which keeps commands
 * away from that where its whole state is wanted.
 */
#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/config/settings.h"
#include "fs/log/events.h"
#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

static void creation_free(struct sbx_creation *c)
{
	free(c->base);
	free(c->branch);
	free(c->branch_exists);
	free(c->origin);
	free(c->rev);
	free(c->trash);
	free(c);
}

static void create_failed(struct sbx_creation *c)
{
	struct sbx_registry *reg = c->reg;

	sbx_error_complete(&c->err, c->code, "creating", c->box->pub.name);
	sbx_error_store(reg, NULL, &c->err);
	sbx_events_add(reg->events, "create_failed", c->box->pub.name, c->err.text);
}

/*
 * The text of the event: the origin (ORIGIN, may be NULL), and whether the branch was there
 * already. The caller's; NULL: no text, or no memory.
 */
static char *creation_words(const struct box *box, const char *origin)
{
	struct json_object *info = json_object_new_object(), *branch, *wanted;
	char *text = NULL;
	int n = 0;

	sbx_sandbox_info(box->pub.sandbox, info);
	if (!json_object_object_get_ex(info, "branch_wanted", &wanted) ||
	    !json_object_object_get_ex(info, "branch", &branch))
		text = origin ? strdup(origin) : NULL;
	else if (json_object_equal(wanted, branch))
		n = asprintf(&text, "%s%scontinues branch %s, which was there already",
		             origin ? origin : "", origin ? "; " : "",
		             json_object_get_string(branch));
	else
		n = asprintf(&text, "%s%son branch %s, as there is a branch %s already",
		             origin ? origin : "", origin ? "; " : "",
		             json_object_get_string(branch), json_object_get_string(wanted));
	json_object_put(info);
	return n < 0 ? NULL : text;
}

/* [loop] The name is free before the caller hears of a failure, and the sandbox there before a
 * success. */
static void create_done(void *data)
{
	struct sbx_creation *c = data;
	struct sbx_registry *reg = c->reg;
	struct box *box = c->box;

	pthread_mutex_lock(&reg->lock);
	assert(box->creation == c);
	assert(box->pub.state == SBX_BOX_CREATING);
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
		_cleanup_free_ char *text = creation_words(box, c->origin);

		sbx_registry_shown(reg);
		sbx_box_record_span(box, "create", c->begun_ns);
		sbx_box_event(reg, box, "create", text);
		sbx_box_arm_lifetime(box, 0);
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

static struct sbx_origin origin_of(const struct sbx_creation *c, struct sbx_sandbox *from)
{
	if (c->trash)
		return (struct sbx_origin){.kind = SBX_ORIGIN_TRASH, .entry = c->trash};
	if (from && c->rev)
		return (struct sbx_origin){
		        .kind = SBX_ORIGIN_SNAPSHOT, .sandbox = from, .rev = c->rev};
	if (from)
		return (struct sbx_origin){.kind = SBX_ORIGIN_SANDBOX, .sandbox = from};
	return (struct sbx_origin){.kind = SBX_ORIGIN_SOURCE, .base = c->base};
}

/* [pool] FROM: NULL, or what it is a fork of. */
static int create(struct sbx_creation *c, struct sbx_sandbox *from, atomic_bool *cancelled)
{
	struct sbx_create req = {.name = c->box->pub.name,
	                         .origin = origin_of(c, from),
	                         .branch = c->branch,
	                         .branch_exists = c->branch_exists,
	                         .cancelled = cancelled};
	struct sbx_sandbox *sandbox = NULL;
	int r = atomic_load(cancelled)
	                ? sbx_fail(&c->err, EINTR, "creating %s was given up", req.name)
	                : sbx_backend_create(c->reg->config.backend, &req, &sandbox, &c->err);

	if (r < 0)
		return r;
	r = sbx_box_attach(c->box, sandbox);
	if (r < 0) {
		sbx_sandbox_retire(sandbox, NULL);
		sbx_sandbox_remove(sandbox, NULL);
		sbx_sandbox_close(sandbox);
		return r;
	}
	sbx_away_begin(sandbox);
	return 0;
}

/* [pool] */
static void create_work(void *data)
{
	struct sbx_creation *c = data;

	c->code = create(c, NULL, &c->cancelled);
	sbx_loop_post(c->reg->config.loop, create_done, c);
}

/* [pool] */
static int fork_run(struct sbx_work *w, struct sbx_error *err)
{
	struct sbx_creation *c = sbx_container_of(w, struct sbx_creation, work);
	int r = create(c, w->box->sandbox, &w->cancelled);

	*err = c->err;
	return r;
}

/* [loop] */
static void fork_done(struct sbx_work *w)
{
	struct sbx_creation *c = sbx_container_of(w, struct sbx_creation, work);

	c->code = w->code;
	c->err = w->err;
	create_done(c);
}

/* Refuses what can be refused at once. The lock is held. */
static int reserve(struct sbx_registry *reg, struct sbx_creation *c, const char *name,
                   struct sbx_error *err)
{
	if (reg->closing)
		return sbx_fail(err, EBUSY, "the mount is being taken down");
	if (sbx_registry_taken(reg, name))
		return sbx_fail(err, EEXIST, "there is a sandbox %s already", name);
	c->box = sbx_box_new(reg, name);
	if (!c->box || sbx_registry_insert(reg, c->box) < 0)
		return sbx_no_memory(err);
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
	if (req->branch_exists && sbx_find_word(SBX_BRANCH_EXISTS, req->branch_exists) < 0)
		return sbx_fail(err, EINVAL, "\"branch_exists\" must be one of " SBX_BRANCH_EXISTS);
	return sbx_name_check(req->name, err);
}

static int copy_string(const char *from, char **ret)
{
	if (!from)
		return 0;
	*ret = strdup(from);
	return *ret ? 0 : -ENOMEM;
}

#define TRASH "trash:"

/* "NAME" or "NAME@REV": the sandbox, a reference, and the state of it that is wanted (NULL: as it
 * is). */
static int find_origin(struct sbx_registry *reg, const char *text, struct sbx_box **ret, char **rev,
                       struct sbx_error *err)
{
	const char *at = strchr(text, '@');
	_cleanup_free_ char *name = strndup(text, at ? (size_t)(at - text) : strlen(text));

	if (!name || (at && !(*rev = strdup(at + 1))))
		return sbx_no_memory(err);
	if (at && (strchr(*rev, ':') || sbx_rev_check(*rev, NULL) < 0))
		return sbx_fail(err, EINVAL, "\"from\" is NAME, NAME@ID or trash:ENTRY, not %.120s",
		                text);
	*ret = sbx_registry_find(reg, name);
	return *ret ? 0 : sbx_fail(err, ENOENT, "there is no sandbox %.80s to fork", name);
}

/* Whether TEXT names one entry of the trash and nothing else. */
static bool is_entry(const char *text)
{
	size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	                        "0123456789._-");

	return n > 0 && n < 256 && !text[n] && text[0] != '.' && text[0] != '-';
}

/* The origin that "from" of a request names; *from is a reference, or NULL. */
static int take_origin(struct sbx_creation *c, const char *text, struct sbx_box **from,
                       struct sbx_error *err)
{
	if (strncmp(text, TRASH, strlen(TRASH)) != 0)
		return find_origin(c->reg, text, from, &c->rev, err);
	if (!is_entry(text + strlen(TRASH)))
		return sbx_fail(err, EINVAL, "%.120s is no entry of the trash", text);
	return copy_string(text + strlen(TRASH), &c->trash);
}

static int take_request(struct sbx_creation *c, const struct sbx_create_request *req,
                        struct sbx_error *err)
{
	if (req->base && req->from)
		return sbx_fail(err, EINVAL,
		                "\"base\" and \"from\" exclude each other: a fork has its own");
	if (req->from && asprintf(&c->origin, "from %s", req->from) < 0) {
		c->origin = NULL;
		return -ENOMEM;
	}
	if (copy_string(req->base, &c->base) < 0 || copy_string(req->branch, &c->branch) < 0)
		return -ENOMEM;
	return copy_string(req->branch_exists, &c->branch_exists);
}

/* Has what was reserved made, as a fork of FROM or (NULL) on its own. */
static void begin(struct sbx_creation *c, struct sbx_box *from)
{
	const struct sbx_registry_config *config = &c->reg->config;

	assert(c->box);
	/* How long an entry of the trash takes, commands have decided. */
	if (!from) {
		sbx_pool_submit(c->trash ? config->lane : config->pool, create_work, c);
		return;
	}
	c->work.kind =
	        c->rev && !config->backend->impl->forks_alone ? SBX_WORK_BESIDE : SBX_WORK_ALONE;
	if (!config->backend->impl->forks_alone)
		c->work.instead =
		        "fork a snapshot: \"rev\":\"ID\" in fork, \"from\":\"NAME@ID\" in "
		        "create";
	c->work.run = fork_run;
	c->work.done = fork_done;
	sbx_box_work(from, &c->work);
}

static struct sbx_creation *creation_new(struct sbx_registry *reg, sbx_box_done done, void *data)
{
	struct sbx_creation *c = sbx_must_alloc(sizeof(*c));

	*c = (struct sbx_creation){
	        .reg = reg, .done = done, .data = data, .begun_ns = sbx_now_ns()};
	return c;
}

/* C, begun as a fork of FROM or (NULL) on its own, or told that it was refused (CODE). */
static struct sbx_creation *start_or_fail(struct sbx_creation *c, int code, struct sbx_box *from,
                                          const char *name, struct sbx_error *err)
{
	struct sbx_registry *reg = c->reg;

	if (code == -ENOMEM && !err->code)
		sbx_no_memory(err);
	if (code >= 0) {
		pthread_mutex_lock(&reg->lock);
		code = reserve(reg, c, name, err);
		pthread_mutex_unlock(&reg->lock);
	}
	if (code >= 0) {
		begin(c, from);
		return c;
	}
	sbx_tell_later(reg, code, err, c->done, c->data);
	if (c->box)
		sbx_box_unref(&c->box->pub);
	creation_free(c);
	return NULL;
}

struct sbx_creation *sbx_registry_make(struct sbx_registry *reg,
                                       const struct sbx_create_request *req, sbx_box_done done,
                                       void *data)
{
	struct sbx_creation *c = creation_new(reg, done, data);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_box *from = NULL;
	int r = check_make(reg, req, &err);

	if (r >= 0)
		r = take_request(c, req, &err);
	if (r >= 0 && req->from)
		r = take_origin(c, req->from, &from, &err);
	c = start_or_fail(c, r, from, req->name, &err);
	sbx_box_unref(from);
	return c;
}

struct sbx_creation *sbx_registry_fork(struct sbx_box *from, const struct sbx_create_request *req,
                                       const char *rev, sbx_box_done done, void *data)
{
	struct sbx_creation *c = creation_new(from->registry, done, data);
	struct sbx_error err = SBX_ERROR_INIT;
	char name[64];
	int r = check_make(from->registry, req, &err);

	sbx_box_name(from, name);
	if (r >= 0)
		r = take_request(c, req, &err);
	if (r >= 0 &&
	    asprintf(&c->origin, "from %s%s%s", name, rev ? "@" : "", rev ? rev : "") < 0) {
		c->origin = NULL;
		r = -ENOMEM;
	}
	if (r >= 0)
		r = copy_string(rev, &c->rev);
	return start_or_fail(c, r, from, req->name, &err);
}

void sbx_registry_cancel(struct sbx_creation *c)
{
	atomic_store(&c->cancelled, true);
	sbx_work_cancel(&c->work);
}
