/*
 * A transfer is a request on its way: it waits for its turn at the host, is in one attempt after
 * the other with pauses between them, and ends. Whatever it does it does on the loop.
 *
 * Turns are ours, as libcurl would have those who wait for one host stand before those for another.
 * Deadlines are ours, as libcurl's do not run while a transfer waits, and as it measures silence by
 * a mean.
 */
#include "sandboxfs/http.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/support/http_impl.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

#define PER_HOST   128
#define HELD_MORE  8 /* times as many of those that are held */
#define REPEATS    2
#define BACKOFF_MS 400
#define LOOK_MS    100

/* A server has two: one for what it holds until something happens, one for all other requests. */
struct host {
	struct host *next;
	bool held; /* the first of these */
	unsigned active, most;
	struct transfer *first, **last; /* that wait for their turn */
	char key[sizeof(((struct sbx_http_server *)NULL)->key)];
};

struct transfer {
	struct transfer *next, **link; /* all of the client */
	struct transfer *behind;       /* in the queue of the host */
	struct sbx_http *http;
	struct sbx_http_request *req;
	struct host *host; /* NULL: not known yet */
	struct sbx_timer timer;
	uint64_t due_ns;
	uint64_t again_ns; /* of the next attempt; 0: not in a pause */
	unsigned repeats;
	bool unsure; /* what was repeated may have been carried out */
	struct sbx_http_attempt attempt;
	struct sbx_http_server server;
};

struct sbx_http {
	struct sbx_http_config config;
	/* Loop thread: */
	struct sbx_http_multi multi; /* made by the first request */
	struct sbx_timer look;
	struct host *hosts;
	struct transfer *transfers;
	atomic_bool sweeping; /* a look at who is cancelled is on its way */
	pthread_mutex_t lock; /* all below */
	bool stopped;         /* nobody is begun any more */
	struct sbx_http_count *counts;
	size_t counts_n, counts_cap;
};

int sbx_http_create(const struct sbx_http_config *config, struct sbx_http **ret)
{
	struct sbx_http *http = calloc(1, sizeof(*http));

	if (!http)
		return -ENOMEM;
	http->config = *config;
	if (!http->config.per_host)
		http->config.per_host = PER_HOST;
	if (!http->config.backoff_ms)
		http->config.backoff_ms = BACKOFF_MS;
	pthread_mutex_init(&http->lock, NULL);
	*ret = http;
	return 0;
}

/* ---- counts ---- */

/* NULL: no memory. The lock is held. */
static struct sbx_http_count *count_of(struct sbx_http *http, const char *op)
{
	for (size_t i = 0; i < http->counts_n; i++)
		if (strcmp(http->counts[i].op, op) == 0)
			return &http->counts[i];
	if (SBX_GROW(http->counts, http->counts_n, http->counts_cap, 8) < 0)
		return NULL;
	http->counts[http->counts_n] = (struct sbx_http_count){.op = op};
	return &http->counts[http->counts_n++];
}

