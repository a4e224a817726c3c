/*
 * A machine in memory, which answers to the runner's lines as list.sh would, but quickly, and by a
 * clock of its own. Paths are short words, so that a body is read by splitting it at blanks.
 * Thread-safe.
 */
#ifndef SANDBOXFS_TESTS_FAKE_MACHINE_H
#define SANDBOXFS_TESTS_FAKE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_file {
	char path[120]; /* "" the root */
	char type;      /* f d l */
	unsigned mode;
	uint64_t ino;
	int64_t mtime, ctime;
	char *data; /* of a file; the text of a link */
	size_t size;
};

void fake_reset(void);
/* What it answers to BODY: text, malloc'd. */
char *fake_answer(const char *body);
/* False: it cannot be done. */
bool fake_write(const char *path, const char *data, size_t size);
/* As a file of the host, which has an older time, and takes the place of what is no directory. */
bool fake_put(const char *path, const char *data, size_t size);
bool fake_make(const char *path, char type, const char *target);
bool fake_remove(const char *path, bool all); /* ALL: a directory with what is in it */
bool fake_move(const char *from, const char *to);
bool fake_chmod(const char *path, unsigned mode);
/* Time goes on. */
void fake_pass(int64_t ns);
/* Item I, or of PATH, in COPY, whose data stay the machine's until it is changed. */
bool fake_get(size_t i, struct fake_file *copy);
bool fake_find(const char *path, struct fake_file *copy);
/* A record of PATH as it is: FLAG, or that nothing is there. Words with '|' for NUL. */
void fake_record(char flag, const char *path, char *ret, size_t size);
uint64_t fake_now(void);

#endif
