/*
 * A process that outlives the daemon by a moment, to take away the mounts that the daemon can no
 * longer serve: after kill -9 who looks at them would see "Transport endpoint is not connected".
 *
 * While it lives it holds a lock on a directory in the state directory, and the next daemon on that
 * waits for the lock before it mounts. So what is taken away is not what was mounted later.
 */
#ifndef SANDBOXFS_FS_FUSE_MOURNER_H
#define SANDBOXFS_FS_FUSE_MOURNER_H

#include "sandboxfs/error.h"

struct sbx_mourner;

/* Absolute paths, of which any may be NULL; they live as long as the call that takes them. */
struct sbx_mourned {
	const char *mountpoint; /* only while it is dead: it may be somebody else's by then */
	const char *controls;   /* nobody mounts there without the lock */
};

/*
 * Forks it. It has no descriptor, environment or terminal of the caller's. -ENOMEM, -EMFILE,
 * -EAGAIN. While the process has one thread.
 */
int sbx_mourner_start(const struct sbx_mourned *what, struct sbx_mourner **ret,
                      struct sbx_error *err);
/*
 * Locks DIR, a directory that is borrowed, waiting for the mourner of a daemon that died. M, which
 * may be NULL, acts from now on when this process is gone. Before anything is mounted. -EBUSY when
 * the other one does not end, -EPIPE when M has died. Not thread-safe.
 */
int sbx_mourner_hold(struct sbx_mourner *m, int dir, struct sbx_error *err);
/* Ends it and waits for its end; the mounts are the caller's. Accepts NULL. */
void sbx_mourner_dismiss(struct sbx_mourner *m);

#endif
