/*
 * From one tree to another, file by file, in a tree that somebody may still be changing: each directory is opened beneath the root, each
 * file written aside and put in its place by rename, so nothing is ever written through a link and a reader sees the old or the
 * new. What had to go goes first, so that a directory can become a file and back.
 */
#include <errno.h>
#include <fcntl.h>
#include <git2/sys/repository.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/git_impl.h"
#include "backends/local/index_tree.h"
#include "backends/local/past_changes.h"
#include "backends/local/past_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define GITLINK  0160000
#define LEFT_MAX ((size_t)64 << 20)

struct applying {
	git_repository *repo;
	git_odb *odb;
	git_index *attributes;
	int root;
	struct sbx_identity owner;
	struct past_change *changes;
	size_t n, cap;
	struct sbx_error *err;
};

static int failed(struct applying *a, int r, const char *path)
{
	return a->err->code ? r : sbx_fail(a->err, -r, "cannot restore %s: %s", path, strerror(-r));
}

/* ---- directories ---- */

static void make_writable(int dir)
{
	_cleanup_free_ char *proc = NULL;
	struct stat st;

	if (faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) == 0 || fstat(dir, &st) < 0)
		return;
	proc = sbx_format("/proc/self/fd/%d", dir);
	if (proc)
		chmod(proc, (st.st_mode & 07777) | 0700);
}

