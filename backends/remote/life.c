/*
 * How a machine comes, is looked after, and goes.
 *
 * A box is there at once, and its machine is made behind it, by a thread that may wait; meanwhile
 * all that is asked of its parts waits in them. When the machine is there the parts are connected;
 * when it cannot be made they fail, with the reason, until the sandbox is removed.
 *
 * The keeper, once a minute, touches the machines of sandboxes that were used through the mount,
 * because what is read from the copy makes no request, and a provider stops what it does not hear
 * of.
 */
#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/remote_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/pool.h"

#define KEEP_MS     60000
#define TOUCH_MS    600000 /* between two touches of a machine in use */
#define EXPIRING_MS 300000 /* before its end its user is told */
/* An unknown machine may be one that is being made by a daemon that dies. */
#define ORPHAN_MS 600000

static struct sbx_loop *loop_of(struct remote_box *box)
{
	return box->backend->host->loop;
}

/* --- who waits for the machine ----------------------------------------------------------------
 */

/* 1: it is there. 0: not yet. Negative: it failed, or is gone, as ERR says. Lock held. */
static int outcome(struct remote_box *box, struct sbx_error *err)
{
	if (box->gone)
		return sbx_fail(err, ESTALE, "the sandbox is gone at the provider");
	switch (box->rec.phase) {
	case REMOTE_PHASE_UP:
		return 1;
	case REMOTE_PHASE_FAILED:
		/* Of an earlier daemon only the sentence is known. */
		return sbx_fail(err, box->failed ? box->failed : EREMOTEIO,
		                "it could not be created: %s",
		                box->rec.reason ? box->rec.reason : "it is not known why");
	case REMOTE_PHASE_LEAVING:
		return sbx_fail(err, ESTALE, "the sandbox is being removed");
	case REMOTE_PHASE_CREATING:
		break;
	}
	return box->resting ? sbx_fail(err, EINTR, "the mount is being taken down") : 0;
}

/* [loop] Tells those who wait what has come of it. */
static void tell_up(struct remote_box *box)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_want *w, *next;
	int r;

	pthread_mutex_lock(&box->lock);
	r = outcome(box, &err);
	w = r ? box->up : NULL;
	if (r)
		box->up = NULL;
	pthread_mutex_unlock(&box->lock);
	for (; w; w = next) {
		next = w->next;
		w->done(w, r < 0 ? -r : 0, &err);
	}
}

/* [loop] */
static void tell_up_posted(void *data)
{
	struct remote_box *box = data;

	tell_up(box);
	remote_works_end(&box->works);
}

static void post(struct remote_box *box, void (*fn)(void *data))
{
	remote_works_begin(&box->works);
	sbx_loop_post(loop_of(box), fn, box);
}

bool remote_box_is_up(struct remote_box *box)
{
	bool up;

	pthread_mutex_lock(&box->lock);
	up = box->rec.phase == REMOTE_PHASE_UP && !box->gone;
	pthread_mutex_unlock(&box->lock);
	return up;
}

void remote_box_want_up(struct remote_box *box, struct sbx_want *w)
{
	pthread_mutex_lock(&box->lock);
	w->next = box->up;
	box->up = w;
	pthread_mutex_unlock(&box->lock);
	post(box, tell_up_posted);
}

void remote_box_unwant_up(struct remote_box *box, struct sbx_want *w)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_want **at;

	pthread_mutex_lock(&box->lock);
	for (at = &box->up; *at && *at != w; at = &(*at)->next)
		;
	if (*at)
		*at = w->next;
	else
		w = NULL;
	pthread_mutex_unlock(&box->lock);
	if (!w)
		return;
	sbx_fail(&err, EINTR, "given up");
	w->done(w, EINTR, &err);
}

/* --- the parts --------------------------------------------------------------------------------
 */

/* [loop] Of the tree it was before. */
static void connect_parts(struct remote_box *box)
{
	remote_sync_connect(box->sync, box->link);
	remote_jobs_connect(box->jobs, box->link, box->backend->provider->impl->can);
}

