/*
 * Make, teardown and rename. Each is a chain that alternates between the pool, where
 * the backend may block, and the loop thread, where states change and callers are
 * told. A chain counts as in flight until its last step on the loop, so that a
 * shutdown can wait for it.
 *
 *   make      [pool] create, equip            -> [loop] ready, or nothing left
 *   teardown  [loop] jobs end -> [pool] retire -> [loop] out of sight -> [pool] remove
 *             -> [loop] told; after a failure again, 1 s later, 2 s, ... 60 s
 *   rename    [pool] backend                  -> [loop] moved within the array
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/sandbox.h"
#include "fs/sandbox_impl.h"
#include "sandboxfs/cleanup.h"

#define RETRY_FIRST_MS 1000
#define RETRY_LAST_MS  60000

/* An outcome that is known before anything was begun. */
struct outcome {
	sbx_box_done done;
	void *data;
	int code;
	struct sbx_error err;
};

static void tell(void *data)
{
	struct outcome *o = data;

	o->done(o->code, NULL, &o->err, o->data);
	free(o);
}

/* done is called on the loop thread, as the contract has it, also when nothing had to be done. */
static void tell_later(struct sbx_registry *reg, int code, const struct sbx_error *err,
                       sbx_box_done done, void *data)
{
	struct outcome *o = sbx_must_alloc(sizeof(*o));

	*o = (struct outcome){.done = done, .data = data, .code = code, .err = *err};
	if (code < 0)
		sbx_error_store(reg, NULL, &o->err);
	sbx_loop_post(reg->config.loop, tell, o);
}

/* A sandbox gets its house */

static void record_job(struct box *box, struct sbx_jobrec *rec)
{
	static const char *const kinds[] = {"exec", "spawn", "run"};

	sbx_log_record(box->pub.log, kinds[sbx_job_kind(rec)], sbx_job_log_members(rec));
}

static void count_end(struct sbx_registry *reg, const char *status)
{
	const char *word = strchr(status, ' ');
	size_t len = word ? strcspn(++word, " \n") : 0;

	pthread_mutex_lock(&reg->lock);
	for (int i = 0; word && i < END_WORDS; i++)
		if (strlen(sbx_end_words[i]) == len && strncmp(sbx_end_words[i], word, len) == 0)
			reg->counters.jobs_ended[i]++;
	pthread_mutex_unlock(&reg->lock);
}

static void job_changed(struct sbx_jobrec *rec, void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct sbx_error err = SBX_ERROR_INIT;
	char status[256], text[1200];

	if (!sbx_job_ended(rec)) {
		snprintf(text, sizeof(text), "job=%llu", (unsigned long long)sbx_job_number(rec));
		sbx_box_event(reg, box, "job_start", text);
		return;
	}
	record_job(box, rec);
	if (sbx_job_start_error(rec, &err) < 0) {
		count_end(reg, "- failed");
		snprintf(text, sizeof(text), "job=%llu %s", (unsigned long long)sbx_job_number(rec),
		         err.text);
		sbx_box_event(reg, box, "job_failed", text);
		return;
	}
	sbx_job_status(rec, status, sizeof(status));
	count_end(reg, status);
	status[strcspn(status, "\n")] = '\0';
	sbx_box_event(reg, box, "job_end", status);
}

static void jobs_busy(bool busy, void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;

	if (reg->config.invalidate)
		reg->config.invalidate(&box->pub, busy, reg->config.data);
}

static int open_jobs(struct box *box, struct sbx_sandbox *sandbox)
{
	const struct sbx_settings *settings = box->pub.registry->config.settings;
	_cleanup_free_ char *view = NULL, *spill = NULL;

	if (asprintf(&view, "%s/%s", settings->mountpoint, sandbox->name) < 0)
		return -ENOMEM;
	if (asprintf(&spill, "%s/jobs/%s", settings->state_dir, sandbox->id) < 0)
		return -ENOMEM;
	return sbx_jobs_create(
	        &(struct sbx_jobs_config){
	                .settings = settings,
	                .loop = box->pub.registry->config.loop,
	                .sandbox = sandbox,
	                .view = view,
	                .spill_dir = spill,
	                .busy = jobs_busy,
	                .changed = job_changed,
	                .data = box,
	        },
	        &box->pub.jobs);
}

