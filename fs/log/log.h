/*
 * What happened, for programs: the JSONL log of a sandbox (ctl/log, a durable copy in
 * logs_dir) and the live events of a sandbox and of the mount.
 *
 * A log record is one JSON object on one line: "timestamp" (RFC 3339, UTC, ms), "task_id" (the
 * sandbox's name), "event" ("create", "exec", "spawn", "run", "cleanup", ...), and where they apply "job",
 * "cmd", "exit_code", "signal", "timed_out", "duration_sec", "changed_files", "error". No output of commands.
 */
#ifndef SANDBOXFS_FS_LOG_LOG_H
#define SANDBOXFS_FS_LOG_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct json_object;
struct sbx_events;
struct sbx_log;
struct sbx_loop;
struct sbx_pending;

/*
 * Opens the log of sandbox NAME with the identity ID: STATE_DIR/log/ID.jsonl, and LOGS_DIR/NAME.jsonl unless
 * logs_dir is NULL. Existing files are continued. Returns 0 or -errno.
 */
int sbx_log_open(const char *state_dir, const char *logs_dir, const char *id, const char *name,
                 struct sbx_log **ret);
/* Accepts NULL. The file below state_dir is left alone; sbx_log_remove unlinks it. */
void sbx_log_close(struct sbx_log *log);
void sbx_log_remove(struct sbx_log *log);
/*
 * The sandbox is called NAME now: "task_id" of the records that follow, and the durable copy goes on
 * in LOGS_DIR/NAME.jsonl. 0, or -errno and nothing has changed. Thread-safe; waits for the disk.
 */
int sbx_log_rename(struct sbx_log *log, const char *name);
/* Closes the files of a log whose sandbox is gone: nothing can be read, and records are dropped. Thread-safe. */
void sbx_log_finish(struct sbx_log *log);
/*
 * Appends a record: EVENT, and the members of EXTRA (may be NULL; ownership is taken).
 * One write(2) per file, O_APPEND. Thread-safe; never blocks on anything but the disk. A
 * failing disk is not an error of the caller.
 */
void sbx_log_record(struct sbx_log *log, const char *event, struct json_object *extra);
/* Bytes in the log now; and some of them: returns the count read or -errno. Thread-safe. */
uint64_t sbx_log_size(struct sbx_log *log);
ssize_t sbx_log_read(struct sbx_log *log, void *buf, size_t len, uint64_t off);

/*
 * Events: the last 1 000 lines are kept; a reader starts with those and then waits
 * for more; it may take a line in pieces. One that falls behind misses whole lines. Thread-safe, except that parked reads are answered on the loop thread.
 */
int sbx_events_create(struct sbx_loop *loop, struct sbx_events **ret);
/* Answers every waiting read with EOF. Loop thread, or after the loop stopped. Accepts NULL. */
void sbx_events_destroy(struct sbx_events *ev);
/* No more will come: waiting reads, and those to come at the end, answer EOF. Loop thread. */
void sbx_events_close(struct sbx_events *ev);
/* Appends one JSON line: "timestamp", "sandbox": NAME (may be NULL), "event", "text": TEXT (may be NULL). Any thread. */
void sbx_events_add(struct sbx_events *ev, const char *event, const char *name, const char *text);
/* Appends the same line to both. Any thread. */
void sbx_events_add_both(struct sbx_events *a, struct sbx_events *b, const char *event,
                         const char *name, const char *text);
/*
 * How far one reader has come; {0} is the oldest line that is kept. With a mark it also gets a line
 * "live" between what had happened when it began and what happened since.
 */
struct sbx_events_reader {
	uint64_t at;   /* position of the next byte */
	uint64_t live; /* and of the mark */
	char *mark;    /* NULL: none */
	size_t mark_len, mark_told;
};

/* With a mark, unless memory is exhausted. */
void sbx_events_reader_init(struct sbx_events *ev, struct sbx_events_reader *r);
void sbx_events_reader_release(struct sbx_events_reader *r);
/*
 * Answers p with what follows R (moved when the answer is given), now or when something is added;
 * NONBLOCK: EAGAIN instead of waiting. R must outlive the answer. Any thread.
 */
void sbx_events_read(struct sbx_events *ev, struct sbx_events_reader *r, struct sbx_pending *p,
                     int nonblock);
/* Poll support: whether a read by R would answer at once. */
int sbx_events_ready(struct sbx_events *ev, const struct sbx_events_reader *r);

#endif