/* [loop] */
static void fail_parts(struct remote_box *box, int code, const char *text)
{
	if (box->link)
		remote_link_fail(box->link, code, text);
	remote_jobs_fail(box->jobs, code, text);
	remote_sync_fail(box->sync, code, text);
	remote_tree_fail(box->tree, code, text);
}

/* [loop] As remote_link_config.gone. */
static void machine_gone(void *data)
{
	struct remote_box *box = data;
	bool first;

	pthread_mutex_lock(&box->lock);
	first = !box->gone && !box->resting;
	box->gone = true;
	pthread_mutex_unlock(&box->lock);
	if (!first)
		return;
	fail_parts(box, ESTALE, "the sandbox is gone at the provider; what is here can be read");
	sbx_sandbox_told(&box->base, "gone",
	                 "it is no more at the provider; files that are here can be read");
	tell_up(box);
}

/* [loop] As remote_link_config.idle. */
static void link_idle(void *data)
{
	struct remote_box *box = data;
	bool awaited;

	pthread_mutex_lock(&box->lock);
	awaited = box->awaits_idle;
	box->awaits_idle = false;
	pthread_mutex_unlock(&box->lock);
	if (awaited)
		remote_works_end(&box->works);
}

void remote_box_jobs_idle(void *data)
{
	struct remote_box *box = data;
	bool awaited;

	pthread_mutex_lock(&box->lock);
	box->jobs_idle = true;
	awaited = box->awaits_jobs;
	box->awaits_jobs = false;
	pthread_mutex_unlock(&box->lock);
	if (awaited)
		remote_works_end(&box->works);
}

static int link_up(struct remote_box *box)
{
	return remote_link_create(&(struct remote_link_config){.machine = box->machine,
	                                                       .loop = loop_of(box),
	                                                       .pool = box->backend->pool,
	                                                       .gone = machine_gone,
	                                                       .idle = link_idle,
	                                                       .data = box},
	                          &box->link);
}

/* --- making -----------------------------------------------------------------------------------
 */

/* [any] As sbx_machine_request.progress. */
static void progress(const char *text, void *data)
{
	struct remote_box *box = data;

	pthread_mutex_lock(&box->lock);
	snprintf(box->progress, sizeof(box->progress), "%s", text);
	pthread_mutex_unlock(&box->lock);
	sbx_sandbox_told(&box->base, "creating", text);
}

int remote_unmake(struct remote *b, const struct remote_record *rec, atomic_bool *cancelled,
                  struct sbx_error *err)
{
	if (rec->phase == REMOTE_PHASE_FAILED)
		return 0;
	return b->provider->impl->unmake(b->provider, rec->machine, rec->handle, cancelled, err);
}

static int store(struct remote_box *box, struct sbx_error *err)
{
	int r = remote_record_store(box->dir, &box->rec);

	return r < 0 ? sbx_fail(err, -r, "the record cannot be written: %s", strerror(-r)) : 0;
}

bool remote_may_come_late(int code)
{
	return code == -EINTR || code == -ETIMEDOUT || code == -EREMOTEIO || code == -EPROTO ||
	       code == -EMSGSIZE;
}

/* [wait] Makes the machine and writes it down. */
static int make(struct remote_box *box, struct sbx_error *err)
{
	struct sbx_provider *p = box->backend->provider;
	const struct sbx_machine_request req = {.name = box->rec.machine,
	                                        .label = box->backend->label,
	                                        .source = box->rec.source,
	                                        .base = box->rec.base,
	                                        .branch = box->rec.branch,
	                                        .progress = progress,
	                                        .data = box};
	struct sbx_machine *machine = NULL;
	char *handle = NULL;
	int r = p->impl->make(p, &req, &machine, &box->cancelled, err);

	if (r < 0 && !(r == -EEXIST && machine)) {
		pthread_mutex_lock(&box->lock);
		box->unsure |= remote_may_come_late(r);
		pthread_mutex_unlock(&box->lock);
		return r;
	}
	handle = strdup(machine->handle);
	if (!handle) {
		p->impl->release(machine);
		return sbx_no_memory(err);
	}
	pthread_mutex_lock(&box->lock);
	box->machine = machine;
	box->unsure = false;
	free(box->rec.handle);
	box->rec.handle = handle;
	r = store(box, err);
	pthread_mutex_unlock(&box->lock);
	return r;
}

