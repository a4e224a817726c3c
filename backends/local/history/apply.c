/*
 * From one tree to another, file by file, in a tree that the host may still be changing: each
 * directory is opened beneath the root, each file written aside, in a directory of ours in the
 * root, and put in its place by rename, so nothing is ever written through a link and a reader sees
 * the old or the new. What had to go goes first, so that a directory can become a file and back.
 *
 * What a tree of git does not tell of files stands in a tree of its own: their exact bytes and all
 * of their permissions.
 */
#include <errno.h>
#include <fcntl.h>
#include <git2/sys/repository.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/blob.h"
#include "backends/git/git_impl.h"
#include "backends/git/index_tree.h"
#include "backends/local/history/aside.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/tree_changes.h"
#include "backends/local/overlay/paths.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

int sbx_local_history_temp_open(int root)
{
	_cleanup_fd_ int fd = sbx_beneath_open(root, ".", O_RDONLY | O_DIRECTORY);

	return fd < 0 ? fd : sbx_dir_make(fd, SBX_CAPTURE_TEMP, 0700);
}

int sbx_local_history_temp_remove(int root, struct sbx_error *err)
{
	_cleanup_fd_ int fd = sbx_beneath_open(root, ".", O_RDONLY | O_DIRECTORY);

	return fd < 0 ? sbx_fail(err, -fd, "cannot open the sandbox: %s", strerror(-fd))
	              : sbx_tree_remove(fd, SBX_CAPTURE_TEMP, err);
}

void sbx_local_history_make_accessible(int dir, int how)
{
	_cleanup_free_ char *proc = NULL;
	struct stat st;

	if (faccessat(dir, ".", how, AT_EACCESS) == 0 || fstat(dir, &st) < 0)
		return;
	proc = sbx_format("/proc/self/fd/%d", dir);
	if (proc)
		chmod(proc, (st.st_mode & 07777) | 0700);
}

struct reading {
	struct sbx_local_history_exacts *list;
	int r;
};

static int add(const char *dir, const git_tree_entry *entry, void *data)
{
	struct reading *reading = data;
	struct sbx_local_history_exacts *list = reading->list;

	if (git_tree_entry_type(entry) != GIT_OBJECT_BLOB)
		return 0;
	if (SBX_GROW(list->at, list->n, list->cap, 64))
		return reading->r = -ENOMEM;
	list->at[list->n] = (struct sbx_local_history_exact){
	        .path = sbx_format("%s%s", dir, git_tree_entry_name(entry)),
	        .mode = (uint32_t)git_tree_entry_filemode_raw(entry),
	        .oid = *git_tree_entry_id(entry)};
	return list->at[list->n++].path ? 0 : (reading->r = -ENOMEM);
}

static int compare(const void *a, const void *b)
{
	const struct sbx_local_history_exact *x = a, *y = b;

	return strcmp(x->path, y->path);
}

int tree_exact_read(git_repository *all, const git_oid *tree, struct sbx_local_history_exacts *ret,
                    struct sbx_error *err)
{
	_cleanup_git_(tree) git_tree *top = NULL;
	struct reading reading = {.list = ret};
	int r = git_tree_lookup(&top, all, tree);

	if (!r)
		r = git_tree_walk(top, GIT_TREEWALK_PRE, add, &reading);
	if (reading.r)
		return sbx_no_memory(err);
	if (r)
		return sbx_git_fail(err, r, "a mark cannot be read");
	if (ret->n)
		qsort(ret->at, ret->n, sizeof(*ret->at), compare);
	return 0;
}

/* That of PATH, or NULL. LIST may be NULL. */
static const struct sbx_local_history_exact *exact_find(const struct sbx_local_history_exacts *list,
                                                        const char *path)
{
	const struct sbx_local_history_exact key = {.path = (char *)(uintptr_t)path};

	return list && list->n ? bsearch(&key, list->at, list->n, sizeof(*list->at), compare)
	                       : NULL;
}

void tree_exact_release(struct sbx_local_history_exacts *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->at[i].path);
	free(list->at);
	*list = (struct sbx_local_history_exacts){0};
}

#define GITLINK  0160000
#define LEFT_MAX ((size_t)64 << 20)

struct applying {
	git_repository *repo;
	git_odb *odb;
	git_index *attributes;
	int root;
	struct sbx_identity owner;
	const struct sbx_local_history_apply *how;
	int temp; /* SBX_CAPTURE_TEMP in the root: a directory */
	struct sbx_error *err;
};

