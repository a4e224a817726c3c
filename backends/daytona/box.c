/*
 * A sandbox as the control plane shows it. What it says of one's state may be old by then, and
 * states may come that nobody has heard of: those pass.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/daytona/daytona_impl.h"
#include "backends/support/pause.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define PAUSE_MOST 10 /* times the least */
#define WAKES_MAX  5
#define WAKE_MS    120000

/* ---- reading ---- */

static const struct {
	const char *word;
	enum sbx_machine_state state;
} states[] = {
        {"started", SBX_MACHINE_UP},      {"stopped", SBX_MACHINE_ASLEEP},
        {"archived", SBX_MACHINE_ASLEEP}, {"paused", SBX_MACHINE_ASLEEP},
        {"error", SBX_MACHINE_FAILED},    {"build_failed", SBX_MACHINE_FAILED},
        {"destroyed", SBX_MACHINE_GONE},  {"destroying", SBX_MACHINE_GONE},
};

static enum sbx_machine_state state_of(const char *word)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(states); i++)
		if (strcmp(states[i].word, word) == 0)
			return states[i].state;
	return SBX_MACHINE_CHANGING;
}

/* 2026-06-24T10:11:12.123Z; 0: it is none. */
static int64_t time_ms(const char *text)
{
	struct tm tm = {0};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	double part = rest && *rest == '.' ? strtod(rest, NULL) : 0;

	return rest ? (int64_t)timegm(&tm) * 1000 + (int64_t)(part * 1000) : 0;
}

/* When it stops, or is removed, if nobody uses it. */
static int64_t expires_ms(struct json_object *obj)
{
	const double idle = daytona_number(obj, "autoStopInterval");
	const int64_t used = time_ms(daytona_text(obj, "lastActivityAt"));
	const int64_t removed = time_ms(daytona_text(obj, "autoDestroyAt"));
	const int64_t stops = used && idle > 0 && idle < 1e7 ? used + (int64_t)(idle * 60000) : 0;

	return removed && (!stops || removed < stops) ? removed : stops;
}

/* Copies a word that goes into paths and URLs; false: it is none. */
static bool copy_word(char *to, size_t size, const char *from)
{
	const size_t n = strlen(from);

	if (!n || n >= size ||
	    strspn(from, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                 "0123456789-_.") != n ||
	    *from == '.')
		return false;
	memcpy(to, from, n + 1);
	return true;
}

static uint64_t mb_of_gb(double gb)
{
	return gb > 0 && gb < 1e9 ? (uint64_t)(gb * 1024) : 0;
}

/* The daemons whose source is known, up to 0.190, check out the branch that they make. */
static bool checks_out(const char *version)
{
	unsigned major, minor;

	return sscanf(version, "v%u.%u", &major, &minor) == 2 && major == 0 && minor <= 190;
}

int daytona_box_read(struct json_object *obj, struct daytona_box *ret, struct sbx_error *err)
{
	struct json_object *labels = daytona_member(obj, "labels", json_type_object);
	struct sbx_machine_look *look = &ret->look;

	*ret = (struct daytona_box){0};
	if (!copy_word(ret->id, sizeof(ret->id), daytona_text(obj, "id")))
		return sbx_fail(err, EPROTO, "an answer of Daytona shows no sandbox");
	if (!copy_word(ret->name, sizeof(ret->name), daytona_text(obj, "name")))
		memcpy(ret->name, ret->id, sizeof(ret->id));
	snprintf(ret->label, sizeof(ret->label), "%s", daytona_text(labels, DAYTONA_LABEL));
	snprintf(ret->toolbox, sizeof(ret->toolbox), "%s", daytona_text(obj, "toolboxProxyUrl"));
	ret->checks_out = checks_out(daytona_text(obj, "daemonVersion"));
	ret->made_ms = time_ms(daytona_text(obj, "createdAt"));
	look->state = state_of(daytona_text(obj, "state"));
	if (strcmp(daytona_text(obj, "desiredState"), "destroyed") == 0)
		look->state = SBX_MACHINE_GONE;
	snprintf(look->reason, sizeof(look->reason), "%.*s", (int)sizeof(look->reason) - 1,
	         daytona_text(obj, "errorReason"));
	look->cpus = daytona_number(obj, "cpu");
	look->memory_mb = mb_of_gb(daytona_number(obj, "memory"));
	look->disk_mb = mb_of_gb(daytona_number(obj, "disk"));
	snprintf(look->region, sizeof(look->region), "%.*s", (int)sizeof(look->region) - 1,
	         daytona_text(obj, "target"));
	look->expires_ms = expires_ms(obj);
	return 0;
}

