/*
 * Calls that are neighbours and share their fate make a range; a binary search over the ranges
 * leads to the fate. Jumps go forward only, so the answers stand last.
 *
 * Of an argument that the kernel takes as a 32-bit number only the lower half is looked at, as it
 * does.
 *
 * libseccomp is not used for this because it compares the pass word by word, which judge_pass must
 * not. Its filter, optimized, has 295 instructions where this one has 180, and is loaded in 86 us
 * in place of 66; calls and exec cost the same with both.
 */
#include "backends/runner/isolation/seccomp_bpf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "sandboxfs/cleanup.h"

#define CODE_MAX       250 /* a jump spans no more */
#define RANGES_MAX     128
#define SOCK_TYPE_MASK 0xf
#define X32_BIT        0x40000000
#define FALL           (-1) /* to the next instruction */

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LOW_HALF 0
#else
#define LOW_HALF 4
#endif

/* Of consecutive numbers: from FROM to that of the next. */
struct range {
	uint32_t from;
	enum filter_verdict verdict;
};

struct code {
	struct sock_filter ins[CODE_MAX];
	int yes[CODE_MAX], no[CODE_MAX]; /* where its jumps go: a fate, or FALL */
	size_t n, at[FILTER_VERDICTS];   /* where the fates' code is */
	bool full;
	const struct filter_options *options;
};

static size_t emit(struct code *c, uint16_t op, uint32_t k, int yes, int no)
{
	if (c->n == CODE_MAX) {
		c->full = true;
		return 0;
	}
	c->ins[c->n] = (struct sock_filter){.code = op, .k = k};
	c->yes[c->n] = yes;
	c->no[c->n] = no;
	return c->n++;
}

static void load(struct code *c, size_t offset)
{
	emit(c, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, FALL, FALL);
}

static void load_low(struct code *c, int arg)
{
	load(c, offsetof(struct seccomp_data, args[arg]) + LOW_HALF);
}

static void load_high(struct code *c, int arg)
{
	load(c, offsetof(struct seccomp_data, args[arg]) + 4 - LOW_HALF);
}

static size_t branch(struct code *c, uint16_t how, uint32_t k, int yes, int no)
{
	return emit(c, BPF_JMP | BPF_K | how, k, yes, no);
}

/* The fate of the number in the accumulator, which one of the N ranges holds. */
static void search(struct code *c, const struct range *r, size_t n)
{
	const size_t mid = n / 2;
	const bool low = mid == 1, high = n - mid == 1;
	size_t here;

	here = branch(c, BPF_JGE, r[mid].from, high ? (int)r[mid].verdict : FALL,
	              low ? (int)r[0].verdict : FALL);
	if (!low)
		search(c, r, mid);
	if (!low && !high)
		c->ins[here].jt = (uint8_t)(c->n - here - 1);
	if (!high)
		search(c, r + mid, n - mid);
}

static void look_at(struct code *c, enum filter_verdict verdict)
{
	c->at[verdict] = c->n;
}

/* Setuid and setgid in the mode that argument ARG is. */
static void judge_mode(struct code *c, int arg)
{
	load_low(c, arg);
	branch(c, BPF_JSET, S_ISUID | S_ISGID, FILTER_REFUSE, FILTER_ALLOW);
}

static void judge_open(struct code *c, int flags)
{
	load_low(c, flags);
	branch(c, BPF_JSET, O_CREAT, FALL, FILTER_ALLOW);
	judge_mode(c, flags + 1);
}

static void judge_flags(struct code *c, uint32_t refused)
{
	load_low(c, 0);
	branch(c, BPF_JSET, refused, FILTER_REFUSE, FILTER_ALLOW);
}

static void judge_ioctl(struct code *c)
{
	load_low(c, 1);
	branch(c, BPF_JEQ, TIOCSTI, FILTER_REFUSE, FALL);
	branch(c, BPF_JEQ, TIOCLINUX, FILTER_REFUSE, FILTER_ALLOW);
}

