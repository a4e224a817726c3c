/* Where the memory and the local backend meet the spawner: the view is MNT/NAME, the tree is
 * elsewhere. */
#include "backends/runner/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

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
	for (const char *const *p = l->rw; p && *p; p++) {
		if (n == PATHS - 1)
			return -E2BIG;
		paths[n++] = *p;
	}
	paths[n] = NULL;
	return 0;
}

char *sbx_launch_view(const struct sbx_launch *l)
{
	const char *mountpoint = l->host->settings->mountpoint;

	return mountpoint ? sbx_format("%s/%s", mountpoint, l->name) : strdup(l->workdir);
}

int sbx_launch(const struct sbx_launch *l, const struct sbx_exec *spec, struct sbx_job *job,
               struct sbx_error *err)
{
	struct sbx_exec full = *spec;
	_cleanup_free_ char *view = sbx_launch_view(l);
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
		return sbx_fail(err, ENOMEM, "out of memory");
	r = collect_paths(l, paths);
	if (r)
		return sbx_fail(err, -r, "too many paths to show to a command");
	full.env = env;
	return sbx_spawner_exec(l->host->spawner,
	                        &(struct sbx_place){.id = l->id,
	                                            .workdir = l->workdir,
	                                            .layered = l->layered,
	                                            .as_source = l->as_source,
	                                            .on_disk = l->on_disk,
	                                            .view = view,
	                                            .ro = l->ro,
	                                            .rw = paths,
	                                            .over = l->over},
	                        &full, job, err);
}
