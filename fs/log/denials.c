/*
 * Each kind has a second of its own that begins with its first denial. Lines are told on the thread
 * that brings the denial; the loop's timer only tells the numbers, once nothing else does.
 */
#include "fs/log/denials.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/util/utf8.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"

#define TOLD_MAX  10
#define PERIOD_MS 1000

struct window {
	uint64_t begun_ns;
	unsigned told;
	uint64_t more;
};

struct sbx_denials {
	atomic_int refs; /* the owner's, and one while the timer is on its way or armed */
	struct sbx_loop *loop;
	sbx_denials_tell tell;
	void *data;
	struct sbx_timer timer; /* loop thread */
	pthread_mutex_t lock;   /* all below */
	struct window windows[SBX_DENIED_KINDS];
	bool timed, ended;
};

static const char *const words[SBX_DENIED_KINDS] = {"path", "program", "syscall", "host",
                                                    "network"};

static void unref(struct sbx_denials *d)
{
	if (atomic_fetch_sub(&d->refs, 1) > 1)
		return;
	assert(!d->timer.due_ns);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static void add_text(struct json_object *obj, const char *key, const char *text)
{
	if (text && *text)
		json_object_object_add(obj, key, sbx_text_json(text, strlen(text)));
}

static void tell_number(struct sbx_denials *d, enum sbx_denied_kind kind, uint64_t more)
{
	struct json_object *obj;
	char text[64];

	if (!more)
		return;
	obj = json_object_new_object();
	snprintf(text, sizeof(text), "%s: %" PRIu64 " more suppressed", words[kind], more);
	add_text(obj, "kind", words[kind]);
	json_object_object_add(obj, "suppressed", json_object_new_uint64(more));
	d->tell(obj, text, d->data);
	json_object_put(obj);
}

static void tell_one(struct sbx_denials *d, const struct sbx_denial_report *denied)
{
	struct json_object *obj = json_object_new_object();
	char text[1400];
	int n;

	add_text(obj, "kind", words[denied->kind]);
	add_text(obj, "what", denied->what);
	add_text(obj, "class", denied->class);
	add_text(obj, "program", denied->program);
	add_text(obj, "reason", denied->reason);
	add_text(obj, "job", denied->job);
	n = snprintf(text, sizeof(text), "%s: %s", words[denied->kind], denied->what);
	if (n < (int)sizeof(text) && denied->program && *denied->program)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " by %s", denied->program);
	if (n < (int)sizeof(text) && denied->reason)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ": %s", denied->reason);
	if (n < (int)sizeof(text) && denied->job)
		snprintf(text + n, sizeof(text) - (size_t)n, " job=%s", denied->job);
	d->tell(obj, text, d->data);
	json_object_put(obj);
}

static void tell_numbers(struct sbx_denials *d)
{
	uint64_t more[SBX_DENIED_KINDS];

	pthread_mutex_lock(&d->lock);
	for (int i = 0; i < SBX_DENIED_KINDS; i++) {
		more[i] = d->windows[i].more;
		d->windows[i].more = 0;
	}
	d->timed = false;
	pthread_mutex_unlock(&d->lock);
	for (int i = 0; i < SBX_DENIED_KINDS; i++)
		tell_number(d, i, more[i]);
}

static void on_timer(struct sbx_timer *t)
{
	struct sbx_denials *d = t->data;

	tell_numbers(d);
	unref(d);
}

static void arm(void *data)
{
	struct sbx_denials *d = data;
	bool ended;

	pthread_mutex_lock(&d->lock);
	ended = d->ended;
	pthread_mutex_unlock(&d->lock);
	if (ended)
		unref(d);
	else
		sbx_loop_timer_set(d->loop, &d->timer, PERIOD_MS);
}

int sbx_denials_create(struct sbx_loop *loop, sbx_denials_tell tell, void *data,
                       struct sbx_denials **ret)
{
	struct sbx_denials *d = calloc(1, sizeof(*d));

	assert(tell);
	if (!d)
		return -ENOMEM;
	atomic_init(&d->refs, 1);
	d->loop = loop;
	d->tell = tell;
	d->data = data;
	d->timer = (struct sbx_timer){.fn = on_timer, .data = d};
	pthread_mutex_init(&d->lock, NULL);
	*ret = d;
	return 0;
}

void sbx_denials_destroy(struct sbx_denials *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->ended = true;
	pthread_mutex_unlock(&d->lock);
	if (d->timer.due_ns) {
		sbx_loop_timer_cancel(d->loop, &d->timer);
		unref(d);
	}
	unref(d);
}

/* Whether DENIED is to be told; *before is the number that is owed first. Lock held. */
static bool admit(struct sbx_denials *d, const struct sbx_denial_report *denied, uint64_t *before)
{
	struct window *w = &d->windows[denied->kind];
	uint64_t now = sbx_now_ns();

	assert(denied->kind < SBX_DENIED_KINDS);
	*before = 0;
	if (!w->begun_ns || now - w->begun_ns >= PERIOD_MS * UINT64_C(1000000)) {
		*before = w->more;
		*w = (struct window){.begun_ns = now};
	}
	w->more += denied->more;
	if (!denied->what)
		return false;
	if (w->told < TOLD_MAX) {
		w->told++;
		return true;
	}
	w->more++;
	return false;
}

void sbx_denials_add(struct sbx_denials *d, const struct sbx_denial_report *denied)
{
	uint64_t before;
	bool told, post;

	pthread_mutex_lock(&d->lock);
	told = admit(d, denied, &before);
	post = d->windows[denied->kind].more && !d->timed;
	if (post) {
		d->timed = true;
		atomic_fetch_add(&d->refs, 1);
	}
	pthread_mutex_unlock(&d->lock);
	if (post)
		sbx_loop_post(d->loop, arm, d);
	tell_number(d, denied->kind, before);
	if (told)
		tell_one(d, denied);
}
