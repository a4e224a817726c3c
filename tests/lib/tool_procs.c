/*
 * The daemon under test. `mount` starts it as a user does, and leaves a watcher behind: a
 * child subreaper, so that the daemon and whatever outlives it become its children. It writes down
 * how each ended and goes away with the last one; whoever takes the lock of its record has
 * waited for all of them. A process that is never reaped is thereby a test that fails.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"

static pid_t start(const char *log, char **argv)
{
	pid_t pid = fork();

	if (!pid) {
		int fd = open(log, O_CREAT | O_APPEND | O_WRONLY, 0644);
		int null = open("/dev/null", O_RDONLY);

		if (fd < 0 || null < 0)
			_exit(126);
		dup2(null, 0);
		dup2(fd, 1);
		dup2(fd, 2);
		execvp(argv[0], argv);
		_exit(127);
	}
	return pid;
}

/* The next of the children to end, and what it calls itself. */
static pid_t await_child(int *status, char *comm, size_t size)
{
	siginfo_t info = {0};
	char path[64];
	ssize_t n = -1;

	while (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) < 0)
		if (errno != EINTR)
			return -1;
	snprintf(path, sizeof(path), "/proc/%d/comm", info.si_pid);
	{
		_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			n = read(fd, comm, size - 1);
	}
	comm[n > 0 ? n - 1 : 0] = '\0';
	return waitpid(info.si_pid, status, 0);
}

static bool is_of_the_daemon(const char *comm)
{
	return strncmp(comm, "sandboxfs", strlen("sandboxfs")) == 0;
}

/* Whether one of our children is the daemon's own process. */
static bool has_daemon(void)
{
	_cleanup_dir_ DIR *d = opendir("/proc");
	bool found = false;

	for (struct dirent *e; d && !found && (e = readdir(d));) {
		char path[300], comm[32] = "";
		int parent = 0;

		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		if (strspn(e->d_name, "0123456789") == strlen(e->d_name)) {
			_cleanup_file_ FILE *f = fopen(path, "re");

			found = f && fscanf(f, "%*d (%31[^)]) %*c %d", comm, &parent) == 2 &&
			        parent == getpid() && is_of_the_daemon(comm);
		}
	}
	return found;
}

static void watch(const char *log, const char *record, char **argv, int report)
{
	int fd = open(record, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644), status;
	/* What goes on in machines (dirs.h) is not the daemon's, and not waited for. */
	const char *backend = getenv("BACKEND");
	const bool away = backend && *backend;
	char comm[32];
	pid_t first, pid;

	alarm(0);
	if (fd < 0 || flock(fd, LOCK_EX) || prctl(PR_SET_CHILD_SUBREAPER, 1))
		_exit(1);
	setsid();
	first = start(log, argv);
	while ((pid = await_child(&status, comm, sizeof(comm))) > 0) {
		if (pid == first) {
			int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;

			if (write(report, &code, sizeof(code)) != sizeof(code))
				_exit(1);
			close(report);
			/* Its number is another's later on. */
			first = -1;
			dup2(fd, 1);
			dup2(fd, 2);
			continue;
		}
		if (away && !is_of_the_daemon(comm))
			continue;
		dprintf(fd, "%s %d %s\n", WIFEXITED(status) ? "exit" : "signal",
		        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), comm);
		if (away && !has_daemon())
			break;
	}
	_exit(0);
}

/* Returns when the daemon has gone to the background, with its exit code. */
static int cmd_mount(int argc, char **argv)
{
	int report[2], code;

	(void)argc;
	if (pipe2(report, O_CLOEXEC))
		tool_die("pipe");
	if (!fork()) {
		close(report[0]);
		watch(argv[1], argv[2], argv + 3, report[1]);
	}
	close(report[1]);
	if (read(report[0], &code, sizeof(code)) != sizeof(code))
		tool_die("the watcher ended");
	return code;
}

static bool has_argument(const char *text, size_t len, const char *word)
{
	for (size_t at = 0; at < len; at += strlen(text + at) + 1)
		if (!strcmp(text + at, word))
			return true;
	return false;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* Prints the ids of the processes that have WORD as an argument, oldest first. */
static int cmd_pids(int argc, char **argv)
{
	_cleanup_dir_ DIR *d = opendir("/proc");
	int found = 0;

	(void)argc;
	for (struct dirent *e; d && (e = readdir(d));) {
		char path[300];
		_cleanup_free_ char *text = NULL;
		size_t len = 0;

		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		if (strspn(e->d_name, "0123456789") != strlen(e->d_name) ||
		    atoi(e->d_name) == getpid())
			continue;
		text = tool_read_file(path, &len);
		/* The watcher of `mount` has the daemon's arguments; it is not one of them. */
		if (text && has_argument(text, len, argv[1]) && !ends_with(text, "/tool")) {
			puts(e->d_name);
			found++;
		}
	}
	return found ? 0 : 1;
}

static int cmd_fds(int argc, char **argv)
{
	char path[64];
	_cleanup_dir_ DIR *d = NULL;
	int n = -2; /* "." and ".." */

	(void)argc;
	snprintf(path, sizeof(path), "/proc/%s/fd", argv[1]);
	d = opendir(path);
	if (!d)
		return tool_outcome(-1);
	while (readdir(d))
		n++;
	printf("%d\n", n);
	return 0;
}

/* Returns when none of the processes exists any more. */
static int cmd_await_gone(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		while (!kill((pid_t)tool_number(argv[i]), 0))
			tool_poll_pause();
	return 0;
}

static void write_text(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		tool_die("%s", path);
}

/* The parent is still outside, and root there: only it may map all. */
static void map_everybody(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	write_text(path, "0 0 65536");
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	write_text(path, "0 0 65536");
}

/*
 * Runs COMMAND as an ordinary user who may make no user namespace, as after
 * `sysctl user.max_user_namespaces=0`; but for this command alone, so in one of root's where that
 * is written. Everybody is mapped, so that fusermount3 is what it is outside.
 */
static int cmd_without_userns(int argc, char **argv)
{
	gid_t gid = (gid_t)tool_number(argv[2]);
	uid_t uid = (uid_t)tool_number(argv[1]);
	int ready[2], mapped[2], status;
	char byte = 0;
	pid_t pid;

	(void)argc;
	if (pipe2(ready, O_CLOEXEC) || pipe2(mapped, O_CLOEXEC))
		tool_die("pipe");
	pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) || write(ready[1], &byte, 1) != 1 ||
		    read(mapped[0], &byte, 1) != 1)
			tool_die("a user namespace");
		write_text("/proc/sys/user/max_user_namespaces", "0");
		if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
			tool_die("becoming %u", uid);
		alarm(0);
		execvp(argv[3], argv + 3);
		tool_die("%s", argv[3]);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1) {
		map_everybody(pid);
		if (write(mapped[1], &byte, 1) != 1)
			tool_die("the command ended");
	}
	if (waitpid(pid, &status, 0) < 0)
		tool_die("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

const struct tool_command tool_procs[] = {
        {"mount", "LOG RECORD SANDBOXFS ARG...", 3, cmd_mount},
        {"pids", "WORD", 1, cmd_pids},
        {"fds", "PID", 1, cmd_fds},
        {"without-userns", "UID GID COMMAND...", 3, cmd_without_userns},
        {"await-gone", "PID...", 1, cmd_await_gone},
        {0},
};
