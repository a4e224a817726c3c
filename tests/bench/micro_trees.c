/* Operations on what a tree holds already. Warm ones go over it once, or twice, before they count.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "micro.h"
#include "sandboxfs/cleanup.h"

struct paths {
	char **items;
	size_t n, cap;
};

static void paths_add(struct paths *p, const char *path)
{
	if (p->n == p->cap) {
		p->cap = p->cap ? 2 * p->cap : 1024;
		p->items = realloc(p->items, p->cap * sizeof(*p->items));
	}
	if (!p->items || !(p->items[p->n++] = strdup(path)))
		micro_die("memory");
}

/* Lists and stats everything below PATH but .git; regular files go to FILES, which may be NULL. */
static size_t walk(const char *path, struct paths *files)
{
	_cleanup_dir_ DIR *dir = opendir(path);
	struct dirent *d;
	size_t n = 0;

	if (!dir)
		micro_die(path);
	while ((d = readdir(dir))) {
		char child[4096];
		struct stat st;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    !strcmp(d->d_name, ".git"))
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, d->d_name);
		if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW))
			micro_die(child);
		n++;
		if (S_ISDIR(st.st_mode))
			n += walk(child, files);
		else if (S_ISREG(st.st_mode) && files)
			paths_add(files, child);
	}
	return n;
}

static void run_walk(char **args)
{
	int64_t start;
	size_t n;

	if (!strcmp(args[0], "warm"))
		walk(args[1], NULL);
	start = micro_now_ns();
	n = walk(args[1], NULL);
	micro_report(micro_now_ns() - start, n);
}

static void read_whole(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[65536];
	ssize_t n;

	if (fd < 0)
		micro_die(path);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		;
	if (n < 0)
		micro_die(path);
}

static void stat_one(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		micro_die(path);
}

static void stat_missing(const char *path)
{
	char missing[4200];
	struct stat st;

	snprintf(missing, sizeof(missing), "%s.missing", path);
	if (lstat(missing, &st) == 0 || errno != ENOENT)
		micro_die(missing);
}

/* fn for each file below DIR, ROUNDS times, after one time that does not count. */
static void each_file(char **args, void (*fn)(const char *path))
{
	size_t rounds = micro_number(args[1]);
	struct paths files = {0};
	int64_t start;

	walk(args[0], &files);
	for (size_t i = 0; i < files.n; i++)
		fn(files.items[i]);
	start = micro_now_ns();
	for (size_t r = 0; r < rounds; r++)
		for (size_t i = 0; i < files.n; i++)
			fn(files.items[i]);
	micro_report(micro_now_ns() - start, rounds * files.n);
}

static void run_openread(char **args)
{
	each_file(args, read_whole);
}

static void run_stat(char **args)
{
	each_file(args, stat_one);
}

static void run_enoent(char **args)
{
	each_file(args, stat_missing);
}

const struct micro_op micro_trees[] = {
        {"walk", "warm|cold DIR", 2, run_walk},
        {"openread", "DIR ROUNDS", 2, run_openread},
        {"stat", "DIR ROUNDS", 2, run_stat},
        {"enoent", "DIR ROUNDS", 2, run_enoent},
        {0},
};
