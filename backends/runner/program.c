/*
 * The program that runs commands: where it is, and its start. It lies beside the program that we are,
 * or where it was installed; PATH has no say. Of ours it gets a socket, and of the environment
 * nothing.
 */
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/runner/runner_impl.h"
#include "sandboxfs/cleanup.h"

#define PROGRAM   "sandboxfs-runner"
#define INSTALLED SBX_LIBEXECDIR "/" PROGRAM

/* What it may have of the environment: nothing of it is there but in builds for tests. */
static const char *const passed[] = {
        "ASAN_OPTIONS",      "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS",
#ifdef SBX_WEAK
        "SANDBOXFS_WITHOUT",
#endif
};

static void choose_environment(char *ret[SBX_ARRAY_SIZE(passed) + 1])
{
	size_t n = 0;

	for (char **e = environ; e && *e; e++)
		for (size_t i = 0; i < SBX_ARRAY_SIZE(passed); i++) {
			const size_t len = strlen(passed[i]);

			if (n < SBX_ARRAY_SIZE(passed) && strncmp(*e, passed[i], len) == 0 &&
			    (*e)[len] == '=')
				ret[n++] = *e;
		}
	ret[n] = NULL;
}

/* The path that it has beside the program of this process. */
static int path_beside(char ret[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
	char *slash;

	if (n < 0)
		return -errno;
	ret[n] = '\0';
	slash = strrchr(ret, '/');
	if (!slash || slash + 1 + sizeof(PROGRAM) > ret + PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(slash + 1, PROGRAM, sizeof(PROGRAM));
	return 0;
}

static int spawn(const char *path, int sock, const char *mountpoint, pid_t *ret)
{
	char *argv[] = {(char *)path, (char *)mountpoint, NULL};
	char *env[SBX_ARRAY_SIZE(passed) + 1];
	posix_spawn_file_actions_t actions;
	int r = posix_spawn_file_actions_init(&actions);

	if (r)
		return -r;
	choose_environment(env);
	r = posix_spawn_file_actions_adddup2(&actions, sock, SPAWN_SOCKET);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(&actions, SPAWN_SOCKET + 1);
	if (!r)
		r = posix_spawn(ret, path, &actions, NULL, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

int program_start(int sock, const char *mountpoint, pid_t *ret, struct sbx_error *err)
{
	char path[PATH_MAX] = "";
	int r = path_beside(path);

	if (!r)
		r = spawn(path, sock, mountpoint, ret);
	if (r == -ENOENT) {
		snprintf(path, sizeof(path), "%s", INSTALLED);
		r = spawn(path, sock, mountpoint, ret);
	}
	if (r == -ENOENT)
		return sbx_fail(err, ENOENT,
		                PROGRAM ", which runs commands, is neither beside sandboxfs nor "
		                        "in " SBX_LIBEXECDIR);
	return r < 0 ? sbx_fail(err, -r, "%s cannot be started: %s", path, strerror(-r)) : 0;
}
