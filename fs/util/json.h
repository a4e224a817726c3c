/* JSON that can be read in one way only, whole or as it arrives. Not thread-safe for one tokener.
 */
#ifndef SANDBOXFS_FS_UTIL_JSON_H
#define SANDBOXFS_FS_UTIL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandboxfs/error.h"

struct json_object;
struct json_tokener;

/*
 * A whole JSON text held to one reading: strict syntax, valid UTF-8, at most 32 levels, no
 * duplicate key at any level, no \u0000. Returns 1 with *ret (json_object_put it; NULL for null)
 * and *used bytes, 0 when TEXT is a proper beginning (and !final), -EINVAL with a sentence.
 */
int sbx_json_parse(const char *text, size_t len, bool final, struct json_object **ret, size_t *used,
                   struct sbx_error *err);

/*
 * Reads on in TEXT, of which FROM bytes were given to *TOK before and LEN are there now; *tok is
 * NULL at first. Returns 1 with *ret (NULL for the value null; else json_object_put it) and *used,
 * the length of the value; 0 when it goes on; -EINVAL, -E2BIG or -ENOMEM with a sentence. *tok is
 * freed and NULL again unless 0 is returned.
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
