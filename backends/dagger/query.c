/*
 * A query and its way: its turn at its machine, a session, the request, and the answer, which a
 * thread of the pool reads. Its owner hears of the end on the loop.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/dagger/dagger_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define ANSWER_MAX ((size_t)8 * 1024 * 1024)
#define LOOK_MS    100

/* ---- queues ---- */

void dagger_queue_add(struct dagger_queue *queue, struct dagger_query *q)
{
	q->next = NULL;
	if (queue->last)
		queue->last->next = q;
	else
		queue->first = q;
	queue->last = q;
}

struct dagger_query *dagger_queue_take(struct dagger_queue *queue)
{
	struct dagger_query *q = queue->first;

	if (q)
		queue->first = q->next;
	if (!queue->first)
		queue->last = NULL;
	return q;
}

bool dagger_queue_remove(struct dagger_queue *queue, struct dagger_query *q)
{
	struct dagger_queue rest = {0};
	struct dagger_query *at;
	bool found = false;

	while ((at = dagger_queue_take(queue))) {
		if (at == q)
			found = true;
		else
			dagger_queue_add(&rest, at);
	}
	*queue = rest;
	return found;
}

/* ---- texts ---- */

/* Control characters but TAB are refused where they stand as they are. */
void dagger_literal(FILE *to, const char *text)
{
	putc('"', to);
	for (const char *at = text; *at; at++) {
		if (*at == '"' || *at == '\\')
			fprintf(to, "\\%c", *at);
		else if ((unsigned char)*at < 0x20)
			fprintf(to, "\\u%04x", (unsigned char)*at);
		else
			putc(*at, to);
	}
	putc('"', to);
}

void dagger_begin_container(const struct dagger_session *session, FILE *to, const char *id)
{
	fputs(session->nodes ? "{node(id:" : "{loadContainerFromID(id:", to);
	dagger_literal(to, id);
	fputs(session->nodes ? "){...on Container{" : "){", to);
}

void dagger_end_container(const struct dagger_session *session, FILE *to)
{
	fputs(session->nodes ? "}}}" : "}}", to);
}

void dagger_begin_machine(const struct dagger_session *session, FILE *to, const char *id)
{
	dagger_begin_container(session, to, id);
	fputs("label(name:\"" DAGGER_LABEL_NAME "\") envVariable(name:\"" DAGGER_ID_NAME "\") ",
	      to);
}

/* ---- the end ---- */

/* [loop] */
static void arrive(void *data);

/* [any] Under the lock. */
static void post(struct dagger_query *q, void (*fn)(void *data))
{
	sbx_loop_post(q->d->config.loop, fn, q);
}

/* [loop] Under the lock. The next of the machine has its turn. */
static void pass_turn(struct dagger_query *q)
{
	struct dagger_query *next;

	if (!q->m || !dagger_queue_remove(&q->m->turns, q))
		return;
	next = q->m->turns.first;
	if (next && next->stage == DAGGER_TURN) {
		next->stage = DAGGER_READY;
		post(next, arrive);
	}
}

/* [loop] */
static void end(void *data)
{
	struct dagger_query *q = data;
	struct dagger *d = q->d;
	const struct sbx_error err = q->err;
	const int code = q->code;

	pthread_mutex_lock(&d->lock);
	pass_turn(q);
	q->stage = DAGGER_IDLE;
	dagger_session_unref(q->session);
	q->session = NULL;
	pthread_mutex_unlock(&d->lock);
	sbx_http_answer_release(&q->answer);
	if (q->body)
		explicit_bzero(q->body, strlen(q->body));
	free(q->body);
	q->body = NULL;
	q->ended(q, code, &err);
	dagger_unref(d);
}

static void give_up(struct dagger_query *q)
{
	q->code = sbx_fail(&q->err, EINTR, "it was given up");
}

void dagger_query_cancel(struct dagger_query *q)
{
	q->given_up = true;
	if (q->stage == DAGGER_FLYING)
		sbx_http_cancel(&q->http);
	if ((q->stage == DAGGER_TURN && dagger_queue_remove(&q->m->turns, q)) ||
	    (q->stage == DAGGER_SESSION && dagger_queue_remove(&q->d->waiting, q))) {
		q->stage = DAGGER_READING;
		give_up(q);
		post(q, end);
	}
}

void dagger_query_fail(struct dagger_query *q, int code, const struct sbx_error *err)
{
	q->code = code;
	q->err = *err;
	end(q);
}

/* ---- the answer ---- */

/* [pool] */
static void read_answer(void *data)
{
	struct dagger_query *q = data;
	struct json_object *obj = NULL;

	q->code = dagger_answer(q, &obj, &q->err);
	if (!q->code)
		q->code = q->read(q, obj, &q->err);
	json_object_put(obj);
	post(q, end);
}

static bool is_lost(int code, long status)
{
	return status == 502 || status == 503 || code == -ECONNREFUSED;
}

/* [loop] A refusal may say why. */
static void http_done(struct sbx_http_request *req, int code, struct sbx_http_answer *answer,
                      const struct sbx_error *err)
{
	struct dagger_query *q = req->data;

	pthread_mutex_lock(&q->d->lock);
	q->stage = DAGGER_READING;
	pthread_mutex_unlock(&q->d->lock);
	q->answer = *answer;
	*answer = (struct sbx_http_answer){0};
	q->unsure = q->answer.unsure;
	q->code = code;
	if (code)
		q->err = *err;
	if (is_lost(code, q->answer.status))
		dagger_session_lost(q->d, q->session);
	if (code && !q->answer.status)
		end(q);
	else
		sbx_pool_submit(q->d->pool, read_answer, q);
}

