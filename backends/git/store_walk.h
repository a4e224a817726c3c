/* A walk over the objects that some refs lead to and others do not. */
#ifndef SANDBOXFS_GIT_STORE_WALK_H
#define SANDBOXFS_GIT_STORE_WALK_H

#include <git2.h>
#include <stddef.h>

struct sbx_git_tips {
	git_oid *at;
	size_t n, cap;
};

/* Appends OID. 0 or -ENOMEM. */
int sbx_git_tips_add(struct sbx_git_tips *tips, const git_oid *oid);
/* Frees the list and empties it. */
void sbx_git_tips_release(struct sbx_git_tips *tips);

/*
 * Calls MET for each object that FROM leads to, once or more; not for what the history of KNOWN
 * has, as far as that is seen by comparing each commit's files with its parents', or where history
 * is cut off with those of KNOWN. What cannot be read leads nowhere. A negative return of MET ends
 * it and is returned. Else 0 or -ENOMEM.
 */
int sbx_git_store_walk(git_repository *repo, const struct sbx_git_tips *from,
                       const struct sbx_git_tips *known, int (*met)(const git_oid *oid, void *data),
                       void *data);

/*
 * The same of the files of COMMIT alone, but for those that the commit KNOWN, or NULL, has as well.
 */
int sbx_git_store_walk_files(git_repository *repo, const git_oid *commit, const git_oid *known,
                             int (*met)(const git_oid *oid, void *data), void *data);

#endif
