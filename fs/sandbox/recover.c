/*
 * The two ends of a mount: recovery takes up the sandboxes that the backend finds, shutdown brings
 * everything to rest before loop and pool are stopped.
 *
 * The daemon itself keeps logs (log/ID.jsonl) and the spilled output of jobs (jobs/ID/) per sandbox
 * below the state directory. A daemon that was killed leaves both behind; recovery takes away what
 * belongs to nobody.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "fs/log/events.h"
#include "fs/sandbox/push.h"
#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

struct sweep {
	struct sbx_registry *reg;
	int dir;
};

/* Recovery is single-threaded, so the array needs no lock. */
static bool is_known(struct sbx_registry *reg, const char *id, size_t len)
{
	for (size_t i = 0; i < reg->n; i++) {
		const char *known = reg->boxes[i]->pub.sandbox->id;

		if (strlen(known) == len && strncmp(known, id, len) == 0)
			return true;
	}
	return false;
}

static int sweep_log(const char *name, unsigned char type, void *data)
{
	const struct sweep *s = data;
	const char *dot = strrchr(name, '.');

	(void)type;
	if (dot && strcmp(dot, ".jsonl") == 0 && !is_known(s->reg, name, (size_t)(dot - name)))
		unlinkat(s->dir, name, 0);
	return 0;
}

/* The jobs whose output this was are gone with their daemon. */
static int sweep_jobs(const char *name, unsigned char type, void *data)
{
	const struct sweep *s = data;

	(void)type;
	sbx_output_sweep(s->dir, name);
	return 0;
}

/* [start] Takes away what a killed daemon kept for sandboxes that are no more. */
static void registry_sweep(struct sbx_registry *reg)
{
	_cleanup_fd_ int state = sbx_dir_open(AT_FDCWD, reg->config.settings->state_dir);
	_cleanup_fd_ int logs = state < 0 ? -1 : sbx_dir_open(state, "log");
	_cleanup_fd_ int jobs = state < 0 ? -1 : sbx_dir_open(state, "jobs");

	if (logs >= 0)
		sbx_dir_scan(logs, sweep_log, &(struct sweep){.reg = reg, .dir = logs});
	if (jobs >= 0)
		sbx_dir_scan(jobs, sweep_jobs, &(struct sweep){.dir = jobs});
}

struct finding {
	struct sbx_registry *reg;
	int code;
};

static int adopt(struct sbx_registry *reg, struct sbx_sandbox *sandbox)
{
	struct box *box = sbx_box_new(reg, sandbox->name);
	int r = -ENOMEM;

	if (!box)
		return r;
	r = sbx_box_attach(box, sandbox);
	if (r < 0) {
		sbx_box_unref(&box->pub);
		return r;
	}
	pthread_mutex_lock(&reg->lock);
	box->pub.number = reg->next_number++;
	box->pub.state = SBX_BOX_READY;
	r = sbx_registry_taken(reg, sandbox->name) ? -EEXIST : sbx_registry_insert(reg, box);
	pthread_mutex_unlock(&reg->lock);
	if (r < 0) {
		sbx_box_detach(box);
		sbx_box_unref(&box->pub);
		return r;
	}
	return 0;
}

/* [loop] */
static void arm_all(void *data)
{
	struct sbx_registry *reg = data;

	pthread_mutex_lock(&reg->lock);
	for (size_t i = 0; i < reg->n; i++)
		if (reg->boxes[i]->pub.state == SBX_BOX_READY)
			sbx_box_arm_lifetime(reg->boxes[i], 0);
	sbx_registry_posted(reg);
}

/* [loop] */
static void remove_all(void *data)
{
	struct sbx_registry *reg = data;
	struct box *box;

	pthread_mutex_lock(&reg->lock);
	box = reg->retired;
	pthread_mutex_unlock(&reg->lock);
	/* Who is in the list stays there until this thread has taken it out. */
	for (; box; box = box->next)
		sbx_box_remove(box);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_posted(reg);
}