/*
 * [wait] The machine of a fork was copied before its record was written. Where an earlier daemon
 * did that it is looked for.
 */
static int find_copy(struct remote_box *box, struct sbx_error *err)
{
	const struct sbx_provider_impl *impl = box->backend->provider->impl;
	struct sbx_machine_look look = {0};
	struct sbx_machine *machine;
	int r;

	if (box->machine)
		return 0;
	r = impl->adopt(box->backend->provider, box->rec.handle ? box->rec.handle : "", &machine,
	                err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&box->lock);
	box->machine = machine;
	pthread_mutex_unlock(&box->lock);
	r = impl->look(machine, &look, &box->cancelled, err);
	return r == 0 && look.state == SBX_MACHINE_GONE
	               ? sbx_fail(err, ESTALE, "the copy is gone at the provider")
	               : r;
}

static bool is_commit(const char *id)
{
	const size_t n = strspn(id, "0123456789abcdef");

	return (n == 40 || n == 64) && id[n] == '\0';
}

/* [wait] The commit that the tree began at is its base from now on, whatever was asked for. */
static void heard_base(const struct remote_reply *reply, void *data)
{
	struct remote_box *box = data;
	size_t at = 0;
	const struct remote_frame *f = remote_reply_next(reply, &at, REMOTE_INFO, "base");
	char *base = f && is_commit(f->bytes) ? strdup(f->bytes) : NULL;

	if (!base)
		return;
	pthread_mutex_lock(&box->lock);
	free(box->rec.base);
	box->rec.base = base;
	pthread_mutex_unlock(&box->lock);
}

/* [wait] From the machine to a tree that is listed. */
static int populate(struct remote_box *box, struct sbx_error *err)
{
	struct remote_text lines = {0};
	int r = link_up(box);

	if (box->rec.fork && box->rec.branch) {
		remote_text_add(&lines, "r_fork");
		remote_text_word(&lines, box->rec.branch);
		remote_text_word(&lines, box->rec.fork);
		remote_text_add(&lines, "\n");
	}
	remote_text_add(&lines, "r_base\n");
	if (r < 0 || lines.failed) {
		r = sbx_no_memory(err);
	} else {
		const struct remote_also also = {
		        .lines = lines.at, .heard = heard_base, .data = box};

		progress("listing its files", box);
		remote_tree_connect(box->tree, box->link, box->machine->workdir, true);
		r = remote_tree_refresh(box->tree, true, box->rec.source ? &also : NULL,
		                        &box->cancelled, err);
	}
	remote_text_release(&lines);
	return r;
}

/* [loop] */
static void raised(void *data)
{
	struct remote_box *box = data;
	char text[256];
	bool up, failed;

	pthread_mutex_lock(&box->lock);
	up = box->rec.phase == REMOTE_PHASE_UP && !box->resting;
	failed = box->rec.phase == REMOTE_PHASE_FAILED;
	snprintf(text, sizeof(text), "it could not be created: %s",
	         box->rec.reason ? box->rec.reason : "given up");
	pthread_mutex_unlock(&box->lock);
	if (up) {
		connect_parts(box);
		snprintf(text, sizeof(text), "it was created in %.1f s",
		         (double)((sbx_now_ns() - box->begun_ns) / 1000000) / 1000);
		sbx_sandbox_told(&box->base, "created", text);
	} else {
		fail_parts(box, failed ? EREMOTEIO : EINTR, text);
		if (failed)
			sbx_sandbox_told(&box->base, "create_failed", text);
	}
	tell_up(box);
	remote_works_end(&box->works);
}

