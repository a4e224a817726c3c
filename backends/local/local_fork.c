/*
 * A fork has its origin's base, and what the origin has changed is copied: of a layered tree the upper layer, of a full copy all of it.
 * So `base` is the same commit to both. Its branch begins where the origin's HEAD stands; the index comes along, so
 * what was staged is staged. The record says ready when all that is done: till then recovery takes everything back.
 */
#include "backends/local/local_fork.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/git_export.h"
#include "backends/local/git_index_carry.h"
#include "backends/local/layers.h"
#include "backends/local/local_head.h"
#include "backends/local/local_layered.h"
#include "backends/local/past.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

struct fork {
	struct sbx_local *b;
	const struct sbx_create *req;
	const struct sbx_local_sandbox *origin;
	struct sbx_record rec; /* until the sandbox is opened */
	struct sbx_index_carry index;
	char head[GIT_OID_HEXSZ + 1]; /* git: the origin's */
};

static int dup_all(struct sbx_record *rec, const struct sbx_record *of)
{
	const struct {
		char **to;
		const char *from;
	} texts[] = {{&rec->kind, of->kind}, {&rec->source, of->source}, {&rec->layer, of->layer}};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++) {
		free(*texts[i].to);
		*texts[i].to = texts[i].from ? strdup(texts[i].from) : NULL;
		if (texts[i].from && !*texts[i].to)
			return -ENOMEM;
	}
	if (of->disk_mb)
		rec->disk_mb = of->disk_mb;
	rec->skipped = of->skipped;
	return 0;
}

static int check(const struct fork *f, struct sbx_error *err)
{
	const struct sbx_create *req = f->req;
	const struct sbx_record *of = &f->origin->rec;

	if (req->base)
		return sbx_fail(err, EINVAL,
		                "a fork begins as another sandbox: base is not for it");
	if (req->branch && !of->common)
		return sbx_fail(err, EINVAL, "branch needs a git repository as the source");
	if (!of->layer && f->b->host->settings->limits.disk_mb)
		return sbx_fail(err, EOPNOTSUPP,
		                "disk_mb cannot be kept: the tree of %s is no overlay", of->name);
	return 0;
}

/* --- git ------------------------------------------------------------------------------------------- */

/* What commands have committed comes over first; where that cannot be, the origin has been told why. */
static int read_origin(struct fork *f, struct sbx_error *err)
{
	const struct sbx_record *of = &f->origin->rec;
	_cleanup_fd_ int entry = -1;
	int r;

	if (!of->common)
		return 0;
	if (sbx_sandbox_stale(f->req->from))
		sbx_sandbox_sync(f->req->from, NULL);
	entry = sbx_local_entry_open(of, err);
	if (entry < 0)
		return entry;
	r = sbx_local_head(of, entry, f->head, err);
	if (!r && sbx_index_carry_read(&f->index, entry) < 0)
		r = sbx_fail(err, EIO, "cannot read the index of %s", of->name);
	return r;
}

static int plan(struct fork *f, struct sbx_error *err)
{
	int r;

	if (!f->origin->rec.common)
		return 0;
	r = sbx_local_plan_git(f->b, f->req, f->head, &f->rec, err);
	if (r)
		return r;
	/* The base of both; the branch begins at head. */
	free(f->rec.base);
	f->rec.base = strdup(f->origin->rec.base);
	return f->rec.base ? 0 : sbx_fail(err, ENOMEM, "out of memory");
}

static int attach(struct fork *f, int top, struct sbx_error *err)
{
	_cleanup_free_ char *link = sbx_local_git_link(f->b, &f->rec), *workdir = NULL;
	struct sbx_git_worktree wt;
	int r;

	if (!f->rec.common)
		return 0;
	if (!link || !sbx_local_worktree(f->b, &f->rec, &workdir, &wt))
		return sbx_fail(err, ENOMEM, "out of memory");
	wt.link = link;
	wt.start = f->head;
	r = sbx_git_attach(&wt, top, err);
	if (r || !f->rec.layer)
		return r;
	r = sbx_local_layer_own_git(f->b, &f->rec);
	return r ? sbx_fail(err, -r, "cannot make .git: %s", strerror(-r)) : 0;
}

static int write_index(struct fork *f, int root, const struct sbx_record *rec,
                       struct sbx_error *err)
{
	struct sbx_git_owner owner;
	_cleanup_fd_ int entry = -1;
	int r;

	if (!rec->common)
		return 0;
	entry = sbx_local_entry_open(rec, err);
	if (entry < 0)
		return entry;
	owner = sbx_git_owner_begin(rec->common);
	r = root < 0 ? sbx_index_carry_write(&f->index, entry)
	             : sbx_index_carry_refresh(&f->index, entry, root);
	sbx_git_owner_end(&owner);
	return r ? sbx_fail(err, -r, "cannot write the index: %s", strerror(-r)) : 0;
}

/* --- the tree --------------------------------------------------------------------------------------- */

/* What is to be copied: the directory with the changes of a layered tree, or all. */
static int open_origin(const struct fork *f, struct sbx_error *err)
{
	const struct sbx_record *of = &f->origin->rec;
	int fd = of->layer ? sbx_local_upper(f->b, of, f->origin->disk)
	                   : sbx_dir_open(f->b->state.trees, of->id);

	return fd < 0 ? sbx_fail(err, -fd, "cannot open the tree of %s: %s", of->name,
	                         strerror(-fd))
	              : fd;
}