static void count(struct transfer *t, bool failed)
{
	struct sbx_http *http = t->http;
	curl_off_t up = 0, down = 0;
	long head_up = 0, head_down = 0;
	struct sbx_http_count *c;

	curl_easy_getinfo(t->attempt.easy, CURLINFO_SIZE_UPLOAD_T, &up);
	curl_easy_getinfo(t->attempt.easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
	curl_easy_getinfo(t->attempt.easy, CURLINFO_REQUEST_SIZE, &head_up);
	curl_easy_getinfo(t->attempt.easy, CURLINFO_HEADER_SIZE, &head_down);
	pthread_mutex_lock(&http->lock);
	c = count_of(http, t->req->op);
	if (c) {
		c->requests++;
		c->failed += failed;
		c->sent += (uint64_t)(up + head_up);
		c->received += (uint64_t)(down + head_down);
		c->ns += sbx_now_ns() - t->attempt.begun_ns;
	}
	pthread_mutex_unlock(&http->lock);
}

int sbx_http_counts(struct sbx_http *http, struct sbx_http_count **ret, size_t *n)
{
	struct sbx_http_count *copy;

	pthread_mutex_lock(&http->lock);
	*n = http->counts_n;
	copy = malloc((*n + 1) * sizeof(*copy));
	if (copy && *n)
		memcpy(copy, http->counts, *n * sizeof(*copy));
	pthread_mutex_unlock(&http->lock);
	if (!copy)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

/* ---- the end of a transfer ---- */

/* The blocking door: a thread that waits for the end. */
struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool over;
	int code;
	struct sbx_http_answer *answer;
	struct sbx_error err;
};

static void tell(struct sbx_http_request *req, int code, struct sbx_http_answer *answer,
                 const struct sbx_error *err)
{
	struct waiter *w = req->waiter;

	if (!w) {
		req->done(req, code, answer, err);
		return;
	}
	pthread_mutex_lock(&w->lock);
	*w->answer = *answer;
	*answer = (struct sbx_http_answer){0};
	w->code = code;
	w->err = *err;
	w->over = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
}

static void begin_attempt(struct transfer *t);

/* The turn of T at its host is over. */
static void leave_host(struct transfer *t)
{
	struct host *h = t->host;
	struct transfer *next = h->first;

	assert(h->active);
	h->active--;
	if (!next)
		return;
	h->first = next->behind;
	if (!h->first)
		h->last = &h->first;
	begin_attempt(next);
}

static void leave_queue(struct transfer *t)
{
	for (struct transfer **at = &t->host->first; *at; at = &(*at)->behind)
		if (*at == t) {
			*at = t->behind;
			if (!*at)
				t->host->last = at;
			return;
		}
}

/* The answer stays. */
static void end_attempt(struct transfer *t)
{
	if (!t->attempt.easy)
		return;
	sbx_http_attempt_end(&t->attempt, t->http->multi.curl);
	leave_host(t);
}

static void finish(struct transfer *t, int code, struct sbx_error *err)
{
	struct sbx_http_answer *answer = &t->attempt.answer;

	end_attempt(t);
	if (t->host)
		leave_queue(t);
	sbx_loop_timer_cancel(t->http->config.loop, &t->timer);
	*t->link = t->next;
	if (t->next)
		t->next->link = t->link;
	if (!answer->status)
		sbx_http_answer_release(answer);
	/* Without an answer what is told is how the last connection failed, perhaps one by which
	 * libcurl has tried again what went over another. */
	answer->unsure = t->unsure || (!answer->status && t->attempt.sent);
	sbx_http_hide(t->req, answer, err);
	tell(t->req, code, answer, err);
	sbx_http_answer_release(answer);
	free(t);
}

/* Before its end. */
static void give_up(struct transfer *t, int code, struct sbx_error *err)
{
	if (t->attempt.easy)
		count(t, true);
	t->attempt.answer.status = 0;
	finish(t, code, err);
}

/* ---- time ---- */

static uint64_t ms_until(uint64_t ns)
{
	const uint64_t now = sbx_now_ns();

	return ns > now ? (ns - now + 999999) / 1000000 : 0;
}

/* When the server will have been silent for too long; UINT64_MAX: it need not say anything. */
static uint64_t silent_ns(const struct transfer *t)
{
	const struct sbx_http_attempt *a = &t->attempt;

	return a->easy && t->req->quiet_ms
	               ? sbx_http_attempt_last_ns(a) + t->req->quiet_ms * 1000000
	               : UINT64_MAX;
}

static void arm(struct transfer *t)
{
	uint64_t next = t->due_ns;

	if (t->again_ns && t->again_ns < next)
		next = t->again_ns;
	if (silent_ns(t) < next)
		next = silent_ns(t);
	sbx_loop_timer_set(t->http->config.loop, &t->timer, ms_until(next));
}

/* ---- attempts ---- */

/* Whether there will be another attempt, after a pause that the deadline allows. */
static bool pause_before_another(struct transfer *t, int code, struct sbx_error *err)
{
	const struct sbx_http_failure failure = {t->req->repeat, code, t->attempt.answer.status,
	                                         t->attempt.sent};
	const uint64_t after_ms = sbx_http_retry_after_ms(&t->attempt.answer);
	const size_t n = strlen(err->text);
	uint64_t again_ns;

	if (after_ms)
		snprintf(err->text + n, sizeof(err->text) - n,
		         "; it wants to be left alone for %llu s",
		         (unsigned long long)after_ms / 1000);
	if (t->attempt.handed || t->repeats >= (t->req->repeats ? t->req->repeats : REPEATS) ||
	    !sbx_http_may_repeat(&failure))
		return false;
	again_ns = sbx_now_ns() +
	           sbx_http_pause_ms(t->repeats, t->http->config.backoff_ms, after_ms) * 1000000;
	if (again_ns >= t->due_ns)
		return false;
	t->unsure |= failure.sent && failure.status != 429;
	t->repeats++;
	t->again_ns = again_ns;
	return true;
}

static void attempt_ended(void *data, CURLcode code)
{
	struct transfer *t = data;
	struct sbx_error err = SBX_ERROR_INIT;
	const int r = sbx_http_attempt_judge(&t->attempt, code, &err);

	count(t, r < 0);
	end_attempt(t);
	if (r < 0 && pause_before_another(t, r, &err))
		arm(t);
	else
		finish(t, r, &err);
}

/* It is T's turn at its host. */
static void begin_attempt(struct transfer *t)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	t->behind = NULL;
	t->host->active++;
	r = sbx_http_attempt_begin(&t->attempt, t->http->multi.curl, t, &err);
	if (!r) {
		arm(t);
		return;
	}
	leave_host(t);
	finish(t, r, &err);
}

