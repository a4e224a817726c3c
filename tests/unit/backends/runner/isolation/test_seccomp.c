#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "backends/runner/isolation/seccomp_bpf.h"

#define ARCH   AUDIT_ARCH_X86_64
#define ALLOW  SECCOMP_RET_ALLOW
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define ABSENT (SECCOMP_RET_ERRNO | ENOSYS)

/* What the kernel would answer: it knows more instructions than these, which are all that may
 * occur. */
static uint32_t answer(const struct sock_fprog *p, const struct seccomp_data *call)
{
	uint32_t a = 0, x = 0;

	for (size_t i = 0; i < p->len; i++) {
		const struct sock_filter *f = &p->filter[i];

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert_true(f->k <= sizeof(*call) - sizeof(a));
			memcpy(&a, (const char *)call + f->k, sizeof(a));
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			break;
		case BPF_ALU | BPF_XOR | BPF_K:
			a ^= f->k;
			break;
		case BPF_ALU | BPF_OR | BPF_X:
			a |= x;
			break;
		case BPF_MISC | BPF_TAX:
			x = a;
			break;
		case BPF_JMP | BPF_JA:
			i += f->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			i += a == f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			i += a >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			i += a & f->k ? f->jt : f->jf;
			break;
		case BPF_RET | BPF_K:
			return f->k;
		default:
			fail_msg("instruction %#x", f->code);
		}
	}
	fail_msg("the program has no end");
	return 0;
}

static struct sock_fprog make(const struct filter_rule *rules, size_t n,
                              const struct filter_options *options)
{
	struct filter_rule copy[128];
	struct sock_fprog p;

	memcpy(copy, rules, n * sizeof(*rules));
	assert_int_equal(filter_code(ARCH, copy, n, options, &p), 0);
	return p;
}

static uint32_t ask(const struct sock_fprog *p, uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2,
                    uint64_t a3)
{
	const struct seccomp_data call = {.arch = ARCH, .nr = (int)nr, .args = {a0, a1, a2, a3}};

	return answer(p, &call);
}

static void each_number_meets_its_fate_and_others_are_allowed(void **state)
{
	static const enum filter_verdict verdicts[] = {FILTER_ALLOW, FILTER_REFUSE, FILTER_ABSENT};
	static const uint32_t answers[] = {ALLOW, REFUSE, ABSENT};
	const struct filter_options options = {0};

	(void)state;
	srand(1);
	for (int round = 0; round < 200; round++) {
		enum filter_verdict verdict[64] = {FILTER_ALLOW};
		struct filter_rule rules[64];
		size_t n = 0;

		for (uint32_t nr = 0; nr < 60; nr++) {
			if (rand() % 3 == 0)
				continue;
			verdict[nr] = verdicts[rand() % 3];
			rules[n++] = (struct filter_rule){.nr = nr, .verdict = verdict[nr]};
		}
		for (size_t i = 0; i < n; i++) { /* in any order */
			const size_t other = (size_t)rand() % n;
			const struct filter_rule rule = rules[i];

			rules[i] = rules[other];
			rules[other] = rule;
		}
		struct sock_fprog p = make(rules, n, &options);
		for (uint32_t nr = 0; nr < 64; nr++)
			assert_int_equal(ask(&p, nr, 0, 0, 0, 0), answers[verdict[nr]]);
		assert_int_equal(ask(&p, 0x3fffffff, 0, 0, 0, 0), ALLOW);
		free(p.filter);
	}
}

static void what_is_foreign_is_refused(void **state)
{
	const struct filter_rule rule = {.nr = 1, .verdict = FILTER_REFUSE};
	const struct filter_options options = {0};
	struct sock_fprog p = make(&rule, 1, &options);
	struct seccomp_data call = {.arch = AUDIT_ARCH_I386, .nr = 3};

	(void)state;
	assert_int_equal(answer(&p, &call), REFUSE);
	assert_int_equal(ask(&p, 0x40000000, 0, 0, 0, 0), REFUSE);
	assert_int_equal(ask(&p, 0x40000003, 0, 0, 0, 0), REFUSE);
	assert_int_equal(ask(&p, 0xfffffffe, 0, 0, 0, 0), REFUSE);
	assert_int_equal(ask(&p, UINT32_MAX, 0, 0, 0, 0), ALLOW); /* a tracer's: not called */
	free(p.filter);
}

