/* What the files of worktree_include share. */
#ifndef SANDBOXFS_LOCAL_WORKTREEINCLUDE_FIND_IMPL_H
#define SANDBOXFS_LOCAL_WORKTREEINCLUDE_FIND_IMPL_H

#include "backends/local/worktreeinclude/find.h"
#include "backends/support/fsutil.h"

/* Some files of one directory. */
struct sbx_include_batch {
	char *dir; /* "" the top */
	struct sbx_names names;
};

#define SBX_INCLUDE_BATCH 128 /* names of a batch at most */

/* In an order in which parents come before what is in them. */
struct sbx_include_list {
	struct sbx_include_batch *at;
	size_t n, room;
};

/* Whether the entry NAME of the directory FD is to be left out as the caller wishes. */
bool sbx_include_skips(const struct sbx_include *in, int fd, const char *name);

/* Copies what LIST says from SOURCE, the top of the working tree. */
int sbx_include_copy(struct sbx_include *in, int source, const struct sbx_include_list *list,
                     struct sbx_error *err);

#endif
