/* Resource limits of a command, as far as setrlimit(2) enforces them. */
#ifndef SANDBOXFS_RUNNER_SPAWNER_RLIMITS_H
#define SANDBOXFS_RUNNER_SPAWNER_RLIMITS_H

#include <sys/resource.h>

#include "backends/runner/spawner/protocol.h"

/*
 * Applies cpu_s, memory_mb, procs and file_mb to the calling process; the open file limit
 * becomes NOFILE. Address space is not limited where FEATURES has a cgroup for memory: some
 * programs reserve far more than they use. procs counts what is in the user namespace, a leader
 * that waits there too; where FEATURES has none, all that the user runs, which the default must not
 * be held against. A limit above what we may set becomes the highest we may. Does not allocate (it
 * runs between vfork and exec). Returns 0 or -1 with errno.
 */
int limits_apply(const struct sbx_limits *limits, const struct spawn_features *features,
                 const struct rlimit *nofile);

/*
 * No core dumps of the calling process and of what it starts. One byte is no file, and tells the
 * kernel to start no program of core_pattern's either, which 0 does not (core(5)). Where the hard
 * limit is 0 it stays so. 0 or -1 with errno.
 */
int limits_no_core(void);

#endif
