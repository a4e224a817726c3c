/*
 * Snapshots and marks. A snapshot writes objects first, then the ref that keeps them, then the
 * index, then moves the branch: broken off anywhere, everything is as it was or staged, as after
 * `git add -A`.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/index_tree.h"
#include "backends/git/spare.h"
#include "backends/git/store.h"
#include "backends/local/history/aside.h"
#include "backends/local/history/git_state.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/store.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define TRIES 5

/* ---- a commit on the branch ---- */

/* Nothing that git has begun in the worktree is cut short by a commit of ours. */
static int check_idle(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	static const char *const begun[][2] = {{"MERGE_HEAD", "merge"},
	                                       {"CHERRY_PICK_HEAD", "cherry-pick"},
	                                       {"REVERT_HEAD", "revert"}};
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, err);

	if (dir < 0)
		return dir;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(begun); i++)
		if (faccessat(dir, begun[i][0], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return sbx_fail(err, EBUSY, "a %s is unfinished: finish or abort it first",
			                begun[i][1]);
	return 0;
}

static int keep(const struct sbx_snapshot_context *context, git_repository *repo,
                const git_oid *oid, int spare, struct sbx_error *err)
{
	_cleanup_free_ char *name = sbx_local_history_ref(context->rec, oid);
	int r;

	sbx_git_durable_spare(spare);
	r = sbx_local_history_make_ref(context, repo, name, oid, "sandboxfs: snapshot",
	                               "the snapshot", err);
	sbx_git_durable_spare(-1);
	return r;
}

static int move(const struct sbx_snapshot_context *context,
                const struct sbx_local_history_head *head, const git_oid *oid, int spare,
                struct sbx_error *err)
{
	int r;

	sbx_git_durable_spare(spare);
	r = sbx_local_history_move(context, head->ref, head->born ? &head->oid : NULL, oid,
	                           "sandboxfs: snapshot", err);
	sbx_git_durable_spare(-1);
	return r;
}

static void unkeep(const struct sbx_snapshot_context *context, git_repository *repo,
                   const git_oid *oid)
{
	_cleanup_free_ char *name = sbx_local_history_ref(context->rec, oid);
	struct sbx_git_owner owner = sbx_git_owner_begin(context->rec->common);

	if (name)
		git_reference_remove(repo, name);
	sbx_git_owner_end(&owner);
}

static int make_commit(const struct sbx_snapshot_context *context, git_repository *repo,
                       const struct sbx_snapshot_options *options, const git_oid *tree,
                       const struct sbx_local_history_head *head, git_oid *ret,
                       struct sbx_error *err)
{
	struct sbx_git_owner owner = {0};
	int r;

	if (context->rec->common)
		owner = sbx_git_owner_begin(context->rec->common);
	r = sbx_local_history_commit(repo, tree, head->born ? &head->oid : NULL, options->message,
	                             options->author, ret, err);
	sbx_git_owner_end(&owner);
	return r;
}

/* A commit that no ref leads to yet. */
struct made {
	struct sbx_local_history_head head; /* what it was made upon */
	git_oid oid;
	bool listed;
	int kept, branch; /* the files of its refs; -1: none was made before */
};

static void made_release(struct made *m)
{
	sbx_local_history_head_release(&m->head);
	sbx_cleanup_fd(&m->kept);
	sbx_cleanup_fd(&m->branch);
}

/* Only what is on no branch stays on the list without a ref. */
static void unlist(const struct made *m, int dir)
{
	if (m->listed)
		sbx_local_history_drop_line(dir, &m->oid);
}

/* The caller awaits what is written. */
static int make(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                const struct sbx_snapshot_options *options, const git_oid *tree, struct made *ret,
                struct sbx_error *err)
{
	char hex[GIT_OID_HEXSZ + 1];
	int r = sbx_local_history_read_head(context, repo, &ret->head, err);

	if (!r)
		r = make_commit(context, repo, options, tree, &ret->head, &ret->oid, err);
	if (r)
		return r;
	if (context->rec->common) {
		git_oid_tostr(hex, sizeof(hex), &ret->oid);
		ret->kept = sbx_git_spare_make(context->rec->common, hex);
		ret->branch = sbx_git_spare_make(context->rec->common, hex);
	}
	ret->listed = true;
	r = sbx_local_history_add_line(dir, &ret->oid, sbx_real_ms());
	return r ? sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r)) : 0;
}

/* R, or what has become of all that was written since sbx_git_durable_begin(). */
static int await(int r, struct sbx_error *err)
{
	const int written = sbx_git_durable_end();

	return r || !written ? r
	                     : sbx_fail(err, -written, "cannot write the snapshot: %s",
	                                strerror(-written));
}

