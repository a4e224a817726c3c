/* What the two files about control groups share: reading, writing, walking. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_CGROUP_IMPL_H
#define SANDBOXFS_RUNNER_ISOLATION_CGROUP_IMPL_H

#include <stddef.h>

#include "backends/runner/isolation/cgroup.h"

/* The text of FILE, NUL-terminated. Returns its length, or a negative errno: -E2BIG past SIZE. */
int cgroup_read(int dir, const char *file, char *ret, size_t size);
/* Calls fn for each directory in DIR. */
void cgroup_each(int dir, void (*fn)(int dir, const char *name, void *data), void *data);
/* Removes NAME in DIR and all that is in it, as far as no process is. */
void cgroup_remove_tree(const struct cgroup *g, int dir, const char *name);

#endif
