#include "fs/listing.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8192 /* a power of two */

struct slot {
	uint64_t id;
	int64_t changed_ns;
	uint64_t listed_ns;
	struct sbx_listing *listing; /* NULL: free */
};

struct sbx_kept {
	pthread_mutex_t lock; /* all below */
	size_t bytes, max_bytes;
	size_t hand; /* the slot to be dropped next when there is too much */
	struct slot slot[SLOTS];
};

struct sbx_listing *sbx_listing_create(void)
{
	struct sbx_listing *l = calloc(1, sizeof(*l));

	if (l)
		l->refs = 1;
	return l;
}

int sbx_listing_add(struct sbx_listing *l, const char *name, mode_t type, ino_t ino)
{
	size_t len = strlen(name) + 1;

	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 32;
		struct sbx_listed *entries = realloc(l->entries, cap * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		l->entries = entries;
		l->cap = cap;
	}
	if (l->names_len + len > l->names_cap) {
		size_t cap = (l->names_cap ? 2 * l->names_cap : 512) + len;
		char *names = realloc(l->names, cap);

		if (!names)
			return -ENOMEM;
		l->names = names;
		l->names_cap = cap;
	}
	memcpy(l->names + l->names_len, name, len);
	l->entries[l->n++] =
	        (struct sbx_listed){.name = (uint32_t)l->names_len, .type = type, .ino = ino};
	l->names_len += len;
	return 0;
}

struct sbx_listing *sbx_listing_ref(struct sbx_listing *l)
{
	if (l)
		__atomic_add_fetch(&l->refs, 1, __ATOMIC_RELAXED);
	return l;
}

void sbx_listing_unref(struct sbx_listing *l)
{
	if (!l || __atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	free(l->entries);
	free(l->names);
	free(l);
}

static size_t bytes_of(const struct sbx_listing *l)
{
	return sizeof(*l) + l->cap * sizeof(*l->entries) + l->names_cap;
}

int sbx_kept_create(size_t max_bytes, struct sbx_kept **ret)
{
	struct sbx_kept *kept = calloc(1, sizeof(*kept));

	if (!kept)
		return -ENOMEM;
	pthread_mutex_init(&kept->lock, NULL);
	kept->max_bytes = max_bytes;
	*ret = kept;
	return 0;
}

/* Lock held. */
static void slot_clear(struct sbx_kept *kept, struct slot *s)
{
	if (!s->listing)
		return;
	kept->bytes -= bytes_of(s->listing);
	sbx_listing_unref(s->listing);
	s->listing = NULL;
}

void sbx_kept_destroy(struct sbx_kept *kept)
{
	if (!kept)
		return;
	for (size_t i = 0; i < SLOTS; i++)
		slot_clear(kept, &kept->slot[i]);
	pthread_mutex_destroy(&kept->lock);
	free(kept);
}

/* The low half of an id is an index: directories met one after the other do not meet in a slot. */
static struct slot *slot_of(struct sbx_kept *kept, uint64_t id)
{
	return &kept->slot[id & (SLOTS - 1)];
}

void sbx_kept_note(struct sbx_kept *kept, uint64_t id, struct sbx_listing *l, int64_t changed_ns,
                   uint64_t now_ns)
{
	struct slot *s = slot_of(kept, id);

	pthread_mutex_lock(&kept->lock);
	slot_clear(kept, s);
	if (changed_ns && bytes_of(l) <= kept->max_bytes) {
		*s = (struct slot){id, changed_ns, now_ns, sbx_listing_ref(l)};
		kept->bytes += bytes_of(l);
	}
	while (kept->bytes > kept->max_bytes) {
		if (&kept->slot[kept->hand] != s)
			slot_clear(kept, &kept->slot[kept->hand]);
		kept->hand = (kept->hand + 1) & (SLOTS - 1);
	}
	pthread_mutex_unlock(&kept->lock);
}

struct sbx_listing *sbx_kept_current(struct sbx_kept *kept, uint64_t id, int64_t changed_ns,
                                     uint64_t now_ns)
{
	struct slot *s = slot_of(kept, id);
	struct sbx_listing *l = NULL;

	pthread_mutex_lock(&kept->lock);
	if (s->listing && s->id == id && s->changed_ns == changed_ns &&
	    now_ns - s->listed_ns < SBX_KEPT_MS * UINT64_C(1000000))
		l = sbx_listing_ref(s->listing);
	pthread_mutex_unlock(&kept->lock);
	return l;
}
