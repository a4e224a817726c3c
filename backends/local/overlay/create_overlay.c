/*
 * The steps of a create that differ where trees are in layers. The record names the base before
 * anything stands on it, so recovery knows what to mount, and whom the cache counts can be told
 * from the record alone.
 */
#include "backends/local/overlay/create_overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/repository.h"
#include "backends/local/overlay/base_dir.h"
#include "backends/local/overlay/overlay.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define DIR_TRIES 3

int sbx_local_overlay_plan(struct sbx_local *b, struct sbx_record *rec, git_repository *repo,
                           struct sbx_base_commit **ret, struct sbx_error *err)
{
	struct sbx_base_commit *c;
	int r = sbx_base_commit_new(rec->common, repo, rec->base, sbx_overlay_owner(b->overlay), &c,
	                            err);

	if (r)
		return r;
	rec->layer = strdup(c->key);
	if (!rec->layer) {
		sbx_base_commit_free(&c->recipe);
		return sbx_no_memory(err);
	}
	*ret = c;
	return 0;
}

int sbx_local_overlay_make(struct sbx_local *b, const struct sbx_record *rec, int *ret,
                           struct sbx_error *err)
{
	struct stat like = {.st_mode = 0755};
	int fd;

	like.st_atim.tv_nsec = like.st_mtim.tv_nsec = UTIME_NOW;
	fd = sbx_overlay_make(b->overlay, &b->state, rec->id, &like);
	if (fd < 0)
		return sbx_fail(err, -fd, "cannot make the working tree: %s", strerror(-fd));
	*ret = fd;
	return 0;
}

static int copy_index(struct sbx_local *b, int base, const struct sbx_git_worktree *wt)
{
	_cleanup_free_ char *path = sbx_format("%s/worktrees/%s/index", wt->common, wt->worktree);

	return path ? sbx_base_copy_index(sbx_overlay_bases(b->overlay), base, wt->common, path)
	            : -ENOMEM;
}

/* The file that makes it a worktree was made by the daemon. */
int sbx_local_overlay_own_git(struct sbx_local *b, const struct sbx_record *rec)
{
	const struct sbx_identity *owner = sbx_overlay_owner(b->overlay);
	_cleanup_free_ char *path = sbx_format("%s/upper/.git", rec->id);

	if (!path)
		return -ENOMEM;
	if (owner->uid == geteuid())
		return 0;
	return fchownat(b->state.trees, path, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0
	               ? -errno
	               : 0;
}

int sbx_local_overlay_git(struct sbx_local *b, const struct sbx_record *rec,
                          const struct sbx_git_worktree *wt, const struct sbx_base_commit *commit,
                          atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_base base;
	int r = sbx_overlay_acquire(b->overlay, &b->state, rec, &commit->recipe, cancelled, &base,
	                            err);

	if (r)
		return r;
	r = copy_index(b, base.dir, wt);
	close(base.dir);
	if (!r)
		r = sbx_local_overlay_own_git(b, rec);
	return r ? sbx_fail(err, -r, "cannot write the index of the worktree: %s", strerror(-r))
	         : 0;
}

/* --- plain directories
 * ------------------------------------------------------------------------------ */

size_t sbx_local_skips(const struct sbx_local *b, struct sbx_skip *ret)
{
	const struct sbx_settings *s = b->host->settings;
	const char *paths[] = {s->mountpoint, b->state.path, s->cache_dir};
	size_t n = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(paths); i++)
		if (paths[i] && sbx_skip_path(paths[i], &ret[n]) == 0)
			n++;
	return n;
}

static int look_at_source(struct sbx_local *b, const char *source, struct sbx_base_dir *d,
                          atomic_bool *cancelled, struct sbx_error *err)
{
	d->source = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->source < 0)
		return sbx_fail(err, errno, "source %s: %s", source, strerror(errno));
	d->nskips = sbx_local_skips(b, d->skips);
	d->owner = *sbx_overlay_owner(b->overlay);
	return sbx_base_dir_look(d, cancelled, err);
}

static int store(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	int r = sbx_record_store(b->state.meta, rec);

	return r ? sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r)) : 0;
}

static int make_dir_layers(struct sbx_local *b, struct sbx_record *rec, int base,
                           struct sbx_error *err)
{
	struct stat like;
	int fd;

	if (fstatat(base, "tree", &like, AT_SYMLINK_NOFOLLOW) == 0 &&
	    mkdirat(b->state.trees, rec->id, 0755) == 0)
		fd = sbx_overlay_make(b->overlay, &b->state, rec->id, &like);
	else
		fd = -errno;
	if (fd < 0)
		return sbx_fail(err, -fd, "cannot make the working tree: %s", strerror(-fd));
	close(fd);
	return 0;
}

