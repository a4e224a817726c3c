/* A guess which known name an unknown one means, for the sentences that refuse it. Thread-safe. */
#ifndef SANDBOXFS_FS_UTIL_NEAREST_H
#define SANDBOXFS_FS_UTIL_NEAREST_H

#include <stddef.h>

#include "sandboxfs/error.h"

/*
 * Edits that turn A into B: a letter more, less or changed, or two neighbours exchanged. SIZE_MAX
 * when one of them has 64 bytes or more.
 */
size_t sbx_edits(const char *a, const char *b);

/*
 * The name that NAME is likely to stand for, of N rows of STRIDE bytes that each begin with a char
 * *: by a slip of the pen, as its beginning, or because other programs call it so. NULL when none
 * is near. Points into ROWS.
 */
const char *sbx_nearest(const char *name, const void *rows, size_t n, size_t stride);

/* -EINVAL: KEY is not one of the rows; the sentence names the nearest, or all that there are. */
int sbx_unknown_key(const char *key, const void *rows, size_t n, size_t stride,
                    struct sbx_error *err);

/*
 * The note on a key's unit that follows its name in a sentence, because people guess the unit: ",
 * in milliseconds", or "".
 */
const char *sbx_unit_note(const char *key);

#endif
