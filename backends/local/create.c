/*
 * Making a sandbox. The record comes first and the word "ready" last; between the two everything
 * made can be found again from the record alone, by whoever has to take it back.
 *
 * A sandbox that begins as a snapshot or an entry of the trash is made from the same base, and
 * then only the files that differ are written. So the cost is that of the changes.
 */
#include "backends/local/create.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/bare_config.h"
#include "backends/git/git_impl.h"
#include "backends/git/worktree.h"
#include "backends/local/fork.h"
#include "backends/local/history/aside.h"
#include "backends/local/history/git_state.h"
#include "backends/local/history/history.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/store.h"
#include "backends/local/history_ops.h"
#include "backends/local/overlay/base_dir.h"
#include "backends/local/overlay/create_overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/private_git.h"
#include "backends/local/syncer.h"
#include "backends/local/teardown.h"
#include "backends/local/trash/save.h"
#include "backends/local/trash/trash.h"
#include "backends/local/worktreeinclude/include.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

SBX_GIT_CLEANUP(packbuilder, git_packbuilder, git_packbuilder_free)

/* --- the last step
 * ----------------------------------------------------------------------------------- */

/* Brings the commit, with all that it leads to, to where the sandbox's own objects are. */
static int bring(const struct sbx_snapshot_context *place, const struct sbx_local_origin *origin,
                 struct sbx_error *err)
{
	_cleanup_git_(packbuilder) git_packbuilder *pack = NULL;
	_cleanup_free_ char *path =
	        sbx_format("%s/git/%s/history/objects/pack", place->b->state.path, place->rec->id);
	_cleanup_fd_ int dir = sbx_local_history_dir(place, err);
	int r = path ? 0 : -1;

	if (dir < 0)
		return dir;
	if (!r)
		r = git_packbuilder_new(&pack, origin->objects);
	if (!r)
		r = git_packbuilder_insert_tree(pack, &origin->tree);
	if (!r && origin->has_staged)
		r = git_packbuilder_insert_tree(pack, &origin->staged);
	if (!r)
		r = git_packbuilder_write(pack, path, 0, NULL, NULL);
	return r ? sbx_git_fail(err, r, "what it is to be cannot be read") : 0;
}

static int stage(const struct sbx_snapshot_context *place, git_repository *repo,
                 const struct sbx_local_origin *origin, struct sbx_captured *now,
                 struct sbx_error *err)
{
	git_oid head = origin->staged, commit;
	int r = 0;

	if (!origin->has_staged) {
		r = git_oid_fromstr(&commit, origin->head);
		r = r ? sbx_git_fail(err, r, "commit %s", origin->head)
		      : sbx_local_history_tree_of(repo, &commit, &head, err);
	}
	if (!r)
		r = sbx_local_history_stage(repo, &now->index, &origin->tree, &head, err);
	return r ? r : sbx_local_history_write_index(place, &now->index, &now->begun, err);
}

static int give_repos(const struct sbx_snapshot_context *place, const struct sbx_aside *repos,
                      struct sbx_error *err)
{
	_cleanup_(sbx_aside_close) struct sbx_aside aside = sbx_no_aside;
	struct sbx_error own = SBX_ERROR_INIT;
	int r = sbx_aside_open(place, "fork", &aside, &own);

	if (!r)
		r = sbx_repos_give_back(repos, &aside);
	sbx_local_history_temp_remove(place->root, NULL);
	sbx_aside_drop_others(place, NULL);
	if (r && err)
		*err = own;
	return r;
}

static int grow_tree(struct sbx_sandbox *sb, const struct sbx_local_origin *origin,
                     atomic_bool *cancelled, struct sbx_error *err)
{
	const struct sbx_snapshot_context place = sbx_local_snapshot_context(sb);
	const struct sbx_local_history_options options = {.cancelled = cancelled};
	_cleanup_(sbx_captured_release) struct sbx_captured now = {0};
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = origin->objects ? bring(&place, origin, err) : 0;

	if (!r)
		r = sbx_local_history_open(&place, true, &repo, err);
	if (!r)
		r = sbx_local_history_capture(&place, &options, &now, err);
	if (!r)
		r = sbx_local_history_apply(&place, repo, &now, &origin->tree, NULL, err);
	if (!r && origin->repos && origin->repos->files >= 0)
		r = give_repos(&place, origin->repos, err);
	if (!r && *origin->head)
		r = stage(&place, repo, origin, &now, err);
	return r;
}

