/*
 * Declarations that the files of a job table share. Its locks, in the order in which they are
 * taken:
 *
 *   turn   held while the number of running jobs changes and busy() is told, so that the calls come
 *          in the order of the changes and no second command is handed over before busy(true) has
 *          returned
 *   lock   every changing field of the table and its records; nothing that may block or call back
 *          happens under it
 *   (an output's own lock)
 *
 * A table outlives sbx_jobs_destroy until the last reference to one of its records is gone.
 */
#ifndef SANDBOXFS_FS_JOB_JOB_TABLE_H
#define SANDBOXFS_FS_JOB_JOB_TABLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "fs/job/job.h"
#include "fs/job/output.h"
#include "sandboxfs/loop.h"

#define SBX_JOBS_KEPT       256
#define SBX_JOBS_FAILED     64 /* records kept of starts that failed */
#define SBX_JOB_GRACE_MS    2000
#define SBX_STDIN_KEEP_MAX  (64u * 1024 * 1024) /* bytes written before the start */
#define SBX_STDIN_QUEUE_MAX (1024u * 1024)      /* bytes that wait for the command to read */

/* ---- records ---- */

/* Standard input (stdin.h). */
struct sbx_stdin {
	unsigned openers;
	char *buf; /* [off, len) is kept for the start, or waits to be written */
	size_t off, len, cap;
	bool live;              /* the running command reads from a pipe of ours */
	bool broken;            /* ... and has stopped to */
	bool armed;             /* EPOLLOUT is watched for */
	struct sbx_watch watch; /* the pipe's write end, -1: none (yet) */
	struct sbx_stdin_deferred *deferred, **deferred_tail;
};

enum sbx_job_state {
	SBX_JOB_PREPARED,
	SBX_JOB_STARTING,
	SBX_JOB_RUNNING,
	SBX_JOB_ENDED,
	SBX_JOB_FAILED
};

/* A request, as the client gave it. */
struct sbx_asked {
	char **argv;
	char **env; /* NULL: none */
	char *cwd;  /* NULL: not given */
	char *dir;  /* what that means: relative to the root */
	bool has_stdin;
	char *stdin_data; /* kept only where an id may ask again */
	size_t stdin_len;
};

/*
 * One execution of a record. It goes when sbx_sandbox_exec has returned and the job has ended,
 * whichever comes last.
 */
struct sbx_job_run {
	struct sbx_job job;     /* the backend's to use */
	struct sbx_jobrec *rec; /* a reference */
	bool handed;            /* sbx_sandbox_exec has returned */
	bool ended;
	uint64_t signals;     /* to be sent, bit n for signal n + 1 */
	struct sbx_exit exit; /* while it is seen to what the command left behind */
};

struct sbx_jobrec {
	atomic_int refs;
	struct sbx_jobs *jobs; /* a reference */
	char name[64];
	bool named;    /* by the user: not forgotten by itself, may run again */
	bool prepared; /* by mkdir: survives a start that failed */
	/* Under the table's lock: */
	struct sbx_jobrec *prev, *next; /* the table's list, by age of the start */
	bool listed;
	enum sbx_job_state state;
	enum sbx_job_kind kind;
	uint64_t number; /* 0: not started yet */
	struct sbx_asked asked;
	struct sbx_job_run *run; /* while starting or running */
	struct sbx_output *out[2];
	struct sbx_exit exit;
	struct sbx_error start_error;
	uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
	int64_t time_ns;           /* CLOCK_REALTIME of the last change */
	uint64_t timeout_ms;
	uint64_t sent; /* signals that users sent, as in run */
	bool timed_out;
	uint64_t track;   /* of the request; 0: what it changes is not recorded */
	char **changed;   /* paths; NULL: not known */
	bool changed_cut; /* and there were more */
	char *hint;       /* what it was refused, in words; NULL: nothing that is known */
	struct sbx_job_waiter *waiters, **waiters_tail;
	struct sbx_stdin in;
	struct sbx_timer timer; /* loop thread only */
};

struct sbx_jobs {
	atomic_int refs;
	const struct sbx_settings *settings;
	struct sbx_loop *loop;
	struct sbx_sandbox *sandbox;
	char *spill_dir;
	void (*busy)(bool busy, void *data);
	void (*left)(void *data);
	bool (*before_end)(struct sbx_jobrec *rec, struct sbx_exit *exit, void (*then)(void *arg),
	                   void *arg, void *data);
	void (*changed)(struct sbx_jobrec *rec, void *data);
	void (*denied)(const struct sbx_denial_report *denied, void *data);
	int (*root)(void *data);
	void *data;
	char *user; /* name of the user commands run as */
	struct sbx_allow *allow;
	uint64_t grace_ms; /* between SIGTERM and SIGKILL */
	pthread_mutex_t turn;
	pthread_mutex_t lock; /* all below */
	char *view;
	struct sbx_jobrec *first, *last;
	uint64_t numbers; /* given out */
	uint64_t waiters; /* created, numbers them */
	unsigned running; /* commands that may write */
	unsigned live;    /* runs that exist: the backend may still know the job */
	unsigned ended;   /* ended records without a name of their own */
	unsigned failed;  /* and of starts that failed */
	struct sbx_job_defaults defaults;
	bool stopping;
	unsigned entering;              /* starts between sbx_jobs_enter and sbx_jobs_entered */
	unsigned held, writers;         /* of sbx_jobs_hold; those who write among them */
	struct sbx_jobs_queued *queued; /* those who want to enter meanwhile */
	struct sbx_jobs_done *done;     /* of sbx_jobs_shutdown */
};

/* Takes one more reference and returns JOBS. Any thread. */
struct sbx_jobs *sbx_jobs_ref(struct sbx_jobs *jobs);
/*
 * The last one frees the table and removes its spill directory, if that is empty. No lock may be
 * held.
 */
void sbx_jobs_unref(struct sbx_jobs *jobs);

/* A record outside the list, with one reference. NAME NULL: its number will be its name. */
struct sbx_jobrec *sbx_jobrec_new(struct sbx_jobs *jobs, const char *name);
/* Frees what *ASKED owns and zeroes it. */
void sbx_asked_release(struct sbx_asked *asked);

/* Appends REC to the list, which takes a reference of its own. The lock is held. */
void sbx_jobs_link(struct sbx_jobs *jobs, struct sbx_jobrec *rec);
/*
 * Takes REC out of the list and drops the list's reference, which may free REC. The lock is held.
 */
void sbx_jobs_unlink(struct sbx_jobs *jobs, struct sbx_jobrec *rec);
/* The job with that name or number, borrowed, or NULL. The lock is held. */
struct sbx_jobrec *sbx_jobs_by_name(struct sbx_jobs *jobs, const char *name);
/* The job most recently started by exec, borrowed, or NULL. The lock is held. */
struct sbx_jobrec *sbx_jobs_last_exec(struct sbx_jobs *jobs);
/* Whether REC is starting or running. The lock is held. */
bool sbx_jobrec_active(const struct sbx_jobrec *rec);

#endif
