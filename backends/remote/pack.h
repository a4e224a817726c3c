/*
 * A tar of small files, for a machine that need not have more than what POSIX says of tar, or none
 * at all: the plain heads (ustar) have all but parts of seconds. Not thread-safe.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_PACK_H
#define SANDBOXFS_BACKENDS_REMOTE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "backends/remote/text.h"

#define REMOTE_PACK_FILE_MAX ((size_t)256 * 1024)

struct remote_member {
	size_t directory; /* its name is DIRECTORY/NAME */
	const char *name;
	const char *target; /* of a symbolic link; else NULL */
	mode_t mode;
	struct timespec mtime;
};

/* Whether the words of M fit, and a shell without tar can read them. */
bool remote_pack_fits(const struct remote_member *m);
/*
 * Adds M with what the file FD holds, at most REMOTE_PACK_FILE_MAX bytes; -1: nothing. 0 or
 * -errno: the text is as before.
 */
int remote_pack_add(struct remote_text *pack, const struct remote_member *m, int fd);
/* Adds the end. */
void remote_pack_end(struct remote_text *pack);

#endif
