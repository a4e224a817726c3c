/*
 * git's index as bytes: taken apart without trusting them, compared, merged and put together again.
 * Only entries survive: extensions are either optional (dropped; git makes them anew) or change
 * what the entries mean (refused). Pure functions, thread-safe.
 */
#ifndef SANDBOXFS_GIT_INDEX_H
#define SANDBOXFS_GIT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "sandboxfs/error.h"

#define SBX_INDEX_MAX ((size_t)128 * 1024 * 1024) /* bytes of one index */

#define SBX_INDEX_VALID  0x8000 /* assume-unchanged */
#define SBX_INDEX_STAGE  0x3000
#define SBX_INDEX_SKIP   0x4000 /* skip-worktree */
#define SBX_INDEX_INTENT 0x2000 /* intent-to-add */

struct sbx_index_entry {
	unsigned char stat[40]; /* as on disk: times, device, inode, mode, owner, size */
	unsigned char oid[20];
	uint16_t flags;    /* SBX_INDEX_VALID, SBX_INDEX_STAGE */
	uint16_t extended; /* SBX_INDEX_SKIP, SBX_INDEX_INTENT */
	uint32_t len;
	const char *name; /* LEN bytes, no NUL after them */
};

/* Sorted by name and stage. Zero it to start; the names belong to it or to what it was merged from.
 */
struct sbx_index {
	struct sbx_index_entry *at;
	size_t n;
	char *names;
};

/*
 * Takes DATA apart. EINVAL: damaged, an entry that host git should not see (a name for .git, a path
 * that leads out, a mode git does not know, a file where another entry has a directory), or an
 * extension that is not understood; EFBIG. DATA must not change meanwhile and is not needed
 * afterwards.
 */
int sbx_index_parse(const void *data, size_t len, struct sbx_index *ret, struct sbx_error *err);
/*
 * The same of one that a command may have written: also EFBIG, before it is allocated, where DATA
 * or its names together have more than MOST bytes. Names that share their beginnings (version 4)
 * take up far less in DATA. In all it takes memory for four times MOST bytes.
 */
int sbx_index_parse_most(const void *data, size_t len, size_t most, struct sbx_index *ret,
                         struct sbx_error *err);
/* Frees what *INDEX owns and zeroes it. */
void sbx_index_release(struct sbx_index *index);

/* The bytes of INDEX, malloc'd; without SUM its checksum is zero, which costs less and is read too.
 * 0 or -ENOMEM. */
int sbx_index_format(const struct sbx_index *index, bool sum, void **ret, size_t *len);

/* Whether both say the same; what the file system told at the time does not matter. */
bool sbx_index_equal(const struct sbx_index *a, const struct sbx_index *b);
/* Order of names, then stages. */
int sbx_index_compare(const struct sbx_index_entry *a, const struct sbx_index_entry *b);
/* As memcmp(3) of both names; of a name and its beginning the shorter one comes first. */
int sbx_index_compare_names(const char *a, size_t a_len, const char *b, size_t b_len);
/* How many bytes both names begin with. */
size_t sbx_index_shared(const struct sbx_index_entry *a, const struct sbx_index_entry *b);
/*
 * Has who reads E look at its file where that was changed at or after SINCE (seconds), as E says:
 * the size is 0, as git has it for files that it cannot be sure of. Whether E says something else
 * now.
 */
bool sbx_index_doubt(struct sbx_index_entry *e, time_t since);
/* Mode, as S_IFMT and permissions. */
uint32_t sbx_index_mode(const struct sbx_index_entry *entry);

#endif
