/* What the files of a sandbox's history share. */
#ifndef SANDBOXFS_LOCAL_PAST_IMPL_H
#define SANDBOXFS_LOCAL_PAST_IMPL_H

#include <stdint.h>
#include <time.h>

#include "backends/local/past.h"

#define SBX_PAST_BRANCH "refs/heads/sandbox" /* of sandboxes that are not of git */

/* A file in DIR that holds one id. */
int sbx_past_read_id(int dir, const char *name, git_oid *ret);
int sbx_past_write_id(int dir, const char *name, const git_oid *oid);

/* The list of snapshots in the history's directory DIR: its text, which is taken line by line, and one more. */
int sbx_past_lines(int dir, char **ret);
bool sbx_past_line(char **at, git_oid *oid, int64_t *ms);
int sbx_past_add_line(int dir, const git_oid *oid, int64_t ms);
void sbx_past_drop_line(int dir, const git_oid *oid);

int sbx_past_tree_of(git_repository *repo, const git_oid *commit, git_oid *tree,
                     struct sbx_error *err);
/* The commit that the sandbox began as; for a copy of a directory it is made when it is asked for first. */
int sbx_past_base(const struct sbx_past_place *place, git_oid *ret, struct sbx_error *err);
/* The ref that keeps the snapshot OID (NULL: what all of the sandbox's begin with). malloc'd. */
char *sbx_past_ref(const struct sbx_record *rec, const git_oid *oid);

/* An index and when it was written; none there is an empty one. */
struct sbx_past_index {
	struct sbx_index index;
	struct timespec at;
	struct sbx_base_index *shared; /* whose index it is, or NULL */
};
int sbx_past_read_index(int dir, const char *name, struct sbx_past_index *ret,
                        struct sbx_error *err);
void sbx_past_index_release(struct sbx_past_index *index);
/* Where the index of the host's side is: the worktree's entry, or the history's directory. A descriptor to close. */
int sbx_past_index_dir(const struct sbx_past_place *place, struct sbx_error *err);
/* Writes it there as git does. EBUSY with a sentence: git is at work there, and has been for a second. */
int sbx_past_write_index(const struct sbx_past_place *place, const struct sbx_index *index,
                         const struct timespec *at, struct sbx_error *err);

/* Keeps the host's git from it until it has been written, or unlocked. EBUSY as above. */
int sbx_past_lock_index(const struct sbx_past_place *place, struct sbx_error *err);
void sbx_past_unlock_index(const struct sbx_past_place *place);

/* The git state of the host's side. */
struct sbx_past_head {
	char *text;      /* of HEAD, without the line's end */
	const char *ref; /* the branch that it names, in text; NULL: detached */
	git_oid oid;     /* where it stands */
	bool born;
};
int sbx_past_read_head(const struct sbx_past_place *place, git_repository *repo,
                       struct sbx_past_head *ret, struct sbx_error *err);
void sbx_past_head_release(struct sbx_past_head *head);
/* The sandbox's own branch, as a ref; malloc'd. */
char *sbx_past_branch(const struct sbx_past_place *place);
/*
 * Has REF (NULL: HEAD itself, detached) stand at NEW where it stands at OLD (NULL: wherever, or nowhere). EAGAIN: it has moved
 * meanwhile. TEXT is for the reflog.
 */
int sbx_past_move(const struct sbx_past_place *place, const char *ref, const git_oid *old,
                  const git_oid *new, const char *text, struct sbx_error *err);
/* Takes away the locks that a daemon has left which was killed while it moved something. */
void sbx_past_break_locks(const struct sbx_past_place *place);
/* Has HEAD say TEXT. */
int sbx_past_set_head(const struct sbx_past_place *place, const char *text, struct sbx_error *err);

/* A commit of TREE in REPO upon HEAD (NULL: none). Author and message as in struct sbx_snapshot_wish. */
int sbx_past_commit(git_repository *repo, const git_oid *tree, const git_oid *parent,
                    const char *message, const char *author, git_oid *ret, struct sbx_error *err);

/* Records the tree and puts a mark of it; *RET is what was recorded. */
int sbx_past_mark(const struct sbx_past_place *place, const char *name,
                  const struct sbx_past_wish *wish, struct sbx_captured *ret,
                  struct sbx_error *err);
/*
 * Takes what nothing leads to any more out of the sandbox's own repository: when there is much in it, or NOW. Nothing else may be
 * recorded meanwhile.
 */
void sbx_past_prune(const struct sbx_past_place *place, bool now);
/* What a mark says beside its tree. */
struct sbx_past_marked {
	char *head;            /* text of HEAD */
	git_oid branch, index; /* where the sandbox's branch stood; the tree of the index */
	bool has_branch, has_index;
};
int sbx_past_read_mark(git_repository *all, const git_oid *commit, struct sbx_past_marked *ret,
                       struct sbx_error *err);

/* Brings what .worktreeinclude of the source names along once more, where the sandbox was made with such files. */
int sbx_local_include_again(const struct sbx_past_place *place, struct sbx_error *err);
/* Whose the files are. */
struct sbx_identity sbx_past_owner(const struct sbx_past_place *place);
/*
 * Makes the files of the tree, which are as CAPTURED, those of the tree TO, and captured->index that of TO. REPO as opened with ALL.
 * What has to go is gone before anything is made. Files that are not recorded stay unless they are in the way.
 */
int sbx_past_apply(const struct sbx_past_place *place, git_repository *repo,
                   struct sbx_captured *captured, const git_oid *to, struct sbx_error *err);
/* Removes what lies at these paths, with all below, unless it was there when the sandbox was made. */
int sbx_past_remove(const struct sbx_past_place *place, const struct sbx_names *paths,
                    struct sbx_error *err);
/* What a sandbox that is not of git was made with and no snapshot records; a list that ends with an empty one. */
#define SBX_PAST_LEFT "left"
/* Has INDEX, which is that of the tree FROM, be that of the tree TO, without touching files. */
int sbx_past_stage(git_repository *repo, struct sbx_index *index, const git_oid *from,
                   const git_oid *to, struct sbx_error *err);
/* Writes the content of the blob OID to FD. */
int sbx_past_content(git_odb *odb, const git_oid *oid, int fd);

#endif
