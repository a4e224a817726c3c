/*
 * A batch inside: the plan of its changes, and what there is to be done when the plan's steps are:
 * items. The numbers of steps and items depend on nothing but the lines of the journal, so that
 * what a machine has noted of them holds for whoever sends the batch again.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_BATCH_H
#define SANDBOXFS_BACKENDS_REMOTE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "backends/remote/journal.h"
#include "backends/remote/plan.h"
#include "sandboxfs/strv.h"

enum remote_item_kind {                   /* in the order in which they are done */
	                REMOTE_ITEM_FILE, /* a file or symbolic link is put */
	                REMOTE_ITEM_FIFO,
	                REMOTE_ITEM_SOCKET,
	                REMOTE_ITEM_LINK,   /* TO is another name of PATH, which was put */
	                REMOTE_ITEM_STATUS, /* mode and times */
};

enum remote_item_state {
	REMOTE_ITEM_WAITS,
	REMOTE_ITEM_PACKED, /* is in the pack NUMBER */
	REMOTE_ITEM_ALONE,  /* is the file NUMBER */
	REMOTE_ITEM_GONE,   /* on this side, by now */
};

struct remote_item {
	enum remote_item_kind kind;
	struct remote_node *node;
	char *path, *to;  /* when the batch was cut */
	size_t directory; /* of FILE: the number of its directory among those of files */
	size_t place;     /* of a regular file: its place in the batch */
	/* Of the round: */
	enum remote_item_state state;
	unsigned number;
	mode_t mode;
	struct timespec mtime;
};

struct remote_batch_all {
	struct remote_batch pub; /* the first member */
	struct remote_batch_all *next;
	const char *id; /* of the journal */
	struct remote_plan plan;
	bool damaged; /* there was no memory for the plan, which has to be read from the file */
	bool ended;   /* its items are known */
	size_t lines;
	struct remote_item *items;
	size_t n, cap, files; /* those of the kind FILE are the first */
	/* The round of loads. */
	size_t at;             /* items that were loaded */
	unsigned round;        /* counted, from a random one on */
	unsigned used;         /* numbers of it */
	bool written;          /* the steps are */
	unsigned steps_number; /* they are put as that file; 0: they are short */
	struct remote_text steps;
};

/* All its changes were added: finds the items and places. 0 or -ENOMEM. */
int remote_batch_end(struct remote_batch_all *b);
/* Begins a round of loads. */
void remote_batch_begin_round(struct remote_batch_all *b);
/* Forgets plan and items. */
void remote_batch_reset(struct remote_batch_all *b);
void remote_batch_free(struct remote_batch_all *b);

/* Writes the steps and items, all of which were loaded, as lines of the runner. 0 or -ENOMEM. */
int remote_batch_write(struct remote_batch_all *b);

/*
 * In journal.c: adds to PATHS where NODE of the batch is now, by each of its names, from the root.
 * 0 or -ENOMEM.
 */
int remote_journal_where(struct remote_journal *j, const struct remote_batch_all *b,
                         const struct remote_node *node, struct sbx_strings *paths);

#endif
