/* Where the local backend keeps what git_private.c works on. */
#include <errno.h>
#include <stdlib.h>

#include "backends/local/local_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

char *sbx_local_git_link(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *room = sbx_format("%s/git", b->state.path);

	return room ? sbx_git_private_link(room, rec->id) : NULL;
}

int sbx_local_git_open(const struct sbx_local *b, const struct sbx_record *rec,
                       struct sbx_git_private **ret)
{
	_cleanup_free_ char *room = sbx_format("%s/git", b->state.path);
	const struct sbx_git_worktree wt = {
	        .common = rec->common,
	        .worktree = rec->worktree,
	        .branch = rec->branch,
	        .base = rec->base,
	        .branch_created = rec->branch_created,
	};

	*ret = NULL;
	if (!wt.common || !wt.worktree || !wt.branch)
		return 0;
	return room ? sbx_git_private_open(&wt, room, rec->id, ret) : -ENOMEM;
}
