/*
 * The local backend's side of private repositories (gitsync/private_repo.c): where they are kept.
 */
#include "backends/local/private_git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/worktree.h"
#include "backends/local/local_impl.h"
#include "backends/local/overlay/overlay.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/spawner.h"

char *sbx_local_git_link(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *room = sbx_format("%s/git", b->state.path);

	return room ? sbx_git_private_link(room, rec->id) : NULL;
}

void sbx_local_git_mend_entry(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *workdir = NULL;
	struct sbx_git_worktree wt;

	if (sbx_local_worktree(b, rec, &workdir, &wt))
		sbx_git_mend_entry(&wt);
}

void sbx_local_git_mend_link(const struct sbx_local *b, const struct sbx_record *rec, int root)
{
	_cleanup_free_ char *link = rec->common ? sbx_local_git_link(b, rec) : NULL;
	const struct sbx_identity *owner;

	if (!link || !sbx_file_is_blank(root, ".git") ||
	    sbx_file_replace(root, ".git", ".git.sandboxfs", link) || !rec->layer)
		return;
	owner = sbx_overlay_owner(b->overlay);
	/* Where it fails the file can be read all the same. */
	if (owner->uid != geteuid() &&
	    fchownat(root, ".git", owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return;
}

int sbx_local_git_open(const struct sbx_local *b, const struct sbx_record *rec,
                       struct sbx_git_private **ret)
{
	_cleanup_free_ char *room = sbx_format("%s/git", b->state.path);
	_cleanup_free_ char *workdir = sbx_format("%s/trees/%s", b->state.path, rec->id);
	_cleanup_free_ char *link = rec->layer ? NULL : sbx_local_git_link(b, rec);
	const struct sbx_git_worktree wt = {
	        .workdir = workdir,
	        .link = link,
	        .common = rec->common,
	        .worktree = rec->worktree,
	        .branch = rec->branch,
	        .base = rec->base,
	        .branch_created = rec->branch_created,
	};

	*ret = NULL;
	if (!wt.common || !wt.worktree || !wt.branch)
		return 0;
	return room && workdir ? sbx_git_private_open(&wt, room, rec->id, ret) : -ENOMEM;
}

static bool is_idle(void *data)
{
	const struct sbx_local_sandbox *s = data;
	struct sbx_spawner *sp = s->backend->host->spawner;

	return !sp || !sbx_spawner_runs(sp, s->base.id);
}

int sbx_local_git_sync(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	struct sbx_git_idle idle = {.still = is_idle, .data = s};

	/* Before it is asked: who starts after that has locks that are younger. */
	clock_gettime(CLOCK_REALTIME_COARSE, &idle.since);
	return sbx_git_private_sync(s->git, is_idle(s) ? &idle : NULL, err);
}