static int take_leaving(struct sbx_registry *reg, struct sbx_sandbox *sandbox)
{
	struct box *box = sbx_box_new(reg, sandbox->name);
	int r = box ? sbx_box_attach(box, sandbox) : -ENOMEM;

	if (r < 0) {
		if (box)
			sbx_box_unref(&box->pub);
		return r;
	}
	pthread_mutex_lock(&reg->lock);
	box->pub.number = reg->next_number++;
	box->pub.state = SBX_BOX_RETIRED;
	box->pub.retired = box->taken_down = box->idle_removal = true;
	box->stop_ns = sbx_now_ns();
	box->next = reg->retired;
	reg->retired = box;
	pthread_mutex_unlock(&reg->lock);
	sbx_events_close(box->pub.events);
	return 0;
}

static void leaving(struct sbx_sandbox *sandbox, void *data)
{
	struct finding *f = data;

	/* Its record stays, for the next mount. */
	if (take_leaving(f->reg, sandbox) < 0)
		sbx_sandbox_close(sandbox);
}

static void found(struct sbx_sandbox *sandbox, void *data)
{
	struct finding *f = data;
	char text[256];
	int r = adopt(f->reg, sandbox);

	if (r < 0) {
		snprintf(text, sizeof(text), "%s could not be taken up: %s", sandbox->name,
		         strerror(-r));
		sbx_events_add(f->reg->events, "recovery", sandbox->name, text);
		sbx_sandbox_close(sandbox);
		f->code = r;
	}
}

static void note(const char *text, void *data)
{
	struct finding *f = data;

	sbx_events_add(f->reg->events, "recovery", NULL, text);
}

int sbx_registry_recover(struct sbx_registry *reg, struct sbx_error *err)
{
	struct finding f = {.reg = reg};
	struct sbx_recover rec = {.found = found, .note = note, .leaving = leaving, .data = &f};
	int r = sbx_backend_recover(reg->config.backend, &rec, err);

	if (r >= 0 && reg->config.settings->state_dir)
		registry_sweep(reg);
	if (r >= 0 && f.code < 0)
		r = sbx_fail(err, -f.code, "a sandbox of the last mount could not be taken up: %s",
		             strerror(-f.code));
	return r;
}

/* Nobody else has the boxes before the first post. */
void sbx_registry_resume(struct sbx_registry *reg)
{
	for (size_t i = 0; i < reg->n; i++)
		sbx_away_begin(reg->boxes[i]->pub.sandbox);
	for (struct box *box = reg->retired; box; box = box->next)
		sbx_away_begin(box->pub.sandbox);
	sbx_backend_begin(reg->config.backend);
	pthread_mutex_lock(&reg->lock);
	if (reg->config.settings->run_timeout_ms)
		sbx_registry_post(reg, arm_all);
	if (reg->retired)
		sbx_registry_post(reg, remove_all);
	pthread_mutex_unlock(&reg->lock);
}

/* The next box that still has to be seen to, which is marked as seen; the lock is held. */
static struct box *next_open(struct sbx_registry *reg)
{
	for (size_t i = 0; i < reg->n; i++) {
		struct box *box = reg->boxes[i];

		if (box->pub.state != SBX_BOX_READY || box->shut)
			continue;
		box->shut = true;
		sbx_box_ref(&box->pub);
		sbx_box_cancel_works(box);
		if (reg->config.settings->ephemeral)
			sbx_box_stop_begin(box);
		else
			sbx_registry_begin(reg);
		return box;
	}
	return NULL;
}

/* For what a sandbox elsewhere has not sent; the next mount sends the rest. */
#define REST_MS 20000

/* [pool] */
static void rest_work(void *data)
{
	struct box *box = data;

	pthread_mutex_lock(&box->backend_lock);
	if (!box->taken_down)
		box->pub.sandbox->impl->away->rest(box->pub.sandbox, REST_MS);
	pthread_mutex_unlock(&box->backend_lock);
	sbx_loop_post(box->pub.registry->config.loop, sbx_box_left, box);
}