/*
 * What has begun is not left behind: where it cannot be removed now, it is looked for later. A fork
 * is there, whatever its first request has met. So its record stays, until it is removed. So does
 * that of a create which EINTR has ended, because nobody who uses the sandbox has cancelled it.
 */
static void give_up(struct remote_box *box, const struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	const bool spared = box->rec.fork || err->code == EINTR;
	const bool leaves =
	        !spared && remote_unmake(box->backend, &box->rec, &box->cancelled, &why) < 0;
	bool late;

	pthread_mutex_lock(&box->lock);
	late = leaves || box->unsure;
	pthread_mutex_unlock(&box->lock);
	if (late)
		remote_late_note(box->backend->late, box->rec.machine);
	pthread_mutex_lock(&box->lock);
	/* Its handle is kept until it is known to be gone. */
	if (box->rec.phase == REMOTE_PHASE_CREATING && !atomic_load(&box->cancelled)) {
		free(box->rec.reason);
		box->rec.reason = strdup(err->text);
		box->failed = err->code;
		box->rec.phase = REMOTE_PHASE_FAILED;
		box->spared = spared;
		if (!spared)
			remote_record_store(box->dir, &box->rec);
	}
	pthread_mutex_unlock(&box->lock);
	if (leaves)
		sbx_sandbox_told(&box->base, "orphan", why.text);
}

/* [wait] */
static void raise_work(void *data)
{
	struct remote_box *box = data;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = 0;

	if (box->rec.fork) {
		r = find_copy(box, &err);
	} else if (box->anew) {
		progress("removing what an earlier attempt has left", box);
		r = remote_unmake(box->backend, &box->rec, &box->cancelled, &err);
	}
	if (r == 0 && !box->rec.fork) {
		progress("making it at the provider", box);
		r = make(box, &err);
	}
	if (r == 0)
		r = populate(box, &err);
	if (r == 0 && box->backend->provider->impl->keep)
		r = box->backend->provider->impl->keep(box->machine, "base", &err);
	pthread_mutex_lock(&box->lock);
	if (r == 0 && box->rec.phase == REMOTE_PHASE_CREATING) {
		box->rec.phase = REMOTE_PHASE_UP;
		box->verified = true;
		r = store(box, &err);
		if (r < 0)
			box->rec.phase = REMOTE_PHASE_CREATING;
	}
	pthread_mutex_unlock(&box->lock);
	/* Whoever removes it, or the next mount, sees to what there is. */
	if (r < 0 && !atomic_load(&box->cancelled))
		give_up(box, &err);
	sbx_loop_post(loop_of(box), raised, box);
}

/* --- taking up --------------------------------------------------------------------------------
 */

/* [loop] */
static void gone_posted(void *data)
{
	struct remote_box *box = data;

	machine_gone(box);
	remote_works_end(&box->works);
}

/* MOST ms; less where a machine stops sooner: a PARTS-th of the time after which it does. */
static uint64_t within(const struct remote *b, uint64_t most, uint64_t parts)
{
	const uint64_t idle = b->provider->impl->idle_ms;

	return idle && idle / parts < most ? idle / parts : most;
}

/* Whether its end at EXPIRES_MS is so near that its user is to be told. */
static bool is_near(const struct remote_box *box, int64_t expires_ms)
{
	return expires_ms &&
	       expires_ms - sbx_real_ms() < (int64_t)within(box->backend, EXPIRING_MS, 3);
}

/* Before its end its user is told, once for each end. */
static void note_look(struct remote_box *box, const struct sbx_machine_look *look)
{
	char text[128];
	bool expiring;

	pthread_mutex_lock(&box->lock);
	expiring = is_near(box, look->expires_ms) && look->expires_ms != box->told_expires_ms;
	if (expiring)
		box->told_expires_ms = look->expires_ms;
	box->look = *look;
	box->looked = true;
	pthread_mutex_unlock(&box->lock);
	if (!expiring)
		return;
	snprintf(text, sizeof(text), "the provider ends it in %lld s",
	         (long long)(look->expires_ms - sbx_real_ms()) / 1000);
	sbx_sandbox_told(&box->base, "expiring", text);
}

