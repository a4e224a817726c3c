/*
 * A request that nobody waits for in a thread. What only the control plane can tell is asked, and
 * long bodies are read, by works of the pool.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

static struct daytona *provider_of(const struct daytona_send *s)
{
	return daytona_of(s->m->base.provider);
}

/* [loop] */
static void end(void *data)
{
	struct daytona_send *s = data;
	const int code = s->code;
	const struct sbx_error err = s->err;

	sbx_http_answer_release(&s->answer);
	free(s->url);
	s->url = NULL;
	s->ended(s, code, &err);
}

static void end_later(struct daytona_send *s)
{
	sbx_loop_post(provider_of(s)->config.loop, end, s);
}

void daytona_send_fail(struct daytona_send *s, int code, const struct sbx_error *err)
{
	s->code = code;
	if (code)
		s->err = *err;
	end_later(s);
}

/* [pool] */
static void read_long(void *data)
{
	struct daytona_send *s = data;

	s->code = s->read(s, &s->answer, &s->err);
	end_later(s);
}

static void post(struct daytona_send *s);

/* [pool] */
static void recover(void *data)
{
	struct daytona_send *s = data;
	long status = s->answer.status;
	int r = daytona_box_recover(s->m, s->begun_ms, &status, &s->given_up, &s->err);

	if (!r) {
		s->again = true;
		s->err = SBX_ERROR_INIT;
		sbx_http_answer_release(&s->answer);
		post(s);
		return;
	}
	s->code = r;
	end_later(s);
}

/* [loop] */
static void http_done(struct sbx_http_request *req, int code, struct sbx_http_answer *answer,
                      const struct sbx_error *err)
{
	struct daytona_send *s = req->data;
	struct daytona *d = provider_of(s);

	pthread_mutex_lock(&s->m->lock);
	s->flying = false;
	pthread_mutex_unlock(&s->m->lock);
	s->answer = *answer;
	*answer = (struct sbx_http_answer){0};
	s->maybe |= !sbx_http_not_done(code, &s->answer);
	s->code = code;
	if (code) {
		s->err = *err;
		if (s->answer.status)
			daytona_refused(s->answer.body, s->answer.len, s->answer.status, &s->err);
		if (!s->again && daytona_maybe_down(s->answer.status) &&
		    !(s->own_refusal && s->own_refusal(&s->answer)))
			sbx_pool_submit(d->config.pool, recover, s);
		else
			end(s);
	} else if (s->answer.len > SBX_HTTP_INLINE_MAX) {
		sbx_pool_submit(d->config.pool, read_long, s);
	} else {
		s->code = s->read(s, &s->answer, &s->err);
		end(s);
	}
}

static int set_up(struct daytona_send *s)
{
	struct daytona *d = provider_of(s);

	if (!s->url && asprintf(&s->url, "%s%s", s->m->toolbox, s->path) < 0) {
		s->url = NULL;
		return -ENOMEM;
	}
	s->http.method = "POST";
	s->http.url = s->url;
	s->http.peer = "Daytona";
	s->http.headers = d->headers + (s->http.parts_n > 0);
	s->http.secret = d->config.key;
	s->http.json = true;
	s->http.done = http_done;
	s->http.data = s;
	return 0;
}

static void post(struct daytona_send *s)
{
	struct sbx_error err = SBX_ERROR_INIT;
	bool given_up;

	s->begun_ms = sbx_now_ms();
	if (set_up(s) < 0) {
		daytona_send_fail(s, sbx_no_memory(&err), &err);
		return;
	}
	pthread_mutex_lock(&s->m->lock);
	given_up = atomic_load(&s->given_up);
	s->flying = !given_up;
	if (!given_up)
		sbx_http_begin(provider_of(s)->config.http, &s->http);
	pthread_mutex_unlock(&s->m->lock);
	if (given_up)
		daytona_send_fail(s, sbx_fail(&err, EINTR, "it was given up"), &err);
}

/* [pool] */
static void renew(void *data)
{
	struct daytona_send *s = data;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = daytona_box_renew(s->m, &s->given_up, &err);

	if (r)
		daytona_send_fail(s, r, &err);
	else
		post(s);
}

void daytona_send_begin(struct daytona_send *s)
{
	if (atomic_load(&s->m->net_unsure))
		sbx_pool_submit(provider_of(s)->config.pool, renew, s);
	else
		post(s);
}

void daytona_send_cancel(struct daytona_send *s)
{
	atomic_store(&s->given_up, true);
	if (s->flying)
		sbx_http_cancel(&s->http);
}
