/*
 * Jobs: one command each, from the request to the kept result.
 *
 *   prepared --start--> starting --started--> running --ended--> ended
 *                           \--ended(FAILED)--> failed (start error; the last 64 are kept)
 *
 * A job table belongs to one sandbox. A start is entered (and, when the backend refuses it at once,
 * taken back) by the thread that asks for it; all that follows happens on the event loop thread.
 * Readers on any thread see it under the table's lock. Job objects are reference counted: the table
 * holds one until the job is forgotten, each open file and each waiter one of its own.
 *
 * Time-outs: at timeout_ms SIGTERM to everything, 2 s later SIGKILL; partial output stays.
 * The last 256 ended jobs of a sandbox are kept; older ones are forgotten, named ones
 * only when the directory is removed or the sandbox goes.
 */
#ifndef SANDBOXFS_FS_JOB_JOB_H
#define SANDBOXFS_FS_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/job/request.h"
#include "fs/log/denials.h"
#include "sandboxfs/backend.h"

struct json_object;
struct sbx_jobs;
struct sbx_jobrec; /* one job */
struct sbx_pending;

enum sbx_job_kind { SBX_JOB_EXEC, SBX_JOB_SPAWN, SBX_JOB_RUN };

/*
 * The configuration of a job table. Callbacks come on the event loop thread unless they say
 * otherwise.
 */
struct sbx_jobs_config {
	const struct sbx_settings *settings;
	struct sbx_loop *loop;
	struct sbx_sandbox *sandbox;
	const char *view;      /* absolute path of the tree as users see it: MNT/NAME */
	const char *spill_dir; /* directory for output too large for memory: STATE/jobs/ID; created
	                          on demand */
	/*
	 * The number of running jobs went from 0 to 1 (busy) or back (idle: all files are final).
	 * busy comes before the first command can write, on the thread that starts it: another hop
	 * would cost each command its time. idle comes before anyone is told of the end, on the
	 * loop thread, or on the starting thread when the backend refused the command. Calls never
	 * overlap and come in the order of the changes. Must not block, and must not start or shut
	 * down jobs of this table; may read of it. May be NULL.
	 */
	void (*busy)(bool busy, void *data);
	/* A job, or a holder that writes, has ended and others go on: its files are final. As idle.
	 * May be NULL. */
	void (*left)(void *data);
	/*
	 * REC's command has ended, and nobody was told yet: false to go on at once; else then(arg)
	 * is called on the loop thread when what it left behind has been seen to. May be NULL.
	 */
	bool (*before_end)(struct sbx_jobrec *rec, struct sbx_exit *exit, void (*then)(void *arg),
	                   void *arg, void *data);
	/*
	 * A job was started, has ended, or could not be started though the backend had taken it
	 * (sbx_job_start_error); for log and events. The start of a very short job may be skipped.
	 * rec is valid during the call. May be NULL. Of what is refused at once it comes on the
	 * thread that asks.
	 */
	void (*changed)(struct sbx_jobrec *rec, void *data);
	/* Something was refused by policy: a request (on its thread) or a call of a job's. May be
	 * NULL. */
	void (*denied)(const struct sbx_denial_report *denied, void *data);
	/*
	 * The root of the tree, as sbx_box_root: requests are taken until the end, which may come
	 * meanwhile. Any thread. NULL: the sandbox is there for as long as the table is.
	 */
	int (*root)(void *data);
	void *data;
};

/* Strings of CONFIG are copied. Empties spill_dir, where it exists. Returns 0 or -ENOMEM. */
int sbx_jobs_create(const struct sbx_jobs_config *config, struct sbx_jobs **ret);
/*
 * All jobs have ended (sbx_jobs_shutdown) and the loop thread calls, or has stopped. Who waits for
 * a job that was merely prepared is told now. Records to which there are references stay readable.
 * Accepts NULL.
 */
