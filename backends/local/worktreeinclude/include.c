/*
 * Bringing files of the source's working tree into a new sandbox that git does not: those that git
 * ignores and the file .worktreeinclude at the top of the source names. Nothing is followed on the
 * way: a link, or what becomes one, is not gone through.
 *
 * They are found by a walk over the working tree with three stacks of patterns, those of
 * .worktreeinclude, those that git has for the source, and those that it will have in the sandbox,
 * whose commit may say something else. Directories are opened by their path from the top, so no
 * depth is too much for the stack or for descriptors.
 *
 * Then they are copied: the directories first, their files by several threads, the attributes of
 * the directories that were made last, since adding to them moves their times. A path of the source
 * is opened beneath its top without following a link, so what was put in its place meanwhile is not
 * gone through.
 */
#include "backends/local/worktreeinclude/include.h"

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
#include "backends/git/capture.h"
#include "backends/git/git_impl.h"
#include "backends/git/gitignore.h"
#include "backends/git/index.h"
#include "backends/local/overlay/base_dir.h"
#include "backends/local/overlay/create_overlay.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/thread.h"

#define SBX_WORKTREE_INCLUDE ".worktreeinclude"

struct sbx_include {
	const char *source; /* top of the working tree */
	int tree;  /* what is checked out in the sandbox, open; nothing that is there is replaced */
	int dst;   /* where files are put: an upper layer over tree, or tree itself */
	int links; /* an empty directory on the file system of dst for our own use */
	const struct sbx_identity *owner; /* of the copies; NULL: the caller's */
	const struct sbx_skip *skips;     /* left out; may be NULL */
	size_t nskips;
	atomic_bool *cancelled; /* polled; may be NULL */
	uint64_t files;         /* result: brought, links among them */
	uint64_t
	        left_out; /* result: FIFOs, sockets, devices, links that lead out, paths too long */
};

/* Some files of one directory. */
struct sbx_include_batch {
	char *dir; /* "" the top */
	struct sbx_strings names;
};

#define SBX_INCLUDE_BATCH 128 /* names of a batch at most */

/* In an order in which parents come before what is in them. */
struct sbx_include_list {
	struct sbx_include_batch *at;
	size_t n, room;
};

#define LINK_LOCKS 16

