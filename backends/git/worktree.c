/*
 * A linked worktree, made by hand rather than by git_worktree_add: that one checks every other
 * worktree by walking its path (which may lie in our own mount), and cannot be cancelled. The files
 * are those of gitrepository-layout(5). The entry is locked before anything else is in it, so no
 * concurrent `git worktree prune` takes it for an abandoned one.
 */
#include "backends/git/worktree.h"

#include <errno.h>
#include <fcntl.h>
#include <git2/sys/filter.h>
#include <git2/sys/repository.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/library.h"
#include "backends/git/spare.h"
#include "backends/git/store.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"

#define GITDIR_MAX 4096

/*
 * libgit2 has no way to stop a checkout, but asks every filter about every file before writing it.
 * This one never applies, and fails when the checkout of the asking thread is to end.
 */
static _Thread_local atomic_bool *cancelled_here;

static int poll_cancelled(git_filter *self, void **payload, const git_filter_source *src,
                          const char **attr_values)
{
	(void)self;
	(void)payload;
	(void)src;
	(void)attr_values;
	return cancelled_here && atomic_load(cancelled_here) ? GIT_EUSER : GIT_PASSTHROUGH;
}

static git_filter cancel_filter;

int sbx_git_init(void)
{
	if (sbx_git_library_begin() < 0)
		return -ENOMEM;
	if (git_filter_lookup("sandboxfs-cancel"))
		return 0;
	git_filter_init(&cancel_filter, GIT_FILTER_VERSION);
	cancel_filter.check = poll_cancelled;
	if (git_filter_register("sandboxfs-cancel", &cancel_filter, 0) < 0 ||
	    sbx_git_encoding_init() < 0) {
		git_libgit2_shutdown();
		return -ENOMEM;
	}
	return 0;
}

void sbx_git_shutdown(void)
{
	git_libgit2_shutdown();
}

static int write_file(int dir, const char *name, char *text)
{
	_cleanup_free_ char *owned = text;

	return owned ? sbx_file_create(dir, name, owned) : -ENOMEM;
}

