/*
 * A list keeps no capacity: its room is always the power of two above its length, so it grows
 * exactly when its length, terminator included, reaches one.
 */
#include "backends/support/strv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sbx_strings_add(struct sbx_strings *list, const char *s, size_t len)
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

void sbx_strv_free(char **v)
{
	for (char **s = v; s && *s; s++)
		free(*s);
	free(v);
}

void sbx_strings_release(struct sbx_strings *list)
{
	sbx_strv_free(list->items);
	*list = (struct sbx_strings){0};
}
