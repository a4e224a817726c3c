/*
 * Commands print bytes and are given bytes; JSON knows only UTF-8. What goes into JSON passes
 * through here, so that no result or log line is ever invalid.
 */
#include "fs/util/utf8.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

/* Bytes of the sequence that C begins, 0 when it begins none. */
static size_t sequence(unsigned char c)
{
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if (c >= 0xe0 && c <= 0xef)
		return 3;
	return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* Whether SECOND may follow FIRST: no overlong form, no surrogate, nothing past U+10FFFF. */
static bool follows(unsigned char first, unsigned char second)
{
	switch (first) {
	case 0xe0:
		return second >= 0xa0 && second <= 0xbf;
	case 0xed:
		return second >= 0x80 && second <= 0x9f;
	case 0xf0:
		return second >= 0x90 && second <= 0xbf;
	case 0xf4:
		return second >= 0x80 && second <= 0x8f;
	default:
		return (second & 0xc0) == 0x80;
	}
}

size_t sbx_utf8_length(const char *buf, size_t len)
{
	const unsigned char *s = (const unsigned char *)buf;
	size_t n = len ? sequence(s[0]) : 0;

	if (!n || n > len || (n > 1 && !follows(s[0], s[1])))
		return 0;
	for (size_t i = 2; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

size_t sbx_utf8_span(const char *buf, size_t len)
{
	size_t at = 0, n;

	while (at < len &&
	       (n = (unsigned char)buf[at] < 0x80 ? 1 : sbx_utf8_length(buf + at, len - at)))
		at += n;
	return at;
}

size_t sbx_utf8_floor(const char *buf, size_t len)
{
	const unsigned char *s = (const unsigned char *)buf;

	for (size_t back = 1; back <= 3 && back <= len; back++) {
		unsigned char c = s[len - back];

		if ((c & 0xc0) == 0x80)
			continue;
		return sequence(c) > back ? len - back : len;
	}
	return len;
}

size_t sbx_utf8_skip(const char *buf, size_t len)
{
	size_t n = 0;

	while (n < len && n < 3 && ((unsigned char)buf[n] & 0xc0) == 0x80)
		n++;
	return n;
}

static struct json_object *replaced(const char *buf, size_t len)
{
	static const char mark[] = "\xef\xbf\xbd";
	_cleanup_free_ char *out = len <= INT_MAX / 3 ? malloc(3 * len + 1) : NULL;
	size_t n = 0;

	if (!out)
		return NULL;
	for (size_t at = 0; at < len;) {
		size_t good = sbx_utf8_span(buf + at, len - at);

		memcpy(out + n, buf + at, good);
		n += good;
		at += good;
		if (at < len) {
			memcpy(out + n, mark, 3);
			n += 3;
			at++;
		}
	}
	return json_object_new_string_len(out, (int)n);
}

struct json_object *sbx_text_json(const char *buf, size_t len)
{
	if (len > INT_MAX)
		return NULL;
	if (sbx_utf8_span(buf, len) == len)
		return json_object_new_string_len(buf, (int)len);
	return replaced(buf, len);
}

struct json_object *sbx_text_json_list(char *const *list)
{
	struct json_object *array;

	if (!list)
		return NULL;
	array = json_object_new_array();
	for (size_t i = 0; array && list[i]; i++)
		json_object_array_add(array, sbx_text_json(list[i], strlen(list[i])));
	return array;
}

char *sbx_base64(const void *buf, size_t len)
{
	static const char digits[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *s = buf;
	char *out = malloc((len + 2) / 3 * 4 + 1);
	char *o = out;

	if (!out)
		return NULL;
	for (size_t at = 0; at < len; at += 3) {
		size_t n = len - at < 3 ? len - at : 3;
		uint32_t v = (uint32_t)s[at] << 16;

		v |= n > 1 ? (uint32_t)s[at + 1] << 8 : 0;
		v |= n > 2 ? s[at + 2] : 0;
		*o++ = digits[v >> 18];
		*o++ = digits[v >> 12 & 63];
		*o++ = n > 1 ? digits[v >> 6 & 63] : '=';
		*o++ = n > 2 ? digits[v & 63] : '=';
	}
	*o = '\0';
	return out;
}

int sbx_text_append(char **buf, size_t *len, const void *data, size_t n, size_t max)
{
	char *grown;

	if (n > max - *len)
		return -E2BIG;
	grown = realloc(*buf, *len + n + 1);
	if (!grown)
		return -ENOMEM;
	memcpy(grown + *len, data, n);
	grown[*len + n] = '\0';
	*buf = grown;
	*len += n;
	return 0;
}
