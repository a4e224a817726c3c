/*
 * The state directory: where sandboxes live between mounts.
 *
 *   clean       there while no daemon runs and the last one ended in order
 *   lock        held (flock) by the daemon that owns the directory
 *   mount.json  who has it, or had it last: source, mountpoint, pid
 *   meta/       ID.json, the records
 *   trees/ID/   working trees
 *   trash/ID/   working trees being removed
 *   home/ID/    HOME of the sandbox's commands
 *   nested/ID/  what the host made below trees/ID and commands are not to write
 *   kept/ID/    files that were removed a moment ago (backends/local/trash/removal_log.h)
 *   removed/ID/ files of a sandbox that is gone and has an entry in the trash
 * (backends/local/trash/removed.h) trashed.git/ what teardowns saved where the source is no
 * repository (backends/local/trash/trash.h) git/ID/     their git directory, and what of it the
 * source has (backends/local/gitsync/private_repo.h)
 */
#ifndef SANDBOXFS_LOCAL_STATE_STATE_H
#define SANDBOXFS_LOCAL_STATE_STATE_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "sandboxfs/error.h"

struct sbx_state {
	char *path; /* absolute, without symlinks */
	int dir, lock, meta, trees, trash, home, git, nested, kept, removed;
	struct timespec since; /* when the last one that had it locked began; now if none had */
};

/* One that is not open; sbx_state_close accepts it. */
#define SBX_STATE_CLOSED                                                                           \
	((struct sbx_state){.dir = -1,                                                             \
	                    .lock = -1,                                                            \
	                    .meta = -1,                                                            \
	                    .trees = -1,                                                           \
	                    .trash = -1,                                                           \
	                    .home = -1,                                                            \
	                    .git = -1,                                                             \
	                    .nested = -1,                                                          \
	                    .kept = -1,                                                            \
	                    .removed = -1})

/*
 * Creates PATH (0700, also missing parents) and what belongs in it, and locks it; while it is open
 * nothing that clears temporary directories by age touches it. EBUSY held by another daemon, which
 * err names, or being cleared or removed just now; EACCES not ours or writable by others; ENOTDIR
 * not a directory (a symlink is none).
 */
int sbx_state_open(const char *path, struct sbx_state *ret, struct sbx_error *err);
/* Gives the lock back. */
void sbx_state_close(struct sbx_state *st);

/* Writes down who has it; SOURCE and MOUNTPOINT may be NULL. */
int sbx_state_sign(const struct sbx_state *st, const char *source, const char *mountpoint,
                   struct sbx_error *err);

/*
 * The last daemon that held the state, as it wrote that down. Strings are owned, NULL where it is
 * not known.
 */
struct sbx_state_holder {
	char *source;
	char *mountpoint;
	pid_t pid; /* 0: no process is that one any more */
};

/* Reads it in the state directory DIR, which need not be locked. Release it. */
void sbx_state_holder_read(int dir, struct sbx_state_holder *ret);
/*
 * Whose working tree TREE (STATE/trees/ID) is: "sandbox NAME of the mount at MOUNTPOINT (TREE)".
 * The caller's; NULL: it cannot be told.
 */
char *sbx_state_whose(const char *tree);
/* Frees what *H owns and zeroes it. */
void sbx_state_holder_release(struct sbx_state_holder *h);

/* A fresh id for NAME: "NAME-xxxxxxxx", not in use in this state. The caller's. 0 or -errno. */
int sbx_state_new_id(const struct sbx_state *st, const char *name, char **ret);
/* Takes the tree of ID out of the way. Success when it is not there. */
int sbx_state_trash(const struct sbx_state *st, const char *id, struct sbx_error *err);
/* Removes all that there is of ID but its record. May be repeated. */
int sbx_state_erase(const struct sbx_state *st, const char *id, struct sbx_error *err);
/* Notes that everything is in order at the end. */
void sbx_state_set_clean(const struct sbx_state *st);
/* Takes that note away and returns whether it was there. */
bool sbx_state_take_clean(const struct sbx_state *st);
/* Whether trees/ID is there. */
bool sbx_state_has_tree(const struct sbx_state *st, const char *id);

#endif
