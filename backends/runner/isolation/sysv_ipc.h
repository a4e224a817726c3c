/* The ipc namespace of a sandbox. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_SYSV_IPC_H
#define SANDBOXFS_RUNNER_ISOLATION_SYSV_IPC_H

#include "sandboxfs/identity.h"

/*
 * Shared memory that no process has attached goes at once, in the caller's own ipc namespace, which
 * NS is a descriptor of, or in a new one that NS is then: where the caller is not root it has to
 * belong to a user namespace in which WHO is. Where the kernel (before 6.9) has neither all stays
 * as it is.
 */
void ipcns_drop_unused(int ns, struct sbx_identity who);

#endif
