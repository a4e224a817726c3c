/* What becomes of a command that was given to the backend (job.c), for who gives it (start.c). */
#ifndef SANDBOXFS_FS_JOB_JOB_RUN_H
#define SANDBOXFS_FS_JOB_JOB_RUN_H

#include "fs/job/job_table.h"

/* For the job of a struct sbx_job_run. */
extern const struct sbx_job_events sbx_job_run_events;

/*
 * The outcome of sbx_sandbox_exec: the job runs, or CODE (negative errno) with ERR. RUN is given
 * away. Any thread, no lock held.
 */
void sbx_job_run_handed(struct sbx_job_run *run);
void sbx_job_run_refused(struct sbx_job_run *run, int code, const struct sbx_error *err);

/*
 * REC, which is in the list, could not be started because of CODE (an errno) and TEXT. Returns a
 * record that has become too much, to be released without the lock, or NULL. Lock held.
 */
struct sbx_jobrec *sbx_jobrec_fail(struct sbx_jobrec *rec, int code, const char *text);

#endif
