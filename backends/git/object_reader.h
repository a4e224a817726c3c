/*
 * Objects out of an objects/ directory that hostile hands may have written: loose ones and packs.
 * Nothing there is believed: each object is bounded, taken apart beneath the directory's
 * descriptor, and its bytes are hashed before they are handed out. No alternates, no configuration,
 * no program.
 */
#ifndef SANDBOXFS_GIT_OBJECT_READER_H
#define SANDBOXFS_GIT_OBJECT_READER_H

#include <git2.h>

#include "backends/git/convert.h"
#include "sandboxfs/error.h"

/* Bounds; 0 where nothing is to be read at all. */
struct sbx_git_bounds {
	size_t object;   /* bytes of one object */
	uint64_t volume; /* bytes unpacked altogether, deltas and all */
	size_t objects;  /* how many are taken over at once (sbx_git_export) */
	uint64_t taken;  /* bytes of what is taken over of one sandbox, as long as it lives */
	size_t held;     /* bytes of trees and commits that wait for what they name */
};

extern const struct sbx_git_bounds sbx_git_bounds;

struct sbx_git_reader;

/* OBJECTS is borrowed and must stay open. Reads nothing yet. 0 or -ENOMEM. One thread at a time. */
int sbx_git_reader_open(int objects, const struct sbx_git_bounds *bounds,
                        struct sbx_git_reader **ret);
void sbx_git_reader_close(struct sbx_git_reader *r); /* accepts NULL */
/*
 * The object OID; *data is malloc'd, with a NUL after it. ENOENT it is not there; EINVAL damaged,
 * or not what its name says; EFBIG larger than the bounds; ENOMEM.
 */
int sbx_git_reader_get(struct sbx_git_reader *r, const git_oid *oid, git_object_t *type,
                       char **data, size_t *len, struct sbx_error *err);
/*
 * Whether OID is a blob that is large and is stored as it is, no delta, and how long: such a one
 * need not be held in memory.
 */
bool sbx_git_reader_is_large(struct sbx_git_reader *r, const git_oid *oid, size_t *len);
/* Gives its bytes to FN piece by piece. That their hash is OID the caller has to see itself. */
int sbx_git_reader_pieces(struct sbx_git_reader *r, const git_oid *oid, sbx_convert_fn fn, void *to,
                          struct sbx_error *err);

#endif
