/*
 * The history of a sandbox: snapshots of its tree, diffs between two of them, restores.
 *
 * A state of the tree is named by a REV, a string:
 *   NULL        as it is now
 *   "base"      as it was at creation
 *   ID          as the snapshot ID recorded it: what snapshot answered, or four or more of its
 *               first digits
 *   "mark:M"    as the mark M recorded it
 *
 * A snapshot is a commit on the sandbox's branch, which its user sees. A mark is for the daemon's
 * own use (before and after a job, before a restore): nobody sees it, and it goes with the
 * sandbox.
 *
 * Calls are marked as in sandbox.h.
 */
#ifndef SANDBOXFS_HISTORY_H
#define SANDBOXFS_HISTORY_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"
#include "sandboxfs/sandbox.h"

#define SBX_REV_MAX 80 /* bytes of a REV, with its NUL */

/* Options of a snapshot or a mark. Strings are borrowed; NULL members take the default. */
struct sbx_snapshot_options {
	const char *mark; /* name of the mark, which replaces one of that name; NULL: a snapshot */
	/* NULL or empty: "snapshot-", and twelve digits of its tree and the time. */
	const char *message;
	/* "Name <mail>"; NULL: who commits on the host, else "sandboxfs <sandboxfs@localhost>". */
	const char *author;
	bool ignored;           /* also the files that the ignore rules name */
	atomic_bool *cancelled; /* polled: -EINTR and nothing is recorded; may be NULL */
};

/* One snapshot, as listed: borrowed during the call. */
struct sbx_snapshot {
	const char *id;      /* hexadecimal */
	const char *message; /* UTF-8, its first line */
	int64_t time_ms;     /* CLOCK_REALTIME */
};

/* A file, link or directory of a snapshot. */
struct sbx_object {
	char id[SBX_REV_MAX]; /* the same id is the same content; "" of a submodule */
	uint32_t mode;        /* S_IFREG | 0644 or 0755, S_IFLNK | 0777, S_IFDIR | 0755 */
	uint64_t size;        /* bytes; 0 for directories */
};

enum sbx_diff_format {
	SBX_DIFF_PATCH, /* unified, a/ and b/, binary content included, as `git apply` takes it */
	/* A line each: A, M, D, T or Rnnn, a tab, the path, and for R a tab and the new path. Odd
	 * paths are quoted as git does it. */
	SBX_DIFF_NAMES,
};

struct sbx_diff_options {
	const char *from, *to; /* REVs */
	enum sbx_diff_format format;
	atomic_bool *cancelled; /* as above */
};

/* All are mandatory. */
struct sbx_history_impl {
	/*
	 * [pool] Records the tree; while commands run, each file as it is when it is passed. ID is
	 * the snapshot's, or the mark's "mark:M". It is allowed when nothing has changed, and its
	 * cost grows with what has. A snapshot moves what HEAD names, as a commit does. EBUSY: a
	 * merge is unfinished, or the host's git is at work there. EEXIST: git state in conflict.
	 * ENOSPC, EINTR.
	 */
	int (*snapshot)(struct sbx_sandbox *sb, const struct sbx_snapshot_options *options,
	                char id[SBX_REV_MAX], struct sbx_error *err);
	/* [pool] Forgets the mark NAME; success when there is none. */
	int (*forget)(struct sbx_sandbox *sb, const char *name, struct sbx_error *err);
	/* [disk] Calls fn for each snapshot, oldest first; ends as sbx_backend_impl.trash does. */
	int (*list)(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
	            void *data, struct sbx_error *err);
	/*
	 * [pool] Makes the tree what REV was; no command runs meanwhile.
	 *   "base", ID  git state as well: HEAD is the sandbox's branch, which stands there, the
	 *               index agrees, what git had begun is over, and the tree is clean
	 *   "base"      also removes what the ignore rules name, and brings what .worktreeinclude
	 *               names once more
	 *   "mark:M"    the files, HEAD, the branch and what was staged, as they were then
	 * What the tree was before, but for ignored files, stays in the mark "restore". CANCELLED
	 * counts until the first file is changed. A restore that is killed after that is completed
	 * by recover. ENOENT: no such REV. EBUSY: the host's git is at work there.
	 */
	int (*restore)(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
	               struct sbx_error *err);
	/* [pool] Writes what differs to FD as it is found. ENOENT no such REV. */
	int (*diff)(struct sbx_sandbox *sb, const struct sbx_diff_options *options, int fd,
	            struct sbx_error *err);

