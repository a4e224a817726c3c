/*
 * A script that runs as a command whose output comes in the answer. Such an answer is cut after
 * some minutes at the latest, so it is listened to for less. The command goes on: its end is then
 * asked for again and again, and its whole output once it has ended. So a script runs once though
 * its answer was lost, unless that was lost before its first line.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/escape.h"
#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"

#define WAIT_MS  20000 /* that the end of a command is waited for in one request */
#define WORD_MAX ((size_t)64 * 1024)
#define RESTARTS 2

/* ---- the command ---- */

static bool is_ascii(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] >= 0x80)
			return false;
	return true;
}

/* One character for the format of printf(1). */
static char *quote(char *to, char c, bool first)
{
	if (first || (unsigned char)c >= 0x80)
		return sbx_put_octal(to, (unsigned char)c);
	if (c == '\\' || c == '%')
		*to++ = c;
	*to++ = c;
	return to;
}

static void add_word(struct json_object *words, const char *text)
{
	json_object_array_add(words, json_object_new_string(text));
}

/*
 * What is sent is a string of JSON, which has no bytes that are not UTF-8. A script with others is
 * put together there by printf(1), of words that are each short enough for a command line.
 */
static void add_formats(struct json_object *words, const char *script, size_t len, char *room)
{
	for (size_t i = 0; i < len;) {
		char *to = room;

		for (; i < len && to - room < (ptrdiff_t)WORD_MAX; i++)
			to = quote(to, script[i], to == room);
		*to = '\0';
		add_word(words, room);
	}
}

struct json_object *vercel_command_words(const char *script, size_t len, const char *const *args)
{
	const bool ascii = is_ascii(script, len);
	_cleanup_free_ char *room = ascii ? NULL : malloc(WORD_MAX + 8);
	struct json_object *words = ascii || room ? json_object_new_array() : NULL;

	if (!words)
		return NULL;
	add_word(words, "-c");
	if (ascii)
		json_object_array_add(words, json_object_new_string_len(script, (int)len));
	else
		add_word(words, "eval \"$(for w; do printf \"$w\"; done)\"");
	add_word(words, "sh");
	if (!ascii)
		add_formats(words, script, len, room);
	for (; args && *args; args++)
		add_word(words, *args);
	return words;
}

static struct json_object *run_body(const struct sbx_machine_run *run, const char *const *args,
                                    bool sudo)
{
	struct json_object *words = vercel_command_words(run->script, run->script_len, args);
	struct json_object *body = words ? json_object_new_object() : NULL;

	if (!body)
		return NULL;
	sbx_member_add(body, "command", "sh");
	json_object_object_add(body, "args", words);
	json_object_object_add(body, "env", json_object_new_object());
	json_object_object_add(body, "sudo", json_object_new_boolean(sudo));
	json_object_object_add(body, "wait", json_object_new_boolean(true));
	json_object_object_add(body, "logs", json_object_new_boolean(true));
	return body;
}

/* ---- its steps ---- */

enum step {
	STEP_START, /* it is started, and listened to */
	STEP_WAIT,  /* for its end */
	STEP_LOGS,  /* all that it said */
};

struct part {
	struct vercel_send send;
	struct sbx_machine_run *run;
	struct json_object *body;
	enum step step;
	unsigned restarts;
	char command[64];
	struct vercel_stream stream;
};

static struct part *part_of(struct vercel_send *s)
{
	return sbx_container_of(s, struct part, send);
}

static int take(struct sbx_http_request *req, const void *data, size_t len)
{
	return vercel_stream_take(&part_of(req->data)->stream, data, len);
}

static uint64_t at_most(uint64_t ms, uint64_t most)
{
	return ms < most ? ms : most;
}

static void prepare(struct vercel_send *s)
{
	struct part *p = part_of(s);
	struct sbx_http_request *http = &s->http;
	const uint64_t stream_ms = vercel_of(s->m->base.provider)->config.stream_ms;
	const uint64_t left = vercel_send_left(s) + 1;

	vercel_stream_release(&p->stream);
	*http = (struct sbx_http_request){.op = p->run->op, .method = "GET", .held = p->run->held};
	http->repeat = SBX_HTTP_SAFE;
	s->query = NULL;
	s->wakes = p->step == STEP_START;
	switch (p->step) {
	case STEP_START:
		snprintf(s->path, sizeof(s->path), "/cmd");
		http->method = "POST";
		http->body.data = sbx_object_text(p->body, &http->body.size);
		http->deadline_ms = at_most(left, stream_ms);
		http->repeat = p->run->safe ? SBX_HTTP_SAFE : SBX_HTTP_UNSENT;
		http->take = take;
		break;
	case STEP_WAIT:
		snprintf(s->path, sizeof(s->path), "/cmd/%s", p->command);
		s->query = "&wait=true";
		http->deadline_ms = at_most(left, WAIT_MS);
		http->json = true;
		break;
	case STEP_LOGS:
		snprintf(s->path, sizeof(s->path), "/cmd/%s/logs", p->command);
		http->deadline_ms = at_most(left, stream_ms);
		http->take = take;
		break;
	}
}

