/* One request to a box's machine, for a thread that may wait: what snapshots and pushes are made
 * of. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_ASK_H
#define SANDBOXFS_BACKENDS_REMOTE_ASK_H

#include "backends/remote/remote_impl.h"

struct remote_ask {
	const char *op;          /* as remote_call.op */
	struct remote_text body; /* as remote_call.body; released */
	bool safe;               /* it may be done twice */
	bool writes; /* the tree may be another afterwards, and is listed with the answer */
	uint64_t deadline_ms;
};

/*
 * [wait] Asks the machine of BOX, once it has all that the host had changed. On 0 *REPLY is to be
 * released; what it says of the tree is taken over already. EINTR: *CANCELLED.
 */
int remote_box_ask(struct remote_box *box, struct remote_ask *ask, atomic_bool *cancelled,
                   struct remote_reply *reply, struct sbx_error *err);

/*
 * [wait] BOX is up, and with FLUSHED its machine has all that the host had changed, before or
 * since. It asks for nothing where there is nothing to send. EINTR: *CANCELLED (may be NULL).
 */
int remote_box_await(struct remote_box *box, bool flushed, atomic_bool *cancelled,
                     struct sbx_error *err);

#endif