void sbx_jobs_destroy(struct sbx_jobs *jobs);
/*
 * Refuses further jobs (EBUSY), kills the running ones and calls done(data) on the loop thread when
 * the last has ended and its sbx_job is destroyed (soon when there is none). Any thread.
 */
void sbx_jobs_shutdown(struct sbx_jobs *jobs, void (*done)(void *data), void *data);
/* After done of sbx_jobs_shutdown: take jobs again (a teardown that was given up). Any thread. */
void sbx_jobs_resume(struct sbx_jobs *jobs);

/*
 * Who does something to the tree that no command may meet half done holds the table meanwhile:
 * commands that are to be started wait. -EBUSY while one runs or is about to start. WRITES: the
 * tree changes, and busy() is told as for a command. INSTEAD, or NULL: what can be done while one
 * runs; it ends the sentence of -EBUSY. Held by several, until each has released it. Any thread.
 */
int sbx_jobs_hold(struct sbx_jobs *jobs, bool writes, const char *instead, struct sbx_error *err);
/*
 * Ends one sbx_jobs_hold, with the same WRITES. The last one lets the commands start that wait.
 * Any thread.
 */
void sbx_jobs_release(struct sbx_jobs *jobs, bool writes);
/*
 * A command is about to be started: from here to sbx_jobs_entered, which comes after sbx_job_start,
 * nobody holds the table. False: somebody does; then(data) is called on the loop thread when it is
 * worth asking again. Any thread.
 */
bool sbx_jobs_enter(struct sbx_jobs *jobs, void (*then)(void *data), void *data);
/* Ends one sbx_jobs_enter that returned true. Any thread. */
void sbx_jobs_entered(struct sbx_jobs *jobs);

/* Whether no more jobs are taken: sbx_jobs_shutdown. Any thread. */
bool sbx_jobs_stopping(struct sbx_jobs *jobs);

/* The tree is called VIEW now (mv MNT/A MNT/B). Any thread. */
void sbx_jobs_set_view(struct sbx_jobs *jobs, const char *view);

/* Defaults for the next requests: ctl/cwd, timeout_ms, env, limits. Any thread. */
struct sbx_job_defaults {
	char *cwd;  /* relative to the root, "" at first */
	char **env; /* KEY=VALUE, NULL-terminated, or NULL */
	uint64_t timeout_ms;
	struct sbx_limits limits;
};
/* A deep copy, the caller's: sbx_job_defaults_release it. 0 or -ENOMEM. Any thread. */
int sbx_jobs_get_defaults(struct sbx_jobs *jobs, struct sbx_job_defaults *ret);
/* cwd is checked as a request's is. Takes a copy. -EACCES, -ENOENT, -ENOTDIR, -EINVAL. */
int sbx_jobs_set_cwd(struct sbx_jobs *jobs, const char *cwd, struct sbx_error *err);
/*
 * Takes a copy of ENV (NULL: none). -EINVAL for an entry that is no KEY=VALUE, -ENOMEM. Any
 * thread.
 */
int sbx_jobs_set_env(struct sbx_jobs *jobs, char *const *env, struct sbx_error *err);
/* In milliseconds; 0: none. Any thread. */
void sbx_jobs_set_timeout(struct sbx_jobs *jobs, uint64_t timeout_ms);
/* As those of a request: what is more than the mount's limit is taken down to it. */
void sbx_jobs_set_limits(struct sbx_jobs *jobs, const struct sbx_limits *limits);
/* Frees what *D owns and zeroes it. */
void sbx_job_defaults_release(struct sbx_job_defaults *d);