static void arguments_are_judged(void **state)
{
	enum { CLONE, UNSHARE, IOCTL, MODE_1, MODE_2, OPEN, OPENAT };
	static const struct filter_rule rules[] = {
	        {CLONE, FILTER_CLONE},   {UNSHARE, FILTER_UNSHARE}, {IOCTL, FILTER_IOCTL},
	        {MODE_1, FILTER_MODE_1}, {MODE_2, FILTER_MODE_2},   {OPEN, FILTER_OPEN},
	        {OPENAT, FILTER_OPENAT}};
	static const uint64_t namespaces[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
	                                      CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
	                                      CLONE_NEWNET};
	const uint64_t high = UINT64_C(0x1234500000000);
	const struct filter_options options = {0};
	struct sock_fprog p = make(rules, sizeof(rules) / sizeof(*rules), &options);

	(void)state;
	for (size_t i = 0; i < sizeof(namespaces) / sizeof(*namespaces); i++) {
		assert_int_equal(ask(&p, CLONE, high | namespaces[i] | 17, 0, 0, 0), REFUSE);
		assert_int_equal(ask(&p, UNSHARE, namespaces[i], 0, 0, 0), REFUSE);
	}
	assert_int_equal(ask(&p, UNSHARE, CLONE_NEWTIME, 0, 0, 0), REFUSE);
	assert_int_equal(ask(&p, CLONE, CLONE_NEWTIME | CLONE_VM | CLONE_THREAD, 0, 0, 0), ALLOW);
	assert_int_equal(ask(&p, UNSHARE, CLONE_FS | CLONE_FILES, 0, 0, 0), ALLOW);
	assert_int_equal(ask(&p, IOCTL, 0, high | TIOCSTI, 0, 0), REFUSE);
	assert_int_equal(ask(&p, IOCTL, 0, TIOCLINUX, 0, 0), REFUSE);
	assert_int_equal(ask(&p, IOCTL, TIOCSTI, TIOCGWINSZ, 0, 0), ALLOW);
	assert_int_equal(ask(&p, MODE_1, 06777, 0777 | S_ISVTX, 06777, 0), ALLOW);
	assert_int_equal(ask(&p, MODE_1, 0, high | 04755, 0, 0), REFUSE);
	assert_int_equal(ask(&p, MODE_2, 0, 0, 02755, 0), REFUSE);
	assert_int_equal(ask(&p, OPEN, 0, O_CREAT | O_WRONLY, 04755, 0), REFUSE);
	assert_int_equal(ask(&p, OPEN, 0, O_WRONLY, 04755, 0), ALLOW);
	assert_int_equal(ask(&p, OPENAT, 0, 0, high | O_CREAT, 02755), REFUSE);
	assert_int_equal(ask(&p, OPENAT, 0, 0, O_CREAT, 0755), ALLOW);
	assert_int_equal(ask(&p, OPENAT, 0, 0, O_RDONLY, 02755), ALLOW);
	free(p.filter);
}

static bool may(int family, const struct filter_options *options)
{
	if (family == AF_UNIX)
		return !options->no_unix;
	return !options->no_inet &&
	       (family == AF_INET || family == AF_INET6 || family == AF_NETLINK);
}

static void sockets_are_those_that_are_wished_for(void **state)
{
	const struct filter_rule rule = {.nr = 41, .verdict = FILTER_SOCKET};

	(void)state;
	for (int w = 0; w < 4; w++) {
		const struct filter_options options = {.no_inet = w & 1, .no_unix = w & 2};
		struct sock_fprog p = make(&rule, 1, &options);

		for (int family = 0; family < 64; family++)
			assert_int_equal(ask(&p, 41, (uint64_t)family, SOCK_DGRAM, 0, 0),
			                 may(family, &options) ? ALLOW : REFUSE);
		assert_int_equal(ask(&p, 41, UINT64_C(1) << 32 | AF_INET, SOCK_STREAM, 0, 0),
		                 REFUSE);
		assert_int_equal(ask(&p, 41, AF_INET, SOCK_RAW | SOCK_CLOEXEC, 0, 0), REFUSE);
		assert_int_equal(ask(&p, 41, AF_INET6, SOCK_RAW, 58, 0), REFUSE);
		assert_int_equal(ask(&p, 41, AF_NETLINK, SOCK_RAW, 0, 0),
		                 options.no_inet ? REFUSE : ALLOW);
		assert_int_equal(ask(&p, 41, AF_NETLINK, SOCK_RAW, 12, 0), REFUSE);
		free(p.filter);
	}
}

