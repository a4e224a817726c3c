/*
 * Lock files that libgit2 leaves when the daemon is killed while it writes. They hold for us and
 * for the host's git, so every later snapshot, teardown or `git branch -d` would fail. Recovery
 * breaks them after a daemon that did not end in order.
 *
 * A lock is broken once it is a quarter of a second old, that of packed-refs after a second; the
 * call waits for that. A lock made before SINCE, when that daemon began, is somebody else's and
 * stays.
 */
#ifndef SANDBOXFS_GIT_STALE_LOCKS_H
#define SANDBOXFS_GIT_STALE_LOCKS_H

#include <stdbool.h>
#include <time.h>

#include "backends/git/repository.h"

/* Of the refs of ours in the repository COMMON, and of its list of packed refs. */
void sbx_git_break_locks(const char *common, const struct timespec *since);
/*
 * Of what one sandbox changes besides: its branch, what a push has noted of that. In its
 * worktree's entry, where git of the host is at work too, those that are older than the machine's
 * start.
 */
void sbx_git_break_own_locks(const struct sbx_git_worktree *wt, const struct timespec *since);
/*
 * The last time at which a command of the sandbox may have run. None that was alive at SINCE, a
 * reading of CLOCK_REALTIME_COARSE, is alive; STILL says whether none is now, NULL: it is so.
 */
struct sbx_git_idle {
	struct timespec since;
	bool (*still)(void *data);
	void *data;
};

/*
 * Removes the locks in REPO, the repository of a sandbox's commands, whose git is gone. IDLE NULL:
 * a command may be alive. Returns whether locks are left.
 */
bool sbx_git_clear_inside(int repo, const struct sbx_git_idle *idle);

#endif
