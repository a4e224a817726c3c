/*
 * A list of what is refused rather than of what is allowed: commands are whatever a user runs, and
 * what makes the difference between a command and the host is the namespaces; the filter
 * takes away the parts of the kernel that have been used to break out of those.
 *
 * The answer is EPERM, which programs report, and ENOSYS where the C library has another way
 * (clone3, openat2: their arguments lie in memory, out of a filter's sight). Where the kernel can, the
 * EPERM is given by a listener, so that somebody hears of it.
 */
#include "backends/local/filter.h"

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef HAVE_SECCOMP

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "sandboxfs/cleanup.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

#define REFUSE         SCMP_ACT_ERRNO(EPERM)
#define ABSENT         SCMP_ACT_ERRNO(ENOSYS)
#define SOCK_TYPE_MASK 0xf

/* By name: one that this architecture or this libseccomp does not know is left out. */
static const char *const view_calls[] = {
        "mount",      "umount",         "umount2",       "pivot_root", "chroot",
        "move_mount", "fsopen",         "fsconfig",      "fsmount",    "fspick",
        "open_tree",  "open_tree_attr", "mount_setattr", "setns",      "open_by_handle_at",
        "quotactl",   "quotactl_fd",    "swapon",        "swapoff"};

/* Large and rarely needed. */
static const char *const kernel_calls[] = {"bpf",
                                           "perf_event_open",
                                           "userfaultfd",
                                           "io_uring_setup",
                                           "io_uring_enter",
                                           "io_uring_register",
                                           "keyctl",
                                           "add_key",
                                           "request_key",
                                           "lookup_dcookie",
                                           "fanotify_init",
                                           "nfsservctl",
                                           "modify_ldt",
                                           "vm86",
                                           "vm86old",
                                           "uselib",
                                           "ustat",
                                           "sysfs",
                                           "_sysctl"};

static const char *const machine_calls[] = {"kexec_load",      "kexec_file_load",
                                            "init_module",     "finit_module",
                                            "delete_module",   "create_module",
                                            "get_kernel_syms", "query_module",
                                            "reboot",          "acct",
                                            "settimeofday",    "clock_settime",
                                            "clock_settime64", "clock_adjtime",
                                            "clock_adjtime64", "adjtimex",
                                            "stime",           "iopl",
                                            "ioperm",          "syslog",
                                            "vhangup",         "sethostname",
                                            "setdomainname"};

/* Refused by their arguments, below. */
static const char *const namespace_calls[] = {"unshare", "clone"};
static const char *const terminal_calls[] = {"ioctl"};
static const char *const socket_calls[] = {"socket"};

static const struct {
	const char *word;
	const char *const *names;
	size_t n;
	bool always;
} classes[] = {
        {"view", view_calls, SBX_ARRAY_SIZE(view_calls), true},
        {"kernel", kernel_calls, SBX_ARRAY_SIZE(kernel_calls), true},
        {"machine", machine_calls, SBX_ARRAY_SIZE(machine_calls), true},
        {"namespaces", namespace_calls, SBX_ARRAY_SIZE(namespace_calls), false},
        {"terminal", terminal_calls, SBX_ARRAY_SIZE(terminal_calls), false},
        {"sockets", socket_calls, SBX_ARRAY_SIZE(socket_calls), false},
};

static const char *const absent[] = {"clone3", "openat2"};

static int answer_all(scmp_filter_ctx ctx, const char *const *names, size_t n, uint32_t answer)
{
	for (size_t i = 0; i < n; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);

		if (nr >= 0 && seccomp_rule_add(ctx, answer, nr, 0) == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

/* Refuses NAME where all N of the arguments compare as CMP says. */
static int refuse(scmp_filter_ctx ctx, const char *name, const struct scmp_arg_cmp *cmp, unsigned n)
{
	int nr = seccomp_syscall_resolve_name(name);

	return nr < 0 ? 0 : seccomp_rule_add_array(ctx, REFUSE, nr, n, cmp);
}

/* The kernel looks at the lower half of such an argument, whatever is in the upper. */
static struct scmp_arg_cmp is(unsigned arg, uint32_t value)
{
	return SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, UINT32_MAX, value);
}

static struct scmp_arg_cmp has(unsigned arg, uint32_t bits)
{
	return SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, bits, bits);
}