/*
 * Starts REQ. Checks what can be checked at once (cwd, allowlist, environment, jobs at once,
 * id), then hands over to the backend. NAMED (may be NULL) is a prepared job of this table to run
 * as; one that has ended runs again, with a new number. A request's limit counts before the
 * default, but never more than the mount's own. A request with an id becomes a job of that name. On
 * 0 *ret is a reference to the job; *repeated tells that req->id was known and nothing was started.
 * After a failure *ret is the job that tells of it (sbx_job_refuse), or NULL.
 * -EACCES `path confinement violation: ...`, -ENOENT, -ENOTDIR, -EPERM allowlist, -EAGAIN too many
 * jobs, -EOPNOTSUPP another one runs and the backend runs no two, -EBUSY stopping or NAMED is
 * running, -EEXIST the id was used for a different request, -EINVAL id and NAMED differ, -ENOENT
 * NAMED was removed, and what the backend's exec answers. Any thread; never blocks.
 */
int sbx_job_start(struct sbx_jobs *jobs, const struct sbx_request *req, enum sbx_job_kind kind,
                  struct sbx_jobrec *named, struct sbx_jobrec **ret, bool *repeated,
                  struct sbx_error *err);

/*
 * A request could not even become a job to be started: it becomes one that has failed with ERR,
 * which status, jobs/ and the events show. REQ: what is known of it, or NULL; KIND and NAMED as
 * above. Returns a reference, or NULL when there is no memory or the table is stopping. Any thread.
 */
struct sbx_jobrec *sbx_job_refuse(struct sbx_jobs *jobs, const struct sbx_request *req,
                                  enum sbx_job_kind kind, struct sbx_jobrec *named,
                                  const struct sbx_error *err);

/* Prepares the job NAME (mkdir jobs/NAME). -EEXIST, -EINVAL name. */
int sbx_job_prepare(struct sbx_jobs *jobs, const char *name, struct sbx_jobrec **ret,
                    struct sbx_error *err);
/* rmdir jobs/ID: forgets an ended or prepared job. -EBUSY running, -ENOENT. */
int sbx_job_remove(struct sbx_jobs *jobs, const char *name, struct sbx_error *err);
/* By number, name, or "last"; a reference, or NULL. */
struct sbx_jobrec *sbx_job_find(struct sbx_jobs *jobs, const char *name);
/* The job most recently started by exec; a reference, or NULL. */
struct sbx_jobrec *sbx_job_last_exec(struct sbx_jobs *jobs);
/* Calls fn for each job known at the time of the call, oldest first; fn may do with it what it
 * likes. */
void sbx_jobs_walk(struct sbx_jobs *jobs, void (*fn)(struct sbx_jobrec *rec, void *data),
                   void *data);
/* How many commands run that may write; a start in progress counts. Any thread. */
unsigned sbx_jobs_running(struct sbx_jobs *jobs);

/* Takes one more reference and returns REC. Any thread. */
struct sbx_jobrec *sbx_job_ref(struct sbx_jobrec *rec);
void sbx_job_unref(struct sbx_jobrec *rec); /* accepts NULL */

/* The directory name in jobs/: "12" or "build". Constant; lives as long as the reference. */
const char *sbx_job_name(const struct sbx_jobrec *rec);
/*
 * The number of the last start; 0: not started yet. It changes when a named job runs again. Any
 * thread.
 */
uint64_t sbx_job_number(const struct sbx_jobrec *rec);
/* By which file it was started; of a prepared job EXEC. */
enum sbx_job_kind sbx_job_kind(struct sbx_jobrec *rec);
/* Position in ctime order of the record (for st_mtim): CLOCK_REALTIME ns of start or end. */
int64_t sbx_job_time_ns(struct sbx_jobrec *rec);
/* Whether the last start has ended or failed; false for a prepared job. Any thread. */
bool sbx_job_ended(struct sbx_jobrec *rec);
/* Whether the last start has ended as lost, and it is known why: *ERR. Any thread. */
bool sbx_job_lost(struct sbx_jobrec *rec, struct sbx_error *err);
/* 0, or the negative errno and text with which the command could not be started. */
int sbx_job_start_error(struct sbx_jobrec *rec, struct sbx_error *err);
/* The number that the request gave as track; 0: none. */
uint64_t sbx_job_track(struct sbx_jobrec *rec);
/* The paths that it changed, a list that is taken over; CUT: and more. Before the end is told. */
void sbx_job_set_changed(struct sbx_jobrec *rec, char **paths, bool cut);
/*
 * Notes the last refusal that REC met while it ran, in words with the option that would change
 * it. Before the end is told.
 */