/*
 * It is on the list; then it is kept, and on the branch: what a crash leaves of it can be found and
 * taken back with the sandbox. -EAGAIN: the branch has moved meanwhile.
 */
static int publish(const struct sbx_snapshot_context *context, git_repository *repo,
                   const struct made *m, struct sbx_error *err)
{
	_cleanup_fd_ int lock = context->rec->common ? sbx_git_lock(context->rec->common) : -1;
	int r = 0;

	if (context->rec->common && lock < 0)
		return sbx_fail(err, -lock, "cannot lock the repository: %s", strerror(-lock));
	if (context->rec->common)
		r = keep(context, repo, &m->oid, m->kept, err);
	if (!r)
		r = move(context, &m->head, &m->oid, m->branch, err);
	if (context->rec->common && (r || m->head.born))
		unkeep(context, repo, r ? &m->oid : &m->head.oid);
	return r;
}

/*
 * Of a branch that the host has checked out, and not the sandbox's, what is committed on it is the
 * host's; but for ignored files, of which nobody may have thought.
 */
static int set_apart(const struct sbx_snapshot_context *context,
                     struct sbx_local_history_repo *repo, bool ignored, struct sbx_error *err)
{
	_cleanup_(sbx_local_history_head_release) struct sbx_local_history_head head = {0};
	int r = sbx_local_history_read_head(context, repo->git, &head, err), g;

	if (r)
		return r;
	g = repo->stored ? 0 : sbx_git_store_use(repo->git);
	if (g)
		return sbx_git_fail(err, g, "the store of the source cannot be used");
	repo->stored = true;
	r = sbx_git_store_mark(repo->git, context->rec->branch, true);
	if (!r && head.ref && ignored)
		r = sbx_git_store_mark(repo->git, head.ref + strlen("refs/heads/"), true);
	return r ? sbx_fail(err, -r, "cannot note whose the snapshot is: %s", strerror(-r)) : 0;
}

/* Has the branch of the commit marked where what is on it is not to be seen by others. */
static int prepare(const struct sbx_snapshot_context *context,
                   const struct sbx_snapshot_options *options, struct sbx_local_history_repo *repo,
                   struct sbx_error *err)
{
	_cleanup_fd_ int lock = context->rec->common ? sbx_git_lock(context->rec->common) : -1;

	if (context->rec->common && lock < 0)
		return sbx_fail(err, -lock, "cannot lock the repository: %s", strerror(-lock));
	return sbx_local_history_is_apart(context, options->ignored)
	               ? set_apart(context, repo, options->ignored, err)
	               : 0;
}

/*
 * The tree, and the first commit of it. All of it is awaited together, because each alone would
 * cost a turn of the disk.
 */
static int record(const struct sbx_snapshot_context *context,
                  const struct sbx_snapshot_options *options, int dir,
                  struct sbx_local_history_repo *repo, struct sbx_captured *captured,
                  struct made *made, struct sbx_error *err)
{
	const struct sbx_local_history_options how = {.keep = true,
	                                              .ignored = options->ignored,
	                                              .awaited = true,
	                                              .cancelled = options->cancelled,
	                                              .repo = repo};
	bool locked = false;
	int r;

	sbx_git_durable_begin();
	r = sbx_local_history_capture(context, &how, captured, err);
	if (!r && captured->nested.n)
		r = sbx_repos_copy(context, &captured->nested, options->cancelled, err);
	if (!r)
		r = prepare(context, options, repo, err);
	if (!r)
		r = make(context, repo->git, dir, options, &captured->tree, made, err);
	/* What takes time is done while the disk works. */
	if (!r) {
		r = sbx_local_history_take_index(context, &captured->index, &captured->begun, err);
		locked = !r;
	}
	r = await(r, err);
	if (!r) {
		sbx_local_history_keep_seen(context, captured);
		return sbx_local_history_put_index(context, err);
	}
	if (locked)
		sbx_local_history_unlock_index(context);
	return r;
}

/* Upon what the branch has moved to. */
static int make_again(const struct sbx_snapshot_context *context, git_repository *repo, int dir,
                      const struct sbx_snapshot_options *options, const git_oid *tree,
                      struct made *made, struct sbx_error *err)
{
	unlist(made, dir);
	made_release(made);
	*made = (struct made){.kept = -1, .branch = -1};
	sbx_git_durable_begin();
	return await(make(context, repo, dir, options, tree, made, err), err);
}

static void repo_release(struct sbx_local_history_repo *repo)
{
	git_repository_free(repo->git);
}

