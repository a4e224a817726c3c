/*
 * JSON that can be read in one way only, as it arrives. The whole-text form,
 * sbx_json_parse(), is in fs/job/request.h. Not thread-safe for one tokener.
 */
#ifndef SANDBOXFS_FS_UTIL_JSON_H
#define SANDBOXFS_FS_UTIL_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "sandboxfs/error.h"

struct json_object;
struct json_tokener;

/*
 * Reads on in TEXT, of which FROM bytes were given to *TOK before and LEN are there now; *tok is
 * NULL at first. Returns 1 with *ret (NULL for the value null; else json_object_put it) and *used, the
 * length of the value; 0 when it goes on; -EINVAL, -E2BIG or -ENOMEM with a sentence. *tok is freed
 * and NULL again unless 0 is returned.
 */
int sbx_json_feed(struct json_tokener **tok, const char *text, size_t from, size_t len,
                  struct json_object **ret, size_t *used, struct sbx_error *err);
void sbx_json_feed_end(struct json_tokener **tok); /* gives up */

/* OBJ, the value of KEY, as a number from 0 to SBX_NUMBER_MAX; -EINVAL naming KEY. */
int sbx_json_number(struct json_object *obj, const char *key, uint64_t *ret, struct sbx_error *err);

/*
 * How much of S[0..LEN) to show when a sentence names it ("%.*s"): at most 100 bytes, no
 * character cut in two.
 */
int sbx_clip(const char *s, size_t len);

#endif
