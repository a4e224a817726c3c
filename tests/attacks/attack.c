/*
 * What hostile code tries once it runs: `attack NAME [ARGUMENT]` makes one attempt and prints how the
 * kernel answered, 0 or the errno's name. `attack serve` is the victim on the host: it
 * listens on loopback and on an abstract socket and prints the port, until its stdin ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_alg.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

#define ABSTRACT "sandboxfs-attack"

struct attack {
	const char *name;
	long (*fn)(const char *arg);
};

/* Calls whose arguments do not matter: they must not get as far as looking at them. */
static const struct {
	const char *name;
	long number;
} calls[] = {
        {"mount", SYS_mount},
        {"umount2", SYS_umount2},
        {"pivot_root", SYS_pivot_root},
        {"chroot", SYS_chroot},
        {"move_mount", SYS_move_mount},
        {"fsopen", SYS_fsopen},
        {"fspick", SYS_fspick},
        {"open_tree", SYS_open_tree},
        {"mount_setattr", SYS_mount_setattr},
        {"setns", SYS_setns},
        {"clone3", SYS_clone3},
        {"open_by_handle_at", SYS_open_by_handle_at},
        {"quotactl", SYS_quotactl},
        {"bpf", SYS_bpf},
        {"perf_event_open", SYS_perf_event_open},
        {"userfaultfd", SYS_userfaultfd},
        {"io_uring_setup", SYS_io_uring_setup},
        {"keyctl", SYS_keyctl},
        {"add_key", SYS_add_key},
        {"request_key", SYS_request_key},
        {"init_module", SYS_init_module},
        {"finit_module", SYS_finit_module},
        {"delete_module", SYS_delete_module},
        {"kexec_load", SYS_kexec_load},
        {"reboot", SYS_reboot},
        {"swapon", SYS_swapon},
        {"acct", SYS_acct},
        {"settimeofday", SYS_settimeofday},
        {"clock_settime", SYS_clock_settime},
        {"syslog", SYS_syslog},
        {"sethostname", SYS_sethostname},
        {"fanotify_init", SYS_fanotify_init},
};

static long number(const char *text)
{
	return text ? strtol(text, NULL, 10) : 0;
}

/* --- namespaces ----------------------------------------------------------------------------- */

static long try_unshare(const char *flags)
{
	return unshare((int)strtol(flags, NULL, 0));
}

static long try_clone(const char *flags)
{
	long pid = syscall(SYS_clone, strtol(flags, NULL, 0) | SIGCHLD, NULL, NULL, NULL, 0L);

	if (pid == 0)
		_exit(0);
	return pid;
}

/* --- processes ------------------------------------------------------------------------------ */

static long try_kill(const char *pid)
{
	return kill((pid_t)number(pid), SIGKILL);
}

static long try_pidfd(const char *pid)
{
	return syscall(SYS_pidfd_open, number(pid), 0);
}

static long try_ptrace(const char *pid)
{
	return ptrace(PTRACE_ATTACH, (pid_t)number(pid), NULL, NULL);
}

static long try_read_memory(const char *pid)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {(void *)try_read_memory, 1};

	return process_vm_readv((pid_t)number(pid), &here, 1, &there, 1, 0);
}

static long try_setuid(const char *uid)
{
	return setresuid((uid_t)number(uid), (uid_t)number(uid), (uid_t)number(uid));
}

static long try_setgroups(const char *gid)
{
	gid_t group = (gid_t)number(gid);

	return syscall(SYS_setgroups, 1, &group);
}

static long try_capset(const char *arg)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct all[2] = {{~0U, ~0U, 0}, {0}};

	(void)arg;
	return syscall(SYS_capset, &head, all);
}

static long try_new_privileges(const char *arg)
{
	(void)arg;
	return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0);
}

static long try_raise_limit(const char *arg)
{
	struct rlimit limit;

	(void)arg;
	if (getrlimit(RLIMIT_NPROC, &limit) < 0)
		return 0;
	limit.rlim_cur = limit.rlim_max = limit.rlim_max + 1;
	return setrlimit(RLIMIT_NPROC, &limit);
}

static long try_priority(const char *arg)
{
	(void)arg;
	return setpriority(PRIO_PROCESS, 0, -20);
}

static long try_sti(const char *arg)
{
	_cleanup_fd_ int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

	(void)arg;
	return fd < 0 ? 0 : ioctl(fd, TIOCSTI, "x");
}

/* Wide: the kernel looks at the lower half alone, and so must the filter. */
static long try_sti_wide(const char *arg)
{
	_cleanup_fd_ int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

	(void)arg;
	return fd < 0 ? 0 : syscall(SYS_ioctl, fd, (1UL << 32) | TIOCSTI, "x");
}

/* The numbers of other instruction sets are other calls: 20 is getpid of i386. */
static long try_i386(const char *arg)
{
#ifdef __x86_64__
	long r;

	(void)arg;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "cc");
	errno = r < 0 ? (int)-r : 0;
	return r < 0 ? -1 : 0;
#else
	(void)arg;
	errno = EPERM;
	return -1;
#endif
}

static long try_x32(const char *arg)
{
	(void)arg;
	return syscall(0x40000000L | 39);
}

/* --- files -------------------------------------------------------------------------------------- */

static long try_read(const char *path)
{
	char byte;
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -1 : read(fd, &byte, 1);
}

static long try_write(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -1 : write(fd, "1", 1);
}

static long try_create(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	return fd;
}

static long try_create_setuid(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 04755);

	return fd;
}

static long try_chmod_setuid(const char *path)
{
	return chmod(path, 04755);
}

static long try_chown_root(const char *path)
{
	return chown(path, 0, 0);
}

static long try_device(const char *path)
{
	return mknod(path, S_IFBLK | 0666, makedev(254, 0));
}

