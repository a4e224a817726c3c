/*
 * Taking a sandbox down in steps that each succeed when there is nothing left to do, so that
 * teardown, roll back and recovery are the same code started from different places. The record goes
 * last.
 */
#include "backends/local/teardown.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/git/spare.h"
#include "backends/git/worktree.h"
#include "backends/local/history/history.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/programs.h"
#include "backends/local/trash/removed.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define UNDO_TRIES    100
#define UNDO_PAUSE_NS 10000000

bool sbx_local_worktree(const struct sbx_local *b, const struct sbx_record *rec, char **workdir,
                        struct sbx_git_worktree *ret)
{
	if (!rec->common || !rec->worktree || !rec->branch || !rec->base)
		return false;
	*workdir = sbx_format("%s/trees/%s", b->state.path, rec->id);
	*ret = (struct sbx_git_worktree){
	        .common = rec->common,
	        .worktree = rec->worktree,
	        .workdir = *workdir,
	        .branch = rec->branch,
	        .base = rec->base,
	        .branch_created = rec->branch_created,
	};
	return *workdir != NULL;
}

static int detach(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_free_ char *workdir = NULL;
	struct sbx_git_worktree wt;
	int r;

	if (!sbx_local_worktree(b, rec, &workdir, &wt))
		return 0;
	r = sbx_git_detach(&wt, err);
	if (!r)
		sbx_programs_gone(b->programs);
	return r;
}

int sbx_local_retire(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err)
{
	int r;

	rec->state = SBX_RECORD_DELETING;
	/*
	 * On a full disk this fails, and removing things must work there of all places: a
	 * record whose tree has left trees/ means the same to recovery.
	 */
	sbx_record_store(b->state.meta, rec);
	r = sbx_state_trash(&b->state, rec->id, err);
	if (r)
		return r;
	/* What cannot be taken back now (a source that is read-only or locked) remove tries again.
	 */
	detach(b, rec, NULL);
	return 0;
}

int sbx_local_remove(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err)
{
	const struct sbx_snapshot_context place = {.b = b, .rec = rec, .root = -1, .disk = -1};
	int r = detach(b, rec, err);

	if (!r)
		r = sbx_local_history_forget(&place, err);
	if (!r && rec->keep)
		r = sbx_local_removed_prepare(b, rec, err);
	if (rec->layer && b->overlay)
		sbx_overlay_forget(b->overlay, rec);
	if (!r && rec->keep)
		r = sbx_local_removed_take(b, rec, err);
	if (!r)
		r = sbx_state_erase(&b->state, rec->id, err);
	if (r)
		return r;
	r = sbx_record_unlink(b->state.meta, rec->id);
	return r ? sbx_fail(err, -r, "cannot remove the record of %s: %s", rec->id, strerror(-r))
	         : 0;
}

static bool is_short(int r)
{
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM;
}

/*
 * Tries again while memory or descriptors are short. The create itself had as much, so others
 * have it now, and give it back soon. If they do not, the record tells recovery.
 */
int sbx_local_undo(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err)
{
	const struct timespec pause = {.tv_nsec = UNDO_PAUSE_NS};
	int r = -EMFILE;

	for (int i = 0; i < UNDO_TRIES && is_short(r); i++) {
		if (i) {
			sbx_git_spares_drop(b->spares);
			nanosleep(&pause, NULL);
		}
		sbx_state_trash(&b->state, rec->id, NULL);
		r = sbx_local_remove(b, rec, err);
	}
	return r;
}
