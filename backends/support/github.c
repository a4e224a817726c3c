#include "sandboxfs/github.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sandboxfs/scrub.h"

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

/* A backslash is a slash to some who read URLs, and would hide which host they ask. */
static bool is_plain(struct part authority)
{
	for (size_t i = 0; i < authority.n; i++)
		if (!isgraph((unsigned char)authority.s[i]) || authority.s[i] == '\\')
			return false;
	return true;
}

bool sbx_github_token_is_for(const char *url, const char *api)
{
	struct part authority;

	api = api && *api ? api : SBX_GITHUB_API;
	if (split_authority(url, "https://", &authority))
		return is_plain(authority) && is_github(host_of(authority), api);
	return is_http(api) && split_authority(url, "http://", &authority) && is_plain(authority) &&
	       is_api_host(host_of(authority), api);
}

const char *sbx_github_api_url(void)
{
	const char *api = getenv("GITHUB_API_URL");

	return api && *api ? api : SBX_GITHUB_API;
}

/* Without a name and password. */
static struct part without_user(struct part authority)
{
	const char *at = memrchr(authority.s, '@', authority.n);

	if (!at)
		return authority;
	return (struct part){at + 1, (size_t)(authority.s + authority.n - at - 1)};
}

/* The web is where the API is, or without the "api." of GitHub's. */
static struct part web_of(const char *api, bool *plain)
{
	struct part authority = {0};

	*plain = is_http(api);
	if (!split_authority(api, *plain ? "http://" : "https://", &authority))
		return authority;
	authority = without_user(authority);
	if (authority.n > 4 && strncasecmp(authority.s, "api.", 4) == 0)
		authority = (struct part){authority.s + 4, authority.n - 4};
	return authority;
}

int sbx_github_clone_url(const char *url, const char *api, char **ret, struct sbx_error *err)
{
	struct sbx_github_repo repo;
	struct part host, authority;
	const char *path;
	bool plain = false;
	int r = sbx_github_parse(url, api, &repo, err);

	if (r)
		return r;
	plain = is_http(url);
	if (plain || strncasecmp(url, "https://", 8) == 0) {
		split_authority(url, plain ? "http://" : "https://", &authority);
		authority = without_user(authority);
	} else if (split_url(url, api, &host, &path) && host.s) {
		authority =
		        part_is(host, "ssh.github.com") ? (struct part){"github.com", 10} : host;
	} else {
		authority = web_of(api, &plain);
	}
	if (!authority.n)
		return sbx_fail(err, EINVAL, "GITHUB_API_URL is no http or https URL");
	if (asprintf(ret, "%s://%.*s/%s/%s.git", plain ? "http" : "https", (int)authority.n,
	             authority.s, repo.owner, repo.name) < 0) {
		*ret = NULL;
		return sbx_no_memory(err);
	}
	return 0;
}
