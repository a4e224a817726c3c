/*
 * Parked operations: those whose files are elsewhere. They hold no thread, and are carried out
 * again when what they need is here.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_STALL_H
#define SANDBOXFS_FS_WORKSPACE_STALL_H

#include <limits.h>

#include "fs/workspace/gate.h"
#include "sandboxfs/away.h"

/* What an operation lacks. */
struct ws_absent {
	struct sbx_box *box; /* borrowed */
	enum sbx_need need;
	uint64_t ino, off, len;
	char path[PATH_MAX];
};

/*
 * Parks C, which is copied with all that it points to, until ABSENT is here; then it is passed
 * again, or refused with the reason. No turn is held. Any thread.
 */
void ws_stall(const struct ws_call *c, const struct ws_absent *absent);
/* Answers the fsync REQ when all that was changed in BOX is where that really is. Any thread. */
void ws_stall_flush(fuse_req_t req, struct sbx_box *box);

#endif
