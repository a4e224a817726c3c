/* The live events of a sandbox and of the mount, for programs. */
#ifndef SANDBOXFS_FS_LOG_EVENTS_H
#define SANDBOXFS_FS_LOG_EVENTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_events;
struct sbx_loop;
struct sbx_pending;

/*
 * Events: the last 1 000 lines are kept; a reader starts with those and then waits
 * for more; it may take a line in pieces. One that falls behind misses whole lines. Thread-safe,
 * except that parked reads are answered on the loop thread.
 */
int sbx_events_create(struct sbx_loop *loop, struct sbx_events **ret);
/* Answers every waiting read with EOF. Loop thread, or after the loop stopped. Accepts NULL. */
void sbx_events_destroy(struct sbx_events *ev);
/* No more will come: waiting reads, and those to come at the end, answer EOF. Loop thread. */
void sbx_events_close(struct sbx_events *ev);
/* Appends one JSON line: "timestamp", "sandbox": NAME (may be NULL), "event", "text": TEXT (may be
 * NULL). Any thread. */
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
/* Frees the mark of R. No answer of it is owed. */
void sbx_events_reader_release(struct sbx_events_reader *r);
/*
 * Answers p with what follows R (moved when the answer is given), now or when something is added;
 * NONBLOCK: EAGAIN instead of waiting. R must outlive the answer. Any thread.
 */
void sbx_events_read(struct sbx_events *ev, struct sbx_events_reader *r, struct sbx_pending *p,
                     int nonblock);

#endif
