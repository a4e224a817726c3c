/*
 * The files of sandboxes that are gone. git cannot say all that is in a tree: ignored files, modes,
 * repositories in it, names that it refuses. So a tree that has an entry in the trash is not
 * removed with its sandbox but moved, and a sandbox that is made from the entry has all of it
 * again.
 *
 *   removed/ID/ID.json   the record of the sandbox
 *   removed/ID/tree/     what was in trees/ID: the upper layer, or the whole tree
 *   removed/ID/nested/   what was in nested/ID
 *   removed/ID/index     git: the index
 *
 * They go with their entry. Where the file system is nearly full the oldest go before.
 */
#ifndef SANDBOXFS_LOCAL_TRASH_REMOVED_H
#define SANDBOXFS_LOCAL_TRASH_REMOVED_H

#include "backends/local/state/objects.h"

struct sbx_removed_watch;

/*
 * Prepares a place for what REC, which has keep, will leave: before its base is given back. 0 or a
 * negative errno with a sentence. May be repeated, as the next.
 */
int sbx_local_removed_prepare(struct sbx_local *b, const struct sbx_record *rec,
                              struct sbx_error *err);
/* Moves what there is of REC there, once nothing is mounted of it. */
int sbx_local_removed_take(struct sbx_local *b, const struct sbx_record *rec,
                           struct sbx_error *err);

/* The files that were kept of one removed sandbox. */
struct sbx_removed {
	int dir;               /* removed/ID, open */
	struct sbx_record rec; /* of the sandbox */
};

/*
 * Opens what there is of ID, so that it stays until it is closed. 0, or -ENOENT: nothing, or
 * another negative errno.
 */
int sbx_local_removed_open(struct sbx_local *b, const char *id, struct sbx_removed *ret);
/*
 * Closes what sbx_local_removed_open has opened: from here on it may be removed. May be repeated.
 */
void sbx_local_removed_close(struct sbx_local *b, struct sbx_removed *removed);
/* Whether there is something of ID. */
bool sbx_local_removed_has(const struct sbx_local *b, const char *id);

/*
 * Starts the thread that drops what has no entry any more, and what has to go as there is no room.
 * It tells host->dropped of each. Recovery is over.
 */
int sbx_local_removed_watch(struct sbx_local *b, struct sbx_error *err);
/* Accepts NULL. */
void sbx_local_removed_unwatch(struct sbx_removed_watch *watch);

#endif