/* 1: not to be layered. -EAGAIN: the source has changed meanwhile. */
static int try_dir(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	struct sbx_base_dir d = {.source = -1};
	struct sbx_base base;
	int r = look_at_source(b, b->host->settings->source_abs, &d, cancelled, err);

	if (!r) {
		free(rec->layer);
		rec->layer = strdup(d.key);
		rec->skipped = (int64_t)d.left_out;
		r = rec->layer ? store(b, rec, err) : sbx_no_memory(err);
	}
	if (!r)
		r = sbx_overlay_acquire(b->overlay, &b->state, rec, &d.recipe, cancelled, &base,
		                        err);
	sbx_cleanup_fd(&d.source);
	if (r)
		return r == -EMLINK ? 1 : r;
	r = make_dir_layers(b, rec, base.dir, err);
	close(base.dir);
	return r;
}

int sbx_local_overlay_dir(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                          struct sbx_error *err)
{
	int r = -EAGAIN;

	for (int i = 0; i < DIR_TRIES && r == -EAGAIN; i++)
		r = try_dir(b, rec, cancelled, err);
	if (r != 1 && r != -EAGAIN)
		return r;
	free(rec->layer);
	rec->layer = NULL;
	rec->skipped = 0;
	return 1;
}

/* --- after a restart
 * --------------------------------------------------------------------------------- */

static int stand_again(struct sbx_local *b, const struct sbx_record *rec,
                       const struct sbx_base_recipe *recipe, struct sbx_error *err)
{
	struct sbx_base base;
	int r = sbx_overlay_acquire(b->overlay, &b->state, rec, recipe, NULL, &base, err);

	if (!r)
		close(base.dir);
	return r;
}

static int remake_commit(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	struct sbx_base_commit *c;
	int r = sbx_base_commit_new(rec->common, NULL, rec->base, sbx_overlay_owner(b->overlay), &c,
	                            err);

	if (r)
		return r;
	/* Settings that have changed since make another key, but it is this one that is asked for.
	 */
	c->recipe.key = rec->layer;
	r = stand_again(b, rec, &c->recipe, err);
	sbx_base_commit_free(&c->recipe);
	return r;
}

static int remake_dir(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	struct sbx_base_dir d = {.source = -1};
	int r = look_at_source(b, rec->source, &d, NULL, err);

	if (!r)
		r = strcmp(d.key, rec->layer) == 0
		            ? stand_again(b, rec, &d.recipe, err)
		            : sbx_fail(err, ENOENT,
		                       "the copy of the source that it stands on is no longer in "
		                       "the cache, and the source has changed");
	sbx_cleanup_fd(&d.source);
	return r;
}

/* An overlay shows owners as they are on disk: no other can be made of them. */
static int check_owner(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_free_ char *path = sbx_format("%s/upper", rec->id);
	struct stat st;

	if (!path)
		return sbx_no_memory(err);
	if (fstatat(b->state.trees, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return sbx_fail(err, errno, "its layers cannot be read: %s", strerror(errno));
	return st.st_uid == sbx_overlay_owner(b->overlay)->uid
	               ? 0
	               : sbx_fail(err, EPERM, "its files belong to uid %u, which run_as is not",
	                          st.st_uid);
}

int sbx_local_overlay_adopt(struct sbx_local *b, const struct sbx_record *rec,
                            struct sbx_error *err)
{
	const struct sbx_base_recipe there = {.key = rec->layer};
	int r = b->overlay ? 0 : sbx_overlay_open(b->host, &b->state, &b->overlay, err);

	if (!r)
		r = check_owner(b, rec, err);
	if (r)
		return r;
	r = stand_again(b, rec, &there, err);
	if (r != -ENOENT)
		return r;
	return rec->common ? remake_commit(b, rec, err) : remake_dir(b, rec, err);
}

void sbx_local_overlay_prepare(struct sbx_local *b)
{
	struct sbx_base_commit *c;
	char commit[65];

	if (!b->overlay || b->kind != SBX_LOCAL_GIT ||
	    sbx_base_commit_resolve(b->common, b->host->settings->base, commit) < 0 ||
	    sbx_base_commit_new(b->common, NULL, commit, sbx_overlay_owner(b->overlay), &c, NULL) <
	            0)
		return;
	sbx_bases_prepare(sbx_overlay_bases(b->overlay), &c->recipe, sbx_base_commit_free);
}
