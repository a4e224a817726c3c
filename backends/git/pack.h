/* Packs for object_reader.c; see there. */
#ifndef SANDBOXFS_GIT_PACK_H
#define SANDBOXFS_GIT_PACK_H

#include <git2.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/git/convert.h"

/* The bytes that may still be unpacked. */
struct sbx_git_budget {
	size_t object;
	uint64_t volume;
};

struct sbx_git_packs;

/* The packs in OBJECTS/pack, as far as they can be opened; none is no error. 0 or -ENOMEM. */
int sbx_git_packs_open(int objects, struct sbx_git_packs **ret);
void sbx_git_packs_close(struct sbx_git_packs *packs); /* accepts NULL */
/* As sbx_git_reader_get, without the check of the hash. */
int sbx_git_packs_get(struct sbx_git_packs *packs, const git_oid *oid,
                      struct sbx_git_budget *budget, git_object_t *type, char **data, size_t *len);

/* Where OID is stored as it is, no delta: its compressed bytes in *fd, which is borrowed. */
bool sbx_git_packs_whole(struct sbx_git_packs *packs, const git_oid *oid, git_object_t *type,
                         size_t *len, int *fd, uint64_t *offset);
/*
 * Inflates from FD at OFFSET exactly SKIP + LEN bytes and gives all but the first SKIP to FN.
 * -EINVAL, -ENOMEM or what FN answers.
 */
int sbx_git_inflate_pieces(int fd, uint64_t offset, size_t skip, size_t len, sbx_convert_fn fn,
                           void *to);
/* Applies DELTA to BASE; the result's length must stay within the budget. */
int sbx_git_delta(const char *base, size_t base_len, const char *delta, size_t delta_len,
                  struct sbx_git_budget *budget, char **ret, size_t *len);

#endif
