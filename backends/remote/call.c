/*
 * The link to a machine. A call is sent: its files are put, its script runs, its answer is decoded;
 * what may be repeated is, after a pause, while there is time. All of this happens on the loop, but
 * that large answers are decoded in the pool.
 *
 * A call that is given up still waits for what the provider, or the pool, is doing for it.
 */
#include "backends/remote/call.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "backends/remote/deadline.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define ANSWER_MAX   ((size_t)24 * 1024 * 1024)
#define INLINE_MAX   ((size_t)256 * 1024) /* decoded on the loop */
#define BACKOFF_MS   400
#define PAUSE_MAX_MS 5000
#define PUT_MS       30000 /* for a put, and more as it is large */
#define LOOK_MS      100
#define RETIRED      64 /* scripts that were put and are to be removed */

enum stage {
	QUEUED,  /* another one is sent first */
	PUTTING, /* files, and perhaps the script */
	RUNNING,
	DECODING,
	PAUSING,
};

struct sending {
	struct sending *next;
	struct remote_link *link;
	struct remote_call *call;
	enum stage stage;
	struct remote_text script;
	unsigned number; /* the body is put as; 0: it stands in the script */
	struct sbx_machine_file *files;
	bool put; /* they are there */
	bool cancelled;
	bool may_have_run;
	uint64_t due_ns; /* no repeat begins later; 0: nothing was sent yet */
	unsigned repeats;
	struct sbx_timer timer;
	struct sbx_machine_run run; /* these two the provider has */
	struct sbx_machine_put machine_put;
	char *answer;
	size_t answer_len;
	struct remote_reply reply;
	int code; /* of decoding */
	struct sbx_error err;
};

struct remote_link {
	struct remote_link_config config;
	atomic_int refs; /* the owner's, one of each call, one of each look at who is given up */
	/* Loop thread: */
	struct sending *sendings, **last; /* in the order in which they came */
	bool parallel, gone, idle;
	struct sbx_error failed;
	unsigned number;
	unsigned retired[RETIRED], retired_n;
	/* Any thread: */
	_Atomic uint64_t requests, sent, received;
};

static const struct sbx_provider_impl *provider_of(const struct remote_link *link)
{
	return link->config.machine->provider->impl;
}

struct sbx_machine *remote_link_machine(const struct remote_link *link)
{
	return link->config.machine;
}

void remote_link_count(struct remote_link *link, uint64_t sent)
{
	atomic_fetch_add(&link->requests, 1);
	atomic_fetch_add(&link->sent, sent);
}

void remote_link_stats(struct remote_link *link, struct remote_link_stats *ret)
{
	*ret = (struct remote_link_stats){.requests = atomic_load(&link->requests),
	                                  .sent = atomic_load(&link->sent),
	                                  .received = atomic_load(&link->received)};
}

int remote_link_create(const struct remote_link_config *config, struct remote_link **ret)
{
	struct remote_link *link = calloc(1, sizeof(*link));

	if (!link)
		return -ENOMEM;
	link->config = *config;
	if (!link->config.backoff_ms)
		link->config.backoff_ms = BACKOFF_MS;
	atomic_init(&link->refs, 1);
	link->parallel = provider_of(link)->can & SBX_PROVIDER_PARALLEL;
	link->last = &link->sendings;
	link->number = REMOTE_NUMBERS_LINK;
	*ret = link;
	return 0;
}

static void unref(struct remote_link *link)
{
	if (atomic_fetch_sub(&link->refs, 1) == 1)
		free(link);
}

void remote_link_destroy(struct remote_link *link)
{
	if (!link)
		return;
	assert(!link->sendings);
	unref(link);
}

/*
 * [loop] A call, or a look, has ended. The owner may destroy LINK, from any thread, once it was
 * told, or where there is nothing to tell. So all that is read of LINK is read before it is let go
 * of.
 */
