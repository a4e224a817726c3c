/* Indexes of two sides, compared and put together. */
#ifndef SANDBOXFS_BACKENDS_GIT_INDEX_MERGE_H
#define SANDBOXFS_BACKENDS_GIT_INDEX_MERGE_H

#include "backends/git/index.h"

/*
 * Merges A and B, which both come from BASE. 0; 1 both changed the same path differently;
 * -ENOMEM. The names of the result belong to the three, which must live as long.
 */
int sbx_index_merge(const struct sbx_index *base, const struct sbx_index *a,
                    const struct sbx_index *b, struct sbx_index *ret);
/*
 * INDEX, which a command may have written, as far as TRUSTED, which it cannot have, lets it count:
 * paths, modes, objects and stages. There is no stat data, so that who reads it looks at the files.
 * Flags are those that TRUSTED has for the path; a file that is only announced (intent-to-add)
 * counts where TRUSTED announces it too. *ret has room of its own, its names belong to INDEX. 0 or
 * -ENOMEM.
 */
int sbx_index_bare(const struct sbx_index *index, const struct sbx_index *trusted,
                   struct sbx_index *ret);
/* Whether A and B have other flags for a path that both have with the same content. */
bool sbx_index_flags_differ(const struct sbx_index *a, const struct sbx_index *b);
/*
 * INDEX as those are to have it whose own is OWN: with its stat data and flags where it has the
 * same content, but with the flags of NOW where these are others than those of THEN; and with the
 * files that OWN only announces. *ret has room of its own, its names belong to INDEX and OWN. 0 or
 * -ENOMEM.
 */
int sbx_index_dress(const struct sbx_index *index, const struct sbx_index *own,
                    const struct sbx_index *then, const struct sbx_index *now,
                    struct sbx_index *ret);
/* Entries of INDEX that KNOWN has too get what KNOWN says of the file, so that a side keeps its
 * own. */
void sbx_index_refresh(struct sbx_index *index, const struct sbx_index *known);

#endif