/* [wait] */
static void heard_sweep(const struct remote_reply *reply, void *data)
{
	remote_jobs_swept(data, reply);
}

/* [wait] What earlier daemons have left running ends before it is looked what has changed. */
static int refresh(struct remote_box *box, struct sbx_error *err)
{
	struct remote_text lines = {0};
	int r = remote_jobs_sweep(box->jobs, &lines);

	if (r < 0) {
		r = sbx_no_memory(err);
	} else {
		const struct remote_also sweep = {
		        .lines = lines.at, .heard = heard_sweep, .data = box->jobs};

		r = remote_tree_refresh(box->tree, false, lines.n ? &sweep : NULL, &box->cancelled,
		                        err);
	}
	remote_text_release(&lines);
	return r;
}

/* [wait] Looks whether the machine is still there. *GONE: it is not. */
static int look_at(struct remote_box *box, bool *gone)
{
	struct sbx_machine_look look = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r = box->backend->provider->impl->look(box->machine, &look, &box->cancelled, &err);

	*gone = r == 0 && look.state == SBX_MACHINE_GONE;
	if (*gone)
		post(box, gone_posted);
	else if (r == 0)
		note_look(box, &look);
	return r;
}

/* [wait] Looks whether the machine is still there, and what has changed meanwhile. */
static void verify_work(void *data)
{
	struct remote_box *box = data;
	struct sbx_error err = SBX_ERROR_INIT;
	bool gone = false;
	bool woken;
	int r;

	pthread_mutex_lock(&box->lock);
	woken = box->woken;
	box->woken = false;
	pthread_mutex_unlock(&box->lock);
	r = woken ? 0 : look_at(box, &gone);
	if (r == 0 && !gone) {
		r = refresh(box, &err);
		/* What was sent meanwhile, or is still to be sent, is known afterwards. */
		if (r == 0 && remote_tree_lags(box->tree))
			remote_sync_changed(box->sync);
	}
	pthread_mutex_lock(&box->lock);
	box->verified = r == 0;
	box->verifying = false;
	pthread_mutex_unlock(&box->lock);
	remote_works_end(&box->works);
}

static void verify(struct remote_box *box)
{
	bool begin;

	pthread_mutex_lock(&box->lock);
	begin = !box->verifying;
	box->verifying = true;
	if (begin)
		remote_works_begin(&box->works);
	pthread_mutex_unlock(&box->lock);
	if (begin)
		sbx_pool_submit(box->backend->waiters, verify_work, box);
}

/* [loop] */
static void adopted(void *data)
{
	struct remote_box *box = data;
	bool resting;

	pthread_mutex_lock(&box->lock);
	resting = box->resting;
	box->waking = false;
	pthread_mutex_unlock(&box->lock);
	if (!resting) {
		remote_tree_connect(box->tree, box->link, box->machine->workdir, false);
		connect_parts(box);
		verify(box);
	}
	remote_works_end(&box->works);
}

/* [wait] What the provider has forgotten is made anew by the look, before anything is asked of it.
 */
static void wake_work(void *data)
{
	struct remote_box *box = data;
	bool gone, woken = look_at(box, &gone) == 0;

	pthread_mutex_lock(&box->lock);
	box->woken = woken;
	pthread_mutex_unlock(&box->lock);
	if (gone)
		remote_works_end(&box->works);
	else
		sbx_loop_post(loop_of(box), adopted, box);
}

int remote_box_adopt(struct remote_box *box, struct sbx_error *err)
{
	struct sbx_provider *p = box->backend->provider;
	int r = p->impl->adopt(p, box->rec.handle ? box->rec.handle : "", &box->machine, err);

	return r == 0 && link_up(box) < 0 ? sbx_no_memory(err) : r;
}

