/*
 * The tree of `tool coherence` and its jobs: a small tree below a root, steps that change it, and
 * how it looks. Both sides see the same names: top I is item I, its child J is item TOPS + I *
 * SUBS + J.
 */
#ifndef SANDBOXFS_TESTS_TOOL_TREE_H
#define SANDBOXFS_TESTS_TOOL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TOPS        8
#define SUBS        4
#define ITEMS       (TOPS + TOPS * SUBS)
#define CONTENT_MAX 6000
#define NAME_SIZE   16

extern const char *tree_root;
extern bool tree_dir_times; /* a sight of a directory has its time */
extern long tree_steps;     /* so far; told with a difference */

int tree_top(int i);
void tree_name(int i, char name[NAME_SIZE]);
int tree_item(const char *name);
/* Byte K of what is written with ORIGIN. */
unsigned char tree_pattern(unsigned origin, size_t k);
uint64_t tree_hash(const unsigned char *data, size_t size);

/*
 * Takes a step, "OP NAME A B": w write anew (size, seed), s the same to another file that is
 * renamed, a append (size, seed), p write 100 bytes into (at, seed), e another content of the same
 * size (seed) and time, t truncate, c mode, u mtime, x unlink, m mkdir, d rmdir, r rename to the
 * item A.
 */
void tree_take(const char *line);

struct sight {
	char kind; /* '-' none, 'f', 'd' */
	unsigned mode;
	uint64_t size, hash; /* of a file */
	int64_t mtime;       /* ns */
};

void tree_look(int i, struct sight *ret);
/* Ends the program with a sentence where they differ; times are compared where both have one. */
void tree_compare(int i, const struct sight *want, const struct sight *have, const char *who);
/* A sight as a line, and back: the item. */
void tree_print(FILE *out, int i, const struct sight *s);
int tree_scan(const char *line, struct sight *ret);

/* Says what is wrong at which step, on stderr, and ends the program. */
void tree_differs(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- tool_held.c: what the host keeps open ---- */

#define HELD_TEXT 50

/* Opens the file ID at PATH, which holds SIZE bytes of DATA, and keeps it open for some time. */
void held_open(const char *path, unsigned id, const unsigned char *data, size_t size);
/* The names are gone through anew: held_follow for each file that has one, with what it holds. */
void held_renew(void);
void held_follow(unsigned id, const unsigned char *data, size_t size);
/* A job moves the file ID. */
void held_moved(unsigned id);
/* Writes to the I-th file if it has no name any more; whether it did. */
bool held_write(unsigned i, unsigned origin);
/* Each is what was opened, as it was written to since some seconds ago (AWAIT: by now); or says
 * what differs and exits. */
void held_check(bool await);

#endif
