/*
 * A thread that syncs what a create has written, because the create does not wait for the disk.
 * Until then a power cut leaves empty files: a record, the files that lead git to the sandbox.
 * With the thread that lasts a moment, and not the half minute that the kernel takes.
 */
#ifndef SANDBOXFS_LOCAL_SYNCER_H
#define SANDBOXFS_LOCAL_SYNCER_H

#include "backends/local/local_impl.h"

struct sbx_syncer;

/* Starts the thread; recovery is over. 0 or a negative errno with a sentence. */
int sbx_local_syncer_start(struct sbx_local *b, struct sbx_error *err);
/* Has what leads to the sandbox REC written out soon, if the thread was started. Any thread. */
void sbx_local_sync_soon(struct sbx_local *b, const struct sbx_record *rec);
/*
 * Has the store of the source get its directories soon, once, because what was written to it is
 * not the last. Any thread.
 */
void sbx_local_sync_store(struct sbx_local *b);
/* Ends the thread when all is done that was asked for. Accepts NULL. */
void sbx_local_syncer_stop(struct sbx_syncer *syncer);

#endif
