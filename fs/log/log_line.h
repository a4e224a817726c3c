/* The form that log records and events share. */
#ifndef SANDBOXFS_FS_LOG_LOG_LINE_H
#define SANDBOXFS_FS_LOG_LOG_LINE_H

#include <stddef.h>

struct json_object;

/*
 * One line with its newline: "timestamp", NAME_KEY: NAME (unless NAME is NULL), "event", and the
 * members of EXTRA (may be NULL; not consumed). malloc'd, *len without the NUL;
 * NULL: no memory. Thread-safe.
 */
char *sbx_log_line(const char *event, const char *name_key, const char *name,
                   struct json_object *extra, size_t *len);

#endif