/* Makes trees/ID, and for a layered one what is in it; *TOP is what is to be filled. */
static int make_top(struct fork *f, int *top, struct sbx_error *err)
{
	int r = sbx_local_make_tree(f->b, f->rec.id, top, err);

	if (r || !f->rec.layer)
		return r;
	sbx_cleanup_fd(top);
	return sbx_local_layer_make(f->b, &f->rec, top, err);
}

static int copy(struct fork *f, int from, int top, struct sbx_error *err)
{
	const struct sbx_identity *owner = f->rec.layer ? sbx_layers_owner(f->b->layers) : NULL;
	_cleanup_fd_ int links = sbx_dir_make(f->b->state.trash, f->rec.id, 0700);
	struct sbx_skip dotgit = {.name = ".git"};
	struct sbx_copy c = {.src = from,
	                     .dst = top,
	                     .links = links,
	                     .skips = &dotgit,
	                     .nskips = f->rec.common ? 1 : 0,
	                     .layer = f->rec.layer != NULL,
	                     .ours = true,
	                     .owner = owner && owner->uid != geteuid() ? owner : NULL,
	                     .cancelled = f->req->cancelled,
	                     .copied = f->rec.common ? sbx_index_carry_copied : NULL,
	                     .data = &f->index};
	struct stat st;
	int r;

	if (links < 0)
		return sbx_fail(err, -links, "cannot write to the state directory: %s",
		                strerror(-links));
	if (fstat(from, &st) < 0)
		return sbx_fail(err, errno, "cannot open the tree: %s", strerror(errno));
	dotgit.dev = st.st_dev;
	dotgit.ino = st.st_ino;
	r = sbx_tree_copy(&c, err);
	return r ? r : sbx_tree_remove(f->b->state.trash, f->rec.id, err);
}

static int fill(struct fork *f, int top, struct sbx_error *err)
{
	_cleanup_fd_ int from = open_origin(f, err);
	int r = from < 0 ? from : copy(f, from, top, err);

	if (!r && f->rec.layer)
		r = sbx_local_layer_adopt(f->b, &f->rec, err);
	if (!r)
		r = write_index(f, -1, &f->rec, err);
	if (r || f->rec.layer || strcmp(f->rec.kind, "dir") != 0)
		return r;
	/* What it began as nothing else tells. */
	return sbx_past_begin(
	        &(struct sbx_past_place){.b = f->b, .rec = &f->rec, .root = top, .disk = -1},
	        f->req->cancelled, err);
}

/* Under the lock of the repository, so that two creates cannot both find a branch free. */
static int begin(struct fork *f, int *top, struct sbx_error *err)
{
	_cleanup_fd_ int lock = -1;
	int r;

	if (f->origin->rec.common) {
		lock = sbx_git_lock(f->origin->rec.common);
		if (lock < 0)
			return sbx_fail(err, -lock, "cannot open %s: %s", f->origin->rec.common,
			                strerror(-lock));
	}
	r = plan(f, err);
	if (!r)
		r = sbx_local_store(f->b, &f->rec, err);
	if (!r)
		r = make_top(f, top, err);
	return r ? r : attach(f, *top, err);
}

/* With the tree mounted: what can only be said of the copies as they are seen. */
static int complete(struct fork *f, struct sbx_sandbox *sb, struct sbx_error *err)
{
	const struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	int r;

	r = sbx_local_fork_nested(f->b, f->origin->rec.id, sb->id, s->root, f->req->cancelled, err);
	if (r)
		return r;
	/* A status that takes longer is no reason to fail. */
	write_index(f, s->root, &s->rec, NULL);
	if (f->req->cancelled && atomic_load(f->req->cancelled))
		return sbx_fail(err, EINTR, "cancelled");
	return sbx_local_sandbox_ready(sb, err);
}

static int make(struct fork *f, struct sbx_sandbox **ret, struct sbx_error *err)
{
	_cleanup_fd_ int top = -1;
	struct sbx_sandbox *sb = NULL;
	int r = begin(f, &top, err);

	if (!r)
		r = fill(f, top, err);
	if (!r)
		r = sbx_local_sandbox_open(f->b, &f->rec, &sb, err);
	if (r) {
		sbx_local_undo(f->b, &f->rec, NULL);
		return r;
	}
	r = complete(f, sb, err);
	if (r) {
		sbx_local_sandbox_undo(sb);
		return r;
	}
	*ret = sb;
	return 0;
}

int sbx_local_fork(struct sbx_local *b, const struct sbx_create *req, struct sbx_sandbox **ret,
                   struct sbx_error *err)
{
	struct fork f = {.b = b, .req = req};
	int r;

	f.origin = sbx_local_downcast(req->from);
	r = check(&f, err);
	if (!r)
		r = sbx_local_begin(b, req, &f.rec, err);
	if (!r && dup_all(&f.rec, &f.origin->rec))
		r = sbx_fail(err, ENOMEM, "out of memory");
	if (!r)
		r = read_origin(&f, err);
	if (!r)
		r = make(&f, ret, err);
	sbx_index_carry_release(&f.index);
	sbx_record_release(&f.rec);
	return r;
}