static void leave(struct remote_link *link)
{
	const bool tells = link->failed.code && !link->idle;
	const unsigned refs = atomic_fetch_sub(&link->refs, 1);

	if (refs == 1) {
		free(link);
	} else if (tells && refs == 2) {
		link->idle = true;
		if (link->config.idle)
			link->config.idle(link->config.data);
	}
}

/* ---- the end of a call ---- */

static void begin_next(struct remote_link *link);

static void unlink_sending(struct sending *s)
{
	struct remote_link *link = s->link;
	struct sending **at = &link->sendings;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	if (!s->next)
		link->last = at;
}

static void free_sending(struct sending *s)
{
	sbx_loop_timer_cancel(s->link->config.loop, &s->timer);
	remote_text_release(&s->script);
	remote_reply_release(&s->reply);
	free(s->files);
	free(s->answer);
	free(s);
}

static void tell_gone(struct remote_link *link)
{
	if (link->gone)
		return;
	link->gone = true;
	if (link->config.gone)
		link->config.gone(link->config.data);
}

static void finish(struct sending *s, int code, const struct sbx_error *err)
{
	struct remote_link *link = s->link;
	struct remote_call *call = s->call;
	struct remote_reply reply = s->reply;
	const struct sbx_error told = *err;
	/* A script may say the same of the tree. */
	const bool gone = code == -ESTALE && s->stage != DECODING;

	unlink_sending(s);
	/* The script that was put is of no use any more. */
	if (s->number && link->retired_n < RETIRED)
		link->retired[link->retired_n++] = s->number;
	s->reply = (struct remote_reply){0};
	call->maybe = code && s->may_have_run;
	call->part = NULL;
	free_sending(s);
	remote_text_release(&call->body);
	if (gone)
		tell_gone(link);
	call->done(call, code, code ? NULL : &reply, &told);
	remote_reply_release(&reply);
	begin_next(link);
	leave(link);
}

/* Why CALL is not to go on; 0: it is. */
static int unwanted(struct remote_link *link, struct remote_call *call, struct sbx_error *err)
{
	if (link->failed.code) {
		*err = link->failed;
		return -err->code;
	}
	return atomic_load(&call->given_up) ? sbx_fail(err, EINTR, "it was given up") : 0;
}

/* Ends S where it is not to go on. Nothing is under way for it. Returns whether. */
static bool finish_unwanted(struct sending *s)
{
	struct sbx_error err = SBX_ERROR_INIT;
	const int code = unwanted(s->link, s->call, &err);

	if (code)
		finish(s, code, &err);
	return code != 0;
}

/* ---- repeats ---- */

/* Up to N, so that those who failed together do not come together again. */
static uint64_t jitter(uint64_t n)
{
	uint32_t some = 0;

	if (getrandom(&some, sizeof(some), GRND_NONBLOCK) < 0)
		some = UINT32_MAX / 2;
	return n * some / UINT32_MAX;
}

uint64_t remote_pause_ms(const struct remote_link *link, unsigned repeats)
{
	uint64_t ms = link->config.backoff_ms << (repeats < 8 ? repeats : 8);

	if (ms > PAUSE_MAX_MS)
		ms = PAUSE_MAX_MS;
	return ms + jitter(ms);
}

bool remote_is_passing(int code)
{
	return code == -EREMOTEIO || code == -ETIMEDOUT || code == -ECONNREFUSED ||
	       code == -ENETUNREACH || code == -EBUSY || code == -EAGAIN;
}

static void begin_stage(struct sending *s);

static void on_timer(struct sbx_timer *t)
{
	begin_stage(t->data);
}

/* A sending has failed by CODE: another follows, where PASSING and there is time, or the end. */
static void repeat_or_finish(struct sending *s, int code, bool passing, const struct sbx_error *err)
{
	const uint64_t pause = remote_pause_ms(s->link, s->repeats);

	if (finish_unwanted(s))
		return;
	if (!passing || !s->call->safe || sbx_now_ns() + pause * 1000000 >= s->due_ns) {
		finish(s, code, err);
		return;
	}
	s->repeats++;
	s->stage = PAUSING;
	sbx_loop_timer_set(s->link->config.loop, &s->timer, pause);
}