static void addresses_are_heard_of(void **state)
{
	static const struct filter_rule rules[] = {{42, FILTER_HEARD}, {44, FILTER_SENDTO}};
	const struct filter_options options = {0};
	struct sock_fprog p = make(rules, 2, &options);
	struct seccomp_data call = {.arch = ARCH, .nr = 44};

	(void)state;
	assert_int_equal(ask(&p, 42, 3, 4096, 16, 0), FILTER_ALLOW_HEARD);
	assert_int_equal(ask(&p, 43, 3, 4096, 16, 0), ALLOW);
	assert_int_equal(answer(&p, &call), ALLOW);
	call.args[4] = UINT64_C(1) << 32;
	assert_int_equal(answer(&p, &call), FILTER_ALLOW_HEARD);
	call.args[4] = 1;
	assert_int_equal(answer(&p, &call), FILTER_ALLOW_HEARD);
	free(p.filter);
}

static void limits_of_others_are_not_set(void **state)
{
	const struct filter_rule rule = {.nr = 302, .verdict = FILTER_LIMIT};
	const struct filter_options options = {.no_pids = true};
	const uint64_t high = UINT64_C(1) << 32, limit = UINT64_C(0x7ffc00001000);
	struct sock_fprog p = make(&rule, 1, &options);

	(void)state;
	assert_int_equal(ask(&p, 302, 0, 0, limit, 0), ALLOW);
	assert_int_equal(ask(&p, 302, high, 0, limit, 0), ALLOW);
	assert_int_equal(ask(&p, 302, 7, 0, 0, limit), ALLOW);
	assert_int_equal(ask(&p, 302, 7, 0, limit, 0), REFUSE);
	assert_int_equal(ask(&p, 302, 7, 0, high, 0), REFUSE);
	free(p.filter);
}

static void how_init_runs_is_not_set(void **state)
{
	static const struct filter_rule rules[] = {{302, FILTER_INIT}, {141, FILTER_PRIORITY}};
	const struct filter_options options = {0};
	struct sock_fprog p = make(rules, 2, &options);

	(void)state;
	assert_int_equal(ask(&p, 302, UINT64_C(1) << 32 | 1, 0, 0, 0), REFUSE);
	assert_int_equal(ask(&p, 302, 0, 1, 1, 1), ALLOW);
	assert_int_equal(ask(&p, 302, 2, 0, 0, 0), ALLOW);
	assert_int_equal(ask(&p, 141, PRIO_PROCESS, 1, 0, 0), REFUSE);
	assert_int_equal(ask(&p, 141, PRIO_PROCESS, 0, 1, 0), ALLOW);
	assert_int_equal(ask(&p, 141, PRIO_PGRP, 1, 0, 0), ALLOW);
	assert_int_equal(ask(&p, 141, PRIO_USER, 0, 0, 0), REFUSE);
	free(p.filter);
}

/*
 * Success without doing anything: with any other limit than theirs a dump may go to a program of
 * the host's.
 */
