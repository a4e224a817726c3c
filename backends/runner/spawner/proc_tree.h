/* The descendants of a process, where no pid namespace keeps them together. */
#ifndef SANDBOXFS_RUNNER_SPAWNER_PROC_TREE_H
#define SANDBOXFS_RUNNER_SPAWNER_PROC_TREE_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Sends SIG to all that descends from ROOT at this moment, but not to those children of ROOT for
 * which SPARE (may be NULL) says true, nor to what descends from them. Returns how many children of
 * ROOT were among them. A process is identified by pid and start time: one that got
 * the pid of a dead one is not hit.
 */
int descend_signal(pid_t root, bool (*spare)(pid_t pid, void *data), void *data, int sig);

#endif
