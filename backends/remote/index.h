/*
 * A hash table of items that are embedded in their owners' objects. Items of equal hash are found
 * one after another, and the owner compares. Not thread-safe.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_INDEX_H
#define SANDBOXFS_BACKENDS_REMOTE_INDEX_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct remote_index_item {
	struct remote_index_item *next;
	uint64_t hash;
};

/* Zero it to start. */
struct remote_index {
	struct remote_index_item **slots;
	size_t n, cap; /* cap is a power of two, or 0 */
};

/* Spreads the bits of a number. */
static inline uint64_t remote_index_mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

/* Of N bytes, begun with SEED. */
static inline uint64_t remote_index_hash(uint64_t seed, const char *s, size_t n)
{
	uint64_t h = seed ^ 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 0x100000001b3ULL;
	return remote_index_mix(h);
}

/* The first item of HASH; NULL: none. */
static inline struct remote_index_item *remote_index_first(const struct remote_index *x,
                                                           uint64_t hash)
{
	struct remote_index_item *item = x->cap ? x->slots[hash & (x->cap - 1)] : NULL;

	while (item && item->hash != hash)
		item = item->next;
	return item;
}

/* The one of the same hash behind ITEM; NULL: none. */
static inline struct remote_index_item *remote_index_next(const struct remote_index_item *item)
{
	const uint64_t hash = item->hash;
	struct remote_index_item *next = item->next;

	while (next && next->hash != hash)
		next = next->next;
	return next;
}

/* Makes room for one item more. 0 or -ENOMEM. */
static inline int remote_index_reserve(struct remote_index *x)
{
	const size_t cap = x->cap ? 2 * x->cap : 64;
	struct remote_index_item **slots;

	if (x->n < x->cap)
		return 0;
	slots = calloc(cap, sizeof(struct remote_index_item *));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < x->cap; i++)
		for (struct remote_index_item *item = x->slots[i], *next; item; item = next) {
			struct remote_index_item **slot = &slots[item->hash & (cap - 1)];

			next = item->next;
			item->next = *slot;
			*slot = item;
		}
	free(x->slots);
	x->slots = slots;
	x->cap = cap;
	return 0;
}

/* Adds ITEM; room was made for it. */
static inline void remote_index_add(struct remote_index *x, struct remote_index_item *item,
                                    uint64_t hash)
{
	struct remote_index_item **slot = &x->slots[hash & (x->cap - 1)];

	item->hash = hash;
	item->next = *slot;
	*slot = item;
	x->n++;
}

static inline void remote_index_remove(struct remote_index *x, struct remote_index_item *item)
{
	struct remote_index_item **at = &x->slots[item->hash & (x->cap - 1)];

	while (*at != item)
		at = &(*at)->next;
	*at = item->next;
	x->n--;
}

/* Hands every item to FN, which may free it. The table is empty then, and usable again. */
static inline void remote_index_drain(struct remote_index *x,
                                      void (*fn)(struct remote_index_item *item))
{
	for (size_t i = 0; i < x->cap; i++)
		for (struct remote_index_item *item = x->slots[i], *next; item; item = next) {
			next = item->next;
			fn(item);
		}
	free(x->slots);
	*x = (struct remote_index){0};
}

#endif
