#include "fs/fuse/listing.h"
#include "sandboxfs/grow.h"

#include <assert.h>
#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS     8192       /* a power of two */
#define END       UINT16_MAX /* of the list of slots */
#define KEPT_NS   (SBX_LISTING_CACHE_MS * UINT64_C(1000000))
#define IN_USE_NS (UINT64_C(2) * 1000000000) /* used since: somebody may be reading it */
#define ATTRS_NS  (UINT64_C(4) * 1000000000) /* as long as the kernel keeps attributes */
#define DROPS     32

struct slot {
	uint64_t id, box;
	int64_t changed_ns;
	uint64_t listed_ns, used_ns;
	struct sbx_listing *listing; /* NULL: free */
	bool handed;                 /* the kernel may have it */
	uint16_t prev, next;         /* in the order they were taken in */
};

struct sbx_listing_cache {
	pthread_mutex_t lock; /* all below */
	size_t bytes, max_bytes;
	uint16_t first, last; /* the youngest, and the oldest */
	void (*drop)(uint64_t id, void *data);
	void *data;
	struct slot slot[SLOTS];
};

static_assert((SLOTS & (SLOTS - 1)) == 0 && SLOTS <= END, "an index is masked, and is not END");

/* Ids of listings that were dropped under the lock. */
struct drops {
	uint64_t ids[DROPS];
	size_t n;
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

	assert(__atomic_load_n(&l->refs, __ATOMIC_RELAXED) == 1);
	if (SBX_GROW(l->entries, l->n, l->cap, 32))
		return -ENOMEM;
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
	assert(!l || __atomic_load_n(&l->refs, __ATOMIC_RELAXED) > 0);
	if (!l || __atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	free(l->entries);
	free(l->names);
	free(l);
}

/* A hash (FNV-1a) of the name, in 62 bits: those that meet in one stand behind each other. */
static uint64_t place_of(const char *name)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
	return (h ^ h >> 32) & (INT64_MAX >> 1);
}

static int by_place(const void *a, const void *b, void *names)
{
	const struct sbx_listed *x = a, *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	return strcmp((char *)names + x->name, (char *)names + y->name);
}

void sbx_listing_order(struct sbx_listing *l, size_t fixed)
{
	assert(fixed <= l->n);
	assert(__atomic_load_n(&l->refs, __ATOMIC_RELAXED) == 1);
	for (size_t i = 0; i < l->n; i++)
		l->entries[i].place = i < fixed ? i + 1 : place_of(l->names + l->entries[i].name);
	if (l->n > fixed)
		qsort_r(l->entries + fixed, l->n - fixed, sizeof(*l->entries), by_place, l->names);
	for (size_t i = 1; i < l->n; i++)
		if (l->entries[i].place <= l->entries[i - 1].place)
			l->entries[i].place = l->entries[i - 1].place + 1;
}

size_t sbx_listing_behind(const struct sbx_listing *l, uint64_t place)
{
	size_t low = 0, high = l->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (l->entries[middle].place > place)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool sbx_listing_fills_pages(const struct sbx_listing *l, size_t page)
{
	size_t end = 0;

	for (size_t i = 0; i < l->n; i++) {
		size_t len =
		        FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + strlen(l->names + l->entries[i].name));

		/* One that does not fit begins the next page. */
		if (end % page + len > page)
			end += page - end % page;
		end += len;
	}
	return end % page == 0;
}

static size_t bytes_of(const struct sbx_listing *l)
{
	return sizeof(*l) + l->cap * sizeof(*l->entries) + l->names_cap;
}

int sbx_listing_cache_create(size_t max_bytes, void (*drop)(uint64_t id, void *data), void *data,
                             struct sbx_listing_cache **ret)
{
	struct sbx_listing_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	pthread_mutex_init(&cache->lock, NULL);
	cache->max_bytes = max_bytes;
	cache->drop = drop;
	cache->data = data;
	cache->first = cache->last = END;
	*ret = cache;
	return 0;
}

/* Lock held, below. */

static void unlink_slot(struct sbx_listing_cache *cache, struct slot *s)
{
	*(s->prev == END ? &cache->first : &cache->slot[s->prev].next) = s->next;
	*(s->next == END ? &cache->last : &cache->slot[s->next].prev) = s->prev;
}

static void put_first(struct sbx_listing_cache *cache, struct slot *s)
{
	const uint16_t at = (uint16_t)(s - cache->slot);

	assert(s->listing);
	s->prev = END;
	s->next = cache->first;
	*(cache->first == END ? &cache->last : &cache->slot[cache->first].prev) = at;
	cache->first = at;
}

static void slot_clear(struct sbx_listing_cache *cache, struct slot *s)
{
	if (!s->listing)
		return;
	assert(cache->bytes >= bytes_of(s->listing));
	unlink_slot(cache, s);
	cache->bytes -= bytes_of(s->listing);
	sbx_listing_unref(s->listing);
	s->listing = NULL;
}

static void slot_drop(struct sbx_listing_cache *cache, struct slot *s, struct drops *drops)
{
	assert(drops->n < DROPS);
	if (s->listing && s->handed)
		drops->ids[drops->n++] = s->id;
	slot_clear(cache, s);
}

/* The low half of an id is an index: directories met one after the other do not meet in a slot. */
static struct slot *slot_of(struct sbx_listing_cache *cache, uint64_t id)
{
	return &cache->slot[id & (SLOTS - 1)];
}

static struct slot *slot_find(struct sbx_listing_cache *cache, uint64_t id)
{
	struct slot *s = slot_of(cache, id);

