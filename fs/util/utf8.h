/*
 * Bytes of commands as text for programs: UTF-8, JSON strings, base64. All thread-safe.
 */
#ifndef SANDBOXFS_FS_UTIL_UTF8_H
#define SANDBOXFS_FS_UTIL_UTF8_H

#include <stdbool.h>
#include <stddef.h>

struct json_object;

/* Bytes of the character at BUF, 0 when none of valid UTF-8 is. */
size_t sbx_utf8_length(const char *buf, size_t len);
/* Length of the longest valid UTF-8 beginning of BUF (RFC 3629; NUL is a character). */
size_t sbx_utf8_span(const char *buf, size_t len);
/* LEN, less the bytes of a last character whose rest is missing. */
size_t sbx_utf8_floor(const char *buf, size_t len);
/* How many continuation bytes BUF begins with, at most 3: the rest of a cut character. */
size_t sbx_utf8_skip(const char *buf, size_t len);
/* A JSON string of the text, each byte that is not UTF-8 replaced by U+FFFD; NULL: no memory. */
struct json_object *sbx_text_json(const char *buf, size_t len);
/* A JSON array of sbx_text_json strings of a NULL-terminated list (NULL: null). */
struct json_object *sbx_text_json_list(char *const *list);
/* Base64 with padding (RFC 4648), NUL-terminated, malloc'd; NULL: no memory. */
char *sbx_base64(const void *buf, size_t len);

/*
 * Adds N bytes to the *LEN in *BUF (malloc'd, or NULL while it is empty), at most MAX of them, and
 * a NUL after them. 0, -ENOMEM, or -E2BIG: what was there stays as it is.
 */
int sbx_text_append(char **buf, size_t *len, const void *data, size_t n, size_t max);

#endif