static int failed(struct applying *a, int r, const char *path)
{
	return a->err->code ? r : sbx_fail(a->err, -r, "cannot restore %s: %s", path, strerror(-r));
}

/* ---- directories ---- */

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
		sbx_local_history_make_accessible(fd, W_OK | X_OK);
		next = make_dir(a, fd, at);
		close(fd);
		fd = next;
		at = slash ? slash + 1 : NULL;
	}
	return sbx_steal_fd(&fd);
}

/* The directory that PATH lies in; *name is the rest. MAKE: also when it is not there. Descriptor
 * or -errno. */
static int open_parent(const struct applying *a, const char *path, bool make, const char **name)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	int fd = dir ? sbx_beneath_open(a->root, dir, O_PATH | O_DIRECTORY) : -ENOMEM;

	*name = slash ? slash + 1 : path;
	if (fd < 0 && make && slash)
		fd = make_path(a, dir);
	if (fd >= 0)
		sbx_local_history_make_accessible(fd, W_OK | X_OK);
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

static bool is_directory(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int take_away(struct applying *a, const struct tree_change *c)
{
	const char *name;
	int r = a->how->aside ? sbx_aside_note(a->how->aside, c->path) : 0;
	_cleanup_fd_ int dir = r ? r : open_parent(a, c->path, false, &name);

	/* Not there any more, or something else by now. */
	if (dir < 0)
		return dir == -EMFILE || dir == -ENOMEM ? failed(a, dir, c->path) : 0;
	if (c->directory || !a->how->aside) {
		if (unlinkat(dir, name, c->directory ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT &&
		    errno != ENOTDIR && errno != EISDIR && errno != ENOTEMPTY)
			return failed(a, -errno, c->path);
	} else if (!is_directory(dir, name) && (r = sbx_aside_take(a->how->aside, c->path))) {
		return failed(a, r, c->path);
	}
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

void sbx_local_history_drop_left(const struct sbx_snapshot_context *context,
                                 struct sbx_strings *paths)
{
	_cleanup_fd_ int own = sbx_local_history_dir(context, NULL);
	_cleanup_free_ char *left = NULL;
	size_t len, n = 0;

	if (own < 0 || sbx_beneath_read(own, SBX_LOCAL_HISTORY_LEFT, LEFT_MAX, &left, &len, NULL))
		return;
	for (size_t i = 0; i < paths->n; i++)
		if (was_there(left, len, paths->items[i]))
			free(paths->items[i]);
		else
			paths->items[n++] = paths->items[i];
	paths->n = n;
	if (paths->items)
		paths->items[n] = NULL;
}

int sbx_local_history_remove(const struct sbx_snapshot_context *context,
                             const struct sbx_strings *paths, struct sbx_aside *aside,
                             struct sbx_error *err)
{
	_cleanup_fd_ int own = sbx_local_history_dir(context, err);
	_cleanup_free_ char *left = NULL;
	size_t len = 0;
	int r = own < 0 ? own
	                : sbx_beneath_read(own, SBX_LOCAL_HISTORY_LEFT, LEFT_MAX, &left, &len,
	                                   NULL);

	if (r && r != -ENOENT)
		return own < 0 ? own : sbx_fail(err, -r, "cannot read the state directory");
	r = 0;
	for (size_t i = 0; i < paths->n && !r; i++)
		if (!was_there(left, len, paths->items[i]))
			r = sbx_aside_take(aside, paths->items[i]);
	return r;
}

/* ---- there ---- */

static int load_filters(struct applying *a, const struct tree_change *c, git_filter_list **ret)
{
	return git_filter_list_load(ret, a->repo, NULL, c->path, GIT_FILTER_TO_WORKTREE,
	                            GIT_FILTER_DEFAULT);
}

static int write_filtered(struct applying *a, const struct tree_change *c, git_filter_list *filters,
                          int fd)
{
	git_odb_object *object = NULL;
	struct sbx_convert how;
	git_buf out = {0};
	int r;

	if (sbx_git_blob_is_large(a->odb, &c->oid) && sbx_convert_probe(&how, filters, true, NULL))
		return sbx_git_blob_convert(a->odb, &c->oid, &how, fd);
	r = git_odb_read(&object, a->odb, &c->oid);
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

static int write_content(struct applying *a, const struct tree_change *c, int fd)
{
	git_filter_list *filters = NULL;
	int r = load_filters(a, c, &filters);

	if (r)
		r = sbx_git_fail(a->err, r, "cannot restore %s", c->path);
	else
		r = filters ? write_filtered(a, c, filters, fd)
		            : sbx_git_blob_write(a->odb, &c->oid, fd);
	git_filter_list_free(filters);
	return r;
}

/*
 * The permissions of the file that PATH is now, if it is one; only who may execute it changes with
 * MODE. A mark tells of all that are not git's.
 */
static mode_t permissions(const struct applying *a, const char *path, uint32_t mode)
{
	_cleanup_fd_ int fd = sbx_beneath_open(a->root, path, O_PATH);
	struct stat st;

	if (a->how->was || fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return mode & 0100 ? 0755 : 0644;
	if (!(mode & 0100))
		return st.st_mode & 0666;
	return st.st_mode & 0100 ? st.st_mode & 0777
	                         : (st.st_mode & 0777) | ((st.st_mode & 0444) >> 2);
}

static int make_file(struct applying *a, const struct tree_change *c)
{
	const struct sbx_local_history_exact *exact = exact_find(a->how->exact, c->path);
	_cleanup_fd_ int fd =
	        openat(a->temp, "new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = exact ? sbx_git_blob_write(a->odb, &exact->oid, fd) : write_content(a, c, fd);
	if (!r && fchmod(fd, exact ? exact->mode & 01777 : permissions(a, c->path, c->mode)) < 0)
		r = -errno;
	return r;
}

static int make_link(struct applying *a, const struct tree_change *c)
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
	return symlinkat(target, a->temp, "new") < 0 ? -errno : 0;
}

/* Into its place, from which a directory that nobody records has to go. */
static int put_in_place(struct applying *a, int dir, const char *name, const char *path)
{
	_cleanup_fd_ int list = -1;
	int r;

	if (a->how->aside)
		return sbx_aside_replace(a->how->aside, path);
	if (renameat(a->temp, "new", dir, name) == 0)
		return 0;
	if (errno != EISDIR && errno != EEXIST && errno != ENOTEMPTY)
		return -errno;
	list = sbx_beneath_open(dir, ".", O_RDONLY | O_DIRECTORY);
	r = list < 0 ? list : sbx_tree_remove(list, name, a->err);
	if (!r && renameat(a->temp, "new", dir, name) < 0)
		r = -errno;
	return r;
}

static int make_new(struct applying *a, const struct tree_change *c)
{
	int r = c->mode == S_IFLNK ? make_link(a, c) : make_file(a, c);

	if (r != -ENOSPC || !a->how->aside || !sbx_aside_make_room(a->how->aside))
		return r;
	unlinkat(a->temp, "new", 0);
	return c->mode == S_IFLNK ? make_link(a, c) : make_file(a, c);
}

static int make_entry(struct applying *a, struct tree_change *c)
{
	const char *name;
	int r = a->how->aside ? sbx_aside_note(a->how->aside, c->path) : 0;
	_cleanup_fd_ int dir = r ? r : open_parent(a, c->path, true, &name);
	struct stat st;

	if (dir < 0)
		return failed(a, dir, c->path);
	unlinkat(a->temp, "new", 0);
	if (c->mode == GITLINK) {
		int fd = make_dir(a, dir, name);

		r = fd < 0 ? fd : 0;
		sbx_cleanup_fd(&fd);
	} else {
		r = make_new(a, c);
		if (!r)
			r = own_at(a, a->temp, "new");
		if (!r)
			r = put_in_place(a, dir, name, c->path);
	}
	if (!r && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r) {
		unlinkat(a->temp, "new", 0);
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

/* libgit2 looks for attributes in this index alone: those that are there now, and then as they are
 * to be. */
static int show_attributes(struct applying *a, const struct sbx_index *index,
                           const struct tree_changes *list)
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

/* The very file comes back later. */
static bool is_given_back(const struct applying *a, const struct tree_change *c)
{
	return a->how->from && c->mode != GITLINK && sbx_aside_has(a->how->from, c->path);
}

static int change_files(struct applying *a, struct tree_changes *list)
{
	int r = 0;

	for (size_t i = 0; i < list->n && !r; i++)
		if (!list->at[i].mode)
			r = take_away(a, &list->at[i]);
	for (size_t i = 0; i < list->n && !r; i++)
		if (list->at[i].mode && !is_given_back(a, &list->at[i]))
			r = make_entry(a, &list->at[i]);
	return r;
}

/* ---- what a tree of git does not tell ---- */

/* A file of another size is not read, because it may be of any. */
static bool has_content(struct applying *a, const struct sbx_local_history_exact *e, int fd,
                        const struct stat *st)
{
	_cleanup_free_ char *path = sbx_format("/proc/self/fd/%d", fd);
	git_object_t type;
	git_oid oid;
	size_t size;

	return path && git_odb_read_header(&size, &type, a->odb, &e->oid) == 0 &&
	       size == (size_t)st->st_size && git_odb_hashfile(&oid, path, GIT_OBJECT_BLOB) == 0 &&
	       git_oid_equal(&oid, &e->oid);
}

/* The file is there, and git calls it the same: its permissions and line ends may be others. */
static int make_one_exact(struct applying *a, const struct sbx_local_history_exact *e)
{
	struct tree_change c = {.path = e->path, .mode = e->mode, .oid = e->oid};
	_cleanup_fd_ int fd = sbx_beneath_open(a->root, e->path, O_RDONLY);
	_cleanup_free_ char *proc = NULL;
	struct stat st;

	if (a->how->from && sbx_aside_has(a->how->from, e->path))
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !has_content(a, e, fd, &st))
		return make_entry(a, &c);
	if ((st.st_mode & 07777) == (e->mode & 01777))
		return 0;
	proc = sbx_format("/proc/self/fd/%d", fd);
	return !proc || chmod(proc, e->mode & 01777) < 0 ? failed(a, -errno, e->path) : 0;
}

/* The file at PATH is not what git records of it, and is to be that again. */
static int make_plain(struct applying *a, const git_tree *to, const char *path)
{
	struct sbx_local_history_exact plain = {.path = (char *)(uintptr_t)path};
	git_tree_entry *entry = NULL;
	int r = git_tree_entry_bypath(&entry, to, path);

	if (r == GIT_ENOTFOUND)
		return 0;
	if (r)
		return sbx_git_fail(a->err, r, "cannot restore %s", path);
	plain.mode = S_IFREG | (git_tree_entry_filemode(entry) & 0100 ? 0755 : 0644);
	plain.oid = *git_tree_entry_id(entry);
	if (git_tree_entry_type(entry) == GIT_OBJECT_BLOB &&
	    git_tree_entry_filemode(entry) != GIT_FILEMODE_LINK)
		r = make_one_exact(a, &plain);
	git_tree_entry_free(entry);
	return r;
}

static int make_exact(struct applying *a, const git_oid *to)
{
	const struct sbx_local_history_exacts *list = a->how->exact, *was = a->how->was;
	_cleanup_git_(tree) git_tree *tree = NULL;
	int r = was && was->n ? git_tree_lookup(&tree, a->repo, to) : 0;

	if (r)
		return sbx_git_fail(a->err, r, "a mark cannot be read");
	for (size_t i = 0; list && i < list->n && !r; i++)
		r = make_one_exact(a, &list->at[i]);
	for (size_t i = 0; was && i < was->n && !r; i++)
		if (!exact_find(list, was->at[i].path))
			r = make_plain(a, tree, was->at[i].path);
	return r;
}

static int open_temp(struct applying *a)
{
	a->temp = sbx_local_history_temp_open(a->root);
	return a->temp < 0 ? sbx_fail(a->err, -a->temp, "cannot write to the sandbox: %s",
	                              strerror(-a->temp))
	                   : 0;
}

static void remove_temp(struct applying *a)
{
	sbx_cleanup_fd(&a->temp);
	if (!a->how->aside)
		sbx_local_history_temp_remove(a->root, NULL);
}

int sbx_local_history_apply(const struct sbx_snapshot_context *context, git_repository *repo,
                            struct sbx_captured *captured, const git_oid *to,
                            const struct sbx_local_history_apply *how, struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	static const struct sbx_local_history_apply plainly;
	struct applying a = {.repo = repo,
	                     .root = context->root,
	                     .owner = sbx_local_owner(context->b, context->rec),
	                     .how = how ? how : &plainly,
	                     .temp = -1,
	                     .err = &own};
	struct tree_changes list = {.repo = repo, .err = &own};
	int r = tree_changes_list(&list, &captured->tree, to);

	if (!r)
		r = open_temp(&a);
	if (!r && git_repository_odb(&a.odb, repo))
		r = sbx_git_fail(&own, GIT_ERROR, "cannot open the objects");
	if (!r)
		r = show_attributes(&a, &captured->index, &list);
	if (!r)
		r = change_files(&a, &list);
	if (!r)
		r = make_exact(&a, to);
	if (!r && (r = tree_changes_stage(&list, &captured->index)))
		sbx_fail(&own, -r, "out of memory");
	remove_temp(&a);
	git_repository_set_index(repo, NULL);
	git_index_free(a.attributes);
	git_odb_free(a.odb);
	tree_changes_release(&list);
	if (r && err)
		*err = own;
	return r;
}
