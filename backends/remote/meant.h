/*
 * Changes that an earlier daemon was about to make when it was killed: names that it meant to take
 * from something. The copy says whether it has done so. Not thread-safe.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_MEANT_H
#define SANDBOXFS_BACKENDS_REMOTE_MEANT_H

#include <stdbool.h>
#include <stddef.h>

#include "sandboxfs/away.h"

/* Zero it to start. */
struct remote_meant {
	struct sbx_change *items; /* strings are owned */
	size_t n, cap;
};

/* Adds a copy of C. 0 or -ENOMEM. */
int remote_meant_add(struct remote_meant *m, const struct sbx_change *c);
/* C was done, or dropped: it is in doubt no more, if it was. */
void remote_meant_remove(struct remote_meant *m, const struct sbx_change *c);
/* Whether C was done, as the names at ROOT, the copy, have it. */
bool remote_meant_was_done(int root, const struct sbx_change *c);
void remote_meant_release(struct remote_meant *m);

#endif
