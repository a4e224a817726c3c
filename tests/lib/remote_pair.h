/*
 * A tree of the host (here/), whose changes are noted in a journal, and the tree of a machine
 * (there/) that is a directory beside it, to which batches are brought as to a real one. Of one
 * test at a time; all fail the test (cmocka) where they cannot do what they say.
 */
#ifndef SANDBOXFS_TESTS_REMOTE_PAIR_H
#define SANDBOXFS_TESTS_REMOTE_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/remote/journal.h"

struct pair {
	const char *shell; /* words, as for a command line */
	const char *path;  /* its PATH; NULL: as here */
	char room[256];    /* of the runner */
	struct remote_journal *journal;
	int here, there, state;
	int kill_us;     /* the next run is killed after as long, at most; 0: it is not */
	size_t break_at; /* the next run is killed where that line is done and not noted; 0: not */
	bool seconds;    /* the tools there know no parts of them */
	bool bound;      /* by modes, as a user who is not root */
	char *answer;    /* of the last run */
	size_t answer_n;
	char *script; /* of the last batch, without the runner */
	size_t files; /* that were put for it */
};

/* In the scratch directory, which is there. */
void pair_begin(struct pair *p, const char *shell);
/* The runner's room is the directory ROOM, which is the caller's, from here on. */
void pair_set_room(struct pair *p, const char *room);
void pair_end(struct pair *p);
/* The daemon is killed and started: the journal is read again. */
void pair_reopen(struct pair *p);

/* Each does it here, and notes it. The boolean ones tell whether it could be done. */
bool pair_create(struct pair *p, const char *path, const char *text);
bool pair_write(struct pair *p, const char *path, off_t at, const char *text, size_t n);
bool pair_empty(struct pair *p, const char *path);
bool pair_rename(struct pair *p, const char *path, const char *to, unsigned flags);
bool pair_link(struct pair *p, const char *path, const char *to);
bool pair_unlink(struct pair *p, const char *path);
bool pair_mkdir(struct pair *p, const char *path);
bool pair_rmdir(struct pair *p, const char *path);
bool pair_symlink(struct pair *p, const char *target, const char *path);
bool pair_node(struct pair *p, const char *path, mode_t type);
bool pair_chmod(struct pair *p, const char *path, mode_t mode);
bool pair_utimes(struct pair *p, const char *path, int64_t mtime_ns);

/* Cuts, loads and runs the oldest batch. False: there is none, or the run was killed. */
bool pair_send(struct pair *p);
/* The same by two runners at once, both of which answer. */
void pair_send_twice(struct pair *p);
/* The machine has it. */
void pair_sent(struct pair *p);
/* Sends all, killed or not, until the machine has it. */
void pair_send_all(struct pair *p);
/* Frames of KIND in the last answer. */
size_t pair_frames(const struct pair *p, char kind);
/* Lines of the script that begin with WORD. */
size_t pair_lines(const struct pair *p, const char *word);
/* Fails unless both trees are the same. */
void pair_compare(struct pair *p);

#endif
