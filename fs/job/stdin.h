/* The standard input of a command: its source, and the pipe that feeds it. */
#ifndef SANDBOXFS_FS_JOB_STDIN_H
#define SANDBOXFS_FS_JOB_STDIN_H

#include "fs/job/job_table.h"

/* Where a command reads from. */
struct sbx_stdin_source {
	bool pipe;
	const char *data; /* otherwise these bytes, or NULL: nothing */
	size_t len;
};

/* Decides by REQ and by what was written. What was kept is lent until sbx_stdin_consumed. Lock
 * held. */
void sbx_stdin_choose(struct sbx_jobrec *rec, const struct sbx_request *req,
                      struct sbx_stdin_source *ret);
/*
 * Opens it: *fd for the command, -1 for /dev/null; *feed for sbx_stdin_attach, -1 without a pipe.
 * -errno.
 */
int sbx_stdin_source_open(const struct sbx_stdin_source *src, int *fd, int *feed);
/* The command has been handed over: begins to feed it. Takes FEED. Any thread, lock not held. */
void sbx_stdin_attach(struct sbx_jobrec *rec, int feed);
/* The command has been started: what was kept for it is dropped. Lock held. */
void sbx_stdin_consumed(struct sbx_jobrec *rec);
/* The command could not be handed over; nothing is attached. Any thread, lock held. */
void sbx_stdin_abort(struct sbx_jobrec *rec);
/* Nothing reads any more: closes the pipe, answers those who wait. Loop thread, lock not held. */
void sbx_stdin_end(struct sbx_jobrec *rec);

#endif
