/*
 * The temporary directories of tests: in TMPDIR, which tests/run.sh looks through when all have
 * ended.
 */
#ifndef SANDBOXFS_TESTS_TMP_H
#define SANDBOXFS_TESTS_TMP_H

#include <stdio.h>
#include <stdlib.h>

/* Makes an empty directory whose name begins with NAME and has its path in BUF; NULL with errno
 * when it cannot. */
static inline char *tmp_make(char *buf, size_t size, const char *name)
{
	const char *tmp = getenv("TMPDIR");
	int n = snprintf(buf, size, "%s/%s-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp", name);

	/* Some make paths of a fixed size of it. */
	if (n < 0 || (size_t)n >= size)
		snprintf(buf, size, "/tmp/%s-XXXXXX", name);
	return mkdtemp(buf);
}

#endif