static int snapshot(const struct sbx_snapshot_context *context,
                    const struct sbx_snapshot_options *options, git_oid *ret, struct sbx_error *err)
{
	_cleanup_(sbx_captured_release) struct sbx_captured captured = {0};
	_cleanup_(made_release) struct made made = {.kept = -1, .branch = -1};
	_cleanup_(repo_release) struct sbx_local_history_repo repo = {0};
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	int r = dir < 0 ? dir : check_idle(context, err);

	if (!r)
		r = record(context, options, dir, &repo, &captured, &made, err);
	if (!r)
		r = publish(context, repo.git, &made, err);
	for (int i = 1; i < TRIES && r == -EAGAIN; i++) {
		r = make_again(context, repo.git, dir, options, &captured.tree, &made, err);
		if (!r)
			r = publish(context, repo.git, &made, err);
	}
	if (r)
		unlist(&made, dir);
	*ret = made.oid;
	if (!r && captured.nested.n && (r = sbx_repos_name(context, ret)))
		r = sbx_fail(err, -r, "the repositories in the tree cannot be kept: %s",
		             strerror(-r));
	return r;
}

/* ---- marks ---- */

/* The tree of what is staged, as far as INDEX has one. CAPTURED is near to it. */
static int index_tree(git_repository *all, const struct sbx_index *index,
                      const struct sbx_captured *captured, git_oid *ret)
{
	_cleanup_git_(odb) git_odb *odb = NULL;

	for (size_t i = 0; i < index->n; i++)
		/* A merge that is not done, or a file that is only announced. */
		if (index->at[i].flags & 0x3000 || index->at[i].extended & 0x2000)
			return -EBUSY;
	int r = git_repository_odb(&odb, all);

	if (!r)
		r = sbx_index_write_tree(index, odb, NULL, &captured->index, &captured->tree, ret);
	return r;
}

/* The lines of a mark's message, which hold the git state beside the tree. */
static char *describe(const struct sbx_snapshot_context *context, git_repository *all,
                      const struct sbx_captured *captured, const struct sbx_index *staged,
                      const struct sbx_local_history_head *head,
                      const struct sbx_local_history_options *options)
{
	_cleanup_free_ char *branch = sbx_local_history_branch(context);
	char tip[GIT_OID_HEXSZ + 1] = "-", index[GIT_OID_HEXSZ + 1] = "-",
	                         exact[GIT_OID_HEXSZ + 1] = "-";
	git_oid oid;

	if (branch && git_reference_name_to_id(&oid, all, branch) == 0)
		git_oid_tostr(tip, sizeof(tip), &oid);
	if (index_tree(all, staged, captured, &oid) == 0)
		git_oid_tostr(index, sizeof(index), &oid);
	if (captured->has_exact)
		git_oid_tostr(exact, sizeof(exact), &captured->exact);
	return sbx_format("branch %s\nindex %s\nexact %s\naside %s\nclean %d\nhead %s\n", tip,
	                  index, exact, options->aside ? options->aside : "-", options->clean,
	                  head->text);
}

void sbx_local_history_marked_release(struct sbx_local_history_marked *marked)
{
	free(marked->head);
	free(marked->aside);
	*marked = (struct sbx_local_history_marked){0};
}

static int read_line(const char *line, size_t len, struct sbx_local_history_marked *ret)
{
	const char *value = memchr(line, ' ', len);
	size_t key = value ? (size_t)(value - line) : 0, n = value ? len - key - 1 : 0;
	const struct {
		const char *key;
		git_oid *oid;
		bool *has;
	} ids[] = {{"branch", &ret->branch, &ret->has_branch},
	           {"index", &ret->index, &ret->has_index},
	           {"exact", &ret->exact, &ret->has_exact}};

	for (size_t i = 0; value && i < SBX_ARRAY_SIZE(ids); i++)
		if (key == strlen(ids[i].key) && memcmp(line, ids[i].key, key) == 0)
			*ids[i].has = n == GIT_OID_HEXSZ &&
			              git_oid_fromstrn(ids[i].oid, value + 1, n) == 0;
	if (key == 5 && memcmp(line, "clean", key) == 0)
		ret->clean = n == 1 && value[1] == '1';
	if (key == 5 && memcmp(line, "aside", key) == 0 && !(n == 1 && value[1] == '-') &&
	    !(ret->aside = strndup(value + 1, n)))
		return -ENOMEM;
	if (key == 4 && memcmp(line, "head", key) == 0 && !(ret->head = strndup(value + 1, n)))
		return -ENOMEM;
	return 0;
}

int sbx_local_history_read_mark(git_repository *all, const git_oid *oid,
                                struct sbx_local_history_marked *ret, struct sbx_error *err)
{
	git_commit *object = NULL;
	int r = git_commit_lookup(&object, all, oid);
	const char *at;

