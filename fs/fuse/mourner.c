#include "fs/fuse/mourner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/descriptors.h"
#include "sandboxfs/mitigations.h"

#define OTHER_MS 5000 /* how long the mourner of another daemon may take */
#define WORDS_FD 3

extern char **environ;

struct sbx_mourner {
	pid_t pid;
	int fd; /* what is said to it; its end is the daemon's */
};

/* The next word; 0 when nobody is left to say one. A descriptor with it stays open, as the lock. */
static char next_word(int fd)
{
	char control[CMSG_SPACE(sizeof(int))], word;
	struct iovec iov = {&word, 1};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control,
	                     .msg_controllen = sizeof(control)};
	ssize_t n;

	do
		n = recvmsg(fd, &msg, 0);
	while (n < 0 && errno == EINTR);
	return n == 1 ? word : 0;
}

/* Keeps in PATH where programs are; nothing else of the environment is left in our memory. */
static void strip_environment(char *path, size_t size)
{
	const char *value = getenv("PATH");

	if (!value || (size_t)snprintf(path, size, "PATH=%s", value) >= size)
		snprintf(path, size, "PATH=/usr/bin:/bin");
	for (char **e = environ; e && *e; e++)
		explicit_bzero(*e, strlen(*e));
}

/* Nobody's pipe or terminal is kept open, and nothing that ends the daemon's session ends it. */
static int leave_everything(int fd)
{
	const int ignored[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE};
	int null;

	setsid();
	prctl(PR_SET_NAME, "sandboxfs-after", 0, 0, 0);
	prctl(PR_SET_DUMPABLE, sbx_mitigation_off("undumpable"), 0, 0, 0);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	if (fd != WORDS_FD && dup3(fd, WORDS_FD, O_CLOEXEC) < 0)
		return -errno;
	close_range(WORDS_FD + 1, ~0U, 0);
	close_range(0, WORDS_FD - 1, 0);
	null = open("/dev/null", O_RDWR);
	for (int i = null + 1; null >= 0 && i < WORDS_FD; i++)
		dup2(null, i);
	return chdir("/") < 0 ? -errno : 0;
}

/* fusermount3 has the lock as well: it is held for as long as that runs. */
static void unmount(const char *path)
{
	char *argv[] = {"fusermount3", "-u", "-z", "-q", "--", (char *)(uintptr_t)path, NULL};
	pid_t pid = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, 0UL);

	if (pid == 0) {
		execvp(argv[0], argv);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* As root what was looked at is what is taken away, whatever is mounted on it by now. */
static void unmount_dead(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char place[32];
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) == 0 || errno != ENOTCONN)
		return;
	snprintf(place, sizeof(place), "/proc/self/fd/%d", fd);
	if (geteuid() != 0)
		unmount(path);
	else if (umount2(place, MNT_DETACH) < 0 && errno == ENOENT) /* no /proc */
		umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

static _Noreturn void mourn(int fd, const struct sbx_mourned *what)
{
	static char search[8192];
	static char *env[] = {search, NULL};
	bool held = false;
	char word;

	strip_environment(search, sizeof(search));
	environ = env;
	if (leave_everything(fd) < 0)
		_exit(1);
	while ((word = next_word(WORDS_FD)) == 'h')
		held = true;
	if (word || !held)
		_exit(0);
	if (what->mountpoint)
		unmount_dead(what->mountpoint);
	if (what->controls && geteuid() != 0)
		unmount(what->controls);
	else if (what->controls)
		umount2(what->controls, MNT_DETACH | UMOUNT_NOFOLLOW);
	_exit(0);
}

int sbx_mourner_start(const struct sbx_mourned *what, struct sbx_mourner **ret,
                      struct sbx_error *err)
{
	struct sbx_mourner *m = calloc(1, sizeof(*m));
	int pair[2], r = 0;

	if (!m)
		return sbx_no_memory(err);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		free(m);
		return sbx_fail(err, errno, "socketpair: %s", strerror(errno));
	}
	/* Not fork(3): what hooks it (ThreadSanitizer) may start a thread. */
	m->pid = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, 0UL);
	if (m->pid == 0)
		mourn(pair[1], what);
	if (m->pid < 0)
		r = sbx_fail(err, errno, "fork: %s", strerror(errno));
	m->fd = pair[0];
	close(pair[1]);
	if (r == 0)
		*ret = m;
	else
		sbx_mourner_dismiss(m);
	return r;
}

int sbx_mourner_hold(struct sbx_mourner *m, int dir, struct sbx_error *err)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	uint64_t until = sbx_now_ns() + OTHER_MS * UINT64_C(1000000);
	int r;

	assert(dir >= 0);
	/* A file system that knows no locks is used without one. */
	while (flock(dir, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		if (sbx_now_ns() > until)
			return sbx_fail(err, EBUSY,
			                "a process that clears up after a daemon that died does "
			                "not end (sandboxfs-after)");
		nanosleep(&pause, NULL);
	}
	r = m ? sbx_send_fds(m->fd, "h", 1, &dir, 1, 0) : 0;
	return r < 0 ? sbx_fail(err, -r, "the process that clears up after the daemon: %s",
	                        strerror(-r))
	             : 0;
}

void sbx_mourner_dismiss(struct sbx_mourner *m)
{
	if (!m)
		return;
	if (send(m->fd, "q", 1, MSG_NOSIGNAL) < 0 && m->pid > 0)
		kill(m->pid, SIGKILL);
	close(m->fd);
	if (m->pid > 0)
		waitpid(m->pid, NULL, 0);
	free(m);
}
