/* Bringing objects of a private repository over to the source, so that they can be believed there.
 */
#ifndef SANDBOXFS_GIT_IMPORT_OBJECTS_H
#define SANDBOXFS_GIT_IMPORT_OBJECTS_H

#include <git2.h>
#include <stdbool.h>

#include "backends/git/object_reader.h"

/* Whether the LEN bytes at DATA are a well-formed object of TYPE with names that may be checked
 * out. */
bool sbx_git_object_ok(git_object_t type, const char *data, size_t len);

#define SBX_GIT_TIPS 8

/* Counts of the objects that were taken over: written to the source, or tried. */
struct sbx_git_taken {
	size_t objects;
	uint64_t bytes; /* unpacked */
	uint64_t most;  /* of bytes */
	void *had;      /* what the store has and the sandbox was found to have; NULL to start */
	/*
	 * Objects are written to the store of the source, because only the sandbox leads to them.
	 * The store has the files of TIPS; those that BASE has as well are in the source.
	 */
	bool apart, uses;
	git_oid tips[SBX_GIT_TIPS], base;
	size_t n;
	bool has_base;
	/* When to give up, in ms of CLOCK_MONOTONIC; 0, and NULL: never. Read again and again. */
	const _Atomic uint64_t *until;
};
/* The sandbox has OID with all that it leads to: that need not be looked at again. */
void sbx_git_taken_trust(struct sbx_git_taken *taken, const git_oid *oid);
/* Frees taken->had. Its counts stay. */
void sbx_git_taken_release(struct sbx_git_taken *taken);

/*
 * Writes OID and all that it leads to, as far as SOURCE lacks it, reading from READER; OID must be
 * of TYPE. What an object names is written before it, so that whatever happens the source holds
 * nothing incomplete. *TAKEN is counted on and stays within the bounds; what was written before
 * they were reached stays, so that another try comes further. ETIMEDOUT the time was up, ENOENT,
 * EINVAL, EFBIG, E2BIG, and what writing answers.
 */
int sbx_git_export(git_repository *source, struct sbx_git_reader *reader, const git_oid *oid,
                   git_object_t type, struct sbx_git_taken *taken, struct sbx_error *err);

/*
 * The calling thread makes files as the owner of PATH from here to sbx_git_owner_end, when the
 * daemon is root: root's files in somebody's repository would be in his way.
 */
struct sbx_git_owner {
	unsigned uid, gid;
	bool changed;
};
/*
 * Where the daemon is not root, PATH is root's or cannot be looked at, nothing changes. Ids
 * before, for the end.
 */
struct sbx_git_owner sbx_git_owner_begin(const char *path);
/* Gives the calling thread its ids back that sbx_git_owner_begin returned. */
void sbx_git_owner_end(const struct sbx_git_owner *before);

#endif