	*ret = (struct sbx_local_history_marked){0};
	if (r)
		return sbx_git_fail(err, r, "a mark cannot be read");
	for (at = git_commit_message(object); !r && *at && !ret->head;) {
		size_t len = strcspn(at, "\n");

		r = read_line(at, len, ret);
		at += len + (at[len] == '\n');
	}
	git_commit_free(object);
	if (!r && ret->head)
		return 0;
	sbx_local_history_marked_release(ret);
	return r ? sbx_no_memory(err) : sbx_fail(err, EINVAL, "a mark cannot be read");
}

static int put_mark(const struct sbx_snapshot_context *context, const char *name,
                    const struct sbx_captured *captured, const struct sbx_index *staged,
                    const struct sbx_local_history_options *options, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *all = NULL;
	_cleanup_(sbx_local_history_head_release) struct sbx_local_history_head head = {0};
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	_cleanup_fd_ int marks = dir < 0 ? -1 : sbx_dir_make(dir, "marks", 0700);
	_cleanup_free_ char *text = NULL;
	git_oid oid;
	int r = dir < 0 ? dir : sbx_local_history_open(context, true, &all, err);

	if (!r)
		r = sbx_local_history_read_head(context, all, &head, err);
	if (r)
		return r;
	text = describe(context, all, captured, staged, &head, options);
	if (!text || marks < 0)
		return sbx_fail(err, text ? -marks : ENOMEM, "cannot keep a mark");
	r = sbx_local_history_commit(all, &captured->tree, head.born ? &head.oid : NULL, text, NULL,
	                             &oid, err);
	if (!r && (r = sbx_local_history_write_id(marks, name, &oid)))
		sbx_fail(err, -r, "cannot keep a mark: %s", strerror(-r));
	return r;
}

int sbx_local_history_mark(const struct sbx_snapshot_context *context, const char *name,
                           const struct sbx_local_history_options *options,
                           struct sbx_captured *ret, struct sbx_error *err)
{
	_cleanup_(sbx_local_history_index_release) struct sbx_local_history_index known = {0};
	struct sbx_local_history_options how = *options;
	int r;

	how.known = &known;
	how.exact = true;
	r = sbx_local_history_capture(context, &how, ret, err);
	if (r)
		return r;
	r = put_mark(context, name, ret, &known.index, options, err);
	if (r)
		sbx_captured_release(ret);
	return r;
}

/* ---- the calls ---- */

int sbx_local_history_snapshot(const struct sbx_snapshot_context *context,
                               const struct sbx_snapshot_options *options, char id[SBX_REV_MAX],
                               struct sbx_error *err)
{
	const struct sbx_local_history_options how = {.ignored = options->ignored,
	                                              .cancelled = options->cancelled};
	struct sbx_captured captured = {0};
	git_oid oid;
	int r;

	if (options->mark) {
		snprintf(id, SBX_REV_MAX, "mark:%s", options->mark);
		r = sbx_local_history_mark(context, options->mark, &how, &captured, err);
		sbx_captured_release(&captured);
		/* Of the mark that it replaces. */
		if (!r)
			sbx_local_history_prune(context, false);
		return r;
	}
	r = snapshot(context, options, &oid, err);
	if (!r)
		git_oid_tostr(id, SBX_REV_MAX, &oid);
	return r;
}

/* A snapshot is of one second: the line is written after the commit, which may be in the next one.
 */
static int64_t in_second(int64_t ms, git_time_t second)
{
	return ms / 1000 == second ? ms : second * 1000 + 999;
}

int sbx_local_history_list(const struct sbx_snapshot_context *context,
                           int (*fn)(const struct sbx_snapshot *s, void *data), void *data,
                           struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	_cleanup_free_ char *text = NULL;
	char hex[GIT_OID_HEXSZ + 1], *at;
	struct sbx_snapshot s = {.id = hex};
	git_oid oid;
	int r = dir < 0 ? dir : sbx_local_history_lines(dir, &text);

	if (r)
		return sbx_fail(err, -r, "cannot read the list of snapshots: %s", strerror(-r));
	if (*text)
		r = sbx_local_history_open(context, false, &repo, err);
	for (at = text; !r && sbx_local_history_line(&at, &oid, &s.time_ms);) {
		git_commit *object = NULL;

		git_oid_tostr(hex, sizeof(hex), &oid);
		if (git_commit_lookup(&object, repo, &oid))
			continue;
		s.message = git_commit_summary(object);
		s.time_ms = in_second(s.time_ms, git_commit_time(object));
		r = fn(&s, data);
		git_commit_free(object);
	}
	return r;
}
