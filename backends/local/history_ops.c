/*
 * The table of a sandbox's history, and what its members have in common. Snapshots are looked into
 * by one repository handle for a sandbox, opened when it is first needed: libgit2's objects may be
 * read by many.
 */
#include "backends/local/history_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/blob.h"
#include "backends/git/git_impl.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/store.h"
#include "backends/local/local_impl.h"
#include "backends/local/syncer.h"
#include "sandboxfs/cleanup.h"

/* The sandbox's; not to be freed. NULL: it cannot be opened. */
static git_repository *reader(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	git_repository *repo;

	pthread_mutex_lock(&s->lock);
	if (!s->past && sbx_local_history_open(&context, true, &s->past, err))
		s->past = NULL;
	repo = s->past;
	pthread_mutex_unlock(&s->lock);
	return repo;
}

static int describe(git_odb *odb, const git_oid *oid, git_filemode_t mode, struct sbx_object *ret)
{
	git_object_t type;
	size_t size = 0;
	int r;

	*ret = (struct sbx_object){.mode = S_IFDIR | 0755};
	if (mode == GIT_FILEMODE_COMMIT)
		return 0;
	git_oid_tostr(ret->id, sizeof(ret->id), oid);
	if (mode == GIT_FILEMODE_TREE)
		return 0;
	r = git_odb_read_header(&size, &type, odb, oid);
	if (r)
		return sbx_git_object_code(r);
	ret->size = size;
	ret->mode = mode == GIT_FILEMODE_LINK              ? S_IFLNK | 0777
	            : mode == GIT_FILEMODE_BLOB_EXECUTABLE ? S_IFREG | 0755
	                                                   : S_IFREG | 0644;
	return 0;
}

/* Recording it takes as long as reading all of it, which is not for who only looks something up. */
static int check_base(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	_cleanup_fd_ int dir = -1;
	git_oid oid;

	if (context->rec->common)
		return 0;
	dir = sbx_local_history_dir(context, err);
	if (dir < 0)
		return dir;
	return sbx_local_history_read_id(dir, "base", &oid)
	               ? sbx_fail(err, EBUSY,
	                          "what it began as is recorded with the first snapshot or diff")
	               : 0;
}

static int history_tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                        struct sbx_error *err)
{
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	struct sbx_error unasked = SBX_ERROR_INIT;
	git_repository *repo;
	struct sbx_local_history_rev found;
	int r;

	if (!err)
		err = &unasked;
	repo = reader(sb, err);
	r = strcmp(rev, "base") == 0 ? check_base(&context, err) : 0;
	if (r)
		return r;
	r = repo ? sbx_local_history_resolve(&context, repo, rev, &found, err) : -err->code;
	if (r)
		return r;
	*ret = (struct sbx_object){.mode = S_IFDIR | 0755};
	git_oid_tostr(ret->id, sizeof(ret->id), &found.tree);
	return 0;
}

static int open_tree(struct sbx_sandbox *sb, const char *id, git_tree **tree, git_odb **odb)
{
	struct sbx_error err = SBX_ERROR_INIT;
	git_repository *repo = reader(sb, &err);
	git_oid oid;
	int r;

	if (!repo)
		return -err.code;
	if (git_oid_fromstr(&oid, id))
		return -ENOENT;
	r = git_tree_lookup(tree, repo, &oid);
	if (!r)
		r = git_repository_odb(odb, repo);
	return r ? sbx_git_object_code(r) : 0;
}

static int history_entry(struct sbx_sandbox *sb, const char *dir, const char *name,
                         struct sbx_object *ret)
{
	_cleanup_git_(tree) git_tree *tree = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	const git_tree_entry *entry;
	int r = open_tree(sb, dir, &tree, &odb);

	if (r)
		return r;
	entry = git_tree_entry_byname(tree, name);
	return entry ? describe(odb, git_tree_entry_id(entry), git_tree_entry_filemode(entry), ret)
	             : -ENOENT;
}

static int history_entries(struct sbx_sandbox *sb, const char *dir,
                           int (*fn)(const char *name, const struct sbx_object *o, void *data),
                           void *data)
{
	_cleanup_git_(tree) git_tree *tree = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	int r = open_tree(sb, dir, &tree, &odb);

	for (size_t i = 0; !r && i < git_tree_entrycount(tree); i++) {
		const git_tree_entry *entry = git_tree_entry_byindex(tree, i);
		struct sbx_object object;

		r = describe(odb, git_tree_entry_id(entry), git_tree_entry_filemode(entry),
		             &object);
		if (!r)
			r = fn(git_tree_entry_name(entry), &object, data);
	}
	return r;
}

