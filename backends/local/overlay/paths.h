/* The paths of a sandbox's git state and of its layers, as its record tells them. Any thread. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_PATHS_H
#define SANDBOXFS_LOCAL_OVERLAY_PATHS_H

#include <git2.h>

#include "backends/local/state/objects.h"

#define SBX_LOCAL_TRASH_INDEX                                                                      \
	"trashed" /* in git/ID: the index, once the worktree's entry is gone */

/* The worktree's entry of REC, open, or a negative errno. */
int sbx_local_entry_open(const struct sbx_record *rec, struct sbx_error *err);
/* The commit that is checked out, by ENTRY. EINVAL: none. */
int sbx_local_head(const struct sbx_record *rec, int entry, char ret[GIT_OID_HEXSZ + 1],
                   struct sbx_error *err);
/* The upper layer of REC, open for reading, wherever it is, or a negative errno; DISK as in the
 * sandbox. */
int sbx_local_upper(const struct sbx_local *b, const struct sbx_record *rec, int disk);
/* The same of the repository that commands have. */
int sbx_local_repo(const struct sbx_local *b, const struct sbx_record *rec, int disk);
/* Whose the files of its tree are. */
struct sbx_identity sbx_local_owner(const struct sbx_local *b, const struct sbx_record *rec);
/* The directory in the cache of the base that REC stands on, open, or a negative errno. */
int sbx_local_base_dir(const struct sbx_local *b, const struct sbx_record *rec);

/*
 * Which of sbx_result_names are in the tree of REC as it was made (struct sbx_tree.own_results).
 * FRESH: it is being made, so that what lies over its base is of the source too.
 */
unsigned sbx_local_results(const struct sbx_local *b, const struct sbx_record *rec, bool fresh);

#endif
