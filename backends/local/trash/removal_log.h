/*
 * A log of files that a removal has taken out of a sandbox, so that the trash can have the tree
 * as it was before. `rm -rf` of a sandbox unlinks file by file before it comes to the directory
 * itself.
 *
 * A batch is a run of removals, by whatever process, with no other write in between. Before a
 * file of the sandbox's own goes, one more link to it is made on its file system; of a file of
 * the base only the name is noted. When the batch is over, or nothing was removed for a minute,
 * the log is dropped in the background. It is dropped at once when a write finds no room, and
 * after a second on a disk of limited size while a command runs.
 *
 *   kept/ID/log      a record for each name: KIND INODE LINK PATH, ended by a NUL
 *   kept/ID/ROW-N    the links
 */
#ifndef SANDBOXFS_LOCAL_TRASH_REMOVAL_LOG_H
#define SANDBOXFS_LOCAL_TRASH_REMOVAL_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_removal_log;   /* of a backend: drops what is over */
struct sbx_removal_batch; /* of a sandbox */

/* 0 or a negative errno. */
int sbx_removal_new(struct sbx_removal_log **ret);
/* All rows have been closed. Accepts NULL. */
void sbx_removal_free(struct sbx_removal_log *kept);

/* Where a row's files are. ROOM and OWN are taken over. */
struct sbx_removal_paths {
	int room;       /* directory for directories of sandboxes, on the file system of OWN */
	const char *id; /* name in it */
	int root;       /* the tree */
	const atomic_uint *edits; /* differs when something else was written than removals */
	/* Or NULL: commands take room from the same little as the row. */
	const atomic_bool *shared;
	int own; /* what of it is the sandbox's own: its upper layer, or the tree itself; open for
	            reading */
};

/* 0 or -ENOMEM: then nothing was taken over. Makes nothing on disk. */
int sbx_removal_open(struct sbx_removal_log *kept, const struct sbx_removal_paths *place,
                     struct sbx_removal_batch **ret);
/* Removes what there is, unless it is held. Accepts NULL. */
void sbx_removal_close(struct sbx_removal_batch *row);

/*
 * [any] NAME in DIRFD, a directory of the tree, is about to be removed. What cannot be kept is
 * lost: hold says so.
 */
void sbx_removal_removing(struct sbx_removal_batch *row, int dirfd, const char *name);
/*
 * Ends the row and holds it as it is, for a teardown: 1, and what there is then is not dropped any
 * more; 0 there is none, or something was written since; or a negative errno: it cannot be written
 * now. *LOST is not 0 where some of it could not be kept, and says why.
 */
int sbx_removal_hold(struct sbx_removal_batch *row, int *lost);
/* [any] Something else was written, or is going to be: what was kept need not wait for its time. */
void sbx_removal_over(struct sbx_removal_batch *row);
/*
 * [any] Drops some of what is kept, as there is no room for a write. Whether there was something,
 * so that the write may be tried again; what another thread has dropped meanwhile has made its
 * room by then.
 */
bool sbx_removal_make_room(struct sbx_removal_batch *row);

enum sbx_removal_kind {
	SBX_REMOVAL_BASE, /* it was the base's */
	SBX_REMOVAL_FILE, /* it is kept as LINK */
	SBX_REMOVAL_NAME, /* it had other names: the file of the same inode is the one that went
	                     last */
};

/* One removed name. */
struct sbx_removal_entry {
	enum sbx_removal_kind kind;
	uint64_t ino; /* of the base's as the tree showed it */
	const char *link;
	const char *path;
};

/*
 * Calls fn for each name that the directory DIR (kept/ID, open) holds, the last removal of a path
 * last; a non-zero return ends it and is returned. 0 or -errno.
 */
int sbx_removal_each(int dir, int (*fn)(const struct sbx_removal_entry *e, void *data), void *data);

#endif
