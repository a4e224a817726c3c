/* Calls that wait for other processes: they hold up nobody else, and end with who made them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"

#define INTERRUPTED 7

static int wait_flock(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -1 : flock(fd, LOCK_EX);
}

static int wait_fcntl(const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -1 : fcntl(fd, F_SETLKW, &lock);
}

static int wait_fifo(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char c;

	return fd < 0 ? -1 : (int)read(fd, &c, 1);
}

static const struct kind {
	const char *name;
	int (*wait)(const char *path);
} kinds[] = {{"flock", wait_flock}, {"fcntl", wait_fcntl}, {"fifo", wait_fifo}};

static void handle(int sig)
{
	(void)sig;
}

static pid_t start_waiter(const struct kind *kind, const char *path)
{
	struct sigaction action = {.sa_handler = handle};
	pid_t pid = fork();

	if (pid)
		return pid;
	sigaction(SIGUSR1, &action, NULL);
	if (kind->wait(path) >= 0)
		_exit(0);
	_exit(errno == EINTR ? INTERRUPTED : 1);
}

/* Holds what they wait for. -1: nobody can wait for it. */
static int hold(const struct kind *kind, const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd;

	if (kind->wait == wait_fifo)
		return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || (kind->wait == wait_flock ? flock(fd, LOCK_EX) : fcntl(fd, F_SETLK, &lock)))
		tool_die("%s", path);
	return fd;
}

/* Each asks the daemon, which has fewer workers than there are waiters. */
static void ask_others(const char *dir)
{
	char path[4096];
	struct stat st;

	for (int i = 0; i < 100; i++) {
		snprintf(path, sizeof(path), "%s/missing-%d-%d", dir, getpid(), i);
		if (!stat(path, &st) || errno != ENOENT)
			tool_die("stat %s", path);
	}
}

static void expect_end(pid_t pid, int sig)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		tool_die("waitpid");
	if (sig == SIGKILL ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL
	                   : !WIFEXITED(status) || WEXITSTATUS(status) != INTERRUPTED)
		tool_die("a waiter with signal %d ended with %x", sig, (unsigned)status);
}

/* COUNT processes wait at PATH, some are interrupted, the others killed; meanwhile DIR is looked
 * at. */
static int cmd_waiters(int argc, char **argv)
{
	int count = (int)tool_number(argv[4]), held;
	_cleanup_free_ pid_t *pids = calloc((size_t)count, sizeof(pid_t));
	const struct kind *kind = kinds;

	(void)argc;
	while (kind < kinds + SBX_ARRAY_SIZE(kinds) && strcmp(kind->name, argv[1]) != 0)
		kind++;
	if (kind == kinds + SBX_ARRAY_SIZE(kinds))
		return 2;
	held = hold(kind, argv[2]);
	if (held < 0 && errno == ENXIO)
		return tool_outcome(0);
	for (int i = 0; i < count; i++)
		pids[i] = start_waiter(kind, argv[2]);
	for (int i = 0; i < count; i++)
		tool_await_asleep(pids[i]);
	ask_others(argv[3]);
	for (int i = 0; i < count; i++)
		kill(pids[i], i % 2 ? SIGKILL : SIGUSR1);
	for (int i = 0; i < count; i++)
		expect_end(pids[i], i % 2 ? SIGKILL : SIGUSR1);
	close(held);
	return tool_outcome(0);
}

const struct tool_command tool_waits[] = {
        {"waiters", "flock|fcntl|fifo PATH DIR COUNT", 4, cmd_waiters},
        {0},
};