static void the_limit_of_core_dumps_stays(void **state)
{
	enum { NOTHING = SECCOMP_RET_ERRNO };
	static const struct filter_rule rules[] = {{160, FILTER_RLIMIT}, {302, FILTER_INIT_LIMIT}};
	static const struct filter_rule no_pids[] = {{302, FILTER_LIMIT}};
	const uint64_t high = UINT64_C(1) << 32, limit = UINT64_C(0x7ffc00001000);
	struct filter_options options = {0};
	struct sock_fprog p = make(rules, 2, &options);

	(void)state;
	assert_int_equal(ask(&p, 160, RLIMIT_CORE, limit, 0, 0), NOTHING);
	assert_int_equal(ask(&p, 160, high | RLIMIT_CORE, limit, 0, 0), NOTHING);
	assert_int_equal(ask(&p, 160, RLIMIT_NOFILE, limit, 0, 0), ALLOW);
	assert_int_equal(ask(&p, 302, 0, RLIMIT_CORE, limit, 0), NOTHING);
	assert_int_equal(ask(&p, 302, 0, high | RLIMIT_CORE, high, limit), NOTHING);
	assert_int_equal(ask(&p, 302, 7, RLIMIT_CORE, limit, 0), NOTHING);
	assert_int_equal(ask(&p, 302, 0, RLIMIT_CORE, 0, limit), ALLOW);
	assert_int_equal(ask(&p, 302, 0, RLIMIT_NOFILE, limit, 0), ALLOW);
	assert_int_equal(ask(&p, 302, 1, RLIMIT_NOFILE, limit, 0), REFUSE);
	assert_int_equal(ask(&p, 302, 1, RLIMIT_CORE, limit, 0), REFUSE);
	free(p.filter);
	options.no_pids = true;
	p = make(no_pids, 1, &options);
	assert_int_equal(ask(&p, 302, 0, RLIMIT_CORE, limit, 0), NOTHING);
	assert_int_equal(ask(&p, 302, 7, RLIMIT_CORE, limit, 0), REFUSE);
	assert_int_equal(ask(&p, 302, 0, RLIMIT_CPU, limit, 0), ALLOW);
	free(p.filter);
}

static void a_pass_opens_what_only_inits_may(void **state)
{
	enum { SETNS, OPENAT2 };
	static const struct filter_rule rules[] = {{SETNS, FILTER_SETNS},
	                                           {OPENAT2, FILTER_OPENAT2}};
	const struct filter_options options = {.pass = {0x0123456789abcdef, 0xfedcba9876543210}};
	struct sock_fprog p = make(rules, 2, &options);
	struct seccomp_data call = {.arch = ARCH,
	                            .args = {1, 2, 3, 4, options.pass[0], options.pass[1]}};

	(void)state;
	for (int nr = SETNS; nr <= OPENAT2; nr++) {
		call.nr = nr;
		assert_int_equal(answer(&p, &call), ALLOW);
		for (int bit = 0; bit < 128; bit++) {
			call.args[4 + bit / 64] ^= UINT64_C(1) << bit % 64;
			assert_int_equal(answer(&p, &call), nr == SETNS ? REFUSE : ABSENT);
			call.args[4 + bit / 64] ^= UINT64_C(1) << bit % 64;
		}
		assert_int_equal(ask(&p, (uint32_t)nr, 0, 0, 0, 0), nr == SETNS ? REFUSE : ABSENT);
	}
	free(p.filter);
}

static void more_ranges_than_a_program_holds_are_too_big(void **state)
{
	const struct filter_options options = {0};
	struct filter_rule rules[200];
	struct sock_fprog p;

	(void)state;
	for (uint32_t i = 0; i < 200; i++)
		rules[i] = (struct filter_rule){.nr = 2 * i, .verdict = FILTER_REFUSE};
	assert_int_equal(filter_code(ARCH, rules, 200, &options, &p), -E2BIG);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_number_meets_its_fate_and_others_are_allowed),
	        cmocka_unit_test(what_is_foreign_is_refused),
	        cmocka_unit_test(arguments_are_judged),
	        cmocka_unit_test(sockets_are_those_that_are_wished_for),
	        cmocka_unit_test(addresses_are_heard_of),
	        cmocka_unit_test(limits_of_others_are_not_set),
	        cmocka_unit_test(how_init_runs_is_not_set),
	        cmocka_unit_test(the_limit_of_core_dumps_stays),
	        cmocka_unit_test(a_pass_opens_what_only_inits_may),
	        cmocka_unit_test(more_ranges_than_a_program_holds_are_too_big),
	};

	return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
