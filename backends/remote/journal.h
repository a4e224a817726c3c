/*
 * The journal: what the host has changed in a tree and the machine does not have yet. A line is
 * written before the operation is answered, so that a killed daemon loses none. Lines are cut into
 * batches, which are sent one after another; a batch that the machine has is forgotten.
 *
 *   DIR/journal.N   a head, and the lines of batch N: SEQ OP INO MODE PATH..., see line.h
 *
 * What takes a name from something has a line before it is done as well, because a daemon may be
 * killed before it can say that it was done, and then nothing would be found by the old name.
 *
 * Thread-safe. TURN is the sandbox's.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_JOURNAL_H
#define SANDBOXFS_BACKENDS_REMOTE_JOURNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/remote/provider.h"
#include "backends/remote/text.h"
#include "sandboxfs/away.h"

struct remote_journal;

/*
 * Opens the journal in the directory DIR, which is the caller's, with what an earlier daemon left.
 * A last line that is not whole was never answered, and is dropped. EUCLEAN: it is damaged.
 */
int remote_journal_open(int dir, struct remote_journal **ret, struct sbx_error *err);
void remote_journal_close(struct remote_journal *j); /* accepts NULL; what is unsent stays */

/*
 * [disk] What an earlier daemon meant to do when it was killed is looked for in ROOT, the copy, and
 * is noted if it was done. Follows the opening, before anything else.
 */
void remote_journal_resolve(struct remote_journal *j, int root);

/*
 * As sbx_away_impl.admit: MEANT (or NULL) has its line, and room for another is there until note or
 * drop. -ENOSPC, -EDQUOT. -EIO: a line could not be written before, and so no change is taken any
 * more.
 */
int remote_journal_admit(struct remote_journal *j, const struct sbx_change *meant,
                         struct sbx_error *err);
/*
 * As sbx_away_impl.changed. Contents that are unsent since the last cut are not noted again. A
 * rename between two names of one file, which changes nothing, is none.
 */
void remote_journal_note(struct remote_journal *j, const struct sbx_change *c);
/* As sbx_away_impl.dropped. */
void remote_journal_drop(struct remote_journal *j, const struct sbx_change *meant);

/*
 * [disk] Adds to OUT the line that removes in the machine what unsent batches remove, for where its
 * disk is too full for the oldest of them. These are some of the files that ROOT, the copy, does
 * not have, and of which, as of the directories above, nothing else is unsent but that they go.
 * Nothing where there are none, or where too much is unsent to look through.
 */
void remote_journal_clear(struct remote_journal *j, int root, struct remote_text *out);
/* Whether anything is unsent, batches that are being sent included. */
bool remote_journal_pending(struct remote_journal *j);
/* The batch that has the last change; the machine has all when remote_journal_seen is that. */
uint64_t remote_journal_noted(struct remote_journal *j);
/*
 * Whether PATH, or a directory above it, was changed after batch SEEN, or any below it was made,
 * moved or removed so. Perhaps true for no reason where SEEN is of some minutes ago.
 */
bool remote_journal_touched(struct remote_journal *j, const char *path, uint64_t seen);
/* Whether contents, mode or times of the file INO were changed after batch SEEN, by any name. */
bool remote_journal_touched_file(struct remote_journal *j, uint64_t ino, uint64_t seen);
/*
 * Whether what was changed of the file INO, which has several names, is unsent and would not come
 * to the machine if one of them were removed: no change that is unsent has told of the others.
 */
bool remote_journal_hangs(struct remote_journal *j, uint64_t ino);
/*
 * Calls fn for each present path of each file whose contents are unsent, perhaps more than once.
 * For a restart. 0 or -ENOMEM, without a call.
 */
int remote_journal_walk(struct remote_journal *j,
                        void (*fn)(const char *path, uint64_t ino, void *data), void *data);

/* A file whose contents a batch puts. */
struct remote_place {
	uint64_t ino;
	bool put; /* by the last round of loads: else it was gone on this side by then */
};

/* A batch: all lines from the oldest that is unsent, up to a cut. */
struct remote_batch {
	uint64_t number; /* 1.. */
	struct remote_place *places;
	size_t n;
	uint64_t apply_ms; /* that its lines surely take no longer than; of the last round */
};
/*
 * [disk] The oldest batch that the machine does not have; what is noted from now on is in a later
 * one. *RET is NULL where there is none. It is the journal's, and the same again until
 * remote_journal_sent; a round of loads begins anew. A batch of an earlier daemon comes as that one
 * cut it. The turn is held alone, so that no write is between its note and itself. -ENOSPC,
 * -EDQUOT: what is noted next has no room. -ENOMEM.
 */
int remote_journal_cut(struct remote_journal *j, struct remote_batch **ret, struct sbx_error *err);

/* Where the contents that a batch puts are. */
struct remote_source {
	int root;               /* of the copy */
	pthread_rwlock_t *turn; /* taken while a file is looked for; NULL: nobody renames */
	/* [disk] As remote_tree_open_file(); with the turn. */
	int (*open)(const char *path, uint64_t ino, void *data);
	/* [any] What a link to TARGET says there; malloc'd. NULL: the same. */
	char *(*text)(const char *target, void *data);
	void *data;
};

#define REMOTE_LOAD_BYTES ((size_t)16 * 1024 * 1024)
/* Files of this layer in $R_IN have numbers from this one on; all others are below. */
#define REMOTE_LOAD_NUMBER 0x80000000u

/* What is to be put into the machine before the batch is applied there. Release it. */
struct remote_load {
	struct sbx_machine_file *files; /* of which descriptors and data are the load's */
	size_t n;
	char *missing; /* of EAGAIN: the file's present path */
	uint64_t ino;
};
/*
 * [disk] The next load of the batch, of about REMOTE_LOAD_BYTES, or of one file that is larger.
 * None (n is 0) when all are done: then remote_batch_script. Small files share one file of the
 * machine. -EAGAIN: the contents of RET->missing are not wholly here, and the same load can be
 * asked for again when they are. Other failures end the round: it begins with the next cut. Without
 * the turn; one load at a time.
 */
int remote_batch_load(struct remote_journal *j, struct remote_batch *b,
                      const struct remote_source *from, struct remote_load *ret,
                      struct sbx_error *err);
void remote_load_release(struct remote_load *load);
/*
 * Adds to OUT the lines that do what the batch says, for the front of a call whose loads were all
 * put: step by step, numbered, each of which is done once, also when the lines run again after
 * having been broken off anywhere, or by several runners at once. A step that cannot be done (its
 * file is gone there) is told by a frame REMOTE_STEP, whose bytes are the path, NUL, and why; and
 * passed over. Frames REMOTE_MANIFEST tell how the files are then that were put, or touched. The
 * lines end the call by REMOTE_FAILED where they cannot go on; then another round of loads is
 * needed.
 */
void remote_batch_script(const struct remote_batch *b, struct remote_text *out);
/* Whether step NUMBER of the batch, as a frame REMOTE_STEP has it, moves or links: from where to
 * where. The paths are the batch's. */
bool remote_batch_moves(const struct remote_batch *b, uint64_t number, const char **from,
                        const char **to);
/* Whether step NUMBER is that of a socket, which a machine never takes. */
bool remote_batch_is_socket(const struct remote_batch *b, uint64_t number);
/* The machine has batch NUMBER, the oldest: it is forgotten, and its struct freed. */
void remote_journal_sent(struct remote_journal *j, uint64_t number);
/* The number of the last batch that the machine has. */
uint64_t remote_journal_seen(struct remote_journal *j);

#endif