/* [loop] */
static void failed_before(void *data)
{
	struct remote_box *box = data;
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	pthread_mutex_lock(&box->lock);
	r = outcome(box, &err);
	pthread_mutex_unlock(&box->lock);
	if (r < 0)
		fail_parts(box, -r, err.text);
	remote_works_end(&box->works);
}

void remote_box_begin(struct remote_box *box)
{
	switch (box->rec.phase) {
	case REMOTE_PHASE_CREATING:
		box->begun_ns = sbx_now_ns();
		remote_works_begin(&box->works);
		sbx_pool_submit(box->backend->waiters, raise_work, box);
		break;
	case REMOTE_PHASE_UP:
		if (box->backend->provider->impl->save) {
			box->waking = true;
			remote_works_begin(&box->works);
			sbx_pool_submit(box->backend->waiters, wake_work, box);
		} else {
			post(box, adopted);
		}
		break;
	case REMOTE_PHASE_FAILED:
	case REMOTE_PHASE_LEAVING:
		post(box, failed_before);
		break;
	}
}

/* --- the end ----------------------------------------------------------------------------------
 */

/* [loop] */
static void rest_posted(void *data)
{
	struct remote_box *box = data;

	pthread_mutex_lock(&box->lock);
	box->awaits_idle = box->link != NULL;
	box->awaits_jobs = !box->jobs_idle;
	if (box->awaits_idle)
		remote_works_begin(&box->works);
	if (box->awaits_jobs)
		remote_works_begin(&box->works);
	pthread_mutex_unlock(&box->lock);
	fail_parts(box, ESTALE, "the sandbox is going");
	tell_up(box);
	remote_works_end(&box->works);
}

void remote_box_rest(struct remote_box *box)
{
	atomic_store(&box->cancelled, true);
	pthread_mutex_lock(&box->lock);
	box->resting = true;
	pthread_mutex_unlock(&box->lock);
	post(box, rest_posted);
	remote_works_wait(&box->works);
	remote_tree_await(box->tree);
}

void remote_box_save(struct remote_box *box)
{
	const struct sbx_provider_impl *impl = box->backend->provider->impl;
	struct sbx_error err = SBX_ERROR_INIT;

	if (impl->save(box->machine, NULL, &err) < 0)
		sbx_sandbox_told(&box->base, "save_failed", err.text);
}

/* --- the keeper -------------------------------------------------------------------------------
 */

struct keeping {
	struct remote_box *box;
	bool touch, verify;
};

/* [wait] */
static void keep_work(void *data)
{
	struct remote_box *box = data;
	const struct sbx_provider_impl *impl = box->backend->provider->impl;
	struct sbx_machine_look look = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	bool touch;
	int r = 0;

	pthread_mutex_lock(&box->lock);
	touch = box->touching;
	box->touching = false;
	pthread_mutex_unlock(&box->lock);
	if (touch && impl->touch)
		r = impl->touch(box->machine, &box->cancelled, &err);
	if (r == 0)
		r = impl->look(box->machine, &look, &box->cancelled, &err);
	if (r == 0 && look.state != SBX_MACHINE_GONE)
		note_look(box, &look);
	else if (r == -ESTALE || (r == 0 && look.state == SBX_MACHINE_GONE))
		post(box, gone_posted);
	else
		sbx_sandbox_told(&box->base, "keep_failed", err.text);
	pthread_mutex_lock(&box->lock);
	box->keeping = false;
	pthread_mutex_unlock(&box->lock);
	remote_works_end(&box->works);
}

/*
 * What is to be done for BOX now: one that is in use is touched, and of one whose end comes near
 * the user is told. Backend's lock held, so that it is not closed.
 */
