/*
 * The daemon's handle on the program that runs commands: its start and its end. Of ours it gets a
 * socket, and of the environment nothing.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/runner_impl.h"
#include "backends/support/program.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"

/* Variables that its environment may have: none but in builds for tests. */
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

static int await_hello(struct sbx_spawner *sp, struct sbx_error *err)
{
	struct spawn_hello hello = {0};
	ssize_t n;

	do
		n = recv(sp->fd, &hello, sizeof(hello), 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return sbx_fail(err, ESRCH, "the process that runs commands died at its start");
	if (!spawn_is_our_build(&hello, (size_t)n) || n != (ssize_t)sizeof(hello))
		return sbx_fail(err, EPROTO,
		                "sandboxfs-runner is of another build: it is %.*s, sandboxfs is %s",
		                (int)sizeof(hello.build.version), hello.build.version,
		                spawn_build.version);
	if (hello.report.code)
		return sbx_fail(err, hello.report.code, "commands cannot be isolated: %s",
		                *hello.features.reason ? hello.features.reason
		                                       : strerror(hello.report.code));
	sp->features = hello.features;
	return 0;
}

/* A daemon that goes to the background is waited for by the program it was forked from. */
static bool is_same_program(pid_t pid)
{
	struct stat ours, its;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return stat("/proc/self/exe", &ours) == 0 && stat(path, &its) == 0 &&
	       ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

static void make_group(struct sbx_spawner *sp)
{
	const pid_t ours[] = {getpid(), getppid()};
	struct sbx_cgroup_features *features = &sp->group.features;
	struct cgroup_where where;
	int r = cgroup_find("/proc/self/mountinfo", "/proc/self/cgroup", &where);

	if (r < 0)
		snprintf(features->reason, sizeof(features->reason), "cgroup v2 is not mounted");
	else
		cgroup_open(&sp->group, &where, ours, is_same_program(ours[1]) ? 2 : 1);
}

static int send_start(const struct sbx_spawner *sp, int sock, const struct sbx_identity *who)
{
	struct spawn_start start = {.build = spawn_build,
	                            .daemon = getpid(),
	                            .who = *who,
	                            .cgroup = sp->group.features};
	_cleanup_fd_ int payload = -1;
	int r = spawn_encode_settings(sp->settings, &start, &payload);

	return r < 0 ? r
	             : sbx_send_fds(sock, &start, sizeof(start), (int[]){payload, sp->group.dir},
	                            sp->group.dir < 0 ? 1 : 2, MSG_DONTWAIT);
}

/* The socket is sp->fd from now on. */
static int start_process(struct sbx_spawner *sp, const struct sbx_identity *who,
                         struct sbx_error *err)
{
	char *env[SBX_ARRAY_SIZE(passed) + 1];
	const struct sbx_program program = {.name = "sandboxfs-runner",
	                                    .does = "runs commands",
	                                    .mountpoint = sp->settings->mountpoint,
	                                    .env = env};
	int pair[2], r;

	assert(sp->fd < 0);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sbx_fail(err, errno, "socketpair: %s", strerror(errno));
	sp->fd = pair[0];
	r = send_start(sp, pair[0], who);
	if (r < 0) {
		close(pair[1]);
		return sbx_fail(err, -r, "the process that runs commands cannot be told: %s",
		                strerror(-r));
	}
	choose_environment(env);
	r = sbx_program_start(&program, pair[1], &sp->pid, err);
	close(pair[1]);
	return r;
}

int sbx_spawner_start(const struct sbx_settings *settings, struct sbx_spawner **ret,
                      struct sbx_error *err)
{
	struct sbx_spawner *sp = calloc(1, sizeof(*sp));
	struct sbx_error why = SBX_ERROR_INIT;
	struct sbx_identity who;
	int r;

	if (!sp || !(sp->buf = malloc(SPAWNER_BUF_SIZE))) {
		free(sp);
		return sbx_no_memory(err);
	}
	sp->settings = settings;
	sp->tail = &sp->head;
	sp->group = CGROUP_NONE;
	sp->watch = (struct sbx_watch){.fd = -1, .fn = spawner_on_socket, .data = sp};
	pthread_mutex_init(&sp->lock, NULL);
	sp->fd = -1;
	r = sbx_identity_find(settings, &who, &why);
	if (r < 0) {
		sbx_fail(err, -r, "commands cannot be isolated: %s", why.text);
	} else {
		make_group(sp); /* before the start: both may have to be in it */
		r = start_process(sp, &who, err);
	}
	if (r == 0)
		r = await_hello(sp, err);
	if (r < 0) {
		sbx_spawner_stop(sp);
		return r;
	}
	*ret = sp;
	return 0;
}

int sbx_spawner_attach(struct sbx_spawner *sp, struct sbx_loop *loop)
{
	int r;

	assert(!sp->loop && sp->fd >= 0);
	sp->watch.fd = sp->fd;
	r = sbx_loop_watch(loop, &sp->watch, EPOLLIN);
	if (r < 0)
		sp->watch.fd = -1;
	else
		sp->loop = loop;
	return r;
}

void sbx_spawner_stop(struct sbx_spawner *sp)
{
	if (!sp)
		return;
	if (sp->fd >= 0 && sp->loop) {
		shutdown(sp->fd, SHUT_WR);
		while (spawner_receive(sp, sp->fd, 0) == (ssize_t)sizeof(struct spawn_report))
			;
		spawner_lose_everything(sp);
	}
	assert(!sp->head && !sp->fresh);
	sbx_cleanup_fd(&sp->fd);
	if (sp->pid > 0)
		waitpid(sp->pid, NULL, 0);
	cgroup_close(&sp->group);
	pthread_mutex_destroy(&sp->lock);
	free(sp->buf);
	free(sp);
}
