/*
 * Directories that are repositories themselves, without being called .git. Host git goes by the
 * configuration of one wherever it is used in or below it. So only those that came with the source,
 * and those that the host's git has made and no command has changed since, are what they are;
 * others appear as another user's: git refuses them, and says how to allow one that its user
 * trusts.
 */
#ifndef SANDBOXFS_FS_SANDBOX_GITDIR_H
#define SANDBOXFS_FS_SANDBOX_GITDIR_H

#include <stdbool.h>
#include <sys/stat.h>

struct sbx_box;

/*
 * Whether the directory NAME in DIRFD of BOX ("": DIRFD itself), of which stat(2) said ST, is such
 * a one. Any thread.
 */
bool sbx_gitdir_planted(struct sbx_box *box, int dirfd, const char *name, const struct stat *st);

/*
 * Gives ST, of such a directory, another owner, so that git does not trust it. The daemon's user
 * may still use it as before.
 */
void sbx_gitdir_disown(struct stat *st);

/*
 * Whether what git would run for the directory DIRFD is all the host's, now that the host gives one
 * of its files the name NEWNAME instead of NAME, as only git does that has written HEAD or config.
 * When that has been done, sign says that it still is.
 */
bool sbx_gitdir_may_sign(struct sbx_box *box, int dirfd, const char *name, const char *newname);
/*
 * Signs the directory DIRFD, after sbx_gitdir_may_sign said so and the rename was done. Does
 * nothing while a command runs.
 */
void sbx_gitdir_sign(struct sbx_box *box, int dirfd);

#endif
