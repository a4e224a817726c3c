/*
 * Control groups (cgroup v2), as far as a mount of ours may make its own: what they would limit,
 * or why there are none.
 */
#ifndef SANDBOXFS_CGROUP_H
#define SANDBOXFS_CGROUP_H

#include <stdbool.h>

struct sbx_cgroup_features {
	bool memory, pids, cpu; /* the controllers that we may use */
	char reason[192];       /* why none is; "" when one is */
};

/* Finds out without changing anything. Any thread. */
void sbx_cgroup_probe(struct sbx_cgroup_features *ret);

#endif
