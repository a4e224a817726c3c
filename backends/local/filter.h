/* The seccomp filter of commands. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_FILTER_H
#define SANDBOXFS_BACKENDS_LOCAL_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>

struct filter_wish {
	bool no_inet; /* sockets of the Internet's families are refused: the network is the host's */
	bool no_unix; /* so are those of the machine: the host's can be seen */
};

/*
 * Builds the filter once; *ret is the caller's, for the life of the process. -EOPNOTSUPP built without
 * libseccomp, -EINVAL the kernel has no filters, -ENOMEM.
 */
int filter_build(const struct filter_wish *wish, struct sock_fprog *ret);
/*
 * Puts the calling thread, which has no_new_privs, under PROG. Does not allocate. 0, or -1 with
 * errno.
 */
int filter_load(const struct sock_fprog *prog);

#endif