int sbx_box_equip(struct box *box, struct sbx_sandbox *sandbox)
{
	struct sbx_registry *reg = box->pub.registry;
	const struct sbx_settings *settings = reg->config.settings;
	int r = sbx_log_open(settings->state_dir, settings->logs_dir, sandbox->id, sandbox->name,
	                     &box->pub.log);

	if (r >= 0)
		r = sbx_events_create(reg->config.loop, &box->pub.events);
	if (r >= 0)
		r = open_jobs(box, sandbox);
	if (r < 0) {
		sbx_box_strip(box);
		return r;
	}
	box->pub.sandbox = sandbox;
	return 0;
}

void sbx_box_strip(struct box *box)
{
	sbx_jobs_destroy(box->pub.jobs);
	sbx_events_destroy(box->pub.events);
	sbx_log_close(box->pub.log);
	box->pub.jobs = NULL;
	box->pub.events = NULL;
	box->pub.log = NULL;
	box->pub.sandbox = NULL;
}

static void lifetime_over(struct sbx_timer *t)
{
	struct box *box = t->data;
	struct sbx_registry *reg = box->pub.registry;
	bool ready;

	pthread_mutex_lock(&reg->lock);
	ready = box->pub.state == SBX_BOX_READY && !reg->closing;
	if (ready)
		sbx_box_stop_begin(box);
	pthread_mutex_unlock(&reg->lock);
	if (!ready)
		return;
	sbx_box_event(reg, box, "expired", "its lifetime (run_timeout_ms) is over");
	sbx_box_stop(box);
}

void sbx_box_arm_lifetime(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	uint64_t span = reg->config.settings->run_timeout_ms;
	struct timespec ts;
	int64_t age;

	if (!span || box->lifetime.due_ns)
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	age = (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000 - box->pub.sandbox->created_ms;
	if (age < 0)
		age = 0;
	box->lifetime.fn = lifetime_over;
	box->lifetime.data = box;
	sbx_loop_timer_set(reg->config.loop, &box->lifetime,
	                   (uint64_t)age >= span ? 0 : span - (uint64_t)age);
}

/* Make */

static void creation_free(struct sbx_creation *c)
{
	free(c->base);
	free(c->branch);
	free(c);
}

static double seconds_since(uint64_t begun_ns)
{
	return (double)((sbx_now_ns() - begun_ns) / 1000000u) / 1000.0;
}

static void record_span(struct box *box, const char *event, uint64_t begun_ns)
{
	struct json_object *extra = json_object_new_object();

	json_object_object_add(extra, "duration_sec",
	                       json_object_new_double(seconds_since(begun_ns)));
	sbx_log_record(box->pub.log, event, extra);
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
		record_span(box, "create", c->begun_ns);
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
		tell_later(reg, r, &err, done, data);
		return NULL;
	}
	sbx_pool_submit(reg->config.pool, create_work, c);
	return c;
}

void sbx_registry_cancel(struct sbx_creation *c)
{
	atomic_store(&c->cancelled, true);
}

/* Teardown */

static struct waiter **waiters_end(struct box *box)
{
	struct waiter **w = &box->waiters;

	while (*w)
		w = &(*w)->next;
	return w;
}

static void add_waiter(struct box *box, bool complete, sbx_box_done done, void *data)
{
	struct waiter *w = sbx_must_alloc(sizeof(*w));

	*w = (struct waiter){.done = done, .data = data, .complete = complete};
	*waiters_end(box) = w;
}

/* Takes out those who wait for no more than being out of sight, or all. The lock is held. */
static struct waiter *take_waiters(struct box *box, bool all)
{
	struct waiter *taken = NULL, **end = &taken, **w = &box->waiters;

	while (*w) {
		if (all || !(*w)->complete) {
			*end = *w;
			*w = (*w)->next;
			(*end)->next = NULL;
			end = &(*end)->next;
		} else {
			w = &(*w)->next;
		}
	}
	return taken;
}

static void tell_waiters(struct waiter *w, int code, const struct sbx_error *err)
{
	struct waiter *next;

	for (; w; w = next) {
		next = w->next;
		w->done(code, NULL, err, w->data);
		free(w);
	}
}

