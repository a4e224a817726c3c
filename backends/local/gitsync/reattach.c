/*
 * `git worktree unlock`, `prune` and `remove`, or rm, take the entry of a sandbox out of the source
 * while it lives. It is made again from what both sides last agreed on: the branch where it stood,
 * if that went too, HEAD, and the index from inside.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/store.h"
#include "backends/git/worktree.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"

#define LINK_MAX   8192
#define AGREED_MAX ((size_t)64 * 1024 * 1024)

char *sbx_git_private_link(const char *room, const char *id)
{
	return sbx_format("gitdir: %s/%s/repo\n", room, id);
}

/* Where the sandbox's branch is to stand. */
static int find_tip(struct sbx_sync *y, const char *branch, git_oid *ret)
{
	_cleanup_free_ char *text = NULL;
	struct sbx_refs agreed = {0};
	const git_oid *tip;
	int r;

	if (git_reference_name_to_id(ret, y->source, branch) == 0)
		return 0;
	if (sbx_file_read(y->meta, "refs", AGREED_MAX, &text) == 0 &&
	    sbx_refs_parse(text, &agreed) == 0)
		sbx_refs_sort(&agreed);
	tip = sbx_refs_find(&agreed, branch);
	r = tip ? 0 : git_oid_fromstr(ret, y->p->wt.base);
	if (tip)
		*ret = *tip;
	sbx_refs_release(&agreed);
	return r ? -EINVAL : 1;
}

static int make_branch(struct sbx_sync *y, const char *branch, const git_oid *tip)
{
	struct sbx_git_owner owner;
	git_reference *ref = NULL;
	int r = sbx_git_store_mark_led(y->source, branch + strlen("refs/heads/"), tip);

	if (r)
		return sbx_fail(y->err, -r, "cannot note whose %s is: %s", branch, strerror(-r));
	owner = sbx_git_owner_begin(y->p->wt.common);
	r = git_reference_create(&ref, y->source, branch, tip, 0, "sandboxfs: made again");
	sbx_git_owner_end(&owner);
	git_reference_free(ref);
	return r ? sbx_git_fail(y->err, r, "cannot make %s again", branch) : 0;
}

/* As it was, but for a branch that is gone or checked out elsewhere by now; malloc'd. */
static char *find_head(struct sbx_sync *y, const git_oid *tip)
{
	_cleanup_free_ char *text = NULL, *where = NULL;
	_cleanup_free_ char *own = sbx_format("ref: refs/heads/%s", y->p->wt.branch);
	const char *head = own, *branch;
	char hex[GIT_OID_HEXSZ + 1];
	git_oid oid;

	if (!own)
		return NULL;
	if (sbx_file_read(y->meta, "head", SBX_GIT_HEAD_MAX, &text) == 0) {
		text[strcspn(text, "\n")] = '\0';
		branch = sbx_sync_branch_of(text);
		if (sbx_sync_commit_of(text, &oid))
			return strdup(text);
		if (branch && git_reference_name_to_id(&oid, y->source, branch) == 0)
			head = text;
	}
	if (sbx_git_checked_out(y->p->wt.common, head + strlen("ref: refs/heads/"), &where) ||
	    !where)
		return strdup(head);
	if (head != own && git_reference_name_to_id(&oid, y->source, head + strlen("ref: ")) == 0)
		tip = &oid;
	return strdup(git_oid_tostr(hex, sizeof(hex), tip));
}

/* Where commands have an index it is brought over; else all is as committed. A crash must not leave
 * index.lock. */
