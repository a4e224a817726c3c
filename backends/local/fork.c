/*
 * A fork has its origin's base, and what the origin has changed is copied: of a layered tree the
 * upper layer, of a full copy all of it. So `base` is the same commit to both. Its branch begins
 * where the origin's HEAD stands; the index comes along, so what was staged is staged. The record
 * says ready when all that is done: till then recovery takes everything back.
 *
 * A sandbox that was removed is an origin as well, as long as its files are kept.
 *
 * A repository that the host made below the root stands in a store, under a name that is the
 * identity of its placeholder in the tree (fs/workspace/nested_git.h). The placeholder's copy has
 * another, so the repository is copied to the name that is its.
 */
#include "backends/local/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/import_objects.h"
#include "backends/git/index_refresh.h"
#include "backends/git/worktree.h"
#include "backends/local/history/history.h"
#include "backends/local/overlay/create_overlay.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/private_git.h"
#include "backends/local/syncer.h"
#include "backends/local/teardown.h"
#include "backends/support/beneath.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

struct moving {
	int from, to; /* the stores */
	int links;
	int root;
	atomic_bool *cancelled;
	struct sbx_error *err;
};

/* As fs/workspace/nested_git.c has it. */
static int key_of(int root, const char *path, char *ret, size_t size)
{
	_cleanup_fd_ int fd = sbx_beneath_open(root, path, O_PATH);
	struct statx st;

	if (fd < 0)
		return fd;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	snprintf(ret, size, "%" PRIx64 "-%" PRIx64 "-%x", (uint64_t)st.stx_ino,
	         (uint64_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
	return 0;
}

/* Whatever NAME is, by way of a directory that holds nothing else. */
static int copy_dir(struct moving *m, const char *name, const char *as)
{
	_cleanup_fd_ int src = sbx_dir_open(m->from, name);
	_cleanup_fd_ int dst = src < 0 ? -1 : sbx_dir_make(m->to, as, 0700);
	struct sbx_copy c = {.src = src, .dst = dst, .links = m->links, .cancelled = m->cancelled};

	if (src < 0 || dst < 0)
		return src < 0 ? src : dst;
	return sbx_tree_copy(&c, m->err);
}

static int copy_text(struct moving *m, const char *name, const char *as)
{
	_cleanup_free_ char *text = NULL;
	int r = sbx_file_read(m->from, name, PATH_MAX, &text);

	return r ? r : sbx_file_create(m->to, as, text);
}

static int move(const char *name, unsigned char type, void *data)
{
	struct moving *m = data;
	size_t n = strlen(name), suffix = strlen(SBX_NESTED_PATH_SUFFIX);
	char key[64], path[PATH_MAX], old[NAME_MAX + 1], at[80];
	struct stat st;
	ssize_t len;
	int r;

	if (type != DT_LNK || n <= suffix || strcmp(name + n - suffix, SBX_NESTED_PATH_SUFFIX) != 0)
		return 0;
	len = readlinkat(m->from, name, path, sizeof(path) - 1);
	if (len <= 0)
		return 0;
	path[len] = '\0';
	snprintf(old, sizeof(old), "%.*s", (int)(n - suffix), name);
	/* What has lost its place, or is no more, does not come along. */
	if (key_of(m->root, path, key, sizeof(key)) < 0 ||
	    fstatat(m->from, old, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = S_ISDIR(st.st_mode) ? copy_dir(m, old, key) : copy_text(m, old, key);
	snprintf(at, sizeof(at), "%s%s", key, SBX_NESTED_PATH_SUFFIX);
	if (!r && symlinkat(path, m->to, at) < 0)
		r = -errno;
	return r;
}

static int move_all(struct moving *m, struct sbx_local *b, const char *to)
{
	int r;

	m->to = sbx_dir_make(b->state.nested, to, 0700);
	if (m->to < 0)
		return m->to;
	m->links = sbx_dir_make(b->state.trash, to, 0700);
	if (m->links < 0)
		return m->links;
	r = sbx_dir_scan(m->from, move, m);
	return r ? r : sbx_tree_remove(b->state.trash, to, m->err);
}

/*
 * Copies what stands apart from a tree (sbx_sandbox_impl.nested), in the directory FROM, for TO,
 * whose tree, a copy, is open in ROOT.
 */
static int fork_nested(struct sbx_local *b, int from, const char *to, int root,
                       atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	struct moving m = {.from = from,
	                   .to = -1,
	                   .links = -1,
	                   .root = root,
	                   .cancelled = cancelled,
	                   .err = &own};
	int r = move_all(&m, b, to);

	sbx_cleanup_fd(&m.to);
	sbx_cleanup_fd(&m.links);
	if (!r)
		return 0;
	return own.code ? sbx_fail(err, -r, "%s", own.text)
	                : sbx_fail(err, -r, "cannot copy the repositories in the tree: %s",
	                           strerror(-r));
}

struct fork {
	struct sbx_local *b;
	const struct sbx_create *req;
	const struct sbx_record *of;           /* the origin's */
	const struct sbx_local_origin *origin; /* of one from the trash; else NULL */
	int from;              /* what is to be copied: its upper layer, or all of it */
	int nested;            /* what stands apart from its tree, or -1 */
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
	rec->own_results = of->own_results;
	return 0;
}

static int check(const struct fork *f, struct sbx_error *err)
{
	const struct sbx_create *req = f->req;
	const struct sbx_record *of = f->of;

	if (req->branch && !of->common)
		return sbx_fail(err, EINVAL, "branch needs a git repository as the source");
	if (!of->layer && f->b->host->settings->limits.disk_mb)
		return sbx_fail(err, EOPNOTSUPP,
		                "disk_mb cannot be kept: the tree of %s is no overlay", of->name);
	return 0;
}

/* --- git
 * ------------------------------------------------------------------------------------------- */

/* Brings commits of commands over first; where that cannot be, the origin has been told why. */
static int read_origin(struct fork *f, struct sbx_error *err)
{
	const struct sbx_record *of = f->of;
	_cleanup_fd_ int entry = -1;
	int r;

	if (!of->common)
		return 0;
	if (sbx_sandbox_stale(f->req->origin.sandbox))
		sbx_sandbox_sync(f->req->origin.sandbox, NULL);
	entry = sbx_local_entry_open(of, err);
	if (entry < 0)
		return entry;
	r = sbx_local_head(of, entry, f->head, err);
	if (r)
		return r;
	r = sbx_index_carry_read(&f->index, entry);
	return r ? sbx_fail(err, -r, "cannot read the index of %s: %s", of->name, strerror(-r)) : 0;
}

static int plan(struct fork *f, struct sbx_error *err)
{
	int r;

	if (!f->of->common)
		return 0;
	if (f->origin)
		return sbx_local_plan_as(f->b, f->req, f->origin, &f->rec, NULL, err);
	r = sbx_local_plan_git(f->b, f->req, f->head, &f->rec, NULL, err);
	if (r)
		return r;
	/* The base of both; the branch begins at head. */
	free(f->rec.base);
	f->rec.base = strdup(f->of->base);
	return f->rec.base ? 0 : sbx_no_memory(err);
}

static int attach(struct fork *f, int top, struct sbx_error *err)
{
	_cleanup_free_ char *link = sbx_local_git_link(f->b, &f->rec), *workdir = NULL;
	struct sbx_git_worktree wt;
	int r;

	if (!f->rec.common)
		return 0;
	if (!link || !sbx_local_worktree(f->b, &f->rec, &workdir, &wt))
		return sbx_no_memory(err);
	wt.link = link;
	wt.start = f->head;
	r = sbx_git_attach(&wt, top, err);
	if (r || !f->rec.layer)
		return r;
	r = sbx_local_overlay_own_git(f->b, &f->rec);
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

/* --- the tree
 * --------------------------------------------------------------------------------------- */

/*
 * Opens the directory to be copied: the one with the changes of an overlay tree, or the whole
 * tree.
 */
static int open_origin(struct fork *f, int disk, struct sbx_error *err)
{
	const struct sbx_record *of = f->of;

	f->nested = sbx_dir_open(f->b->state.nested, of->id);
	f->from = of->layer ? sbx_local_upper(f->b, of, disk)
	                    : sbx_dir_open(f->b->state.trees, of->id);
	return f->from < 0 ? sbx_fail(err, -f->from, "cannot open the tree of %s: %s", of->name,
	                              strerror(-f->from))
	                   : 0;
}

/* Makes trees/ID, and for a layered one what is in it; *TOP is what is to be filled. */
static int make_top(struct fork *f, int *top, struct sbx_error *err)
{
	int r = sbx_local_make_tree(f->b, f->rec.id, top, err);

	if (r || !f->rec.layer)
		return r;
	sbx_cleanup_fd(top);
	return sbx_local_overlay_make(f->b, &f->rec, top, err);
}

static int copy(struct fork *f, int top, struct sbx_error *err)
{
	const struct sbx_identity *owner = f->rec.layer ? sbx_overlay_owner(f->b->overlay) : NULL;
	_cleanup_fd_ int links = sbx_dir_make(f->b->state.trash, f->rec.id, 0700);
	struct sbx_skip dotgit = {.name = ".git"};
	struct sbx_copy c = {.src = f->from,
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
	if (fstat(f->from, &st) < 0)
		return sbx_fail(err, errno, "cannot open the tree: %s", strerror(errno));
	dotgit.dev = st.st_dev;
	dotgit.ino = st.st_ino;
	r = sbx_tree_copy(&c, err);
	return r ? r : sbx_tree_remove(f->b->state.trash, f->rec.id, err);
}

static int fill(struct fork *f, int top, struct sbx_error *err)
{
	int r = copy(f, top, err);

	if (!r && f->rec.layer)
		r = sbx_local_overlay_adopt(f->b, &f->rec, err);
	if (!r)
		r = write_index(f, -1, &f->rec, err);
	if (r || f->rec.layer || strcmp(f->rec.kind, "dir") != 0)
		return r;
	/* What it began as nothing else tells. */
	return sbx_local_history_begin(
	        &(struct sbx_snapshot_context){.b = f->b, .rec = &f->rec, .root = top, .disk = -1},
	        f->req->cancelled, err);
}

/* Under the lock of the repository, so that two creates cannot both find a branch free. */
static int begin(struct fork *f, int *top, struct sbx_error *err)
{
	_cleanup_fd_ int lock = -1;
	int r;

	if (f->of->common) {
		lock = sbx_git_lock(f->of->common);
		if (lock < 0)
			return sbx_fail(err, -lock, "cannot open %s: %s", f->of->common,
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
	int r = f->nested < 0
	                ? 0
	                : fork_nested(f->b, f->nested, sb->id, s->root, f->req->cancelled, err);

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
	sbx_local_sync_soon(f->b, &sbx_local_downcast(sb)->rec);
	*ret = sb;
	return 0;
}

static void release(struct fork *f)
{
	sbx_cleanup_fd(&f->from);
	sbx_cleanup_fd(&f->nested);
	sbx_index_carry_release(&f->index);
	sbx_record_release(&f->rec);
}

int sbx_local_fork(struct sbx_local *b, const struct sbx_create *req, struct sbx_sandbox **ret,
                   struct sbx_error *err)
{
	const struct sbx_local_sandbox *origin = sbx_local_downcast(req->origin.sandbox);
	_cleanup_(release) struct fork f = {
	        .b = b, .req = req, .of = &origin->rec, .from = -1, .nested = -1};
	int r = check(&f, err);

	if (!r)
		r = sbx_local_begin(b, req, &f.rec, err);
	if (!r && dup_all(&f.rec, f.of))
		r = sbx_no_memory(err);
	if (!r)
		r = read_origin(&f, err);
	if (!r)
		r = open_origin(&f, origin->disk, err);
	return r ? r : make(&f, ret, err);
}

/* --- from what was removed -------------------------------------------------------------------- */

static int open_removed(struct fork *f, const struct sbx_removed *of, struct sbx_error *err)
{
	_cleanup_fd_ int tree = sbx_dir_open(of->dir, "tree");

	f->nested = sbx_dir_open(of->dir, "nested");
	f->from = tree < 0        ? tree
	          : of->rec.layer ? sbx_dir_open(tree, "upper")
	                          : sbx_steal_fd(&tree);
	return f->from < 0 ? sbx_fail(err, -f->from, "cannot open what is kept of %s: %s",
	                              of->rec.name, strerror(-f->from))
	                   : 0;
}

static int read_removed(struct fork *f, const struct sbx_removed *of, struct sbx_error *err)
{
	if (!of->rec.common)
		return 0;
	memcpy(f->head, f->origin->head, sizeof(f->head));
	if (sbx_index_carry_read(&f->index, of->dir) < 0 || !f->index.data)
		return sbx_fail(err, ENOENT, "the index of %s was not kept", of->rec.name);
	return 0;
}

/* Whether in this mount its tree can stand on what it stood on. */
static int check_removed(const struct fork *f, struct sbx_error *err)
{
	const struct sbx_record *of = f->of;

	if (strcmp(of->kind, f->rec.kind) != 0 ||
	    (of->common && (!f->b->common || strcmp(of->common, f->b->common) != 0)))
		return sbx_fail(err, EOPNOTSUPP, "it was of another source");
	if (of->common && !*f->origin->head)
		return sbx_fail(err, EOPNOTSUPP, "the commits that it stood on are gone");
	return of->layer && (!f->b->overlay || f->b->flat)
	               ? sbx_fail(err, EOPNOTSUPP, "trees are no overlays here")
	               : 0;
}

int sbx_local_fork_removed(struct sbx_local *b, const struct sbx_create *req,
                           const struct sbx_local_origin *origin, const struct sbx_removed *of,
                           struct sbx_sandbox **ret, struct sbx_error *err)
{
	_cleanup_(release) struct fork f = {
	        .b = b, .req = req, .of = &of->rec, .origin = origin, .from = -1, .nested = -1};
	int r = check(&f, err);

	if (!r)
		r = sbx_local_begin(b, req, &f.rec, err);
	if (!r)
		r = check_removed(&f, err);
	if (!r && dup_all(&f.rec, f.of))
		r = sbx_no_memory(err);
	if (!r)
		r = open_removed(&f, of, err);
	if (!r)
		r = read_removed(&f, of, err);
	return r ? r : make(&f, ret, err);
}
