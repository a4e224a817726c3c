/*
 * Copying what was found: the directories first, their files by several threads, the attributes of the directories that were made
 * last, since adding to them moves their times. A path of the source is opened beneath its top without following a
 * link, so what was put in its place meanwhile is not gone through.
 */
#include "backends/local/worktreeinclude/find_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/bare_config.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/thread.h"

#define LINK_LOCKS 16

struct copying {
	struct sbx_include *in;
	const struct sbx_include_list *list;
	int source;
	struct sbx_names made; /* directories, parents first */
	/* Of a file with several names one is copied, and found by the others. */
	pthread_mutex_t linked[LINK_LOCKS];
	atomic_size_t next;
	atomic_ullong files, left_out;
	atomic_int failed; /* the first errno, negative */
	struct sbx_error err;
};

static int fail(struct copying *c, int r, const char *dir, const char *name)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&c->failed, &none, r))
		return r;
	if (r == -EINTR)
		return sbx_fail(&c->err, EINTR, "cancelled");
	return sbx_fail(&c->err, -r, "cannot bring %s%s%s of the source: %s", dir, *dir ? "/" : "",
	                name, strerror(-r));
}

/* --- directories -------------------------------------------------------------------------------------------- */

static int make_dir(struct copying *c, const char *path)
{
	const char *name;
	_cleanup_fd_ int parent = sbx_beneath_parent(c->in->dst, path, &name);

	if (parent < 0)
		return parent;
	if (mkdirat(parent, name, 0700) == 0)
		return sbx_names_add(&c->made, path);
	return errno == EEXIST ? 0 : -errno;
}

/* PATH and what is missing above it. */
static int make_dirs(struct copying *c, const char *path)
{
	_cleanup_free_ char *part = strdup(path);
	int r = part ? 0 : -ENOMEM;

	for (char *slash = part; !r && slash;) {
		slash = strchr(slash, '/');
		if (slash)
			*slash = '\0';
		r = make_dir(c, part);
		if (slash)
			*slash++ = '/';
	}
	return r;
}

static int make_all_dirs(struct copying *c)
{
	const char *before = "";
	int r = 0;

	for (size_t i = 0; i < c->list->n && !r; i++) {
		const char *dir = c->list->at[i].dir;

		if (*dir && strcmp(dir, before) != 0)
			r = make_dirs(c, dir);
		before = dir;
		if (r)
			fail(c, r, dir, "");
	}
	return r;
}

/*
 * Above a directory of the commit lies one like it, else it would hide its attributes.
 */
