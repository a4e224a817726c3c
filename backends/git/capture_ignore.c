/*
 * The ignore rules along the way to a directory. .gitignore files are a command's to change at any
 * moment and may be links or FIFOs: one that is no plain file of a sensible size counts as empty,
 * as git itself does with links.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/capture_impl.h"
#include "backends/git/git_impl.h"
#include "backends/support/beneath.h"

#define RULES_MAX ((size_t)1 << 20)

static int push_file(struct capture_rules *rules, int dirfd, const char *path, const char *dir,
                     bool *pushed)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	*pushed = false;
	if (sbx_beneath_read(dirfd, path, RULES_MAX, &text, &len, NULL))
		return 0;
	r = sbx_ignore_push(rules->ignore, dir, text, len);
	*pushed = !r;
	return r;
}

/* A file of the user's own: links are followed. */
static int push_own(struct capture_rules *rules, const char *path)
{
	_cleanup_free_ char *real = path ? realpath(path, NULL) : NULL;
	_cleanup_free_ char *text = NULL;

	if (!real || sbx_file_read(AT_FDCWD, real, RULES_MAX, &text))
		return 0;
	return sbx_ignore_push(rules->ignore, "", text, strlen(text));
}

static char *default_excludes(void)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (xdg && *xdg)
		return sbx_format("%s/git/ignore", xdg);
	return home ? sbx_format("%s/.config/git/ignore", home) : NULL;
}

static int push_users(struct capture_rules *rules, git_config *config)
{
	_cleanup_free_ char *path = NULL;
	git_buf set = {0};
	int r;

	if (git_config_get_path(&set, config, "core.excludesfile") == 0) {
		r = push_own(rules, set.ptr);
		git_buf_dispose(&set);
		return r;
	}
	path = default_excludes();
	return push_own(rules, path);
}

int capture_rules_open(struct capture_rules *rules, git_repository *repo, int root)
{
	_cleanup_free_ char *exclude = sbx_format("%sinfo/exclude", git_repository_commondir(repo));
	git_config *config = NULL, *snapshot = NULL;
	int icase = 0, r = 0;

	*rules = (struct capture_rules){.root = root};
	if (git_repository_config(&config, repo) == 0 &&
	    git_config_snapshot(&snapshot, config) == 0)
		git_config_get_bool(&icase, snapshot, "core.ignorecase");
	r = exclude ? sbx_ignore_new(icase, &rules->ignore) : -ENOMEM;
	if (!r && snapshot)
		r = push_users(rules, snapshot);
	if (!r)
		r = push_own(rules, exclude);
	git_config_free(snapshot);
	git_config_free(config);
	return r;
}

static void leave(struct capture_rules *rules)
{
	rules->n--;
	if (rules->pushed[rules->n])
		sbx_ignore_pop(rules->ignore);
	free(rules->dirs[rules->n]);
}

void capture_rules_close(struct capture_rules *rules)
{
	while (rules->n)
		leave(rules);
	free(rules->dirs);
	free(rules->pushed);
	sbx_ignore_free(rules->ignore);
	*rules = (struct capture_rules){0};
}

static int grow(struct capture_rules *rules)
{
	size_t cap = rules->cap ? 2 * rules->cap : 16;
	char **dirs;
	bool *pushed;

	if (rules->n < rules->cap)
		return 0;
	dirs = realloc(rules->dirs, cap * sizeof(*dirs));
	if (dirs)
		rules->dirs = dirs;
	pushed = realloc(rules->pushed, cap * sizeof(*pushed));
	if (pushed)
		rules->pushed = pushed;
	if (!dirs || !pushed)
		return -ENOMEM;
	rules->cap = cap;
	return 0;
}

static int enter_one(struct capture_rules *rules, const char *dir, size_t len)
{
	_cleanup_free_ char *name = strndup(dir, len);
	_cleanup_free_ char *path =
	        name ? sbx_format("%s%s.gitignore", name, len ? "/" : "") : NULL;
	int r = path ? grow(rules) : -ENOMEM;

	if (!r)
		r = push_file(rules, rules->root, path, name, &rules->pushed[rules->n]);
	if (!r)
		rules->dirs[rules->n++] = sbx_steal_ptr(&name);
	return r;
}

/* Whether DIR is TOP or lies below it. */
static bool is_within(const char *dir, const char *top)
{
	size_t n = strlen(top);

	return !n || (strncmp(dir, top, n) == 0 && (!dir[n] || dir[n] == '/'));
}

int capture_rules_enter(struct capture_rules *rules, const char *dir)
{
	size_t at;
	int r = 0;

	while (rules->n && !is_within(dir, rules->dirs[rules->n - 1]))
		leave(rules);
	if (!rules->n)
		r = enter_one(rules, "", 0);
	while (!r && (at = strlen(rules->dirs[rules->n - 1])) < strlen(dir)) {
		const char *slash = strchr(dir + at + (at > 0), '/');

		r = enter_one(rules, dir, slash ? (size_t)(slash - dir) : strlen(dir));
	}
	return r;
}

int capture_rules_ignore(struct capture_rules *rules, const char *path, bool *ret)
{
	_cleanup_free_ char *part = strdup(path);
	char *slash = part;
	int r = part ? capture_rules_enter(rules, "") : -ENOMEM;

	*ret = false;
	while (!r && !*ret && (slash = strchr(slash, '/'))) {
		*slash = '\0';
		*ret = sbx_ignore_match(rules->ignore, part, true);
		if (!*ret)
			r = capture_rules_enter(rules, part);
		*slash++ = '/';
	}
	if (!r && !*ret)
		*ret = sbx_ignore_match(rules->ignore, path, false);
	return r;
}
