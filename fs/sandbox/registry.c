/*
 * The registry: boxes in an array sorted by name (a mount has tens of them, seldom
 * thousands, and readdir wants them in order), and their references. A box that nobody holds
 * any more is freed on the loop thread, where its jobs and events live.
 */
#include "fs/sandbox/registry.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log/events.h"
#include "fs/sandbox/push.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

static struct box *box_of(struct sbx_box *box)
{
	return sbx_container_of(box, struct box, pub);
}

void *sbx_must_alloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		abort();
	return p;
}

void sbx_error_complete(struct sbx_error *err, int code, const char *what, const char *name)
{
	if (code < 0 && !err->code)
		sbx_fail(err, -code, "%s %s failed: %s", what, name, strerror(-code));
}

int sbx_registry_create(const struct sbx_registry_config *config, struct sbx_registry **ret)
{
	const char *hosts = sbx_settings_hosts(config->settings);
	struct sbx_registry *reg = calloc(1, sizeof(*reg));
	int r;

	if (!reg)
		return -ENOMEM;
	reg->config = *config;
	reg->next_number = 1;
	reg->time_ms = sbx_real_ms();
	r = sbx_events_create(config->loop, &reg->events);
	if (r >= 0 && hosts)
		r = sbx_egress_create(hosts, config->loop, config->lane, &reg->egress, NULL);
	if (r >= 0)
		r = sbx_pusher_create(config->http, config->github_token, config->github_api,
		                      &reg->pusher);
	if (r < 0) {
		sbx_egress_destroy(reg->egress);
		sbx_events_destroy(reg->events);
		free(reg);
		return r;
	}
	pthread_mutex_init(&reg->lock, NULL);
	pthread_cond_init(&reg->idle, NULL);
	*ret = reg;
	return 0;
}

static void registry_free(struct sbx_registry *reg)
{
	assert(reg->stopped && !reg->posts && !reg->inflight);
	sbx_egress_destroy(reg->egress);
	sbx_pusher_destroy(reg->pusher);
	pthread_cond_destroy(&reg->idle);
	pthread_mutex_destroy(&reg->lock);
	free(reg);
}

/* Boxes */

static void box_free(struct box *box)
{
	assert(!box->pub.refs && !box->works);
	assert(!box->creation && !box->new_name && !box->pushes);
	assert(!box->syncs.now && !box->saves.now);
	sbx_jobs_destroy(box->pub.jobs);
	sbx_proxy_destroy(box->pub.proxy);
	sbx_denials_destroy(box->pub.denials);
	sbx_events_destroy(box->pub.events);
	sbx_log_close(box->pub.log);
	sbx_sandbox_close(box->pub.sandbox);
	pthread_mutex_destroy(&box->pub.root_lock);
	pthread_mutex_destroy(&box->pub.defaults_lock);
	pthread_mutex_destroy(&box->backend_lock);
	free(box->pub.name);
	free(box->push_result);
	free(box);
}

void sbx_registry_post(struct sbx_registry *reg, void (*fn)(void *data))
{
	reg->posts++;
	sbx_loop_post(reg->config.loop, fn, reg);
}

void sbx_registry_posted(struct sbx_registry *reg)
{
	bool last;

	assert(reg->posts > 0);
	last = !--reg->posts && reg->stopped;
	pthread_mutex_unlock(&reg->lock);
	if (last)
		registry_free(reg);
}

static void reap(void *data)
{
	struct sbx_registry *reg = data;
	struct box *box, *next;

	pthread_mutex_lock(&reg->lock);
	box = reg->doomed;
	reg->doomed = NULL;
	pthread_mutex_unlock(&reg->lock);
	for (; box; box = next) {
		next = box->next;
		box_free(box);
	}
	pthread_mutex_lock(&reg->lock);
	sbx_registry_posted(reg);
}

static void doom(struct box *box)
{
	struct sbx_registry *reg = box->pub.registry;

	pthread_mutex_lock(&reg->lock);
	if (!reg->doomed && !reg->stopped)
		sbx_registry_post(reg, reap);
	box->next = reg->doomed;
	reg->doomed = box;
	pthread_mutex_unlock(&reg->lock);
}