static const char *const kind_words[] = {
        [SBX_LOCAL_NONE] = "none", [SBX_LOCAL_DIR] = "dir", [SBX_LOCAL_GIT] = "git"};

/* Layers may be there only for the sake of sandboxes that were made when they were wanted. */
static bool makes_overlay(const struct sbx_local *b)
{
	return b->overlay && !b->flat;
}

static char *dup_or_null(const char *s)
{
	return s ? strdup(s) : NULL;
}

int sbx_local_begin(struct sbx_local *b, const struct sbx_create *req, struct sbx_record *rec,
                    struct sbx_error *err)
{
	int r = sbx_state_new_id(&b->state, req->name, &rec->id);

	if (r)
		return sbx_fail(err, -r, "cannot make an identity: %s", strerror(-r));
	rec->state = SBX_RECORD_CREATING;
	rec->created_ms = sbx_real_ms();
	rec->included = -1;
	rec->disk_mb = (int64_t)b->host->settings->limits.disk_mb;
	rec->name = strdup(req->name);
	rec->kind = strdup(kind_words[b->kind]);
	rec->source = dup_or_null(b->host->settings->source_abs);
	if (!rec->name || !rec->kind || (b->host->settings->source_abs && !rec->source))
		return sbx_no_memory(err);
	return 0;
}

int sbx_local_store(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	int r = sbx_record_store(b->state.meta, rec);

	return r ? sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r)) : 0;
}

int sbx_local_make_tree(struct sbx_local *b, const char *id, int *ret, struct sbx_error *err)
{
	int fd = -1;

	if (mkdirat(b->state.trees, id, 0755) == 0)
		fd = sbx_dir_open(b->state.trees, id);
	else
		fd = -errno;
	if (fd < 0)
		return sbx_fail(err, -fd, "cannot make the working tree: %s", strerror(-fd));
	*ret = fd;
	return 0;
}

/* PATTERN with every "{name}" replaced. The caller's; NULL without memory. */
static char *expand_branch(const char *pattern, const char *name)
{
	const char *mark = "{name}";
	char *text = strdup("");

	for (const char *at = pattern; text && at;) {
		const char *next = strstr(at, mark);
		_cleanup_free_ char *before = text;

		text = next ? sbx_format("%s%.*s%s", before, (int)(next - at), at, name)
		            : sbx_format("%s%s", before, at);
		at = next ? next + strlen(mark) : NULL;
	}
	return text;
}

char *sbx_local_branch_for(const struct sbx_local *b, const char *name)
{
	const char *pattern = b->host->settings->branch;

	return expand_branch(pattern ? pattern : "sandbox/{name}", name);
}

int sbx_local_check_pattern(const struct sbx_local *b, struct sbx_error *err)
{
	const char *pattern = b->host->settings->branch;
	_cleanup_free_ char *branch = pattern ? expand_branch(pattern, "name") : NULL;

	if (!pattern)
		return 0;
	if (!branch)
		return sbx_no_memory(err);
	return sbx_git_branch_ok(branch)
	               ? 0
	               : sbx_fail(err, EINVAL, "\"branch\": %s makes no valid branch name",
	                          pattern);
}

/* Names of entries appear in refs ("worktrees/NAME/HEAD"), where two dots are not allowed. */
char *sbx_local_entry_name(const char *id)
{
	char *name = strdup(id);

	for (char *c = name; c && *c; c++)
		if (c[0] == '.' && c[1] == '.')
			*c = '-';
	return name;
}

/* Who names a branch means that one; the mount's setting is for what it names itself. */
static enum sbx_git_exists exists_options(const struct sbx_local *b, const struct sbx_create *req)
{
	const char *word = req->branch_exists;

	if (!word && req->branch)
		return SBX_GIT_CONTINUE;
	if (!word)
		word = b->host->settings->branch_exists;
	if (word && strcmp(word, "continue") == 0)
		return SBX_GIT_CONTINUE;
	return word && strcmp(word, "refuse") == 0 ? SBX_GIT_REFUSE : SBX_GIT_NEW;
}