static int refuse_namespaces(scmp_filter_ctx ctx)
{
	static const uint32_t flags[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
	                                 CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
	                                 CLONE_NEWNET, CLONE_NEWTIME};
	int r = 0;

	for (size_t i = 0; !r && i < SBX_ARRAY_SIZE(flags); i++) {
		const struct scmp_arg_cmp cmp = has(0, flags[i]);

		r = refuse(ctx, "unshare", &cmp, 1);
		/* In clone(2) that bit belongs to the signal at the end. */
		if (!r && flags[i] != CLONE_NEWTIME)
			r = refuse(ctx, "clone", &cmp, 1);
	}
	return r;
}

/* Typing into somebody's terminal. */
static int refuse_ioctls(scmp_filter_ctx ctx)
{
	const struct scmp_arg_cmp sti = is(1, TIOCSTI), lin = is(1, TIOCLINUX);
	int r = refuse(ctx, "ioctl", &sti, 1);

	return r ? r : refuse(ctx, "ioctl", &lin, 1);
}

/* Among the modes that a call may give a file, those with setuid or setgid. */
static int refuse_setuid(scmp_filter_ctx ctx)
{
	static const struct {
		const char *name;
		unsigned mode;
		unsigned flags; /* the argument that holds O_CREAT, 0: the mode always counts */
	} calls[] = {{"chmod", 1, 0},     {"fchmod", 1, 0}, {"fchmodat", 2, 0},
	             {"fchmodat2", 2, 0}, {"mknod", 1, 0},  {"mknodat", 2, 0},
	             {"creat", 1, 0},     {"open", 2, 1},   {"openat", 3, 2}};
	static const uint32_t bits[] = {S_ISUID, S_ISGID};
	int r = 0;

	for (size_t i = 0; !r && i < 2 * SBX_ARRAY_SIZE(calls); i++) {
		unsigned flags = calls[i / 2].flags;
		const struct scmp_arg_cmp cmp[] = {has(calls[i / 2].mode, bits[i % 2]),
		                                   has(flags, O_CREAT)};

		r = refuse(ctx, calls[i / 2].name, cmp, flags ? 2 : 1);
	}
	return r;
}

/* Families that are not named are those of hardware, of tunnels and of the kernel's insides. */
static bool is_allowed(int family, const struct filter_wish *wish)
{
	if (family == AF_UNIX)
		return !wish->no_unix;
	return !wish->no_inet && (family == AF_INET || family == AF_INET6 || family == AF_NETLINK);
}

static int refuse_sockets(scmp_filter_ctx ctx, const struct filter_wish *wish)
{
	const struct scmp_arg_cmp beyond = SCMP_CMP(0, SCMP_CMP_GT, AF_NETLINK);
	const struct scmp_arg_cmp netlink[] = {is(0, AF_NETLINK),
	                                       SCMP_CMP(2, SCMP_CMP_NE, NETLINK_ROUTE)};
	static const int inet[] = {AF_INET, AF_INET6};
	int r = refuse(ctx, "socket", &beyond, 1);

	for (int family = 0; !r && family <= AF_NETLINK; family++) {
		const struct scmp_arg_cmp cmp = is(0, (uint32_t)family);

		if (!is_allowed(family, wish))
			r = refuse(ctx, "socket", &cmp, 1);
	}
	for (size_t i = 0; !r && !wish->no_inet && i < SBX_ARRAY_SIZE(inet); i++) {
		const struct scmp_arg_cmp raw[] = {
		        is(0, (uint32_t)inet[i]),
		        SCMP_CMP(1, SCMP_CMP_MASKED_EQ, SOCK_TYPE_MASK, SOCK_RAW)};

		r = refuse(ctx, "socket", raw, 2);
	}
	return r || wish->no_inet ? r : refuse(ctx, "socket", netlink, 2);
}

