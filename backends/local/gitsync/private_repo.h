/*
 * The git directory of a sandbox's own. Commands write to STATE/git/ID/repo only, which borrows the
 * objects of the source; host git goes by the source's worktree entry. What moved on one side is
 * brought to the other by the daemon, before a command starts and after it has ended.
 *
 *   STATE/git/ID/repo/   what commands see: nothing in it is believed
 *   STATE/git/ID/        head refs kept index: what both sides last agreed on, out of their reach
 *   STATE/git/ID/taken   how many bytes of objects the source has taken over
 *
 * Two sides move independently, so each part is compared with what was agreed: what only one side
 * moved the other gets; where both moved, neither is lost. The branch goes forward where one
 * contains the other; else both stay, the sandbox's under refs/sandboxfs/diverged/ID in the source
 * and the source's as refs/remotes/host/BRANCH inside, until either side has merged the other. ID
 * is the name of the worktree's entry.
 */
#ifndef SANDBOXFS_LOCAL_GITSYNC_PRIVATE_REPO_H
#define SANDBOXFS_LOCAL_GITSYNC_PRIVATE_REPO_H

#include <stdbool.h>

#include "backends/git/repository.h"
#include "backends/git/stale_locks.h"

struct sbx_git_private;

/*
 * Strings of WT are borrowed, but workdir is copied, as is ROOM, the path of STATE/git; link NULL:
 * the tree's .git is not in workdir. Makes nothing on disk: the first sync does. 0 or -ENOMEM.
 */
int sbx_git_private_open(const struct sbx_git_worktree *wt, const char *room, const char *id,
                         struct sbx_git_private **ret);
/*
 * Before the first sync: what commands see as STATE/git/ID/repo is git/repo on DISK, a directory
 * that is borrowed. 0 or -errno.
 */
int sbx_git_private_use_disk(struct sbx_git_private *p, int disk);
/*
 * The repository's files are not needed any more: P keeps nothing of the disk from going. Any
 * thread.
 */
void sbx_git_private_leave_disk(struct sbx_git_private *p);
void sbx_git_private_close(struct sbx_git_private *p); /* accepts NULL */
/* The line that the tree's .git consists of, so that commands find their repository; malloc'd. */
char *sbx_git_private_link(const char *room, const char *id);

/* Whether commands have ever had a repository of their own here, under this daemon or another. Any
 * thread. */
bool sbx_git_private_made(struct sbx_git_private *p);
/* Whether a sync might find something. A few stats; any thread, also while one runs. */
bool sbx_git_private_stale(struct sbx_git_private *p);
/* The same of what commands may have done: what the host did meanwhile does not count. */
bool sbx_git_private_moved_inside(struct sbx_git_private *p);
/*
 * Makes both sides agree, as far as they can. 0, or a negative errno with a sentence:
 * EEXIST both sides moved apart, else what kept it from agreeing (damaged objects, a lock that is
 * held, a full disk). The same sentence is not given twice in a row: 0. Blocks; not for one sandbox
 * at once. IDLE NULL: a command may be alive.
 */
int sbx_git_private_sync(struct sbx_git_private *p, const struct sbx_git_idle *idle,
                         struct sbx_error *err);
/*
 * A sync that goes on gives up MS milliseconds from now (EBUSY), as do others; 0: none does any
 * more. Any thread.
 */
void sbx_git_private_hurry(struct sbx_git_private *p, unsigned ms);
/* Whether a command's git has the index inside locked, now. Any thread. */
bool sbx_git_private_locked(struct sbx_git_private *p);
/*
 * The reason why refs or HEAD did not agree in the last sync, which has ended: 0 none, else a
 * negative errno with its sentence.
 */
int sbx_git_private_apart(const struct sbx_git_private *p, struct sbx_error *err);
/*
 * The same of commits that did not get to the source and may yet, when what kept them (a lock, a
 * full disk) has passed; with ALL also of those that it does not take.
 */
int sbx_git_private_behind(const struct sbx_git_private *p, bool all, struct sbx_error *err);
/* The paths that commands may read, NULL-terminated. Empty before the first sync. Any thread. */
const char *const *sbx_git_private_ro(struct sbx_git_private *p);
/* The paths that commands may write to. As sbx_git_private_ro. */
const char *const *sbx_git_private_rw(struct sbx_git_private *p);

#endif