int daytona_box_look(struct daytona *d, const char *word, struct daytona_box *ret,
                     atomic_bool *cancelled, struct sbx_error *err)
{
	const struct daytona_ask ask = {.op = "daytona_look",
	                                .method = "GET",
	                                .base = d->config.api_url,
	                                .repeat = SBX_HTTP_SAFE};
	struct sbx_error own = SBX_ERROR_INIT;
	struct json_object *obj = NULL;
	long status;
	int r = daytona_askf(d, ask, cancelled, &status, &obj, &own, "/sandbox/%s", word);

	if (status == 404) {
		*ret = (struct daytona_box){.look.state = SBX_MACHINE_GONE};
		return 0;
	}
	if (!r)
		r = daytona_box_read(obj, ret, &own);
	if (!r)
		ret->net_is = daytona_net_is(&d->net, obj);
	json_object_put(obj);
	if (r && err)
		*err = own;
	return r;
}

/* ---- waiting ---- */

static int gone(struct sbx_error *err)
{
	return sbx_fail(err, ESTALE, "the sandbox is no more at Daytona");
}

/*
 * A start that is refused, because its state is another by now, is no failure: the next look says
 * what it has become.
 */
static int start(struct daytona *d, struct daytona_box *box, atomic_bool *cancelled,
                 struct sbx_error *err)
{
	const struct daytona_ask ask = {.op = "daytona_start",
	                                .method = "POST",
	                                .base = d->config.api_url,
	                                .deadline_ms = 2 * d->config.ask_ms, /* 30 s are held */
	                                .repeat = SBX_HTTP_SAFE};
	struct json_object *obj = NULL;
	long status;
	int r = daytona_askf(d, ask, cancelled, &status, &obj, err, "/sandbox/%s/start", box->id);

	if (!r)
		r = daytona_box_read(obj, box, err);
	json_object_put(obj);
	return status == 400 || status == 404 || status == 409 ? 0 : r;
}

struct wait {
	struct daytona *d;
	struct daytona_box *box;
	unsigned wakes;
	atomic_bool *cancelled;
};

/* What is shown may be behind. */
static int wake(struct wait *w, struct sbx_error *err)
{
	if (w->wakes++ == WAKES_MAX)
		return sbx_fail(err, EREMOTEIO, "Daytona does not wake the sandbox");
	return start(w->d, w->box, w->cancelled, err);
}

/* 1: it is up; 0: not yet. */
static int step(struct wait *w, struct sbx_error *err)
{
	switch (w->box->look.state) {
	case SBX_MACHINE_UP:
		return 1;
	case SBX_MACHINE_GONE:
		return gone(err);
	case SBX_MACHINE_FAILED:
		return sbx_fail(err, EREMOTEIO, "the sandbox has failed at Daytona: %s",
		                *w->box->look.reason ? w->box->look.reason : "no reason is said");
	case SBX_MACHINE_ASLEEP:
		return wake(w, err);
	case SBX_MACHINE_CHANGING:
		break;
	}
	return 0;
}

