/*
 * Finding the files: a walk over the working tree with three stacks of patterns, those of .worktreeinclude, those that git has
 * for the source, and those that it will have in the sandbox, whose commit may say something else. Directories
 * are opened by their path from the top, so no depth is too much for the stack or for descriptors.
 */
#include "backends/local/worktreeinclude/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/gitignore.h"
#include "backends/git/index.h"
#include "backends/local/worktreeinclude/find_impl.h"
#include "backends/support/beneath.h"

#define PATTERNS_MAX ((size_t)1 << 20) /* bytes of one file */

/* What is known of a directory, and so of all that is in it. */
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

/* --- patterns -------------------------------------------------------------------------------------------- */

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

/* --- what is wanted ------------------------------------------------------------------------------------------ */

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
	return sbx_names_add(&last->names, name);
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
		return sbx_fail(s->err, ENOMEM, "out of memory");
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
	return r == -ENOMEM ? sbx_fail(s->err, ENOMEM, "out of memory") : r;
}

/* --- the walk ------------------------------------------------------------------------------------------------ */

/* A repository in the source that git does not ignore is no part of it: a submodule, say. */
static bool is_apart(const struct search *s, int fd)
{
	return *s->now.path && !s->now.ignored &&
	       faccessat(fd, ".git", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool sbx_include_skips(const struct sbx_include *in, int fd, const char *name)
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
	if (sbx_include_skips(s->in, above, slash ? slash + 1 : s->now.path))
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
		sbx_names_release(&s->list.at[--s->list.n].names);
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

int sbx_include_files(struct sbx_include *in, struct sbx_error *err)
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
		r = sbx_include_copy(in, source, &s.list, &first);
	finish(&s);
	return r ? sbx_fail(err, -r, "%s", first.text) : 0;
}