int sbx_local_plan_git(struct sbx_local *b, const struct sbx_create *req, const char *from,
                       struct sbx_record *rec, git_repository **opened, struct sbx_error *err)
{
	const struct sbx_settings *s = b->host->settings;
	_cleanup_free_ char *branch =
	        req->branch ? strdup(req->branch) : sbx_local_branch_for(b, req->name);
	struct sbx_git_plan_options options = {.source = s->source_abs,
	                                       .base = from ? from : req->origin.base,
	                                       .fallback = s->base,
	                                       .branch = branch,
	                                       .exists = exists_options(b, req),
	                                       .fixed = from != NULL,
	                                       .opened = opened};
	struct sbx_git_plan plan = {0};
	int r;

	if (!branch)
		return sbx_no_memory(err);
	r = sbx_git_plan(&options, b->common, &plan, err);
	if (r)
		return r;
	rec->branch = plan.branch;
	rec->base = plan.base;
	rec->branch_created = !plan.exists;
	rec->wanted = plan.told ? sbx_steal_ptr(&branch) : NULL;
	rec->common = strdup(b->common);
	rec->worktree = sbx_local_entry_name(rec->id);
	return rec->common && rec->worktree ? 0 : sbx_no_memory(err);
}

int sbx_local_plan_as(struct sbx_local *b, const struct sbx_create *req,
                      const struct sbx_local_origin *origin, struct sbx_record *rec,
                      git_repository **opened, struct sbx_error *err)
{
	struct sbx_create as = *req;
	int r = -EINVAL;

	if (!as.branch && origin->branch) {
		as.branch = origin->branch;
		r = sbx_local_plan_git(b, &as, origin->head, rec, opened, NULL);
		as.branch = NULL;
	}
	if (r)
		r = sbx_local_plan_git(b, &as, origin->head, rec, opened, err);
	if (r)
		return r;
	free(rec->base);
	rec->base = strdup(origin->base);
	return rec->base ? 0 : sbx_no_memory(err);
}

/* Under the lock of the repository, so that two creates cannot both find a branch free. */
static int attach_git(struct sbx_local *b, const struct sbx_create *req,
                      const struct sbx_local_origin *origin, struct sbx_record *rec,
                      struct sbx_base_commit **layer, struct sbx_error *err)
{
	_cleanup_fd_ int lock = sbx_git_lock(b->common), tree = -1;
	_cleanup_free_ char *workdir = NULL;
	_cleanup_free_ char *link = sbx_local_git_link(b, rec);
	_cleanup_git_(repository) git_repository *repo = NULL;
	struct sbx_git_worktree wt;
	int r;

	if (lock < 0)
		return sbx_fail(err, -lock, "cannot open %s: %s", b->common, strerror(-lock));
	r = origin && *origin->head ? sbx_local_plan_as(b, req, origin, rec, &repo, err)
	                            : sbx_local_plan_git(b, req, NULL, rec, &repo, err);
	if (!r && makes_overlay(b))
		r = sbx_local_overlay_plan(b, rec, repo, layer, err);
	if (!r)
		r = sbx_local_store(b, rec, err);
	if (!r)
		r = sbx_local_make_tree(b, rec->id, &tree, err);
	if (!r && makes_overlay(b)) {
		sbx_cleanup_fd(&tree);
		r = sbx_local_overlay_make(b, rec, &tree, err);
	}
	if (r)
		return r;
	if (!sbx_local_worktree(b, rec, &workdir, &wt))
		return sbx_no_memory(err);
	wt.link = link;
	wt.start = origin && *origin->head ? origin->head : NULL;
	wt.repo = repo;
	wt.spares = b->spares;
	return sbx_git_attach(&wt, tree, err);
}

static void free_layer(struct sbx_base_commit **layer)
{
	if (*layer)
		sbx_base_commit_free(&(*layer)->recipe);
}

static int fill_git(struct sbx_local *b, const struct sbx_create *req,
                    const struct sbx_local_origin *origin, struct sbx_record *rec,
                    struct sbx_error *err)
{
	_cleanup_(free_layer) struct sbx_base_commit *layer = NULL;
	_cleanup_free_ char *workdir = NULL;
	struct sbx_git_worktree wt;
	int r = attach_git(b, req, origin, rec, &layer, err);

	if (r)
		return rec->base ? sbx_git_explain_missing(b->common, rec->base, r, err) : r;
	if (!sbx_local_worktree(b, rec, &workdir, &wt))
		return sbx_no_memory(err);
	if (layer)
		r = sbx_local_overlay_git(b, rec, &wt, layer, req->cancelled, err);
	else
		r = sbx_git_checkout(b->host->settings->source_abs, &wt, req->cancelled, err);
	if (r)
		return sbx_git_explain_missing(b->common, rec->base, r, err);
	return sbx_local_include(b, rec, req->cancelled, err);
}

