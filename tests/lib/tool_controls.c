/* Conversations with control files, chunk by chunk and signal by signal. */
#include <errno.h>
#include <fcntl.h>
#include <json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"

static void print_rest(int fd)
{
	size_t len = 0;
	_cleanup_free_ char *text = tool_read_all(fd, &len);

	if (text)
		fwrite(text, 1, len, stdout);
	else
		printf("read %s\n", tool_errno_name(errno));
}

static int flush(int fd)
{
	int copy = dup(fd);

	return copy < 0 ? -1 : close(copy);
}

static void say(int fd, char *chunk)
{
	const char *what = "write";
	ssize_t r;

	if (!strcmp(chunk, "@flush")) {
		what = "flush";
		r = flush(fd);
	} else if (!strcmp(chunk, "@fsync")) {
		what = "fsync";
		r = fsync(fd);
	} else if (!strcmp(chunk, "@read")) {
		print_rest(fd);
		return;
	} else {
		size_t len = tool_unescape(chunk);

		r = write(fd, chunk, len);
		if (r >= 0 && (size_t)r != len)
			printf("short write %zd\n", r);
	}
	if (r < 0)
		printf("%s %s\n", what, tool_errno_name(errno));
}

/* Each argument is one write; failures are printed; what the same open file then reads follows. */
static int cmd_talk(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		printf("open %s\n", tool_errno_name(errno));
		return 0;
	}
	for (int i = 2; i < argc && strcmp(argv[i], "@close") != 0; i++)
		say(fd, argv[i]);
	if (strcmp(argv[argc - 1], "@close") != 0)
		print_rest(fd);
	else if (close(sbx_steal_fd(&fd)) < 0)
		printf("close %s\n", tool_errno_name(errno));
	return 0;
}

/* Prints the result that ctl/exec gives for ARGV, or the errno. */
static int cmd_result(int argc, char **argv)
{
	_cleanup_free_ char *text = tool_call(argv[1], argv + 2);

	(void)argc;
	puts(text ? text : tool_errno_name(errno));
	return 0;
}

static void copy_output(const char *exec, const char *id, const char *stream, int to)
{
	char path[4096];
	size_t len = 0;
	_cleanup_free_ char *text = NULL;

	snprintf(path, sizeof(path), "%.*s/jobs/%s/%s", (int)(strrchr(exec, '/') - exec), exec, id,
	         stream);
	text = tool_read_file(path, &len);
	if (!text)
		tool_die("%s", path);
	if (len && write(to, text, len) != (ssize_t)len)
		tool_die("write");
}

/* Runs ARGV in the sandbox and behaves as if it had been run here. */
static int cmd_exec(int argc, char **argv)
{
	_cleanup_free_ char *text = tool_call(argv[1], argv + 2);
	struct json_object *result, *id, *code;

	(void)argc;
	if (!text)
		tool_die("exec %s", argv[2]);
	result = json_tokener_parse(text);
	if (!json_object_object_get_ex(result, "id", &id) ||
	    !json_object_object_get_ex(result, "exitCode", &code))
		tool_die("odd result %s", text);
	copy_output(argv[1], json_object_get_string(id), "stdout", 1);
	copy_output(argv[1], json_object_get_string(id), "stderr", 2);
	argc = json_object_get_int(code);
	json_object_put(result);
	return argc;
}

/* A transaction on ctl/run: output as it comes. */
static int cmd_run(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_RDWR | O_CLOEXEC);
	size_t len;
	_cleanup_free_ char *request = tool_request(argv + 2, &len);
	char buf[65536];
	ssize_t n;

	(void)argc;
	if (fd < 0 || write(fd, request, len) != (ssize_t)len)
		tool_die("run %s", argv[2]);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (write(1, buf, (size_t)n) != n)
			tool_die("write");
	return n < 0;
}

/* A text request of exactly BYTES bytes in writes of CHUNK; prints the outcome of the first that
 * fails. */
static int cmd_big_request(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_RDWR | O_CLOEXEC);
	size_t total = (size_t)tool_number(argv[2]), chunk = (size_t)tool_number(argv[3]);
	_cleanup_free_ char *text = malloc(total + 1);

	(void)argc;
	memset(text, ' ', total);
	memcpy(text, "true", 4);
	text[total - 1] = '\n';
	for (size_t at = 0; at < total;) {
		ssize_t n = write(fd, text + at, total - at < chunk ? total - at : chunk);

		if (n < 0)
			return tool_outcome(-1);
		at += (size_t)n;
	}
	return tool_outcome(0);
}

static volatile sig_atomic_t caught;

static void count_signal(int sig)
{
	(void)sig;
	caught++;
}

/*
 * Writes ARGV to a control file while a signal arrives every INTERVAL ms, retrying on EINTR as
 * Python does. Prints how many writes were made and whether signals came.
 */
