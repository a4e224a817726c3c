/* The repository that a sandbox is made of, which Vercel clones by https. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/github.h"

static bool is_local(const char *text)
{
	return strchr("/~.", *text) || !strchr(text, '/') || strncasecmp(text, "file:", 5) == 0 ||
	       (isalpha((unsigned char)*text) && text[1] == ':');
}

/* HOST of SCHEME://HOST[:PORT]/...; false: none of the characters of one. */
static bool copy_host(const char *url, char *host, size_t size)
{
	const char *at = strstr(url, "://") + 3;
	const size_t n = strcspn(at, ":/");

	if (!n || n >= size || strcspn(at, "@?#[ \t\r\n") < n)
		return false;
	snprintf(host, size, "%.*s", (int)n, at);
	return true;
}

static int take_github(const char *text, const char *api, struct vercel_source *ret,
                       struct sbx_error *err)
{
	struct sbx_github_repo repo;
	int r = sbx_github_parse(text, api, &repo, err);

	if (!r)
		r = sbx_github_clone_url(text, api, &ret->url, err);
	if (r)
		return r;
	snprintf(ret->shown, sizeof(ret->shown), "%s/%s", repo.owner, repo.name);
	return 0;
}

/* Any other server's. A name and password in it would be shown to whoever looks at the sandbox. */
static int take_url(const char *text, struct vercel_source *ret, struct sbx_error *err)
{
	if (strncasecmp(text, "https://", 8) != 0)
		return -EINVAL;
	if (memchr(text + 8, '@', strcspn(text + 8, "/?#")))
		return sbx_fail(err, EINVAL,
		                "the URL of the source has a name or a password in it, which a "
		                "sandbox of Vercel's would show");
	ret->url = strdup(text);
	if (!ret->url)
		return sbx_no_memory(err);
	snprintf(ret->shown, sizeof(ret->shown), "%.279s", text);
	return 0;
}

int vercel_source_parse(const char *text, const char *github_api, struct vercel_source *ret,
                        struct sbx_error *err)
{
	int r;

	*ret = (struct vercel_source){0};
	if (!text)
		return 0;
	if (is_local(text))
		return sbx_fail(err, EINVAL,
		                "Vercel sandbox requires a GitHub repo URL (e.g. org/repo), or an "
		                "https URL, not a local path");
	r = take_github(text, github_api, ret, err);
	if (r == -EINVAL)
		r = take_url(text, ret, err);
	if (!r && !copy_host(ret->url, ret->host, sizeof(ret->host)))
		r = sbx_fail(err, EINVAL, "the URL of the source names no host");
	if (r)
		vercel_source_release(ret);
	return r;
}

void vercel_source_release(struct vercel_source *source)
{
	free(source->url);
	source->url = NULL;
}
