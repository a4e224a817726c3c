/*
 * Strict where another reader could see something else: lines end with CR LF, a line does not go on
 * in the next, no control characters. The server never gets a Host that was not checked.
 */
#include "fs/net/http_head.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sandboxfs/cleanup.h"

#define VERSION_LEN 8 /* of HTTP/1.x */

size_t sbx_head_length(const char *buf, size_t len)
{
	const char *end = memmem(buf, len, "\r\n\r\n", 4);

	return end ? (size_t)(end - buf) + 4 : 0;
}

static bool is_token(const char *text, size_t len)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      (c && strchr(others, c))))
			return false;
	}
	return len > 0;
}

/* Printable ASCII without a space. */
static bool is_plain(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return true;
}

static bool is_field(const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);

	if (!colon || !is_token(line, (size_t)(colon - line)))
		return false;
	for (const char *p = colon + 1; p < line + len; p++)
		if ((unsigned char)*p < ' ' && *p != '\t')
			return false;
	return !memchr(colon, 0x7f, len - (size_t)(colon - line));
}

/* The length of the line at P, without its end. There is one. */
static size_t line_length(const char *p, const char *end)
{
	return (size_t)((const char *)memmem(p, (size_t)(end - p), "\r\n", 2) - p);
}

static bool are_fields(const char *fields, size_t len)
{
	const char *end = fields + len;

	for (const char *p = fields; p < end;) {
		size_t n = line_length(p, end);

		if (!is_field(p, n))
			return false;
		p += n + 2;
	}
	return true;
}

/* METHOD SP TARGET SP VERSION */
static int split_line(const char *line, size_t len, struct sbx_head *h, const char **target,
                      size_t *target_len)
{
	const char *first = memchr(line, ' ', len);
	const char *last = memrchr(line, ' ', len);

	if (!first || first == last || line + len - (last + 1) != VERSION_LEN)
		return 400;
	h->method = line;
	h->method_len = (size_t)(first - line);
	h->version = last + 1;
	*target = first + 1;
	*target_len = (size_t)(last - *target);
	if (!is_token(h->method, h->method_len) || !is_plain(*target, *target_len) ||
	    (memcmp(h->version, "HTTP/1.0", VERSION_LEN) != 0 &&
	     memcmp(h->version, "HTTP/1.1", VERSION_LEN) != 0))
		return 400;
	return 0;
}

/* http://HOST[:PORT][/PATH][?QUERY] */
static int split_uri(const char *uri, size_t len, struct sbx_head *h)
{
	static const char scheme[] = "http://";
	const size_t n = sizeof(scheme) - 1;

	if (len < n || strncasecmp(uri, scheme, n) != 0)
		return memmem(uri, len, "://", 3) ? 501 : 400;
	if (memchr(uri, '#', len))
		return 400;
	h->host = uri + n;
	h->host_len = len - n;
	for (size_t i = 0; i < len - n; i++) {
		if (h->host[i] == '/' || h->host[i] == '?') {
			h->host_len = i;
			break;
		}
	}
	h->path = h->host + h->host_len;
	h->path_len = len - n - h->host_len;
	return 0;
}

int sbx_head_parse(const char *buf, size_t len, struct sbx_head *ret)
{
	struct sbx_head h = {0};
	size_t line = line_length(buf, buf + len), target_len;
	const char *target;
	int status = split_line(buf, line, &h, &target, &target_len);

	if (status)
		return status;
	h.fields = buf + line + 2;
	h.fields_len = len - line - 4;
	if (!are_fields(h.fields, h.fields_len))
		return 400;
	h.connect = h.method_len == 7 && memcmp(h.method, "CONNECT", 7) == 0;
	h.host = target;
	h.host_len = target_len;
	if (!h.connect)
		status = split_uri(target, target_len, &h);
	if (!status && sbx_target_parse(h.host, h.host_len, h.connect ? 0 : 80, &h.target) < 0)
		status = 403;
	*ret = h;
	return status;
}

/* Those that are for the proxy, and the one that is ours to write. */
static bool is_kept(const char *line, size_t len)
{
	static const char *const dropped[] = {
	        "Host",       "Connection", "Proxy-Connection", "Proxy-Authorization",
	        "Keep-Alive", "TE",         "Upgrade"};
	size_t name = (size_t)((const char *)memchr(line, ':', len) - line);

	for (size_t i = 0; i < SBX_ARRAY_SIZE(dropped); i++)
		if (strlen(dropped[i]) == name && strncasecmp(dropped[i], line, name) == 0)
			return false;
	return true;
}

size_t sbx_head_rewrite(const struct sbx_head *h, char *buf, size_t size)
{
	const bool v6 = h->target.literal && strchr(h->target.host, ':');
	const char *end = h->fields + h->fields_len;
	const char *slash = h->path_len && *h->path == '/' ? "" : "/";
	char port[8] = "";
	size_t at;
	int n;

	if (h->target.port != 80)
		snprintf(port, sizeof(port), ":%u", h->target.port);
	n = snprintf(buf, size, "%.*s %s%.*s %.*s\r\nHost: %s%s%s%s\r\nConnection: close\r\n",
	             (int)h->method_len, h->method, slash, (int)h->path_len, h->path, VERSION_LEN,
	             h->version, v6 ? "[" : "", h->target.host, v6 ? "]" : "", port);
	if (n < 0 || (size_t)n >= size)
		return 0;
	at = (size_t)n;
	for (const char *p = h->fields; p < end;) {
		size_t line = line_length(p, end);

		if (is_kept(p, line)) {
			if (size - at < line + 2)
				return 0;
			memcpy(buf + at, p, line + 2);
			at += line + 2;
		}
		p += line + 2;
	}
	if (size - at < 2)
		return 0;
	memcpy(buf + at, "\r\n", 2);
	return at + 2;
}
