/*
 * A hierarchy of cgroups in a temporary directory: what the kernel would make of mkdir, rmdir and
 * write, with its refusals. One at a time.
 */
#ifndef SANDBOXFS_TESTS_FAKE_CGROUP_H
#define SANDBOXFS_TESTS_FAKE_CGROUP_H

#include "backends/runner/isolation/cgroup.h"

extern const struct cgroup_kernel fake_cgroup_kernel;

/* Makes the root of the hierarchy, which has CONTROLLERS ("memory pids cpu"); returns its path. */
const char *fake_cgroup_start(const char *controllers);
/* Makes the cgroup PATH ("user/app"); its controllers are those its parent has switched on. */
void fake_cgroup_add(const char *path);
/* Puts PID there, wherever it was. */
void fake_cgroup_put(const char *path, pid_t pid);
/* Writes as a user would; fails the test when the kernel would refuse. */
void fake_cgroup_write(const char *path, const char *file, const char *text);
/* What a file holds, in a static buffer, without the last newline; NULL when there is none. */
const char *fake_cgroup_read(const char *path, const char *file);

#endif
