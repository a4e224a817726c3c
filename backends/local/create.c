/*
 * Making a sandbox. The record comes first and the word "ready" last; between the two everything
 * made can be found again from the record alone, by whoever has to take it back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "backends/git/bare_config.h"
#include "backends/git/git_impl.h"
#include "backends/local/create_from.h"
#include "backends/local/fork.h"
#include "backends/local/history/history.h"
#include "backends/local/overlay/base_dir.h"
#include "backends/local/overlay/create_overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/settle.h"
#include "backends/local/worktreeinclude/include.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

static const char *const kind_words[] = {
        [SBX_LOCAL_NONE] = "none", [SBX_LOCAL_DIR] = "dir", [SBX_LOCAL_GIT] = "git"};

/* Layers may be there only for the sake of sandboxes that were made when they were wanted. */
static bool makes_layers(const struct sbx_local *b)
{
	return b->layers && !b->flat;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
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
	rec->created_ms = now_ms();
	rec->included = -1;
	rec->disk_mb = (int64_t)b->host->settings->limits.disk_mb;
	rec->name = strdup(req->name);
	rec->kind = strdup(kind_words[b->kind]);
	rec->source = dup_or_null(b->host->settings->source_abs);
	if (!rec->name || !rec->kind || (b->host->settings->source_abs && !rec->source))
		return sbx_fail(err, ENOMEM, "out of memory");
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
		return sbx_fail(err, ENOMEM, "out of memory");
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
static enum sbx_git_exists exists_wish(const struct sbx_local *b, const struct sbx_create *req)
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
	struct sbx_git_wish wish = {.source = s->source_abs,
	                            .base = from ? from : req->origin.base,
	                            .fallback = s->base,
	                            .branch = branch,
	                            .exists = exists_wish(b, req),
	                            .fixed = from != NULL,
	                            .opened = opened};
	struct sbx_git_plan plan = {0};
	int r;

	if (!branch)
		return sbx_fail(err, ENOMEM, "out of memory");
	r = sbx_git_plan(&wish, b->common, &plan, err);
	if (r)
		return r;
	rec->branch = plan.branch;
	rec->base = plan.base;
	rec->branch_created = !plan.exists;
	rec->wanted = plan.told ? sbx_steal_ptr(&branch) : NULL;
	rec->common = strdup(b->common);
	rec->worktree = sbx_local_entry_name(rec->id);
	return rec->common && rec->worktree ? 0 : sbx_fail(err, ENOMEM, "out of memory");
}

int sbx_local_plan_as(struct sbx_local *b, const struct sbx_create *req,
                      const struct sbx_local_seed *seed, struct sbx_record *rec,
                      git_repository **opened, struct sbx_error *err)
{
	struct sbx_create as = *req;
	int r = -EINVAL;

	if (!as.branch && seed->branch) {
		as.branch = seed->branch;
		r = sbx_local_plan_git(b, &as, seed->head, rec, opened, NULL);
		as.branch = NULL;
	}
	if (r)
		r = sbx_local_plan_git(b, &as, seed->head, rec, opened, err);
	if (r)
		return r;
	free(rec->base);
	rec->base = strdup(seed->base);
	return rec->base ? 0 : sbx_fail(err, ENOMEM, "out of memory");
}

