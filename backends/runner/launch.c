/*
 * The launch of a command for the memory and the local backend: what they ask of the spawner. The
 * command's view is MNT/NAME, the tree is elsewhere.
 *
 * The contents of a view are told as its maker (backends/runner/isolation/rootfs.c) makes it, and
 * not looked up: commands see what was asked for. The host is asked at the time what there is, as
 * the maker does.
 */
#include "backends/runner/launch.h"

#include <dirent.h>
#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/system_dirs.h"

#define PATHS 16

static bool has_key(char *const *env, const char *assignment)
{
	size_t n = (size_t)(strchr(assignment, '=') - assignment) + 1;

	for (; env && *env; env++)
		if (strncmp(*env, assignment, n) == 0)
			return true;
	return false;
}

/* ENV and those of EXTRA (n of them) whose key it lacks; the array is the caller's, not its
 * strings. */
static char **merge_env(char *const *env, char *const *extra, size_t n)
{
	size_t have = 0, at;
	char **merged;

	while (env && env[have])
		have++;
	merged = calloc(have + n + 1, sizeof(*merged));
	if (!merged)
		return NULL;
	for (at = 0; at < have; at++)
		merged[at] = env[at];
	for (size_t i = 0; i < n; i++)
		if (!has_key(env, extra[i]))
			merged[at++] = extra[i];
	return merged;
}

static int collect_paths(const struct sbx_launch *l, const char *paths[PATHS])
{
	size_t n = 0;

	paths[n++] = l->home;
	for (const char *const *p = l->place.rw; p && *p; p++) {
		if (n == PATHS - 1)
			return -E2BIG;
		paths[n++] = *p;
	}
	paths[n] = NULL;
	return 0;
}

/* Where commands see the tree; NULL: no memory. Any thread. */
static char *view_path(const struct sbx_launch *l)
{
	const char *mountpoint = l->host->settings->mountpoint;

	return mountpoint ? sbx_format("%s/%s", mountpoint, l->name) : strdup(l->place.workdir);
}

int sbx_launch(const struct sbx_launch *l, const struct sbx_exec *spec, struct sbx_job *job,
               struct sbx_error *err)
{
	struct sbx_exec full = *spec;
	struct sbx_place place = l->place;
	_cleanup_free_ char *view = view_path(l);
	_cleanup_free_ char *home = sbx_format("HOME=%s", l->home);
	_cleanup_free_ char *pwd = NULL, *tmp = NULL;
	_cleanup_free_ char **env = NULL;
	const char *paths[PATHS];
	int r;

	if (!l->host->spawner)
		return sbx_fail(err, EOPNOTSUPP, "commands cannot be run here");
	pwd = sbx_format("PWD=%s%s%s", view ? view : "", *spec->cwd ? "/" : "", spec->cwd);
	tmp = sbx_format("TMPDIR=%s", sbx_spawner_shows_tmp(l->host->spawner) ? "/tmp" : l->home);
	if (view && home && pwd && tmp)
		env = merge_env(spec->env, (char *[]){home, tmp, pwd}, 3);
	if (!env)
		return sbx_no_memory(err);
	r = collect_paths(l, paths);
	if (r)
		return sbx_fail(err, -r, "too many paths to show to a command");
	full.env = env;
	place.view = view;
	place.rw = paths;
	return sbx_spawner_exec(l->host->spawner, &place, &full, job, err);
}

struct telling {
	const struct sbx_settings *settings;
	struct json_object *obj;
};

static void tell(struct telling *t, const char *path, const char *why)
{
	json_object_object_add(t->obj, path, json_object_new_string(why));
}

static bool is_below(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

/*
 * What is ours and the source, which a view shows nothing of: at or above PATH (then *INSIDE is
 * false), or somewhere below it.
 */
static bool meets_avoided(const struct telling *t, const char *path, bool inside)
{
	const struct sbx_settings *s = t->settings;
	const char *const all[] = {s->mountpoint, s->state_dir, s->source_abs, s->cache_dir};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(all); i++)
		if (all[i] && (inside ? is_below(all[i], path)
		                      : is_below(path, all[i]) || strcmp(path, all[i]) == 0))
			return true;
	return false;
}

static void tell_system(struct telling *t, const char *path)
{
	_cleanup_dir_ DIR *dir = NULL;
	char child[PATH_MAX];
	struct dirent *e;
	struct stat st;

	if (meets_avoided(t, path, false) || lstat(path, &st) < 0)
		return;
	if (S_ISLNK(st.st_mode) || !meets_avoided(t, path, true)) {
		tell(t, path, S_ISLNK(st.st_mode) ? "the system: a link" : "the system, read only");
		return;
	}
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    snprintf(child, sizeof(child), "%s/%s", path, e->d_name) < (int)sizeof(child))
			tell_system(t, child);
}

