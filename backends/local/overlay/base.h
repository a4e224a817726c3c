/*
 * The cache of bases: checkouts that sandboxes share as the lower layer of their trees, one for
 * each content. All mounts of a user use it at once, so whatever is done to a base is done under
 * the lock of its key; a base appears by rename, whole or not at all.
 *
 *   bases/KEY/tree/   the files
 *   bases/KEY/index   git: the index that belongs to them
 *   bases/KEY/marker  what it should be; used last at its mtime
 *   users/KEY/ID      the record of a sandbox that stands on it: where that file is gone, so is the
 * user locks/KEY         flock tmp/              being made or removed
 */
#ifndef SANDBOXFS_LOCAL_OVERLAY_BASE_H
#define SANDBOXFS_LOCAL_OVERLAY_BASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"

#define SBX_BASE_KEY_MAX 64

struct sbx_bases;

/* Creates PATH (0700, also missing parents) and what belongs in it. LIMIT_MB as settings->cache_mb.
 */
int sbx_bases_open(const char *path, uint64_t limit_mb, struct sbx_bases **ret,
                   struct sbx_error *err);
/* Waits for what goes on in the background. Accepts NULL. */
void sbx_bases_close(struct sbx_bases *bases);
/* Absolute path of bases/. */
const char *sbx_bases_path(const struct sbx_bases *bases);

/* The result of a fill. */
struct sbx_base_facts {
	uint64_t files;
	uint64_t bytes; /* on disk */
};

/* How a base is made. */
struct sbx_base_recipe {
	const char *key; /* [a-z0-9-]+, shorter than SBX_BASE_KEY_MAX */
	/*
	 * Fills the directory TREE, which is empty and belongs to whom its files are to belong, and
	 * writes what goes beside it into DIR. CANCELLED (may be NULL) is polled: -EINTR. What was
	 * begun is removed by the caller.
	 */
	int (*fill)(const struct sbx_base_recipe *recipe, int dir, int tree,
	            struct sbx_base_facts *facts, atomic_bool *cancelled, struct sbx_error *err);
	/* Looks at all that is in the base in DIR. -EIO: it is not what it was. May be NULL. */
	int (*check)(const struct sbx_base_recipe *recipe, int dir, atomic_bool *cancelled);
	const void *data;
	unsigned uid, gid; /* of the root of the tree */
};

struct sbx_base {
	int dir;         /* bases/KEY, open: the caller's */
	int64_t born_ns; /* no file in it was born later (CLOCK_REALTIME) */
};

/*
 * Gives the base of RECIPE, making it when it is not there or damaged (then RECIPE->fill may be
 * NULL: -ENOENT), and counts ID, whose record is the file RECORD (absolute), among its users. Waits
 * while another makes it. EINTR cancelled; what fill returns. Threads may call at once.
 */
int sbx_base_acquire(struct sbx_bases *bases, const struct sbx_base_recipe *recipe, const char *id,
                     const char *record, atomic_bool *cancelled, struct sbx_base *ret,
                     struct sbx_error *err);
/* As born_ns of the base KEY; 0 when it cannot be told. */
int64_t sbx_base_born(struct sbx_bases *bases, const char *key);
/*
 * Copies the index of the base whose directory is BASE to PATH, which must not be there. Of a large
 * one a copy is kept ready after the first, so that this takes no time: in NEAR, a directory of the
 * same file system that stays. 0 or -errno; thread-safe.
 */
int sbx_base_copy_index(struct sbx_bases *bases, int base, const char *near, const char *path);
/* ID uses KEY no more. Success when it did not. */
void sbx_base_release(struct sbx_bases *bases, const char *key, const char *id);
/*
 * Has the base KEY on the disk, so that no power cut has it made again. Waits for that, unless it
 * is so already. 0 or a negative errno: -ENOENT there is none. Threads may call at once.
 */
int sbx_base_sync(struct sbx_bases *bases, const char *key);
/* Has the word that ID uses KEY, which a power cut would leave blank else, written out. */
void sbx_base_sync_user(struct sbx_bases *bases, const char *key, const char *id);
/* As acquire for nobody, in the background: what will be wanted soon. FREE_RECIPE(recipe) is called
 * at the end. */
void sbx_bases_prepare(struct sbx_bases *bases, struct sbx_base_recipe *recipe,
                       void (*free_recipe)(struct sbx_base_recipe *recipe));
/* Drops what is not in use, least recently used first, until the cache keeps its limit. */
void sbx_bases_trim(struct sbx_bases *bases);

#endif
