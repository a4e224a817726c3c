/*
 * A parcel: a batch of the journal on its way. Its contents are put into the machine; then it is a
 * few lines for the front of a call, which any number of calls may carry, because the runner does
 * them once.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_PARCEL_H
#define SANDBOXFS_BACKENDS_REMOTE_PARCEL_H

#include "backends/remote/call.h"
#include "backends/remote/journal.h"
#include "backends/remote/tree.h"
#include "sandboxfs/loop.h"

struct sbx_pool;

struct remote_parcel_config {
	struct sbx_sandbox *sandbox;
	struct sbx_loop *loop;
	struct sbx_pool *pool;
	struct remote_journal *journal;
	struct remote_tree *tree;
	struct remote_link *link;
	/* [loop] Once for each remote_parcel_load. CODE 0: it is loaded, or EMPTY. */
	void (*loaded)(int code, const struct sbx_error *err, void *data);
	void *data;
};

/* Zero it to start, and set the configuration. */
struct remote_parcel {
	struct remote_parcel_config config;
	uint64_t number;          /* of the batch; 0: empty */
	struct remote_text lines; /* where it is loaded */
	uint64_t apply_ms;        /* that those surely take no longer than */
	bool full;    /* there was no room for it: what later batches remove there goes first */
	bool cleared; /* that was tried since it is loaded */
	/* private: */
	bool cancelled;
	struct remote_batch *batch; /* the journal's */
	struct remote_load load;
	struct sbx_machine_put put;
	bool putting, pausing;
	bool clears;
	struct remote_call clear; /* for that */
	struct sbx_timer again;   /* of a put that failed */
	uint64_t due_ns;          /* no repeat begins later */
	unsigned repeats;
	struct sbx_want want; /* for contents that are not wholly here */
	int code;
	struct sbx_error err;
};

/*
 * [loop] Cuts the oldest batch that the machine does not have and puts it, a load at a time;
 * loaded follows.
 */
void remote_parcel_load(struct remote_parcel *p);
/* [loop] loaded follows soon, if it was not called yet. */
void remote_parcel_cancel(struct remote_parcel *p);
/* [loop] The machine has it: it is empty again. */
void remote_parcel_delivered(struct remote_parcel *p);
/* [loop] It is empty; a batch that was cut is cut again. */
void remote_parcel_release(struct remote_parcel *p);

#endif
