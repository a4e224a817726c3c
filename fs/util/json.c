/*
 * json-c finds where a value ends and builds the tree, but it lets through what two readers
 * may understand differently: of duplicate keys it keeps the last, it takes any
 * bytes for UTF-8, \u0000 inside strings, half of a pair of \u escapes (of which it makes
 * another character), control characters, NaN, Infinity and "1.". So the
 * accepted text is walked once more, which is simple because its syntax is known to be sound.
 */
#include "fs/util/json.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/settings.h"

#define DEPTH 32

struct audit {
	const char *s;
	size_t len, at;
	size_t last, last_len;               /* the last string, quotes included */
	struct json_object *keys[DEPTH + 1]; /* seen at each level; NULL in an array */
	int depth;
	struct sbx_error *err;
};

int sbx_clip(const char *s, size_t len)
{
	size_t n = len;

	if (n > 100)
		for (n = 100; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80;)
			n--;
	return (int)n;
}

/* Whether S is \uXXXX with a code of FROM to 0x3ff more. */
static bool is_escape_from(const char *s, size_t left, unsigned from)
{
	char digits[5] = "";
	unsigned code;

	if (left < 6 || s[0] != '\\' || s[1] != 'u')
		return false;
	memcpy(digits, s + 2, 4);
	code = (unsigned)strtoul(digits, NULL, 16);
	return code >= from && code < from + 0x400;
}

/* Length of the escape at S, 0 for one of a surrogate pair without the other. */
static size_t escape_length(const char *s, size_t left)
{
	if (is_escape_from(s, left, 0xd800))
		return is_escape_from(s + 6, left - 6, 0xdc00) ? 12 : 0;
	return is_escape_from(s, left, 0xdc00) ? 0 : 2;
}

static int audit_string(struct audit *a)
{
	a->last = a->at++;
	while (a->at < a->len && a->s[a->at] != '"') {
		const char *s = a->s + a->at;
		size_t left = a->len - a->at, n;

		if ((unsigned char)*s < 0x20)
			return sbx_fail(a->err, EINVAL,
			                "invalid JSON: control character in a string at byte %zu",
			                a->at);
		if (*s == '\\' && left >= 6 && memcmp(s + 1, "u0000", 5) == 0)
			return sbx_fail(a->err, EINVAL, "invalid JSON: \\u0000 at byte %zu", a->at);
		n = *s == '\\' ? escape_length(s, left) : sbx_utf8_length(s, left);
		if (!n && *s == '\\')
			return sbx_fail(a->err, EINVAL,
			                "invalid JSON: half of a surrogate pair at byte %zu",
			                a->at);
		if (!n)
			return sbx_fail(a->err, EINVAL, "invalid JSON: not UTF-8 at byte %zu",
			                a->at);
		a->at += n;
	}
	a->last_len = a->at + 1 - a->last;
	return 0;
}

static char *decode_string(const char *literal, size_t len)
{
	struct json_tokener *tok;
	struct json_object *obj;
	char *text = NULL;

	if (!memchr(literal, '\\', len))
		return strndup(literal + 1, len - 2);
	tok = json_tokener_new();
	if (!tok)
		return NULL;
	obj = json_tokener_parse_ex(tok, literal, (int)len);
	if (obj)
		text = strdup(json_object_get_string(obj));
	json_object_put(obj);
	json_tokener_free(tok);
	return text;
}

static int audit_key(struct audit *a)
{
	struct json_object *keys = a->keys[a->depth];
	_cleanup_free_ char *key = decode_string(a->s + a->last, a->last_len);

	if (!key || !keys)
		return sbx_no_memory(a->err);
	if (json_object_object_get_ex(keys, key, NULL))
		return sbx_fail(a->err, EINVAL, "duplicate key \"%.*s\"",
		                sbx_clip(key, strlen(key)), key);
	if (json_object_object_add(keys, key, NULL))
		return sbx_no_memory(a->err);
	return 0;
}

static int audit_open(struct audit *a, char bracket)
{
	assert(a->depth < DEPTH);
	a->depth++;
	a->keys[a->depth] = bracket == '{' ? json_object_new_object() : NULL;
	return 0;
}

static int audit_close(struct audit *a)
{
	assert(a->depth > 0);
	json_object_put(a->keys[a->depth]);
	a->keys[a->depth--] = NULL;
	return 0;
}

static int audit_byte(struct audit *a)
{
	char c = a->s[a->at];

	switch (c) {
	case '"':
		return audit_string(a);
	case ':':
		return audit_key(a);
	case '{':
	case '[':
		return audit_open(a, c);
	case '}':
	case ']':
		return audit_close(a);
	case 'N':
	case 'I':
		return sbx_fail(a->err, EINVAL, "invalid JSON: number expected at byte %zu", a->at);
	case '.':
		if (a->at + 1 < a->len && isdigit((unsigned char)a->s[a->at + 1]))
			return 0;
		return sbx_fail(a->err, EINVAL, "invalid JSON: digit expected at byte %zu",
		                a->at + 1);
	default:
		return 0;
	}
}

