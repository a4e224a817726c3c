/*
 * When what the host has changed is sent, and who waits for it: before a command, for an fsync, two
 * seconds after the last change, sooner where somebody waits for it, at the end. A batch rides with
 * whatever is sent next anyhow.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_SYNC_H
#define SANDBOXFS_BACKENDS_REMOTE_SYNC_H

#include "backends/remote/call.h"
#include "backends/remote/journal.h"
#include "backends/remote/tree.h"

struct remote_sync;
struct remote_works;

struct remote_sync_config {
	struct sbx_sandbox *sandbox;
	struct sbx_loop *loop;
	struct sbx_pool *pool;      /* wide */
	struct remote_works *works; /* or NULL */
	struct remote_journal *journal;
	struct remote_tree *tree;
};
int remote_sync_create(const struct remote_sync_config *config, struct remote_sync **ret);
/* Nobody rides or waits any more. Accepts NULL. */
void remote_sync_destroy(struct remote_sync *s);
/* [loop] As remote_tree_connect and remote_tree_fail. */
void remote_sync_connect(struct remote_sync *s, struct remote_link *link);
void remote_sync_fail(struct remote_sync *s, int code, const char *text);

/* Something that is to see all that the host had changed when it began. Embedded by its owner. */
struct remote_ride {
	/*
	 * [loop] Once. On 0 the lines that bring the machine up to date stand in BODY, perhaps
	 * none, to be sent at the front of the owner's call, after which remote_sync_landed
	 * follows in any case. Until then no other ride is ready. On a failure nothing follows.
	 */
	void (*ready)(struct remote_ride *ride, int code, const struct sbx_error *err);
	struct remote_text body;
	uint64_t apply_ms; /* that those lines surely take no longer than: the call's deadline is
	                    * later by so much */
	/* private: */
	struct remote_sync *sync;
	struct remote_ride *next;
	uint64_t needs; /* the batch that has the last change before it boarded */
	uint64_t batch, seen;
	bool carries;
};
/* [any] Without the turn. */
void remote_sync_board(struct remote_sync *s, struct remote_ride *ride);
/* [loop] The owner's call has ended by CODE with REPLY (NULL on a failure). Releases ride->body. */
void remote_sync_landed(struct remote_ride *ride, int code, const struct remote_reply *reply);
/* The batch up to which the machine has everything when the call of RIDE runs. [loop] */
uint64_t remote_ride_seen(const struct remote_ride *ride);
/* [loop] done follows for RIDE at once with EINTR, if it is not ready yet; returns whether. */
bool remote_sync_leave(struct remote_ride *ride);

/* [any] As sbx_away_impl.flush. */
void remote_sync_flush(struct remote_sync *s, struct sbx_want *w);
/* [loop] As sbx_away_impl.unwant of such a one. */
void remote_sync_unwant(struct remote_sync *s, struct sbx_want *w);
/* [any] The host has changed something. */
void remote_sync_changed(struct remote_sync *s);
/* [any] Somebody waits for what has not been sent: it does not wait for more. */
void remote_sync_awaited(struct remote_sync *s);
/* [any] Commands run, or do no more: meanwhile changes are sent sooner. */
void remote_sync_busy(struct remote_sync *s, bool busy);

#endif