static void remove_work(void *data);

static void retry(struct sbx_timer *t)
{
	struct box *box = t->data;
	struct sbx_registry *reg = box->pub.registry;
	bool go;

	pthread_mutex_lock(&reg->lock);
	go = !reg->closing;
	if (go)
		sbx_registry_begin(reg);
	pthread_mutex_unlock(&reg->lock);
	if (go)
		sbx_pool_submit(reg->config.pool, remove_work, box);
}

/* [loop] The next mount's recovery finishes what does not succeed before the end of this one. */
static void remove_later(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;

	box->retry_ms = box->retry_ms ? 2 * box->retry_ms : RETRY_FIRST_MS;
	if (box->retry_ms > RETRY_LAST_MS)
		box->retry_ms = RETRY_LAST_MS;
	box->retry.fn = retry;
	box->retry.data = box;
	sbx_loop_timer_set(reg->config.loop, &box->retry, box->retry_ms);
}

static void remove_failed(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;

	sbx_error_complete(&box->step_err, box->code, "removing", box->pub.name);
	sbx_error_store(reg, NULL, &box->step_err);
	sbx_events_add(reg->events, "remove_failed", box->pub.name, box->step_err.text);
	remove_later(box);
}

static void removed(struct box *box)
{
	record_span(box, "cleanup", box->stop_ns);
	sbx_log_remove(box->pub.log);
	sbx_events_add(box->pub.registry->events, "removed", box->pub.name, NULL);
}

/* [loop] */
static void remove_done(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct waiter *waiters;
	bool gone = box->code >= 0;

	if (gone)
		removed(box);
	else
		remove_failed(box);
	pthread_mutex_lock(&reg->lock);
	if (gone) {
		struct box **p = &reg->retired;

		while (*p != box)
			p = &(*p)->next;
		*p = box->next;
		reg->counters.removals++;
	} else {
		reg->counters.remove_failures++;
	}
	waiters = take_waiters(box, true);
	pthread_mutex_unlock(&reg->lock);
	tell_waiters(waiters, box->code, &box->step_err);
	if (gone)
		sbx_box_unref(&box->pub);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
}

/* [pool] */
static void remove_work(void *data)
{
	struct box *box = data;

	box->step_err = SBX_ERROR_INIT;
	pthread_mutex_lock(&box->backend_lock);
	box->code = sbx_sandbox_remove(box->pub.sandbox, &box->step_err);
	pthread_mutex_unlock(&box->backend_lock);
	sbx_loop_post(box->pub.registry->config.loop, remove_done, box);
}

/* [loop] A teardown that the backend refuses is given up: everything is as before. */
static void retire_refused(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;
	struct waiter *waiters;

	sbx_error_complete(&box->step_err, box->code, "tearing down", box->pub.name);
	sbx_error_store(reg, NULL, &box->step_err);
	sbx_jobs_resume(box->pub.jobs);
	pthread_mutex_lock(&reg->lock);
	box->pub.state = SBX_BOX_READY;
	waiters = take_waiters(box, true);
	pthread_mutex_unlock(&reg->lock);
	sbx_box_event(reg, box, "teardown_failed", box->step_err.text);
	tell_waiters(waiters, box->code, &box->step_err);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
}

/* [loop] Out of sight: the name is free. The registry's reference goes on to the removal. */
static void retire_done(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct waiter *waiters;

	if (box->code < 0) {
		retire_refused(box);
		return;
	}
	sbx_loop_timer_cancel(reg->config.loop, &box->lifetime);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_drop(reg, box);
	box->pub.state = SBX_BOX_RETIRED;
	box->next = reg->retired;
	reg->retired = box;
	reg->counters.teardowns++;
	waiters = take_waiters(box, false);
	pthread_mutex_unlock(&reg->lock);
	if (reg->config.invalidate)
		reg->config.invalidate(&box->pub, false, reg->config.data);
	sbx_box_event(reg, box, "teardown", NULL);
	sbx_events_close(box->pub.events);
	tell_waiters(waiters, 0, &box->step_err);
	sbx_pool_submit(reg->config.pool, remove_work, box);
}

