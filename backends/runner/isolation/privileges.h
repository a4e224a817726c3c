/* Giving up what a command must not have. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_PRIVILEGES_H
#define SANDBOXFS_RUNNER_ISOLATION_PRIVILEGES_H

#include "sandboxfs/identity.h"

/*
 * Empties the bounding set, which children inherit but a user namespace fills again: what is held
 * stays usable. Before privileges_give_up, which takes away the right to it. Returns 0 or -1 with
 * errno.
 */
int privileges_bound(void);
/*
 * Takes every capability from the calling thread, from every other set, and makes it WHO: all three
 * ids (real, effective, saved) and no groups but who->gid. WHO may be NULL: ids and groups stay.
 * Does not allocate. Returns 0 or -1 with errno.
 */
int privileges_give_up(const struct sbx_identity *who);
/* The same, but the capability CAP stays. */
int privileges_give_up_but(const struct sbx_identity *who, int cap);

#endif
