/*
 * Runs a fuzz target over files and directories of files, so that what a fuzzer once found is an
 * ordinary test with any compiler.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(int dirfd, const char *name)
{
	_cleanup_fd_ int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (!S_ISREG(st.st_mode))
		return 0;
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	n = data ? read(fd, data, (size_t)st.st_size) : -1;
	if (n != st.st_size)
		return -1;
	LLVMFuzzerTestOneInput(data, (size_t)n);
	return 1;
}

static int replay_directory(const char *path)
{
	_cleanup_dir_ DIR *dir = opendir(path);
	struct dirent *d;
	int count = 0;

	while (dir && (d = readdir(dir))) {
		int r = replay_file(dirfd(dir), d->d_name);

		if (r < 0) {
			fprintf(stderr, "%s/%s: cannot be read\n", path, d->d_name);
			return -1;
		}
		count += r;
	}
	return count;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int n = replay_directory(argv[i]);

		if (n <= 0)
			return 1;
		total += n;
	}
	printf("%d inputs\n", total);
	return total ? 0 : 1;
}
