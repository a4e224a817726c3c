/* Arrays that grow by one item at a time. */
#ifndef SANDBOXFS_GROW_H
#define SANDBOXFS_GROW_H

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * Makes room for one more item in the array AT (malloc'd, or NULL) of N items, which has room for
 * CAP; both variables are changed. A new one has room for FIRST, and a full one gets twice as much.
 * N may be one more than there are, for an array that ends with a NULL; FIRST is above it.
 * 0, or -ENOMEM and the array is as before. Not thread-safe.
 */
#define SBX_GROW(at, n, cap, first) sbx_grow_(&(at), (n), &(cap), sizeof(*(at)), (first))

/* Use SBX_GROW(). AT is the address of the array's variable, SIZE that of one item in bytes. */
static inline int sbx_grow_(void *at, size_t n, size_t *cap, size_t size, size_t first)
{
	const size_t more = *cap ? 2 * *cap : first;
	void *items;

	if (n < *cap)
		return 0;
	memcpy(&items, at, sizeof(items));
	/* Not reallocarray, because the address sanitizer ends a program that has it refuse. */
	items = more > *cap && more <= SIZE_MAX / size ? realloc(items, more * size) : NULL;
	if (!items)
		return -ENOMEM;
	assert(n < more);
	memcpy(at, &items, sizeof(items));
	*cap = more;
	return 0;
}

#endif
