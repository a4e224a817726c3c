/*
 * Files of the host that commands do not see, or may not write to. Only file systems of this
 * machine are looked at, never our own mount or one that somebody else has to answer for, so a
 * look never waits.
 */
#ifndef SANDBOXFS_FS_SANDBOX_UNSHOWN_H
#define SANDBOXFS_FS_SANDBOX_UNSHOWN_H

#include <limits.h>
#include <stdbool.h>

#include "fs/log/complaints.h"
#include "sandboxfs/settings.h"

struct sbx_unshown;

/* A refusal that COMPLAINT was about. */
struct sbx_refusal {
	int code;              /* positive errno */
	char what[PATH_MAX];   /* the path, or the file of the program */
	char reason[PATH_MAX]; /* with the option that would change it */
};

/*
 * Reads which file systems there are. LANDLOCK: commands see the host's mounts, and what they may
 * not see is EACCES. SETTINGS must live as long. NULL: they cannot be known. Any thread.
 */
struct sbx_unshown *sbx_unshown_open(const struct sbx_settings *settings, bool landlock);
void sbx_unshown_close(struct sbx_unshown *u); /* accepts NULL */

/* Whether COMPLAINT is of something that the host has and commands lack. Reads the disk. */
bool sbx_unshown_find(const struct sbx_unshown *u, const struct sbx_complaint *complaint,
                      struct sbx_refusal *ret);

#endif
