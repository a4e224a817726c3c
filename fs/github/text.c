#include "fs/github/text.h"

#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/scrub.h"

#define LINE_MAX_BYTES 2000
#define DEPTH          32

/* ---- URLs ---- */

/* A part of a text that is not ended by NUL. */
struct part {
	const char *s;
	size_t n;
};

static bool part_is(struct part p, const char *word)
{
	return p.n == strlen(word) && strncasecmp(p.s, word, p.n) == 0;
}

/* HOST of [USER@]HOST[:PORT]. */
static struct part host_of(struct part authority)
{
	const char *at = memrchr(authority.s, '@', authority.n);
	const char *end;

	if (at) {
		authority.n -= (size_t)(at + 1 - authority.s);
		authority.s = at + 1;
	}
	end = authority.n && *authority.s == '[' ? memchr(authority.s, ']', authority.n) : NULL;
	if (end)
		return (struct part){authority.s, (size_t)(end + 1 - authority.s)};
	end = memchr(authority.s, ':', authority.n);
	if (end)
		authority.n = (size_t)(end - authority.s);
	return authority;
}

/* The text after SCHEME:// up to the next slash; false: URL does not begin so. */
static bool split_authority(const char *url, const char *scheme, struct part *ret)
{
	const size_t n = strlen(scheme);

	if (strncasecmp(url, scheme, n) != 0)
		return false;
	*ret = (struct part){url + n, strcspn(url + n, "/?#")};
	return true;
}

static bool is_http(const char *url)
{
	return strncasecmp(url, "http://", 7) == 0;
}

/* The host of the repositories of the API is its own, or without the "api." of GitHub's. */
static bool is_api_host(struct part host, const char *api)
{
	struct part authority, own;

	if (!split_authority(api, "https://", &authority) &&
	    !split_authority(api, "http://", &authority))
		return false;
	own = host_of(authority);
	if (own.n == host.n && strncasecmp(own.s, host.s, own.n) == 0)
		return own.n > 0;
	return own.n > 4 && strncasecmp(own.s, "api.", 4) == 0 && own.n - 4 == host.n &&
	       strncasecmp(own.s + 4, host.s, host.n) == 0;
}

static bool is_github(struct part host, const char *api)
{
	return part_is(host, "github.com") || part_is(host, "www.github.com") ||
	       part_is(host, "ssh.github.com") || is_api_host(host, api);
}

static bool copy_word(struct part p, char *ret, size_t size)
{
	if (p.n == 0 || p.n >= size || p.s[0] == '.' || p.s[0] == '-')
		return false;
	for (size_t i = 0; i < p.n; i++)
		if (!isalnum((unsigned char)p.s[i]) && !strchr("._-", p.s[i]))
			return false;
	memcpy(ret, p.s, p.n);
	ret[p.n] = '\0';
	return true;
}

/* ORG/REPO, with .git or a slash at the end or without. */
static bool split_path(const char *path, struct sbx_github_repo *ret)
{
	struct part owner = {path, strcspn(path, "/")};
	struct part name = {path + owner.n + 1, 0};

	if (!path[owner.n])
		return false;
	name.n = strlen(name.s);
	if (name.n && name.s[name.n - 1] == '/')
		name.n--;
	if (name.n > 4 && strncmp(name.s + name.n - 4, ".git", 4) == 0)
		name.n -= 4;
	return copy_word(owner, ret->owner, sizeof(ret->owner)) &&
	       copy_word(name, ret->name, sizeof(ret->name));
}

/* The host, and the path behind it; false: a form that none has. *host is all zero for ORG/REPO. */
static bool split_url(const char *url, const char *api, struct part *host, const char **path)
{
	struct part authority;

	if (split_authority(url, "https://", &authority) ||
	    split_authority(url, "ssh://", &authority) ||
	    (is_http(api) && split_authority(url, "http://", &authority))) {
		*host = host_of(authority);
		*path = authority.s + authority.n;
		return *(*path)++ == '/';
	}
	authority = (struct part){url, strcspn(url, ":/")};
	if (url[authority.n] == ':') {
		*host = host_of(authority);
		*path = url + authority.n + 1;
		return strncmp(*path, "//", 2) != 0;
	}
	*host = (struct part){0};
	*path = url;
	return true;
}

int sbx_github_parse(const char *url, const char *api, struct sbx_github_repo *ret,
                     struct sbx_error *err)
{
	struct part host = {0};
	const char *path;
	char shown[256];

	if (split_url(url, api, &host, &path) && (!host.s || is_github(host, api)) &&
	    split_path(path, ret))
		return 0;
	snprintf(shown, sizeof(shown), "%s", url);
	sbx_scrub(shown, NULL);
	return sbx_fail(err, EINVAL, "%s is no repository of GitHub (org/repo, or its URL)", shown);
}

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
