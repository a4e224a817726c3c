#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/scrub.h"

#define SAID_MAX 400 /* bytes of what a server says that are shown */

/* ---- JSON ---- */

struct json_object *daytona_parse(const char *text, size_t len)
{
	struct json_tokener *tok = json_tokener_new_ex(DAYTONA_DEPTH);
	struct json_object *obj = NULL;

	if (tok && text && len <= INT32_MAX)
		obj = json_tokener_parse_ex(tok, text, (int)len);
	if (tok)
		json_tokener_free(tok);
	if (obj && !json_object_is_type(obj, json_type_object)) {
		json_object_put(obj);
		obj = NULL;
	}
	return obj;
}

struct json_object *daytona_member(struct json_object *obj, const char *key, enum json_type type)
{
	struct json_object *value;

	return obj && json_object_object_get_ex(obj, key, &value) &&
	                       json_object_is_type(value, type)
	               ? value
	               : NULL;
}

const char *daytona_text(struct json_object *obj, const char *key)
{
	struct json_object *value = daytona_member(obj, key, json_type_string);

	return value ? json_object_get_string(value) : "";
}

double daytona_number(struct json_object *obj, const char *key)
{
	struct json_object *value;
	double number;

	if (!obj || !json_object_object_get_ex(obj, key, &value) ||
	    (!json_object_is_type(value, json_type_int) &&
	     !json_object_is_type(value, json_type_double)))
		return 0;
	number = json_object_get_double(value);
	return isfinite(number) ? number : 0;
}

bool daytona_flag(struct json_object *obj, const char *key)
{
	struct json_object *value = daytona_member(obj, key, json_type_boolean);

	return value && json_object_get_boolean(value);
}

void daytona_add(struct json_object *obj, const char *key, const char *value)
{
	if (value)
		json_object_object_add(obj, key, json_object_new_string(value));
}

const char *daytona_json(struct json_object *obj, size_t *len)
{
	return json_object_to_json_string_length(
	        obj, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, len);
}

void daytona_put_secret(struct json_object *obj)
{
	struct json_object *password = daytona_member(obj, "password", json_type_string);
	size_t len;
	const char *text = daytona_json(obj, &len);

	explicit_bzero((char *)text, len);
	if (password)
		explicit_bzero((char *)json_object_get_string(password),
		               (size_t)json_object_get_string_len(password));
	json_object_put(obj);
}

/* ---- refusals ---- */

/* Cuts TEXT to N bytes, and no character in two. */
static void cut(char *text, size_t n)
{
	if (strlen(text) <= n)
		return;
	while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	text[n] = '\0';
}

/* "message" of both servers, "error" of some, and the first of the "errors" of an upload. */
static const char *said(struct json_object *obj)
{
	struct json_object *errors = daytona_member(obj, "errors", json_type_array), *first;

	if (*daytona_text(obj, "message"))
		return daytona_text(obj, "message");
	first = errors && json_object_array_length(errors) ? json_object_array_get_idx(errors, 0)
	                                                   : NULL;
	if (first && json_object_is_type(first, json_type_string))
		return json_object_get_string(first);
	return daytona_text(obj, "error");
}

void daytona_refused(const char *body, size_t len, long status, struct sbx_error *err)
{
	struct json_object *obj = daytona_parse(body, len);
	char text[2 * SAID_MAX];

	snprintf(text, sizeof(text), "%s", said(obj));
	json_object_put(obj);
	cut(text, SAID_MAX);
	sbx_scrub(text, NULL);
	if (*text)
		sbx_fail(err, err->code, "Daytona: %s (HTTP %ld)", text, status);
}

/* ---- requests ---- */

static int read_answer(const struct sbx_http_answer *answer, struct json_object **ret,
                       struct sbx_error *err)
{
	*ret = daytona_parse(answer->body, answer->len);
	return *ret ? 0 : sbx_fail(err, EPROTO, "an answer of Daytona cannot be understood");
}

static int perform(struct daytona *d, struct sbx_http_request *req, atomic_bool *cancelled,
                   long *status, struct json_object **ret, struct sbx_error *err)
{
	struct sbx_http_answer answer = {0};
	int r = sbx_http_perform(d->config.http, req, cancelled, &answer, err);

	if (status)
		*status = answer.status;
	if (r && answer.status)
		daytona_refused(answer.body, answer.len, answer.status, err);
	if (!r && ret)
		r = read_answer(&answer, ret, err);
	sbx_http_answer_release(&answer);
	return r;
}

int daytona_ask(struct daytona *d, const struct daytona_ask *ask, atomic_bool *cancelled,
                long *status, struct json_object **ret, struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	_cleanup_free_ char *url = NULL;
	struct sbx_http_request req = {
	        .op = ask->op,
	        .method = ask->method,
	        .peer = "Daytona",
	        .headers = d->headers + !ask->body,
	        .secret = d->config.key,
	        .hidden = ask->hidden,
	        .deadline_ms = ask->deadline_ms ? ask->deadline_ms : d->config.ask_ms,
	        .repeat = ask->repeat,
	        .json = true,
	};
	int r;

	if (status)
		*status = 0;
	if (asprintf(&url, "%s%s", ask->base, ask->path) < 0) {
		url = NULL;
		return sbx_no_memory(err);
	}
	req.url = url;
	if (ask->body)
		req.body.data = daytona_json(ask->body, &req.body.size);
	r = perform(d, &req, cancelled, status, ret, &own);
	if (r && err)
		*err = own;
	return r;
}

int daytona_askf(struct daytona *d, struct daytona_ask ask, atomic_bool *cancelled, long *status,
                 struct json_object **ret, struct sbx_error *err, const char *fmt, ...)
{
	_cleanup_free_ char *path = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&path, fmt, ap);
	va_end(ap);
	if (n < 0) {
		path = NULL;
		return sbx_no_memory(err);
	}
	ask.path = path;
	return daytona_ask(d, &ask, cancelled, status, ret, err);
}