struct box *sbx_box_new(struct sbx_registry *reg, const char *name)
{
	struct box *box = calloc(1, sizeof(*box));

	if (!box)
		return NULL;
	box->pub.name = strdup(name);
	if (!box->pub.name) {
		free(box);
		return NULL;
	}
	box->pub.registry = reg;
	box->pub.state = SBX_BOX_CREATING;
	box->pub.refs = 1;
	pthread_mutex_init(&box->pub.root_lock, NULL);
	pthread_mutex_init(&box->pub.defaults_lock, NULL);
	pthread_mutex_init(&box->backend_lock, NULL);
	return box;
}

struct sbx_box *sbx_box_ref(struct sbx_box *box)
{
	assert(__atomic_load_n(&box->refs, __ATOMIC_RELAXED) > 0);
	__atomic_add_fetch(&box->refs, 1, __ATOMIC_RELAXED);
	return box;
}

void sbx_box_unref(struct sbx_box *box)
{
	assert(!box || __atomic_load_n(&box->refs, __ATOMIC_RELAXED) > 0);
	if (box && !__atomic_sub_fetch(&box->refs, 1, __ATOMIC_ACQ_REL))
		doom(box_of(box));
}

void sbx_box_name(struct sbx_box *box, char buf[64])
{
	pthread_mutex_lock(&box->registry->lock);
	snprintf(buf, 64, "%s", box->name);
	pthread_mutex_unlock(&box->registry->lock);
}

bool sbx_box_alive(struct sbx_box *box)
{
	return !__atomic_load_n(&box->retired, __ATOMIC_ACQUIRE);
}

int sbx_box_root(struct sbx_box *box)
{
	int fd = -ESTALE;

	pthread_mutex_lock(&box->root_lock);
	if (!box->retired) {
		fd = fcntl(sbx_sandbox_root(box->sandbox), F_DUPFD_CLOEXEC, 3);
		fd = fd < 0 ? -errno : fd;
	}
	pthread_mutex_unlock(&box->root_lock);
	return fd;
}

/* The array; the lock is held */

struct box *sbx_registry_locate(struct sbx_registry *reg, const char *name, size_t *at)
{
	size_t lo = 0, hi = reg->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(name, reg->boxes[mid]->pub.name);

		if (c == 0) {
			if (at)
				*at = mid;
			return reg->boxes[mid];
		}
		if (c > 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (at)
		*at = lo;
	return NULL;
}

bool sbx_registry_taken(struct sbx_registry *reg, const char *name)
{
	if (sbx_registry_locate(reg, name, NULL))
		return true;
	for (size_t i = 0; i < reg->n; i++)
		if (reg->boxes[i]->new_name && strcmp(reg->boxes[i]->new_name, name) == 0)
			return true;
	return false;
}

int sbx_registry_insert(struct sbx_registry *reg, struct box *box)
{
	size_t at;

	assert(!sbx_registry_locate(reg, box->pub.name, NULL));
	if (SBX_GROW(reg->boxes, reg->n, reg->cap, 16))
		return -ENOMEM;
	sbx_registry_locate(reg, box->pub.name, &at);
	memmove(&reg->boxes[at + 1], &reg->boxes[at], (reg->n - at) * sizeof(struct box *));
	reg->boxes[at] = box;
	reg->n++;
	return 0;
}

void sbx_registry_drop(struct sbx_registry *reg, struct box *box)
{
	size_t at;

	if (sbx_registry_locate(reg, box->pub.name, &at) != box)
		return;
	reg->n--;
	memmove(&reg->boxes[at], &reg->boxes[at + 1], (reg->n - at) * sizeof(struct box *));
}

void sbx_registry_shown(struct sbx_registry *reg)
{
	if (reg->config.observer)
		reg->config.observer->shown(reg->config.observer_data);
}

void sbx_registry_begin(struct sbx_registry *reg)
{
	assert(!reg->stopped);
	reg->inflight++;
}

void sbx_registry_end(struct sbx_registry *reg)
{
	assert(reg->inflight > 0);
	if (!--reg->inflight)
		pthread_cond_broadcast(&reg->idle);
}

void sbx_box_left(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;

	pthread_mutex_lock(&reg->lock);
	sbx_registry_end(reg);
	pthread_mutex_unlock(&reg->lock);
	sbx_box_unref(&box->pub);
}

/* Finding */

struct sbx_box *sbx_registry_find(struct sbx_registry *reg, const char *name)
{
	struct sbx_box *found = NULL;
	struct box *box;

