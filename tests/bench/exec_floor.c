/*
 * The cost of the spawner over the least that can be paid: posix_spawn and a read of the pipe,
 * against sbx_spawner_exec to `ended`, of the same program, taking turns.
 *
 *   exec_floor [ROUNDS] [ISOLATION]
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/spawner.h"

#define PROGRAM "/bin/true"

static char *argv_true[] = {PROGRAM, NULL};
static char *env_true[] = {"PATH=/usr/bin:/bin", NULL};

struct bench {
	struct sbx_loop *loop;
	struct sbx_spawner *sp;
	struct sbx_place place;
	int rounds, at;
	uint64_t *plain, *sandboxed;
	uint64_t began;
	struct sbx_job job;
};

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static uint64_t run_plain(void)
{
	posix_spawn_file_actions_t fa;
	uint64_t began = sbx_now_ns();
	char buf[64];
	int out[2], err[2], status;
	pid_t pid;

	check(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0, "pipe2");
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, out[1], 1);
	posix_spawn_file_actions_adddup2(&fa, err[1], 2);
	check(posix_spawn(&pid, PROGRAM, &fa, NULL, argv_true, env_true) == 0, "posix_spawn");
	posix_spawn_file_actions_destroy(&fa);
	close(out[1]);
	close(err[1]);
	while (read(out[0], buf, sizeof(buf)) > 0)
		;
	while (read(err[0], buf, sizeof(buf)) > 0)
		;
	waitpid(pid, &status, 0);
	close(out[0]);
	close(err[0]);
	return sbx_now_ns() - began;
}

static void on_output(struct sbx_job *job, int stream, const void *buf, size_t len)
{
	(void)job;
	(void)stream;
	(void)buf;
	(void)len;
}

static void next(void *data);

static void on_ended(struct sbx_job *job, const struct sbx_exit *exit)
{
	struct bench *b = sbx_container_of(job, struct bench, job);

	b->sandboxed[b->at++] = sbx_now_ns() - b->began;
	if (exit->end != SBX_END_EXITED) {
		fprintf(stderr, "%s\n", exit->error.text);
		_exit(1);
	}
	sbx_loop_post(b->loop, next, b);
}

static const struct sbx_job_events events = {.output = on_output, .ended = on_ended};

static void next(void *data)
{
	struct bench *b = data;
	struct sbx_exec spec = {.argv = argv_true, .env = env_true, .cwd = "", .stdin_fd = -1};
	struct sbx_error err;

	if (b->at == b->rounds) {
		sbx_loop_stop(b->loop);
		return;
	}
	b->plain[b->at] = run_plain();
	b->began = sbx_now_ns();
	b->job = (struct sbx_job){.events = &events};
	check(sbx_spawner_exec(b->sp, &b->place, &spec, &b->job, &err) == 0, "exec");
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double percentile(uint64_t *v, int n, int p)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return (double)v[(n - 1) * p / 100] / 1000.0;
}

int main(int argc, char **argv)
{
	struct sbx_settings settings = {
	        .net = "none", .path = "/usr/bin:/bin", .isolation = "auto"};
	struct bench b = {.rounds = argc > 1 ? atoi(argv[1]) : 1000};
	char dir[] = "/tmp/exec-floor-XXXXXX";
	struct sbx_error err = SBX_ERROR_INIT;
	double plain, sandboxed;

	if (argc > 2)
		settings.isolation = argv[2];
	check(mkdtemp(dir) != NULL, "mkdtemp");
	b.place = (struct sbx_place){.id = "bench", .workdir = dir, .view = dir};
	b.plain = calloc((size_t)b.rounds, sizeof(uint64_t));
	b.sandboxed = calloc((size_t)b.rounds, sizeof(uint64_t));
	if (sbx_spawner_start(&settings, &b.sp, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	check(sbx_loop_create(&b.loop) == 0 && sbx_spawner_attach(b.sp, b.loop) == 0, "loop");
	sbx_loop_post(b.loop, next, &b);
	sbx_loop_run(b.loop);
	plain = percentile(b.plain, b.rounds, 50);
	sandboxed = percentile(b.sandboxed, b.rounds, 50);
	printf("posix_spawn p50 %.0f us p99 %.0f us; spawner p50 %.0f us p99 %.0f us; ratio %.2f\n",
	       plain, percentile(b.plain, b.rounds, 99), sandboxed,
	       percentile(b.sandboxed, b.rounds, 99), sandboxed / plain);
	sbx_spawner_stop(b.sp);
	sbx_loop_destroy(b.loop);
	free(b.plain);
	free(b.sandboxed);
	rmdir(dir);
	return 0;
}
