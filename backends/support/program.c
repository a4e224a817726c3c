#include "backends/support/program.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The path that NAME has beside the program of this process. */
static int path_beside(const char *name, char ret[PATH_MAX])
{
	const size_t len = strlen(name) + 1;
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
	char *slash;

	if (n < 0)
		return -errno;
	ret[n] = '\0';
	slash = strrchr(ret, '/');
	if (!slash || slash + 1 + len > ret + PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(slash + 1, name, len);
	return 0;
}

static int describe(int sock, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int r = posix_spawn_file_actions_adddup2(actions, sock, SBX_PROGRAM_SOCKET);

	sigemptyset(&none);
	sigfillset(&all);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(actions, SBX_PROGRAM_SOCKET + 1);
	if (!r)
		r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	if (!r)
		r = posix_spawnattr_setsigmask(attr, &none);
	return r ? r : posix_spawnattr_setsigdefault(attr, &all);
}

static int spawn(const struct sbx_program *program, const char *path, int sock, pid_t *ret)
{
	char *argv[] = {(char *)path, (char *)program->mountpoint, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int r = posix_spawn_file_actions_init(&actions);

	if (r)
		return -r;
	r = posix_spawnattr_init(&attr);
	if (!r) {
		r = describe(sock, &actions, &attr);
		if (!r)
			r = posix_spawn(ret, path, &actions, &attr, argv, program->env);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

int sbx_program_start(const struct sbx_program *program, int sock, pid_t *ret,
                      struct sbx_error *err)
{
	char path[PATH_MAX] = "";
	int r = path_beside(program->name, path);

	if (!r)
		r = spawn(program, path, sock, ret);
	if (r == -ENOENT) {
		snprintf(path, sizeof(path), SBX_LIBEXECDIR "/%s", program->name);
		r = spawn(program, path, sock, ret);
	}
	if (r == -ENOENT)
		return sbx_fail(err, ENOENT,
		                "%s, which %s, is neither beside sandboxfs nor in " SBX_LIBEXECDIR,
		                program->name, program->does);
	return r < 0 ? sbx_fail(err, -r, "%s cannot be started: %s", path, strerror(-r)) : 0;
}
