/* The names in a sandbox's tree: how one is made, removed and moved. Any thread. */
#ifndef SANDBOXFS_FS_WORKSPACE_TREE_H
#define SANDBOXFS_FS_WORKSPACE_TREE_H

#include <limits.h>

#include "fs/workspace/workspace.h"

/* The kind of a file to be made. */
struct ws_new {
	mode_t mode;             /* with the type */
	const char *target;      /* of a symbolic link */
	int file;                /* the name is another one of this file; else -1 */
	struct sbx_node *linked; /* then: the file's */
	bool open; /* a regular file, opened for reading and writing; it may be there */
	int flags; /* then: O_EXCL, O_TRUNC */
};

/*
 * Makes NAME in DIR, whose descriptor is DIRFD. 0, the descriptor of what is opened (the caller's),
 * or -errno, with ERR where there is more to say. -ESTALE: a link stands in the way now.
 */
int ws_tree_make(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name,
                 const struct ws_new *what, struct sbx_error *err);
/* Removes NAME; FLAGS as of unlinkat(2). 0 or -errno, with ERR where there is more to say. */
int ws_tree_remove(struct sbx_workspace *ws, struct sbx_node *dir, int dirfd, const char *name,
                   int flags, struct sbx_error *err);

/* A rename within a sandbox. */
struct ws_rename {
	struct sbx_workspace *ws;
	struct sbx_node *dir, *newdir;
	struct sbx_fd *fd, *newfd; /* theirs */
	char *name, *newname;
	unsigned flags; /* of renameat2(2) */
};

/* -EXDEV: it takes copying, which may take long; BY_MOVING allows it. 0 or -errno, with ERR where
 * there is more to say. */
int ws_tree_rename(const struct ws_rename *rn, bool by_moving, struct sbx_error *err);

#endif