/* Under the lock of the repository, so that two creates cannot both find a branch free. */
static int attach_git(struct sbx_local *b, const struct sbx_create *req,
                      const struct sbx_local_seed *seed, struct sbx_record *rec,
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
	r = seed && *seed->head ? sbx_local_plan_as(b, req, seed, rec, &repo, err)
	                        : sbx_local_plan_git(b, req, NULL, rec, &repo, err);
	if (!r && makes_layers(b))
		r = sbx_local_layer_plan(b, rec, repo, layer, err);
	if (!r)
		r = sbx_local_store(b, rec, err);
	if (!r)
		r = sbx_local_make_tree(b, rec->id, &tree, err);
	if (!r && makes_layers(b)) {
		sbx_cleanup_fd(&tree);
		r = sbx_local_layer_make(b, rec, &tree, err);
	}
	if (r)
		return r;
	if (!sbx_local_worktree(b, rec, &workdir, &wt))
		return sbx_fail(err, ENOMEM, "out of memory");
	wt.link = link;
	wt.start = seed && *seed->head ? seed->head : NULL;
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
                    const struct sbx_local_seed *seed, struct sbx_record *rec,
                    struct sbx_error *err)
{
	_cleanup_(free_layer) struct sbx_base_commit *layer = NULL;
	_cleanup_free_ char *workdir = NULL;
	struct sbx_git_worktree wt;
	int r = attach_git(b, req, seed, rec, &layer, err);

	if (r)
		return rec->base ? sbx_git_explain_missing(b->common, rec->base, r, err) : r;
	if (!sbx_local_worktree(b, rec, &workdir, &wt))
		return sbx_fail(err, ENOMEM, "out of memory");
	if (layer)
		r = sbx_local_layer_git(b, rec, &wt, layer, req->cancelled, err);
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
	int r = makes_layers(b) ? sbx_local_layer_dir(b, rec, req->cancelled, err) : 1;

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
		r = sbx_past_begin(
		        &(struct sbx_past_place){.b = b, .rec = rec, .root = tree, .disk = -1},
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
                const struct sbx_local_seed *seed, struct sbx_record *rec, struct sbx_error *err)
{
	int r;

	if (b->kind == SBX_LOCAL_GIT)
		r = fill_git(b, req, seed, rec, err);
	else if (b->kind == SBX_LOCAL_DIR)
		r = fill_dir(b, req, rec, err);
	else
		r = fill_none(b, rec, err);
	if (!r && req->cancelled && atomic_load(req->cancelled))
		r = sbx_fail(err, EINTR, "cancelled");
	if (!r)
		rec->own_results = sbx_local_results(b, rec, true);
	/* What is to be something else is not ready. */
	if (r || seed)
		return r;
	rec->state = SBX_RECORD_READY;
	return sbx_local_store(b, rec, err);
}

static bool may_limit_disk(const struct sbx_local *b)
{
	return makes_layers(b) && b->kind != SBX_LOCAL_NONE;
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

static int grow(const struct sbx_create *req, const struct sbx_local_seed *seed,
                struct sbx_sandbox *sb, struct sbx_error *err)
{
	int r = sbx_local_grow(sb, seed, req->cancelled, err);

	if (!r && req->cancelled && atomic_load(req->cancelled))
		r = sbx_fail(err, EINTR, "cancelled");
	if (!r)
		r = sbx_local_sandbox_ready(sb, err);
	return r;
}

int sbx_local_create_as(struct sbx_local *b, const struct sbx_create *req,
                        const struct sbx_local_seed *seed, struct sbx_sandbox **ret,
                        struct sbx_error *err)
{
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	struct sbx_sandbox *sb = NULL;
	int r = check(b, req, err);

	if (!r)
		r = sbx_local_begin(b, req, &rec, err);
	if (r)
		return r;
	r = fill(b, req, seed, &rec, err);
	if (!r)
		r = sbx_local_sandbox_open(b, &rec, &sb, err);
	if (r) {
		sbx_local_undo(b, &rec, NULL);
		return r;
	}
	r = seed ? grow(req, seed, sb, err) : 0;
	if (r) {
		sbx_local_sandbox_undo(sb);
		return r;
	}
	sbx_local_settle_soon(b, &sbx_local_downcast(sb)->rec);
	*ret = sb;
	return 0;
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
		return sbx_local_create_rev(b, req, ret, err);
	case SBX_ORIGIN_TRASH:
		return sbx_local_create_trash(b, req, ret, err);
	}
	return sbx_local_create_as(b, req, NULL, ret, err);
}
