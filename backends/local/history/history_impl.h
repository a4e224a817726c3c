/* Declarations that the files of a sandbox's history share. */
#ifndef SANDBOXFS_LOCAL_HISTORY_HISTORY_IMPL_H
#define SANDBOXFS_LOCAL_HISTORY_HISTORY_IMPL_H

#include <stdint.h>
#include <time.h>

#include "backends/local/history/history.h"

#define SBX_LOCAL_HISTORY_BRANCH "refs/heads/sandbox" /* of sandboxes that are not of git */

/* The commit that the sandbox began as; for a copy of a directory it is made when it is asked for
 * first. */
int sbx_local_history_base(const struct sbx_snapshot_context *context, git_oid *ret,
                           struct sbx_error *err);

/* A commit of TREE in REPO upon HEAD (NULL: none). Author and message as in struct
 * sbx_snapshot_options. */
int sbx_local_history_commit(git_repository *repo, const git_oid *tree, const git_oid *parent,
                             const char *message, const char *author, git_oid *ret,
                             struct sbx_error *err);

/*
 * Remembers what CAPTURED has read of the tree, so that it need not be read again. All of it has
 * reached the disk: else a power cut would leave what is believed to be there and is not.
 */
void sbx_local_history_keep_seen(const struct sbx_snapshot_context *context,
                                 const struct sbx_captured *captured);
/* Records the tree and puts a mark of it; *RET is what was recorded. */
int sbx_local_history_mark(const struct sbx_snapshot_context *context, const char *name,
                           const struct sbx_local_history_options *options,
                           struct sbx_captured *ret, struct sbx_error *err);
/*
 * Takes what nothing leads to any more out of the sandbox's own repository: when there is much in
 * it, or NOW. Nothing else may be recorded meanwhile.
 */
void sbx_local_history_prune(const struct sbx_snapshot_context *context, bool now);
/* The parts of a mark beside its tree. */
struct sbx_local_history_marked {
	char *head;            /* text of HEAD */
	git_oid branch, index; /* where the sandbox's branch stood; the tree of the index */
	git_oid exact;         /* a tree of what is in struct sbx_local_history_exacts */
	bool has_branch, has_index, has_exact;
	bool clean;  /* what was not recorded went as well */
	char *aside; /* name of the directory of what went; or NULL */
};
/* Reads the mark that is the commit COMMIT. Release *ret. 0 or -errno with a sentence. */
int sbx_local_history_read_mark(git_repository *all, const git_oid *commit,
                                struct sbx_local_history_marked *ret, struct sbx_error *err);
/* Frees what *MARKED owns. */
void sbx_local_history_marked_release(struct sbx_local_history_marked *marked);

/*
 * A file whose permissions are neither 0644 nor 0755, or whose bytes are not what git records of
 * it.
 */
struct sbx_local_history_exact {
	char *path;
	uint32_t mode;
	git_oid oid;
};
/* Sorted by path. */
struct sbx_local_history_exacts {
	struct sbx_local_history_exact *at;
	size_t n, cap;
};
/* Those that the tree TREE lists, of a mark. */
int tree_exact_read(git_repository *all, const git_oid *tree, struct sbx_local_history_exacts *ret,
                    struct sbx_error *err);
/* Frees the list with its paths. */
void tree_exact_release(struct sbx_local_history_exacts *list);

/* Opens SBX_CAPTURE_TEMP in the tree ROOT, made where it is missing. A descriptor or -errno. */
int sbx_local_history_temp_open(int root);
/* Removes it with all in it. 0, also when there is none, or a negative errno with a sentence. */
int sbx_local_history_temp_remove(int root, struct sbx_error *err);
/* Gives the owner of DIR, a directory, all permissions, unless we may HOW (access(2)) already. */
void sbx_local_history_make_accessible(int dir, int how);

/* The lower layer of a layered tree, a descriptor to close, or -errno. */
int sbx_local_history_lower_tree(const struct sbx_snapshot_context *context);

struct sbx_aside;
/* How files are changed. All may be NULL. */
struct sbx_local_history_apply {
	struct sbx_aside *aside;      /* receives what goes or is replaced; else that is lost */
	const struct sbx_aside *from; /* what is in it is not made: it is given back later */
	const struct sbx_local_history_exacts *exact;
	const struct sbx_local_history_exacts
	        *was; /* of the files as they are, when they are to be those of a mark */
};
/*
 * Makes the files of the tree, which are as CAPTURED, those of the tree TO, and captured->index
 * that of TO. REPO as opened with ALL. What has to go is gone before anything is made. Files that
 * are not recorded stay unless they are in the way. HOW may be NULL.
 */
int sbx_local_history_apply(const struct sbx_snapshot_context *context, git_repository *repo,
                            struct sbx_captured *captured, const git_oid *to,
                            const struct sbx_local_history_apply *how, struct sbx_error *err);
/* Takes what lies at these paths, with all below, unless it was there when the sandbox was made. */
int sbx_local_history_remove(const struct sbx_snapshot_context *context,
                             const struct sbx_strings *paths, struct sbx_aside *aside,
                             struct sbx_error *err);
/* Takes out of PATHS what was there when the sandbox was made. */
void sbx_local_history_drop_left(const struct sbx_snapshot_context *context,
                                 struct sbx_strings *paths);
/*
 * Makes the repositories that a layered copy of a directory was made with what they were then, but
 * for those of which the tree TREE or REPOS (may be closed) has something. A receives what goes.
 */
int sbx_local_history_give_lower(const struct sbx_snapshot_context *context, git_repository *repo,
                                 const git_oid *tree, const struct sbx_aside *repos,
                                 struct sbx_aside *a);
/*
 * The list of paths that a sandbox that is not of git was made with and no snapshot records; it
 * ends with an empty one.
 */
#define SBX_LOCAL_HISTORY_LEFT "left"
/* Has INDEX, which is that of the tree FROM, be that of the tree TO, without touching files. */
int sbx_local_history_stage(git_repository *repo, struct sbx_index *index, const git_oid *from,
                            const git_oid *to, struct sbx_error *err);

#endif