	return s->listing && s->id == id ? s : NULL;
}

static bool slot_current(const struct slot *s, int64_t changed_ns, uint64_t now_ns)
{
	return changed_ns && s->changed_ns == changed_ns && now_ns - s->listed_ns < KEPT_NS;
}

/* To the kernel. */
static struct sbx_listing *slot_hand(struct slot *s, uint64_t now_ns)
{
	s->used_ns = now_ns;
	s->handed = true;
	return sbx_listing_ref(s->listing);
}

static void shrink(struct sbx_listing_cache *cache, const struct slot *except, uint64_t now_ns,
                   struct drops *drops)
{
	while (cache->bytes > cache->max_bytes && cache->last != END && drops->n < DROPS) {
		struct slot *s = &cache->slot[cache->last];

		if (s == except || now_ns - s->used_ns < IN_USE_NS)
			return;
		slot_drop(cache, s, drops);
	}
}

/* Lock not held, from here on. */

void sbx_listing_cache_destroy(struct sbx_listing_cache *cache)
{
	if (!cache)
		return;
	for (size_t i = 0; i < SLOTS; i++)
		slot_clear(cache, &cache->slot[i]);
	assert(!cache->bytes && cache->first == END && cache->last == END);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

static void tell_dropped(struct sbx_listing_cache *cache, const struct drops *drops)
{
	for (size_t i = 0; i < drops->n; i++)
		cache->drop(drops->ids[i], cache->data);
}

void sbx_listing_cache_note(struct sbx_listing_cache *cache, uint64_t id, uint64_t box,
                            struct sbx_listing *l, int64_t changed_ns, uint64_t now_ns)
{
	struct slot *s = slot_of(cache, id);
	struct drops drops = {.n = 0};

	pthread_mutex_lock(&cache->lock);
	if (s->listing && s->id == id)
		slot_clear(cache, s);
	else
		slot_drop(cache, s, &drops);
	*s = (struct slot){.id = id,
	                   .box = box,
	                   .changed_ns = changed_ns,
	                   .listed_ns = now_ns,
	                   .used_ns = now_ns,
	                   .listing = sbx_listing_ref(l),
	                   .handed = true};
	put_first(cache, s);
	cache->bytes += bytes_of(l);
	shrink(cache, s, now_ns, &drops);
	pthread_mutex_unlock(&cache->lock);
	tell_dropped(cache, &drops);
}

struct sbx_listing *sbx_listing_cache_current(struct sbx_listing_cache *cache, uint64_t id,
                                              int64_t changed_ns, uint64_t now_ns)
{
	struct sbx_listing *l = NULL;
	struct slot *s;

	pthread_mutex_lock(&cache->lock);
	s = slot_find(cache, id);
	if (s && slot_current(s, changed_ns, now_ns))
		l = slot_hand(s, now_ns);
	pthread_mutex_unlock(&cache->lock);
	return l;
}

struct sbx_listing *sbx_listing_cache_latest(struct sbx_listing_cache *cache, uint64_t id,
                                             uint64_t now_ns)
{
	struct sbx_listing *l = NULL;
	struct slot *s;

	pthread_mutex_lock(&cache->lock);
	s = slot_find(cache, id);
	if (s)
		l = slot_hand(s, now_ns);
	pthread_mutex_unlock(&cache->lock);
	return l;
}

int64_t sbx_listing_cache_left(struct sbx_listing_cache *cache, uint64_t id, int64_t changed_ns,
                               uint64_t now_ns)
{
	int64_t left = 0;
	struct slot *s;

	pthread_mutex_lock(&cache->lock);
	s = slot_find(cache, id);
	if (s && s->handed) {
		s->handed = changed_ns && s->changed_ns == changed_ns &&
		            now_ns - s->listed_ns < ATTRS_NS;
		left = s->handed ? (int64_t)(s->listed_ns + ATTRS_NS - now_ns) : -1;
	}
	pthread_mutex_unlock(&cache->lock);
	return left;
}

/* An older one has no attributes any more that let it be used. */
size_t sbx_listing_cache_take_box(struct sbx_listing_cache *cache, uint64_t box, uint64_t now_ns,
                                  uint64_t *ids, size_t max)
{
	size_t n = 0;

	pthread_mutex_lock(&cache->lock);
	for (uint16_t i = cache->first; i != END && n < max; i = cache->slot[i].next) {
		struct slot *s = &cache->slot[i];

		if (now_ns - s->listed_ns > ATTRS_NS)
			break;
		if (!s->handed || s->box != box)
			continue;
		s->handed = false;
		ids[n++] = s->id;
	}
	pthread_mutex_unlock(&cache->lock);
	return n;
}

size_t sbx_listing_cache_take_old(struct sbx_listing_cache *cache, uint64_t now_ns, uint64_t *ids,
                                  size_t max, bool *more)
{
	struct drops drops = {.n = 0};
	size_t n = 0;

	*more = false;
	pthread_mutex_lock(&cache->lock);
	for (uint16_t i = cache->last; i != END && !*more; i = cache->slot[i].prev) {
		struct slot *s = &cache->slot[i];

		if (!s->handed)
			continue;
		*more = n == max || now_ns - s->listed_ns < KEPT_NS;
		if (*more)
			break;
		s->handed = false;
		ids[n++] = s->id;
	}
	shrink(cache, NULL, now_ns, &drops);
	*more |= cache->bytes > cache->max_bytes;
	pthread_mutex_unlock(&cache->lock);
	tell_dropped(cache, &drops);
	return n;
}
