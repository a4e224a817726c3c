/*
 * Listings of directories: snapshots of names, so offsets stay what they are while entries are deleted; and the
 * memory of which of them the kernel may go on using without asking.
 *
 * A listing taken with attributes gives the kernel those of every entry for some seconds. For a bit less
 * than that it is worth keeping; longer it is not, since a new one brings all attributes along at once, and
 * with the kept one each is asked for alone. Whoever may use the kernel's copy holds our snapshot too: the
 * kernel may drop its own halfway and ask us for the rest.
 *
 * A listing is filled by one thread and not changed any more when others see it; references are counted
 * atomically. The memory (struct sbx_kept) is thread-safe.
 */
#ifndef SANDBOXFS_FS_LISTING_H
#define SANDBOXFS_FS_LISTING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define SBX_KEPT_MS 3000 /* less than the attributes of files are kept */

struct sbx_listed {
	uint32_t name; /* offset into names */
	uint32_t type; /* S_IFMT bits */
	ino_t ino;
};

struct sbx_listing {
	unsigned refs;
	struct sbx_listed *entries;
	size_t n, cap;
	char *names;
	size_t names_len, names_cap;
};

/* With one reference; NULL when out of memory. */
struct sbx_listing *sbx_listing_create(void);
int sbx_listing_add(struct sbx_listing *l, const char *name, mode_t type, ino_t ino); /* -ENOMEM */
struct sbx_listing *sbx_listing_ref(struct sbx_listing *l); /* accepts NULL */
void sbx_listing_unref(struct sbx_listing *l);              /* accepts NULL */

struct sbx_kept;

/* Keeps at most MAX_BYTES of listings, dropping any of the others. -ENOMEM. */
int sbx_kept_create(size_t max_bytes, struct sbx_kept **ret);
void sbx_kept_destroy(struct sbx_kept *kept); /* accepts NULL */

/* L (a reference is taken) was taken at NOW_NS of directory ID, whose status had changed last at CHANGED_NS (0: unknown). */
void sbx_kept_note(struct sbx_kept *kept, uint64_t id, struct sbx_listing *l, int64_t changed_ns,
                   uint64_t now_ns);
/* The listing noted for ID, with a reference, if it is of the state CHANGED_NS and worth using at NOW_NS; else NULL. */
struct sbx_listing *sbx_kept_current(struct sbx_kept *kept, uint64_t id, int64_t changed_ns,
                                     uint64_t now_ns);

#endif