static int fill(scmp_filter_ctx ctx, const struct filter_wish *wish)
{
	int r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, REFUSE);

	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, where it can */
	for (size_t i = 0; !r && i < SBX_ARRAY_SIZE(classes); i++)
		if (classes[i].always)
			r = answer_all(ctx, classes[i].names, classes[i].n, REFUSE);
	if (!r)
		r = answer_all(ctx, absent, SBX_ARRAY_SIZE(absent), ABSENT);
	if (!r)
		r = refuse_namespaces(ctx);
	if (!r)
		r = refuse_ioctls(ctx);
	if (!r)
		r = refuse_setuid(ctx);
	return r ? r : refuse_sockets(ctx, wish);
}

static int export(scmp_filter_ctx ctx, struct sock_fprog *ret)
{
	_cleanup_fd_ int fd = memfd_create("filter", MFD_CLOEXEC);
	_cleanup_free_ struct sock_filter *code = NULL;
	struct stat st;
	int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	code = malloc((size_t)st.st_size);
	if (!code)
		return -ENOMEM;
	if (pread(fd, code, (size_t)st.st_size, 0) != st.st_size)
		return -EIO;
	ret->len = (unsigned short)((size_t)st.st_size / sizeof(*code));
	ret->filter = sbx_steal_ptr(&code);
	return 0;
}

static bool kernel_has(uint32_t action)
{
	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* PLAIN, but each EPERM is the listener's to give. */
static int make_telling(const struct sock_fprog *plain, struct sock_fprog *ret)
{
	size_t size = plain->len * sizeof(*plain->filter);
	struct sock_filter *code = malloc(size);

	if (!code)
		return -ENOMEM;
	memcpy(code, plain->filter, size);
	for (size_t i = 0; i < plain->len; i++)
		if (code[i].code == (BPF_RET | BPF_K) && code[i].k == (SECCOMP_RET_ERRNO | EPERM))
			code[i].k = SECCOMP_RET_USER_NOTIF;
	*ret = (struct sock_fprog){.len = plain->len, .filter = code};
	return 0;
}

static int build_plain(const struct filter_wish *wish, struct sock_fprog *ret)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	if (!ctx)
		return -ENOMEM;
	r = fill(ctx, wish);
	if (!r)
		r = export(ctx, ret);
	seccomp_release(ctx);
	return r;
}

int filter_build(const struct filter_wish *wish, struct filter *ret)
{
	int r = kernel_has(SECCOMP_RET_ERRNO) ? build_plain(wish, &ret->plain) : -EINVAL;

	if (!r && kernel_has(SECCOMP_RET_USER_NOTIF))
		r = make_telling(&ret->plain, &ret->telling);
	return r;
}

static int load(const struct sock_fprog *prog, unsigned flags)
{
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, prog);
}

/* There may be a listener above us already (EBUSY), or no descriptor for one. */
int filter_load(const struct filter *filter, int *listener)
{
	const unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;

	*listener = -1;
	/* A signal does not interrupt the wait for the answer, where the kernel (5.19) has that. */
	if (filter->telling.len)
		*listener = load(&filter->telling, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
	if (filter->telling.len && *listener < 0 && errno == EINVAL)
		*listener = load(&filter->telling, flags);
	return *listener >= 0 ? 0 : load(&filter->plain, 0);
}

static const char *class_of(const char *name)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(classes); i++)
		for (size_t j = 0; j < classes[i].n; j++)
			if (strcmp(classes[i].names[j], name) == 0)
				return classes[i].word;
	/* All that is left gives files a mode. */
	return "setuid";
}

const char *filter_describe(int nr, char *buf, size_t size)
{
	char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);
	const char *class = name ? class_of(name) : "foreign";

	if (name)
		snprintf(buf, size, "%s", name);
	else
		snprintf(buf, size, "%d", nr);
	free(name);
	return class;
}

#else

int filter_build(const struct filter_wish *wish, struct filter *ret)
{
	(void)wish;
	(void)ret;
	return -EOPNOTSUPP;
}

int filter_load(const struct filter *filter, int *listener)
{
	(void)filter;
	*listener = -1;
	errno = EOPNOTSUPP;
	return -1;
}

const char *filter_describe(int nr, char *buf, size_t size)
{
	snprintf(buf, size, "%d", nr);
	return "foreign";
}

#endif