	/*
	 * [disk] The tree of REV, which is not NULL. EBUSY: "base" is not recorded yet, which the
	 * first snapshot, restore or diff does.
	 */
	int (*tree)(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
	            struct sbx_error *err);
	/* [disk] The entry NAME of the directory whose id is DIR. ENOENT. */
	int (*entry)(struct sbx_sandbox *sb, const char *dir, const char *name,
	             struct sbx_object *ret);
	/* [disk] Calls fn for each entry of it, in git's order; ends as list does. */
	int (*entries)(struct sbx_sandbox *sb, const char *dir,
	               int (*fn)(const char *name, const struct sbx_object *o, void *data),
	               void *data);
	/* [pool] Writes to FD the content of the file, or the target of the link, named ID. */
	int (*content)(struct sbx_sandbox *sb, const char *id, int fd);
};

/*
 * 0 when REV can name a state, not that it does: "base", "mark:" and [A-Za-z0-9._-]+, or 4 to 64
 * hexadecimal digits; else -EINVAL.
 */
int sbx_rev_check(const char *rev, struct sbx_error *err);

/* Whether there is a table. [any] */
static inline bool sbx_has_history(const struct sbx_sandbox *sb)
{
	return sb->impl->history != NULL;
}

/*
 * [pool] As the member. -EOPNOTSUPP without a table; -EINVAL where options->mark is no name of a
 * mark.
 */
int sbx_history_snapshot(struct sbx_sandbox *sb, const struct sbx_snapshot_options *options,
                         char id[SBX_REV_MAX], struct sbx_error *err);
/* [pool] As the member. -EOPNOTSUPP without a table; -EINVAL where NAME is no name of a mark. */
int sbx_history_forget(struct sbx_sandbox *sb, const char *name, struct sbx_error *err);
/* [disk] As the member. *S is borrowed during the call of fn. -EOPNOTSUPP without a table. */
int sbx_history_list(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
                     void *data, struct sbx_error *err);
/*
 * [pool] As the member; REV is not NULL. -EOPNOTSUPP without a table; -EINVAL where REV is
 * malformed.
 */
int sbx_history_restore(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
                        struct sbx_error *err);
/*
 * [pool] As the member; FD stays the caller's. -EOPNOTSUPP without a table; -EINVAL where
 * options->from or options->to is malformed.
 */
int sbx_history_diff(struct sbx_sandbox *sb, const struct sbx_diff_options *options, int fd,
                     struct sbx_error *err);
/* [disk] As the member. -EOPNOTSUPP without a table; -EINVAL where REV is malformed. */
int sbx_history_tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                     struct sbx_error *err);

/*
 * [disk] As the member; -EOPNOTSUPP without a table. DIR is an id that tree, entry or entries
 * gave.
 */
static inline int sbx_history_entry(struct sbx_sandbox *sb, const char *dir, const char *name,
                                    struct sbx_object *ret)
{
	return sbx_has_history(sb) ? sb->impl->history->entry(sb, dir, name, ret) : -EOPNOTSUPP;
}

/*
 * [disk] As the member; -EOPNOTSUPP without a table. NAME and O are borrowed during the call of
 * fn.
 */
static inline int
sbx_history_entries(struct sbx_sandbox *sb, const char *dir,
                    int (*fn)(const char *name, const struct sbx_object *o, void *data), void *data)
{
	return sbx_has_history(sb) ? sb->impl->history->entries(sb, dir, fn, data) : -EOPNOTSUPP;
}

/* [pool] As the member; -EOPNOTSUPP without a table. FD stays the caller's. */
static inline int sbx_history_content(struct sbx_sandbox *sb, const char *id, int fd)
{
	return sbx_has_history(sb) ? sb->impl->history->content(sb, id, fd) : -EOPNOTSUPP;
}

#endif
