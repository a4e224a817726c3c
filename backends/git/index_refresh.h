/*
 * An index that goes along with a copy of the tree it belongs to. What it says of the files by
 * which git tells that they are unchanged (change time, inode) is not true of their copies: it is
 * brought up to date for those that were unchanged, so that no file has to be read. Until then it
 * is slower, and as true.
 */
#ifndef SANDBOXFS_GIT_INDEX_REFRESH_H
#define SANDBOXFS_GIT_INDEX_REFRESH_H

#include <sys/stat.h>
#include <time.h>

#include "backends/git/index.h"

/* Zero it to start. */
struct sbx_index_carry {
	char *data; /* NULL: there is no index */
	size_t len;
	struct timespec mtime;
	struct sbx_index index; /* of DATA, where it could be taken apart */
	size_t *fresh;          /* entries whose files were unchanged when they were copied */
	size_t n, cap;
};

/* Reads the index in the worktree's entry ENTRY, before anything is copied. 0, also when there is
 * none, or -errno. */
int sbx_index_carry_read(struct sbx_index_carry *c, int entry);
/* As sbx_copy.copied; DATA is the carry. */
int sbx_index_carry_copied(const char *path, const struct stat *st, void *data);
/* Puts it, as it was read, into the entry ENTRY. 0 or -errno. */
int sbx_index_carry_write(const struct sbx_index_carry *c, int entry);
/* Puts what is true of the copies in the tree ROOT into the index in ENTRY. 0 or -errno: it stays
 * as it was. */
int sbx_index_carry_refresh(struct sbx_index_carry *c, int entry, int root);
/* Frees what C owns and zeroes it. */
void sbx_index_carry_release(struct sbx_index_carry *c);

#endif
