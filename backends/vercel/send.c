/*
 * Requests that nobody waits for in a thread. All but what begins them happens on the loop: a
 * session is woken where it is asleep, its network set where it is another, its life made longer
 * where it would end meanwhile; then comes what was to be sent.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define WAKE_MS   60000 /* a whole waking */
#define MARGIN_MS 10000 /* that a session lives longer than what is asked of it */

static void choose(struct vercel_send *s);

static struct vercel *provider_of(const struct vercel_send *s)
{
	return vercel_of(s->m->base.provider);
}

/* ---- the end ---- */

static void end(struct vercel_send *s)
{
	sbx_http_answer_release(&s->answer);
	free(s->url);
	free(s->body);
	s->url = s->body = NULL;
	s->ended(s);
}

static void fail(struct vercel_send *s, int code, const char *text)
{
	s->code = sbx_fail(&s->err, code, "%s", text);
	end(s);
}

static bool is_given_up(struct vercel_send *s)
{
	if (!atomic_load(&s->given_up))
		return false;
	fail(s, EINTR, "it was given up");
	return true;
}

uint64_t vercel_send_left(const struct vercel_send *s)
{
	const uint64_t now_ms = sbx_now_ms();

	return now_ms < s->until_ms ? s->until_ms - now_ms : 0;
}

/* ---- one request ---- */

static void paused(struct sbx_timer *t)
{
	struct vercel_send *s = t->data;

	if (!is_given_up(s))
		s->then(s);
}

static void later(struct vercel_send *s, void (*then)(struct vercel_send *s))
{
	s->then = then;
	s->timer.fn = paused;
	s->timer.data = s;
	sbx_loop_timer_set(provider_of(s)->config.loop, &s->timer, provider_of(s)->config.pause_ms);
}

static void http_done(struct sbx_http_request *req, int code, struct sbx_http_answer *answer,
                      const struct sbx_error *err)
{
	struct vercel_send *s = req->data;

	pthread_mutex_lock(&s->m->lock);
	s->flying = NULL;
	pthread_mutex_unlock(&s->m->lock);
	sbx_http_answer_release(&s->answer);
	s->answer = *answer;
	*answer = (struct sbx_http_answer){0};
	s->maybe |= s->wakes && !sbx_http_not_done(code, &s->answer);
	s->code = code;
	s->err = *err;
	s->said = (struct vercel_said){0};
	if (is_given_up(s))
		return;
	if (code && s->answer.status)
		s->code = vercel_refused(provider_of(s), &s->answer, &s->said, &s->err);
	s->then(s);
}

/* Begins REQ, whose url is PATH; THEN hears of its end. */
static void fly(struct vercel_send *s, struct sbx_http_request *req, const char *path,
                const char *query, void (*then)(struct vercel_send *s))
{
	struct vercel *v = provider_of(s);
	bool given_up;

	free(s->url);
	s->url = vercel_url(v, path, query);
	if (!s->url) {
		fail(s, ENOMEM, "out of memory");
		return;
	}
	s->then = then;
	req->url = s->url;
	req->peer = "Vercel";
	req->headers = s->headers;
	req->secret = v->token.secret;
	req->done = http_done;
	req->data = s;
	pthread_mutex_lock(&s->m->lock);
	given_up = atomic_load(&s->given_up);
	s->flying = given_up ? NULL : req;
	if (!given_up)
		sbx_http_begin(v->config.http, req);
	pthread_mutex_unlock(&s->m->lock);
	if (given_up)
		is_given_up(s);
}

/* Asks for something of our own. BODY is taken over; NULL: none. */
static void ask(struct vercel_send *s, const char *op, const char *method, const char *path,
                const char *query, struct json_object *body, void (*then)(struct vercel_send *s))
{
	size_t len = 0;

	free(s->body);
	s->body = body ? strdup(sbx_object_text(body, &len)) : NULL;
	json_object_put(body);
	s->own = (struct sbx_http_request){
	        .op = op,
	        .method = method,
	        .deadline_ms = provider_of(s)->config.ask_ms,
	        .body = {.data = s->body, .size = s->body ? len : 0},
	        .json = true,
	};
	s->own.repeat = strcmp(method, "GET") == 0 ? SBX_HTTP_SAFE : SBX_HTTP_UNSENT;
	s->headers[0] = "Content-Type: application/json";
	s->headers[1] = NULL;
	s->wakes = false;
	fly(s, &s->own, path, query, then);
}

/* ---- what was to be sent ---- */

/* Also where the session is not known any more. */
static bool has_stopped(struct vercel_send *s)
{
	const long status = s->said.status;

	if (status != 410 && status != 422 && !(status == 404 && s->wakes))
		return false;
	vercel_machine_stopped(s->m, s->session);
	return true;
}

static void wake_once(struct vercel_send *s)
{
	s->woken = true;
	choose(s);
}

static void send_next(struct vercel_send *s);

static void answered(struct vercel_send *s)
{
	const bool stopped = has_stopped(s);
	enum vercel_next next;

	if (stopped && s->wakes && !s->woken) {
		wake_once(s);
		return;
	}
	/* It is there, by its name: what is not known is the session. */
	if (stopped && s->code == -ENOENT)
		s->code =
		        sbx_fail(&s->err, EBUSY, "Vercel does not know the session of the sandbox");
	next = s->answered(s);
	if (next == VERCEL_END)
		end(s);
	else if (next == VERCEL_LATER)
		later(s, send_next);
	else if (stopped && !s->woken)
		wake_once(s);
	else
		send_next(s);
}

static void send_next(struct vercel_send *s)
{
	char path[192];

	s->prepare(s);
	s->headers[0] = s->type;
	s->headers[1] = s->header;
	snprintf(path, sizeof(path), "/v2/sandboxes/sessions/%s%s", s->session, s->path);
	fly(s, &s->http, path, s->query, answered);
}