static void take_turn(struct transfer *t)
{
	struct host *h = t->host;

	t->again_ns = 0;
	if (h->active < h->most) {
		begin_attempt(t);
		return;
	}
	t->behind = NULL;
	*h->last = t;
	h->last = &t->behind;
	arm(t);
}

/* Silence counts from the moment when a connection is there, which takes no longer than it may. */
static void on_transfer_timer(struct sbx_timer *timer)
{
	struct transfer *t = timer->data;
	const uint64_t now = sbx_now_ns();
	struct sbx_error err = SBX_ERROR_INIT;

	if (now >= t->due_ns) {
		give_up(t, sbx_http_no_answer(CURLE_OPERATION_TIMEDOUT, 0, t->server.peer, &err),
		        &err);
	} else if (t->again_ns && now >= t->again_ns) {
		take_turn(t);
	} else if (now >= silent_ns(t)) {
		attempt_ended(t, CURLE_OPERATION_TIMEDOUT);
	} else {
		arm(t);
	}
}

/* ---- the beginning ---- */

static struct host *host_of(struct sbx_http *http, const char *key, bool held)
{
	struct host *h = http->hosts;

	while (h && (h->held != held || strcasecmp(h->key, key) != 0))
		h = h->next;
	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	memcpy(h->key, key, sizeof(h->key));
	h->held = held;
	h->most = http->config.per_host * (held ? HELD_MORE : 1);
	h->last = &h->first;
	h->next = http->hosts;
	http->hosts = h;
	return h;
}

static bool is_given_up(const struct sbx_http_request *req)
{
	return atomic_load(&req->given_up) || (req->cancelled && atomic_load(req->cancelled));
}

static void cancel(struct transfer *t)
{
	struct sbx_error err = SBX_ERROR_INIT;

	give_up(t, sbx_fail(&err, EINTR, "it was given up"), &err);
}

/* To end one begins the next, so the list is looked at anew after each. */
static void sweep(struct sbx_http *http)
{
	struct transfer *t;

	do {
		t = http->transfers;
		while (t && !is_given_up(t->req))
			t = t->next;
		if (t)
			cancel(t);
	} while (t);
}

static void on_look(struct sbx_timer *timer)
{
	struct sbx_http *http = timer->data;

	sweep(http);
	for (struct transfer *t = http->transfers; t; t = t->next)
		if (t->req->cancelled) {
			sbx_loop_timer_set(http->config.loop, timer, LOOK_MS);
			return;
		}
}

static void look_soon(struct sbx_http *http)
{
	if (http->look.due_ns)
		return;
	http->look.fn = on_look;
	http->look.data = http;
	sbx_loop_timer_set(http->config.loop, &http->look, LOOK_MS);
}

static void link_transfer(struct transfer *t)
{
	struct sbx_http *http = t->http;

	t->next = http->transfers;
	t->link = &http->transfers;
	if (t->next)
		t->next->link = &t->next;
	http->transfers = t;
}

static int set_up(struct transfer *t, struct sbx_error *err)
{
	struct sbx_http *http = t->http;
	/* Of all, also those in use: each above it would be closed when its request ends. */
	const long connections = (2L + HELD_MORE) * http->config.per_host;
	int r = sbx_http_look_at(t->req, &t->server, err);

	if (r)
		return r;
	t->host = host_of(http, t->server.key, t->req->held);
	if (!t->host)
		return sbx_no_memory(err);
	if (!http->multi.curl &&
	    sbx_http_multi_init(&http->multi, http->config.loop, connections, attempt_ended) < 0)
		return sbx_no_memory(err);
	return 0;
}

