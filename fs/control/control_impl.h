/*
 * Declarations that the control files share: the row of a table, the open file, and the engine
 * for files whose writes are requests.
 *
 * An open file has one lock. It may be held while a job or the registry is told something, never
 * while an answer is given.
 */
#ifndef SANDBOXFS_FS_CONTROL_CONTROL_IMPL_H
#define SANDBOXFS_FS_CONTROL_CONTROL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/control/control.h"
#include "fs/control/save_buffer.h"
#include "fs/job/request.h"
#include "fs/sandbox/registry.h"
#include "fs/util/reply.h"

struct text {
	char *data;
	size_t len;
};

/* Takes over STRING (malloc'd); NULL is -ENOMEM. */
int sbx_control_text_take(char *string, struct text *ret);
/* Frees the text's data. */
void sbx_control_text_release(struct text *text);

/* Generates what a read sees. */
typedef int (*text_fn)(struct sbx_registry *reg, const struct sbx_control_node *node,
                       struct text *ret);

struct request_file_impl;

struct control_ops {
	/* All may be absent. ERR is stored by the caller. */
	int (*open)(struct sbx_control_handle *h, struct sbx_error *err);
	void (*release)(struct sbx_control_handle *h);
	const struct request_file_impl *requests; /* then read, write, flush are its */
	void (*read)(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p);
	void (*write)(struct sbx_control_handle *h, const void *buf, size_t len,
	              struct sbx_pending *p);
	/* 0 or -errno; never waits. */
	int (*set)(struct sbx_control_handle *h, const char *buf, size_t len,
	           struct sbx_error *err);
	/* As set, of a file that has offsets. */
	int (*put)(struct sbx_control_handle *h, const char *buf, size_t len, uint64_t off,
	           struct sbx_error *err);
	/* BROKEN: what is unfinished is to be refused. */
	int (*flush)(struct sbx_control_handle *h, bool broken, struct sbx_error *err);
	bool (*unfinished)(
	        struct sbx_control_handle *h); /* whether flush has something to do; locked */
	uint64_t (*size)(struct sbx_registry *reg, const struct sbx_control_node *node);
	int (*truncate)(struct sbx_registry *reg, const struct sbx_control_node *node);
};

enum {
	ROW_UNLISTED = 1 << 0,
	ROW_WAITS = 1 << 1,   /* a write may wait */
	ROW_NAMED = 1 << 2,   /* only in jobs that have a name */
	ROW_JOBS = 1 << 3,    /* the directory jobs/ */
	ROW_STATES = 1 << 4,  /* the directory snapshots/ */
	ROW_TREE = 1 << 5,    /* a directory below it */
	ROW_RANGES = 1 << 6,  /* the directory diffs/ */
	ROW_TRACKED = 1 << 7, /* listed with -o track only */
	ROW_UP = 1 << 8,      /* a text that is not known before the sandbox has been made */
};

/* A name below snapshots/ or diffs/, which a row alone does not tell. Constant. */
struct sbx_item {
	atomic_uint refs;
	bool kept;                /* the name will not come to mean anything else */
	int64_t time_ns;          /* CLOCK_REALTIME */
	struct sbx_object object; /* of a snapshot's file */
	char path[];              /* from the directory of the table on */
};

struct sbx_control_row {
	const char *name;
	mode_t mode;
	unsigned flags;
	int arg; /* for ops and text */
	text_fn text;
	const struct control_ops *ops;
	const struct sbx_control_row *rows; /* of a directory: ended by a row without name */
};

struct request_op;

struct sbx_control_handle {
	struct sbx_registry *reg;
	struct sbx_control_node node;
	int flags;            /* of open(2) */
	void *state;          /* of ops */
	pthread_mutex_t lock; /* all below, and state */
	struct text text;     /* what reads see of a generated file, or the answer to a request */
	bool filled;
	uint64_t cursor; /* of files that have no offset */
	struct request_op *active, *queue;
	struct sbx_pending nobody; /* who gets the answer of sbx_control_close */
};

/* node_refs.c */
extern const struct sbx_control_row sbx_control_root_row;
/* Of directories whose entries come from elsewhere, or that are empty. */
extern const struct sbx_control_row sbx_control_no_rows[];

/* table.c */
extern const struct sbx_control_row sbx_control_mount_row, sbx_control_box_row, sbx_control_job_row,
        sbx_control_last_row;

/* control.c: answers */
/* Answers P from h->text at the cursor, which moves. */
void sbx_control_serve_cursor(struct sbx_control_handle *h, struct sbx_pending *p);
/* Replaces h->text and goes back to its beginning; the lock is held. TEXT is taken over. */
void sbx_control_set_text(struct sbx_control_handle *h, char *string);
/* Stores the sentence where the user of the file looks for it. */
void sbx_control_store(struct sbx_control_handle *h, const struct sbx_error *err);

/* wait.c: reads that wait */
/* Answers P with output of REC's stdout from the cursor on, or EOF after the job's end. */
void sbx_control_follow(struct sbx_control_handle *h, struct sbx_jobrec *rec,
                        struct sbx_pending *p);
extern const struct control_ops sbx_control_wait_ops, sbx_control_events_ops;

/* table.c */
extern const struct control_ops sbx_control_stream_ops;
/* The job whose result the node shows: that of jobs/ID, or the last of exec. A reference or NULL.
 */
struct sbx_jobrec *sbx_control_job(const struct sbx_control_node *node);
/* As text_fn: the status line of sbx_control_job, or the line for none. */
int sbx_control_text_status(struct sbx_registry *, const struct sbx_control_node *, struct text *);

/* exec.c; the row's arg is an enum sbx_job_kind */
extern const struct control_ops sbx_control_exec_ops, sbx_control_stdin_ops;

/* history.c; the row's arg is HISTORY_OP_... of history_args.h */
extern const struct control_ops sbx_control_history_ops;

/* diff.c; the row's arg is an enum sbx_diff_format */
extern const struct control_ops sbx_control_diff_ops, sbx_control_job_diff_ops;
/* NAME in diffs/: ID, ID1..ID2, and those with .changes. -ENOENT. */
int sbx_diffs_lookup(const struct sbx_control_node *dir, const char *name,
                     struct sbx_control_node *ret);

/* push.c */
extern const struct control_ops sbx_control_push_ops;

/* sync.c */
extern const struct control_ops sbx_control_sync_ops;

/* create.c */
extern const struct control_ops sbx_control_create_ops, sbx_control_teardown_ops,
        sbx_control_kill_ops, sbx_control_job_kill_ops, sbx_control_absent_ops;

#endif
