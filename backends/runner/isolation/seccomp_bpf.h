/* From a table of system calls to the program that the kernel runs at each: as short as can be,
 * each call runs it. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_SECCOMP_BPF_H
#define SANDBOXFS_RUNNER_ISOLATION_SECCOMP_BPF_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/runner/isolation/seccomp.h"

/* The action on a system call: an answer, or a look at its arguments. */
enum filter_verdict {
	FILTER_ALLOW,
	FILTER_REFUSE,  /* EPERM */
	FILTER_ABSENT,  /* ENOSYS */
	FILTER_HEARD,   /* allowed, and the listener hears of it first */
	FILTER_NOTHING, /* success, and nothing is done */
	FILTER_ANSWERS,
	FILTER_CLONE = FILTER_ANSWERS, /* refused with flags of namespaces in the first, */
	FILTER_UNSHARE,                /* which here may have one more; */
	FILTER_IOCTL,                  /* that types into a terminal; */
	FILTER_MODE_1, /* with setuid or setgid in the mode, that argument from 0; */
	FILTER_MODE_2,
	FILTER_OPEN,   /* with them in the third, when it may create; */
	FILTER_OPENAT, /* the fourth; */
	FILTER_SOCKET, /* of a family, a type or a protocol that is not for commands; */
	FILTER_RLIMIT, /* done, without being done, for core dumps, the first; */
	FILTER_LIMIT, /* likewise, the second; that sets one of a process named by number; only with
	                 no_pids, */
	FILTER_INIT_LIMIT, /* likewise, the second; or of process 1; only without, */
	FILTER_INIT,       /* of process 1, by the first; only without, */
	FILTER_PRIORITY,   /* or of all of a user's; likewise; */
	FILTER_SETNS,      /* EPERM, but with wish->pass as the last two of six arguments; */
	FILTER_OPENAT2,    /* ENOSYS, but so */
	FILTER_SENDTO,     /* heard with an address, the fifth */
	FILTER_VERDICTS,
};

/* The answer of FILTER_HEARD: the kernel allows the call and does not look at the rest. */
#define FILTER_ALLOW_HEARD (SECCOMP_RET_ALLOW | 1U)

struct filter_rule {
	uint32_t nr;
	enum filter_verdict verdict;
};

/*
 * Makes the program for calls of ARCH (an AUDIT_ARCH_...): those of the N RULES (sorted here; of
 * two for one call either may hold) meet their fate, others are allowed; all of another
 * architecture are refused. ret->filter is malloc'd. 0, -ENOMEM, or -E2BIG.
 */
int filter_code(uint32_t arch, struct filter_rule *rules, size_t n,
                const struct filter_options *options, struct sock_fprog *ret);

#endif
