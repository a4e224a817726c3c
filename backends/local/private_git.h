/* The git repository that the commands of one sandbox see in place of the host's. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_PRIVATE_GIT_H
#define SANDBOXFS_BACKENDS_LOCAL_PRIVATE_GIT_H

#include "backends/local/local_impl.h"

/* The text of the tree's .git, as commands see it, malloc'd; NULL without memory. */
char *sbx_local_git_link(const struct sbx_local *b, const struct sbx_record *rec);
/*
 * Writes the files in the source's worktree entry again that lead to the repository of REC, if a
 * power cut has left them empty. Before anything uses the entry.
 */
void sbx_local_git_mend_entry(const struct sbx_local *b, const struct sbx_record *rec);
/* The same of the tree's .git, by which commands go, in the directory ROOT. */
void sbx_local_git_mend_link(const struct sbx_local *b, const struct sbx_record *rec, int root);
/*
 * Opens the private repository of REC: 0, also when there is none (*ret is NULL). STRINGS of REC
 * are borrowed.
 */
int sbx_local_git_open(const struct sbx_local *b, const struct sbx_record *rec,
                       struct sbx_git_private **ret);

/*
 * Brings git's state in step (sbx_git_private_sync), once no command of S that left something
 * locked is alive. The caller has S->syncing.
 */
int sbx_local_git_sync(struct sbx_local_sandbox *s, struct sbx_error *err);

#endif