static long try_link(const char *path)
{
	return link(path, "stolen");
}

static long try_unlink(const char *path)
{
	return unlink(path);
}

static long try_setxattr(const char *name)
{
	return syscall(SYS_setxattr, "attack", name, "x", 1, 0);
}

static long try_openat2(const char *path)
{
	return syscall(SYS_openat2, AT_FDCWD, path, NULL, 0);
}

/* --- network -------------------------------------------------------------------------------------- */

static long try_socket(const char *what)
{
	static const struct {
		const char *name;
		int family, type, protocol;
	} rows[] = {
	        {"packet", AF_PACKET, SOCK_RAW, 0},
	        {"raw", AF_INET, SOCK_RAW, IPPROTO_ICMP},
	        {"raw6", AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6},
	        {"vsock", AF_VSOCK, SOCK_STREAM, 0},
	        {"alg", AF_ALG, SOCK_SEQPACKET, 0},
	        {"bluetooth", AF_BLUETOOTH, SOCK_RAW, 0},
	        {"audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT},
	        {"route", AF_NETLINK, SOCK_RAW, NETLINK_ROUTE},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].name, what) == 0)
			return socket(rows[i].family, rows[i].type, rows[i].protocol);
	errno = ENOSYS;
	return -1;
}

static long connect_inet(const char *port, uint32_t address)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	                        .sin_port = htons((uint16_t)number(port)),
	                        .sin_addr.s_addr = htonl(address)};
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof(a));
}

static long try_loopback(const char *port)
{
	return connect_inet(port, INADDR_LOOPBACK);
}

static long try_internet(const char *port)
{
	return connect_inet(port, 0xc0000201); /* 192.0.2.1, of nobody */
}

/* The name holds the port of the server beside it, so that two of them are told apart. */
static socklen_t abstract_name(struct sockaddr_un *a, int port)
{
	int n;

	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s-%d", ABSTRACT, port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static long try_abstract(const char *arg)
{
	struct sockaddr_un a;
	socklen_t len = abstract_name(&a, atoi(arg));
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, len);
}

static int serve(void)
{
	struct sockaddr_un a;
	socklen_t len, in_len = sizeof(struct sockaddr_in);
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int local = socket(AF_UNIX, SOCK_STREAM, 0), inet = socket(AF_INET, SOCK_STREAM, 0);
	char byte;

	if (bind(inet, (struct sockaddr *)&in, in_len) < 0 || listen(inet, 8) < 0 ||
	    getsockname(inet, (struct sockaddr *)&in, &in_len) < 0)
		return 1;
	len = abstract_name(&a, ntohs(in.sin_port));
	if (bind(local, (struct sockaddr *)&a, len) < 0 || listen(local, 8) < 0)
		return 1;
	printf("%d\n", ntohs(in.sin_port));
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}

/* --- resources ----------------------------------------------------------------------------------- */

/* How many processes can be had at once, up to a thousand. */
static long count_processes(const char *arg)
{
	long n = 0;

	(void)arg;
	for (; n < 1000; n++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0)
			for (;;)
				pause();
	}
	printf("%ld ", n);
	return -1;
}

static long try_memory(const char *mib)
{
	return mmap(NULL, (size_t)number(mib) << 20, PROT_READ | PROT_WRITE,
	            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED
	               ? -1
	               : 0;
}

static long count_files(const char *arg)
{
	long n = 0;

	(void)arg;
	while (open("/dev/null", O_RDONLY) >= 0)
		n++;
	printf("%s ", n > 0 ? "some" : "none");
	return -1;
}

/* The last errno, if none of so many refused calls was answered otherwise. */
static long flood(const char *times)
{
	for (long i = number(times); i > 0; i--)
		if (syscall(SYS_keyctl, 0L, 0L, 0L, 0L, 0L) != -1 || errno != EPERM)
			return 0;
	return -1;
}

static const struct attack attacks[] = {
        {"unshare", try_unshare},
        {"clone", try_clone},
        {"kill", try_kill},
        {"pidfd", try_pidfd},
        {"ptrace", try_ptrace},
        {"read-memory", try_read_memory},
        {"setuid", try_setuid},
        {"setgroups", try_setgroups},
        {"capset", try_capset},
        {"new-privileges", try_new_privileges},
        {"raise-limit", try_raise_limit},
        {"priority", try_priority},
        {"sti", try_sti},
        {"sti-wide", try_sti_wide},
        {"i386", try_i386},
        {"x32", try_x32},
        {"read", try_read},
        {"write", try_write},
        {"create", try_create},
        {"create-setuid", try_create_setuid},
        {"chmod-setuid", try_chmod_setuid},
        {"chown-root", try_chown_root},
        {"device", try_device},
        {"link", try_link},
        {"unlink", try_unlink},
        {"setxattr", try_setxattr},
        {"openat2", try_openat2},
        {"socket", try_socket},
        {"loopback", try_loopback},
        {"internet", try_internet},
        {"abstract", try_abstract},
        {"processes", count_processes},
        {"memory", try_memory},
        {"files", count_files},
        {"flood", flood},
};

static long attempt(const char *name, const char *arg)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(calls); i++)
		if (strcmp(calls[i].name, name) == 0)
			return syscall(calls[i].number, 0L, 0L, 0L, 0L, 0L, 0L);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(attacks); i++)
		if (strcmp(attacks[i].name, name) == 0)
			return attacks[i].fn(arg);
	fprintf(stderr, "no attack is called %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	long r;

	if (argc < 2)
		return 2;
	if (strcmp(argv[1], "serve") == 0)
		return serve();
	r = attempt(argv[1], argc > 2 ? argv[2] : NULL);
	puts(r < 0 ? strerrorname_np(errno) : "0");
	return 0;
}
