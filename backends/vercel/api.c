#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/scrub.h"

#define SAID_MAX 400 /* bytes of what Vercel says that are shown */

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

/* What a code means, where the status does not tell. */
static const struct {
	const char *code;
	int number;
} codes[] = {
        {"executable_not_found", ENOENT}, {"resource_limit_exceeded", EDQUOT},
        {"sandbox_stopped", EBUSY},       {"sandbox_stopping", EBUSY},
        {"snapshot_not_found", ESTALE},   {"sandbox_snapshotting", EBUSY},
        {"image_not_ready", EAGAIN},
};

/* A session that has ended is not the end of its sandbox. */
static int number_of(const char *code, long status, int other)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(codes); i++)
		if (strcmp(codes[i].code, code) == 0)
			return codes[i].number;
	return status == 410 || status == 422 ? EBUSY : other;
}

int vercel_refused(const struct vercel *v, const struct sbx_http_answer *answer,
                   struct vercel_said *said, struct sbx_error *err)
{
	_cleanup_object_ struct json_object *obj = sbx_object_read(answer->body, answer->len);
	struct json_object *error = sbx_member(obj, "error", json_type_object);
	char text[2 * SAID_MAX];

	*said = (struct vercel_said){.status = answer->status};
	snprintf(said->code, sizeof(said->code), "%s", sbx_member_text(error, "code"));
	snprintf(text, sizeof(text), "%s", sbx_member_text(error, "message"));
	err->code = number_of(said->code, answer->status, err->code);
	if (err->code == EKEYREJECTED && answer->status)
		return vercel_token_refused(&v->token, err);
	cut(text, SAID_MAX);
	sbx_scrub(text, NULL);
	if (*text)
		sbx_fail(err, err->code, "Vercel: %s (HTTP %ld)", text, answer->status);
	return -err->code;
}

/* ---- requests ---- */

char *vercel_url(const struct vercel *v, const char *path, const char *query)
{
	char *url;

	return asprintf(&url, "%s%s?%s%s", v->config.api_url, path, v->query, query ? query : "") <
	                       0
	               ? NULL
	               : url;
}

static int perform(struct vercel *v, struct sbx_http_request *req, atomic_bool *cancelled,
                   struct vercel_said *said, struct json_object **ret, struct sbx_error *err)
{
	struct sbx_http_answer answer = {0};
	int r = sbx_http_perform(v->config.http, req, cancelled, &answer, err);

	if (r && answer.status)
		r = vercel_refused(v, &answer, said, err);
	if (!r && ret) {
		*ret = sbx_object_read(answer.body, answer.len);
		if (!*ret)
			r = sbx_fail(err, EPROTO, "an answer of Vercel cannot be understood");
	}
	sbx_http_answer_release(&answer);
	return r;
}

static int ask_at(struct vercel *v, const struct vercel_ask *ask, const char *path,
                  atomic_bool *cancelled, struct vercel_said *said, struct json_object **ret,
                  struct sbx_error *err)
{
	static const char *const headers[] = {"Content-Type: application/json", NULL};
	_cleanup_free_ char *url = vercel_url(v, path, ask->query);
	struct sbx_http_request req = {
	        .op = ask->op,
	        .method = ask->method,
	        .url = url,
	        .peer = "Vercel",
	        .headers = headers,
	        .secret = v->token.secret,
	        .hidden = ask->hidden,
	        .deadline_ms = ask->deadline_ms ? ask->deadline_ms : v->config.ask_ms,
	        .repeat = ask->repeat,
	        .json = true,
	};

	if (!url)
		return sbx_no_memory(err);
	if (ask->body)
		req.body.data = sbx_object_text(ask->body, &req.body.size);
	return perform(v, &req, cancelled, said, ret, err);
}

int vercel_ask(struct vercel *v, const struct vercel_ask *ask, atomic_bool *cancelled,
               struct vercel_said *said, struct json_object **ret, struct sbx_error *err,
               const char *fmt, ...)
{
	struct sbx_error own = SBX_ERROR_INIT;
	struct vercel_said unwanted;
	_cleanup_free_ char *path = NULL;
	va_list ap;
	int n, r;

	if (!said)
		said = &unwanted;
	*said = (struct vercel_said){0};
	va_start(ap, fmt);
	n = vasprintf(&path, fmt, ap);
	va_end(ap);
	if (n < 0) {
		path = NULL;
		return sbx_no_memory(err);
	}
	r = ask_at(v, ask, path, cancelled, said, ret, &own);
	if (r && err)
		*err = own;
	return r;
}
