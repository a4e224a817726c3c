/*
 * Listings of directories, and the memory of those that the kernel may go on using without asking.
 *
 * The place of an entry, that the kernel names to have what follows it, comes from the name alone:
 * where a listing was dropped or taken anew meanwhile, another one is gone on with, and a name that
 * was there all the time comes once, also when it is that of another file by now (editors write a
 * file anew and rename it).
 *
 * A listing taken with attributes gives the kernel those of every entry for some seconds. For a bit
 * less than that it is worth keeping; longer it is not, since a new one brings all attributes along
 * at once, and with the kept one each is asked for alone. Whoever may use the kernel's copy holds
 * our snapshot too: the kernel may drop its own halfway and ask us for the rest.
 *
 * A listing is filled by one thread and not changed any more when others see it; references are
 * counted atomically. The memory (struct sbx_listing_cache) is thread-safe.
 */
#ifndef SANDBOXFS_FS_FUSE_LISTING_H
#define SANDBOXFS_FS_FUSE_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define SBX_LISTING_CACHE_MS 3000 /* less than the attributes of files are kept */

struct sbx_listed {
	uint32_t name; /* offset into names */
	uint32_t type; /* S_IFMT bits */
	ino_t ino;
	uint64_t place; /* rising; above 0, below 1 << 63 */
};

struct sbx_listing {
	unsigned refs;
	struct sbx_listed *entries;
	size_t n, cap;
	char *names;
	size_t names_len, names_cap;
	bool once; /* it may change while the directory does not */
};

/* With one reference; NULL when out of memory. */
struct sbx_listing *sbx_listing_create(void);
int sbx_listing_add(struct sbx_listing *l, const char *name, mode_t type, ino_t ino); /* -ENOMEM */
struct sbx_listing *sbx_listing_ref(struct sbx_listing *l); /* accepts NULL */
void sbx_listing_unref(struct sbx_listing *l);              /* accepts NULL */

/* Puts all but the first FIXED entries in their order, and gives each its place. After the last one
 * was added. */
void sbx_listing_order(struct sbx_listing *l, size_t fixed);
/* The index of the first entry behind PLACE; n when there is none. */
size_t sbx_listing_behind(const struct sbx_listing *l, uint64_t place);

/*
 * Whether the kernel's copy of L, with pages of PAGE bytes, ends with a page. Where one does, the
 * kernel takes a place that it does not find in it, since the entry there is gone, for the end, and
 * does not ask for what follows.
 */
bool sbx_listing_fills_pages(const struct sbx_listing *l, size_t page);

struct sbx_listing_cache;

/*
 * Keeps about MAX_BYTES of listings: none that was used a moment ago is dropped for more, but
 * later, by sbx_listing_cache_take_old. DROP is called, no lock held, with the directory of each
 * that is dropped while the kernel may use it. -ENOMEM.
 */
int sbx_listing_cache_create(size_t max_bytes, void (*drop)(uint64_t id, void *data), void *data,
                             struct sbx_listing_cache **ret);
void sbx_listing_cache_destroy(struct sbx_listing_cache *cache); /* accepts NULL */

/*
 * The kernel is going to have L (a reference is taken), which was taken at NOW_NS of directory ID
 * in the sandbox numbered BOX, whose status had changed last at CHANGED_NS (0: unknown).
 */
void sbx_listing_cache_note(struct sbx_listing_cache *cache, uint64_t id, uint64_t box,
                            struct sbx_listing *l, int64_t changed_ns, uint64_t now_ns);
/*
 * The listing noted for ID, with a reference, if it is of the state CHANGED_NS and worth using at
 * NOW_NS; else NULL. The kernel is going to have it.
 */
struct sbx_listing *sbx_listing_cache_current(struct sbx_listing_cache *cache, uint64_t id,
                                              int64_t changed_ns, uint64_t now_ns);
/* The same of whatever state, to go on with. */
struct sbx_listing *sbx_listing_cache_latest(struct sbx_listing_cache *cache, uint64_t id,
                                             uint64_t now_ns);
/*
 * The kernel is to get the attributes of directory ID, as of the state CHANGED_NS: for how many ns
 * it may go on using a listing that it has. 0: it has none; negative: what it has is to be taken
 * back, now.
 */
int64_t sbx_listing_cache_left(struct sbx_listing_cache *cache, uint64_t id, int64_t changed_ns,
                               uint64_t now_ns);
/*
 * Takes back the listings of BOX, because files may have changed, although the kernel may use
 * them without asking. At most MAX directories into IDS; returns how many.
 */
size_t sbx_listing_cache_take_box(struct sbx_listing_cache *cache, uint64_t box, uint64_t now_ns,
                                  uint64_t *ids, size_t max);
/*
 * The same of listings that at NOW_NS are no longer worth using. *MORE: the kernel has others, or
 * too much is kept.
 */
size_t sbx_listing_cache_take_old(struct sbx_listing_cache *cache, uint64_t now_ns, uint64_t *ids,
                                  size_t max, bool *more);

#endif
