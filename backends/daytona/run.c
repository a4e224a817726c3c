/*
 * A script that runs by a command of the toolbox. The command is the standard input of a shell of
 * the toolbox's choice, so that a script which read it would read on in itself; and it is a string
 * of JSON, so that a byte that is not ASCII may not come through.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "backends/support/escape.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

#define ANSWER_ROOM ((uint64_t)64 * 1024) /* of an answer, beside the output */

/* ---- the command ---- */

static bool is_ascii(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] >= 0x80)
			return false;
	return true;
}

static char *copy(char *to, const char *from)
{
	const size_t n = strlen(from);

	memcpy(to, from, n);
	return to + n;
}

/* C within single quotes. */
static char *quote(char *to, char c)
{
	if (c == '\'')
		return copy(to, "'\\''");
	*to++ = c;
	return to;
}

/* C within the format of printf(1), in single quotes. */
static char *quote_format(char *to, char c)
{
	if (c == '\\' || c == '%')
		*to++ = c;
	if ((unsigned char)c >= 0x80)
		return sbx_put_octal(to, (unsigned char)c);
	return quote(to, c);
}

/* The newline keeps the format from being taken for an option. */
char *daytona_command(const char *script, size_t len)
{
	static const char plain[] = "sh -c '", format[] = "sh -c \"$(printf '\\n";
	static const char plain_end[] = "' </dev/null\n", format_end[] = "')\" </dev/null\n";
	const bool ascii = is_ascii(script, len);
	char *command = malloc(4 * len + sizeof(format) + sizeof(format_end));
	char *to = command;

	if (!command)
		return NULL;
	to = copy(to, ascii ? plain : format);
	for (size_t i = 0; i < len; i++)
		to = ascii ? quote(to, script[i]) : quote_format(to, script[i]);
	to = copy(to, ascii ? plain_end : format_end);
	*to = '\0';
	return command;
}

/* ---- runs ---- */

struct part {
	struct daytona_send send;
	struct sbx_machine_run *run;
	struct json_object *body;
	char *out;
	size_t len;
};

static int read_output(struct daytona_send *s, const struct sbx_http_answer *answer,
                       struct sbx_error *err)
{
	struct part *p = sbx_container_of(s, struct part, send);
	struct json_object *obj = daytona_parse(answer->body, answer->len);
	struct json_object *result = daytona_member(obj, "result", json_type_string);
	int r = 0;

	if (!result) {
		r = sbx_fail(err, EPROTO, "an answer of Daytona's has no output");
	} else if ((size_t)json_object_get_string_len(result) > p->run->answer_max) {
		r = sbx_fail(err, EMSGSIZE, "the output is too long");
	} else {
		p->len = (size_t)json_object_get_string_len(result);
		p->out = malloc(p->len + 1);
		if (p->out)
			memcpy(p->out, json_object_get_string(result), p->len + 1);
		else
			r = sbx_no_memory(err);
	}
	json_object_put(obj);
	return r;
}

static void part_free(struct part *p)
{
	json_object_put(p->body);
	free(p->out);
	free(p);
}

static void ended(struct daytona_send *s, int code, const struct sbx_error *err)
{
	struct part *p = sbx_container_of(s, struct part, send);
	struct sbx_machine_run *run = p->run;
	char *out = code ? NULL : sbx_steal_ptr(&p->out);
	const size_t len = p->len;

	run->not_run = code && !s->maybe;
	pthread_mutex_lock(&s->m->lock);
	run->part = NULL;
	pthread_mutex_unlock(&s->m->lock);
	part_free(p);
	run->done(run, code, out, code ? 0 : len, err);
}

/* Seconds are whole: the toolbox gives up behind us. */
static struct json_object *run_body(const struct sbx_machine_run *run, const char *command)
{
	struct json_object *body = json_object_new_object();

	daytona_add(body, "command", command);
	json_object_object_add(body, "timeout",
	                       json_object_new_int64((int64_t)(run->deadline_ms + 999) / 1000));
	return body;
}

static void set_up(struct part *p)
{
	struct sbx_machine_run *run = p->run;
	struct sbx_http_request *http = &p->send.http;

	p->send.path = "/process/execute";
	p->send.read = read_output;
	p->send.ended = ended;
	http->op = run->op;
	http->body.data = daytona_json(p->body, &http->body.size);
	http->deadline_ms = run->deadline_ms;
	http->answer_max = 2 * (uint64_t)run->answer_max + ANSWER_ROOM;
	http->repeat = run->safe ? SBX_HTTP_SAFE : SBX_HTTP_UNSENT;
	http->held = run->held;
	run->part = p;
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

void daytona_run(struct sbx_machine *machine, struct sbx_machine_run *run)
{
	struct part *p = calloc(1, sizeof(*p));
	_cleanup_free_ char *command = p ? daytona_command(run->script, run->script_len) : NULL;

	run->part = NULL;
	if (!command) {
		free(p);
		sbx_loop_post(daytona_of(machine->provider)->config.loop, no_memory, run);
		return;
	}
	p->send.m = daytona_machine_of(machine);
	p->run = run;
	p->body = run_body(run, command);
	set_up(p);
	daytona_send_begin(&p->send);
}

void daytona_cancel_run(struct sbx_machine *machine, struct sbx_machine_run *run)
{
	struct daytona_machine *m = daytona_machine_of(machine);

	pthread_mutex_lock(&m->lock);
	if (run->part)
		daytona_send_cancel(&((struct part *)run->part)->send);
	pthread_mutex_unlock(&m->lock);
}