int daytona_box_await(struct daytona *d, struct daytona_box *box, uint64_t most_ms,
                      atomic_bool *cancelled, struct sbx_error *err)
{
	struct wait w = {d, box, 0, cancelled};
	const uint64_t until_ms = sbx_now_ms() + most_ms;
	_cleanup_free_ char *id = strdup(box->id);
	uint64_t pause_ms = d->config.pause_ms;
	int r;

	if (!id)
		return sbx_no_memory(err);
	while (!(r = step(&w, err)) && box->look.state != SBX_MACHINE_UP) {
		if (sbx_now_ms() > until_ms)
			return sbx_fail(err, ETIMEDOUT,
			                "Daytona has not started the sandbox within %llu s",
			                (unsigned long long)most_ms / 1000);
		r = sbx_pause(pause_ms, cancelled, err);
		if (!r)
			r = daytona_box_look(d, id, box, cancelled, err);
		if (r)
			return r;
		pause_ms += pause_ms / 4;
		if (pause_ms > PAUSE_MOST * d->config.pause_ms)
			pause_ms = PAUSE_MOST * d->config.pause_ms;
	}
	return r < 0 ? r : 0;
}

/* ---- refusals of the toolbox ---- */

bool daytona_maybe_down(long status)
{
	return status == 400 || status == 401 || status == 404 || status == 502;
}

/* 401 also comes for a sandbox that is no more, 400 for one that sleeps: the control plane knows.
 */
static int recover(struct daytona_machine *m, long *status, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	struct daytona *d = daytona_of(m->base.provider);
	struct sbx_error own = SBX_ERROR_INIT;
	struct daytona_box box;
	int r = daytona_box_look(d, m->id, &box, cancelled, &own);

	if (!r && box.look.state == SBX_MACHINE_UP)
		return -err->code;
	if (!r)
		r = daytona_box_await(d, &box, WAKE_MS, cancelled, &own);
	if (r) {
		*err = own;
		*status = 0;
	} else {
		m->woken_ms = sbx_now_ms();
	}
	return r;
}

static int look_after(struct daytona_machine *m, atomic_bool *cancelled, struct sbx_error *err)
{
	const uint64_t pause_ms = daytona_of(m->base.provider)->config.pause_ms;
	int r = 0;

	while (!r && atomic_exchange(&m->looked_after, true))
		r = sbx_pause(pause_ms, cancelled, err);
	return r;
}

static int renew(struct daytona_machine *m, atomic_bool *cancelled, struct sbx_error *err)
{
	struct daytona *d = daytona_of(m->base.provider);
	struct daytona_box box;
	int r;

	if (!atomic_load(&m->net_unsure))
		return 0;
	r = daytona_box_look(d, m->id, &box, cancelled, err);
	if (!r)
		r = daytona_box_await(d, &box, WAKE_MS, cancelled, err);
	if (!r && !box.net_is)
		r = daytona_net_set(d, m->id, cancelled, err);
	if (!r)
		atomic_store(&m->net_unsure, false);
	return r;
}

int daytona_box_renew(struct daytona_machine *m, atomic_bool *cancelled, struct sbx_error *err)
{
	int r = look_after(m, cancelled, err);

	if (r)
		return r;
	r = renew(m, cancelled, err);
	atomic_store(&m->looked_after, false);
	return r;
}

/* Of all whom it does not answer one looks after it; the others find it up. */
int daytona_box_recover(struct daytona_machine *m, uint64_t begun_ms, long *status,
                        atomic_bool *cancelled, struct sbx_error *err)
{
	int r;

	if (!daytona_maybe_down(*status))
		return -err->code;
	r = look_after(m, cancelled, err);
	if (r) {
		*status = 0;
		return r;
	}
	r = m->woken_ms >= begun_ms ? 0 : recover(m, status, cancelled, err);
	atomic_store(&m->looked_after, false);
	return r;
}

int daytona_ask_toolbox(struct daytona_machine *m, const struct daytona_ask *ask,
                        atomic_bool *cancelled, long *status, struct json_object **ret,
                        struct sbx_error *err)
{
	struct daytona *d = daytona_of(m->base.provider);
	struct daytona_ask own = *ask;
	const uint64_t begun_ms = sbx_now_ms();
	int r;

	own.base = m->toolbox;
	own.hidden = d->config.git_token;
	r = daytona_ask(d, &own, cancelled, status, ret, err);
	if (!r || !*status)
		return r;
	r = daytona_box_recover(m, begun_ms, status, cancelled, err);
	if (r)
		return r;
	*err = SBX_ERROR_INIT;
	return daytona_ask(d, &own, cancelled, status, ret, err);
}