static enum vercel_next finish(struct vercel_send *s, int code, const char *text)
{
	s->code = sbx_fail(&s->err, code, "%s", text);
	return VERCEL_END;
}

static enum vercel_next too_late(struct vercel_send *s)
{
	return finish(s, ETIMEDOUT, "the sandbox has not answered in time");
}

static enum vercel_next start_again(struct part *p)
{
	p->restarts++;
	p->step = STEP_START;
	return VERCEL_AGAIN;
}

/* Errors that take_line has told. */
static enum vercel_next bad_stream(struct vercel_send *s)
{
	if (s->code == -EMSGSIZE)
		return finish(s, EMSGSIZE, "the output is too long");
	return finish(s, EPROTO, "an answer of Vercel cannot be understood");
}

static bool is_bad_stream(const struct vercel_send *s)
{
	return !s->said.status && (s->code == -EPROTO || s->code == -EMSGSIZE);
}

static bool may_restart(const struct part *p)
{
	return p->run->safe && p->restarts < RESTARTS && vercel_send_left(&p->send);
}

static enum vercel_next started(struct part *p)
{
	struct vercel_send *s = &p->send;

	if (!s->code && p->stream.ended)
		return VERCEL_END;
	if (s->said.status)
		return strcmp(s->said.code, "executable_not_found") == 0
		               ? finish(s, ENOENT, "the image of the sandbox has no sh")
		               : VERCEL_END;
	if (is_bad_stream(s))
		return bad_stream(s);
	if (*p->stream.command && vercel_send_left(s)) {
		memcpy(p->command, p->stream.command, sizeof(p->command));
		p->step = STEP_WAIT;
		return VERCEL_AGAIN;
	}
	if (!vercel_send_left(s))
		return too_late(s);
	if (s->code == -EREMOTEIO || !s->code) {
		if (may_restart(p))
			return start_again(p);
		return finish(s, EREMOTEIO, "the answer of Vercel was cut");
	}
	return VERCEL_END;
}

/* Its session has ended, or it was never heard of. */
static enum vercel_next is_lost(struct part *p)
{
	if (may_restart(p))
		return start_again(p);
	return finish(&p->send, EREMOTEIO, "the sandbox has stopped while it was used");
}

static enum vercel_next waited(struct part *p)
{
	struct vercel_send *s = &p->send;
	struct json_object *obj, *command;
	bool ended;

	if (!vercel_send_left(s))
		return too_late(s);
	if (s->said.status == 404 || s->said.status == 410 || s->said.status == 422)
		return is_lost(p);
	if (s->said.status && s->said.status < 500 && s->said.status != 429)
		return VERCEL_END;
	if (s->code)
		return VERCEL_LATER;
	obj = sbx_object_read(s->answer.body, s->answer.len);
	command = sbx_member(obj, "command", json_type_object);
	ended = sbx_member(command, "exitCode", json_type_int) ||
	        sbx_member(command, "exitCode", json_type_double);
	json_object_put(obj);
	if (!ended)
		return VERCEL_LATER;
	p->step = STEP_LOGS;
	return VERCEL_AGAIN;
}

static enum vercel_next logged(struct part *p)
{
	struct vercel_send *s = &p->send;

	if (!s->code && vercel_stream_is_whole(&p->stream))
		return VERCEL_END;
	if (is_bad_stream(s))
		return bad_stream(s);
	if (!vercel_send_left(s))
		return too_late(s);
	if (s->said.status == 404 || s->said.status == 410 || s->said.status == 422)
		return is_lost(p);
	return s->said.status && s->said.status < 500 && s->said.status != 429 ? VERCEL_END
	                                                                       : VERCEL_LATER;
}

static enum vercel_next answered(struct vercel_send *s)
{
	struct part *p = part_of(s);

