/*
 * Saving what was not committed when a sandbox is torn down. rmdir only notes what there is to
 * save, in the record (save: "tree", or "kept" when the tree was removed file by file), and puts
 * the index aside; the removal that goes on behind does the work, or recovery, from the record
 * alone. Nothing is removed before.
 */
#ifndef SANDBOXFS_LOCAL_TRASH_SAVE_H
#define SANDBOXFS_LOCAL_TRASH_SAVE_H

#include "backends/local/state/objects.h"

#define SBX_TRASHED                                                                                \
	"trashed.git" /* in the state directory: entries of sandboxes that are not of git */

/*
 * Before S is retired, while the worktree's entry is there. Quick. What cannot be put aside (a full
 * disk) is told once: then 0.
 */
int sbx_local_trash_plan(struct sbx_local_sandbox *s, struct sbx_error *err);
/* It was not retired: nothing is to be saved. */
void sbx_local_trash_unplan(struct sbx_local_sandbox *s);
/*
 * Does what REC's save asks for, and notes in REC that it is done. ROOT is the tree, mounted; DISK
 * as in the sandbox. Where the source does not take it, it goes to the state directory. Also when
 * there was nothing to save: 0; with ERR filled: some of it is lost.
 */
int sbx_local_trash_save(struct sbx_local *b, struct sbx_record *rec, int root, int disk,
                         struct sbx_error *err);
/*
 * The same after a crash, with the tree wherever it is. -EAGAIN: it cannot be shown now, and stays
 * for later. 0 with ERR filled: some of it is lost.
 */
int sbx_local_trash_recover(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);
/* Drops entries that are older than the settings say, and tells of each by its name. [pool] */
void sbx_local_trash_expire(struct sbx_local *b, void (*told)(const char *name, void *data),
                            void *data);

/* As sbx_backend_impl.trash. */
int sbx_local_trash_list(struct sbx_backend *base, int (*fn)(const struct sbx_trash *t, void *data),
                         void *data, struct sbx_error *err);

/* The repository of entries: the source, opened as bare, or with GIT false the state directory's,
 * made when MAKE. libgit2's code. */
struct git_repository;
/*
 * Opens the repository of entries: the source COMMON as bare or, with COMMON NULL, the state
 * directory's, which MAKE makes where it is missing. The caller frees *RET. 0 or libgit2's code.
 */
int sbx_local_trash_repo(struct sbx_local *b, const char *common, bool make,
                         struct git_repository **ret);

#endif
