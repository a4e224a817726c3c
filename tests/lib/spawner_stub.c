#include "tests/lib/spawner_stub.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/mounter.h"

static void remember(struct sbx_spawner *sp, const struct sbx_place *place,
                     const struct sbx_exec *spec)
{
	int n = 0;

	sp->calls++;
	snprintf(sp->id, sizeof(sp->id), "%s", place->id);
	snprintf(sp->workdir, sizeof(sp->workdir), "%s", place->workdir);
	snprintf(sp->view, sizeof(sp->view), "%s", place->view);
	memset(sp->ro, 0, sizeof(sp->ro));
	memset(sp->rw, 0, sizeof(sp->rw));
	memset(sp->env, 0, sizeof(sp->env));
	for (const char *const *p = place->ro; p && *p && n < 3; p++)
		snprintf(sp->ro[n++], sizeof(sp->ro[0]), "%s", *p);
	n = 0;
	for (const char *const *p = place->rw; p && *p && n < 3; p++)
		snprintf(sp->rw[n++], sizeof(sp->rw[0]), "%s", *p);
	n = 0;
	for (char *const *e = spec->env; e && *e && n < 31; e++)
		snprintf(sp->env[n++], sizeof(sp->env[0]), "%s", *e);
}

/* Tests have theirs made; the backends only name it. */
__attribute__((weak)) int sbx_spawner_start(const struct sbx_settings *settings,
                                            struct sbx_spawner **ret, struct sbx_error *err)
{
	(void)settings;
	(void)ret;
	return sbx_fail(err, EOPNOTSUPP, "the stub is not started");
}

__attribute__((weak)) bool sbx_spawner_views(const struct sbx_spawner *sp)
{
	(void)sp;
	return true;
}

__attribute__((weak)) bool sbx_spawner_shows_tmp(const struct sbx_spawner *sp)
{
	(void)sp;
	return true;
}

__attribute__((weak)) bool sbx_spawner_maps_memory(const struct sbx_spawner *sp)
{
	(void)sp;
	return true;
}

__attribute__((weak)) int sbx_spawner_exec(struct sbx_spawner *sp, const struct sbx_place *place,
                                           const struct sbx_exec *spec, struct sbx_job *job,
                                           struct sbx_error *err)
{
	remember(sp, place, spec);
	if (sp->answer)
		return sbx_fail(err, -sp->answer, "the stub was told to fail");
	job->events->started(job);
	job->events->output(job, 1, "out", 3);
	job->events->ended(job, &(struct sbx_exit){.end = SBX_END_EXITED});
	return 0;
}

__attribute__((weak)) void sbx_spawner_signal(struct sbx_job *job, int sig)
{
	(void)job;
	(void)sig;
}

__attribute__((weak)) bool sbx_spawner_runs(struct sbx_spawner *sp, const char *id)
{
	(void)sp;
	(void)id;
	return false;
}

__attribute__((weak)) void sbx_spawner_forget(struct sbx_spawner *sp, const char *id)
{
	(void)id;
	sp->forgotten++;
}

__attribute__((weak)) void sbx_spawner_forget_now(struct sbx_spawner *sp, const char *id)
{
	sbx_spawner_forget(sp, id);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(1);
	close(fd);
}

/* As the spawner of an ordinary user is: in a user namespace that knows this one user. */
static void become_able_to_mount(void)
{
	const unsigned uid = geteuid(), gid = getegid();
	char map[64];

	if (uid == 0)
		return;
	if (unshare(CLONE_NEWUSER) < 0)
		_exit(1);
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	write_text("/proc/self/uid_map", map);
	write_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	write_text("/proc/self/gid_map", map);
}

/* The room is a child of whoever mounts views; this process only stays as long as it does. */
static _Noreturn void keep_mounter(int sock, const char *bases, const char *trees)
{
	int mounter;

	if (dup2(sock, 3) < 0)
		_exit(1);
	close_range(4, ~0U, 0);
	become_able_to_mount();
	mounter = mounter_start(3, bases, trees);
	close(3);
	while (wait(NULL) > 0)
		;
	_exit(mounter < 0);
}

__attribute__((weak)) int sbx_spawner_open_mounter(struct sbx_spawner *sp, const char *bases,
                                                   const char *trees, int *ret,
                                                   struct sbx_error *err)
{
	int pair[2];
	pid_t pid;

	if (!sp->has_room)
		return sbx_fail(err, EOPNOTSUPP, "the stub has no room");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sbx_fail(err, errno, "socketpair");
	pid = fork();
	if (pid == 0)
		keep_mounter(pair[1], bases, trees);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return sbx_fail(err, EAGAIN, "fork");
	}
	*ret = pair[0];
	return 0;
}

__attribute__((weak)) void sbx_spawner_policy(struct sbx_spawner *sp, struct json_object *obj)
{
	(void)sp;
	json_object_object_add(obj, "isolation", json_object_new_string("stub"));
}
