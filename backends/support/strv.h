/* Growing lists of strings. Not thread-safe. */
#ifndef SANDBOXFS_SUPPORT_STRV_H
#define SANDBOXFS_SUPPORT_STRV_H

#include "sandboxfs/settings.h"

/* Appends a copy of S[0..LEN). The list stays NULL-terminated. Returns 0 or -ENOMEM. */
int sbx_strings_add(struct sbx_strings *list, const char *s, size_t len);
/* Frees everything; the list is empty and usable again. */
void sbx_strings_release(struct sbx_strings *list);
/* As sbx_strings_release, for a bare NULL-terminated vector; accepts NULL. */
void sbx_strv_free(char **v);

#endif