struct copying {
	struct sbx_include *in;
	const struct sbx_include_list *list;
	int source;
	struct sbx_strings made; /* directories, parents first */
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

/* --- directories
 * -------------------------------------------------------------------------------------------- */

static int make_dir(struct copying *c, const char *path)
{
	const char *name;
	_cleanup_fd_ int parent = sbx_beneath_parent(c->in->dst, path, &name);

	if (parent < 0)
		return parent;
	if (mkdirat(parent, name, 0700) == 0)
		return sbx_strings_add(&c->made, path);
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

/* --- files
 * ------------------------------------------------------------------
 */

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

/* Copies what LIST says from SOURCE, the top of the working tree. */
static int copy(struct sbx_include *in, int source, const struct sbx_include_list *list,
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
	sbx_strings_release(&c.made);
	for (size_t i = 0; i < LINK_LOCKS; i++)
		pthread_mutex_destroy(&c.linked[i]);
	return r ? sbx_fail(err, -r, "%s", c.err.text) : 0;
}

#define PATTERNS_MAX ((size_t)1 << 20) /* bytes of one file */

/* A directory with what holds for all that is in it. */
struct place {
	char *path;
	size_t depth;
	bool included, ignored, ignored_there; /* as a whole */
	bool absent;                           /* not in the sandbox's tree */
};

struct search {
	struct sbx_include *in;
	struct sbx_error *err;
	int source;
	git_repository *repo;
	struct sbx_index index; /* of the source; read at first need */
	bool index_read;
	struct sbx_ignore *include, *here, *there;
	size_t depth; /* directories that HERE and THERE have patterns of */
	struct place *todo;
	size_t n, room;
	struct place now;
	struct sbx_include_list list;
};

/* --- patterns
 * -------------------------------------------------------------------------------------------- */

/* The text of a file of patterns, the caller's; NULL and 0 where there is none. */
static int read_patterns(int dir, const char *path, char **ret, size_t *len)
{
	int r = sbx_beneath_read(dir, path, PATTERNS_MAX, ret, len, NULL);

	/* A link is none to git either. */
	if (r == -ENOENT || r == -ELOOP || r == -ENOTDIR || r == -EINVAL || r == -EXDEV)
		return 0;
	return r;
}

static int push(struct search *s, struct sbx_ignore *ig, const char *text, size_t len)
{
	int r = sbx_ignore_push(ig, s->now.path, text ? text : "", text ? len : 0);

	return r ? sbx_fail(s->err, -r, "out of memory") : 0;
}

static char *join(const char *dir, const char *name)
{
	return sbx_format("%s%s%s", dir, *dir ? "/" : "", name);
}

/*
 * A .gitignore that is not in the commit counts for the sandbox if it is going to be brought there.
 */
static int push_gitignores(struct search *s)
{
	_cleanup_free_ char *path = join(s->now.path, ".gitignore"), *mine = NULL, *theirs = NULL;
	size_t mine_len = 0, their_len = 0;
	int r = path ? read_patterns(s->source, path, &mine, &mine_len) : -ENOMEM;

	if (!r && !s->now.absent)
		r = read_patterns(s->in->tree, path, &theirs, &their_len);
	if (r)
		return sbx_fail(s->err, -r, "cannot read %s: %s", path ? path : ".gitignore",
		                strerror(-r));
	r = push(s, s->here, mine, mine_len);
	if (r)
		return r;
	if (!theirs && mine && (s->now.included || sbx_ignore_match(s->include, path, false)))
		return push(s, s->there, mine, mine_len);
	return push(s, s->there, theirs, their_len);
}

static int open_patterns(struct search *s)
{
	_cleanup_free_ char *everywhere = sbx_git_excludes(s->in->source);
	git_config *config = NULL;
	int icase = 0, r;

	if (git_repository_config(&config, s->repo) < 0 ||
	    git_config_get_bool(&icase, config, "core.ignorecase") < 0)
		icase = 0;
	git_config_free(config);
	r = everywhere ? sbx_ignore_new(icase, &s->include) : -ENOMEM;
	if (!r)
		r = sbx_ignore_new(icase, &s->here);
	if (!r)
		r = sbx_ignore_new(icase, &s->there);
	if (r)
		return sbx_fail(s->err, -r, "out of memory");
	r = push(s, s->here, everywhere, strlen(everywhere));
	return r ? r : push(s, s->there, everywhere, strlen(everywhere));
}

/* --- what is wanted
 * ------------------------------------------------------------------------------------------ */

/* Not there, or there as something else: 1, 0, or a negative errno. */
static int exists(int dir, const char *path)
{
	int fd = sbx_beneath_open(dir, path, O_PATH);

	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 1 : fd == -ENOENT ? 0 : fd;
}

static int read_index(struct search *s)
{
	_cleanup_fd_ int dir =
	        open(git_repository_path(s->repo), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *data = NULL;
	size_t len;
	int r = dir < 0 ? -errno : sbx_beneath_read(dir, "index", SBX_INDEX_MAX, &data, &len, NULL);

	if (!r)
		r = sbx_index_parse(data, len, &s->index, NULL);
	/* An index that was never written has nothing in it. */
	return r == -ENOENT ? 0 : r;
}

static int open_index(struct search *s)
{
	int r = s->index_read ? 0 : read_index(s);

	s->index_read = !r;
	if (r)
		return sbx_fail(s->err, EINVAL,
		                "the index of the source cannot be read, so what is tracked is not "
		                "known (to make it a plain one: git update-index --no-split-index; "
		                "git sparse-checkout init --no-sparse-index)");
	return 0;
}

static bool is_in_index(const struct sbx_index *index, const char *path)
{
	size_t from = 0, to = index->n, len = strlen(path);

	while (from < to) {
		size_t at = from + (to - from) / 2;
		int order =
		        sbx_index_compare_names(path, len, index->at[at].name, index->at[at].len);

		if (!order)
			return true;
		if (order < 0)
			to = at;
		else
			from = at + 1;
	}
	return false;
}

/* 1: tracked, in the source or in the sandbox. */
static int is_tracked(struct search *s, const char *path)
{
	int r = open_index(s);

	if (r)
		return r;
	if (is_in_index(&s->index, path))
		return 1;
	return s->now.absent ? 0 : exists(s->in->tree, path) != 0;
}

static int add_file(struct search *s, const char *name)
{
	struct sbx_include_list *list = &s->list;
	struct sbx_include_batch *last = list->n ? &list->at[list->n - 1] : NULL;

	if (!last || last->names.n == SBX_INCLUDE_BATCH || strcmp(last->dir, s->now.path) != 0) {
		if (list->n == list->room) {
			size_t room = list->room ? 2 * list->room : 64;

			last = reallocarray(list->at, room, sizeof(*last));
			if (!last)
				return -ENOMEM;
			list->at = last;
			list->room = room;
		}
		last = &list->at[list->n];
		*last = (struct sbx_include_batch){.dir = strdup(s->now.path)};
		if (!last->dir)
			return -ENOMEM;
		list->n++;
	}
	return sbx_strings_add(&last->names, name);
}

static int add_place(struct search *s, struct place *p)
{
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct place *todo = reallocarray(s->todo, room, sizeof(*todo));

		if (!todo)
			return -ENOMEM;
		s->todo = todo;
		s->room = room;
	}
	s->todo[s->n++] = *p;
	p->path = NULL;
	return 0;
}

/* A directory: it is looked into later, if anything in it can be wanted. */
static int visit_dir(struct search *s, struct place *p)
{
	int r;

	if (!p->included && !sbx_ignore_reaches(s->include, p->path))
		return 0;
	p->depth = s->now.depth + 1;
	p->absent = s->now.absent;
	if (!p->absent) {
		r = sbx_beneath_open(s->in->tree, p->path, O_PATH | O_DIRECTORY);
		p->absent = r == -ENOENT;
		if (r >= 0)
			close(r);
		else if (!p->absent)
			return 0; /* the commit has a file or a link of that name */
	}
	return add_place(s, p);
}

static int visit_other(struct search *s, const struct place *p, const char *name,
                       unsigned char type)
{
	int r;

	if (!p->included || !p->ignored || !p->ignored_there)
		return 0;
	if (type != DT_REG && type != DT_LNK) {
		s->in->left_out++;
		return 0;
	}
	r = is_tracked(s, p->path);
	if (r)
		return r < 0 ? r : 0;
	return add_file(s, name);
}

static int visit(const char *name, unsigned char type, void *data)
{
	struct search *s = data;
	bool dir = type == DT_DIR;
	_cleanup_free_ char *path = join(s->now.path, name);
	struct place p = {.path = path};
	int r;

	if (s->in->cancelled && atomic_load(s->in->cancelled))
		return sbx_fail(s->err, EINTR, "cancelled");
	if (!path)
		return sbx_no_memory(s->err);
	if (strcmp(name, ".git") == 0)
		return 0;
	if (strlen(path) >= PATH_MAX) {
		s->in->left_out++;
		return 0;
	}
	p.included = s->now.included || sbx_ignore_match(s->include, path, dir);
	p.ignored = s->now.ignored || sbx_ignore_match(s->here, path, dir);
	p.ignored_there = s->now.ignored_there || sbx_ignore_match(s->there, path, dir);
	r = dir ? visit_dir(s, &p) : visit_other(s, &p, name, type);
	path = p.path;
	return r == -ENOMEM ? sbx_no_memory(s->err) : r;
}

/* --- the walk
 * ------------------------------------------------------------------
 */

/* A repository in the source that git does not ignore is no part of it: a submodule, say. */
static bool is_apart(const struct search *s, int fd)
{
	return *s->now.path && !s->now.ignored &&
	       faccessat(fd, ".git", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether the entry NAME of the directory FD is to be left out as the caller wishes. */
static bool is_left_out(const struct sbx_include *in, int fd, const char *name)
{
	struct stat st;

	if (!in->nskips || fstat(fd, &st) < 0)
		return false;
	for (size_t i = 0; i < in->nskips; i++)
		if (in->skips[i].dev == st.st_dev && in->skips[i].ino == st.st_ino &&
		    strcmp(in->skips[i].name, name) == 0)
			return true;
	return false;
}

/* Opens the directory that is next; ENOENT: it is gone, or to be left out. */
static int open_place(const struct search *s)
{
	const char *slash = strrchr(s->now.path, '/');
	_cleanup_free_ char *parent =
	        slash ? strndup(s->now.path, (size_t)(slash - s->now.path)) : strdup(".");
	_cleanup_fd_ int above = -1;
	int fd;

	if (!*s->now.path)
		return sbx_beneath_open(s->source, ".", O_RDONLY | O_DIRECTORY);
	above = parent ? sbx_beneath_open(s->source, parent, O_PATH | O_DIRECTORY) : -ENOMEM;
	if (above < 0)
		return above;
	if (is_left_out(s->in, above, slash ? slash + 1 : s->now.path))
		return -ENOENT;
	fd = sbx_dir_open(above, slash ? slash + 1 : s->now.path);
	return fd == -ELOOP || fd == -ENOTDIR ? -ENOENT : fd;
}

static int enter(struct search *s)
{
	_cleanup_fd_ int fd = open_place(s);
	int r;

	if (fd == -ENOENT || (fd >= 0 && is_apart(s, fd)))
		return 0;
	if (fd < 0)
		return sbx_fail(s->err, -fd, "cannot look into %s of the source: %s", s->now.path,
		                strerror(-fd));
	for (; s->depth > s->now.depth; s->depth--) {
		sbx_ignore_pop(s->here);
		sbx_ignore_pop(s->there);
	}
	r = push_gitignores(s);
	if (r)
		return r;
	s->depth = s->now.depth + 1;
	return sbx_dir_scan(fd, visit, s);
}

static int walk(struct search *s)
{
	struct place top = {.path = strdup("")};
	int r = top.path ? add_place(s, &top) : -ENOMEM;

	if (r)
		return sbx_fail(s->err, -r, "out of memory");
	while (!r && s->n) {
		s->now = s->todo[--s->n];
		r = enter(s);
		free(s->now.path);
		s->now.path = NULL;
	}
	if (r && s->err && !s->err->code)
		return sbx_fail(s->err, -r, "cannot read the source: %s", strerror(-r));
	return r;
}

static void finish(struct search *s)
{
	while (s->n)
		free(s->todo[--s->n].path);
	free(s->todo);
	while (s->list.n) {
		sbx_strings_release(&s->list.at[--s->list.n].names);
		free(s->list.at[s->list.n].dir);
	}
	free(s->list.at);
	sbx_ignore_free(s->include);
	sbx_ignore_free(s->here);
	sbx_ignore_free(s->there);
	sbx_index_release(&s->index);
	git_repository_free(s->repo);
}

static int find(struct search *s, const char *text, size_t len)
{
	char top[] = "";
	int r = sbx_git_open(s->in->source, &s->repo);

	if (r)
		return sbx_git_fail(s->err, r, "cannot open the repository %s", s->in->source);
	s->now.path = top;
	r = open_patterns(s);
	if (!r)
		r = push(s, s->include, text, len);
	return r ? r : walk(s);
}

/*
 * Brings each file and link of the working tree that a pattern of .worktreeinclude (gitignore(5))
 * fits, or a directory that it is in; that git ignores, in the source and in the sandbox, so that
 * `git status` is clean; that is tracked in neither; and that belongs to no repository of its own
 * in there. Data is shared with the source where the file system can, mode (without setuid and
 * setgid), times, user.* attributes and hard links among them are kept. What vanishes meanwhile is
 * left out. ENOENT: there is no .worktreeinclude and nothing was done. EINVAL it, or the source's
 * index, cannot be read; EINTR cancelled; as sbx_tree_copy. On failure what was copied stays.
 * Blocks; several threads work. Thread-safe for distinct dst.
 */
static int bring_files(struct sbx_include *in, struct sbx_error *err)
{
	_cleanup_fd_ int source = open(in->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	struct sbx_error first = SBX_ERROR_INIT;
	struct search s = {.in = in, .err = &first, .source = source};
	size_t len = 0;
	int r;

	if (source < 0)
		return sbx_fail(err, errno, "source %s: %s", in->source, strerror(errno));
	r = sbx_beneath_read(source, SBX_WORKTREE_INCLUDE, PATTERNS_MAX, &text, &len, NULL);
	if (r == -ENOENT)
		return r;
	if (r)
		return sbx_fail(
		        err, EINVAL, "%s/" SBX_WORKTREE_INCLUDE " cannot be read: %s", in->source,
		        r == -ELOOP || r == -EINVAL ? "it is not a plain file" : strerror(-r));
	r = find(&s, text, len);
	if (!r)
		r = copy(in, source, &s.list, &first);
	finish(&s);
	return r ? sbx_fail(err, -r, "%s", first.text) : 0;
}

static int open_base(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *path =
	        sbx_format("%s/%s/tree", sbx_bases_path(sbx_overlay_bases(b->overlay)), rec->layer);

	return path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;
}

static int open_upper(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *path = sbx_format(rec->layer ? "%s/upper" : "%s", rec->id);

	return path ? sbx_dir_open(b->state.trees, path) : -ENOMEM;
}

static int include(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	_cleanup_fd_ int dst = open_upper(b, rec);
	_cleanup_fd_ int base = rec->layer && dst >= 0 ? open_base(b, rec) : -1;
	_cleanup_fd_ int links = sbx_dir_make(b->state.trash, rec->id, 0700);
	struct sbx_skip skips[SBX_BASE_SKIPS];
	struct sbx_include in = {.source = b->host->settings->source_abs,
	                         .tree = rec->layer ? base : dst,
	                         .dst = dst,
	                         .links = links,
	                         .owner = rec->layer ? sbx_overlay_owner(b->overlay) : NULL,
	                         .skips = skips,
	                         .nskips = sbx_local_skips(b, skips),
	                         .cancelled = cancelled};
	int r = dst < 0 ? dst : in.tree < 0 ? in.tree : links < 0 ? links : 0;

	if (r)
		return sbx_fail(err, -r, "cannot open the sandbox: %s", strerror(-r));
	r = bring_files(&in, err);
	if (r == -ENOENT)
		return 0;
	rec->included = (int64_t)in.files;
	rec->skipped = (int64_t)in.left_out;
	return r;
}

int sbx_local_include(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                      struct sbx_error *err)
{
	_cleanup_free_ char *path =
	        sbx_format("%s/" SBX_WORKTREE_INCLUDE, b->host->settings->source_abs);
	int r;

	if (!path)
		return sbx_no_memory(err);
	if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = include(b, rec, cancelled, err);
	return r ? r : sbx_tree_remove(b->state.trash, rec->id, err);
}

/* By way of the mounted tree, in which a directory of ours is where links are kept meanwhile. */
static int include_again(const struct sbx_local *b, const struct sbx_record *rec, int root,
                         int links, struct sbx_error *err)
{
	const struct sbx_identity owner = sbx_local_owner(b, rec);
	struct sbx_skip skips[SBX_BASE_SKIPS];
	struct sbx_include in = {.source = b->host->settings->source_abs,
	                         .tree = root,
	                         .dst = root,
	                         .links = links,
	                         .owner = owner.uid == geteuid() ? NULL : &owner,
	                         .skips = skips,
	                         .nskips = sbx_local_skips(b, skips)};
	int r = bring_files(&in, err);

	return r == -ENOENT ? 0 : r;
}

int sbx_local_include_again(const struct sbx_local *b, const struct sbx_record *rec, int tree,
                            struct sbx_error *err)
{
	_cleanup_fd_ int root = -1, links = -1;
	int r;

	if (rec->included < 0 || !b->host->settings->source_abs)
		return 0;
	root = sbx_beneath_open(tree, ".", O_RDONLY | O_DIRECTORY);
	links = root < 0 ? root : sbx_dir_make(root, SBX_CAPTURE_TEMP, 0700);
	if (links < 0)
		return sbx_fail(err, -links, "cannot open the sandbox: %s", strerror(-links));
	r = include_again(b, rec, root, links, err);
	sbx_tree_remove(root, SBX_CAPTURE_TEMP, NULL);
	return r;
}
