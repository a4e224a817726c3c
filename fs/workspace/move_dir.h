/*
 * Renaming a directory where the file system will not: an ordinary user's overlay answers EXDEV for
 * a directory of its base, as it cannot note where a layer's directory went.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_MOVE_DIR_H
#define SANDBOXFS_FS_WORKSPACE_MOVE_DIR_H

#include "fs/workspace/inode.h"

/*
 * As renameat2(2) of the directory NAME in DIRFD of BOX, by making another and moving what is in
 * it; nodes of TAB go with the directories. Takes time in proportion to what is moved. When it
 * fails all is as before, as far as that can be had. -EXDEV: no directory, or FLAGS ask for what
 * cannot be done so.
 */
int sbx_move_dir(struct sbx_inodes *tab, struct sbx_box *box, int dirfd, const char *name,
                 int newdirfd, const char *newname, unsigned flags);

/*
 * As renameat2(2) of NAME, a file, link or tree, from one file system to another: copied beside
 * NEWNAME, put in its place, and only then removed, so that what fails leaves all as it was. FLAGS:
 * RENAME_NOREPLACE or none. Blocks.
 */
int sbx_move_across(struct sbx_inodes *tab, struct sbx_box *box, int dirfd, const char *name,
                    int newdirfd, const char *newname, unsigned flags);
/* A name that nobody has, for what is on its way. */
void sbx_move_temp(char ret[48]);

#endif