static int history_content(struct sbx_sandbox *sb, const char *id, int fd)
{
	struct sbx_error err = SBX_ERROR_INIT;
	git_repository *repo = reader(sb, &err);
	_cleanup_git_(odb) git_odb *odb = NULL;
	git_oid oid;
	int r;

	if (!repo)
		return -err.code;
	if (git_oid_fromstr(&oid, id))
		return -ENOENT;
	r = git_repository_odb(&odb, repo);
	return r ? sbx_git_object_code(r) : sbx_git_blob_write(odb, &oid, fd);
}

#define LOCK_PAUSE_NS 10000000
#define LOCK_TRIES    100

struct sbx_snapshot_context sbx_local_snapshot_context(struct sbx_sandbox *sb)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_snapshot_context context = {.b = s->backend, .rec = &s->rec};

	pthread_mutex_lock(&s->lock);
	context.root = s->root;
	context.disk = s->disk;
	pthread_mutex_unlock(&s->lock);
	return context;
}

/*
 * While a command's git has the index inside, what a snapshot stages could not get there, and the
 * next commit inside would take it back.
 */
static int check_index(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};

	for (int i = 0; sbx_git_private_locked(s->git); i++) {
		if (i == LOCK_TRIES)
			return sbx_fail(
			        err, EBUSY,
			        "git is at work inside the sandbox (there is an index.lock)");
		nanosleep(&pause, NULL);
	}
	return 0;
}

/*
 * Brings what commands committed and staged over to the host's side. STRICT: EEXIST when both sides
 * moved apart, EBUSY when a command's git has had the index for a second; else neither matters.
 */
static int complete(struct sbx_sandbox *sb, bool strict, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_error own = SBX_ERROR_INIT;
	int r;

	if (!s->git || !sbx_git_private_made(s->git))
		return 0;
	r = sbx_git_private_moved_inside(s->git) ? sbx_sandbox_sync(sb, &own) : 0;
	if (!strict)
		return 0;
	if (r != -EEXIST)
		return check_index(s, err);
	if (err)
		*err = own;
	return r;
}

static int take_snapshot(struct sbx_sandbox *sb, const struct sbx_snapshot_options *options,
                         char id[SBX_REV_MAX], struct sbx_error *err)
{
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	int r = complete(sb, options->mark == NULL, err);

	if (!r)
		r = sbx_local_history_snapshot(&context, options, id, err);
	if (!r && !options->mark)
		sbx_local_sync_store(sbx_local_downcast(sb)->backend);
	return r;
}

static int list(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
                void *data, struct sbx_error *err)
{
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);

	return sbx_local_history_list(&context, fn, data, err);
}

static int restore(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	int r = complete(sb, false, err);

	if (!r)
		r = sbx_local_history_restore(&context, rev, cancelled, err);
	/* What is in memory until it is saved would be lost in a crash with what it replaced. */
	return r ? r : sbx_sandbox_barrier(sb, true, err);
}

static int diff(struct sbx_sandbox *sb, const struct sbx_diff_options *options, int fd,
                struct sbx_error *err)
{
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	int r = complete(sb, false, err);

	return r ? r : sbx_local_history_diff(&context, options, fd, err);
}

static int forget(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	_cleanup_fd_ int dir = sbx_local_history_dir(&context, err);
	_cleanup_fd_ int marks = dir < 0 ? -1 : sbx_dir_open(dir, "marks");

	if (dir < 0)
		return dir;
	if (marks >= 0 && unlinkat(marks, name, 0) < 0 && errno != ENOENT)
		return sbx_fail(err, errno, "cannot forget a mark: %s", strerror(errno));
	sbx_local_history_prune(&context, false);
	return 0;
}

const struct sbx_history_impl sbx_local_history = {
        .snapshot = take_snapshot,
        .forget = forget,
        .list = list,
        .restore = restore,
        .diff = diff,
        .tree = history_tree,
        .entry = history_entry,
        .entries = history_entries,
        .content = history_content,
};
