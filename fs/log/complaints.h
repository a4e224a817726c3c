/*
 * Complaints in the stderr of failed commands about paths and programs that they could not get
 * at, as C programs, shells, Python and node print them. A command chooses its text freely, so a
 * name found in it is worth a look, and no more.
 */
#ifndef SANDBOXFS_FS_LOG_COMPLAINTS_H
#define SANDBOXFS_FS_LOG_COMPLAINTS_H

#include <stddef.h>

#define SBX_COMPLAINTS_MAX 8

enum sbx_complaint_kind {
	SBX_COMPLAINT_MISSING,   /* a path: no such file */
	SBX_COMPLAINT_READ_ONLY, /* a path: read-only file system */
	SBX_COMPLAINT_REFUSED,   /* a path: permission denied */
	SBX_COMPLAINT_PROGRAM,   /* a word that PATH was searched for */
};

struct sbx_complaint {
	enum sbx_complaint_kind kind;
	/*
	 * A path is absolute, without ".", ".." and empty parts, and below PATH_MAX; a word has no
	 * slash. Neither has control characters.
	 */
	const char *name;
};

struct sbx_complaints {
	struct sbx_complaint all[SBX_COMPLAINTS_MAX]; /* the last that was written comes first; no
	                                                 two are equal */
	size_t n;
};

/* Reads TEXT[0..LEN), TEXT[LEN] being NUL, and cuts it up: names point into it. Any thread. */
void sbx_complaints_read(char *text, size_t len, struct sbx_complaints *ret);

#endif
