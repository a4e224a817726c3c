/*
 * Waits for what is elsewhere (sandboxfs/away.h): of an operation, of an fsync, of a create. None
 * holds a thread, and the end of the sandbox or of the mount ends them all.
 */
#ifndef SANDBOXFS_FS_SANDBOX_AWAIT_H
#define SANDBOXFS_FS_SANDBOX_AWAIT_H

#include "fs/sandbox/registry.h"
#include "sandboxfs/away.h"
#include "sandboxfs/loop.h"

/* Embedded by its owner, zeroed but for what is set, and there until done is called. */
struct sbx_await {
	struct sbx_want want; /* need, path, ino, off and len; of a flush nothing */
	bool flush;           /* it is for all that was changed */
	unsigned most_ms;     /* so long at most, then ETIMEDOUT; 0: as long as the backend says */
	/*
	 * [loop] Once, and may free it. 0, or a positive errno: what the backend says; EINTR it was
	 * cancelled; ESTALE the sandbox, or the mount, is gone. ERR has a sentence then.
	 */
	void (*done)(struct sbx_await *a, int code, const struct sbx_error *err);
	void *data;          /* for done */
	struct sbx_box *box; /* set by sbx_box_await; a reference until done has returned */
	/* private: */
	bool given_up; /* nobody wants it any more. Loop thread */
	bool over;     /* because the sandbox is. Loop thread */
	bool late;     /* because it has waited for most_ms. Loop thread */
	struct sbx_timer timer;
	struct sbx_await *prev, *next;
};

/* Begins A. BOX is_away. done follows in any case, never from within. Any thread, no turn held. */
void sbx_box_await(struct sbx_box *box, struct sbx_await *a);
/* [loop] Nobody waits for A any more: done comes soon. Also before it was begun. */
void sbx_await_cancel(struct sbx_await *a);

#endif
