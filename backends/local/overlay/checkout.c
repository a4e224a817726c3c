/*
 * A checkout into an empty directory that nobody else has. First all directories, then the files by
 * several threads, each with a repository handle of its own, links last: so no name ever leads
 * elsewhere, whatever the tree says. libgit2 checks the names when the index is read from the tree.
 *
 * All files get one modification time a little in the past: a change after this second has another,
 * so git never has to read a file to know that it is unchanged.
 */
#include "backends/local/overlay/checkout.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/blob.h"
#include "backends/git/git_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/thread.h"

#define CHUNK  32 /* files taken at a time */
#define PAST_S 2

struct filling {
	struct sbx_fill *spec;
	git_index *index;
	size_t n;
	bool chown; /* the files are not to be ours */
	struct timespec times[2];
	atomic_size_t next;
	atomic_ullong bytes;
	atomic_int failed; /* the first errno, negative */
	struct sbx_error err;
};

/* One of the threads. */
struct writer {
	struct filling *f;
	git_repository *repo;
	git_odb *odb;
	int dir; /* of the last file, or -1 */
	char dir_path[PATH_MAX];
};

static git_index_entry *entry_at(struct filling *f, size_t i)
{
	/* The index is ours alone: its entries may be completed where they are. */
	return (git_index_entry *)(uintptr_t)git_index_get_byindex(f->index, i);
}

static int fail(struct filling *f, int r, const char *path, const char *why)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&f->failed, &none, r))
		sbx_fail(&f->err, -r, "cannot check out %s: %s", path, why ? why : strerror(-r));
	return r;
}

/* The libgit2 call for PATH has answered R: its errno and its words. */
static int git_failure(struct filling *f, const char *path, int r)
{
	const git_error *last = sbx_git_said();
	struct sbx_error err;

	return fail(f, sbx_git_fail(&err, r, "%s", "object"), path, last ? last->message : NULL);
}

/* As the mount shows it: what belongs to the commands' user is the daemon's own there. */
static void record(struct filling *f, git_index_entry *e, const struct stat *st)
{
	e->ctime.seconds = (int32_t)st->st_ctim.tv_sec;
	e->ctime.nanoseconds = (uint32_t)st->st_ctim.tv_nsec;
	e->mtime.seconds = (int32_t)st->st_mtim.tv_sec;
	e->mtime.nanoseconds = (uint32_t)st->st_mtim.tv_nsec;
	e->dev = (uint32_t)st->st_dev;
	e->ino = (uint32_t)st->st_ino;
	e->uid = f->chown ? geteuid() : st->st_uid;
	e->gid = f->chown ? getegid() : st->st_gid;
	e->file_size = (uint32_t)st->st_size;
	atomic_fetch_add(&f->bytes, (unsigned long long)st->st_blocks * 512);
}

/* --- directories
 * ------------------------------------------------------------------------------------ */

