/*
 * A manifest: what a machine says of its tree. It is hostile.
 *
 * Bytes of a REMOTE_MANIFEST frame: records, each two strings that end with NUL,
 *   FLAG TYPE " " MODE " " SIZE " " MTIME " " INO " " NLINK " " PATH NUL TARGET NUL
 * FLAG: L a directory all of whose names are in this manifest; = a file that the host sent, as it
 * stands there now; - anything else. TYPE: f d l p s (others are left out). MODE: octal
 * permissions. MTIME: seconds, and with a point up to nine digits more. PATH: from the root, which
 * is ".". TARGET: of a link, else empty. A record "!" NUL NUL at the end: there is more than was
 * listed, so that no directory is complete.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_MANIFEST_H
#define SANDBOXFS_BACKENDS_REMOTE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandboxfs/error.h"

#define REMOTE_ENTRIES_MAX 50000 /* of one manifest */

struct remote_listed {
	const char *path; /* "" the root; no empty part, no "." or "..", no leading slash */
	mode_t mode;      /* type and permissions; setuid, setgid and sticky are taken off */
	uint64_t size;    /* bytes, below 2^62 */
	int64_t mtime_ns;
	uint64_t ino;
	uint32_t nlink;
	bool complete; /* a directory whose names are all here */
	bool sent;
	const char *target;
};

struct remote_manifest {
	struct remote_listed *items; /* by directory, then by name; each path once */
	size_t n;
	int64_t begun_ns; /* of the machine's clock */
	char *store;
};

/* Reads BYTES. What cannot be true is left out or refused: EPROTO. Thread-safe. */
int remote_manifest_read(const void *bytes, size_t len, int64_t begun_ns,
                         struct remote_manifest *ret, struct sbx_error *err);
void remote_manifest_release(struct remote_manifest *m);

#endif
