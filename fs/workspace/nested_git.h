/*
 * Repositories below the root of a sandbox. Host git would run programs that the configuration of
 * a .git names, so a .git that a command made is not shown. A .git that the host makes stands
 * outside the tree, in a store of the sandbox's. A placeholder in the tree keeps its place: an
 * empty file or directory .git. Its inode and birth time are the name in the store. So a restart
 * finds it again, directories above may be renamed, and a command that takes the placeholder away
 * can only make the repository vanish.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_NESTED_GIT_H
#define SANDBOXFS_FS_WORKSPACE_NESTED_GIT_H

#include <stdbool.h>

#include "sandboxfs/error.h"

struct sbx_box;

/* Where a name really stands. */
struct sbx_nested {
	int dirfd;        /* the store, or the directory asked about */
	const char *name; /* in it */
	int store;        /* to be closed, -1: not in the store */
	bool made;        /* the placeholder is new */
	bool dir;
	char key[48];
};

/* Whether NAME is one whose contents are kept apart in BOX. */
bool sbx_nested_is(const struct sbx_box *box, const char *name);
/*
 * Where NAME in the directory DIRFD of BOX stands: there itself, or in the store. -ENOENT: also
 * when a command made it. Any thread. Release it.
 */
int sbx_nested_find(struct sbx_box *box, int dirfd, const char *name, struct sbx_nested *ret);
/*
 * Where NAME is to be made, as a directory or not; a name that is kept apart gets its placeholder.
 * EEXIST it is there; EPERM a command has made it. Then sbx_nested_made tells what came of it (0 or
 * -errno, which it returns) and releases.
 */
int sbx_nested_make(struct sbx_box *box, int dirfd, const char *name, bool dir,
                    struct sbx_nested *ret, struct sbx_error *err);
/*
 * Ends sbx_nested_make with the outcome R, 0 or -errno, which it returns. A failure takes a new
 * placeholder away. Releases N.
 */
int sbx_nested_made(struct sbx_nested *n, int dirfd, int r);
/* Closes the store, if N is in it. May be repeated. */
void sbx_nested_release(struct sbx_nested *n);
/* Removes the placeholder NAME in DIRFD, because what stood in the store for it is gone. */
void sbx_nested_drop(const struct sbx_nested *n, int dirfd, const char *name);
/* As renameat2(2) of NAME to NEWNAME, both of which are kept apart. 0 or -errno: ENOENT also when a
 * command made NAME. */
int sbx_nested_carry(struct sbx_box *box, int dirfd, const char *name, int newdirfd,
                     const char *newname, unsigned flags);
/* Notes that what stands as NAME in DIRFD has its place at PATH, from the sandbox's root. */
void sbx_nested_note(struct sbx_box *box, int dirfd, const char *name, const char *path);
/*
 * Notes that all below OLD is below NEW now, both from the sandbox's root, and with SWAPPED the
 * other way round.
 */
void sbx_nested_moved(struct sbx_box *box, const char *old, const char *new, bool swapped);
/* Whether nothing but a .git that is not shown is in the directory DIRFD. */
bool sbx_nested_alone(struct sbx_box *box, int dirfd);

#endif