/* Families that are not named are those of hardware, of tunnels and of the kernel's insides. */
static void judge_socket(struct code *c)
{
	size_t inet, inet6;

	load_high(c, 0);
	branch(c, BPF_JEQ, 0, FALL, FILTER_REFUSE);
	load_low(c, 0);
	if (!c->options->no_unix)
		branch(c, BPF_JEQ, AF_UNIX, FILTER_ALLOW, FALL);
	if (c->options->no_inet) {
		emit(c, BPF_JMP | BPF_JA, 0, FILTER_REFUSE, FALL);
		return;
	}
	inet = branch(c, BPF_JEQ, AF_INET, FALL, FALL);
	inet6 = branch(c, BPF_JEQ, AF_INET6, FALL, FALL);
	branch(c, BPF_JEQ, AF_NETLINK, FALL, FILTER_REFUSE);
	load_high(c, 2);
	branch(c, BPF_JEQ, 0, FALL, FILTER_REFUSE);
	load_low(c, 2);
	branch(c, BPF_JEQ, NETLINK_ROUTE, FILTER_ALLOW, FILTER_REFUSE);
	c->ins[inet].jt = (uint8_t)(c->n - inet - 1);
	c->ins[inet6].jt = (uint8_t)(c->n - inet6 - 1);
	load_low(c, 1);
	emit(c, BPF_ALU | BPF_AND | BPF_K, SOCK_TYPE_MASK, FALL, FALL);
	branch(c, BPF_JEQ, SOCK_RAW, FILTER_REFUSE, FILTER_ALLOW);
}

/* Argument 2 is a pointer to what is to be set, or none. */
static void judge_setting(struct code *c, enum filter_verdict otherwise)
{
	load_low(c, 2);
	branch(c, BPF_JEQ, 0, FALL, otherwise);
	load_high(c, 2);
	branch(c, BPF_JEQ, 0, FILTER_ALLOW, otherwise);
}

/*
 * With any limit but 1 the kernel gives a core to the program of the host's that core_pattern may
 * name.
 */
static void judge_core(struct code *c)
{
	load_low(c, 1);
	branch(c, BPF_JEQ, RLIMIT_CORE, FALL, FILTER_ALLOW);
	judge_setting(c, FILTER_NOTHING);
}

static void judge_rlimit(struct code *c)
{
	load_low(c, 0);
	branch(c, BPF_JEQ, RLIMIT_CORE, FILTER_NOTHING, FILTER_ALLOW);
}

static void judge_limit(struct code *c)
{
	size_t own;

	load_low(c, 0);
	own = branch(c, BPF_JEQ, 0, FALL, FALL);
	judge_setting(c, FILTER_REFUSE);
	c->ins[own].jt = (uint8_t)(c->n - own - 1);
	judge_core(c);
}

static void judge_init_limit(struct code *c)
{
	load_low(c, 0);
	branch(c, BPF_JEQ, 1, FILTER_REFUSE, FALL);
	judge_core(c);
}

static void judge_priority(struct code *c)
{
	load_low(c, 0);
	branch(c, BPF_JEQ, PRIO_USER, FILTER_REFUSE, FALL);
	branch(c, BPF_JEQ, PRIO_PROCESS, FALL, FILTER_ALLOW);
	load_low(c, 1);
	branch(c, BPF_JEQ, 1, FILTER_REFUSE, FILTER_ALLOW);
}

/* How init runs, by whose number it is known. */
static void judge_processes(struct code *c)
{
	look_at(c, FILTER_RLIMIT);
	judge_rlimit(c);
	if (c->options->no_pids) {
		look_at(c, FILTER_LIMIT);
		judge_limit(c);
		return;
	}
	look_at(c, FILTER_INIT_LIMIT);
	judge_init_limit(c);
	look_at(c, FILTER_INIT);
	load_low(c, 0);
	branch(c, BPF_JEQ, 1, FILTER_REFUSE, FILTER_ALLOW);
	look_at(c, FILTER_PRIORITY);
	judge_priority(c);
}

/* All of the pass or nothing: how much of it was right must not show in the time it takes. */
static void judge_pass(struct code *c, enum filter_verdict otherwise)
{
	for (int i = 0; i < 4; i++) {
		const uint64_t pass = c->options->pass[i / 2];

		if (i % 2)
			load_high(c, 4 + i / 2);
		else
			load_low(c, 4 + i / 2);
		emit(c, BPF_ALU | BPF_XOR | BPF_K, (uint32_t)(i % 2 ? pass >> 32 : pass), FALL,
		     FALL);
		if (i > 0)
			emit(c, BPF_ALU | BPF_OR | BPF_X, 0, FALL, FALL);
		emit(c, BPF_MISC | BPF_TAX, 0, FALL, FALL);
	}
	branch(c, BPF_JEQ, 0, FILTER_ALLOW, otherwise);
}

static void judge_sendto(struct code *c)
{
	load_low(c, 4);
	branch(c, BPF_JEQ, 0, FALL, FILTER_HEARD);
	load_high(c, 4);
	branch(c, BPF_JEQ, 0, FILTER_ALLOW, FILTER_HEARD);
}

