/* Reaching other processes, becoming somebody else, taking everything. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "attack.h"

#define MOST_SENT 253 /* descriptors in one message */

/* One that nobody notices; the right to send it is the right to send SIGKILL. */
static long try_signal(char **args)
{
	return kill((pid_t)attack_number(args), SIGURG);
}

static long try_pidfd(char **args)
{
	return syscall(SYS_pidfd_open, attack_number(args), 0);
}

static long try_ptrace(char **args)
{
	return ptrace(PTRACE_SEIZE, (pid_t)attack_number(args), NULL, NULL);
}

/* Stops at each of its signals until its parent, who may be init, lets it go on. */
static long try_traced(char **args)
{
	(void)args;
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		return -1;
	raise(SIGURG);
	return 0;
}

static long try_read_memory(char **args)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {(void *)try_read_memory, 1};

	return process_vm_readv((pid_t)attack_number(args), &here, 1, &there, 1, 0);
}

static long try_setuid(char **args)
{
	uid_t uid = (uid_t)attack_number(args);

	return setresuid(uid, uid, uid);
}

static long try_setgroups(char **args)
{
	gid_t group = (gid_t)attack_number(args);

	return syscall(SYS_setgroups, 1, &group);
}

static long try_new_privileges(char **args)
{
	(void)args;
	return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0);
}

static long try_raise_limit(char **args)
{
	struct rlimit limit;

	(void)args;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 0;
	limit.rlim_cur = limit.rlim_max = limit.rlim_max + 1;
	return setrlimit(RLIMIT_NOFILE, &limit);
}

static long try_core_limit(char **args)
{
	const rlim_t bytes = (rlim_t)attack_number(args);
	const struct rlimit limit = {bytes, bytes};

	if (prlimit(0, RLIMIT_CORE, &limit, NULL) < 0)
		return -1;
	return syscall(SYS_setrlimit, RLIMIT_CORE, &limit);
}

/* What it is already. The right to set it is the right to end the process by one of processor time.
 */
static long try_limit(char **args)
{
	const pid_t pid = (pid_t)attack_number(args);
	struct rlimit limit;

	if (prlimit(pid, RLIMIT_CORE, NULL, &limit) < 0)
		return -1;
	return prlimit(pid, RLIMIT_CORE, &limit, NULL);
}

static long try_priority(char **args)
{
	(void)args;
	return setpriority(PRIO_PROCESS, 0, -20);
}

/* How many processes can be had at once, up to a thousand. */
static long count_processes(char **args)
{
	long n = 0;

	(void)args;
	for (; n < 1000; n++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0)
			for (;;)
				pause();
	}
	printf("%ld ", n);
	return n < 1000 ? -1 : 0;
}

static long try_memory(char **args)
{
	return mmap(NULL, (size_t)attack_number(args) << 20, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED
	               ? -1
	               : 0;
}

static long count_files(char **args)
{
	long n = 0;

	(void)args;
	while (open("/dev/null", O_RDONLY) >= 0)
		n++;
	printf("%s ", n > 0 ? "some" : "none");
	return -1;
}

/* Sends one descriptor as often as one message can hold it, until the socket is full. */
static bool fill_socket(const int pair[2])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MOST_SENT * sizeof(int))];
	} control = {0};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int fds[MOST_SENT];

	for (int i = 0; i < MOST_SENT; i++)
		fds[i] = pair[0];
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	while (sendmsg(pair[1], &msg, MSG_DONTWAIT) >= 0)
		;
	return errno == EAGAIN;
}

/* All descriptors that may be under way, and stays; makes the file UP then. */
static long stay_in_flight(char **args)
{
	struct rlimit limit;
	int pair[2];

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	while (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && fill_socket(pair))
		;
	if (!args[0] || creat(args[0], 0600) < 0)
		return -1;
	for (;;)
		pause();
}

static long try_inotify(char **args)
{
	(void)args;
	return inotify_init1(0);
}

/* All that may be had, and stays. */
static long stay_with_inotify(char **args)
{
	for (int i = 0; i < 1 << 16 && inotify_init1(0) >= 0; i++)
		;
	if (!args[0] || creat(args[0], 0600) < 0)
		return -1;
	for (;;)
		pause();
}

static long queue_one(pid_t pid)
{
	const union sigval nothing = {.sival_int = 0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMAX);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return sigqueue(pid, SIGRTMAX, nothing);
}

static long try_queue(char **args)
{
	(void)args;
	return queue_one(getpid());
}

/* For itself and for init, until there is room for no more. */
static long stay_with_signals(char **args)
{
	for (int i = 0; i < 1 << 18 && queue_one(getpid()) == 0; i++)
		;
	for (int i = 0; i < 1 << 18 && queue_one(1) == 0; i++)
		;
	if (!args[0] || creat(args[0], 0600) < 0)
		return -1;
	for (;;)
		pause();
}

const struct attack attack_procs[] = {
        {"signal", try_signal},
        {"pidfd", try_pidfd},
        {"ptrace", try_ptrace},
        {"traced", try_traced},
        {"read-memory", try_read_memory},
        {"setuid", try_setuid},
        {"setgroups", try_setgroups},
        {"new-privileges", try_new_privileges},
        {"raise-limit", try_raise_limit},
        {"core-limit", try_core_limit},
        {"limit", try_limit},
        {"inotify", try_inotify},
        {"inotifies", stay_with_inotify},
        {"queue", try_queue},
        {"signals", stay_with_signals},
        {"priority", try_priority},
        {"processes", count_processes},
        {"memory", try_memory},
        {"files", count_files},
        {"in-flight", stay_in_flight},
        {0},
};
