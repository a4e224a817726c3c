/* Of journal.c and journal_open.c. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_JOURNAL_IMPL_H
#define SANDBOXFS_BACKENDS_REMOTE_JOURNAL_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/remote/batch.h"
#include "backends/remote/journal.h"
#include "backends/remote/line.h"
#include "backends/remote/meant.h"
#include "backends/remote/touched.h"

struct remote_journal {
	pthread_mutex_t lock;
	int dir; /* borrowed */
	char id[REMOTE_ID_SIZE];
	struct remote_batch_all *first, *open; /* from the oldest on; lines go into the last one */
	uint64_t seen, seq;                    /* SEQ is the next line's */
	int fd;              /* the open batch's file; -1: it is still to be made */
	int spare;           /* the next one, likewise */
	uint64_t size, room; /* of fd: bytes, and bytes that are on the disk */
	size_t admitted;     /* changes that may be noted */
	bool unreserved;     /* the file system reserves nothing */
	bool broken;         /* a line could not be written */
	struct remote_text line;
	struct remote_touched touched;
	struct remote_meant meant;  /* of an earlier daemon, until remote_journal_resolve */
	uint64_t marked, marked_ms; /* a batch that was sent, and when */
};

#define REMOTE_JOURNAL_NAME 40 /* bytes of the name of a file */
void remote_journal_name(char name[REMOTE_JOURNAL_NAME], uint64_t number);
/* Adds a batch behind the last one. NULL: no memory. */
struct remote_batch_all *remote_journal_append(struct remote_journal *j, uint64_t number);
/* A change that has its line is one of the open batch. */
void remote_journal_take(struct remote_journal *j, const struct sbx_change *c);
/*
 * Calls FN for each line that the file of batch NUMBER has; *WHOLE is what of it can stay. 0 or a
 * negative errno with its sentence.
 */
int remote_journal_read(struct remote_journal *j, uint64_t number, uint64_t *seq,
                        int (*fn)(const struct remote_line *line, void *data), void *data,
                        size_t *whole, struct sbx_error *err);
/* Makes the files that are still to be made. 0 or -errno. Thread-safe by the lock. */
int remote_journal_make_files(struct remote_journal *j);
/* Reads what an earlier daemon left. */
int remote_journal_load(struct remote_journal *j, struct sbx_error *err);

#endif
