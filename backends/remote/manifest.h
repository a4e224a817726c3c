/*
 * A manifest: what a machine says of its tree. It is hostile.
 *
 * Bytes of a REMOTE_MANIFEST frame: records, each two strings that end with NUL,
 *   FLAG TYPE " " MODE " " SIZE " " MTIME[","CTIME] " " INO " " NLINK " " PATH NUL TARGET NUL
 * FLAG: L a directory all of whose names are in this manifest; = a file that the host sent, as it
 * came to stand there; ~ the same, but that was earlier, and another may be there by now; ? nothing
 * is there; - anything else. TYPE: f d l p s (others are left out). MODE: octal permissions. MTIME,
 * CTIME: seconds, and with a point up to nine digits more. PATH: from the root, which is "."; "./"
 * may stand before any other. TARGET: of a link, else empty. A record "!" NUL NUL, or an end in the
 * middle of a record: there is more than was listed, so that no directory is complete.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_MANIFEST_H
#define SANDBOXFS_BACKENDS_REMOTE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandboxfs/error.h"

#define REMOTE_ENTRIES_MAX 50000 /* that are asked for at once */
/* Of one directory, and of one manifest; the records behind are as if they had not been listed. */
#define REMOTE_NAMES_MAX 200000

struct remote_listed {
	const char *path; /* "" the root; no empty part, no "." or "..", no leading slash */
	mode_t mode;      /* type and permissions; setuid is taken off, and setgid and sticky of
	                   * what is no directory; 0 where nothing is there */
	uint64_t size;    /* bytes, below 2^62 */
	int64_t mtime_ns;
	int64_t ctime_ns; /* 0: not known */
	uint64_t ino;
	uint32_t nlink;
	bool complete; /* a directory whose names are all here */
	bool cut;      /* a directory whose names were all to be here, and there is more */
	bool sent;     /* a file, by the host */
	bool came;     /* that was earlier, and what is there now is not told by this */
	const char *target;
};

struct remote_manifest {
	/*
	 * By directory, then by name, and a directory before those below it; each path once. No
	 * path has a part ".git" or one of the runner's own, and nothing lies in what is no
	 * directory here.
	 */
	struct remote_listed *items;
	size_t n;
	int64_t begun_ns; /* of the machine's clock */
	bool more;        /* there is more than was listed */
	char *store;
};

/*
 * Reads BYTES. What cannot be true of one record leaves that out; what is no record at all is
 * refused: EPROTO. Thread-safe.
 */
int remote_manifest_read(const void *bytes, size_t len, int64_t begun_ns,
                         struct remote_manifest *ret, struct sbx_error *err);
void remote_manifest_release(struct remote_manifest *m);
/* The order of the items, of two paths. */
int remote_path_order(const char *a, const char *b);
/* The item of PATH, or NULL. */
const struct remote_listed *remote_manifest_find(const struct remote_manifest *m, const char *path);
/* The index of the first item in the directory PATH, and in *END that behind the last. */
size_t remote_manifest_within(const struct remote_manifest *m, const char *path, size_t *end);

#endif
