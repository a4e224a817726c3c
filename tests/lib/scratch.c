#include "tests/lib/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "tests/lib/tmp.h"

static char root[4096];

const char *scratch_make(void)
{
	char path[2048];

	assert_non_null(tmp_make(path, sizeof(path), "sandboxfs-test"));
	assert_non_null(realpath(path, root));
	return root;
}

void scratch_remove(void)
{
	assert_int_equal(sbx_tree_remove(AT_FDCWD, root, NULL), 0);
	root[0] = '\0';
}

const char *scratch_path(const char *fmt, ...)
{
	static _Thread_local char buffers[8][8192];
	static _Thread_local unsigned turn;
	char *buf = buffers[turn++ % 8];
	int n = snprintf(buf, sizeof(buffers[0]), "%s/", root);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf + n, sizeof(buffers[0]) - (size_t)n, fmt, ap);
	va_end(ap);
	return buf;
}

void scratch_write(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

void scratch_mkdir(const char *path)
{
	assert_int_equal(mkdir(path, 0755), 0);
}

bool scratch_exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

void scratch_expect(const char *path, const char *text)
{
	char *have;

	assert_int_equal(sbx_file_read(AT_FDCWD, path, 1 << 20, &have), 0);
	assert_string_equal(have, text);
	free(have);
}

static int count_entry(const char *name, unsigned char type, void *data)
{
	(void)name;
	(void)type;
	++*(int *)data;
	return 0;
}

int scratch_count(const char *path)
{
	int fd = sbx_dir_open(AT_FDCWD, path), n = 0;

	if (fd < 0)
		return -1;
	assert_int_equal(sbx_dir_scan(fd, count_entry, &n), 0);
	close(fd);
	return n;
}

int scratch_descriptors(void)
{
	return scratch_count("/proc/self/fd");
}

void scratch_deep(const char *path, int n)
{
	int fd = sbx_dir_make(AT_FDCWD, path, 0755);

	assert_true(fd >= 0);
	for (int i = 0; i < n; i++) {
		int next = sbx_dir_make(fd, "deeper-and-deeper-into-the-tree", 0755);

		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	assert_int_equal(sbx_file_create(fd, "bottom", "here"), 0);
	close(fd);
}