static int audit(const char *text, size_t len, struct sbx_error *err)
{
	struct audit a = {.s = text, .len = len, .err = err};
	int r = 0;

	for (; !r && a.at < a.len; a.at++)
		r = audit_byte(&a);
	while (a.depth > 0)
		audit_close(&a);
	return r;
}

static bool json_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int accept(struct json_object *obj, const char *text, size_t len, struct json_object **ret,
                  size_t *used, struct sbx_error *err)
{
	int r;

	while (len > 0 && json_space(text[len - 1]))
		len--;
	r = audit(text, len, err);
	if (r < 0) {
		json_object_put(obj);
		return r;
	}
	*ret = obj;
	*used = len;
	return 1;
}

void sbx_json_feed_end(struct json_tokener **tok)
{
	if (*tok)
		json_tokener_free(*tok);
	*tok = NULL;
}

static int make_tokener(struct json_tokener **tok)
{
	if (*tok)
		return 0;
	*tok = json_tokener_new_ex(DEPTH);
	return *tok ? 0 : -ENOMEM;
}

/*
 * How much of TEXT goes to json-c in one call, and in which mode. Where it is strict, json-c 0.18
 * takes bytes above 0x7f for control characters. They stand in strings alone, and up to the next
 * quote or backslash strictness means nothing there.
 */
static size_t next_run(const char *text, size_t len, int *flags)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = 0;

	*flags = JSON_TOKENER_ALLOW_TRAILING_CHARS;
	if (len && s[0] > 0x7f) {
		while (n < len && s[n] >= 0x20 && s[n] != '"' && s[n] != '\\')
			n++;
		return n;
	}
	*flags |= JSON_TOKENER_STRICT;
	while (n < len && s[n] <= 0x7f)
		n++;
	return n;
}

/* As json_tokener_parse_ex; *END is set to where it stopped. */
static struct json_object *parse_runs(struct json_tokener *tok, const char *text, size_t len,
                                      size_t *end)
{
	struct json_object *obj;
	size_t at = 0;

	do {
		int flags;
		size_t n = next_run(text + at, len - at, &flags);

		json_tokener_set_flags(tok, flags);
		obj = json_tokener_parse_ex(tok, text + at, (int)n);
		at += json_tokener_get_parse_end(tok);
	} while (at < len && json_tokener_get_error(tok) == json_tokener_continue);
	*end = at;
	return obj;
}

int sbx_json_feed(struct json_tokener **tok, const char *text, size_t from, size_t len,
                  struct json_object **ret, size_t *used, struct sbx_error *err)
{
	const char *nul = memchr(text + from, '\0', len - from);
	size_t n = nul ? (size_t)(nul - text) - from : len - from;
	enum json_tokener_error e;
	struct json_object *obj;
	size_t at;

	if (n > INT_MAX)
		return sbx_fail(err, E2BIG, "JSON text too long");
	if (make_tokener(tok) < 0)
		return sbx_no_memory(err);
	obj = parse_runs(*tok, text + from, n, &at);
	at += from;
	e = json_tokener_get_error(*tok);
	if (e == json_tokener_continue && !nul)
		return 0;
	sbx_json_feed_end(tok);
	if (e == json_tokener_continue)
		return sbx_fail(err, EINVAL, "invalid JSON: NUL byte at byte %zu", at);
	if (e != json_tokener_success)
		return sbx_fail(err, EINVAL, "invalid JSON: %s at byte %zu",
		                json_tokener_error_desc(e), at);
	return accept(obj, text, at, ret, used, err);
}

/* A number or word at top level has no end of its own: a NUL tells json-c that this was all. */
static int finish(struct json_tokener *tok, const char *text, size_t len, struct json_object **ret,
                  size_t *used, struct sbx_error *err)
{
	struct json_object *obj = json_tokener_parse_ex(tok, "", 1);

	if (json_tokener_get_error(tok) != json_tokener_success)
		return sbx_fail(err, EINVAL, "incomplete JSON");
	return accept(obj, text, len, ret, used, err);
}

int sbx_json_parse(const char *text, size_t len, bool final, struct json_object **ret, size_t *used,
                   struct sbx_error *err)
{
	struct json_tokener *tok = NULL;
	int r = sbx_json_feed(&tok, text, 0, len, ret, used, err);

	if (r == 0 && final)
		r = finish(tok, text, len, ret, used, err);
	sbx_json_feed_end(&tok);
	return r;
}

int sbx_json_number(struct json_object *obj, const char *key, uint64_t *ret, struct sbx_error *err)
{
	int64_t v = json_object_is_type(obj, json_type_int) ? json_object_get_int64(obj) : -1;

	if (v < 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be an integer, 0 or more", key);
	if ((uint64_t)v > SBX_NUMBER_MAX)
		return sbx_fail(err, EINVAL, "\"%s\" is too large", key);
	*ret = (uint64_t)v;
	return 0;
}
