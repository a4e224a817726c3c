/* Blobs, piece by piece. */
#ifndef SANDBOXFS_GIT_BLOB_H
#define SANDBOXFS_GIT_BLOB_H

#include <git2.h>

#include "backends/git/convert.h"

/* Gives the blob OID to FN piece by piece, as far as it is no part of a pack. */
int sbx_git_blob_pieces(git_odb *odb, const git_oid *oid, sbx_convert_fn fn, void *to);
/* Writes it to FD, which is empty: with holes where it has many zeros. */
int sbx_git_blob_write(git_odb *odb, const git_oid *oid, int fd);
/* Whether it is more than should be held in memory. */
bool sbx_git_blob_is_large(git_odb *odb, const git_oid *oid);
/* Writes it to FD as HOW, which is changed, converts it. */
int sbx_git_blob_convert(git_odb *odb, const git_oid *oid, struct sbx_convert *how, int fd);
/* The negative errno of what libgit2 said of an object. */
int sbx_git_object_code(int r);

#endif
