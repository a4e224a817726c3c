/*
 * Declarations that the parts of jobs.h share: jobs_words.c has the words of a command,
 * jobs_calls.c the calls about jobs, jobs.c their states. All but job_words_take is done on the
 * loop.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_JOBS_IMPL_H
#define SANDBOXFS_BACKENDS_REMOTE_JOBS_IMPL_H

#include <stdatomic.h>

#include "backends/remote/jobs.h"
#include "backends/remote/works.h"
#include "sandboxfs/loop.h"

/* A command, as the runner is told of it. */
struct job_words {
	struct remote_text line; /* the words of r_exec from CWD on */
	bool soon;               /* its start is told before its end */
	uint64_t timeout_ms;     /* after which the caller signals; 0: never, or not soon */
	uint64_t time_ms;        /* after which it is killed there at the latest; 0: never */
	uint64_t keep;           /* bytes of each stream; 0: all */
	/* Its standard input, where that is put as a file; size 0: it is not. */
	struct sbx_machine_file input;
};

/*
 * Takes what is needed of SPEC. NUMBER: what its standard input may be put as. 0 or -errno as
 * remote_jobs_exec(); *W is to be released in any case. [any]
 */
int job_words_take(struct job_words *w, const struct sbx_exec *spec, unsigned number,
                   struct sbx_error *err);
void job_words_release(struct job_words *w);

/* What the machine may drop: the ids of jobs that were read to the end, and the lines that do so
 * for those that were lost, which may still run there. */
struct job_drops {
	struct remote_text ended, lost;
};

enum job_state {
	JOB_WAITING,  /* for the machine */
	JOB_BOARDING, /* for what the host has changed to be sent along */
	JOB_STARTING, /* its start is under way */
	JOB_RUNNING,  /* it is polled for */
	JOB_ENDING,   /* how it has ended is known, and told soon */
};

struct job {
	struct job *next; /* of the table */
	struct job *with; /* of those that end with the same answer */
	struct remote_jobs *jobs;
	struct sbx_job *caller; /* NULL: it was told the end */
	uint64_t begun_ns;      /* when the caller has asked for it */
	int refs;               /* the caller's, and one of each call and work about it */
	enum job_state state;
	char id[sizeof(((struct remote_frame *)NULL)->word)];
	struct job_words words;
	struct remote_ride ride;
	struct remote_call start;
	struct job_drops drops; /* that go with the start */
	uint64_t seen;          /* the batch that the start has seen */
	bool carries;           /* its start brings what the host has changed */
	bool sweeps;            /* its start ends what earlier daemons have left */
	uint64_t got[2];
	uint64_t signals;          /* sent, as bits */
	uint64_t again;            /* those whose call has failed */
	uint64_t went;             /* those of them that are in the poll that is under way */
	uint64_t killed_ns;        /* when it was sent SIGKILL; 0: it was not */
	struct sbx_timer patience; /* with a start whose time is over there */
	bool entered, started;
	bool counted; /* among those that make the sandbox busy */
	bool turning; /* the call of a signal that stops or continues it is under way */
	int turn;     /* the next such, which is sent behind that; 0: none */
	struct sbx_exit exit;
};

/* An answer whose manifest is taken over, in the pool. */
struct taking {
	struct taking *next;
	struct remote_jobs *jobs;
	struct remote_reply reply;
	uint64_t seen;
	struct job *ended;    /* that are told after it */
	struct sbx_want want; /* of what lagged then, for which they wait; */
	unsigned rounds;      /* so often */
	bool altered;
};

struct remote_jobs {
	struct remote_jobs_config config;
	char *prefix;
	atomic_int refs; /* the owner's, and one of all that is under way */
	atomic_ullong number;
	atomic_bool abandoned;
	atomic_bool swept; /* what earlier daemons have left has ended */
	/* Loop thread: */
	struct remote_link *link; /* NULL: not connected */
	bool detaches, parallel, merges;
	struct sbx_error failed;
	bool idle;
	unsigned busy; /* jobs that may run */
	struct job *first, **last;
	struct job_drops drops; /* that go with the next call */
	struct remote_call poll;
	struct job_drops poll_drops; /* that go with it */
	struct remote_works kills;   /* calls that end jobs */
	struct sbx_timer pause;      /* before the next poll */
	bool polling;
	unsigned poll_failures;
	uint64_t poll_seen;
	uint64_t heard_ns;                    /* when the machine has answered last */
	struct taking *taking, **last_taking; /* the first is in the pool */
	struct taking *lagging;               /* they wait for a flush */
};

/* ---- jobs.c ---- */

void jobs_ref(struct remote_jobs *j);
void jobs_unref(struct remote_jobs *j);
struct job *job_ref(struct job *job);
void job_unref(struct job *job);
/* JOB, of the table, has ended so, of what is lost CODE is the errno of TEXT; told from the loop,
 * never from within this. */
void job_end_soon(struct job *job, enum sbx_end end, int code, const char *text);
/* JOB may run from now on, until its end is told. */
void job_count(struct job *job);
/* Tells the end of JOB, as its exit has it. */
void job_tell_end(struct job *job);
/* Whether SIG ends what does not know it. */
bool job_signal_ends(int sig);
/* Whether JOB was sent a signal that ends what does not run yet; *SIG: it. */
bool job_is_killed(const struct job *job, int *sig);

/* ---- jobs_calls.c ---- */

/* JOB, which waits, is started. The jobs are connected. */
void job_begin(struct job *job);
/* Sends SIG to JOB, which may run. */
void job_send_kill(struct job *job, int sig);
/* Nobody waits any more for what lagged behind an end. */
void jobs_unwant_lagging(struct remote_jobs *j);
/* sbx_timer.fn: the pause before the next poll is over. */
void jobs_pause_over(struct sbx_timer *t);

#endif