/* [loop] Its jobs have ended. */
static void jobs_shut(void *data)
{
	struct box *box = data;

	if (sbx_is_away(box->pub.sandbox))
		sbx_pool_submit(box->pub.registry->config.lane, rest_work, box);
	else
		sbx_box_left(box);
}

static void shut(struct sbx_registry *reg, struct box *box)
{
	if (reg->config.settings->ephemeral) {
		sbx_box_stop(box);
		sbx_box_unref(&box->pub);
	} else {
		sbx_jobs_shutdown(box->pub.jobs, jobs_shut, box);
	}
}

/* One whose removal has failed and is to be tried once more; the lock is held. */
static struct box *next_unremoved(struct sbx_registry *reg)
{
	for (struct box *box = reg->retired; box; box = box->next)
		if (sbx_box_begin_last_removal(box))
			return box;
	return NULL;
}

/* [loop] */
static void end_awaits(void *data)
{
	struct sbx_registry *reg = data;

	sbx_awaits_end(reg, NULL);
	pthread_mutex_lock(&reg->lock);
	sbx_registry_posted(reg);
}

/* For what is removed elsewhere. With ephemeral perhaps no mount ever follows. */
#define LEAVE_MS           5000
#define LEAVE_EPHEMERAL_MS 20000

static void leave(struct box *box)
{
	if (box->pub.state != SBX_BOX_CREATING && sbx_is_away(box->pub.sandbox))
		box->pub.sandbox->impl->away->leave(box->pub.sandbox);
}

/* The lock is held. */
static void leave_removals(struct sbx_registry *reg)
{
	for (size_t i = 0; i < reg->n; i++)
		if (reg->boxes[i]->pub.state == SBX_BOX_STOPPING)
			leave(reg->boxes[i]);
	for (struct box *box = reg->retired; box; box = box->next)
		leave(box);
}

/* Waits until nothing is under way. The lock is held, but not while it waits. */
static void wait_idle(struct sbx_registry *reg, const struct timespec *until)
{
	if (pthread_cond_timedwait(&reg->idle, &reg->lock, until) == ETIMEDOUT) {
		leave_removals(reg);
		while (reg->inflight)
			pthread_cond_wait(&reg->idle, &reg->lock);
	}
}

void sbx_registry_shutdown(struct sbx_registry *reg)
{
	const int64_t ms = reg->config.settings->ephemeral ? LEAVE_EPHEMERAL_MS : LEAVE_MS;
	const struct timespec until = sbx_clock_after(CLOCK_REALTIME, ms * 1000000);

	pthread_mutex_lock(&reg->lock);
	reg->closing = true;
	sbx_registry_post(reg, end_awaits);
	for (size_t i = 0; i < reg->n; i++)
		if (reg->boxes[i]->creation)
			atomic_store(&reg->boxes[i]->creation->cancelled, true);
	for (size_t i = 0; i < reg->n; i++) {
		sbx_box_cancel_pushes(reg->boxes[i]);
		sbx_box_hurry(reg->boxes[i]);
	}
	for (;;) {
		struct box *box = next_open(reg);

		if (box) {
			pthread_mutex_unlock(&reg->lock);
			shut(reg, box);
			pthread_mutex_lock(&reg->lock);
		} else if (reg->inflight) {
			wait_idle(reg, &until);
		} else if ((box = next_unremoved(reg))) {
			/* Nothing runs any more that may have been in its way. */
			pthread_mutex_unlock(&reg->lock);
			sbx_box_last_removal(box);
			pthread_mutex_lock(&reg->lock);
		} else {
			break;
		}
	}
	pthread_mutex_unlock(&reg->lock);
	sbx_registry_save_all(reg);
	sbx_egress_close(reg->egress);
	sbx_pusher_destroy(reg->pusher);
	reg->pusher = NULL;
}