static void keep_box(struct remote_box *box, uint64_t now)
{
	const uint64_t touch_ns = within(box->backend, TOUCH_MS, 3) * 1000000;
	bool keep, again, near;

	pthread_mutex_lock(&box->lock);
	if (atomic_exchange(&box->used, false))
		box->used_ns = now;
	keep = box->rec.phase == REMOTE_PHASE_UP && !box->resting && !box->gone && box->machine &&
	       !box->waking;
	again = keep && !box->verified && !box->verifying;
	if (keep && !box->keeping && box->used_ns > box->touched_ns &&
	    now - box->touched_ns > touch_ns) {
		box->touching = true;
		box->touched_ns = now;
	}
	near = is_near(box, box->look.expires_ms) && box->look.expires_ms != box->asked_expires_ms;
	/* A verification looks as well, and takes as long as the machine does not answer. */
	keep = keep && box->verified && !box->keeping && (box->touching || near);
	if ((keep || again) && near)
		box->asked_expires_ms = box->look.expires_ms;
	box->keeping |= keep;
	box->verifying |= again;
	if (keep || again)
		remote_works_begin(&box->works);
	pthread_mutex_unlock(&box->lock);
	if (again)
		sbx_pool_submit(box->backend->waiters, verify_work, box);
	else if (keep)
		sbx_pool_submit(box->backend->waiters, keep_work, box);
}

/* [loop] */
static void keep(struct sbx_timer *t)
{
	struct remote *b = t->data;
	const uint64_t now = sbx_now_ns();

	pthread_mutex_lock(&b->lock);
	for (struct remote_box *box = b->boxes; box; box = box->next)
		keep_box(box, now);
	pthread_mutex_unlock(&b->lock);
	sbx_loop_timer_set(b->host->loop, t, (unsigned)within(b, KEEP_MS, 10));
}

/* [loop] */
static void keep_begin(void *data)
{
	struct remote *b = data;

	sbx_loop_timer_set(b->host->loop, &b->keeper, (unsigned)within(b, KEEP_MS, 10));
}

void remote_keep_begin(struct remote *b)
{
	b->keeper = (struct sbx_timer){.fn = keep, .data = b};
	sbx_loop_post(b->host->loop, keep_begin, b);
}

/* --- orphans ----------------------------------------------------------------------------------
 */

/* 1: it is the directory of the one that is sought, or it cannot be told. */
static int is_of(const char *id, unsigned char type, void *data)
{
	_cleanup_free_ char *machine = remote_machine_name(id);

	(void)type;
	return !machine || strcmp(machine, data) == 0;
}

static bool has_directory(const struct remote *b, const char *machine)
{
	_cleanup_fd_ int dir = sbx_dir_open(b->dir, ".");

	return dir < 0 || sbx_dir_scan(dir, is_of, (void *)(uintptr_t)machine) != 0;
}

bool remote_is_recorded(struct remote *b, const char *machine)
{
	bool known = false, failed = false;

	pthread_mutex_lock(&b->lock);
	for (struct remote_box *box = b->boxes; box && !known; box = box->next) {
		pthread_mutex_lock(&box->lock);
		known = strcmp(box->rec.machine, machine) == 0;
		failed = known && box->rec.phase == REMOTE_PHASE_FAILED && !box->spared;
		pthread_mutex_unlock(&box->lock);
	}
	pthread_mutex_unlock(&b->lock);
	return known ? !failed : has_directory(b, machine);
}

static int sweep_one(const char *name, const char *handle, int64_t made_ms, void *data)
{
	struct remote *b = data;
	struct sbx_error err = SBX_ERROR_INIT;

	if (remote_is_recorded(b, name) || sbx_real_ms() - made_ms < ORPHAN_MS)
		return 0;
	if (b->provider->impl->unmake(b->provider, name, handle, &b->ending, &err) == 0 &&
	    b->host->dropped)
		b->host->dropped(name, "no sandbox knows it, so it is removed at the provider",
		                 b->host->data);
	return 0;
}

/* [wait] The next mount tries again what did not succeed. */
static void sweep_work(void *data)
{
	struct remote *b = data;

	b->provider->impl->find(b->provider, b->label, sweep_one, b, NULL);
	remote_works_end(&b->works);
}

void remote_sweep_begin(struct remote *b)
{
	remote_works_begin(&b->works);
	sbx_pool_submit(b->waiters, sweep_work, b);
}
