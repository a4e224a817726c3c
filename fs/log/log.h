/*
 * The JSONL log of a sandbox, for programs (ctl/log, and a durable copy in logs_dir).
 *
 * A log record is one JSON object on one line: "timestamp" (RFC 3339, UTC, ms), "task_id" (the
 * sandbox's name), "event" ("create", "exec", "spawn", "run", "cleanup", ...), and where they
 * apply "job", "cmd", "exit_code", "signal", "timed_out", "duration_sec", "changed_files",
 * "error". No output of commands.
 */
#ifndef SANDBOXFS_FS_LOG_LOG_H
#define SANDBOXFS_FS_LOG_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct json_object;
struct sbx_log;

/*
 * Opens the log of sandbox NAME with the identity ID: STATE_DIR/log/ID.jsonl, and
 * LOGS_DIR/NAME.jsonl unless logs_dir is NULL. Existing files are continued. Returns 0 or -errno.
 */
int sbx_log_open(const char *state_dir, const char *logs_dir, const char *id, const char *name,
                 struct sbx_log **ret);
/* Accepts NULL. The file below state_dir is left alone; sbx_log_remove unlinks it. */
void sbx_log_close(struct sbx_log *log);
/* Unlinks the file below state_dir; the durable copy stays. The log is still open. */
void sbx_log_remove(struct sbx_log *log);
/*
 * The sandbox is called NAME now: "task_id" of the records that follow, and the durable copy goes
 * on in LOGS_DIR/NAME.jsonl. 0, or -errno and nothing has changed. Thread-safe; waits for the disk.
 */
int sbx_log_rename(struct sbx_log *log, const char *name);
/* Closes the files of a log whose sandbox is gone: nothing can be read, and records are dropped.
 * Thread-safe. */
void sbx_log_finish(struct sbx_log *log);
/*
 * Appends a record: EVENT, and the members of EXTRA (may be NULL; ownership is taken).
 * One write(2) per file, O_APPEND. Thread-safe; never blocks on anything but the disk. A
 * failing disk is not an error of the caller.
 */
void sbx_log_record(struct sbx_log *log, const char *event, struct json_object *extra);
/* Bytes in the log now. Thread-safe. */
uint64_t sbx_log_size(struct sbx_log *log);
/* Copies up to LEN bytes of the log from OFF on: returns the count or -errno. Thread-safe. */
ssize_t sbx_log_read(struct sbx_log *log, void *buf, size_t len, uint64_t off);

/* --- the form that log records and events share --- */

/*
 * One line with its newline: "timestamp", NAME_KEY: NAME (unless NAME is NULL), "event", and the
 * members of EXTRA (may be NULL; not consumed). malloc'd, *len without the NUL;
 * NULL: no memory. Thread-safe.
 */
char *sbx_log_line(const char *event, const char *name_key, const char *name,
                   struct json_object *extra, size_t *len);

#endif