/* ---- the answer ---- */

/* What a frame says that is of the whole call of S, as a negative errno. */
static int failure_of(struct sending *s)
{
	const struct remote_frame *f;
	int code;

	for (size_t at = 0; (f = remote_reply_next(&s->reply, &at, REMOTE_FAILED, NULL));) {
		if (*f->word || (f->b && s->call->does))
			continue;
		s->may_have_run |= f->b != 0;
		code = remote_reply_errno(f);
		return sbx_fail(&s->err, code ? code : EREMOTEIO, "%.*s",
		                f->len < 512 ? (int)f->len : 512, f->bytes);
	}
	s->may_have_run = true;
	return 0;
}

static void decode(struct sending *s)
{
	s->code = remote_reply_read(s->answer, s->answer_len, &s->reply, &s->err);
	if (s->code)
		s->may_have_run = true;
	else
		s->code = failure_of(s);
	free(sbx_steal_ptr(&s->answer));
}

static void decoded(void *data)
{
	struct sending *s = data;

	if (!finish_unwanted(s))
		finish(s, s->code, &s->err);
}

/* [pool] */
static void decode_apart(void *data)
{
	struct sending *s = data;
	struct sbx_loop *loop = s->link->config.loop;

	decode(s);
	sbx_loop_post(loop, decoded, s);
}

static void take_answer(struct sending *s)
{
	s->stage = DECODING;
	if (s->answer_len <= INLINE_MAX) {
		decode(s);
		decoded(s);
		return;
	}
	/* The next one need not wait for that; S may end only later, on this thread. */
	sbx_pool_submit(s->link->config.pool, decode_apart, s);
	begin_next(s->link);
}

/* As a negative errno, with a sentence, whatever the provider has said. */
static int failure_told(int code, const struct sbx_error *told, struct sbx_error *err)
{
	*err = told ? *told : SBX_ERROR_INIT;
	code = code > 0 ? -code : code;
	return *err->text ? code : sbx_fail(err, -code, "the machine: %s", strerror(-code));
}

static void run_done(struct sbx_machine_run *run, int code, char *out, size_t len,
                     const struct sbx_error *told)
{
	struct sending *s = sbx_container_of(run, struct sending, run);
	struct sbx_error err = SBX_ERROR_INIT;

	s->answer = out;
	s->answer_len = out ? len : 0;
	atomic_fetch_add(&s->link->received, s->answer_len);
	if (code) {
		code = failure_told(code, told, &err);
		s->may_have_run |= !run->not_run;
		free(sbx_steal_ptr(&s->answer));
		repeat_or_finish(s, code, remote_is_passing(code), &err);
	} else if (!out || !remote_reply_whole(out, len)) {
		s->may_have_run = true;
		free(sbx_steal_ptr(&s->answer));
		code = sbx_fail(&err, EPROTO, "the answer of the machine was cut off");
		repeat_or_finish(s, code, true, &err);
	} else {
		take_answer(s);
	}
}

/* ---- sending ---- */

static uint64_t put_size(const struct sending *s)
{
	uint64_t size = s->number ? s->call->body.n : 0;

	for (size_t i = 0; i < s->call->files_n; i++)
		size += s->call->files[i].bytes.size;
	return size;
}

uint64_t remote_put_ms(uint64_t size)
{
	return remote_deadline(PUT_MS) + remote_bytes_ms(size);
}

/* How long a put of S may take; 0: there is none. */
static uint64_t put_ms(const struct sending *s)
{
	return s->call->files_n || s->number ? remote_put_ms(put_size(s)) : 0;
}

static void put_done(struct sbx_machine_put *put, int code, const struct sbx_error *told)
{
	struct sending *s = sbx_container_of(put, struct sending, machine_put);
	struct sbx_error err = SBX_ERROR_INIT;

	if (code) {
		code = failure_told(code, told, &err);
		repeat_or_finish(s, code, remote_is_passing(code), &err);
		return;
	}
	s->put = true;
	if (!finish_unwanted(s))
		begin_stage(s);
}