static int make_index(struct sbx_sync *y, const char *entry, const git_oid *tip)
{
	_cleanup_free_ char *path = sbx_format("%s/index.new", entry);
	_cleanup_free_ char *index_path = sbx_format("%s/index", entry);
	_cleanup_git_(object) git_object *commit = NULL;
	_cleanup_git_(index) git_index *index = NULL;
	_cleanup_git_(tree) git_tree *tree = NULL;
	int r;

	if (!path || !index_path)
		return sbx_no_memory(y->err);
	if (faccessat(y->repo, "index", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = git_object_lookup(&commit, y->source, tip, GIT_OBJECT_COMMIT);
	if (!r)
		r = git_commit_tree(&tree, (git_commit *)commit);
	if (!r)
		r = git_index_open(&index, path);
	if (!r)
		r = sbx_git_read_tree(index, tree);
	if (!r)
		r = git_index_write(index);
	if (!r && rename(path, index_path) < 0)
		return sbx_fail(y->err, errno, "cannot write the index of the worktree: %s",
		                strerror(errno));
	return r ? sbx_git_fail(y->err, r, "cannot write the index of the worktree") : 0;
}

static int write_head(const char *entry, const char *head)
{
	_cleanup_free_ char *line = sbx_format("%s\n", head);
	_cleanup_fd_ int dir = sbx_dir_open(AT_FDCWD, entry);

	if (dir < 0)
		return dir;
	return line ? sbx_file_replace(dir, "HEAD", "HEAD.new", line) : -ENOMEM;
}

/* HEAD comes last: without it there is no entry yet, and what is there is begun anew. */
static int make_entry(struct sbx_sync *y, const char *entry, const git_oid *tip)
{
	struct sbx_git_worktree wt = y->p->wt;
	_cleanup_free_ char *head = find_head(y, tip);
	struct sbx_git_owner owner;
	int r = sbx_tree_remove(AT_FDCWD, entry, y->err);

	if (r)
		return r;
	wt.workdir = y->p->workdir;
	if (!head)
		return sbx_no_memory(y->err);
	owner = sbx_git_owner_begin(wt.common);
	r = sbx_git_write_entry(&wt, NULL);
	sbx_git_owner_end(&owner);
	if (!r) {
		r = make_index(y, entry, tip);
		if (r)
			return r;
		owner = sbx_git_owner_begin(wt.common);
		r = write_head(entry, head);
		sbx_git_owner_end(&owner);
	}
	return r ? sbx_fail(y->err, -r, "cannot register the worktree in %s: %s", wt.common,
	                    strerror(-r))
	         : 0;
}

int sbx_sync_reattach(struct sbx_sync *y, const char *entry)
{
	_cleanup_free_ char *branch = sbx_format("refs/heads/%s", y->p->wt.branch);
	_cleanup_fd_ int lock = sbx_git_lock(y->p->wt.common);
	git_oid tip;
	int r;

	if (!branch || lock < 0)
		return sbx_fail(y->err, branch ? -lock : ENOMEM, "cannot open %s: %s",
		                y->p->wt.common, strerror(branch ? -lock : ENOMEM));
	r = find_tip(y, branch, &tip);
	if (r < 0)
		return sbx_fail(y->err, -r, "cannot tell where %s stood", branch);
	if (r > 0)
		r = make_branch(y, branch, &tip);
	if (!r)
		r = make_entry(y, entry, &tip);
	return r;
}

void sbx_sync_mend_link(struct sbx_sync *y)
{
	const struct sbx_git_private *p = y->p;
	_cleanup_fd_ int tree = open(p->workdir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_free_ char *theirs = sbx_git_host_link(&p->wt);
	_cleanup_free_ char *own = sbx_git_private_link(p->room, p->id), *text = NULL;
	size_t len;

	/* Anything else is a command's own doing. */
	if (tree < 0 || !theirs || !own ||
	    sbx_beneath_read(tree, ".git", LINK_MAX, &text, &len, NULL) ||
	    strcmp(text, theirs) != 0)
		return;
	sbx_locked_replace(tree, ".git", own, strlen(own), NULL);
	y->moved = true;
}

int sbx_sync_lock_entry(struct sbx_sync *y)
{
	struct sbx_git_owner owner;
	int r;

	if (faccessat(y->entry, "locked", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	owner = sbx_git_owner_begin(y->p->wt.common);
	r = sbx_file_create(y->entry, "locked", "sandboxfs\n");
	sbx_git_owner_end(&owner);
	return r && r != -EEXIST
	               ? sbx_fail(y->err, -r, "cannot lock the worktree's entry: %s", strerror(-r))
	               : 0;
}