static int cmd_signals(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_RDWR | O_CLOEXEC);
	int sig = strcmp(argv[2], "WINCH") ? SIGALRM : SIGWINCH, writes = 0;
	long us = tool_number(argv[3]) * 1000;
	struct sigaction sa = {.sa_handler = count_signal};
	pid_t parent = getpid(), child;
	size_t len;
	_cleanup_free_ char *request = tool_request(argv + 4, &len);
	ssize_t n;

	(void)argc;
	sigaction(sig, &sa, NULL);
	child = fork();
	if (!child)
		for (;;) {
			usleep((useconds_t)us);
			if (kill(parent, sig))
				_exit(0);
		}
	do {
		n = write(fd, request, len);
		writes++;
	} while (n < 0 && errno == EINTR);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("writes %d %s %s\n", writes, n < 0 ? tool_errno_name(errno) : "ok",
	       caught ? "interrupted" : "quiet");
	return 0;
}

static void await_file(const char *path)
{
	while (access(path, F_OK))
		tool_poll_pause();
}

/* Waits until FILE exists. */
static int cmd_await(int argc, char **argv)
{
	(void)argc;
	await_file(argv[1]);
	return 0;
}

/*
 * A client of a control file is sent SIG once FILE exists (the command makes it). Prints the
 * signal that ended the client and whether that took less than 2 s.
 */
static int cmd_kill_client(int argc, char **argv)
{
	int sig = (int)tool_number(argv[2]), status;
	pid_t pid = fork();
	int64_t start;

	(void)argc;
	if (!pid) {
		_cleanup_free_ char *text = tool_call(argv[1], argv + 4);

		_exit(text ? 0 : 9);
	}
	await_file(argv[3]);
	start = tool_now_ns();
	kill(pid, sig);
	waitpid(pid, &status, 0);
	printf("%s %d %s\n", WIFSIGNALED(status) ? "signal" : "exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
	       tool_now_ns() - start < INT64_C(30000000000) ? "quickly" : "slowly");
	return 0;
}

/* COUNT clients write ARGV to the same control file at once; prints the milliseconds of all. */
static int cmd_parallel(int argc, char **argv)
{
	int count = (int)tool_number(argv[2]), failed = 0;
	int64_t start = tool_now_ns();

	(void)argc;
	for (int i = 0; i < count; i++)
		if (!fork()) {
			_cleanup_free_ char *text = tool_call(argv[1], argv + 3);

			_exit(text ? 0 : 1);
		}
	for (int i = 0; i < count; i++) {
		int status;

		wait(&status);
		failed += !!status;
	}
	printf("%d %s\n", (int)((tool_now_ns() - start) / 1000000), failed ? "failed" : "ok");
	return failed ? 1 : 0;
}

/* A reader with FLAGS sees how much, or which errno, with one read(2). */
static int cmd_read_once(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], tool_open_flags(argv[2]) | O_CLOEXEC);
	char buf[65536];
	ssize_t n;

	(void)argc;
	if (fd < 0)
		return tool_outcome(-1);
	n = read(fd, buf, sizeof(buf));
	if (n < 0)
		return tool_outcome(-1);
	fwrite(buf, 1, (size_t)n, stdout);
	return 0;
}

/* Reads a file that never ends until one read contains TEXT. */
static int cmd_read_until(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	char buf[65536];

	(void)argc;
	for (;;) {
		ssize_t n = read(fd, buf, sizeof(buf) - 1);

		if (n <= 0)
			tool_die("ended before '%s' came", argv[2]);
		buf[n] = 0;
		if (strstr(buf, argv[2]))
			return 0;
	}
}

/* Prints the member at the dotted path of the JSON text on stdin; "absent" and exit 1 without it.
 */
static int cmd_json(int argc, char **argv)
{
	_cleanup_free_ char *text = tool_read_all(0, NULL);
	struct json_object *obj = text ? json_tokener_parse(text) : NULL, *at = obj;
	char *save = NULL;

	(void)argc;
	if (!obj)
		tool_die("not JSON: %s", text ? text : "");
	for (char *key = strtok_r(argv[1], ".", &save); key; key = strtok_r(NULL, ".", &save)) {
		if (json_object_is_type(at, json_type_array))
			at = json_object_array_get_idx(at, (size_t)tool_number(key));
		else if (!json_object_object_get_ex(at, key, &at)) {
			puts("absent");
			return 1;
		}
	}
	puts(json_object_is_type(at, json_type_string)
	             ? json_object_get_string(at)
	             : json_object_to_json_string_ext(at, JSON_C_TO_STRING_PLAIN));
	json_object_put(obj);
	return 0;
}

const struct tool_command tool_controls[] = {
        {"talk", "FILE CHUNK|@flush|@fsync|@read... [@close]", 1, cmd_talk},
        {"result", "FILE ARGV...", 2, cmd_result},
        {"exec", "FILE ARGV...", 2, cmd_exec},
        {"run", "FILE ARGV...", 2, cmd_run},
        {"big-request", "FILE BYTES CHUNK", 3, cmd_big_request},
        {"signals", "FILE WINCH|ALRM INTERVAL_MS ARGV...", 4, cmd_signals},
        {"await", "FILE", 1, cmd_await},
        {"kill-client", "FILE SIGNAL MARKER ARGV...", 4, cmd_kill_client},
        {"parallel", "FILE COUNT ARGV...", 3, cmd_parallel},
        {"read-once", "FILE FLAGS", 2, cmd_read_once},
        {"read-until", "FILE TEXT", 2, cmd_read_until},
        {"json", "PATH", 1, cmd_json},
        {0},
};
