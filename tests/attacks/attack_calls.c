/* Leaving the namespaces, and the parts of the kernel that have been ways out of them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.h"
#include "sandboxfs/cleanup.h"

/* Calls whose arguments do not matter: they must not get as far as looking at them. */
#define CALL(name)                                                                                 \
	static long try_##name(char **args)                                                        \
	{                                                                                          \
		(void)args;                                                                        \
		return syscall(SYS_##name, 0L, 0L, 0L, 0L, 0L, 0L);                                \
	}

CALL(mount)
CALL(umount2)
CALL(pivot_root)
CALL(chroot)
CALL(move_mount)
CALL(fsopen)
CALL(fspick)
CALL(open_tree)
CALL(mount_setattr)
CALL(setns)
CALL(clone3)
CALL(open_by_handle_at)
CALL(quotactl)
CALL(bpf)
CALL(perf_event_open)
CALL(userfaultfd)
CALL(io_setup)
CALL(io_uring_setup)
CALL(keyctl)
CALL(add_key)
CALL(request_key)
CALL(init_module)
CALL(finit_module)
CALL(delete_module)
CALL(kexec_load)
CALL(reboot)
CALL(swapon)
CALL(acct)
CALL(settimeofday)
CALL(clock_settime)
CALL(syslog)
CALL(sethostname)
CALL(fanotify_init)

static long try_unshare(char **args)
{
	return unshare((int)attack_number(args));
}

static long try_clone(char **args)
{
	long pid = syscall(SYS_clone, attack_number(args) | SIGCHLD, NULL, NULL, NULL, 0L);

	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_openat2(char **args)
{
	return syscall(SYS_openat2, AT_FDCWD, args[0], NULL, 0);
}

/* A handle is enough to open a file of the whole file system, whatever leads to it. */
static long try_handle(char **args)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = {.handle.handle_bytes = MAX_HANDLE_SZ};
	_cleanup_fd_ int dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	int mount_id;

	if (dir < 0 || name_to_handle_at(AT_FDCWD, args[0], &u.handle, &mount_id, 0) < 0)
		return -1;
	fd = open_by_handle_at(dir, &u.handle, O_RDONLY | O_CLOEXEC);
	return fd;
}

static long try_sti(char **args)
{
	_cleanup_fd_ int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

	(void)args;
	return fd < 0 ? 0 : ioctl(fd, TIOCSTI, "x");
}

/* Wide: the kernel looks at the lower half alone, and so must the filter. */
static long try_sti_wide(char **args)
{
	_cleanup_fd_ int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

	(void)args;
	return fd < 0 ? 0 : syscall(SYS_ioctl, fd, (1UL << 32) | TIOCSTI, "x");
}

/* The numbers of other instruction sets are other calls: 20 is getpid of i386. */
static long try_i386(char **args)
{
#ifdef __x86_64__
	long r;

	(void)args;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "cc");
	errno = r < 0 ? (int)-r : 0;
	return r < 0 ? -1 : 0;
#else
	(void)args;
	errno = EPERM;
	return -1;
#endif
}

static long try_x32(char **args)
{
	(void)args;
	return syscall(0x40000000L | 39);
}

static long try_capset(char **args)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	const unsigned some = 1U << CAP_CHOWN | 1U << CAP_SYS_ADMIN;
	struct __user_cap_data_struct wanted[2] = {{some, some, 0}, {0}};

	(void)args;
	return syscall(SYS_capset, &head, wanted);
}

/* The last errno, if none of so many refused calls was answered otherwise. */
static long try_flood(char **args)
{
	for (long i = attack_number(args); i > 0; i--)
		if (syscall(SYS_keyctl, 0L, 0L, 0L, 0L, 0L) != -1 || errno != EPERM)
			return 0;
	return -1;
}

#define ROW(name)                                                                                  \
	{                                                                                          \
#name, try_##name                                                                  \
	}

const struct attack attack_calls[] = {
        ROW(mount),
        ROW(umount2),
        ROW(pivot_root),
        ROW(chroot),
        ROW(move_mount),
        ROW(fsopen),
        ROW(fspick),
        ROW(open_tree),
        ROW(mount_setattr),
        ROW(setns),
        ROW(clone3),
        ROW(open_by_handle_at),
        ROW(quotactl),
        ROW(bpf),
        ROW(perf_event_open),
        ROW(userfaultfd),
        ROW(io_setup),
        ROW(io_uring_setup),
        ROW(keyctl),
        ROW(add_key),
        ROW(request_key),
        ROW(init_module),
        ROW(finit_module),
        ROW(delete_module),
        ROW(kexec_load),
        ROW(reboot),
        ROW(swapon),
        ROW(acct),
        ROW(settimeofday),
        ROW(clock_settime),
        ROW(syslog),
        ROW(sethostname),
        ROW(fanotify_init),
        ROW(unshare),
        ROW(clone),
        ROW(openat2),
        ROW(handle),
        ROW(sti),
        {"sti-wide", try_sti_wide},
        ROW(i386),
        ROW(x32),
        ROW(capset),
        ROW(flood),
        {0},
};