static int own_at(const struct applying *a, int dir, const char *name)
{
	if (a->owner.uid == geteuid())
		return 0;
	return fchownat(dir, name, a->owner.uid, a->owner.gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
	                                                                                : 0;
}

/* Has NAME in DIR be a directory, whatever else it was. */
static int make_dir(const struct applying *a, int dir, const char *name)
{
	int fd = sbx_beneath_open(dir, name, O_PATH | O_DIRECTORY);
	int r;

	if (fd >= 0)
		return fd;
	if (fd != -ENOENT && unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return -errno;
	if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	r = own_at(a, dir, name);
	return r ? r : sbx_beneath_open(dir, name, O_PATH | O_DIRECTORY);
}

static int make_path(const struct applying *a, const char *path)
{
	_cleanup_free_ char *copy = strdup(path);
	_cleanup_fd_ int fd = sbx_beneath_open(a->root, ".", O_PATH | O_DIRECTORY);
	char *at = copy;

	if (!copy)
		return -ENOMEM;
	while (fd >= 0 && at) {
		char *slash = strchr(at, '/');
		int next;

		if (slash)
			*slash = '\0';
		make_writable(fd);
		next = make_dir(a, fd, at);
		close(fd);
		fd = next;
		at = slash ? slash + 1 : NULL;
	}
	return sbx_steal_fd(&fd);
}

/* The directory that PATH lies in; *name is the rest. MAKE: also when it is not there. Descriptor or -errno. */
static int open_parent(const struct applying *a, const char *path, bool make, const char **name)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	int fd = dir ? sbx_beneath_open(a->root, dir, O_PATH | O_DIRECTORY) : -ENOMEM;

	*name = slash ? slash + 1 : path;
	if (fd < 0 && make && slash)
		fd = make_path(a, dir);
	if (fd >= 0)
		make_writable(fd);
	return fd;
}

/* ---- away ---- */

/* As git does: a directory goes with the last that was in it. */
static void prune(const struct applying *a, const char *path)
{
	_cleanup_free_ char *dir = strdup(path);
	char *slash;

	while (dir && (slash = strrchr(dir, '/'))) {
		_cleanup_fd_ int parent = -1;
		const char *name;

		*slash = '\0';
		parent = open_parent(a, dir, false, &name);
		if (parent < 0 || unlinkat(parent, name, AT_REMOVEDIR) < 0)
			return;
	}
}

static int take_away(struct applying *a, const struct past_change *c)
{
	const char *name;
	_cleanup_fd_ int dir = open_parent(a, c->path, false, &name);

	/* Not there any more, or something else by now. */
	if (dir < 0)
		return dir == -EMFILE || dir == -ENOMEM ? failed(a, dir, c->path) : 0;
	if (unlinkat(dir, name, c->directory ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT &&
	    errno != ENOTDIR && errno != EISDIR && errno != ENOTEMPTY)
		return failed(a, -errno, c->path);
	prune(a, c->path);
	return 0;
}

/* Whether PATH, or what it lies in, is in the list TEXT. */
static bool was_there(const char *text, size_t len, const char *path)
{
	for (const char *at = text; at < text + len && *at; at += strlen(at) + 1) {
		size_t n = strlen(at);

		if (strncmp(path, at, n) == 0 && (!path[n] || path[n] == '/'))
			return true;
	}
	return false;
}

int sbx_past_remove(const struct sbx_past_place *place, const struct sbx_names *paths,
                    struct sbx_error *err)
{
	const struct applying a = {.root = place->root, .owner = {.uid = geteuid()}};
	_cleanup_fd_ int own = sbx_past_dir(place, err);
	_cleanup_free_ char *left = NULL;
	size_t len = 0;
	int r = own < 0 ? own : sbx_beneath_read(own, SBX_PAST_LEFT, LEFT_MAX, &left, &len, NULL);

	if (r && r != -ENOENT)
		return own < 0 ? own : sbx_fail(err, -r, "cannot read the state directory");
	r = 0;
	for (size_t i = 0; i < paths->n && !r; i++) {
		const char *name;
		_cleanup_fd_ int dir = open_parent(&a, paths->items[i], false, &name);
		_cleanup_fd_ int list = dir < 0 ? -1 : sbx_beneath_open(dir, ".", O_RDONLY);

		if (list >= 0 && !was_there(left, len, paths->items[i]))
			r = sbx_tree_remove(list, name, err);
	}
	return r;
}

/* ---- there ---- */

static int load_filters(struct applying *a, const struct past_change *c, git_filter_list **ret)
{
	return git_filter_list_load(ret, a->repo, NULL, c->path, GIT_FILTER_TO_WORKTREE,
	                            GIT_FILTER_DEFAULT);
}

static int write_filtered(struct applying *a, const struct past_change *c, git_filter_list *filters,
                          int fd)
{
	git_odb_object *object = NULL;
	git_buf out = {0};
	int r = git_odb_read(&object, a->odb, &c->oid);

	if (!r)
		r = git_filter_list_apply_to_buffer(&out, filters, git_odb_object_data(object),
		                                    git_odb_object_size(object));
	if (r)
		r = sbx_git_fail(a->err, r, "cannot restore %s", c->path);
	else
		r = sbx_write_all(fd, out.ptr, out.size);
	git_buf_dispose(&out);
	git_odb_object_free(object);
	return r;
}

static int write_content(struct applying *a, const struct past_change *c, int fd)
{
	git_filter_list *filters = NULL;
	int r = load_filters(a, c, &filters);

	if (r)
		r = sbx_git_fail(a->err, r, "cannot restore %s", c->path);
	else
		r = filters ? write_filtered(a, c, filters, fd)
		            : sbx_past_content(a->odb, &c->oid, fd);
	git_filter_list_free(filters);
	return r;
}

static int make_file(struct applying *a, const struct past_change *c)
{
	_cleanup_fd_ int fd = openat(a->root, SBX_CAPTURE_TEMP,
	                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = write_content(a, c, fd);
	if (!r && fchmod(fd, c->mode & 0100 ? 0755 : 0644) < 0)
		r = -errno;
	return r;
}

static int make_link(struct applying *a, const struct past_change *c)
{
	git_odb_object *object = NULL;
	_cleanup_free_ char *target = NULL;
	int r = git_odb_read(&object, a->odb, &c->oid);

	if (r)
		return sbx_git_fail(a->err, r, "cannot restore %s", c->path);
	target = strndup(git_odb_object_data(object), git_odb_object_size(object));
	git_odb_object_free(object);
	if (!target)
		return -ENOMEM;
	return symlinkat(target, a->root, SBX_CAPTURE_TEMP) < 0 ? -errno : 0;
}

/* Into its place, from which a directory that nobody records has to go. */
static int put_in_place(struct applying *a, int dir, const char *name)
{
	_cleanup_fd_ int list = -1;
	int r;

	if (renameat(a->root, SBX_CAPTURE_TEMP, dir, name) == 0)
		return 0;
	if (errno != EISDIR && errno != EEXIST && errno != ENOTEMPTY)
		return -errno;
	list = sbx_beneath_open(dir, ".", O_RDONLY | O_DIRECTORY);
	r = list < 0 ? list : sbx_tree_remove(list, name, a->err);
	if (!r && renameat(a->root, SBX_CAPTURE_TEMP, dir, name) < 0)
		r = -errno;
	return r;
}

static int make_entry(struct applying *a, struct past_change *c)
{
	const char *name;
	_cleanup_fd_ int dir = open_parent(a, c->path, true, &name);
	struct stat st;
	int r;

	if (dir < 0)
		return failed(a, dir, c->path);
	unlinkat(a->root, SBX_CAPTURE_TEMP, 0);
	if (c->mode == GITLINK) {
		int fd = make_dir(a, dir, name);

		r = fd < 0 ? fd : 0;
		sbx_cleanup_fd(&fd);
	} else {
		r = c->mode == S_IFLNK ? make_link(a, c) : make_file(a, c);
		if (!r)
			r = own_at(a, a->root, SBX_CAPTURE_TEMP);
		if (!r)
			r = put_in_place(a, dir, name);
	}
	if (!r && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r) {
		unlinkat(a->root, SBX_CAPTURE_TEMP, 0);
		return failed(a, r, c->path);
	}
	sbx_capture_stat(&c->entry, &st, c->mode, &a->owner);
	return 0;
}

/* ---- all of it ---- */

static bool is_attributes(const char *path, size_t len)
{
	static const char name[] = ".gitattributes";
	size_t n = sizeof(name) - 1;

	return len >= n && memcmp(path + len - n, name, n) == 0 &&
	       (len == n || path[len - n - 1] == '/');
}

static int show(struct applying *a, const struct sbx_index_entry *e)
{
	_cleanup_free_ char *path = strndup(e->name, e->len);
	git_index_entry entry = {.mode = sbx_index_mode(e), .path = path};

	if (!path)
		return GIT_ERROR;
	memcpy(entry.id.id, e->oid, sizeof(e->oid));
	if (S_ISREG(entry.mode))
		return git_index_add(a->attributes, &entry);
	git_index_remove(a->attributes, path, 0);
	return 0;
}

/* libgit2 looks for attributes in this index alone: those that are there now, and then as they are to be. */
static int show_attributes(struct applying *a, const struct sbx_index *index,
                           const struct past_changes *list)
{
	int r = git_index_new(&a->attributes);

	if (!r)
		r = git_repository_set_index(a->repo, a->attributes);
	for (size_t i = 0; i < index->n && !r; i++)
		if (is_attributes(index->at[i].name, index->at[i].len))
			r = show(a, &index->at[i]);
	for (size_t i = 0; i < list->n && !r; i++)
		if (is_attributes(list->at[i].path, list->at[i].entry.len))
			r = show(a, &list->at[i].entry);
	return r ? sbx_git_fail(a->err, r, "cannot read the attributes") : 0;
}

static int change_files(struct applying *a, struct past_changes *list)
{
	int r = 0;

	for (size_t i = 0; i < list->n && !r; i++)
		if (!list->at[i].mode)
			r = take_away(a, &list->at[i]);
	for (size_t i = 0; i < list->n && !r; i++)
		if (list->at[i].mode)
			r = make_entry(a, &list->at[i]);
	return r;
}

int sbx_past_apply(const struct sbx_past_place *place, git_repository *repo,
                   struct sbx_captured *captured, const git_oid *to, struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	struct applying a = {
	        .repo = repo, .root = place->root, .owner = sbx_past_owner(place), .err = &own};
	struct past_changes list = {.repo = repo, .err = &own};
	int r = past_changes_list(&list, &captured->tree, to);

	if (!r && git_repository_odb(&a.odb, repo))
		r = sbx_git_fail(&own, GIT_ERROR, "cannot open the objects");
	if (!r)
		r = show_attributes(&a, &captured->index, &list);
	if (!r)
		r = change_files(&a, &list);
	if (!r && (r = past_changes_stage(&list, &captured->index)))
		sbx_fail(&own, -r, "out of memory");
	git_repository_set_index(repo, NULL);
	git_index_free(a.attributes);
	git_odb_free(a.odb);
	past_changes_release(&list);
	if (r && err)
		*err = own;
	return r;
}
