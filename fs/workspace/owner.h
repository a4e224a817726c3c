/*
 * The translation of file owners. A daemon of root's keeps overlay trees as the files of the user
 * whom commands run as, and shows them as its own, as it shows all others. Where the daemon is
 * that user there is nothing to translate.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_OWNER_H
#define SANDBOXFS_FS_WORKSPACE_OWNER_H

#include <sys/stat.h>

struct sbx_box;

/* Translates what stat(2) said of a file in BOX (NULL: of none). */
void sbx_owner_show(const struct sbx_box *box, struct stat *st);
/* And back, what a client asks chown(2) for; -1 stays. */
void sbx_owner_hide(const struct sbx_box *box, uid_t *uid, gid_t *gid);
/*
 * Gives NAME in DIRFD ("": DIRFD itself), which was just made in the directory DIR of BOX, to its
 * owner: 0 or -errno. DIR is -1 where its group does not matter.
 */
int sbx_owner_give(const struct sbx_box *box, int dir, int dirfd, const char *name);

#endif
