/*
 * The trash: what teardowns have saved, as commits that nothing but a ref of ours names. In the
 * source for sandboxes of a repository, so that git's own tools find it there; else in a bare
 * repository of the state directory.
 *
 *   refs/sandboxfs/trash/NAME-TIME   tree: the files; parents: HEAD, what was staged where that was
 * something else, and what was committed and no ref has
 *
 * The message says the rest in lines, after git's custom for such, and is signed (sign.h):
 * what is not, is no entry. Thread-safe for distinct handles.
 */
#ifndef SANDBOXFS_LOCAL_TRASH_TRASH_H
#define SANDBOXFS_LOCAL_TRASH_TRASH_H

#include <git2.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"

/* Strings are owned when it was read; borrowed when it is to be written. */
struct sbx_trash_entry {
	char *name;    /* NAME-TIME; unused when written */
	char *sandbox; /* its name then */
	char *id;
	char *branch, *base; /* git; else NULL */
	int64_t time_ms;
	git_oid commit, tree; /* commit: unused when written */
	bool has_head,
	        has_staged; /* has_staged: what was staged is neither HEAD's tree nor unknown */
	bool has_left;
	git_oid head;   /* the commit */
	git_oid staged; /* the tree */
	git_oid left;   /* the commit that leads to what no ref of the source has
	                   (backends/git/left.h) */
};

/* Writes E, whose objects are in REPO; success when this sandbox is there already. Files are made
 * as the owner of COMMON. */
int sbx_trash_write(git_repository *repo, const char *common, const struct sbx_trash_entry *e,
                    struct sbx_error *err);
/* Calls fn for each entry in no order; a non-zero return ends it and is returned. 0 or libgit2's
 * code. */
int sbx_trash_each(git_repository *repo, int (*fn)(const struct sbx_trash_entry *e, void *data),
                   void *data);
/* The entry NAME; GIT_ENOTFOUND: there is none. Release it. */
int sbx_trash_find(git_repository *repo, const char *name, struct sbx_trash_entry *ret);
/*
 * Drops entries of teardowns before BEFORE_MS, and calls TOLD (may be NULL) with the name of each;
 * *left is how many refs stay. 0 or libgit2's code: it is not known whether that is all.
 */
int sbx_trash_expire(git_repository *repo, const char *common, int64_t before_ms, size_t *left,
                     void (*told)(const char *name, void *data), void *data);
/* Frees what *E owns. */
void sbx_trash_release(struct sbx_trash_entry *e);

#endif
