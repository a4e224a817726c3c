/* Waiters for the start or the end of a job. */
#ifndef SANDBOXFS_FS_JOB_WAIT_H
#define SANDBOXFS_FS_JOB_WAIT_H

#include "fs/job/job.h"

/*
 * Has fn(rec, data) called once on the loop thread: when the command has certainly been started or
 * could not be (sbx_job_on_started), or when the job has ended (sbx_job_on_ended); at the next
 * turn of the loop when that is already so. Returns a handle for sbx_job_forget_waiter.
 * Any thread.
 */
struct sbx_job_waiter;
typedef void (*sbx_job_fn)(struct sbx_jobrec *rec, void *data);
/* Waits for the start; the handle is REC's. */
struct sbx_job_waiter *sbx_job_on_started(struct sbx_jobrec *rec, sbx_job_fn fn, void *data);
/* Waits for the end; the handle is REC's. */
struct sbx_job_waiter *sbx_job_on_ended(struct sbx_jobrec *rec, sbx_job_fn fn, void *data);
/* fn will not be called any more. Loop thread, before fn was called. */
void sbx_job_forget_waiter(struct sbx_jobrec *rec, struct sbx_job_waiter *w);

/*
 * For `run`: calls fn once when there are more than HAVE bytes of STREAM (1, 2) or the job has
 * ended. Any thread; fn on the loop thread.
 */
struct sbx_job_waiter *sbx_job_on_output(struct sbx_jobrec *rec, int stream, uint64_t have,
                                         sbx_job_fn fn, void *data);

/* Calls the waiters whose time has come. Loop thread, lock not held. */
void sbx_job_tell(struct sbx_jobrec *rec);
/* The run that those wait for who came before it has begun. Lock held. */
void sbx_job_bind_waiters(struct sbx_jobrec *rec);
/* Has sbx_job_tell called on the loop thread. Any thread. */
void sbx_job_tell_soon(struct sbx_jobrec *rec);

#endif