/* ---- the request ---- */

static int write_body(struct dagger_query *q)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);
	int r = to ? q->write(q, q->session, to) : -ENOMEM;

	if (to && fclose(to) < 0)
		r = -ENOMEM;
	if (r)
		return r;
	to = open_memstream(&q->body, &len);
	if (to) {
		fputs("{\"query\":", to);
		dagger_literal(to, text);
		putc('}', to);
	}
	explicit_bzero(text, strlen(text));
	return to && fclose(to) == 0 ? 0 : -ENOMEM;
}

static void set_up(struct dagger_query *q)
{
	static const char *const headers[] = {"Content-Type: application/json",
	                                      "Accept: application/json", NULL};

	q->http = (struct sbx_http_request){
	        .op = q->op,
	        .method = "POST",
	        .url = q->session->url,
	        .peer = "Dagger",
	        .headers = headers,
	        .secret = q->session->token,
	        .hidden = q->hidden,
	        .body = {.data = q->body, .size = strlen(q->body)},
	        .deadline_ms = q->deadline_ms ? q->deadline_ms : DAGGER_ASK_MS,
	        .answer_max = q->answer_max ? q->answer_max : ANSWER_MAX,
	        .auth = SBX_HTTP_BASIC,
	        .repeat = q->repeat,
	        .held = q->held,
	        .done = http_done,
	        .data = q,
	};
}

/* [loop] Q has a session. */
static void fly(struct dagger_query *q)
{
	q->code = write_body(q);
	if (q->code) {
		sbx_fail(&q->err, -q->code, "%s", strerror(-q->code));
		end(q);
		return;
	}
	set_up(q);
	pthread_mutex_lock(&q->d->lock);
	if (!q->given_up) {
		q->stage = DAGGER_FLYING;
		sbx_http_begin(q->d->config.http, &q->http);
		pthread_mutex_unlock(&q->d->lock);
		return;
	}
	pthread_mutex_unlock(&q->d->lock);
	give_up(q);
	end(q);
}

void dagger_query_resume(struct dagger_query *q)
{
	fly(q);
}

/* [loop] Under the lock. Whether Q has a session, or is one that looks for it. */
static bool take_session(struct dagger_query *q)
{
	if (!q->is_probe)
		q->session = dagger_session_ref(q->d->session);
	if (q->session)
		return true;
	q->stage = DAGGER_SESSION;
	dagger_queue_add(&q->d->waiting, q);
	dagger_session_start(q->d);
	return false;
}

/* [loop] */
static void arrive(void *data)
{
	struct dagger_query *q = data;
	bool given_up, ready;

	pthread_mutex_lock(&q->d->lock);
	given_up = q->given_up;
	ready = !given_up && take_session(q);
	pthread_mutex_unlock(&q->d->lock);
	if (ready) {
		fly(q);
	} else if (given_up) {
		give_up(q);
		end(q);
	}
}

void dagger_query_begin(struct dagger_query *q)
{
	struct dagger *d = q->d;

	q->next = NULL;
	q->unsure = false;
	q->code = 0;
	q->err = SBX_ERROR_INIT;
	dagger_ref(d);
	pthread_mutex_lock(&d->lock);
	if (q->m)
		dagger_queue_add(&q->m->turns, q);
	if (q->m && q->m->turns.first != q) {
		q->stage = DAGGER_TURN;
	} else {
		q->stage = DAGGER_READY;
		post(q, arrive);
	}
	pthread_mutex_unlock(&d->lock);
}

/* ---- waiting ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int code;
	struct sbx_error err;
};

/* [loop] */
static void wake(struct dagger_query *q, int code, const struct sbx_error *err)
{
	struct waiter *w = q->data;

	pthread_mutex_lock(&w->lock);
	w->code = code;
	w->err = *err;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void cancel_unless_done(struct dagger_query *q)
{
	pthread_mutex_lock(&q->d->lock);
	if (q->stage != DAGGER_IDLE)
		dagger_query_cancel(q);
	pthread_mutex_unlock(&q->d->lock);
}

int dagger_query_perform(struct dagger_query *q, atomic_bool *cancelled, struct sbx_error *err)
{
	struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_condattr_t attr;
	struct timespec until;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w.cond, &attr);
	pthread_condattr_destroy(&attr);
	q->ended = wake;
	q->data = &w;
	dagger_query_begin(q);
	pthread_mutex_lock(&w.lock);
	while (!w.done) {
		if (cancelled && atomic_load(cancelled)) {
			pthread_mutex_unlock(&w.lock);
			cancel_unless_done(q);
			pthread_mutex_lock(&w.lock);
			cancelled = NULL;
			continue;
		}
		until = sbx_clock_after(CLOCK_MONOTONIC, LOOK_MS * INT64_C(1000000));
		pthread_cond_timedwait(&w.cond, &w.lock, &until);
	}
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	if (w.code)
		*err = w.err;
	return w.code;
}