/* [pool] */
static void retire_work(void *data)
{
	struct box *box = data;

	box->step_err = SBX_ERROR_INIT;
	pthread_mutex_lock(&box->backend_lock);
	box->code = sbx_sandbox_retire(box->pub.sandbox, &box->step_err);
	pthread_mutex_unlock(&box->backend_lock);
	sbx_loop_post(box->pub.registry->config.loop, retire_done, box);
}

static void jobs_ended(void *data)
{
	struct box *box = data;

	sbx_pool_submit(box->pub.registry->config.pool, retire_work, box);
}

void sbx_box_stop_begin(struct box *box)
{
	box->pub.state = SBX_BOX_STOPPING;
	box->stop_ns = sbx_now_ns();
	sbx_registry_begin(box->pub.registry);
}

void sbx_box_stop(struct box *box)
{
	sbx_jobs_shutdown(box->pub.jobs, jobs_ended, box);
}

static struct box *retired_by_name(struct sbx_registry *reg, const char *name)
{
	for (struct box *box = reg->retired; box; box = box->next)
		if (strcmp(box->pub.name, name) == 0)
			return box;
	return NULL;
}

/*
 * 1: the caller waits with others, and *stop (if set) is to be stopped; else there is nothing to
 * wait for. The lock is held.
 */
static int join_teardown(struct sbx_registry *reg, const char *name, bool complete,
                         sbx_box_done done, void *data, struct box **stop, struct sbx_error *err)
{
	struct box *box = sbx_registry_locate(reg, name, NULL);

	if (!box)
		box = complete ? retired_by_name(reg, name) : NULL;
	if (!box)
		return complete ? 0 : sbx_fail(err, ENOENT, "there is no sandbox %s", name);
	if (box->pub.state == SBX_BOX_CREATING)
		return sbx_fail(err, EBUSY, "%s is being created", name);
	if (box->pub.state == SBX_BOX_READY) {
		if (reg->closing)
			return sbx_fail(err, EBUSY, "the mount is being taken down");
		sbx_box_stop_begin(box);
		*stop = box;
	}
	add_waiter(box, complete, done, data);
	return 1;
}

void sbx_registry_teardown(struct sbx_registry *reg, const char *name, bool complete,
                           sbx_box_done done, void *data)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct box *stop = NULL;
	int r = sbx_name_check(name, &err);

	if (r >= 0) {
		pthread_mutex_lock(&reg->lock);
		r = join_teardown(reg, name, complete, done, data, &stop, &err);
		pthread_mutex_unlock(&reg->lock);
	}
	if (r <= 0)
		tell_later(reg, r, &err, done, data);
	else if (stop)
		sbx_box_stop(stop);
}

/* Rename */

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

	sbx_registry_drop(reg, box);
	box->pub.name = box->new_name;
	/* The array had this place a moment ago. */
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
	if (ren->code >= 0)
		old = take_new_name(ren->box);
	else
		sbx_error_complete(&ren->err, ren->code, "renaming", ren->box->pub.name);
	ren->box->new_name = NULL;
	pthread_mutex_unlock(&reg->lock);
	if (ren->code >= 0)
		announce(ren, old);
	else
		free(ren->to);
	sbx_error_store(reg, NULL, &ren->err);
	ren->done(ren->code, NULL, &ren->err, ren->data);
	sbx_box_unref(&ren->box->pub);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
	free(ren);
}

/* [pool] */
static void rename_work(void *data)
{
	struct renaming *ren = data;

	pthread_mutex_lock(&ren->box->backend_lock);
	ren->code = sbx_sandbox_rename(ren->box->pub.sandbox, ren->to, &ren->err);
	if (ren->code >= 0)
		sbx_log_rename(ren->box->pub.log, ren->to);
	pthread_mutex_unlock(&ren->box->backend_lock);
	sbx_loop_post(ren->reg->config.loop, rename_done, ren);
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
		return sbx_fail(err, ENOMEM, "memory is exhausted");
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
		sbx_pool_submit(reg->config.pool, rename_work, ren);
		return;
	}
	free(ren);
	tell_later(reg, r, &err, done, data);
}