static void begin_put(struct sending *s)
{
	struct remote_link *link = s->link;

	s->stage = PUTTING;
	s->machine_put = (struct sbx_machine_put){.op = "put",
	                                          .files = s->files,
	                                          .n = s->call->files_n + (s->number ? 1 : 0),
	                                          .deadline_ms = put_ms(s),
	                                          .done = put_done};
	remote_link_count(link, put_size(s));
	provider_of(link)->put(link->config.machine, &s->machine_put);
}

static void begin_run(struct sending *s)
{
	struct remote_link *link = s->link;
	const struct remote_call *call = s->call;
	const uint64_t now = sbx_now_ns();
	uint64_t deadline_ms = call->deadline_ms;

	s->stage = RUNNING;
	/* A repeat that begins late has less time. */
	if (s->due_ns < now + deadline_ms * 1000000)
		deadline_ms = s->due_ns > now ? (s->due_ns - now) / 1000000 + 1 : 1;
	s->run = (struct sbx_machine_run){
	        .op = call->op,
	        .script = s->script.at,
	        .script_len = s->script.n,
	        .deadline_ms = deadline_ms,
	        .answer_max = call->answer_max ? call->answer_max : ANSWER_MAX,
	        .safe = call->safe,
	        .held = call->held,
	        .done = run_done,
	};
	remote_link_count(link, s->script.n);
	provider_of(link)->run(link->config.machine, &s->run);
}

/* The provider may have called done when it returns, so S is not looked at any more. */
static void begin_stage(struct sending *s)
{
	if ((s->call->files_n || s->number) && !s->put)
		begin_put(s);
	else
		begin_run(s);
}

static void add_head(struct sending *s)
{
	struct remote_link *link = s->link;
	struct remote_text *t = &s->script;

	remote_text_add(t, "set --");
	remote_text_word(t, link->config.machine->room);
	remote_text_word(t, link->config.machine->workdir);
	remote_text_add(t, "\nR_ROOM=$1 R_TREE=$2\n");
	remote_text_add(t, remote_runner);
	for (unsigned i = 0; i < link->retired_n; i++)
		remote_text_printf(t, "rm -f \"$R_IN/%u\"\n", link->retired[i]);
	link->retired_n = 0;
}

/* Makes the script, and the list of what is put. 0 or -ENOMEM. */
static int compose(struct sending *s)
{
	static const char end[] = "\nr_end\n";
	const struct remote_call *call = s->call;

	add_head(s);
	if (s->script.n + call->body.n + sizeof(end) > SBX_SCRIPT_MAX) {
		s->number = s->link->number++;
		remote_text_printf(&s->script, ". \"$R_IN/%u\"", s->number);
	} else if (call->body.n) {
		remote_text_add_n(&s->script, call->body.at, call->body.n);
	}
	remote_text_add(&s->script, end);
	s->files = calloc(call->files_n + 1, sizeof(*s->files));
	if (call->body.failed || s->script.failed || !s->files)
		return -ENOMEM;
	if (call->files_n)
		memcpy(s->files, call->files, call->files_n * sizeof(*s->files));
	if (s->number)
		s->files[call->files_n] = (struct sbx_machine_file){
		        .number = s->number,
		        .bytes = {.data = call->body.at, .fd = -1, .size = call->body.n}};
	return 0;
}

/* It is the turn of S. */
static void send_first(struct sending *s)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (compose(s) < 0) {
		finish(s, sbx_no_memory(&err), &err);
		return;
	}
	s->due_ns = sbx_now_ns() + 2 * (s->call->deadline_ms + put_ms(s)) * 1000000;
	begin_stage(s);
}

static bool has_turn(const struct sending *s)
{
	return s->stage == PUTTING || s->stage == RUNNING || s->stage == PAUSING;
}

