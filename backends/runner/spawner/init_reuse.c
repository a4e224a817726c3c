/*
 * The comparison of an init before and after a command. It looks at what outlives the command's
 * processes. Mounts, and init's own memory and descriptors, need no look, because commands cannot
 * reach them.
 */
#include "backends/runner/spawner/init_reuse.h"
#include "backends/runner/isolation/kernel_file.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/runner/spawner/init.h"
#include "sandboxfs/cleanup.h"

#define LAST_PID   "/proc/sys/kernel/ns_last_pid"
#define IO_OF_PID  1 /* IOPRIO_WHO_PROCESS */
#define RIGHT_WORD (REUSE_RIGHT / 32)
#define RIGHT_BIT  (UINT32_C(1) << REUSE_RIGHT % 32)

bool reuse_is_possible(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};
	_cleanup_fd_ int fd = open(LAST_PID, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && syscall(SYS_capget, &head, sets) == 0 &&
	       sets[RIGHT_WORD].permitted & RIGHT_BIT;
}

void reuse_note(struct reuse *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (int i = 0; i < RLIM_NLIMITS; i++)
		getrlimit(i, &ret->limits[i]);
	syscall(SYS_sched_getattr, 0, ret->sched, sizeof(ret->sched), 0);
	syscall(SYS_sched_getaffinity, 0, sizeof(ret->cpus), &ret->cpus);
	ret->io = (int)syscall(SYS_ioprio_get, IO_OF_PID, 0);
}

static bool is_as(const struct reuse *was)
{
	struct reuse now;

	reuse_note(&now);
	return memcmp(now.limits, was->limits, sizeof(now.limits)) == 0 &&
	       memcmp(now.sched, was->sched, sizeof(now.sched)) == 0 &&
	       memcmp(&now.cpus, &was->cpus, sizeof(now.cpus)) == 0 && now.io == was->io;
}

/* Those that are waited for are of the past: nobody is left who could mean the next command. */
static bool is_quiet(void)
{
	struct signalfd_siginfo info[8];
	sigset_t pending;

	while (read(INIT_SIGNAL_FD, info, sizeof(info)) > 0)
		;
	return sigpending(&pending) == 0 && sigisemptyset(&pending);
}

static bool restart_numbers(void)
{
	return !kernel_file_write(AT_FDCWD, LAST_PID, "1");
}

bool reuse_ready(const struct reuse *as)
{
	return is_quiet() && is_as(as) && restart_numbers();
}

static uint64_t microseconds(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000u + (uint64_t)t->tv_usec;
}

void usage_add(struct usage *u, const struct rusage *ru)
{
	u->user_us += microseconds(&ru->ru_utime);
	u->sys_us += microseconds(&ru->ru_stime);
	if ((uint64_t)ru->ru_maxrss > u->max_rss_kb)
		u->max_rss_kb = (uint64_t)ru->ru_maxrss;
}
