/* The backend's [pool] calls for a box: sync, save, and works for somebody who waits. */
#ifndef SANDBOXFS_FS_SANDBOX_BACKEND_WORK_H
#define SANDBOXFS_FS_SANDBOX_BACKEND_WORK_H

#include "fs/sandbox/registry.h"

/*
 * Brings what is kept twice (git state) in step: false when there is nothing to do; else then(data)
 * is called on the event loop thread when it is done, whatever came of it. What kept it from
 * agreeing is stored and told. Any thread.
 */
bool sbx_box_sync(struct sbx_box *box, void (*then)(void *data), void *data);

/*
 * fsync's: when what was written is where neither the daemon's death nor a power cut loses it,
 * then(code, data) is called on the event loop thread; a failure's sentence is stored. False: there
 * is nothing to be saved beside the files themselves, which are the caller's to sync. Any thread.
 */
bool sbx_box_flush(struct sbx_box *box, void (*then)(int code, void *data), void *data);
/*
 * Something is about to be written through the mount: where changes are in memory it will be saved.
 * Any thread.
 */
void sbx_box_edited(struct sbx_box *box);

/*
 * A [pool] call of the backend for one box, embedded by its owner: those of a box come one after
 * another, in order. done follows in any case, on the event loop thread, and may free it. code is
 * what run answered, or -EBUSY (a command is in the way, or the box is going, also meanwhile),
 * -ESTALE, -EINTR (its owner cancelled it); err has a sentence then.
 */
enum sbx_work_kind {
	SBX_WORK_BESIDE, /* commands may run */
	SBX_WORK_ALONE,  /* none runs meanwhile */
	SBX_WORK_WRITES, /* nor that, and the tree is another afterwards */
};
struct sbx_work {
	enum sbx_work_kind kind;
	const char *event;   /* told and recorded when it went well; NULL: nothing is */
	const char *instead; /* what its owner can ask for while commands run, in words; or NULL */
	char detail[SBX_REV_MAX]; /* what of it is told; for run to fill in */
	int (*run)(struct sbx_work *w, struct sbx_error *err); /* [pool] */
	void (*done)(struct sbx_work *w);
	atomic_bool cancelled; /* any thread; also set when the box goes */
	int code;
	struct sbx_error err;
	/* private: */
	struct sbx_box *box;
	uint64_t begun_ns;
	bool box_goes; /* cancelled for that; registry's lock */
	struct sbx_work *next;
};
/* Any thread. */
void sbx_box_work(struct sbx_box *box, struct sbx_work *w);
/*
 * Nobody wants it any more: done follows soon, also where it waits for others' that take long.
 * Before it was begun (its box is NULL then) W is marked only. Any thread, while the owner refers
 * to the box.
 */
void sbx_work_cancel(struct sbx_work *w);

#endif
