/* Refs as plain lists, and those of a private repository, which a command may change at any moment.
 */
#ifndef SANDBOXFS_GIT_REFS_H
#define SANDBOXFS_GIT_REFS_H

#include <git2.h>
#include <stdbool.h>

#include "sandboxfs/error.h"

struct sbx_ref {
	char *name; /* refs/heads/main */
	git_oid oid;
};

/* Zero it to start. Sorted by name once sbx_refs_sort was called; find needs that. */
struct sbx_refs {
	struct sbx_ref *at;
	size_t n, cap;
};

/* Appends a copy of NAME at OID. 0, -ENOMEM, or -E2BIG when the list is full. */
int sbx_refs_add(struct sbx_refs *refs, const char *name, const git_oid *oid);
/* Sorts; of equal names the one that was added first stays. */
void sbx_refs_sort(struct sbx_refs *refs);
/* NULL: not there. */
const git_oid *sbx_refs_find(const struct sbx_refs *refs, const char *name);
/* Frees the list with its names and zeroes it. */
void sbx_refs_release(struct sbx_refs *refs);
/* Whether both have the same names at the same ids in the same order: sort them first. */
bool sbx_refs_equal(const struct sbx_refs *a, const struct sbx_refs *b);

/* The text of a packed-refs file, malloc'd; NULL without memory. */
char *sbx_refs_format(const struct sbx_refs *refs);
/*
 * Appends the refs of such a text to RET; a line that is not well-formed is left out. 0 or
 * -ENOMEM, -E2BIG.
 */
int sbx_refs_parse(const char *text, struct sbx_refs *ret);
/*
 * The same of the file NAME of at most MOST bytes in DIR, sorted; none where there is no such file.
 * 0 or -errno.
 */
int sbx_refs_read(int dir, const char *name, size_t most, struct sbx_refs *ret);

struct sbx_reflog {
	git_oid old, new;
	const char *text; /* why, up to the line's end */
};
/* Takes the next line of a reflog that is well-formed from *at, a text; false at its end. */
bool sbx_reflog_next(const char **at, struct sbx_reflog *ret);

/* All direct refs of SOURCE that a sandbox sees, or with PREFIX only those it begins. 0 or -errno.
 */
int sbx_refs_of_source(git_repository *source, const char *prefix, struct sbx_refs *ret,
                       struct sbx_error *err);
/* Those of the private repository at DIRFD. E2BIG: unreasonably many. 0 or -errno. */
int sbx_refs_of_private(int dirfd, struct sbx_refs *ret);
/* Moves one that stands at OLD (NULL: is not there) to NEW, as git does. EBUSY: a command holds the
 * lock; EAGAIN: it stands elsewhere. */
int sbx_refs_move_private(int dirfd, const char *ref, const git_oid *old, const git_oid *new);
/*
 * Makes those of the private repository WANT, where HAVE is what was read of it before; a ref that
 * has changed since stays. EBUSY: a command holds the lock. 0 or -errno.
 */
int sbx_refs_set_private(int dirfd, const struct sbx_refs *have, const struct sbx_refs *want);

#endif
