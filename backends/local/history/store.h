/* The repository beside a sandbox, and what stands there. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_HISTORY_STORE_H
#define SANDBOXFS_BACKENDS_LOCAL_HISTORY_STORE_H

#include "backends/local/history/history_impl.h"

/* Reads the file NAME in DIR, which holds one id. 0 or -errno: ENOENT, EINVAL it is no id. */
int sbx_local_history_read_id(int dir, const char *name, git_oid *ret);
/* Has the file NAME in DIR hold OID, durably and at once. 0 or -errno. */
int sbx_local_history_write_id(int dir, const char *name, const git_oid *oid);

/*
 * The text of the list of snapshots in the history's directory DIR, "" where there is none;
 * malloc'd. 0 or -errno.
 */
int sbx_local_history_lines(int dir, char **ret);
/*
 * Takes the next well-formed line from *AT, such a text, which it changes: the commit and its
 * time. False at the end.
 */
bool sbx_local_history_line(char **at, git_oid *oid, int64_t *ms);
/*
 * Appends a snapshot to the list in DIR; the disk is waited for as sbx_git_durable_add does. 0 or
 * -errno.
 */
int sbx_local_history_add_line(int dir, const git_oid *oid, int64_t ms);
/* Takes the snapshot OID out of the list in DIR, if it is there and the disk allows it. */
void sbx_local_history_drop_line(int dir, const git_oid *oid);

/* The id of COMMIT's tree. 0 or -errno with a sentence. */
int sbx_local_history_tree_of(git_repository *repo, const git_oid *commit, git_oid *tree,
                              struct sbx_error *err);
/* The ref that keeps the snapshot OID (NULL: what all of the sandbox's begin with). malloc'd. */
char *sbx_local_history_ref(const struct sbx_record *rec, const git_oid *oid);
/*
 * Makes the ref NAME (NULL: ENOMEM) of REPO, the source or what borrows from it, lead to OID,
 * whatever it led to. LOG is for its reflog, or NULL; WHAT for the sentence: "cannot keep WHAT".
 */
int sbx_local_history_make_ref(const struct sbx_snapshot_context *context, git_repository *repo,
                               const char *name, const git_oid *oid, const char *log,
                               const char *what, struct sbx_error *err);

/*
 * Whether a snapshot of the sandbox goes to the store, as no other sandbox is to read it: with
 * what git ignores (IGNORED), or upon one that went there.
 */
bool sbx_local_history_is_apart(const struct sbx_snapshot_context *context, bool ignored);
/* The sandbox's own branch, as a ref; malloc'd. */
char *sbx_local_history_branch(const struct sbx_snapshot_context *context);
/* The names of refs that begin with PREFIX. libgit2's codes. */
int sbx_local_history_find_refs(git_repository *repo, const char *prefix, struct sbx_strings *ret);

#endif
