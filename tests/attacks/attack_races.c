/* A check and a use, with something in between: `swap` runs in the sandbox, `storm` on the host. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attack.h"
#include "sandboxfs/cleanup.h"

/* Until killed. */
static long swap(char **args)
{
	for (;;)
		if (renameat2(AT_FDCWD, args[0], AT_FDCWD, args[1], RENAME_EXCHANGE) < 0)
			return -1;
}

struct storm {
	const char *path;
	long denied, done, leaked;
};

static void count(struct storm *s, long r)
{
	if (r < 0)
		s->denied++;
	else
		s->done++;
}

/* What is read must never be what lies outside: it begins with "of the host". */
static void read_file(struct storm *s, const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[12] = "";

	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strcmp(text, "of the host") == 0)
		s->leaked++;
	count(s, fd);
}

static void write_file(struct storm *s, const char *path, int flags)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | flags, 0644);

	count(s, fd < 0 ? -1 : write(fd, "inside\n", 7));
}

/* PATH is a directory one moment and a link out the next. */
static void work_in_directory(struct storm *s, long round)
{
	char keep[4096], made[4096], other[4096];

	snprintf(keep, sizeof(keep), "%s/keep", s->path);
	snprintf(made, sizeof(made), "%s/made%ld", s->path, round % 7);
	snprintf(other, sizeof(other), "%s/other%ld", s->path, round % 7);
	read_file(s, keep);
	write_file(s, keep, round % 2 ? O_APPEND : 0);
	write_file(s, made, O_CREAT);
	count(s, chmod(made, 0600));
	count(s, rename(made, other));
	count(s, truncate(keep, 7));
	count(s, link(other, made));
	count(s, unlink(made));
	count(s, unlink(other));
	count(s, mkdir(made, 0755));
	count(s, rmdir(made));
	count(s, symlink("keep", made));
	count(s, unlink(made));
}

/* PATH is a file one moment and something else the next. */
static void work_on_file(struct storm *s, long round)
{
	struct stat st;

	read_file(s, s->path);
	write_file(s, s->path, round % 2 ? O_CREAT : O_TRUNC);
	write_file(s, s->path, O_CREAT | O_APPEND);
	count(s, chmod(s->path, round % 2 ? 0600 : 0644));
	count(s, truncate(s->path, 7));
	count(s, stat(s->path, &st));
}

/* A name that the kernel keeps for a while may show the same side all the time. */
static bool one_sided(const struct storm *s)
{
	return !s->leaked && (!s->done || !s->denied);
}

/* storm ROUNDS file|directory PATH...: whatever the outcomes, up to the
 * first leak. Prints how many were of each kind. */
static long storm(char **args)
{
	const long rounds = attack_number(args);
	const bool directory = args[1] && strcmp(args[1], "directory") == 0;
	struct storm s = {0};

	for (long round = 0;
	     !s.leaked && (round < rounds || (one_sided(&s) && round < 20 * rounds)); round++)
		for (char **path = args + 2; *path; path++) {
			s.path = *path;
			if (directory)
				work_in_directory(&s, round);
			else
				work_on_file(&s, round);
		}
	printf("done %ld denied %ld leaked %ld ", s.done, s.denied, s.leaked);
	return s.done && s.denied && !s.leaked ? 0 : (errno = EIO, -1);
}

const struct attack attack_races[] = {
        {"swap", swap},
        {"storm", storm},
        {0},
};