static int stat_model(const struct copying *c, const char *path, struct stat *st)
{
	_cleanup_fd_ int fd = -1;

	if (c->in->dst != c->in->tree)
		fd = sbx_beneath_open(c->in->tree, path, O_PATH | O_DIRECTORY);
	if (fd < 0)
		fd = sbx_beneath_open(c->source, path, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return fd;
	return fstat(fd, st) < 0 ? -errno : 0;
}

static int finish_dir(struct copying *c, const char *path)
{
	_cleanup_fd_ int fd = sbx_beneath_open(c->in->dst, path, O_RDONLY | O_DIRECTORY);
	struct stat st = {.st_mode = 0755};
	int r = fd < 0 ? fd : stat_model(c, path, &st);
	const struct timespec times[2] = {st.st_atim, st.st_mtim};

	if (fd < 0)
		return r;
	if (c->in->owner && fchown(fd, c->in->owner->uid, c->in->owner->gid) < 0)
		return -errno;
	if (fchmod(fd, st.st_mode & 01777) < 0)
		return -errno;
	/* Gone from the source meanwhile: it has no times to be like. */
	return !r && futimens(fd, times) < 0 ? -errno : 0;
}

static int finish_dirs(struct copying *c)
{
	int r = 0;

	for (size_t i = c->made.n; i > 0 && !r; i--) {
		r = finish_dir(c, c->made.items[i - 1]);
		if (r)
			fail(c, r, c->made.items[i - 1], "");
	}
	return r;
}

/* --- files ------------------------------------------------------------------------------------------------------ */

/* Whether TARGET, of a link in the directory DIR, leads out of the tree by its words. */
static bool leads_out(const char *dir, const char *target)
{
	long depth = *dir != '\0';

	if (target[0] == '/')
		return true;
	for (; *dir; dir++)
		depth += *dir == '/';
	while (*target) {
		size_t len = strcspn(target, "/");

		if (len == 2 && !strncmp(target, "..", 2))
			depth--;
		else if (len && !(len == 1 && *target == '.'))
			depth++;
		if (depth < 0)
			return true;
		target += len;
		target += strspn(target, "/");
	}
	return false;
}

/* The copy is what is looked at, which nobody changes. */
static int keep_link(struct copying *c, const char *dir, int dst, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dst, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (!leads_out(dir, target))
		return 1;
	atomic_fetch_add(&c->left_out, 1);
	return unlinkat(dst, name, 0) < 0 ? -errno : 0;
}

/* 1: NAME was copied. */
static int copy_one(struct copying *c, struct sbx_copy *spec, const char *dir, const char *name)
{
	struct stat st;
	int r;

	if (fstatat(spec->src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return -ESTALE;
	if (st.st_nlink > 1)
		pthread_mutex_lock(&c->linked[st.st_ino % LINK_LOCKS]);
	r = sbx_copy_entry(spec, name, IFTODT(st.st_mode));
	if (st.st_nlink > 1)
		pthread_mutex_unlock(&c->linked[st.st_ino % LINK_LOCKS]);
	if (r)
		return r;
	return S_ISLNK(st.st_mode) ? keep_link(c, dir, spec->dst, name) : 1;
}

/* It was there when it was looked for; now it is something else, or nothing. */
static bool is_gone(int r)
{
	return r == -ENOENT || r == -ELOOP || r == -ENOTDIR || r == -ESTALE || r == -EXDEV;
}

static bool is_over(struct copying *c)
{
	if (c->in->cancelled && atomic_load(c->in->cancelled))
		fail(c, -EINTR, "", "");
	return atomic_load(&c->failed) != 0;
}

static void copy_batch(struct copying *c, const struct sbx_include_batch *b)
{
	const char *dir = *b->dir ? b->dir : ".";
	_cleanup_fd_ int src = sbx_beneath_open(c->source, dir, O_RDONLY | O_DIRECTORY);
	_cleanup_fd_ int dst = sbx_beneath_open(c->in->dst, dir, O_RDONLY | O_DIRECTORY);
	struct sbx_copy spec = {.src = src,
	                        .dst = dst,
	                        .links = c->in->links,
	                        .owner = c->in->owner,
	                        .rewrite = sbx_git_bare_copy,
	                        .cancelled = c->in->cancelled};

	if (src < 0 || dst < 0) {
		if (dst < 0 || !is_gone(src))
			fail(c, dst < 0 ? dst : src, b->dir, "");
		return;
	}
	for (size_t i = 0; i < b->names.n && !is_over(c); i++) {
		int r = copy_one(c, &spec, b->dir, b->names.items[i]);

		if (r > 0)
			atomic_fetch_add(&c->files, 1);
		else if (r < 0 && !is_gone(r))
			fail(c, r, b->dir, b->names.items[i]);
	}
}

static void *copier_main(void *data)
{
	struct copying *c = data;

	while (!is_over(c)) {
		size_t at = atomic_fetch_add(&c->next, 1);

		if (at >= c->list->n)
			break;
		copy_batch(c, &c->list->at[at]);
	}
	return NULL;
}

static void copy_files(struct copying *c)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = cpus < 1 ? 1 : (size_t)cpus;

	sbx_threads_run(n > c->list->n ? c->list->n : n, copier_main, c);
}

int sbx_include_copy(struct sbx_include *in, int source, const struct sbx_include_list *list,
                     struct sbx_error *err)
{
	struct copying c = {.in = in, .list = list, .source = source};
	int r = make_all_dirs(&c);

	for (size_t i = 0; i < LINK_LOCKS; i++)
		pthread_mutex_init(&c.linked[i], NULL);
	if (!r) {
		copy_files(&c);
		r = atomic_load(&c.failed);
	}
	if (!r)
		r = finish_dirs(&c);
	in->files = atomic_load(&c.files);
	in->left_out += atomic_load(&c.left_out);
	sbx_names_release(&c.made);
	for (size_t i = 0; i < LINK_LOCKS; i++)
		pthread_mutex_destroy(&c.linked[i]);
	return r ? sbx_fail(err, -r, "%s", c.err.text) : 0;
}
