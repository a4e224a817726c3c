/*
 * The way back. What is there is marked first; then a journal says what the tree is going to be,
 * until it is: what is broken off after that is completed when the sandbox is taken up again. Files
 * come first, then the index, the branch, HEAD: in between git tells the truth about the files.
 *
 * The mark becomes "restore" when all is done: till then that is what was before the last restore,
 * which may be the very one that is wanted. What cannot be done is taken back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/local/history/aside.h"
#include "backends/local/history/git_state.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/keep.h"
#include "backends/local/history/store.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/worktreeinclude/include.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define JOURNAL     "restoring"
#define JOURNAL_MAX 128
#define MARK        "restore"
#define NEW_MARK    "restoring"
#define NAMES       100

/* The state that a restore leads to. */
struct goal {
	git_oid commit;
	bool mark;  /* the commit is one */
	bool clean; /* what is not recorded goes too */
};

static int write_journal(int dir, const struct goal *goal, struct sbx_error *err)
{
	char hex[GIT_OID_HEXSZ + 1];
	_cleanup_free_ char *text =
	        sbx_format("%s %s %s\n", git_oid_tostr(hex, sizeof(hex), &goal->commit),
	                   goal->mark ? "mark" : "commit", goal->clean ? "clean" : "keep");
	int r = text ? sbx_file_replace(dir, JOURNAL, JOURNAL ".new", text) : -ENOMEM;

	return r ? sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r)) : 0;
}

static bool read_journal(int dir, struct goal *ret)
{
	_cleanup_free_ char *text = NULL;
	char hex[GIT_OID_HEXSZ + 1], kind[8], how[8];

	if (sbx_file_read(dir, JOURNAL, JOURNAL_MAX, &text) ||
	    sscanf(text, "%40s %7s %7s", hex, kind, how) != 3 || git_oid_fromstr(&ret->commit, hex))
		return false;
	ret->mark = strcmp(kind, "mark") == 0;
	ret->clean = strcmp(how, "clean") == 0;
	return true;
}

/* ---- git state ---- */

/* Ends what git had begun (a merge, a rebase), as `git reset --hard` and a checkout do. */
static void end_begun(int dir)
{
	static const char *const files[] = {"MERGE_HEAD",       "MERGE_MSG",   "MERGE_MODE",
	                                    "CHERRY_PICK_HEAD", "REVERT_HEAD", "SQUASH_MSG",
	                                    "MERGE_RR",         "AUTO_MERGE"};
	static const char *const dirs[] = {"rebase-merge", "rebase-apply", "sequencer"};

	for (size_t i = 0; dir >= 0 && i < SBX_ARRAY_SIZE(files); i++)
		unlinkat(dir, files[i], 0);
	for (size_t i = 0; dir >= 0 && i < SBX_ARRAY_SIZE(dirs); i++)
		sbx_tree_remove(dir, dirs[i], NULL);
}

static void end_all_begun(const struct sbx_snapshot_context *context)
{
	_cleanup_fd_ int entry = sbx_local_history_index_dir(context, NULL);
	_cleanup_fd_ int repo = sbx_local_repo(context->b, context->rec, context->disk);

	end_begun(entry);
	end_begun(repo);
}

static int set_branch(const struct sbx_snapshot_context *context, const git_oid *oid,
                      struct sbx_error *err)
{
	_cleanup_free_ char *branch = sbx_local_history_branch(context);
	_cleanup_fd_ int lock = context->rec->common ? sbx_git_lock(context->rec->common) : -1;

	if (!branch)
		return sbx_no_memory(err);
	if (context->rec->common && lock < 0)
		return sbx_fail(err, -lock, "cannot lock the repository: %s", strerror(-lock));
	return sbx_local_history_move(context, branch, NULL, oid, "sandboxfs: restored", err);
}

static int set_head(const struct sbx_snapshot_context *context, git_repository *repo,
                    const char *text, struct sbx_error *err)
{
	_cleanup_(sbx_local_history_head_release) struct sbx_local_history_head head = {0};

	if (sbx_local_history_read_head(context, repo, &head, NULL) == 0 &&
	    strcmp(head.text, text) == 0)
		return 0;
	return sbx_local_history_set_head(context, text, err);
}

static int to_commit(const struct sbx_snapshot_context *context, git_repository *repo,
                     const git_oid *commit, const struct sbx_captured *now, struct sbx_error *err)
{
	_cleanup_free_ char *branch = sbx_local_history_branch(context);
	_cleanup_free_ char *head = branch ? sbx_format("ref: %s", branch) : NULL;
	int r = sbx_local_history_write_index(context, &now->index, &now->begun, err);

	if (!r)
		r = set_branch(context, commit, err);
	if (!r)
		r = head ? set_head(context, repo, head, err) : sbx_no_memory(err);
	return r;
}

