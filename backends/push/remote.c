/*
 * The destination of a push. The settings are read here, because libgit2 1.5 leaks 20 KiB for
 * each that is no insteadOf, writes to the path that is fetched from although another is for
 * pushes, and takes relative paths from our own directory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/push/remote.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/scrub.h"

#define FILE_SCHEME "file://"

const char *push_path_of(const char *url)
{
	if (strncmp(url, FILE_SCHEME, strlen(FILE_SCHEME)) == 0)
		return url + strlen(FILE_SCHEME);
	return url[strcspn(url, ":/")] != ':' ? url : NULL;
}

/* The top of the source's tree, to which paths in its settings are relative. */
static char *top_of(const char *common)
{
	const size_t n = strlen(common);
	const char *end =
	        n > 5 && strcmp(common + n - 5, "/.git") == 0 ? common + n - 5 : common + n;

	return strndup(common, (size_t)(end - common));
}

/* The front of a URL that is to be replaced: url.BASE.insteadOf = PREFIX. */
struct rewriting {
	const char *key; /* ".insteadof", ".pushinsteadof" */
	const char *url;
	size_t matched; /* length of the longest PREFIX so far */
	char *base;     /* of that; NULL: none */
};

static int consider(const git_config_entry *entry, void *data)
{
	static const char section[] = "url.";
	struct rewriting *rw = data;
	const size_t n = strlen(entry->name), front = strlen(section), back = strlen(rw->key);
	const size_t prefix = entry->value ? strlen(entry->value) : 0;
	char *base;

	if (n <= front + back || strncmp(entry->name, section, front) != 0 ||
	    strcmp(entry->name + n - back, rw->key) != 0 || prefix <= rw->matched ||
	    strncmp(rw->url, entry->value, prefix) != 0)
		return 0;
	base = strndup(entry->name + front, n - front - back);
	if (!base)
		return -1;
	free(rw->base);
	rw->base = base;
	rw->matched = prefix;
	return 0;
}

/* 1: *ret is URL rewritten, as git does it; 0: nothing to rewrite; or -1. */
static int rewrite(git_config *config, const char *url, const char *key, char **ret)
{
	struct rewriting rw = {.key = key, .url = url};
	int r = git_config_foreach(config, consider, &rw);

	if (!r && rw.base) {
		*ret = sbx_format("%s%s", rw.base, url + rw.matched);
		r = *ret ? 1 : -1;
	}
	free(rw.base);
	return r;
}

static const char *setting(git_config *config, const char *name, const char *member)
{
	_cleanup_free_ char *key = sbx_format("remote.%s.%s", name, member);
	const char *value;

	return key && git_config_get_string(&value, config, key) == 0 ? value : NULL;
}

/* An explicit pushurl is not subject to pushInsteadOf. 0 with *ret, NULL when the remote has no
 * URL, or -1. */
static int find_url(git_config *config, const char *name, char **ret)
{
	const char *url = setting(config, name, "pushurl");
	int r = 0;

	if (!url) {
		url = setting(config, name, "url");
		r = url ? rewrite(config, url, ".pushinsteadof", ret) : 0;
	}
	if (!r && url)
		r = rewrite(config, url, ".insteadof", ret);
	if (!r && url) {
		*ret = strdup(url);
		r = *ret ? 0 : -1;
	}
	return r < 0 ? r : 0;
}

static int make_absolute(char **url, const char *common)
{
	_cleanup_free_ char *top = NULL;
	char *path;

	if (push_path_of(*url) != *url || **url == '/')
		return 0;
	top = top_of(common);
	path = top ? sbx_format("%s/%s", top, *url) : NULL;
	if (!path)
		return -1;
	free(*url);
	*url = path;
	return 0;
}

static int no_remote(const char *name, struct sbx_error *err)
{
	return sbx_fail(err, ENOENT, "the source has no remote \"%.100s\"", name);
}

int push_url(git_repository *repo, const char *common, const char *name, char **ret,
             struct sbx_error *err)
{
	git_config *config = NULL;
	_cleanup_free_ char *url = NULL;
	int r = git_repository_config_snapshot(&config, repo);

	name = name ? name : "origin";
	if (r)
		return sbx_git_fail(err, r, "the source's settings");
	r = find_url(config, name, &url);
	git_config_free(config);
	if (r || (url && make_absolute(&url, common) < 0))
		return sbx_no_memory(err);
	if (!url)
		return no_remote(name, err);
	*ret = sbx_steal_ptr(&url);
	return 0;
}

static int written_url(git_repository *repo, const char *name, char **ret, struct sbx_error *err)
{
	git_config *config = NULL;
	const char *url;
	int r = git_repository_config_snapshot(&config, repo);

	name = name ? name : "origin";
	if (r)
		return sbx_git_fail(err, r, "the source's settings");
	url = setting(config, name, "url");
	*ret = url ? strdup(url) : NULL;
	git_config_free(config);
	return *ret ? 0 : no_remote(name, err);
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

int push_check_path(const struct sbx_git_push *from, const char *url, struct sbx_error *err)
{
	const char *written = push_path_of(url);
	_cleanup_free_ char *path = NULL;

	if (!written)
		return 0;
	path = realpath(written, NULL);
	if (!path)
		return sbx_fail(err, errno, "the remote %.200s: %s", written, strerror(errno));
	if (leads_into(path, from->mountpoint) || leads_into(path, from->state))
		return sbx_fail(err, EINVAL, "the remote %.200s leads into a sandbox", written);
	return check_hooks(path, err);
}

int sbx_git_remote_url(const char *common, const char *name, bool written, char **ret,
                       struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = git_repository_open_bare(&repo, common);

	if (r)
		return sbx_git_fail(err, r, "the source cannot be opened");
	r = written ? written_url(repo, name, ret, err) : push_url(repo, common, name, ret, err);
	if (!r)
		sbx_scrub(*ret, NULL);
	return r;
}
