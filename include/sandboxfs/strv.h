/* Growing lists of strings, and the bare vectors in them. Not thread-safe. */
#ifndef SANDBOXFS_STRV_H
#define SANDBOXFS_STRV_H

#include <stdbool.h>
#include <stddef.h>

/* An owned list of owned strings; items[n] is NULL. Zero it to start: an empty one may have no
 * items. */
struct sbx_strings {
	char **items;
	size_t n;
};

/* Appends a copy of S. 0 or -ENOMEM. */
int sbx_strings_add(struct sbx_strings *list, const char *s);
/* Appends a copy of S[0..LEN). 0 or -ENOMEM. */
int sbx_strings_add_n(struct sbx_strings *list, const char *s, size_t len);
/* Takes the last one out: the caller's, NULL when there is none. */
char *sbx_strings_take(struct sbx_strings *list);
/* Frees everything; the list is empty and usable again. */
void sbx_strings_release(struct sbx_strings *list);

/* Frees the NULL-terminated vector V with its strings. Accepts NULL. */
void sbx_strv_free(char **v);
char **sbx_strv_copy(char *const *v); /* NULL: V was NULL, or no memory */
/*
 * Whether the NULL-terminated vectors A and B have the same strings. NULL equals an empty vector.
 */
bool sbx_strv_equal(char *const *a, char *const *b);

#endif