/* The tree that was staged then; where that could not be told, the one that was committed. */
static int staged_then(git_repository *repo, const git_oid *mark,
                       const struct sbx_local_history_marked *marked, git_oid *ret,
                       struct sbx_error *err)
{
	git_commit *commit = NULL;
	git_oid parent;
	int r;

	if (marked->has_index) {
		*ret = marked->index;
		return 0;
	}
	r = git_commit_lookup(&commit, repo, mark);
	if (!r && git_commit_parentcount(commit) == 0)
		r = GIT_ENOTFOUND;
	if (!r)
		parent = *git_commit_parent_id(commit, 0);
	git_commit_free(commit);
	return r ? sbx_git_fail(err, r, "a mark cannot be read")
	         : sbx_local_history_tree_of(repo, &parent, ret, err);
}

static int to_mark(const struct sbx_snapshot_context *context, git_repository *repo,
                   const git_oid *mark, const struct sbx_local_history_marked *marked,
                   const git_oid *tree, struct sbx_captured *now, struct sbx_error *err)
{
	git_oid staged;
	int r = staged_then(repo, mark, marked, &staged, err);

	if (!r)
		r = sbx_local_history_give_staged(context, repo, &staged,
		                                  marked->has_branch ? &marked->branch : NULL, err);
	if (!r)
		r = sbx_local_history_stage(repo, &now->index, tree, &staged, err);
	if (!r)
		r = sbx_local_history_write_index(context, &now->index, &now->begun, err);
	if (!r && marked->has_branch)
		r = set_branch(context, &marked->branch, err);
	return r ? r : set_head(context, repo, marked->head, err);
}

/* ---- the tree, and then git ---- */

/* The properties of the files to be, besides those that git records. */
struct means {
	struct sbx_local_history_marked marked; /* of a goal that is a mark */
	struct sbx_local_history_exacts exact, was;
	struct sbx_aside from, aside;
	struct sbx_aside repos; /* of a goal that is a snapshot */
	struct sbx_local_history_apply how;
};

static void means_release(struct means *m)
{
	sbx_local_history_marked_release(&m->marked);
	tree_exact_release(&m->exact);
	tree_exact_release(&m->was);
	sbx_aside_close(&m->from);
	sbx_aside_close(&m->aside);
	sbx_aside_close(&m->repos);
}

/*
 * Where what goes is kept: the mark that was put before says it. When that mark is the goal itself,
 * what goes is what a restore that failed has made.
 */
static int open_aside(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                      const struct goal *goal, struct means *m, struct sbx_error *err)
{
	_cleanup_(sbx_local_history_marked_release) struct sbx_local_history_marked before = {0};
	_cleanup_fd_ int marks = sbx_dir_open(dir, "marks");
	char fresh[SBX_ASIDE_NAME_MAX];
	git_oid oid;
	int r = 0;

	if (marks >= 0 && sbx_local_history_read_id(marks, NEW_MARK, &oid) == 0 &&
	    !git_oid_equal(&oid, &goal->commit))
		r = sbx_local_history_read_mark(repo, &oid, &before, err);
	sbx_aside_name(fresh);
	m->how.aside = &m->aside;
	return r ? r : sbx_aside_open(context, before.aside ? before.aside : fresh, &m->aside, err);
}

static int open_means(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                      const struct goal *goal, const struct sbx_captured *now, struct means *m,
                      struct sbx_error *err)
{
	int r = open_aside(context, repo, dir, goal, m, err);

	if (!r && !goal->mark)
		sbx_repos_find(context, &goal->commit, &m->repos);
	if (r || !goal->mark)
		return r;
	r = sbx_local_history_read_mark(repo, &goal->commit, &m->marked, err);
	if (!r && m->marked.has_exact) {
		r = tree_exact_read(repo, &m->marked.exact, &m->exact, err);
		m->how.exact = &m->exact;
	}
	if (!r && now->has_exact)
		r = tree_exact_read(repo, &now->exact, &m->was, err);
	m->how.was = &m->was;
	if (!r && m->marked.aside && sbx_aside_find(context, m->marked.aside, &m->from) == 0)
		m->how.from = &m->from;
	return r;
}

