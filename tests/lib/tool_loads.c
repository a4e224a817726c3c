/* Many at once: what stays exact, what stays quick, and what is left afterwards. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

/* Bytes that only ORIGIN explains; all 256 values occur. */
static void pattern_fill(unsigned char *buf, size_t len, uint64_t origin)
{
	uint64_t x = origin * 0x9E3779B97F4A7C15u + 1;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		buf[i] = (unsigned char)(x >> 32);
	}
}

static void write_all(int fd, const unsigned char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n <= 0)
			tool_die("write");
		buf += n;
		len -= (size_t)n;
	}
}

/* The command of storm: waits for the file GO, then writes BYTES to stdout and to stderr. */
static int cmd_pattern(int argc, char **argv)
{
	uint64_t origin = (uint64_t)tool_number(argv[1]);
	size_t len = (size_t)tool_number(argv[2]);
	_cleanup_free_ unsigned char *buf = malloc(len);

	while (argc > 3 && access(argv[3], F_OK))
		tool_poll_pause();
	pattern_fill(buf, len, origin);
	write_all(1, buf, len);
	pattern_fill(buf, len, origin + 1000000);
	write_all(2, buf, len);
	return (int)(origin % 100);
}

static void check_stream(const char *job, const char *stream, size_t len, uint64_t origin)
{
	_cleanup_free_ unsigned char *want = malloc(len);
	_cleanup_free_ char *have = NULL;
	char path[4096];
	size_t got = 0;

	snprintf(path, sizeof(path), "%s/%s", job, stream);
	have = tool_read_file(path, &got);
	if (!have)
		tool_die("%s", path);
	pattern_fill(want, len, origin);
	if (got != len || memcmp(have, want, len))
		tool_die("%s: %zu bytes of %zu, or others", path, got, len);
}

static void storm_start(const char *mnt, int boxes, int job, const char *bytes, char id[32])
{
	char path[4096], origin[16];
	char *argv[] = {(char *)"./tool", (char *)"pattern", origin,
	                (char *)bytes,    (char *)"go",      NULL};
	_cleanup_free_ char *text = NULL;

	snprintf(path, sizeof(path), "%s/storm-%d/ctl/spawn", mnt, job % boxes);
	snprintf(origin, sizeof(origin), "%d", job);
	text = tool_call(path, argv);
	if (!text)
		tool_die("spawn of job %d", job);
	snprintf(id, 32, "%.*s", (int)strcspn(text, "\n"), text);
}

static void storm_check(const char *mnt, int boxes, int job, size_t bytes, const char *id)
{
	char dir[3072], path[4096], want[32];
	_cleanup_free_ char *line = NULL;

	snprintf(dir, sizeof(dir), "%s/storm-%d/ctl/jobs/%s", mnt, job % boxes, id);
	snprintf(path, sizeof(path), "%s/wait", dir);
	line = tool_read_file(path, NULL);
	snprintf(want, sizeof(want), "%d exited ", job % 100);
	if (!line || strncmp(line, want, strlen(want)))
		tool_die("job %d: status '%s'", job, line ? line : "");
	check_stream(dir, "stdout", bytes, (uint64_t)job);
	check_stream(dir, "stderr", bytes, (uint64_t)job + 1000000);
}

/* JOBS jobs at once in the BOXES sandboxes storm-0.., which have this tool as ./tool. */
static int cmd_storm(int argc, char **argv)
{
	int boxes = (int)tool_number(argv[2]), jobs = (int)tool_number(argv[3]);
	char(*id)[32] = calloc((size_t)jobs, sizeof(*id));
	char path[4096];

	(void)argc;
	for (int j = 0; j < jobs; j++)
		storm_start(argv[1], boxes, j, argv[4], id[j]);
	for (int b = 0; b < boxes; b++) {
		snprintf(path, sizeof(path), "%s/storm-%d/go", argv[1], b);
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	}
	for (int j = 0; j < jobs; j++)
		storm_check(argv[1], boxes, j, (size_t)tool_number(argv[4]), id[j]);
	free(id);
	puts("0");
	return 0;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t median_of(int64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), compare);
	return ns[n / 2];
}

static void list(const char *path)
{
	_cleanup_dir_ DIR *d = opendir(path);

	if (!d)
		tool_die("opendir %s", path);
	while (readdir(d))
		;
}

enum { LATENCY_STAT, LATENCY_LS, LATENCY_EXEC, LATENCIES };

static const char *const latency_name[] = {"stat", "ls", "exec"};

static void measure(const char *box, int64_t ret[LATENCIES])
{
	enum { ROUNDS = 101 };
	char exec[4096], missing[4096];
	char *argv[] = {(char *)"true", NULL};
	int64_t ns[LATENCIES][ROUNDS];
	struct stat st;

	snprintf(exec, sizeof(exec), "%s/ctl/exec", box);
	for (int i = 0; i < ROUNDS; i++) {
		int64_t t0 = tool_now_ns(), t1, t2;
		_cleanup_free_ char *text = NULL;

		snprintf(missing, sizeof(missing), "%s/missing-%d-%d", box, getpid(), i);
		if (!stat(missing, &st) || errno != ENOENT)
			tool_die("stat %s", missing);
		t1 = tool_now_ns();
		list(box);
		t2 = tool_now_ns();
		text = tool_call(exec, argv);
		if (!text)
			tool_die("exec while others wait");
		ns[LATENCY_STAT][i] = t1 - t0;
		ns[LATENCY_LS][i] = t2 - t1;
		ns[LATENCY_EXEC][i] = tool_now_ns() - t2;
	}
	for (int k = 0; k < LATENCIES; k++)
		ret[k] = median_of(ns[k], ROUNDS);
}

