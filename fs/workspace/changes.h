/*
 * Changes to a sandbox whose files are elsewhere (sandboxfs/away.h), as they are told. For all
 * others each call is a comparison. A .git that the host made is of this machine alone
 * (nested_git.h): nothing is told of it.
 *
 * The sandbox's turn is held: alone for a rename.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_CHANGES_H
#define SANDBOXFS_FS_WORKSPACE_CHANGES_H

#include <limits.h>
#include <sys/stat.h>

#include "fs/workspace/tree.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/away.h"

/* One change, from before it is made to behind it. */
struct ws_change {
	struct sbx_sandbox *sandbox; /* NULL: nobody is told */
	bool there;                  /* something stood at PATH */
	bool takes;                  /* it takes a name from something, as MEANT says */
	struct sbx_change meant;
	struct stat was; /* what that was, or the file it is about */
	int fd;          /* of that file, borrowed */
	char path[PATH_MAX], to[PATH_MAX];
};

/*
 * What may be refused, because there is no room to note it, or it cannot be named: 0, or -errno,
 * mostly with a sentence in ERR, and then the change is not to be made. After 0 one of the ends
 * below follows.
 */

/*
 * NAME in DIR, open at DIRFD, is to be made, as a name of the file of LINKED unless that is NULL.
 * EXDEV: one of the two is of this machine alone.
 */
int ws_change_begin_made(struct ws_change *c, struct sbx_workspace *ws, struct sbx_node *dir,
                         int dirfd, const char *name, struct sbx_node *linked,
                         struct sbx_error *err);
/* NAME in DIR, open at DIRFD, is to be removed. */
int ws_change_begin_removed(struct ws_change *c, struct sbx_workspace *ws, struct sbx_node *dir,
                            int dirfd, const char *name, struct sbx_error *err);
/* The file of NODE, open at FD, is to be emptied, or is to have another mode or other times. */
int ws_change_begin_node(struct ws_change *c, struct sbx_workspace *ws, struct sbx_node *node,
                         int fd, struct sbx_error *err);
/* RN is to be done. EXDEV likewise, so that who moves it copies it. */
int ws_change_begin_rename(struct ws_change *c, const struct ws_rename *rn, struct sbx_error *err);

/* Their ends. R: 0 or more, it was done; else nothing was changed. */
void ws_change_made(struct ws_change *c, int dirfd, const char *name, const struct ws_new *what,
                    int r);
void ws_change_removed(struct ws_change *c, int r);
void ws_change_renamed(struct ws_change *c, int r);
/* KIND: SBX_CHANGE_EMPTIED or SBX_CHANGE_STATUS. */
void ws_change_end(struct ws_change *c, enum sbx_change_kind kind, int r);

/* Contents of NODE, open at FD, are to be changed: which is told at once. May be refused. */
int ws_change_data(struct sbx_workspace *ws, struct sbx_node *node, int fd, struct sbx_error *err);

#endif
