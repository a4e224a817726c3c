/*
 * Declarations that private_repo.c (the directory, and when to look), sync_*.c and reattach.c
 * (the work) share.
 */
#ifndef SANDBOXFS_LOCAL_GITSYNC_SYNC_IMPL_H
#define SANDBOXFS_LOCAL_GITSYNC_SYNC_IMPL_H

#include <git2.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backends/git/import_objects.h"
#include "backends/git/index.h"
#include "backends/git/object_reader.h"
#include "backends/git/refs.h"
#include "backends/git/watch.h"
#include "backends/local/gitsync/private_repo.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

#define SBX_GIT_HEAD_MAX   4096
#define SBX_GIT_ALTERNATES 8 /* object directories of the source, its own first */

/* Zero: unknown. */
struct sbx_index_end {
	uint64_t size;
	unsigned char sum[20];
	unsigned char pad[4];
};

struct sbx_git_private {
	struct sbx_git_worktree wt;
	char *room, *id;
	char *repo; /* as the daemon reaches it: ROOM/ID/repo, or on the disk */
	char *seen; /* as commands do: ROOM/ID/repo */
	int disk;   /* its root, or -1 */
	char *workdir;
	bool flat; /* workdir/.git is a file that host git reaches */
	char *objects[SBX_GIT_ALTERNATES + 1];
	const char *shown[2];
	atomic_bool ready; /* repo is there, objects and shown are set */
	pthread_mutex_t lock;
	struct sbx_git_watch watch; /* lock */
	struct sbx_error said;      /* by the last sync */
	bool locked;                /* a command's git had, or had left, something locked */
	bool remade;                /* the last sync had to make the worktree's entry again */
	bool apart;                 /* after it refs did not agree, for that reason */
	bool behind;                /* nor did the source have all that is inside */
	bool left;                  /* nor is it to: there is too much of it */
	bool lacks;                 /* nor had inside all that the source shows it */
	size_t own_index;       /* bytes that are the host's own, of its index; 0: not read yet */
	_Atomic uint64_t until; /* a sync gives up then, as struct sbx_git_taken has it; 0: never */
	struct timespec quiet; /* the last sync with no command alive: files may have changed unseen
	                          since */
	struct sbx_index_end ends[2]; /* of the indexes that agreed: the host's, the one inside */
};

/* One pass of a sync. All zero, and descriptors -1, where not known. */
struct sbx_sync {
	struct sbx_git_private *p;
	git_repository *source;
	int meta, repo, entry,
	        objects; /* STATE/git/ID, its repo, the worktree's entry, repo/objects */
	int index_lock; /* of the index inside, held from moving what is checked out there to moving
	                   that */
	struct sbx_git_reader *reader;
	struct sbx_git_taken taken; /* in the sandbox's life, but for the number of objects */
	uint64_t taken_before;      /* as STATE/git/ID/taken says it */
	/* What was agreed, and what stands on either side. */
	char *head_base, *head_host, *head_inside;
	struct sbx_seen seen_host, seen_inside; /* the files of these HEADs */
	struct sbx_refs refs_base, refs_host, refs_inside;
	/*
	 * This sandbox's refs/sandboxfs/ in the source; what of that this sandbox has put there;
	 * what it is to have there now; and has.
	 */
	struct sbx_refs kept, kept_base, kept_want, kept_now;
	/* What the sandbox is to have now, and what is agreed now. */
	struct sbx_refs want, agreed;
	struct sbx_strings apart_from; /* branches of sandboxes whose work is theirs alone */
	char *head_agreed;
	bool moved;            /* something was changed */
	bool doubted;          /* the host's index is to say less of files than it does */
	bool sure;             /* it says nothing that is doubted */
	bool lacks;            /* inside has not all that refs of the source lead to: they wait */
	bool apart;            /* refs do not agree */
	bool behind;           /* commits from inside did not get to the source */
	bool left;             /* nor will they, as there are too many */
	struct sbx_error *err; /* the first that kept both from agreeing */
	int code;
};

