/* Commands that want everything, and how quick the mount is meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"

#define MIB ((size_t)1024 * 1024)

static int hog_processes(void)
{
	for (;;)
		if (fork() < 0 && errno != EAGAIN)
			return 1;
	return 0;
}

static bool take(size_t mib)
{
	void *at =
	        mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return false;
	memset(at, 'x', mib * MIB);
	return true;
}

static int hog_memory(void)
{
	while (take(1))
		;
	return tool_outcome(-1) + 3;
}

/* Each of them small. */
static int hog_memory_in_pieces(void)
{
	for (int i = 0; i < 64; i++)
		if (fork() == 0) {
			take(8);
			break;
		}
	for (;;)
		pause();
	return 1;
}

static int hog_files(void)
{
	char name[32];
	int n = 0;

	for (; n < 10000; n++) {
		snprintf(name, sizeof(name), "open-%d", n);
		if (open(name, O_CREAT | O_WRONLY, 0644) < 0)
			break;
	}
	printf("%d files\n", n);
	return n < 10000 ? 1 : 0;
}

static int hog_output(void)
{
	static char block[MIB];

	memset(block, 'x', sizeof(block));
	for (int i = 0; i < 256; i++)
		if (write(1, block, sizeof(block)) < 0)
			return 1;
	return 0;
}

/* Twice removed, in a session of its own, deaf to all that can be ignored; and so is who waits for
 * it. */
static int hog_time(void)
{
	for (int sig = 1; sig < SIGRTMAX; sig++)
		signal(sig, SIG_IGN);
	if (fork() == 0) {
		setsid();
		if (fork() > 0)
			_exit(0);
	}
	for (;;)
		pause();
	return 1;
}

static int cmd_hog(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} hogs[] = {
	        {"processes", hog_processes},     {"memory", hog_memory},
	        {"pieces", hog_memory_in_pieces}, {"files", hog_files},
	        {"output", hog_output},           {"time", hog_time},
	};

	(void)argc;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(hogs); i++)
		if (!strcmp(hogs[i].name, argv[1]))
			return hogs[i].run();
	return 2;
}

/* --- how quick the mount is --------------------------------------------------------------------
 */

enum { LEAST = 1000, MOST = 1000000 };

struct samples {
	int64_t *ns;
	size_t n;
};

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static double p99_us(struct samples *s)
{
	qsort(s->ns, s->n, sizeof(*s->ns), compare);
	return (double)s->ns[s->n * 99 / 100] / 1e3;
}

/* A name that is not there is asked of the daemon each time. */
static void sample(struct samples *s, const char *dir)
{
	char path[4096];
	struct stat st;
	int64_t t0;

	snprintf(path, sizeof(path), "%s/missing-%d-%zu", dir, getpid(), s->n);
	t0 = tool_now_ns();
	if (!stat(path, &st) || errno != ENOENT)
		tool_die("stat %s", path);
	if (s->n < MOST)
		s->ns[s->n++] = tool_now_ns() - t0;
}

static pid_t write_request(const char *file, const char *request)
{
	pid_t pid = fork();

	if (!pid) {
		int fd = open(file, O_WRONLY | O_CLOEXEC);

		_exit(fd < 0 || write(fd, request, strlen(request)) < 0 ? 1 : 0);
	}
	return pid;
}

/* Prints "p99 41 us, idle 38 us, x1.1": of stat in DIR while REQUEST, written to FILE, is carried
 * out. */
static int cmd_p99(int argc, char **argv)
{
	struct samples idle = {.ns = calloc(MOST, sizeof(int64_t))};
	struct samples busy = {.ns = calloc(MOST, sizeof(int64_t))};
	double before, during;
	int status;
	pid_t pid;

	(void)argc;
	while (idle.n < LEAST)
		sample(&idle, argv[1]);
	pid = write_request(argv[2], argv[3]);
	do
		sample(&busy, argv[1]);
	while (waitpid(pid, &status, WNOHANG) == 0);
	before = p99_us(&idle);
	during = p99_us(&busy);
	printf("p99 %.0f us, idle %.0f us, x%.1f\n", during, before, during / before);
	free(idle.ns);
	free(busy.ns);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

const struct tool_command tool_hogs[] = {
        {"hog", "processes|memory|pieces|files|output|time", 1, cmd_hog},
        {"p99", "DIR FILE REQUEST", 3, cmd_p99},
        {0},
};
