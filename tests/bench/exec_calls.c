#include "exec_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

extern char **environ;

void bench_die(const char *what)
{
	perror(what);
	exit(1);
}

int64_t bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static size_t drain(int fd)
{
	char buf[65536];
	size_t total = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		total += (size_t)n;
	if (n < 0)
		bench_die("read");
	return total;
}

static size_t read_file(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		bench_die(path);
	return drain(fd);
}

size_t bench_run_sandbox(struct bench *b)
{
	int fd = open(b->exec, O_WRONLY | O_CLOEXEC);
	size_t n;

	if (fd < 0 || write(fd, b->request, b->request_len) != (ssize_t)b->request_len)
		bench_die(b->exec);
	close(fd);
	n = read_file(b->out);
	read_file(b->status);
	return n;
}

static size_t spawn(char **argv)
{
	posix_spawn_file_actions_t actions;
	int p[2], status;
	size_t n;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC))
		bench_die("pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, p[1], 1);
	errno = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	if (errno)
		bench_die(argv[0]);
	posix_spawn_file_actions_destroy(&actions);
	close(p[1]);
	n = drain(p[0]);
	close(p[0]);
	if (waitpid(pid, &status, 0) < 0)
		bench_die("waitpid");
	return n;
}

size_t bench_run_spawn(struct bench *b)
{
	return spawn(b->argv);
}

size_t bench_run_bwrap(struct bench *b)
{
	return spawn(b->bwrap);
}

void bench_prepare(struct bench *b, const char *box, char **argv)
{
	static const char *const bwrap[] = {"bwrap",  "--unshare-all", "--ro-bind", "/",   "/",
	                                    "--proc", "/proc",         "--dev",     "/dev"};
	size_t n = 0;

	snprintf(b->exec, sizeof(b->exec), "%s/ctl/exec", box);
	snprintf(b->out, sizeof(b->out), "%s/ctl/stdout", box);
	snprintf(b->status, sizeof(b->status), "%s/ctl/status", box);
	b->argv = argv;
	for (char **a = argv; *a; a++) {
		size_t len = strlen(*a) + 1;

		if (b->request_len + len + 1 > sizeof(b->request))
			bench_die("too long");
		memcpy(b->request + b->request_len, *a, len);
		b->request_len += len;
	}
	b->request[b->request_len++] = 0;
	for (; n < SBX_ARRAY_SIZE(bwrap); n++)
		b->bwrap[n] = (char *)bwrap[n];
	for (char **a = argv; *a && n < SBX_ARRAY_SIZE(b->bwrap) - 1; a++)
		b->bwrap[n++] = *a;
}
