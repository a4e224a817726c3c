/*
 * JSON objects that a server answered, and that one is asked with. A member that is not there, or
 * of another type, reads as empty. All thread-safe for distinct objects.
 */
#ifndef SANDBOXFS_BACKENDS_SUPPORT_MEMBERS_H
#define SANDBOXFS_BACKENDS_SUPPORT_MEMBERS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

#define _cleanup_object_ _cleanup_(sbx_object_cleanup)

void sbx_object_cleanup(struct json_object **obj);

/* The object that the LEN bytes at TEXT (may be NULL) are; NULL: they are none, or it is nested too
 * deeply. */
struct json_object *sbx_object_read(const char *text, size_t len);
/* The text of OBJ, borrowed of it. */
const char *sbx_object_text(struct json_object *obj, size_t *len);

/* Members of OBJ (may be NULL), borrowed. */
struct json_object *sbx_member(struct json_object *obj, const char *key, enum json_type type);
const char *sbx_member_text(struct json_object *obj, const char *key); /* else "" */
double sbx_member_number(struct json_object *obj, const char *key);    /* else 0; finite */
bool sbx_member_flag(struct json_object *obj, const char *key);        /* else false */

/* Adds VALUE; NULL: nothing. */
void sbx_member_add(struct json_object *obj, const char *key, const char *value);

#endif
