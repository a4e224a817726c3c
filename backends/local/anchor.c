/*
 * The first sync of a new sandbox. A create does not wait for the disk, because mkdir has to be
 * quick; the first barrier of the sandbox syncs what the create wrote. Only names and small files
 * are synced. Contents are synced by whoever asks for that, and the cache is made again when it
 * is lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/local/local_impl.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

/* A file that is not there needs no sync. */
static int sync_in(int dir, const char *name, int flags)
{
	_cleanup_fd_ int fd = dir < 0 ? dir : sbx_beneath_open(dir, name, O_RDONLY | flags);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return fsync(fd) < 0 ? -errno : 0;
}

static int sync_dir(int dir)
{
	_cleanup_fd_ int fd = dir < 0 ? dir : sbx_dir_open(dir, ".");

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return fsync(fd) < 0 ? -errno : 0;
}

/* In the source: the worktree's entry and the branch. */
static int sync_worktree(const struct sbx_record *rec)
{
	static const char *const files[] = {"gitdir", "commondir", "HEAD", "locked", "index"};
	_cleanup_fd_ int entry = sbx_local_entry_open(rec, NULL);
	_cleanup_fd_ int worktrees = entry < 0 ? -ENOENT : openat(entry, "..", O_PATH | O_CLOEXEC);
	_cleanup_fd_ int common = open(rec->common, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *branch = sbx_format("refs/heads/%s", rec->branch);
	int r = branch ? 0 : -ENOMEM;

	for (size_t i = 0; entry >= 0 && !r && i < SBX_ARRAY_SIZE(files); i++)
		r = sync_in(entry, files[i], 0);
	if (!r && entry >= 0)
		r = sync_dir(entry);
	if (!r && worktrees >= 0)
		r = sync_dir(worktrees);
	/* A packed one is as old as the pack. */
	if (!r && common >= 0)
		r = sync_in(common, branch, 0);
	if (!r && common >= 0) {
		*strrchr(branch, '/') = '\0';
		r = sync_in(common, branch, O_DIRECTORY);
	}
	return r;
}

/* The tree's own .git, and the directories from there up to the state directory. */
static int sync_tree(const struct sbx_local_sandbox *s)
{
	const struct sbx_state *st = &s->backend->state;
	_cleanup_fd_ int dir = sbx_dir_open(st->trees, s->rec.id);
	_cleanup_fd_ int upper = s->rec.layer && dir >= 0 ? sbx_dir_open(dir, "upper") : -1;
	int r = sync_in(upper >= 0 ? upper : dir, ".git", 0);

	if (!r && upper >= 0)
		r = sync_dir(upper);
	if (!r)
		r = sync_dir(dir);
	return r ? r : sync_dir(st->trees);
}

/* Of a commit it is made again where a power cut takes it; what a directory was cannot be. */
static int sync_base(const struct sbx_local_sandbox *s)
{
	struct sbx_overlay *overlay = s->backend->overlay;
	int r;

	if (!s->rec.layer || s->rec.common || !overlay)
		return 0;
	r = sbx_base_sync(sbx_overlay_bases(overlay), s->rec.layer);
	return r == -ENOENT ? 0 : r;
}

int sbx_local_anchor(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	const struct sbx_state *st = &s->backend->state;
	_cleanup_free_ char *record = sbx_format("%s.json", s->rec.id);
	int r = record ? 0 : -ENOMEM;

	/* Before it is done: a record that is written meanwhile is synced by who writes it. */
	if (!r)
		r = sync_in(st->meta, record, 0);
	if (!r)
		r = sync_dir(st->meta);
	if (!r)
		r = sync_tree(s);
	if (!r && s->rec.common && s->rec.worktree && s->rec.branch)
		r = sync_worktree(&s->rec);
	if (!r)
		r = sync_base(s);
	if (!r)
		r = sync_dir(st->dir);
	if (r)
		return sbx_fail(err, -r, "what leads to %s cannot be synced: %s", s->rec.name,
		                strerror(-r));
	pthread_mutex_lock(&s->storing);
	s->rec.lasting = true;
	pthread_mutex_unlock(&s->storing);
	atomic_store(&s->base.anchored, true);
	return 0;
}