static void answer(struct code *c, enum filter_verdict verdict, uint32_t action)
{
	look_at(c, verdict);
	emit(c, BPF_RET | BPF_K, action, FALL, FALL);
}

static void judge(struct code *c)
{
	look_at(c, FILTER_CLONE);
	judge_flags(c, NAMESPACES); /* that of time belongs to the signal at the end here */
	look_at(c, FILTER_UNSHARE);
	judge_flags(c, NAMESPACES | CLONE_NEWTIME);
	look_at(c, FILTER_IOCTL);
	judge_ioctl(c);
	look_at(c, FILTER_MODE_1);
	judge_mode(c, 1);
	look_at(c, FILTER_MODE_2);
	judge_mode(c, 2);
	look_at(c, FILTER_OPEN);
	judge_open(c, 1);
	look_at(c, FILTER_OPENAT);
	judge_open(c, 2);
	look_at(c, FILTER_SOCKET);
	judge_socket(c);
	judge_processes(c);
	look_at(c, FILTER_SETNS);
	judge_pass(c, FILTER_REFUSE);
	look_at(c, FILTER_OPENAT2);
	judge_pass(c, FILTER_ABSENT);
	look_at(c, FILTER_SENDTO);
	judge_sendto(c);
	answer(c, FILTER_ALLOW, SECCOMP_RET_ALLOW);
	answer(c, FILTER_HEARD, FILTER_ALLOW_HEARD);
	answer(c, FILTER_NOTHING, SECCOMP_RET_ERRNO);
	answer(c, FILTER_ABSENT, SECCOMP_RET_ERRNO | ENOSYS);
	answer(c, FILTER_REFUSE, SECCOMP_RET_ERRNO | EPERM);
}

static void link_jumps(struct code *c)
{
	for (size_t i = 0; i < c->n; i++) {
		struct sock_filter *ins = &c->ins[i];
		size_t yes = c->yes[i] == FALL ? 0 : c->at[c->yes[i]] - i - 1;

		if (c->yes[i] != FALL && ins->code == (BPF_JMP | BPF_JA))
			ins->k = (uint32_t)yes;
		else if (c->yes[i] != FALL)
			ins->jt = (uint8_t)yes;
		if (c->no[i] != FALL)
			ins->jf = (uint8_t)(c->at[c->no[i]] - i - 1);
	}
}

static int compare(const void *a, const void *b)
{
	const struct filter_rule *x = a, *y = b;

	return (x->nr > y->nr) - (x->nr < y->nr);
}

static int add(struct range *r, size_t *n, uint32_t from, enum filter_verdict verdict)
{
	if (*n && r[*n - 1].from == from)
		(*n)--;
	if (*n && r[*n - 1].verdict == verdict)
		return 0;
	if (*n == RANGES_MAX)
		return -E2BIG;
	r[(*n)++] = (struct range){.from = from, .verdict = verdict};
	return 0;
}

/* Numbers of another way to call, which a 64-bit kernel may have too, are foreign; -1 is nobody's.
 */
static int make_ranges(const struct filter_rule *rules, size_t n_rules, struct range *r, size_t *n)
{
	int err = add(r, n, 0, FILTER_ALLOW);

	for (size_t i = 0; !err && i < n_rules; i++) {
		err = add(r, n, rules[i].nr, rules[i].verdict);
		if (!err)
			err = add(r, n, rules[i].nr + 1, FILTER_ALLOW);
	}
	if (!err)
		err = add(r, n, X32_BIT, FILTER_REFUSE);
	return err ? err : add(r, n, UINT32_MAX, FILTER_ALLOW);
}

int filter_code(uint32_t arch, struct filter_rule *rules, size_t n,
                const struct filter_options *options, struct sock_fprog *ret)
{
	struct range ranges[RANGES_MAX];
	struct code c = {.options = options};
	size_t n_ranges = 0;
	int r;

	qsort(rules, n, sizeof(*rules), compare);
	r = make_ranges(rules, n, ranges, &n_ranges);
	if (r < 0)
		return r;
	load(&c, offsetof(struct seccomp_data, arch));
	branch(&c, BPF_JEQ, arch, FALL, FILTER_REFUSE);
	load(&c, offsetof(struct seccomp_data, nr));
	search(&c, ranges, n_ranges);
	judge(&c);
	if (c.full)
		return -E2BIG;
	link_jumps(&c);
	ret->filter = malloc(c.n * sizeof(*c.ins));
	if (!ret->filter)
		return -ENOMEM;
	memcpy(ret->filter, c.ins, c.n * sizeof(*c.ins));
	ret->len = (unsigned short)c.n;
	return 0;
}
