/* The changes of each command, recorded with -o track. */
#ifndef SANDBOXFS_FS_SANDBOX_TRACK_H
#define SANDBOXFS_FS_SANDBOX_TRACK_H

#include "fs/sandbox/backend_work.h"

/*
 * -o track. begin: brings git's state in step, as sbx_box_sync, and marks the tree; false when
 * there is nothing to do, else then(data) follows; *start is the caller's, and its number, 0 where
 * nothing is tracked, goes into the request. end: REC's command has ended, or (FAILED) could not be
 * started; as sbx_box_sync. drop: no command came of it.
 */
struct sbx_track_start {
	struct sbx_work work; /* cancelled may be set */
	uint64_t number;
	/* private: */
	struct sbx_box *box;
	unsigned place;
	void (*then)(void *data);
	void *data;
};
/*
 * Brings git's state in step, as sbx_box_sync, and marks the tree where it is tracked. False:
 * there is nothing to do; else then(data) follows on the loop thread. *START is the caller's
 * until then; its number, 0 where nothing is tracked, goes into the request. Any thread.
 */
bool sbx_box_track_begin(struct sbx_box *box, struct sbx_track_start *start,
                         void (*then)(void *data), void *data);
/*
 * REC's command has ended, or (FAILED) could not be started: marks the tree, lists its changes
 * and brings git's state in step. As sbx_box_sync.
 */
bool sbx_box_track_end(struct sbx_box *box, struct sbx_jobrec *rec, bool failed,
                       void (*then)(void *arg), void *arg);
/*
 * No command came of the start NUMBER: its place is free again. Accepts one that is not known.
 * Any thread.
 */
void sbx_box_track_drop(struct sbx_box *box, uint64_t number);
/* Between which states lies what REC changed; to "": now. -ENOENT. Any thread. */
int sbx_box_track_marks(struct sbx_box *box, struct sbx_jobrec *rec, char from[SBX_REV_MAX],
                        char to[SBX_REV_MAX], struct sbx_error *err);
/* [pool] Takes the tree back to before JOB (NULL: the last that was not undone). -ENOENT. */
int sbx_box_track_undo(struct sbx_box *box, const char *job, atomic_bool *cancelled,
                       struct sbx_error *err);

#endif