/* NULL: no memory. */
static struct transfer *transfer_new(struct sbx_http_request *req)
{
	struct transfer *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->http = req->http;
	t->req = req;
	t->timer = (struct sbx_timer){.fn = on_transfer_timer, .data = t};
	t->due_ns = sbx_now_ns() + req->deadline_ms * 1000000;
	t->attempt.req = req;
	t->attempt.server = &t->server;
	link_transfer(t);
	return t;
}

static bool is_stopped(struct sbx_http *http)
{
	bool stopped;

	pthread_mutex_lock(&http->lock);
	stopped = http->stopped;
	pthread_mutex_unlock(&http->lock);
	return stopped;
}

/* [loop] */
static void start(void *data)
{
	struct sbx_http_request *req = data;
	struct transfer *t = transfer_new(req);
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if (!t) {
		r = sbx_no_memory(&err);
		tell(req, r, &(struct sbx_http_answer){0}, &err);
		return;
	}
	if (is_given_up(req) || is_stopped(req->http)) {
		cancel(t);
		return;
	}
	if (req->cancelled)
		look_soon(req->http);
	r = set_up(t, &err);
	if (r)
		finish(t, r, &err);
	else
		take_turn(t);
}

/* False: nobody is begun any more, and the loop would not say so to who waits. */
static bool begin(struct sbx_http *http, struct sbx_http_request *req)
{
	bool begun;

	assert(req->op && req->method && req->url && req->deadline_ms);
	req->http = http;
	atomic_init(&req->given_up, false);
	pthread_mutex_lock(&http->lock);
	begun = !http->stopped || !req->waiter;
	if (begun)
		sbx_loop_post(http->config.loop, start, req);
	pthread_mutex_unlock(&http->lock);
	return begun;
}

void sbx_http_begin(struct sbx_http *http, struct sbx_http_request *req)
{
	assert(req->done);
	req->waiter = NULL;
	req->cancelled = NULL;
	begin(http, req);
}

static void sweep_posted(void *data)
{
	struct sbx_http *http = data;

	atomic_store(&http->sweeping, false);
	sweep(http);
}

void sbx_http_cancel(struct sbx_http_request *req)
{
	struct sbx_http *http = req->http;

	atomic_store(&req->given_up, true);
	if (!atomic_exchange(&http->sweeping, true))
		sbx_loop_post(http->config.loop, sweep_posted, http);
}

int sbx_http_perform(struct sbx_http *http, struct sbx_http_request *req, atomic_bool *cancelled,
                     struct sbx_http_answer *answer, struct sbx_error *err)
{
	struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER,
	                   .ended = PTHREAD_COND_INITIALIZER,
	                   .answer = answer};

	req->waiter = &w;
	req->cancelled = cancelled;
	if (!begin(http, req)) {
		*answer = (struct sbx_http_answer){0};
		return sbx_fail(err, EINTR, "it was given up");
	}
	pthread_mutex_lock(&w.lock);
	while (!w.over)
		pthread_cond_wait(&w.ended, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.ended);
	pthread_mutex_destroy(&w.lock);
	if (w.code < 0 && err)
		*err = w.err;
	return w.code;
}

/* Nobody is begun any more. */
static void clear_queues(struct sbx_http *http)
{
	for (struct host *h = http->hosts; h; h = h->next) {
		h->first = NULL;
		h->last = &h->first;
	}
}

void sbx_http_stop(struct sbx_http *http)
{
	if (!http || is_stopped(http))
		return;
	pthread_mutex_lock(&http->lock);
	http->stopped = true;
	pthread_mutex_unlock(&http->lock);
	/* Who was begun before, and has not come to the loop. */
	sbx_loop_drain(http->config.loop);
	clear_queues(http);
	while (http->transfers)
		cancel(http->transfers);
	sbx_http_multi_finish(&http->multi);
	sbx_loop_timer_cancel(http->config.loop, &http->look);
}

void sbx_http_destroy(struct sbx_http *http)
{
	struct host *next;

	if (!http)
		return;
	sbx_http_stop(http);
	for (struct host *h = http->hosts; h; h = next) {
		next = h->next;
		free(h);
	}
	pthread_mutex_destroy(&http->lock);
	free(http->counts);
	free(http);
}