/* Notes what keeps the sides from agreeing (the first counts) and goes on. */
void sbx_sync_note(struct sbx_sync *y, int code, const struct sbx_error *err);
/* Notes what stays inside as there is too much of it; what is brought over agrees all the same. */
void sbx_sync_leave(struct sbx_sync *y, const struct sbx_error *err);
/* Reads both sides' refs and HEADs, decides, carries over. 0, or what makes going on useless. */
int sbx_sync_refs(struct sbx_sync *y);
/*
 * The branch, as a ref, that the text of a HEAD names; it points into HEAD. NULL: HEAD is
 * detached.
 */
const char *sbx_sync_branch_of(const char *head);
/* Whether the text of a HEAD (may be NULL) is the id of a commit; that is *RET then. */
bool sbx_sync_commit_of(const char *head, git_oid *ret);
/* Whether both ids are equal, or both absent (NULL). */
static inline bool sbx_sync_same(const git_oid *a, const git_oid *b)
{
	return !a ? !b : b && git_oid_equal(a, b);
}
/* Brings an object of TYPE over to the source's store. As sbx_git_export. */
int sbx_sync_take(struct sbx_sync *y, const git_oid *oid, git_object_t type, struct sbx_error *err);
/* Brings a commit over to the source; what kept it from that is noted. 0 or -errno. */
int sbx_sync_export(struct sbx_sync *y, const git_oid *oid);
/*
 * The ref NAME of the source becomes NEW where it still is OLD (NULL: not there); what kept it from
 * that is noted. 0 or negative.
 */
int sbx_sync_swap(struct sbx_sync *y, const char *name, const git_oid *old, const git_oid *new);
/*
 * Makes the ref refs/sandboxfs/KIND/ID/REST in the source (REST NULL: without) for a commit that
 * only the sandbox has. 0 or -errno.
 */
int sbx_sync_keep(struct sbx_sync *y, const char *kind, const char *rest, const git_oid *oid);
/*
 * Part of sbx_sync_refs: reads what this sandbox has in refs/sandboxfs/ of the source. 0 or -errno.
 */
int sbx_sync_read_kept(struct sbx_sync *y);
/*
 * Part of sbx_sync_refs, once both sides were read and before anything is brought over: keeps
 * stashes, and commits that no branch names. 0 or -errno.
 */
int sbx_sync_want_kept(struct sbx_sync *y);
/*
 * The same, when all was decided: brings to the source what is to be kept, and takes back what the
 * sandbox has no more. 0 or -errno.
 */
int sbx_sync_bring_kept(struct sbx_sync *y);
/*
 * Before what is checked out inside becomes another commit: keeps commands' git from the index,
 * which has to follow, until the pass has ended. 0, -EBUSY, -errno.
 */
int sbx_sync_hold_index(struct sbx_sync *y);
/* HEAD of either side, resolved: false when it names no commit. After sbx_sync_refs. */
bool sbx_sync_tips(struct sbx_sync *y, git_oid *host, git_oid *inside);
/* Brings the index over, where both stand on the same commit. */
void sbx_sync_index(struct sbx_sync *y);
/* Makes the worktree's ENTRY in the source again, which is gone, and the branch if that is. 0 or
 * -errno with a sentence. */
int sbx_sync_reattach(struct sbx_sync *y, const char *entry);
/* Locks the worktree's entry against `git worktree prune` and remove, should somebody have unlocked
 * it. */
int sbx_sync_lock_entry(struct sbx_sync *y);
/* Puts right what `git worktree repair` of the host writes to workdir/.git: there commands find
 * their repository. */
void sbx_sync_mend_link(struct sbx_sync *y);
/* Opens the reader of the private objects. */
int sbx_sync_reader(struct sbx_sync *y);

#endif
