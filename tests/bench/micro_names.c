/* Names made, changed and taken away, in a directory of their own that is removed again, untimed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "micro.h"
#include "sandboxfs/cleanup.h"

static void name(char path[4096], const char *dir, char kind, size_t i)
{
	snprintf(path, 4096, "%s/%c%zu", dir, kind, i);
}

static void create(const char *dir, size_t n)
{
	char path[4096];

	for (size_t i = 0; i < n; i++) {
		int fd;

		name(path, dir, 'a', i);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			micro_die(path);
		close(fd);
	}
}

static void rename_all(const char *dir, size_t n)
{
	char from[4096], to[4096];

	for (size_t i = 0; i < n; i++) {
		name(from, dir, 'a', i);
		name(to, dir, 'b', i);
		if (rename(from, to))
			micro_die(from);
	}
}

static void unlink_all(const char *dir, char kind, size_t n)
{
	char path[4096];

	for (size_t i = 0; i < n; i++) {
		name(path, dir, kind, i);
		if (unlink(path))
			micro_die(path);
	}
}

static size_t begin(char **args)
{
	if (mkdir(args[0], 0755))
		micro_die(args[0]);
	return micro_number(args[1]);
}

static void end(const char *dir, char kind, size_t n)
{
	unlink_all(dir, kind, n);
	if (rmdir(dir))
		micro_die(dir);
}

static void run_create(char **args)
{
	size_t n = begin(args);
	int64_t start = micro_now_ns();

	create(args[0], n);
	micro_report(micro_now_ns() - start, n);
	end(args[0], 'a', n);
}

static void run_rename(char **args)
{
	size_t n = begin(args);
	int64_t start;

	create(args[0], n);
	start = micro_now_ns();
	rename_all(args[0], n);
	micro_report(micro_now_ns() - start, n);
	end(args[0], 'b', n);
}

static void run_unlink(char **args)
{
	size_t n = begin(args);
	int64_t start;

	create(args[0], n);
	start = micro_now_ns();
	unlink_all(args[0], 'a', n);
	micro_report(micro_now_ns() - start, n);
	if (rmdir(args[0]))
		micro_die(args[0]);
}

const struct micro_op micro_names[] = {
        {"create", "DIR N", 2, run_create},
        {"rename", "DIR N", 2, run_rename},
        {"unlink", "DIR N", 2, run_unlink},
        {0},
};