static int own_at(struct filling *f, const char *path)
{
	const struct sbx_identity *owner = &f->spec->commit->owner;

	if (f->chown &&
	    fchownat(f->spec->tree, path, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

static int make_dir(struct filling *f, const char *path)
{
	struct stat st;

	if (mkdirat(f->spec->tree, path, 0755) == 0) {
		atomic_fetch_add(&f->bytes, 4096);
		return own_at(f, path);
	}
	if (errno != EEXIST)
		return -errno;
	if (fstatat(f->spec->tree, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -EINVAL;
}

/* Of the directories on PATH those that are not on BEFORE, whose own are there. */
static int make_dirs(struct filling *f, const char *before, const char *path)
{
	char buf[PATH_MAX];
	size_t same = 0, len = strlen(path);
	int r = 0;

	if (len >= sizeof(buf))
		return -ENAMETOOLONG;
	memcpy(buf, path, len + 1);
	for (size_t i = 0; before[i] && before[i] == path[i]; i++)
		if (path[i] == '/')
			same = i + 1;
	for (char *slash = strchr(buf + same, '/'); slash && !r; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		r = make_dir(f, buf);
		*slash = '/';
	}
	return r;
}

static int make_all_dirs(struct filling *f)
{
	const char *before = "";
	int r = 0;

	for (size_t i = 0; i < f->n && !r; i++) {
		git_index_entry *e = entry_at(f, i);
		struct stat st;

		r = make_dirs(f, before, e->path);
		before = e->path;
		if (!r && e->mode == GIT_FILEMODE_COMMIT) {
			r = make_dir(f, e->path);
			if (!r && fstatat(f->spec->tree, e->path, &st, AT_SYMLINK_NOFOLLOW) == 0)
				record(f, e, &st);
		}
		if (r)
			fail(f, r, e->path, NULL);
	}
	return r;
}

/* --- files
 * ---------------------------------------------------------------------------------------------- */

/* The directory of PATH, kept until a file of another comes; *name is the rest. */
static int dir_of(struct writer *w, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	*name = slash ? slash + 1 : path;
	if (!slash)
		return w->f->spec->tree;
	if (w->dir >= 0 && strncmp(w->dir_path, path, len) == 0 && !w->dir_path[len])
		return w->dir;
	sbx_cleanup_fd(&w->dir);
	memcpy(w->dir_path, path, len);
	w->dir_path[len] = '\0';
	w->dir = openat(w->f->spec->tree, w->dir_path,
	                O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return w->dir < 0 ? -errno : w->dir;
}

static int make_file(struct writer *w, git_index_entry *e)
{
	const char *name;
	int dir = dir_of(w, e->path, &name), fd;

	if (dir < 0)
		return dir;
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	            e->mode == GIT_FILEMODE_BLOB_EXECUTABLE ? 0755 : 0644);
	return fd < 0 ? -errno : fd;
}

/* The file open at FD has its content. */
static int finish_file(struct writer *w, git_index_entry *e, int fd)
{
	struct filling *f = w->f;
	const struct sbx_identity *owner = &f->spec->commit->owner;
	struct stat st;

	if ((f->chown && fchown(fd, owner->uid, owner->gid) < 0) || futimens(fd, f->times) < 0 ||
	    fstat(fd, &st) < 0)
		return -errno;
	record(f, e, &st);
	return 0;
}

static int write_file(struct writer *w, git_index_entry *e, const char *data, size_t len)
{
	_cleanup_fd_ int fd = make_file(w, e);
	const int r = fd < 0 ? fd : sbx_write_all(fd, data, len);

	return r ? r : finish_file(w, e, fd);
}

/* The blob, by and by, as HOW converts it; NULL: as it is. */
static int write_large(struct writer *w, git_index_entry *e, struct sbx_convert *how)
{
	_cleanup_fd_ int fd = make_file(w, e);
	int r = fd < 0 ? fd : 0;

	if (!r)
		r = how ? sbx_git_blob_convert(w->odb, &e->id, how, fd)
		        : sbx_git_blob_write(w->odb, &e->id, fd);
	return r ? r : finish_file(w, e, fd);
}

static int load_filters(struct writer *w, const git_index_entry *e, git_filter_list **ret)
{
	git_filter_options opts = GIT_FILTER_OPTIONS_INIT;

	*ret = NULL;
	if (!w->f->spec->filtered)
		return 0;
	opts.flags = GIT_FILTER_ATTRIBUTES_FROM_COMMIT;
	if (git_oid_fromstr(&opts.attr_commit_id, w->f->spec->commit->commit) < 0)
		return -1;
	return git_filter_list_load_ext(ret, w->repo, NULL, e->path, GIT_FILTER_TO_WORKTREE, &opts);
}

/* Not the bytes alone: an identifier ($Id$) is the name of the blob. */
static int write_filtered(struct writer *w, git_index_entry *e, git_filter_list *filters)
{
	struct sbx_convert how;
	git_blob *blob = NULL;
	git_buf out = {0};
	int r;

	if (sbx_git_blob_is_large(w->odb, &e->id) && sbx_convert_probe(&how, filters, true, &e->id))
		return write_large(w, e, &how);
	r = git_blob_lookup(&blob, w->repo, &e->id);
	if (!r)
		r = git_filter_list_apply_to_blob(&out, filters, blob);
	r = r ? git_failure(w->f, e->path, r) : write_file(w, e, out.ptr, out.size);
	git_buf_dispose(&out);
	git_blob_free(blob);
	return r;
}

static int write_plain(struct writer *w, git_index_entry *e)
{
	git_odb_object *object = NULL;
	int r;

	if (sbx_git_blob_is_large(w->odb, &e->id))
		return write_large(w, e, NULL);
	r = git_odb_read(&object, w->odb, &e->id);
	r = r ? git_failure(w->f, e->path, r)
	      : write_file(w, e, git_odb_object_data(object), git_odb_object_size(object));
	git_odb_object_free(object);
	return r;
}

static int write_entry(struct writer *w, git_index_entry *e)
{
	git_filter_list *filters;
	int r = load_filters(w, e, &filters);

	if (r)
		return git_failure(w->f, e->path, r);
	r = filters ? write_filtered(w, e, filters) : write_plain(w, e);
	git_filter_list_free(filters);
	return r ? fail(w->f, r, e->path, NULL) : 0;
}

static bool is_file(const git_index_entry *e)
{
	return e->mode != GIT_FILEMODE_LINK && e->mode != GIT_FILEMODE_COMMIT;
}

static bool is_over(struct filling *f)
{
	if (f->spec->cancelled && atomic_load(f->spec->cancelled))
		fail(f, -EINTR, "", "cancelled");
	return atomic_load(&f->failed) != 0;
}

static void write_files(struct writer *w)
{
	struct filling *f = w->f;

	while (!is_over(f)) {
		size_t at = atomic_fetch_add(&f->next, CHUNK);

		if (at >= f->n)
			return;
		for (size_t i = at; i < at + CHUNK && i < f->n; i++)
			if (is_file(entry_at(f, i)) && write_entry(w, entry_at(f, i)) < 0)
				return;
	}
}

static void *writer_main(void *data)
{
	struct writer w = {.f = data, .dir = -1};
	int r = sbx_git_open(w.f->spec->commit->source, &w.repo);

	if (!r)
		r = git_repository_odb(&w.odb, w.repo);
	if (r)
		git_failure(w.f, w.f->spec->commit->source, r);
	else
		write_files(&w);
	sbx_cleanup_fd(&w.dir);
	git_odb_free(w.odb);
	git_repository_free(w.repo);
	return NULL;
}

static size_t thread_count(const struct filling *f)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = cpus < 1 ? 1 : cpus > SBX_THREADS_MAX ? SBX_THREADS_MAX : (size_t)cpus;

	return f->n < n * CHUNK ? 1 : n;
}

/* --- links, and all together
 * ---------------------------------------------------------------------------------- */

static int make_link(struct filling *f, git_odb *odb, git_index_entry *e)
{
	git_odb_object *object = NULL;
	_cleanup_free_ char *target = NULL;
	struct stat st;
	int r;

	r = git_odb_read(&object, odb, &e->id);
	if (r)
		return git_failure(f, e->path, r);
	target = strndup(git_odb_object_data(object), git_odb_object_size(object));
	git_odb_object_free(object);
	if (!target)
		return -ENOMEM;
	if (symlinkat(target, f->spec->tree, e->path) < 0)
		return -errno;
	r = own_at(f, e->path);
	if (r)
		return r;
	if (utimensat(f->spec->tree, e->path, f->times, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fstatat(f->spec->tree, e->path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	record(f, e, &st);
	return 0;
}

static int make_links(struct filling *f, git_repository *repo)
{
	_cleanup_git_(odb) git_odb *odb = NULL;
	int r = git_repository_odb(&odb, repo);

	if (r)
		return git_failure(f, f->spec->commit->source, r);
	for (size_t i = 0; i < f->n && !r; i++) {
		git_index_entry *e = entry_at(f, i);

		if (e->mode != GIT_FILEMODE_LINK)
			continue;
		r = make_link(f, odb, e);
		if (r)
			fail(f, r, e->path, NULL);
	}
	return r;
}

static int fill_tree(struct filling *f, git_repository *repo)
{
	int r = make_all_dirs(f);

	if (r)
		return r;
	sbx_threads_run(thread_count(f), writer_main, f);
	r = atomic_load(&f->failed);
	return r ? r : make_links(f, repo);
}

static bool has_attributes(struct filling *f)
{
	for (size_t i = 0; i < f->n; i++) {
		const char *path = entry_at(f, i)->path, *slash = strrchr(path, '/');

		if (strcmp(slash ? slash + 1 : path, ".gitattributes") == 0)
			return true;
	}
	return false;
}

int sbx_base_fill(struct sbx_fill *spec, git_repository *repo, git_tree *root,
                  struct sbx_base_facts *facts, struct sbx_error *err)
{
	_cleanup_free_ char *path = sbx_format("/proc/self/fd/%d/index", spec->dir);
	_cleanup_git_(index) git_index *index = NULL;
	struct filling f = {.spec = spec, .chown = spec->commit->owner.uid != geteuid()};
	struct timespec now;
	int r;

	if (!path)
		return sbx_no_memory(err);
	r = git_index_open(&index, path);
	if (!r)
		r = sbx_git_read_tree(index, root);
	if (r)
		return sbx_git_fail(err, r, "cannot check out %s", spec->commit->commit);
	f.index = index;
	f.n = git_index_entrycount(index);
	spec->filtered = spec->filtered || has_attributes(&f);
	clock_gettime(CLOCK_REALTIME, &now);
	f.times[0] = f.times[1] = (struct timespec){.tv_sec = now.tv_sec - PAST_S};
	r = fill_tree(&f, repo);
	if (r) {
		if (err)
			*err = f.err;
		return r;
	}
	r = git_index_write(index);
	if (r)
		return sbx_git_fail(err, r, "cannot write the index");
	*facts = (struct sbx_base_facts){.files = f.n, .bytes = atomic_load(&f.bytes)};
	return 0;
}

static bool is_unchanged(int tree, const git_index_entry *e)
{
	struct stat st;

	return fstatat(tree, e->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       e->ino == (uint32_t)st.st_ino &&
	       (e->mode == GIT_FILEMODE_COMMIT ||
	        (e->file_size == (uint32_t)st.st_size && e->ctime.seconds == st.st_ctim.tv_sec &&
	         e->ctime.nanoseconds == st.st_ctim.tv_nsec));
}

int sbx_base_verify(int dir, atomic_bool *cancelled)
{
	_cleanup_free_ char *path = sbx_format("/proc/self/fd/%d/index", dir);
	_cleanup_fd_ int tree = sbx_dir_open(dir, "tree");
	_cleanup_git_(index) git_index *index = NULL;

	if (!path || tree < 0 || git_index_open(&index, path) < 0)
		return -EIO;
	for (size_t i = 0; i < git_index_entrycount(index); i++) {
		if (atomic_load(cancelled))
			return -EINTR;
		if (!is_unchanged(tree, git_index_get_byindex(index, i)))
			return -EIO;
	}
	return 0;
}
