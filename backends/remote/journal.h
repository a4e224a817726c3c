/*
 * The journal: what the host has changed in a tree and the machine does not have yet. A line is
 * written before the operation is answered, so that a killed daemon loses none. Lines are cut into
 * batches, which are sent one after another; a batch that the machine has is forgotten.
 *
 *   DIR/journal.N   the lines of batch N: SEQ OP PATH..., each word percent-encoded
 *
 * Thread-safe.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_JOURNAL_H
#define SANDBOXFS_BACKENDS_REMOTE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/remote/text.h"
#include "sandboxfs/away.h"

struct remote_journal;

/*
 * Opens the journal in the directory DIR, which is the caller's, with what an earlier daemon left.
 * A last line that is not whole was never answered, and is dropped. EUCLEAN: it is damaged.
 */
int remote_journal_open(int dir, struct remote_journal **ret, struct sbx_error *err);
void remote_journal_close(struct remote_journal *j); /* accepts NULL; what is unsent stays */

/* As sbx_away_impl.admit: room for one line of any length is there, until changed. -ENOSPC... */
int remote_journal_admit(struct remote_journal *j, struct sbx_error *err);
/* As sbx_away_impl.changed. */
void remote_journal_note(struct remote_journal *j, const struct sbx_change *c);

/* Whether anything is unsent, batches that are being sent included. */
bool remote_journal_pending(struct remote_journal *j);
/* Whether PATH, or a directory above it, was changed after batch SEEN, or any below it was made,
 * moved or removed so. */
bool remote_journal_touched(struct remote_journal *j, const char *path, uint64_t seen);
/* Calls fn for each file whose contents are unsent, with its present path. For a restart. */
void remote_journal_walk(struct remote_journal *j,
                         void (*fn)(const char *path, uint64_t ino, void *data), void *data);

/* A file whose contents a batch puts: number i of the array is put as the number i. */
struct remote_place {
	uint64_t ino;
	char *path; /* where it is now on this side, "" when it is gone */
};

/* A batch: all lines from the oldest that is unsent, up to a cut. Constant. */
struct remote_batch {
	uint64_t number; /* 1.. */
	struct remote_place *places;
	size_t n;
};
/*
 * The oldest batch that the machine does not have; what is noted from now on is in a later one.
 * NULL: there is none. The same again until remote_journal_sent. A batch of an earlier daemon comes
 * as that one cut it.
 */
struct remote_batch *remote_journal_cut(struct remote_journal *j);
/*
 * Adds to OUT the lines that do what the batch says, to be run by the runner's r_apply in the
 * tree: step by step, numbered, each of which is done once, also when the lines run again after
 * having been broken off anywhere. Contents are taken from files named by number in the directory
 * $R_IN; HAS says which of the places were put. A step that cannot be done (its file is gone there)
 * is told by r_refused and passed over. Ends with the paths that were sent, for their manifest.
 */
void remote_batch_script(const struct remote_batch *b, const bool *has, struct remote_text *out);
/* The machine has batch NUMBER: it is forgotten. */
void remote_journal_sent(struct remote_journal *j, uint64_t number);
/* The number of the last batch that the machine has. */
uint64_t remote_journal_seen(struct remote_journal *j);

#endif
