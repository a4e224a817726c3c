/*
 * Parked requests: FUSE requests whose answer comes later, and what happens when their client is
 * interrupted meanwhile.
 *
 * Any handled signal of the client makes the kernel send one FUSE_INTERRUPT for the request, and no
 * second one; only the process's pending signals tell what it was. So a parked request
 * that was interrupted once is looked at every 100 ms until it is answered
 * (proc(5): SigPnd, ShdPnd, SigBlk, SigIgn of /proc/PID/status).
 */
#ifndef SANDBOXFS_FS_FUSE_INTERRUPT_H
#define SANDBOXFS_FS_FUSE_INTERRUPT_H

#include <fuse_lowlevel.h>

#include "fs/util/reply.h"

struct sbx_loop;
struct sbx_deferred;

/* Makes the process's only one; LOOP must live as long. Destroy *ret. 0 or -ENOMEM. */
int sbx_deferred_create(struct sbx_loop *loop, struct sbx_deferred **ret);
void sbx_deferred_destroy(
        struct sbx_deferred *deferred); /* accepts NULL; nothing is parked any more */
/* REQ is answered later. Any thread; before the request can be answered by anyone. */
void sbx_deferred_add(struct sbx_deferred *deferred, fuse_req_t req, struct sbx_pending *p);
/*
 * Then answer. On the loop thread; elsewhere only when cancel does nothing, since it may be
 * running meanwhile (this waits until it has returned).
 */
void sbx_deferred_remove(struct sbx_deferred *deferred, struct sbx_pending *p);

#endif