static pid_t start_reader(const char *path, int ready, int out)
{
	pid_t pid = fork();

	if (!pid) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		char line[256];
		ssize_t n;

		if (fd < 0 || write(ready, "x", 1) != 1)
			_exit(1);
		n = read(fd, line, sizeof(line));
		if (n <= 0 || write(out, line, (size_t)n) != n)
			_exit(2);
		_exit(0);
	}
	return pid;
}

static void start_readers(const char *wait_path, int n, pid_t *pids, int out)
{
	int ready[2];

	if (pipe(ready))
		tool_die("pipe");
	for (int i = 0; i < n; i++)
		pids[i] = start_reader(wait_path, ready[1], out);
	for (int i = 0; i < n; i++)
		if (read(ready[0], &(char){0}, 1) != 1)
			tool_die("a reader did not start");
	for (int i = 0; i < n; i++)
		tool_await_asleep(pids[i]);
	close(ready[0]);
	close(ready[1]);
}

static void end_readers(const char *job, const pid_t *pids, int n)
{
	char path[4096];
	_cleanup_fd_ int fd = -1;

	snprintf(path, sizeof(path), "%s/kill", job);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1\n", 2) != 2)
		tool_die("%s", path);
	for (int i = 0; i < n; i++) {
		int status;

		if (waitpid(pids[i], &status, 0) < 0 || status)
			tool_die("reader %d ended with %d", i, status);
	}
}

/*
 * N readers wait for the end of JOB (a directory in jobs/ of BOX); meanwhile stat, ls and exec must
 * be as quick as before. Prints "stat 1.02 ls 0.98 exec 1.10".
 */
static int cmd_blocked(int argc, char **argv)
{
	int n = (int)tool_number(argv[3]), out[2];
	_cleanup_free_ pid_t *pids = calloc((size_t)n, sizeof(pid_t));
	int64_t before[LATENCIES], during[LATENCIES];
	char path[4096];

	(void)argc;
	if (pipe(out))
		tool_die("pipe");
	snprintf(path, sizeof(path), "%s/wait", argv[2]);
	measure(argv[1], before);
	measure(argv[1], before);
	start_readers(path, n, pids, out[1]);
	measure(argv[1], during);
	end_readers(argv[2], pids, n);
	for (int k = 0; k < LATENCIES; k++)
		printf("%s %.2f%c", latency_name[k], (double)during[k] / (double)before[k],
		       k == LATENCIES - 1 ? '\n' : ' ');
	return 0;
}

static void teardown(const char *mnt, const char *name)
{
	char path[4096];
	_cleanup_fd_ int fd = -1;

	snprintf(path, sizeof(path), "%s/ctl/teardown", mnt);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, name, strlen(name)) < 0 || close(sbx_steal_fd(&fd)) < 0)
		tool_die("teardown of %s", name);
}

static void cycle(const char *mnt, int i, bool by_control)
{
	char dir[2048], path[4096], word[32];
	char *argv[] = {(char *)"echo", word, NULL};
	_cleanup_free_ char *text = NULL, *out = NULL;

	snprintf(dir, sizeof(dir), "%s/cycle-%d", mnt, i);
	snprintf(word, sizeof(word), "round-%d", i);
	if (mkdir(dir, 0755))
		tool_die("mkdir %s", dir);
	snprintf(path, sizeof(path), "%s/ctl/exec", dir);
	text = tool_call(path, argv);
	if (!text)
		tool_die("exec in %s", dir);
	snprintf(path, sizeof(path), "%s/ctl/stdout", dir);
	out = tool_read_file(path, NULL);
	if (!out || strncmp(out, word, strlen(word)))
		tool_die("%s reads '%s'", path, out ? out : "");
	if (!by_control && rmdir(dir))
		tool_die("rmdir %s", dir);
	if (by_control)
		teardown(mnt, strrchr(dir, '/') + 1);
	else if (!access(dir, F_OK))
		tool_die("%s is still there", dir);
}

/* By ctl/teardown no name is asked for afterwards: the kernel goes on knowing what it knew. */
static int cmd_cycles(int argc, char **argv)
{
	char path[4096];

	for (int i = 0; i < (int)tool_number(argv[2]); i++)
		cycle(argv[1], i, argc > 3);
	snprintf(path, sizeof(path), "%s/ctl/pending", argv[1]);
	for (;;) {
		_cleanup_free_ char *text = tool_read_file(path, NULL);

		if (!text)
			tool_die("%s", path);
		if (!*text)
			break;
		tool_poll_pause();
	}
	return 0;
}

/* Writes bytes BLOCK by BLOCK until it fails; prints the errno. */
static int cmd_fill(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	static char block[1 << 16];

	(void)argc;
	if (fd < 0)
		return tool_outcome(-1);
	memset(block, 'x', sizeof(block));
	for (int i = 0; i < 16384; i++)
		if (write(fd, block, sizeof(block)) < 0)
			return tool_outcome(-1);
	return tool_outcome(close(sbx_steal_fd(&fd)));
}

const struct tool_command tool_loads[] = {
        {"pattern", "SEED BYTES [GO]", 2, cmd_pattern},
        {"storm", "MNT BOXES JOBS BYTES", 4, cmd_storm},
        {"blocked", "BOX JOB READERS", 3, cmd_blocked},
        {"cycles", "MNT COUNT [ctl]", 2, cmd_cycles},
        {"fill", "FILE", 1, cmd_fill},
        {0},
};