static void begin_next(struct remote_link *link)
{
	struct sending *next = NULL;

	for (struct sending *s = link->sendings; s; s = s->next) {
		if (!link->parallel && has_turn(s))
			return;
		if (!next && s->stage == QUEUED)
			next = s;
	}
	if (next)
		send_first(next);
}

static void arrive(void *data)
{
	struct sending *s = data;
	struct remote_link *link = s->link;

	s->next = NULL;
	*link->last = s;
	link->last = &s->next;
	if (!finish_unwanted(s))
		begin_next(link);
}

/* ---- what a caller does ---- */

void remote_call_begin(struct remote_link *link, struct remote_call *call)
{
	struct sending *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	atomic_fetch_add(&link->refs, 1);
	call->link = link;
	call->part = s;
	*s = (struct sending){.link = link, .call = call, .stage = QUEUED};
	s->timer = (struct sbx_timer){.fn = on_timer, .data = s};
	sbx_loop_post(link->config.loop, arrive, s);
}

/* Has what is under way for S ended; returns whether something was done. It may end at once. */
static bool stop(struct sending *s)
{
	struct sbx_machine *m = s->link->config.machine;

	if (s->stage == QUEUED || s->stage == PAUSING)
		return finish_unwanted(s);
	if (s->cancelled || s->stage == DECODING)
		return false;
	s->cancelled = true;
	if (s->stage == PUTTING)
		provider_of(s->link)->cancel_put(m, &s->machine_put);
	else
		provider_of(s->link)->cancel_run(m, &s->run);
	return true;
}

/* To end one begins others, so the list is looked at anew after each. */
static void stop_unwanted(struct remote_link *link)
{
	struct sending *s = link->sendings;

	while (s) {
		struct sbx_error err = SBX_ERROR_INIT;

		s = unwanted(link, s->call, &err) && stop(s) ? link->sendings : s->next;
	}
}

static void look_for_unwanted(void *data)
{
	struct remote_link *link = data;

	stop_unwanted(link);
	leave(link);
}

void remote_call_cancel(struct remote_call *call)
{
	struct remote_link *link = call->link;

	if (atomic_exchange(&call->given_up, true))
		return;
	atomic_fetch_add(&link->refs, 1);
	sbx_loop_post(link->config.loop, look_for_unwanted, link);
}

void remote_link_fail(struct remote_link *link, int code, const char *text)
{
	link->failed = SBX_ERROR_INIT;
	link->idle = false;
	if (!code)
		return;
	sbx_fail(&link->failed, code, "%s", text);
	atomic_fetch_add(&link->refs, 1);
	sbx_loop_post(link->config.loop, look_for_unwanted, link);
}

/* ---- the blocking door ---- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool over;
	int code;
	struct remote_reply *reply;
	struct sbx_error err;
};

static void wake(struct remote_call *call, int code, struct remote_reply *reply,
                 const struct sbx_error *err)
{
	struct waiter *w = call->data;

	pthread_mutex_lock(&w->lock);
	if (reply) {
		*w->reply = *reply;
		*reply = (struct remote_reply){0};
	}
	w->code = code;
	w->err = *err;
	w->over = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
}

int remote_call_perform(struct remote_link *link, struct remote_call *call, atomic_bool *cancelled,
                        struct remote_reply *reply, struct sbx_error *err)
{
	struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .reply = reply};

	pthread_cond_init(&w.ended, NULL);
	*reply = (struct remote_reply){0};
	call->done = wake;
	call->data = &w;
	remote_call_begin(link, call);
	pthread_mutex_lock(&w.lock);
	while (!w.over) {
		const struct timespec look =
		        sbx_clock_after(CLOCK_REALTIME, LOOK_MS * INT64_C(1000000));

		if (!cancelled) {
			pthread_cond_wait(&w.ended, &w.lock);
			continue;
		}
		pthread_cond_timedwait(&w.ended, &w.lock, &look);
		/* CALL is there as long as this thread waits. */
		if (!w.over && atomic_load(cancelled))
			remote_call_cancel(call);
	}
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.ended);
	if (w.code && err)
		*err = w.err;
	return w.code;
}
