#include "fs/github/text.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/util/utf8.h"

#define LINE_MAX_BYTES 2000
#define DEPTH          32

/* ---- texts ---- */

char *sbx_github_title(const char *prefix, const char *text)
{
	char *title = NULL;
	size_t at = 0;

	if (asprintf(&title, "%s%s%s", prefix, *prefix ? " " : "", text) < 0)
		return NULL;
	for (char *c = title; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	for (size_t n = 0; title[at] && n < SBX_GITHUB_TITLE; n++)
		do
			at++;
		while (((unsigned char)title[at] & 0xc0) == 0x80);
	title[at] = '\0';
	return title;
}

/* ---- answers ---- */

static struct json_object *parse(const char *body, size_t len)
{
	struct json_tokener *tok = json_tokener_new_ex(DEPTH);
	struct json_object *obj = NULL;

	if (tok && len <= INT32_MAX)
		obj = json_tokener_parse_ex(tok, body, (int)len);
	json_tokener_free(tok);
	if (obj && !json_object_is_type(obj, json_type_object)) {
		json_object_put(obj);
		obj = NULL;
	}
	return obj;
}

/* The string KEY of OBJ, or NULL; one with a NUL byte counts up to that. */
static const char *text_of(struct json_object *obj, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(obj, key, &value) &&
	                       json_object_is_type(value, json_type_string)
	               ? json_object_get_string(value)
	               : NULL;
}

static bool is_line(const char *s)
{
	const size_t n = strlen(s);

	for (const char *c = s; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	return n > 0 && n <= LINE_MAX_BYTES && sbx_utf8_span(s, n) == n;
}

int sbx_github_member(const char *body, size_t len, const char *key, char **ret,
                      struct sbx_error *err)
{
	struct json_object *obj = parse(body, len);
	const char *text = obj ? text_of(obj, key) : NULL;
	int r = 0;

	if (!text || !is_line(text)) {
		r = sbx_fail(err, EBADMSG, "the answer of GitHub's API has no %s", key);
	} else {
		*ret = strdup(text);
		if (!*ret)
			r = sbx_no_memory(err);
	}
	json_object_put(obj);
	return r;
}

static int errno_of(long status)
{
	switch (status) {
	case 401:
	case 403:
		return EACCES;
	case 404:
		return ENOENT;
	case 422:
		return EINVAL;
	case 429:
		return EAGAIN;
	}
	return EREMOTEIO;
}

/* The sentences of errors[], each behind "; ". */
static void add_errors(struct json_object *obj, char *text, size_t size)
{
	struct json_object *errors, *one;

	if (!json_object_object_get_ex(obj, "errors", &errors) ||
	    !json_object_is_type(errors, json_type_array))
		return;
	for (size_t i = 0; i < json_object_array_length(errors) && i < 4; i++) {
		const size_t at = strlen(text);
		const char *field, *message;

		one = json_object_array_get_idx(errors, i);
		if (json_object_is_type(one, json_type_string)) {
			snprintf(text + at, size - at, ": %s", json_object_get_string(one));
			continue;
		}
		if (!json_object_is_type(one, json_type_object))
			continue;
		message = text_of(one, "message");
		field = text_of(one, "field");
		if (message)
			snprintf(text + at, size - at, ": %s", message);
		else if (field)
			snprintf(text + at, size - at, ": %s is %s", field,
			         text_of(one, "code") ? text_of(one, "code") : "refused");
	}
}

int sbx_github_refusal(long status, const char *body, size_t len, struct sbx_error *err)
{
	struct json_object *obj = parse(body, len);
	const char *message = obj ? text_of(obj, "message") : NULL;
	char text[700];

	if (message) {
		snprintf(text, sizeof(text), "%.300s", message);
		add_errors(obj, text, sizeof(text));
	} else if (status >= 300 && status < 400) {
		snprintf(text, sizeof(text),
		         "GitHub's API leads elsewhere; is the repository called otherwise now?");
	} else {
		snprintf(text, sizeof(text), "GitHub's API refused without a reason");
	}
	text[sbx_utf8_floor(text, strlen(text))] = '\0';
	json_object_put(obj);
	return sbx_fail(err, errno_of(status), "%s (HTTP %ld)", text, status);
}