static void tell_own(struct telling *t)
{
	static const char *const own[][2] = {
	        {"/proc", "processes of the sandbox alone"},
	        {"/tmp", "the sandbox's own, in memory"},
	        {"/var/tmp", "a link to /tmp"},
	        {"/var/run", "a link to /run"},
	        {"/run", "empty"},
	        {"/dev/null", "a device"},
	        {"/dev/zero", "a device"},
	        {"/dev/full", "a device"},
	        {"/dev/random", "a device"},
	        {"/dev/urandom", "a device"},
	        {"/dev/tty", "a device"},
	        {"/dev/fd", "a link into /proc"},
	        {"/dev/stdin", "a link into /proc"},
	        {"/dev/stdout", "a link into /proc"},
	        {"/dev/stderr", "a link into /proc"},
	        {"/dev/ptmx", "a link into /dev/pts"},
	        {"/dev/pts", "terminals of the sandbox alone"},
	        {"/dev/shm", "the sandbox's own, in memory"},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(own); i++)
		tell(t, own[i][0], own[i][1]);
}

static void tell_resolver(struct telling *t)
{
	char target[PATH_MAX], path[PATH_MAX + 8];
	const char *net = t->settings->net ? t->settings->net : "none";
	ssize_t n =
	        strcmp(net, "host") ? -1 : readlink("/etc/resolv.conf", target, sizeof(target) - 1);

	if (n <= 0)
		return;
	target[n] = '\0';
	snprintf(path, sizeof(path), "%s%s", target[0] == '/' ? "" : "/etc/", target);
	if (access(path, F_OK) == 0 && !strstr(path, "/.."))
		tell(t, path, "net=host: how names are resolved");
}

static void tell_tools(struct telling *t)
{
	const struct sbx_settings *s = t->settings;

	for (size_t i = 0; i < s->shown.n; i++)
		if (!meets_avoided(t, s->shown.items[i], false) &&
		    !meets_avoided(t, s->shown.items[i], true) &&
		    access(s->shown.items[i], F_OK) == 0)
			tell(t, s->shown.items[i], s->shown_why.items[i]);
	for (size_t i = 0; i < s->covered.n; i++)
		if (access(s->covered.items[i], F_OK) == 0)
			tell(t, s->covered.items[i], "covered, by its name a secret: empty");
}

static void tell_list(struct telling *t, const char *const *paths, const char *why)
{
	for (; paths && *paths; paths++)
		tell(t, *paths, why);
}

static void tell_settings(struct telling *t, const struct sbx_strings *paths, const char *why)
{
	for (size_t i = 0; i < paths->n; i++)
		if (access(paths->items[i], F_OK) == 0)
			tell(t, paths->items[i], why);
}

/* Pairs, the second below TOP. What lies within the one before is put over a part of it. */
static void tell_over(struct telling *t, const char *top, const char *const *pairs)
{
	const char *at = NULL;
	char path[PATH_MAX];

	for (; pairs && pairs[0]; pairs += 2) {
		const bool within = at && is_below(pairs[1], at);

		if (snprintf(path, sizeof(path), "%s/%s", top, pairs[1]) < (int)sizeof(path))
			tell(t, path,
			     within ? "its settings without credentials"
			            : "a repository that you made in the tree, read only");
		if (!within)
			at = pairs[1];
	}
}

/* Whether PATH is in a directory of the host's. */
static bool is_told(const struct telling *t, const char *path)
{
	json_object_object_foreach(t->obj, key, why)
	{
		(void)why;
		if (strcmp(key, "/tmp") != 0 && is_below(path, key))
			return true;
	}
	return false;
}

/* Beside the source's objects git looks for those of other sandboxes as well. */
static void tell_stores(struct telling *t, const char *const *objects)
{
	char path[PATH_MAX];

	for (; objects && *objects; objects++) {
		const char *slash = strrchr(*objects, '/');
		const int n = slash ? (int)(slash - *objects) : 0;

		if (snprintf(path, sizeof(path), "%.*s/sandboxfs/objects", n, *objects) <
		            (int)sizeof(path) &&
		    !is_told(t, path))
			tell(t, path, "git: empty, in place of what is other sandboxes'");
	}
}

static void tell_place(struct telling *t, const struct sbx_launch *l, const char *view)
{
	tell(t, view, "the sandbox's files");
	tell_over(t, view, l->place.over);
	if (strcmp(view, l->place.workdir) != 0) {
		tell(t, l->place.workdir, "the sandbox's files, by another name");
		tell_over(t, l->place.workdir, l->place.over);
	}
	tell_stores(t, l->place.ro);
	tell_list(t, l->place.ro, "git: objects that it borrows, read only");
	tell_list(t, l->place.rw, "git: the sandbox's own repository");
	tell(t, l->home, "HOME of the sandbox");
}

struct json_object *sbx_launch_shown(const struct sbx_launch *l)
{
	const struct sbx_settings *s = l->host->settings;
	struct telling t = {.settings = s, .obj = json_object_new_object()};
	_cleanup_free_ char *view = view_path(l);

	if (!t.obj || !view)
		return t.obj;
	for (const char *const *dir = sbx_system_dirs; *dir; dir++)
		tell_system(&t, *dir);
	tell_own(&t);
	tell_resolver(&t);
	tell_tools(&t);
	tell_settings(&t, &s->ro_paths, "ro_paths");
	tell_settings(&t, &s->rw_paths, "rw_paths");
	tell_place(&t, l, view);
	tell_settings(&t, &s->hide_paths, "hide_paths: empty");
	if (l->place.as_source && s->source_abs)
		tell(&t, s->source_abs, "the source's path, which leads to the sandbox's files");
	return t.obj;
}
