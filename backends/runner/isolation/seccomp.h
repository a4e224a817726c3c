/* The seccomp filter of commands. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_SECCOMP_H
#define SANDBOXFS_RUNNER_ISOLATION_SECCOMP_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

struct filter_options {
	bool no_inet;  /* sockets of the Internet's families are refused: the network is the host's
	                */
	bool no_unix;  /* so are those of the machine: the host's can be seen */
	bool no_ipc;   /* so is what processes share by number or name: it is the host's */
	bool no_pids;  /* so are the limits of another process, not of init alone: the host's have
	                  numbers */
	bool hear_net; /* where an address is given to connect(2) and sendto(2) the listener hears
	                  of it */
	unsigned long pass[2]; /* filter_build chooses it */
};

struct filter {
	struct sock_fprog plain;   /* answers EPERM itself */
	struct sock_fprog telling; /* has a listener answer; len 0: this kernel cannot */
	unsigned long pass[2]; /* a secret, which opens what init still needs: see filter_call */
};

/*
 * Builds the filter once; *ret is the caller's, for the life of the process. -EOPNOTSUPP built
 * without libseccomp, -EINVAL the kernel has no filters, -ENOMEM, or an errno of getrandom(2).
 */
int filter_build(const struct filter_options *options, struct filter *ret);
/*
 * Puts the calling thread, which has no_new_privs, and what it starts from now on under the filter.
 * *listener is the descriptor on which calls that are refused or heard wait for their answer
 * (backends/runner/spawner/denials.h), -1: they are answered by the filter. Does not allocate. 0,
 * or -1 with errno.
 */
int filter_load(const struct filter *filter, int *listener);
/*
 * The system call NR, which is setns or openat2, of who is under FILTER and knows its pass; NULL:
 * there is no filter. As syscall(2).
 */
long filter_call(const struct filter *filter, long nr, long a, long b, long c, long d);
/*
 * Writes the name of the refused call NR of this architecture to BUF and returns its class: view,
 * kernel, machine, namespaces, terminal, sockets, ipc, limits, setuid, foreign (unknown number).
 * Allocates.
 */
const char *filter_describe(int nr, char *buf, size_t size);

#endif
