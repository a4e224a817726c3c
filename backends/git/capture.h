/*
 * Recording what lies in a tree: as a git tree, and as the index that says the same. The tree is
 * read through descriptors only, one component at a time and never through a link, while commands
 * may change it: what is found is what was there when it was passed over.
 *
 * What belongs in it is decided as by `git add -A`: files and links that the index knows, and
 * others unless the ignore rules name them. A .git at any level is left out, as are special files;
 * a submodule of the index stays as it is there, unless its directory has files and is no
 * repository; a repository that the index does not know is passed over.
 */
#ifndef SANDBOXFS_GIT_CAPTURE_H
#define SANDBOXFS_GIT_CAPTURE_H

#include <git2.h>
#include <stdatomic.h>
#include <time.h>

#include "backends/git/index.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/identity.h"

/* In the root of a tree: a file that is being restored. Never recorded. */
#define SBX_CAPTURE_TEMP ".sandboxfs-restore"

struct sbx_capture_options {
	git_repository *repo; /* opened as bare: settings, attributes, and where objects go */
	const char *common;   /* objects are made as the owner of this path; NULL: as the daemon */
	int root;             /* the tree */
	/*
	 * A tree in layers: its upper one, open for reading, and what lies below, as an index and
	 * as a tree of the repository. -1 and NULL: the whole tree is looked at.
	 */
	int upper;
	const struct sbx_index *lower;
	const git_oid *lower_tree;
	/*
	 * The index as it is, and when it was written. BELIEVE: what it says of a file that has not
	 * changed since is believed. Of layers nothing but what was seen before is.
	 */
	const struct sbx_index *known;
	struct timespec known_at;
	bool believe;
	/* The same of what was found before, which tells nothing of what belongs in the tree. May
	 * be NULL. */
	const struct sbx_index *seen;
	struct timespec seen_at;
	const struct sbx_strings
	        *nested;           /* directories that the host made repositories of; may be NULL */
	struct sbx_identity owner; /* of the files; the index tells them as the daemon's own */
	bool ignored;              /* also what the ignore rules name */
	bool busy;  /* commands may be alive: what they have mapped they change without a change of
	               time */
	bool exact; /* struct sbx_captured.exact is wanted */
	bool spare; /* files of many holes are left out where they are too much; else EFBIG */
	atomic_bool *cancelled; /* polled: -EINTR; may be NULL */
};

struct sbx_captured {
	git_oid tree;
	/*
	 * A tree of the files whose permissions are neither 0644 nor 0755, with those, or whose
	 * bytes are not what tree has of them (line ends, filters), with these. Not of a lower
	 * layer: that stays as it is.
	 */
	git_oid exact;
	bool has_exact;
	struct sbx_index index; /* the whole */
	struct sbx_index found; /* of it, what was looked at and may be believed later; names are
	                           those of index */
	/* Paths that are not recorded: ignored, special, spared, or nothing but such below. */
	struct sbx_strings left_out;
	/*
	 * A tree of git does not say all that is there: something is left out, or has a name that
	 * git refuses, a mode that git does not know, or another content than what was recorded.
	 */
	bool inexact;
	/* Repositories in the tree whose contents are not recorded: submodules too. */
	struct sbx_strings nested;
	struct timespec begun; /* to be the index's time: what changed later is looked at again by
	                          who reads it */
};

/* 0 or a negative errno: EINTR, EFBIG, ENOSPC, EMFILE... Blocks. */
int sbx_capture(const struct sbx_capture_options *options, struct sbx_captured *ret,
                struct sbx_error *err);
/* Frees what *CAPTURED owns and zeroes it. */
void sbx_captured_release(struct sbx_captured *captured);

/* Whether the directory FD of an upper layer shows nothing of what the lower one has there. */
bool sbx_capture_replaces(int fd);

struct stat;
/*
 * Fills e->stat, an index's note of how the file looks, from ST as the mount shows it: there
 * OWNER's files are the daemon's own. MODE is git's.
 */
void sbx_capture_stat(struct sbx_index_entry *e, const struct stat *st, uint32_t mode,
                      const struct sbx_identity *owner);

#endif
