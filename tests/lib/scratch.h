/*
 * A private temporary directory per test, and small verbs on paths below it. They fail the
 * test (cmocka) where they cannot do what they say. One at a time.
 */
#ifndef SANDBOXFS_TESTS_SCRATCH_H
#define SANDBOXFS_TESTS_SCRATCH_H

#include <stdbool.h>

/* Makes the directory and returns its absolute path, which is free of symlinks. */
const char *scratch_make(void);
/* Removes it with all that is in it, whatever its modes. */
void scratch_remove(void);
/* "SCRATCH/printf-text" in one of a few rotating buffers. */
const char *scratch_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void scratch_write(const char *path, const char *text);
void scratch_mkdir(const char *path);
bool scratch_exists(const char *path); /* a dangling symlink does */
/* Fails unless the file holds exactly TEXT. */
void scratch_expect(const char *path, const char *text);
/* Entries of a directory, -1 when there is none. */
int scratch_count(const char *path);
/* Descriptors this process has open. */
int scratch_descriptors(void);
/* Ends the test, having said why. cmocka's own skip() is a failure in the TAP that meson reads. */
#define skip_because(why)                                                                          \
	do {                                                                                       \
		print_message("# skipped: %s\n", why);                                             \
		return;                                                                            \
	} while (0)
/* N directories inside each other below PATH, a file in the last. */
void scratch_deep(const char *path, int n);

#endif
