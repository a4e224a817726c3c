/*
 * A list keeps no capacity: its room is at least the power of two above its length, so it grows
 * exactly when its length, terminator included, reaches one.
 */
#include "sandboxfs/strv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sbx_strings_add_n(struct sbx_strings *list, const char *s, size_t len)
{
	size_t used = list->n + 1;
	char *copy;

	if (!list->items || (used & (used - 1)) == 0) {
		char **items = realloc(list->items, 2 * used * sizeof(*items));

		if (!items)
			return -ENOMEM;
		list->items = items;
		items[list->n] = NULL;
	}
	copy = strndup(s, len);
	if (!copy)
		return -ENOMEM;
	list->items[list->n++] = copy;
	list->items[list->n] = NULL;
	return 0;
}

int sbx_strings_add(struct sbx_strings *list, const char *s)
{
	return sbx_strings_add_n(list, s, strlen(s));
}

char *sbx_strings_take(struct sbx_strings *list)
{
	char *last = list->n ? list->items[--list->n] : NULL;

	if (last)
		list->items[list->n] = NULL;
	return last;
}

void sbx_strings_release(struct sbx_strings *list)
{
	sbx_strv_free(list->items);
	*list = (struct sbx_strings){0};
}

void sbx_strv_free(char **v)
{
	for (char **s = v; s && *s; s++)
		free(*s);
	free(v);
}

char **sbx_strv_copy(char *const *v)
{
	size_t n = 0;
	char **copy;

	if (!v)
		return NULL;
	while (v[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = strdup(v[i]);
		if (!copy[i]) {
			sbx_strv_free(copy);
			return NULL;
		}
	}
	return copy;
}

bool sbx_strv_equal(char *const *a, char *const *b)
{
	static char *const none[] = {NULL};
	size_t i = 0;

	a = a ? a : none;
	b = b ? b : none;
	while (a[i] && b[i] && strcmp(a[i], b[i]) == 0)
		i++;
	return !a[i] && !b[i];
}
