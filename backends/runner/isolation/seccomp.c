/*
 * A list of what is refused rather than of what is allowed: commands are whatever a user runs, and
 * what makes the difference between a command and the host is the namespaces; the filter
 * takes away the parts of the kernel that have been used to break out of those.
 *
 * The answer is EPERM, which programs report, and ENOSYS where the C library has another way
 * (clone3, openat2: their arguments lie in memory, out of a filter's sight). Where the kernel can,
 * the EPERM is given by a listener, so that somebody hears of it.
 *
 * Loading it costs more than all else that is done for a command, so init loads it once, and
 * commands inherit it. What init itself does after that and commands may not is let through with a
 * pass: a random number in arguments that the kernel does not look at. Only the spawner and inits
 * know it, whose memory no command can read; and who guessed it would still have no right to join a
 * namespace.
 */
#include "backends/runner/isolation/seccomp.h"

#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef HAVE_SECCOMP

#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backends/runner/isolation/seccomp_bpf.h"
#include "sandboxfs/cleanup.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

/* By name: one that this architecture or this libseccomp does not know is left out. */
static const char *const view_calls[] = {
        "mount",       "umount",         "umount2",       "pivot_root",        "chroot",
        "move_mount",  "fsopen",         "fsconfig",      "fsmount",           "fspick",
        "open_tree",   "open_tree_attr", "mount_setattr", "open_by_handle_at", "quotactl",
        "quotactl_fd", "swapon",         "swapoff"};

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

/* Who has the user's number may use all that the user's processes share. */
static const char *const ipc_calls[] = {"shmget",  "shmat",      "shmctl",           "msgget",
                                        "msgsnd",  "msgrcv",     "msgctl",           "semget",
                                        "semop",   "semtimedop", "semctl",           "ipc",
                                        "mq_open", "mq_unlink",  "semtimedop_time64"};

/* Refused by their arguments, below. */
static const char *const joining_calls[] = {"setns"};
static const char *const namespace_calls[] = {"unshare", "clone"};
static const char *const terminal_calls[] = {"ioctl"};
static const char *const socket_calls[] = {"socket"};
static const char *const limit_calls[] = {"prlimit64",      "sched_setaffinity",
                                          "sched_setattr",  "sched_setscheduler",
                                          "sched_setparam", "setpriority"};

static const struct {
	const char *word;
	const char *const *names;
	size_t n;
	bool always;
} classes[] = {
        {"view", view_calls, SBX_ARRAY_SIZE(view_calls), true},
        {"kernel", kernel_calls, SBX_ARRAY_SIZE(kernel_calls), true},
        {"machine", machine_calls, SBX_ARRAY_SIZE(machine_calls), true},
        {"view", joining_calls, SBX_ARRAY_SIZE(joining_calls), false},
        {"namespaces", namespace_calls, SBX_ARRAY_SIZE(namespace_calls), false},
        {"terminal", terminal_calls, SBX_ARRAY_SIZE(terminal_calls), false},
        {"sockets", socket_calls, SBX_ARRAY_SIZE(socket_calls), false},
        {"ipc", ipc_calls, SBX_ARRAY_SIZE(ipc_calls), false},
        {"limits", limit_calls, SBX_ARRAY_SIZE(limit_calls), false},
};

/*
 * The events that all asynchronous contexts together may have are counted for the machine: who
 * takes them all has taken them from the host.
 */
static const char *const absent[] = {"clone3", "io_setup"};

/* Those that lead out, where there is no way out. (The address of sendmsg lies in memory.) */
static const struct {
	const char *name;
	enum filter_verdict verdict;
} heard[] = {{"connect", FILTER_HEARD}, {"sendto", FILTER_SENDTO}};

/* By their arguments. */
static const struct {
	const char *name;
	enum filter_verdict verdict;
} judged[] = {
        {"clone", FILTER_CLONE},      {"unshare", FILTER_UNSHARE}, {"ioctl", FILTER_IOCTL},
        {"chmod", FILTER_MODE_1},     {"fchmod", FILTER_MODE_1},   {"fchmodat", FILTER_MODE_2},
        {"fchmodat2", FILTER_MODE_2}, {"mknod", FILTER_MODE_1},    {"mknodat", FILTER_MODE_2},
        {"creat", FILTER_MODE_1},     {"open", FILTER_OPEN},       {"openat", FILTER_OPENAT},
        {"socket", FILTER_SOCKET},    {"setns", FILTER_SETNS},     {"openat2", FILTER_OPENAT2},
        {"setrlimit", FILTER_RLIMIT}};