/* Another daemon may remove the empty "worktrees" just now, so a vanished one is made again. */
static int make_entry(const char *common, const char *name)
{
	_cleanup_fd_ int dir = open(common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return -errno;
	for (int tries = 0; tries < 10; tries++) {
		_cleanup_fd_ int worktrees = sbx_dir_make(dir, "worktrees", 0755);

		if (worktrees < 0 && worktrees != -ENOENT)
			return worktrees;
		if (worktrees >= 0 && mkdirat(worktrees, name, 0755) == 0)
			return sbx_dir_open(worktrees, name);
		if (worktrees >= 0 && errno != ENOENT)
			return -errno;
	}
	return -ENOENT;
}

int sbx_git_write_entry(const struct sbx_git_worktree *wt, const char *head)
{
	_cleanup_fd_ int entry = make_entry(wt->common, wt->worktree);
	int r;

	if (entry < 0)
		return entry;
	r = sbx_file_create(entry, "locked", SBX_GIT_LOCKED);
	if (!r)
		r = write_file(entry, "gitdir", sbx_format("%s/.git\n", wt->workdir));
	if (!r)
		r = sbx_file_create(entry, "commondir", "../..\n");
	if (!r && head)
		r = write_file(entry, "HEAD", sbx_format("%s\n", head));
	return r;
}

static void mend_file(int entry, const char *name, char *text)
{
	_cleanup_free_ char *owned = text;

	if (owned && sbx_file_is_blank(entry, name))
		sbx_file_replace(entry, name, "sandboxfs.mend", owned);
}

static bool is_index(int entry)
{
	_cleanup_fd_ int fd = openat(entry, "index", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char magic[4];

	/* Without one git takes nothing to be staged, which is no damage of ours. */
	return fd < 0 || (read(fd, magic, sizeof(magic)) == sizeof(magic) &&
	                  memcmp(magic, "DIRC", sizeof(magic)) == 0);
}

/* As all is where the branch stands: what was staged was not synced. */
static int make_index(const struct sbx_git_worktree *wt, const char *path)
{
	_cleanup_free_ char *branch = sbx_format("refs/heads/%s", wt->branch);
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(object) git_object *commit = NULL;
	_cleanup_git_(index) git_index *index = NULL;
	_cleanup_git_(tree) git_tree *tree = NULL;
	git_oid tip;
	int r = branch ? sbx_git_open(wt->common, &repo) : GIT_ERROR;

	if (!r && git_reference_name_to_id(&tip, repo, branch))
		r = git_oid_fromstr(&tip, wt->base);
	if (!r)
		r = git_object_lookup(&commit, repo, &tip, GIT_OBJECT_COMMIT);
	if (!r)
		r = git_commit_tree(&tree, (git_commit *)commit);
	if (!r)
		r = git_index_open(&index, path);
	if (!r)
		r = sbx_git_read_tree(index, tree);
	return r ? r : git_index_write(index);
}

static void mend_index(const struct sbx_git_worktree *wt, int entry)
{
	_cleanup_free_ char *path =
	        sbx_format("%s/worktrees/%s/sandboxfs.mend", wt->common, wt->worktree);

	if (!path || is_index(entry))
		return;
	unlinkat(entry, "sandboxfs.mend", 0);
	if (make_index(wt, path) == 0)
		renameat(entry, "sandboxfs.mend", entry, "index");
	unlinkat(entry, "sandboxfs.mend", 0);
}

static int open_entry(const struct sbx_git_worktree *wt)
{
	_cleanup_free_ char *path = sbx_format("%s/worktrees/%s", wt->common, wt->worktree);

	return path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;
}

bool sbx_git_entry_is_blank(const struct sbx_git_worktree *wt)
{
	_cleanup_fd_ int entry = open_entry(wt);

	return entry >= 0 && sbx_file_is_blank(entry, "HEAD") &&
	       (!is_index(entry) || faccessat(entry, "index", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
}

void sbx_git_mend_entry(const struct sbx_git_worktree *wt)
{
	_cleanup_fd_ int entry = open_entry(wt);
	struct sbx_git_owner owner;

	if (entry < 0)
		return;
	owner = sbx_git_owner_begin(wt->common);
	mend_file(entry, "gitdir", sbx_format("%s/.git\n", wt->workdir));
	mend_file(entry, "commondir", strdup("../..\n"));
	mend_file(entry, "HEAD", sbx_format("ref: refs/heads/%s\n", wt->branch));
	mend_index(wt, entry);
	sbx_git_owner_end(&owner);
}

char *sbx_git_host_link(const struct sbx_git_worktree *wt)
{
	return sbx_format("gitdir: %s/worktrees/%s\n", wt->common, wt->worktree);
}

static int make_branch(const struct sbx_git_worktree *wt, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *own = NULL;
	_cleanup_git_(reference) git_reference *ref = NULL;
	_cleanup_free_ char *name = sbx_format("refs/heads/%s", wt->branch);
	const char *start = wt->start ? wt->start : wt->base;
	git_repository *repo;
	git_oid oid;
	int r, noted = 0;

	if (!name)
		return -ENOMEM;
	r = wt->repo ? 0 : sbx_git_open(wt->common, &own);
	repo = wt->repo ? wt->repo : own;
	if (!r)
		r = git_oid_fromstr(&oid, start);
	/* What it begins as may be another sandbox's alone, and is this one's then. */
	if (!r && (noted = sbx_git_store_mark_led(repo, wt->branch, &oid)))
		return sbx_fail(err, -noted, "cannot create branch %s: %s", wt->branch,
		                strerror(-noted));
	if (!r) {
		struct sbx_git_owner owner = sbx_git_owner_begin(wt->common);
		_cleanup_fd_ int spare = wt->spares ? sbx_git_spares_take(wt->spares, start) : -1;

		sbx_git_durable_spare(spare);
		r = git_reference_create(&ref, repo, name, &oid, 0, "sandboxfs: created");
		sbx_git_durable_spare(-1);
		sbx_git_owner_end(&owner);
	}
	if (r)
		r = sbx_git_fail(err, r, "cannot create branch %s", wt->branch);
	/* A branch "a" leaves no room for "a/b", nor the other way round. */
	if (r == -ENOTDIR || r == -EISDIR)
		r = sbx_fail(err, EEXIST, "branch %s collides with the name of another",
		             wt->branch);
	return r;
}

int sbx_git_attach(const struct sbx_git_worktree *wt, int tree, struct sbx_error *err)
{
	_cleanup_free_ char *head = sbx_format("ref: refs/heads/%s", wt->branch);
	struct sbx_git_owner owner = sbx_git_owner_begin(wt->common);
	int r = head ? sbx_git_write_entry(wt, head) : -ENOMEM;

	sbx_git_owner_end(&owner);
	if (!r)
		r = write_file(tree, ".git", wt->link ? strdup(wt->link) : sbx_git_host_link(wt));
	if (r)
		return sbx_fail(err, -r, "cannot register the worktree in %s: %s", wt->common,
		                strerror(-r));
	return wt->branch_created ? make_branch(wt, err) : 0;
}

/* The source's handle, seen as if it were the worktree's: opening the worktree itself would have
 * libgit2 check the ownership of it all over again. */
static int open_as_worktree(const char *source, const struct sbx_git_worktree *wt,
                            git_repository **ret, git_index **index)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_free_ char *path = sbx_format("%s/worktrees/%s/index", wt->common, wt->worktree);
	int r;

	if (!path)
		return GIT_ERROR;
	r = sbx_git_open(source, &repo);
	if (!r)
		r = git_repository_set_workdir(repo, wt->workdir, 0);
	if (!r)
		r = git_index_open(index, path);
	if (!r)
		r = git_repository_set_index(repo, *index);
	if (!r)
		r = git_index_set_caps(*index, GIT_INDEX_CAPABILITY_FROM_OWNER);
	if (!r)
		*ret = sbx_steal_ptr(&repo);
	return r;
}

static int checkout(const char *source, const struct sbx_git_worktree *wt)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(index) git_index *index = NULL;
	_cleanup_git_(object) git_object *commit = NULL;
	git_checkout_options opts = GIT_CHECKOUT_OPTIONS_INIT;
	git_oid oid;
	int r = open_as_worktree(source, wt, &repo, &index);

	opts.checkout_strategy =
	        GIT_CHECKOUT_FORCE | GIT_CHECKOUT_RECREATE_MISSING | GIT_CHECKOUT_NO_REFRESH;
	opts.dir_mode = 0755;
	if (!r)
		r = git_oid_fromstr(&oid, wt->base);
	if (!r)
		r = git_object_lookup(&commit, repo, &oid, GIT_OBJECT_COMMIT);
	if (!r)
		r = git_checkout_tree(repo, commit, &opts);
	return r;
}

int sbx_git_checkout(const char *source, const struct sbx_git_worktree *wt, atomic_bool *cancelled,
                     struct sbx_error *err)
{
	int r;

	cancelled_here = cancelled;
	r = checkout(source, wt);
	cancelled_here = NULL;
	if (r && cancelled && atomic_load(cancelled))
		return sbx_fail(err, EINTR, "cancelled");
	return r ? sbx_git_fail(err, r, "cannot check out %s", wt->base) : 0;
}

static int remove_entry(const struct sbx_git_worktree *wt, struct sbx_error *err)
{
	_cleanup_fd_ int dir = open(wt->common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int worktrees = -1;
	int r;

	if (dir < 0)
		return sbx_fail(err, errno, "cannot open %s: %s", wt->common, strerror(errno));
	worktrees = sbx_dir_open(dir, "worktrees");
	if (worktrees == -ENOENT)
		return 0;
	if (worktrees < 0)
		return sbx_fail(err, -worktrees, "cannot open %s/worktrees: %s", wt->common,
		                strerror(-worktrees));
	r = sbx_tree_remove(worktrees, wt->worktree, err);
	/* As git does; fails while there are others. */
	unlinkat(dir, "worktrees", AT_REMOVEDIR);
	return r;
}

/*
 * Whether REF stays when a sandbox goes. Refs that a sandbox has besides its branch go with it,
 * and a stash, with the commit it was made on, when it is popped.
 */
static bool is_lasting(const char *ref)
{
	return strncmp(ref, "refs/sandboxfs/", 15) != 0 && strcmp(ref, "refs/stash") != 0;
}

/* Hides commits that another ref has as well, because they do not count as the branch's own. */
static int hide_others(git_repository *repo, git_revwalk *walk, const char *own)
{
	_cleanup_git_(iterator) git_reference_iterator *it = NULL;
	int r = git_reference_iterator_new(&it, repo);

	while (!r) {
		_cleanup_git_(reference) git_reference *ref = NULL;
		_cleanup_git_(object) git_object *commit = NULL;

		r = git_reference_next(&ref, it);
		if (r || strcmp(git_reference_name(ref), own) == 0 ||
		    !is_lasting(git_reference_name(ref)))
			continue;
		if (git_reference_peel(&commit, ref, GIT_OBJECT_COMMIT) == 0)
			r = git_revwalk_hide(walk, git_object_id(commit));
	}
	return r == GIT_ITEROVER ? 0 : r;
}

/* Whether some commit is reachable from REF only. In doubt there is one. */
static bool has_own_commits(git_repository *repo, const git_reference *ref, const char *base)
{
	_cleanup_git_(revwalk) git_revwalk *walk = NULL;
	const git_oid *tip = git_reference_target(ref);
	git_oid oid;

	if (!tip)
		return true;
	if (git_oid_fromstr(&oid, base) == 0 && git_oid_equal(&oid, tip))
		return false;
	/* A walk would end, and leak memory, where the history was cut off. */
	if (git_repository_is_shallow(repo) == 1)
		return true;
	if (git_revwalk_new(&walk, repo) < 0 || git_revwalk_push(walk, tip) < 0 ||
	    hide_others(repo, walk, git_reference_name(ref)) < 0)
		return true;
	return git_revwalk_next(&oid, walk) != GIT_ITEROVER;
}

static int drop_branch(const struct sbx_git_worktree *wt, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(reference) git_reference *ref = NULL;
	_cleanup_free_ char *where = NULL;
	int r = sbx_git_checked_out(wt->common, wt->branch, &where);

	if (r)
		return sbx_fail(err, -r, "cannot read the worktrees of %s: %s", wt->common,
		                strerror(-r));
	if (where)
		return 0;
	r = sbx_git_open(wt->common, &repo);
	if (!r)
		r = git_branch_lookup(&ref, repo, wt->branch, GIT_BRANCH_LOCAL);
	if (!r && !has_own_commits(repo, ref, wt->base))
		r = git_reference_delete(ref);
	if (r && r != GIT_ENOTFOUND)
		return sbx_git_fail(err, r, "cannot remove branch %s", wt->branch);
	return 0;
}

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ENOTDIR;
}

int sbx_git_detach(const struct sbx_git_worktree *wt, struct sbx_error *err)
{
	_cleanup_fd_ int lock = sbx_git_lock(wt->common);
	int r;

	if (is_gone(lock))
		return 0;
	if (lock < 0)
		return sbx_fail(err, -lock, "cannot open %s: %s", wt->common, strerror(-lock));
	r = remove_entry(wt, err);
	if (!r && wt->branch_created)
		r = drop_branch(wt, err);
	return r;
}

struct sweep {
	int worktrees;
	const char *trees;
	bool (*known)(const char *worktree, void *data);
	void *data;
	struct sbx_strings orphans;
};

static int find_orphan(const char *name, unsigned char type, void *data)
{
	struct sweep *s = data;
	_cleanup_fd_ int dir = sbx_dir_open(s->worktrees, name);
	_cleanup_free_ char *gitdir = NULL;

	(void)type;
	if (dir < 0 || sbx_file_read(dir, "gitdir", GITDIR_MAX, &gitdir))
		return 0;
	if (!sbx_path_within(gitdir, s->trees) || s->known(name, s->data))
		return 0;
	return sbx_strings_add(&s->orphans, name);
}

int sbx_git_sweep(const char *common, const char *trees,
                  bool (*known)(const char *worktree, void *data), void *data,
                  struct sbx_error *err)
{
	_cleanup_fd_ int lock = sbx_git_lock(common);
	_cleanup_fd_ int worktrees = lock < 0 ? -1 : sbx_dir_open(lock, "worktrees");
	struct sweep s = {.worktrees = worktrees, .trees = trees, .known = known, .data = data};
	int r;

	if (lock < 0 || worktrees == -ENOENT)
		return 0;
	r = worktrees < 0 ? worktrees : sbx_dir_scan(worktrees, find_orphan, &s);
	if (r)
		sbx_fail(err, -r, "cannot read the worktrees of %s: %s", common, strerror(-r));
	for (size_t i = 0; i < s.orphans.n && !r; i++)
		r = sbx_tree_remove(worktrees, s.orphans.items[i], err);
	sbx_strings_release(&s.orphans);
	return r;
}