static int change_files(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                        const struct goal *goal, const git_oid *tree, struct means *m,
                        struct sbx_captured *now, struct sbx_error *err)
{
	/* What one that was broken off has left: each file was linked before it came there. */
	int r = sbx_local_history_temp_remove(context->root, err);

	if (!r)
		r = open_means(context, repo, dir, goal, now, m, err);
	if (!r && (goal->clean || m->marked.clean))
		r = sbx_local_history_remove(context, &now->left_out, &m->aside, err);
	if (!r && m->how.from)
		r = sbx_aside_take_made(&m->from, &m->aside, &now->index);
	if (!r)
		r = sbx_local_history_apply(context, repo, now, tree, &m->how, err);
	if (!r && m->how.from)
		r = sbx_aside_give_back(&m->from, &m->aside);
	if (!r && m->repos.files >= 0)
		r = sbx_repos_give_back(&m->repos, &m->aside);
	if (!r && !goal->mark)
		r = sbx_local_history_give_lower(context, repo, tree, &m->repos, &m->aside);
	if (!r)
		r = sbx_aside_part(&m->aside);
	sbx_local_history_temp_remove(context->root, NULL);
	return r;
}

static int reach(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                 const struct goal *goal, struct sbx_captured *now, struct sbx_error *err)
{
	_cleanup_(means_release) struct means m = {
	        .from = sbx_no_aside, .aside = sbx_no_aside, .repos = sbx_no_aside};
	struct sbx_error own = SBX_ERROR_INIT;
	git_oid tree;
	int r = sbx_local_history_tree_of(repo, &goal->commit, &tree, err);

	if (r)
		return r;
	r = change_files(context, repo, dir, goal, &tree, &m, now, &own);
	if (!r && goal->clean && !goal->mark)
		r = sbx_local_include_again(context->b, context->rec, context->root, &own);
	if (r) {
		if (err)
			*err = own;
		return r;
	}
	end_all_begun(context);
	return goal->mark ? to_mark(context, repo, &goal->commit, &m.marked, &tree, now, err)
	                  : to_commit(context, repo, &goal->commit, now, err);
}

/* ---- whole, or not at all ---- */

/* Removes what was kept for marks that are no more. */
static void drop_kept(const struct sbx_snapshot_context *context, int marks)
{
	_cleanup_(sbx_local_history_marked_release) struct sbx_local_history_marked marked = {0};
	_cleanup_git_(repository) git_repository *repo = NULL;
	git_oid oid;
	int found = sbx_local_history_read_id(marks, MARK, &oid);

	if ((found && found != -ENOENT) || sbx_local_history_open(context, true, &repo, NULL) ||
	    (!found && sbx_local_history_read_mark(repo, &oid, &marked, NULL)))
		return;
	sbx_local_history_keep_only(context, repo, found ? NULL : &oid);
	sbx_aside_drop_others(context, marked.aside);
}

/* The mark of what was before is that of the last restore, or (DONE false) is not needed. */
static void finish_mark(const struct sbx_snapshot_context *context, int dir, bool done)
{
	_cleanup_fd_ int marks = sbx_dir_open(dir, "marks");

	if (marks < 0)
		return;
	if (done)
		renameat(marks, NEW_MARK, marks, MARK);
	else
		unlinkat(marks, NEW_MARK, 0);
	unlinkat(dir, JOURNAL, 0);
	drop_kept(context, marks);
}

static int complete(const struct sbx_snapshot_context *context, int dir, const struct goal *goal,
                    struct sbx_error *err)
{
	_cleanup_(sbx_captured_release) struct sbx_captured now = {0};
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = sbx_local_history_open(context, true, &repo, err);

	if (!r)
		r = sbx_local_history_capture(
		        context, &(struct sbx_local_history_options){.exact = true}, &now, err);
	return r ? r : reach(context, repo, dir, goal, &now, err);
}

/* Reads the id of the new mark. False: there is none. */
static bool read_before(int dir, struct goal *ret)
{
	_cleanup_fd_ int marks = sbx_dir_open(dir, "marks");

	*ret = (struct goal){.mark = true};
	return marks >= 0 && sbx_local_history_read_id(marks, NEW_MARK, &ret->commit) == 0;
}

/* Where that fails too the mark is what there is. */
static void go_back(const struct sbx_snapshot_context *context, int dir)
{
	struct goal before;
	bool back = read_before(dir, &before) && write_journal(dir, &before, NULL) == 0 &&
	            complete(context, dir, &before, NULL) == 0;

	finish_mark(context, dir, !back);
}

