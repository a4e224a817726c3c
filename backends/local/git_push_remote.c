/*
 * Where a push goes. libgit2 takes a path to a repository as git does, but relative to our own directory, and writes to
 * it without asking its hooks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/local/git_push_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/scrub.h"

#define FILE_SCHEME "file://"

const char *sbx_git_push_url(const git_remote *remote)
{
	const char *url = git_remote_pushurl(remote);

	return url ? url : git_remote_url(remote);
}

/* Whether URL is a path: neither SCHEME://... nor HOST:PATH. */
static bool is_path(const char *url)
{
	return url[strcspn(url, ":/")] != ':';
}

/* The top of the source's tree, to which paths in its settings are relative. */
static char *top_of(const char *common)
{
	const size_t n = strlen(common);
	const char *end =
	        n > 5 && strcmp(common + n - 5, "/.git") == 0 ? common + n - 5 : common + n;

	return strndup(common, (size_t)(end - common));
}

/* libgit2 1.5 writes to the path by which the remote is fetched from, even when another one is for pushes. */
static int settle_url(git_remote *remote, const char *common)
{
	const char *url = sbx_git_push_url(remote);
	_cleanup_free_ char *top = NULL, *path = NULL;
	int r;

	if (!url)
		return 0;
	top = top_of(common);
	if (is_path(url) && *url != '/')
		path = top ? sbx_format("%s/%s", top, url) : NULL;
	else
		path = strdup(url);
	if (!path)
		return -1;
	r = git_remote_set_instance_url(remote, path);
	return r ? r : git_remote_set_instance_pushurl(remote, path);
}

int sbx_git_push_remote(git_repository *repo, const char *common, const char *name,
                        git_remote **ret, struct sbx_error *err)
{
	int r = git_remote_lookup(ret, repo, name ? name : "origin");

	if (r == GIT_ENOTFOUND || r == GIT_EINVALIDSPEC)
		return sbx_fail(err, ENOENT, "the source has no remote \"%.100s\"",
		                name ? name : "origin");
	if (!r)
		r = settle_url(*ret, common);
	if (r)
		return sbx_git_fail(err, r, "the remote");
	if (!sbx_git_push_url(*ret))
		return sbx_fail(err, ENOENT, "the remote \"%.100s\" has no url",
		                name ? name : "origin");
	return 0;
}

/* A hook that may refuse a push; those of a server run there. */
static bool has_hook(git_repository *repo, const char *name)
{
	git_buf dir = {0};
	_cleanup_free_ char *path = NULL;
	git_config *config = NULL;
	struct stat st;
	bool found = false;

	if (git_repository_config_snapshot(&config, repo) < 0 ||
	    git_config_get_path(&dir, config, "core.hookspath") < 0)
		git_repository_item_path(&dir, repo, GIT_REPOSITORY_ITEM_HOOKS);
	path = dir.ptr ? sbx_format("%s/%s", dir.ptr, name) : NULL;
	found = path && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 0111;
	git_buf_dispose(&dir);
	git_config_free(config);
	return found;
}

static int check_hooks(const char *path, struct sbx_error *err)
{
	static const char *const names[] = {"pre-receive", "update", "reference-transaction"};
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = git_repository_open(&repo, path);

	if (r)
		return sbx_git_fail(err, r, "the remote cannot be opened");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++)
		if (has_hook(repo, names[i]))
			return sbx_fail(
			        err, EOPNOTSUPP,
			        "the remote has a %s hook, which a push by path would not ask; "
			        "give it a url by which it is served",
			        names[i]);
	return 0;
}

static bool leads_into(const char *path, const char *top)
{
	return top && sbx_path_within(path, top);
}

int sbx_git_push_path(const struct sbx_git_push *from, const char *url, struct sbx_error *err)
{
	_cleanup_free_ char *path = NULL;

	if (strncmp(url, FILE_SCHEME, strlen(FILE_SCHEME)) == 0)
		url += strlen(FILE_SCHEME);
	else if (!is_path(url))
		return 0;
	path = realpath(url, NULL);
	if (!path)
		return sbx_fail(err, errno, "the remote %.200s: %s", url, strerror(errno));
	if (leads_into(path, from->mountpoint) || leads_into(path, from->state))
		return sbx_fail(err, EINVAL, "the remote %.200s leads into a sandbox", url);
	return check_hooks(path, err);
}

int sbx_git_remote_url(const char *common, const char *name, char **ret, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(remote) git_remote *remote = NULL;
	_cleanup_free_ char *url = NULL;
	int r = git_repository_open_bare(&repo, common);

	if (r)
		return sbx_git_fail(err, r, "the source cannot be opened");
	r = sbx_git_push_remote(repo, common, name, &remote, err);
	if (r)
		return r;
	url = strdup(sbx_git_push_url(remote));
	if (!url)
		return sbx_fail(err, ENOMEM, "out of memory");
	sbx_scrub(url, NULL);
	*ret = sbx_steal_ptr(&url);
	return 0;
}
