/* Giving up what a command must not have. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_PRIVILEGES_H
#define SANDBOXFS_BACKENDS_LOCAL_PRIVILEGES_H

#include "sandboxfs/identity.h"

/*
 * Both for the calling thread, without allocating; they return 0 or -1 with errno. BECOME: no
 * groups but who->gid, all three ids (real, effective, saved) WHO's; a process that is WHO already
 * keeps its groups. DROP: every capability from every set, the bounding set first.
 */
int privileges_become(const struct sbx_identity *who);
int privileges_drop(void);

#endif