#define RULES_MAX                                                                                  \
	(SBX_ARRAY_SIZE(view_calls) + SBX_ARRAY_SIZE(kernel_calls) +                               \
	 SBX_ARRAY_SIZE(machine_calls) + SBX_ARRAY_SIZE(ipc_calls) + SBX_ARRAY_SIZE(limit_calls) + \
	 SBX_ARRAY_SIZE(absent) + SBX_ARRAY_SIZE(heard) + SBX_ARRAY_SIZE(judged))

struct rules {
	struct filter_rule all[RULES_MAX];
	size_t n;
};

static void add(struct rules *rules, const char *name, enum filter_verdict verdict)
{
	int nr = seccomp_syscall_resolve_name(name);

	if (nr >= 0)
		rules->all[rules->n++] =
		        (struct filter_rule){.nr = (uint32_t)nr, .verdict = verdict};
}

static bool kernel_has(uint32_t action)
{
	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

/* PLAIN, but each EPERM is the listener's to give, and what is heard waits for it. */
static int make_telling(const struct sock_fprog *plain, struct sock_fprog *ret)
{
	size_t size = plain->len * sizeof(*plain->filter);
	struct sock_filter *code = malloc(size);

	if (!code)
		return -ENOMEM;
	memcpy(code, plain->filter, size);
	for (size_t i = 0; i < plain->len; i++)
		if (code[i].code == (BPF_RET | BPF_K) &&
		    (code[i].k == (SECCOMP_RET_ERRNO | EPERM) || code[i].k == FILTER_ALLOW_HEARD))
			code[i].k = SECCOMP_RET_USER_NOTIF;
	*ret = (struct sock_fprog){.len = plain->len, .filter = code};
	return 0;
}

/* Init counts the job's memory, and is a process of its user's: slowed down or without descriptors
 * it would not. */
static void add_limits(struct rules *rules, const struct filter_options *options)
{
	add(rules, "prlimit64", options->no_pids ? FILTER_LIMIT : FILTER_INIT_LIMIT);
	for (size_t i = 1; !options->no_pids && i < SBX_ARRAY_SIZE(limit_calls); i++)
		add(rules, limit_calls[i],
		    strcmp(limit_calls[i], "setpriority") == 0 ? FILTER_PRIORITY : FILTER_INIT);
}

static int build_plain(const struct filter_options *options, struct sock_fprog *ret)
{
	struct rules rules = {.n = 0};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(classes); i++)
		for (size_t k = 0; classes[i].always && k < classes[i].n; k++)
			add(&rules, classes[i].names[k], FILTER_REFUSE);
	for (size_t i = 0; options->no_ipc && i < SBX_ARRAY_SIZE(ipc_calls); i++)
		add(&rules, ipc_calls[i], FILTER_REFUSE);
	add_limits(&rules, options);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(absent); i++)
		add(&rules, absent[i], FILTER_ABSENT);
	for (size_t i = 0; options->hear_net && i < SBX_ARRAY_SIZE(heard); i++)
		add(&rules, heard[i].name, heard[i].verdict);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(judged); i++)
		add(&rules, judged[i].name, judged[i].verdict);
	return filter_code(seccomp_arch_native(), rules.all, rules.n, options, ret);
}

static int choose_pass(unsigned long pass[2])
{
	const size_t size = 2 * sizeof(*pass);

	return getrandom(pass, size, 0) == (ssize_t)size ? 0 : -errno;
}

int filter_build(const struct filter_options *options, struct filter *ret)
{
	struct filter_options full = *options;
	int r = kernel_has(SECCOMP_RET_ERRNO) ? choose_pass(full.pass) : -EINVAL;

	memcpy(ret->pass, full.pass, sizeof(ret->pass));
	if (!r)
		r = build_plain(&full, &ret->plain);
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

int filter_build(const struct filter_options *options, struct filter *ret)
{
	(void)options;
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

long filter_call(const struct filter *filter, long nr, long a, long b, long c, long d)
{
	static const unsigned long none[2];
	const unsigned long *pass = filter ? filter->pass : none;

	return syscall(nr, a, b, c, d, pass[0], pass[1]);
}