static int copy_source(struct sbx_local *b, const struct sbx_create *req, struct sbx_record *rec,
                       int tree, int links, struct sbx_error *err)
{
	const struct sbx_settings *s = b->host->settings;
	_cleanup_fd_ int src = open(s->source_abs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct sbx_skip skips[SBX_BASE_SKIPS];
	struct sbx_copy copy = {.src = src,
	                        .dst = tree,
	                        .links = links,
	                        .skips = skips,
	                        .rewrite = sbx_git_bare_copy,
	                        .cancelled = req->cancelled};
	int r;

	if (src < 0)
		return sbx_fail(err, errno, "source %s: %s", s->source_abs, strerror(errno));
	copy.nskips = sbx_local_skips(b, skips);
	r = sbx_tree_copy(&copy, err);
	rec->skipped = (int64_t)copy.skipped;
	return r;
}

/* The links go where undo and recovery look for this sandbox's remains: its place in the trash. */
static int fill_dir(struct sbx_local *b, const struct sbx_create *req, struct sbx_record *rec,
                    struct sbx_error *err)
{
	_cleanup_fd_ int tree = -1, links = -1;
	int r = makes_overlay(b) ? sbx_local_overlay_dir(b, rec, req->cancelled, err) : 1;

	if (r <= 0)
		return r;
	if (rec->disk_mb)
		return sbx_fail(
		        err, EOPNOTSUPP,
		        "disk_mb cannot be kept: the source has hard links or does not hold still");
	r = sbx_local_store(b, rec, err);
	if (!r)
		r = sbx_local_make_tree(b, rec->id, &tree, err);
	if (r)
		return r;
	links = sbx_dir_make(b->state.trash, rec->id, 0700);
	if (links < 0)
		return sbx_fail(err, -links, "cannot write to the state directory: %s",
		                strerror(-links));
	r = copy_source(b, req, rec, tree, links, err);
	if (!r)
		r = sbx_local_history_begin(
		        &(struct sbx_snapshot_context){
		                .b = b, .rec = rec, .root = tree, .disk = -1},
		        req->cancelled, err);
	return r ? r : sbx_tree_remove(b->state.trash, rec->id, err);
}

static int fill_none(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_fd_ int tree = -1;
	int r = sbx_local_store(b, rec, err);

	return r ? r : sbx_local_make_tree(b, rec->id, &tree, err);
}

static int fill(struct sbx_local *b, const struct sbx_create *req,
                const struct sbx_local_origin *origin, struct sbx_record *rec,
                struct sbx_error *err)
{
	int r;

	if (b->kind == SBX_LOCAL_GIT)
		r = fill_git(b, req, origin, rec, err);
	else if (b->kind == SBX_LOCAL_DIR)
		r = fill_dir(b, req, rec, err);
	else
		r = fill_none(b, rec, err);
	if (!r && req->cancelled && atomic_load(req->cancelled))
		r = sbx_fail(err, EINTR, "cancelled");
	if (!r)
		rec->own_results = sbx_local_results(b, rec, true);
	/* What is to be something else is not ready. */
	if (r || origin)
		return r;
	assert(rec->state == SBX_RECORD_CREATING);
	rec->state = SBX_RECORD_READY;
	return sbx_local_store(b, rec, err);
}

static bool may_limit_disk(const struct sbx_local *b)
{
	return makes_overlay(b) && b->kind != SBX_LOCAL_NONE;
}

static int check(const struct sbx_local *b, const struct sbx_create *req, struct sbx_error *err)
{
	if ((req->origin.base || req->branch || req->branch_exists) && b->kind != SBX_LOCAL_GIT)
		return sbx_fail(err, EINVAL, "%s needs a git repository as the source",
		                req->origin.base ? "base"
		                : req->branch    ? "branch"
		                                 : "branch_exists");
	if (b->host->settings->limits.disk_mb && !may_limit_disk(b))
		return sbx_fail(err, EOPNOTSUPP,
		                "disk_mb cannot be kept here: trees are no overlays (%s)",
		                b->flat ? b->flat : "the source is none");
	return 0;
}

static int grow(const struct sbx_create *req, const struct sbx_local_origin *origin,
                struct sbx_sandbox *sb, struct sbx_error *err)
{
	int r = grow_tree(sb, origin, req->cancelled, err);

	if (!r && req->cancelled && atomic_load(req->cancelled))
		r = sbx_fail(err, EINTR, "cancelled");
	if (!r)
		r = sbx_local_sandbox_ready(sb, err);
	return r;
}

static int create_as(struct sbx_local *b, const struct sbx_create *req,
                     const struct sbx_local_origin *origin, struct sbx_sandbox **ret,
                     struct sbx_error *err)
{
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	struct sbx_sandbox *sb = NULL;
	int r = check(b, req, err);

	if (!r)
		r = sbx_local_begin(b, req, &rec, err);
	if (r)
		return r;
	r = fill(b, req, origin, &rec, err);
	if (!r)
		r = sbx_local_sandbox_open(b, &rec, &sb, err);
	if (r) {
		sbx_local_undo(b, &rec, NULL);
		return r;
	}
	r = origin ? grow(req, origin, sb, err) : 0;
	if (r) {
		sbx_local_sandbox_undo(sb);
		return r;
	}
	sbx_local_sync_soon(b, &sbx_local_downcast(sb)->rec);
	*ret = sb;
	return 0;
}

static void origin_release(struct sbx_local_origin *origin)
{
	free(origin->branch);
	git_repository_free(origin->objects);
	if (origin->repos)
		sbx_aside_close(origin->repos);
	free(origin->repos);
	*origin = (struct sbx_local_origin){0};
}

/* --- from the trash
 * --------------------------------------------------------------------------------- */

static bool has_commit(git_repository *repo, const char *hex)
{
	_cleanup_git_(object) git_object *c = NULL;
	git_oid oid;

	return git_oid_fromstr(&oid, hex) == 0 &&
	       git_object_lookup(&c, repo, &oid, GIT_OBJECT_COMMIT) == 0;
}

/* OWN: it is in the state directory. */
static int find_entry(struct sbx_local *b, const char *name, git_repository **repo,
                      struct sbx_trash_entry *e, bool *own)
{
	int r = b->common ? sbx_local_trash_repo(b, b->common, false, repo) : GIT_ENOTFOUND;

	if (!r)
		r = sbx_trash_find(*repo, name, e);
	if (r != GIT_ENOTFOUND)
		return r;
	*own = true;
	git_repository_free(*repo);
	*repo = NULL;
	r = sbx_local_trash_repo(b, NULL, false, repo);
	return r ? r : sbx_trash_find(*repo, name, e);
}

/* Where the commits that it stood on are gone it begins as any other, with the same files. */
static int origin_git(struct sbx_local *b, const struct sbx_trash_entry *e,
                      struct sbx_local_origin *origin, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	char head[GIT_OID_HEXSZ + 1] = "";
	int r = sbx_git_open(b->common, &repo);

	if (r)
		return sbx_git_fail(err, r, "cannot open the repository %s", b->common);
	if (e->has_head)
		git_oid_tostr(head, sizeof(head), &e->head);
	else if (e->base)
		snprintf(head, sizeof(head), "%.*s", GIT_OID_HEXSZ, e->base);
	if (!has_commit(repo, head))
		return 0;
	memcpy(origin->head, head, sizeof(head));
	snprintf(origin->base, sizeof(origin->base), "%.*s", GIT_OID_HEXSZ,
	         e->base && has_commit(repo, e->base) ? e->base : head);
	origin->has_staged = e->has_staged;
	origin->staged = e->staged;
	origin->branch = e->branch ? strdup(e->branch) : NULL;
	return e->branch && !origin->branch ? sbx_no_memory(err) : 0;
}

/* *ID is the sandbox's that the entry is of, the caller's. */
static int origin_trash(struct sbx_local *b, const char *name, struct sbx_local_origin *origin,
                        char **id, struct sbx_error *err)
{
	_cleanup_(sbx_trash_release) struct sbx_trash_entry e = {0};
	git_repository *repo = NULL;
	bool own = false;
	int r = find_entry(b, name, &repo, &e, &own);

	if (r == GIT_ENOTFOUND)
		r = sbx_fail(err, ENOENT, "there is no %s in the trash", name);
	else if (r)
		r = sbx_git_fail(err, r, "the trash cannot be read");
	if (r) {
		git_repository_free(repo);
		return r;
	}
	*id = sbx_steal_ptr(&e.id);
	origin->commit = e.commit;
	origin->tree = e.tree;
	origin->objects = repo;
	r = b->common ? origin_git(b, &e, origin, err) : 0;
	/* The source's own objects need not be brought. */
	if (b->common && e.has_head && !own) {
		git_repository_free(origin->objects);
		origin->objects = NULL;
	}
	return r;
}

static bool is_final(int r)
{
	return r == -EINTR || r == -ENOSPC || r == -EDQUOT || r == -ENOMEM || r == -EMFILE ||
	       r == -ENFILE;
}

/*
 * From the very files. 1: there are none, or they do not do here, and what git has of them is to.
 */
static int create_whole(struct sbx_local *b, const struct sbx_create *req,
                        const struct sbx_local_origin *origin, const char *id,
                        struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	struct sbx_removed of;
	_cleanup_free_ char *text = NULL;
	int r = sbx_local_removed_open(b, id, &of);

	if (r)
		return 1;
	r = sbx_local_fork_removed(b, req, origin, &of, ret, &why);
	sbx_local_removed_close(b, &of);
	if (!r)
		return 0;
	if (is_final(r))
		return sbx_fail(err, why.code, "%s", why.text);
	text = sbx_format("%s was made from what git has of %s alone: %s", req->name,
	                  req->origin.entry, why.text);
	if (text && b->host->dropped)
		b->host->dropped(req->name, text, b->host->data);
	return 1;
}

static int create_trash(struct sbx_local *b, const struct sbx_create *req, struct sbx_sandbox **ret,
                        struct sbx_error *err)
{
	_cleanup_(origin_release) struct sbx_local_origin origin = {0};
	_cleanup_free_ char *id = NULL;
	int r = origin_trash(b, req->origin.entry, &origin, &id, err);

	if (!r)
		r = create_whole(b, req, &origin, id, ret, err);
	return r <= 0 ? r : create_as(b, req, &origin, ret, err);
}

/* --- as another was
 * ---------------------------------------------------------------------------------- */

static int origin_rev(struct sbx_sandbox *from, const char *rev, struct sbx_local_origin *origin,
                      struct sbx_error *err)
{
	const struct sbx_snapshot_context place = sbx_local_snapshot_context(from);
	struct sbx_local_history_rev found;
	int r = sbx_local_history_open(&place, true, &origin->objects, err);

	if (!r)
		r = sbx_local_history_resolve(&place, origin->objects, rev, &found, err);
	if (r)
		return r;
	if (found.mark)
		return sbx_fail(err, EINVAL, "a mark is nothing that another sandbox can begin as");
	origin->commit = found.commit;
	origin->tree = found.tree;
	origin->repos = malloc(sizeof(*origin->repos));
	if (!origin->repos)
		return sbx_no_memory(err);
	sbx_repos_find(&place, &found.commit, origin->repos);
	origin->repos->context = NULL;
	if (!place.rec->common)
		return 0;
	git_oid_tostr(origin->head, sizeof(origin->head), &found.commit);
	snprintf(origin->base, sizeof(origin->base), "%s", place.rec->base);
	git_repository_free(origin->objects);
	origin->objects = NULL;
	return 0;
}

static int create_rev(struct sbx_local *b, const struct sbx_create *req, struct sbx_sandbox **ret,
                      struct sbx_error *err)
{
	_cleanup_(origin_release) struct sbx_local_origin origin = {0};
	int r = origin_rev(req->origin.sandbox, req->origin.rev, &origin, err);

	return r ? r : create_as(b, req, &origin, ret, err);
}

int sbx_local_create(struct sbx_backend *base, const struct sbx_create *req,
                     struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct sbx_local *b = (struct sbx_local *)base;
	int r = sbx_name_check(req->name, err);

	if (r)
		return r;
	switch (req->origin.kind) {
	case SBX_ORIGIN_SOURCE:
		break;
	case SBX_ORIGIN_SANDBOX:
		return sbx_local_fork(b, req, ret, err);
	case SBX_ORIGIN_SNAPSHOT:
		return create_rev(b, req, ret, err);
	case SBX_ORIGIN_TRASH:
		return create_trash(b, req, ret, err);
	}
	return create_as(b, req, NULL, ret, err);
}
