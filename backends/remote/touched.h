/* Which paths and files the host has changed, and in which batch last. Not thread-safe. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_TOUCHED_H
#define SANDBOXFS_BACKENDS_REMOTE_TOUCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/remote/index.h"
#include "sandboxfs/away.h"

/* Zero it to start. */
struct remote_touched {
	struct remote_index by_path;
	uint64_t floor; /* of batches up to this nothing is known any more */
};

/* C is a change of batch BATCH. 0 or -ENOMEM, and then all counts as changed by BATCH. */
int remote_touched_add(struct remote_touched *t, const struct sbx_change *c, uint64_t batch);
/* As remote_journal_touched(). */
bool remote_touched_since(const struct remote_touched *t, const char *path, uint64_t seen);
/* As remote_journal_touched_file(). */
bool remote_touched_file_since(const struct remote_touched *t, uint64_t ino, uint64_t seen);
/* Batches up to FLOOR are of no interest any more. */
void remote_touched_forget(struct remote_touched *t, uint64_t floor);
void remote_touched_release(struct remote_touched *t);

#endif
