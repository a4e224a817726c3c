/* The host's side of the git state: HEAD, the branch, the index. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_HISTORY_GIT_STATE_H
#define SANDBOXFS_BACKENDS_LOCAL_HISTORY_GIT_STATE_H

#include "backends/local/history/history_impl.h"

/* An index and when it was written; none there is an empty one. */
struct sbx_local_history_index {
	struct sbx_index index;
	struct timespec at;
	struct sbx_base_index *shared; /* whose index it is, or NULL */
};
/*
 * Reads the index NAME in the directory DIR, for sbx_local_history_index_release; none there is an
 * empty one. 0 or -errno with a sentence.
 */
int sbx_local_history_read_index(int dir, const char *name, struct sbx_local_history_index *ret,
                                 struct sbx_error *err);
/* Frees the index, or gives the shared one back. */
void sbx_local_history_index_release(struct sbx_local_history_index *index);
/* Where the index of the host's side is: the worktree's entry, or the history's directory. A
 * descriptor to close. */
int sbx_local_history_index_dir(const struct sbx_snapshot_context *context, struct sbx_error *err);
/* Writes it there as git does. EBUSY with a sentence: git is at work there, and has been for a
 * second. */
int sbx_local_history_write_index(const struct sbx_snapshot_context *context,
                                  const struct sbx_index *index, const struct timespec *at,
                                  struct sbx_error *err);
/* The same in two steps: put, or sbx_local_history_unlock_index(), follows on take. */
int sbx_local_history_take_index(const struct sbx_snapshot_context *context,
                                 const struct sbx_index *index, const struct timespec *at,
                                 struct sbx_error *err);
/* Puts the index of sbx_local_history_take_index in its place and gives the lock back. 0 or -errno.
 */
int sbx_local_history_put_index(const struct sbx_snapshot_context *context, struct sbx_error *err);

/* Keeps the host's git from it until it has been written, or unlocked. EBUSY as above. */
int sbx_local_history_lock_index(const struct sbx_snapshot_context *context, struct sbx_error *err);
/* Gives the lock of sbx_local_history_lock_index or sbx_local_history_take_index back; the index
 * stays as it was. */
void sbx_local_history_unlock_index(const struct sbx_snapshot_context *context);

/* The git state of the host's side. */
struct sbx_local_history_head {
	char *text;      /* of HEAD, without the line's end */
	const char *ref; /* the branch that it names, in text; NULL: detached */
	git_oid oid;     /* where it stands */
	bool born;
};
/*
 * Reads HEAD of the host's side; REPO tells where its branch stands. Release *ret. 0 or -errno
 * with a sentence: EINVAL, HEAD names nothing.
 */
int sbx_local_history_read_head(const struct sbx_snapshot_context *context, git_repository *repo,
                                struct sbx_local_history_head *ret, struct sbx_error *err);
/* Frees head->text, and with it head->ref. */
void sbx_local_history_head_release(struct sbx_local_history_head *head);
/*
 * Has REF (NULL: HEAD itself, detached) stand at NEW where it stands at OLD (NULL: wherever, or
 * nowhere). EAGAIN: it has moved meanwhile. TEXT is for the reflog.
 */
int sbx_local_history_move(const struct sbx_snapshot_context *context, const char *ref,
                           const git_oid *old, const git_oid *new, const char *text,
                           struct sbx_error *err);
/* Takes away the locks that a daemon has left which was killed while it moved something. */
void sbx_local_history_break_locks(const struct sbx_snapshot_context *context);
/* Has HEAD say TEXT. */
int sbx_local_history_set_head(const struct sbx_snapshot_context *context, const char *text,
                               struct sbx_error *err);

#endif