void sbx_job_set_hint(struct sbx_jobrec *rec, const char *text);
/* malloc'd; NULL: nothing is known to have been refused. */
char *sbx_job_hint(struct sbx_jobrec *rec);
/* Exit code as the first field of status: 0-255, 128+n, 124; -1 while there is none. */
int sbx_job_code(struct sbx_jobrec *rec);

/* Sends SIG to everything the job started. Any thread. 0, -ESRCH it has ended or never ran, -EINVAL
 * SIG, -EOPNOTSUPP commands of this sandbox take no such signal. */
int sbx_job_kill(struct sbx_jobrec *rec, int sig);
/* Kills every running job of the table. Any thread. */
void sbx_jobs_kill(struct sbx_jobs *jobs, int sig);

#define SBX_STATUS_MAX 1536
/*
 * The status line with its newline, of rec or (NULL) of nothing run; where output was cut it ends
 * with stdout_cut=BYTES stderr_cut=BYTES. Returns its length; SBX_STATUS_MAX holds every one.
 */
size_t sbx_job_status(struct sbx_jobrec *rec, char *buf, size_t size);
/*
 * The result as a JSON object: id, argv, cwd, exitCode, signal, timedOut, oomKilled, durationMs,
 * stdout, stderr, changedFiles, and error and errno where the start failed or it was lost. The
 * caller puts it.
 */
struct json_object *sbx_job_result(struct sbx_jobrec *rec);
/*
 * For the record of what happened: "job", "cmd" (argv), once it has ended "changed_files" where
 * known, "exit_code", "signal", "timed_out", "duration_sec", and "error" when it could not be
 * started. The caller puts it.
 */
struct json_object *sbx_job_log_members(struct sbx_jobrec *rec);
/* argv of the last start as the text of a JSON array, malloc'd; NULL when it never ran. */
char *sbx_job_argv_json(struct sbx_jobrec *rec);
/* The directory of the last start, relative to the root, "." for that; malloc'd. */
char *sbx_job_cwd(struct sbx_jobrec *rec);
/* The last part of argv[0]; malloc'd, NULL: no memory. */
char *sbx_job_program(struct sbx_jobrec *rec);

/* Kept output of STREAM 1 or 2: its size now; and some of it (count, or -errno). Never waits for
 * the job. */
uint64_t sbx_job_output_size(struct sbx_jobrec *rec, int stream);
/*
 * Copies up to LEN kept bytes of STREAM from OFF on. Returns the count, 0 at the present end, or
 * -errno. Never waits for the job.
 */
ssize_t sbx_job_output_read(struct sbx_jobrec *rec, int stream, void *buf, size_t len,
                            uint64_t off);

/*
 * Opens jobs/ID/stdin. A job that is started while the file is open gets a pipe, which stays open
 * until the last sbx_job_stdin_close. A request that gives its own stdin comes before that. Any
 * thread.
 */
void sbx_job_stdin_open(struct sbx_jobrec *rec);
/*
 * Answers P with LEN, now or when the pipe has room. All bytes are taken or none. Before the
 * start they are kept and become the command's stdin. EPIPE: nothing reads any more. EFBIG: more
 * than 64 MiB would be kept. SIGPIPE must be ignored in the process. Any thread.
 */
void sbx_job_stdin_write(struct sbx_jobrec *rec, const void *buf, size_t len,
                         struct sbx_pending *p);
/* Ends one sbx_job_stdin_open. The last one gives the command its end-of-file. Any thread. */
void sbx_job_stdin_close(struct sbx_jobrec *rec);

#endif