	pthread_mutex_lock(&reg->lock);
	box = sbx_registry_locate(reg, name, NULL);
	if (box && box->pub.state != SBX_BOX_CREATING)
		found = sbx_box_ref(&box->pub);
	pthread_mutex_unlock(&reg->lock);
	return found;
}

struct sbx_box *sbx_registry_find_number(struct sbx_registry *reg, uint64_t number)
{
	struct sbx_box *found = NULL;

	pthread_mutex_lock(&reg->lock);
	for (size_t i = 0; i < reg->n && !found; i++) {
		struct sbx_box *box = &reg->boxes[i]->pub;

		if (box->number == number && box->state != SBX_BOX_CREATING)
			found = sbx_box_ref(box);
	}
	pthread_mutex_unlock(&reg->lock);
	return found;
}

void sbx_registry_walk(struct sbx_registry *reg, void (*fn)(struct sbx_box *box, void *data),
                       void *data)
{
	pthread_mutex_lock(&reg->lock);
	for (size_t i = 0; i < reg->n; i++)
		if (reg->boxes[i]->pub.state != SBX_BOX_CREATING)
			fn(&reg->boxes[i]->pub, data);
	pthread_mutex_unlock(&reg->lock);
}

/* Errors and events */

void sbx_error_store(struct sbx_registry *reg, struct sbx_box *box, const struct sbx_error *err)
{
	if (!err->code)
		return;
	pthread_mutex_lock(&reg->lock);
	*(box ? &box_of(box)->error : &reg->error) = *err;
	pthread_mutex_unlock(&reg->lock);
}

void sbx_error_fetch(struct sbx_registry *reg, struct sbx_box *box, struct sbx_error *ret)
{
	pthread_mutex_lock(&reg->lock);
	*ret = *(box ? &box_of(box)->error : &reg->error);
	pthread_mutex_unlock(&reg->lock);
}

void sbx_box_event(struct sbx_registry *reg, struct box *box, const char *event, const char *text)
{
	char name[64];

	if (box)
		sbx_box_name(&box->pub, name);
	if (box && box->pub.events)
		sbx_events_add_both(box->pub.events, reg->events, event, name, text);
	else
		sbx_events_add(reg->events, event, box ? name : NULL, text);
}

const struct sbx_settings *sbx_registry_settings(struct sbx_registry *reg)
{
	return reg->config.settings;
}

struct sbx_loop *sbx_registry_loop(struct sbx_registry *reg)
{
	return reg->config.loop;
}

struct sbx_pool *sbx_registry_lane(struct sbx_registry *reg)
{
	return reg->config.lane;
}

struct sbx_events *sbx_registry_events(struct sbx_registry *reg)
{
	return reg->events;
}

int64_t sbx_registry_time_ms(struct sbx_registry *reg)
{
	return reg->time_ms;
}

void sbx_registry_destroy(struct sbx_registry *reg)
{
	struct box *box, *next;
	bool last;

	if (!reg)
		return;
	pthread_mutex_lock(&reg->lock);
	reg->stopped = true;
	pthread_mutex_unlock(&reg->lock);
	for (size_t i = 0; i < reg->n; i++)
		sbx_box_unref(&reg->boxes[i]->pub);
	free(reg->boxes);
	reg->n = 0;
	for (box = reg->retired; box; box = next) {
		next = box->next;
		sbx_box_unref(&box->pub);
	}
	for (box = reg->doomed; box; box = next) {
		next = box->next;
		box_free(box);
	}
	reg->doomed = NULL;
	sbx_events_destroy(reg->events);
	pthread_mutex_lock(&reg->lock);
	last = !reg->posts;
	pthread_mutex_unlock(&reg->lock);
	if (last)
		registry_free(reg);
}