/* ---- a longer life ---- */

/* One that cannot live longer lives as long as it does; when it has stopped it is woken. */
static void extended(struct vercel_send *s)
{
	if (!s->code)
		vercel_machine_extended(s->m, s->extend_ms);
	else if (s->said.status == 400)
		vercel_machine_extended(s->m, 0);
	if (has_stopped(s) && !s->woken)
		wake_once(s);
	else
		send_next(s);
}

static void extend(struct vercel_send *s)
{
	struct json_object *body = json_object_new_object();
	char path[192];

	json_object_object_add(body, "duration", json_object_new_int64((int64_t)s->extend_ms));
	snprintf(path, sizeof(path), "/v2/sandboxes/sessions/%s/extend-timeout", s->session);
	ask(s, "vercel_extend", "POST", path, NULL, body, extended);
}

/* ---- waking ---- */

static void wake(struct vercel_send *s);

static void runs(struct vercel_send *s)
{
	vercel_machine_runs(s->m, &s->box);
	s->until_ms = sbx_now_ms() + s->budget_ms;
	choose(s);
}

static void network_set(struct vercel_send *s)
{
	struct json_object *obj = s->code ? NULL : sbx_object_read(s->answer.body, s->answer.len);
	struct json_object *session = sbx_member(obj, "session", json_type_object);
	struct json_object *shown = sbx_member(session, "networkPolicy", json_type_object);
	const bool holds = !shown || vercel_net_holds(&provider_of(s)->net, shown);

	json_object_put(obj);
	if (s->code)
		end(s);
	else if (!holds)
		fail(s, EOPNOTSUPP, "Vercel does not close the network of the sandbox any more");
	else
		runs(s);
}

static void set_network(struct vercel_send *s)
{
	char path[192];

	snprintf(path, sizeof(path), "/v2/sandboxes/sessions/%s/network-policy", s->box.session);
	ask(s, "vercel_network", "POST", path, NULL, vercel_net_body(&provider_of(s)->net, NULL),
	    network_set);
}

/* What it is on its way to is seen by the next look. */
static void wake_later(struct vercel_send *s)
{
	if (sbx_now_ms() > s->wake_until_ms)
		fail(s, ETIMEDOUT, "Vercel has not started the sandbox within a minute");
	else
		later(s, wake);
}

static void wake_failed(struct vercel_send *s)
{
	if (s->said.status == 404)
		fail(s, ESTALE, "the sandbox is no more at Vercel");
	else if (strcmp(s->said.code, "snapshot_not_found") == 0)
		fail(s, ESTALE, "the sandbox has stopped, and Vercel has kept nothing of it");
	else if (s->said.status == 422)
		wake_later(s);
	else
		end(s);
}

static void woken(struct vercel_send *s)
{
	struct vercel *v = provider_of(s);
	struct json_object *obj;

	if (s->code) {
		wake_failed(s);
		return;
	}
	obj = sbx_object_read(s->answer.body, s->answer.len);
	s->code = vercel_box_read(v, obj, &s->box, &s->err);
	json_object_put(obj);
	if (s->code)
		end(s);
	else if (s->box.look.state == SBX_MACHINE_FAILED)
		fail(s, EREMOTEIO, s->box.look.reason);
	else if (s->box.look.state != SBX_MACHINE_UP)
		wake_later(s);
	else if (!*s->box.session)
		fail(s, EPROTO, "an answer of Vercel shows no session");
	else if (s->box.net != VERCEL_NET_RIGHT)
		set_network(s);
	else
		runs(s);
}

static void wake(struct vercel_send *s)
{
	struct vercel *v = provider_of(s);
	char path[160];

	snprintf(path, sizeof(path), "/v2/sandboxes/%s", s->m->name);
	ask(s, "vercel_wake", "GET", path, v->wake_query, NULL, woken);
}

/* All wakings of S together have one limit. */
static void begin_wake(struct vercel_send *s)
{
	if (!s->wake_until_ms)
		s->wake_until_ms = sbx_now_ms() + WAKE_MS;
	if (sbx_now_ms() > s->wake_until_ms)
		wake_later(s);
	else
		wake(s);
}

/* ---- the beginning ---- */

static void choose(struct vercel_send *s)
{
	struct vercel_machine *m = s->m;

	pthread_mutex_lock(&m->lock);
	memcpy(s->session, m->session, sizeof(s->session));
	pthread_mutex_unlock(&m->lock);
	if (!*s->session) {
		begin_wake(s);
		return;
	}
	s->extend_ms = vercel_machine_short(m, vercel_send_left(s) + MARGIN_MS);
	if (s->extend_ms)
		s->extend_ms = vercel_machine_short(m, vercel_send_left(s) + MARGIN_MS +
		                                               provider_of(s)->config.life_ms);
	if (s->extend_ms)
		extend(s);
	else
		send_next(s);
}

/* [loop] */
static void start(void *data)
{
	struct vercel_send *s = data;

	s->until_ms = sbx_now_ms() + s->budget_ms;
	if (!is_given_up(s))
		choose(s);
}

void vercel_send_begin(struct vercel_send *s)
{
	sbx_loop_post(provider_of(s)->config.loop, start, s);
}

/* [loop] */
static void end_by_code(void *data)
{
	end(data);
}

void vercel_send_fail(struct vercel_send *s, int code, const struct sbx_error *err)
{
	s->code = code;
	s->err = *err;
	sbx_loop_post(provider_of(s)->config.loop, end_by_code, s);
}

void vercel_send_cancel(struct vercel_send *s)
{
	atomic_store(&s->given_up, true);
	if (s->flying)
		sbx_http_cancel(s->flying);
}
