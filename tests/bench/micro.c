/*
 * The operations that tests/bench/run measures, so that neither an interpreter nor a start of a
 * process is measured with them. Prints `NS OPS`. Paths are relative to the current directory.
 */
#include "micro.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

void micro_die(const char *what)
{
	perror(what);
	exit(1);
}

int64_t micro_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void micro_report(int64_t ns, size_t ops)
{
	printf("%lld %zu\n", (long long)ns, ops);
}

size_t micro_number(const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	if (*end || end == text) {
		errno = EINVAL;
		micro_die(text);
	}
	return (size_t)n;
}

static void run_mkdir(char **args)
{
	int64_t start = micro_now_ns();

	if (mkdir(args[0], 0755))
		micro_die(args[0]);
	micro_report(micro_now_ns() - start, 1);
}

static void run_rmdir(char **args)
{
	int64_t start = micro_now_ns();

	if (rmdir(args[0]))
		micro_die(args[0]);
	micro_report(micro_now_ns() - start, 1);
}

/* A command from its start to its end; it must succeed, and its output goes nowhere. */
static void run_time(char **args)
{
	posix_spawn_file_actions_t actions;
	int64_t start;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, args[0], O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	start = micro_now_ns();
	errno = posix_spawnp(&pid, args[1], &actions, NULL, args + 1, environ);
	if (errno)
		micro_die(args[1]);
	if (waitpid(pid, &status, 0) < 0)
		micro_die("waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "%s: status %#x\n", args[1], status);
		exit(1);
	}
	micro_report(micro_now_ns() - start, 1);
}

static const struct micro_op calls[] = {
        {"mkdir", "PATH", 1, run_mkdir},
        {"rmdir", "PATH", 1, run_rmdir},
        {"time", "STDIN ARGV...", 2, run_time},
        {0},
};

static const struct micro_op *const tables[] = {calls, micro_trees, micro_data, micro_names};
#define TABLES (sizeof(tables) / sizeof(tables[0]))

static int usage(void)
{
	for (size_t i = 0; i < TABLES; i++)
		for (const struct micro_op *op = tables[i]; op->name; op++)
			fprintf(stderr, "bench-micro %s %s\n", op->name, op->usage);
	return 2;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage();
	for (size_t i = 0; i < TABLES; i++) {
		for (const struct micro_op *op = tables[i]; op->name; op++) {
			if (strcmp(op->name, argv[1]) != 0 || argc - 2 < op->args)
				continue;
			op->run(argv + 2);
			return 0;
		}
	}
	return usage();
}