static int restore_marked(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                          const struct goal *goal, struct sbx_captured *now, struct sbx_error *err)
{
	int r = write_journal(dir, goal, err);

	if (r) {
		finish_mark(context, dir, false);
		return r;
	}
	r = reach(context, repo, dir, goal, now, err);
	if (r)
		go_back(context, dir);
	else
		finish_mark(context, dir, true);
	return r;
}

/* A file that the user called as we call ours is called otherwise from now on. */
static int spare_name(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	_cleanup_fd_ int root = sbx_beneath_open(context->root, ".", O_RDONLY | O_DIRECTORY);
	char name[sizeof(SBX_CAPTURE_TEMP) + 8];

	if (root < 0)
		return sbx_fail(err, -root, "cannot open the sandbox: %s", strerror(-root));
	for (int i = 1; i < NAMES; i++) {
		snprintf(name, sizeof(name), SBX_CAPTURE_TEMP ".%d", i);
		if (renameat2(root, SBX_CAPTURE_TEMP, root, name, RENAME_NOREPLACE) == 0 ||
		    errno == ENOENT)
			return 0;
		if (errno != EEXIST)
			break;
	}
	return sbx_fail(err, EEXIST, "remove %s: the restore needs that name", SBX_CAPTURE_TEMP);
}

static int was_clean(git_repository *repo, const git_oid *mark, bool *ret, struct sbx_error *err)
{
	_cleanup_(sbx_local_history_marked_release) struct sbx_local_history_marked marked = {0};
	int r = sbx_local_history_read_mark(repo, mark, &marked, err);

	*ret = marked.clean;
	return r;
}

static int keep_mark(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                     struct sbx_error *err)
{
	struct goal before;

	return read_before(dir, &before)
	               ? sbx_local_history_keep(context, repo, &before.commit, err)
	               : sbx_fail(err, EIO, "a mark that was put cannot be read");
}

static int restore(const struct sbx_snapshot_context *context, const struct goal *goal,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_(sbx_captured_release) struct sbx_captured now = {0};
	_cleanup_git_(repository) git_repository *repo = NULL;
	char aside[SBX_ASIDE_NAME_MAX];
	struct sbx_local_history_options how = {
	        .cancelled = cancelled, .aside = aside, .clean = goal->clean};
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	int r = dir < 0 ? dir : sbx_local_history_open(context, true, &repo, err);

	sbx_aside_name(aside);
	if (!r)
		r = spare_name(context, err);
	if (!r && goal->mark)
		r = was_clean(repo, &goal->commit, &how.clean, err);
	if (!r)
		r = sbx_local_history_mark(context, NEW_MARK, &how, &now, err);
	if (r)
		return r;
	r = keep_mark(context, repo, dir, err);
	if (!r)
		r = sbx_local_history_lock_index(context, err);
	if (r) {
		finish_mark(context, dir, false);
		return r;
	}
	r = restore_marked(context, repo, dir, goal, &now, err);
	sbx_local_history_unlock_index(context);
	return r;
}

/* Whether GOAL is what was before: a restore that failed was being taken back. */
static bool goes_back(int dir, const struct goal *goal)
{
	struct goal before;

	return read_before(dir, &before) && git_oid_equal(&before.commit, &goal->commit);
}

/*
 * A tree in the middle of a restore is in no mark: it is neither what it was nor what it is to
 * be.
 */
void sbx_local_history_recover(const struct sbx_snapshot_context *context)
{
	_cleanup_fd_ int own = sbx_dir_open(context->b->state.git, context->rec->id);
	_cleanup_fd_ int dir = own < 0 ? -1 : sbx_dir_open(own, "history");
	struct goal goal;

	if (dir < 0)
		return;
	sbx_local_history_break_locks(context);
	if (!read_journal(dir, &goal)) {
		finish_mark(context, dir, false);
		return;
	}
	/* Tried once: what is changed from here on is not to be lost by another attempt. */
	if (goes_back(dir, &goal))
		finish_mark(context, dir, complete(context, dir, &goal, NULL) != 0);
	else if (complete(context, dir, &goal, NULL) == 0)
		finish_mark(context, dir, true);
	else
		go_back(context, dir);
}

int sbx_local_history_restore(const struct sbx_snapshot_context *context, const char *rev,
                              atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	struct goal goal = {.clean = strcmp(rev, "base") == 0};
	struct sbx_local_history_rev found;
	int r = sbx_local_history_open(context, true, &repo, err);

	if (!r)
		r = sbx_local_history_resolve(context, repo, rev, &found, err);
	if (r)
		return r;
	goal.commit = found.commit;
	goal.mark = found.mark;
	return restore(context, &goal, cancelled, err);
}
