/*
 * What a command costs: through ctl/exec of a sandbox, by posix_spawn with a pipe, and by bwrap where it is
 * installed. The ways take turns within each round, so that whatever else the machine does meets all of them.
 *
 *   bench-exec SANDBOX ROUNDS ARGV...
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

extern char **environ;

struct bench {
	char exec[4096], out[4096], status[4096]; /* control files */
	char request[65536];                      /* ARGV, NUL-separated */
	size_t request_len;
	char **argv;
	char *bwrap[64]; /* bwrap's argv, or an empty list */
};

struct way {
	const char *name;
	size_t (*run)(struct bench *b); /* bytes of output */
	int64_t *ns;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now_ns(void)
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
		die("read");
	return total;
}

static size_t read_file(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(path);
	return drain(fd);
}

static size_t run_sandbox(struct bench *b)
{
	int fd = open(b->exec, O_WRONLY | O_CLOEXEC);
	size_t n;

	if (fd < 0 || write(fd, b->request, b->request_len) != (ssize_t)b->request_len)
		die(b->exec);
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
		die("pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, p[1], 1);
	errno = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	if (errno)
		die(argv[0]);
	posix_spawn_file_actions_destroy(&actions);
	close(p[1]);
	n = drain(p[0]);
	close(p[0]);
	if (waitpid(pid, &status, 0) < 0)
		die("waitpid");
	return n;
}

static size_t run_spawn(struct bench *b)
{
	return spawn(b->argv);
}

static size_t run_bwrap(struct bench *b)
{
	return spawn(b->bwrap);
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static double percentile_us(const struct way *w, int rounds, int p)
{
	return (double)w->ns[(rounds - 1) * p / 100] / 1000;
}

static void report(struct way *ways, size_t n, int rounds)
{
	for (size_t i = 0; i < n; i++) {
		qsort(ways[i].ns, (size_t)rounds, sizeof(int64_t), compare);
		printf("%-12s p50 %8.1f us   p90 %8.1f us   x %.2f\n", ways[i].name,
		       percentile_us(&ways[i], rounds, 50), percentile_us(&ways[i], rounds, 90),
		       percentile_us(&ways[i], rounds, 50) / percentile_us(&ways[0], rounds, 50));
	}
	printf("{\"rounds\":%d", rounds);
	for (size_t i = 0; i < n; i++)
		printf(",\"%s\":{\"p50_us\":%.1f,\"p90_us\":%.1f,\"ratio\":%.3f}", ways[i].name,
		       percentile_us(&ways[i], rounds, 50), percentile_us(&ways[i], rounds, 90),
		       percentile_us(&ways[i], rounds, 50) / percentile_us(&ways[0], rounds, 50));
	puts("}");
}

static void prepare(struct bench *b, const char *box, char **argv)
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
			die("too long");
		memcpy(b->request + b->request_len, *a, len);
		b->request_len += len;
	}
	b->request[b->request_len++] = 0;
	for (; n < SBX_ARRAY_SIZE(bwrap); n++)
		b->bwrap[n] = (char *)bwrap[n];
	for (char **a = argv; *a && n < SBX_ARRAY_SIZE(b->bwrap) - 1; a++)
		b->bwrap[n++] = *a;
}

int main(int argc, char **argv)
{
	static struct bench b;
	struct way ways[] = {
	        {"posix_spawn", run_spawn}, {"sandboxfs", run_sandbox}, {"bwrap", run_bwrap}};
	size_t n = access("/usr/bin/bwrap", X_OK) ? 2 : 3;
	int rounds = argc > 3 ? atoi(argv[2]) : 0;

	if (rounds <= 0) {
		fprintf(stderr, "bench-exec SANDBOX ROUNDS ARGV...\n");
		return 2;
	}
	prepare(&b, argv[1], argv + 3);
	for (size_t i = 0; i < n; i++)
		ways[i].ns = calloc((size_t)rounds, sizeof(int64_t));
	for (int r = -10; r < rounds; r++) {
		size_t bytes = 0;

		for (size_t i = 0; i < n; i++) {
			int64_t start = now_ns();
			size_t got = ways[i].run(&b);

			if (r >= 0)
				ways[i].ns[r] = now_ns() - start;
			if (i && got != bytes)
				die("the outputs differ");
			bytes = got;
		}
	}
	report(ways, n, rounds);
	return 0;
}