	switch (p->step) {
	case STEP_START:
		return started(p);
	case STEP_WAIT:
		return waited(p);
	case STEP_LOGS:
		break;
	}
	return logged(p);
}

/* ---- runs ---- */

static void part_free(struct part *p)
{
	json_object_put(p->body);
	vercel_stream_release(&p->stream);
	free(p);
}

static void ended(struct vercel_send *s)
{
	struct part *p = part_of(s);
	struct sbx_machine_run *run = p->run;
	struct sbx_error err = s->err;
	const size_t len = s->code ? 0 : p->stream.len;
	char *out = s->code ? NULL : sbx_steal_ptr(&p->stream.out);
	int code = s->code;

	if (!code && !out)
		out = calloc(1, 1);
	if (!code && !out)
		code = sbx_no_memory(&err);
	run->not_run = code && !s->maybe;
	pthread_mutex_lock(&s->m->lock);
	run->part = NULL;
	pthread_mutex_unlock(&s->m->lock);
	part_free(p);
	run->done(run, code, out, len, &err);
}

/* [loop] */
static void no_memory(void *data)
{
	struct sbx_machine_run *run = data;
	struct sbx_error err = SBX_ERROR_INIT;
	const int r = sbx_no_memory(&err);

	run->not_run = true;
	run->done(run, r, NULL, 0, &err);
}

static void begin(struct vercel_machine *m, struct sbx_machine_run *run, const char *const *args,
                  bool sudo)
{
	struct part *p = calloc(1, sizeof(*p));
	struct json_object *body = p ? run_body(run, args, sudo) : NULL;

	run->part = NULL;
	if (!body) {
		free(p);
		sbx_loop_post(vercel_of(m->base.provider)->config.loop, no_memory, run);
		return;
	}
	p->run = run;
	p->body = body;
	p->stream.most = run->answer_max;
	p->send.m = m;
	p->send.type = "Content-Type: application/json";
	p->send.budget_ms = run->deadline_ms;
	p->send.prepare = prepare;
	p->send.answered = answered;
	p->send.ended = ended;
	run->part = p;
	vercel_send_begin(&p->send);
}

void vercel_run(struct sbx_machine *machine, struct sbx_machine_run *run)
{
	begin(vercel_machine_of(machine), run, NULL, vercel_of(machine->provider)->config.sudo);
}

void vercel_cancel_run(struct sbx_machine *machine, struct sbx_machine_run *run)
{
	struct vercel_machine *m = vercel_machine_of(machine);

	pthread_mutex_lock(&m->lock);
	if (run->part)
		vercel_send_cancel(&((struct part *)run->part)->send);
	pthread_mutex_unlock(&m->lock);
}

/* ---- and waiting for one ---- */

struct wait {
	struct sbx_machine_run run;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;
	int code;
	char *out;
	struct sbx_error err;
};

static void tell(struct sbx_machine_run *run, int code, char *out, size_t len,
                 const struct sbx_error *err)
{
	struct wait *w = sbx_container_of(run, struct wait, run);

	(void)len;
	pthread_mutex_lock(&w->lock);
	w->code = code;
	w->out = out;
	w->err = *err;
	w->done = true;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static void await(struct vercel_machine *m, struct wait *w, atomic_bool *cancelled)
{
	pthread_mutex_lock(&w->lock);
	while (!w->done) {
		const struct timespec at = sbx_clock_after(CLOCK_REALTIME, 100000000);

		pthread_cond_timedwait(&w->changed, &w->lock, &at);
		if (w->done || !cancelled || !atomic_load(cancelled))
			continue;
		pthread_mutex_unlock(&w->lock);
		vercel_cancel_run(&m->base, &w->run);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
}

int vercel_run_wait(struct vercel_machine *m, const char *op, const char *script,
                    const char *const *args, uint64_t deadline_ms, char **out,
                    atomic_bool *cancelled, struct sbx_error *err)
{
	struct wait w = {
	        .run = {.op = op,
	                .script = script,
	                .script_len = strlen(script),
	                .deadline_ms = deadline_ms,
	                .answer_max = (size_t)64 * 1024,
	                .safe = true,
	                .done = tell},
	        .lock = PTHREAD_MUTEX_INITIALIZER,
	        .changed = PTHREAD_COND_INITIALIZER,
	};

	begin(m, &w.run, args, false);
	await(m, &w, cancelled);
	pthread_mutex_destroy(&w.lock);
	pthread_cond_destroy(&w.changed);
	*out = w.out;
	if (w.code && err)
		*err = w.err;
	return w.code;
}
