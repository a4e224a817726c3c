/*
 * A request on its way to a job: it waits while the sandbox is held, git's two sides are brought
 * together, the tree is marked where it is tracked, and the job starts.
 */
#ifndef SANDBOXFS_FS_SANDBOX_SUBMIT_H
#define SANDBOXFS_FS_SANDBOX_SUBMIT_H

#include <pthread.h>

#include "fs/sandbox/track.h"
#include "sandboxfs/loop.h"

struct sbx_job_waiter;

/* Embedded by the submitter. It carries one request at a time. */
struct sbx_submission {
	struct sbx_box *box;     /* borrowed */
	enum sbx_job_kind kind;  /* an exec is done when its job has ended, others when it runs */
	struct sbx_jobrec *into; /* the record that is to run; NULL: a new one. Borrowed */
	/*
	 * [loop] The request is done, or (CODE is negative, ERR says why) has become no running
	 * job. JOB is a reference, the callee's; NULL where no record tells what failed.
	 */
	void (*done)(struct sbx_jobrec *job, int code, struct sbx_error *err, void *data);
	void *data;
	/* private: */
	pthread_mutex_t lock; /* all below */
	struct sbx_request request;
	struct sbx_track_start track;
	struct sbx_jobrec *job; /* between its start and done */
	struct sbx_job_waiter *waiter;
	struct sbx_timer patience; /* with a job that was cancelled; loop thread */
	bool cancelled;
};

/* Sets up the lock of a zeroed S; finish it. */
void sbx_submission_init(struct sbx_submission *s);
/* Releases the lock of S. No request of it is under way. */
void sbx_submission_finish(struct sbx_submission *s);
/*
 * Submits REQ, which is taken over. 1: done follows. Else it has failed at once: -errno as of
 * sbx_job_start, and *FAILED is a reference to the record that tells of it, or NULL. Any thread.
 */
int sbx_submit(struct sbx_submission *s, struct sbx_request *req, struct sbx_jobrec **failed,
               struct sbx_error *err);
/*
 * Kills the job, or lets none start; done follows all the same. Where the end of the job does not
 * come within a second, as of one on a machine that is silent, done comes without it, with
 * ETIMEDOUT: no client may be kept from its own end for longer. [loop]
 */
void sbx_submission_cancel(struct sbx_submission *s);

#endif
