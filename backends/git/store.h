/*
 * The store of a source: objects that only work of sandboxes leads to, which other sandboxes are
 * not to read.
 *
 *   SOURCE/.git/sandboxfs/objects/   loose objects, as git has them
 *   SOURCE/.git/sandboxfs/begun      where refs of the source stood when the store was made
 *   SOURCE/.git/sandboxfs/whole      where refs of the source stood when nothing that they lead to
 *                                    was in the store
 *   SOURCE/.git/sandboxfs/branches   made for sandboxes, a line each, that are seen by none but
 * these
 *
 * SOURCE/.git/objects/info/alternates names it, so git and libgit2 find in it what refs lead to,
 * and `git gc`, which leaves alternates alone, packs and prunes nothing of it. No sandbox is shown
 * it. What the source's own refs come to lead to is moved to the source's objects: the host merges
 * the work of a sandbox, or its git writes a commit without a file that the store has already.
 *
 * Functions are thread-safe for distinct handles; several daemons may use one store.
 */
#ifndef SANDBOXFS_GIT_STORE_H
#define SANDBOXFS_GIT_STORE_H

#include <git2.h>
#include <stdbool.h>

#include "backends/git/refs.h"

struct sbx_git_tips;

/* Of an entry of alternates, made absolute, whether it is the store of a source. */
bool sbx_git_store_is(const char *objects);
/* The directory of its objects: a descriptor to close, or -errno; ENOENT: there is none yet. */
int sbx_git_store_open(const char *common);
/* Whether the store at FD, which may be negative, has OID. */
bool sbx_git_store_has(int fd, const git_oid *oid);
/*
 * Renews the age of OID in the store at FD, because it is going to be referred to again and must
 * not be pruned meanwhile.
 */
void sbx_git_store_touch(int fd, const git_oid *oid);
/* Adds all that it has, sorted: where more is to be looked up than it may have. 0 or -errno. */
int sbx_git_store_list(int fd, struct sbx_git_tips *ret);
/* Whether SORTED has OID. */
bool sbx_git_store_lists(const struct sbx_git_tips *sorted, const git_oid *oid);

/*
 * From here on what is written by the handle REPO goes to the store, which is made where it is
 * missing, and is found there. 0 or libgit2's code.
 */
int sbx_git_store_use(git_repository *repo);
/*
 * Makes the directories that its objects go to where there is a store, so that nobody who writes
 * one has to. Best effort.
 */
void sbx_git_store_spread(const char *common);
/* The objects of the source itself, without the store. The same. */
int sbx_git_store_without(const char *common, git_odb **ret);
/*
 * Has ODB, of a repository that borrows from COMMON, find what is in the store, also in one made
 * later. The same.
 */
int sbx_git_store_see(git_odb *odb, const char *common);

/*
 * Moves to the source's own objects what REFS of it lead to. What cannot be read, or moved, stays
 * where it is. 0 or -errno with a sentence.
 */
int sbx_git_store_yield(git_repository *source, const struct sbx_refs *refs, struct sbx_error *err);

/*
 * Copies OID out of the store FD into OBJECTS, a directory of loose objects that a command may
 * change at any moment. 0, also when it is there already, or -errno; ENOENT: the store has not.
 */
int sbx_git_store_give(int fd, int objects, const git_oid *oid);

/*
 * The same of all that the commit FROM leads to and KNOWN do not, of which the sandbox has all.
 */
int sbx_git_store_give_all(git_repository *source, int objects, const git_oid *from,
                           const struct sbx_git_tips *known);

/*
 * Notes that the work on BRANCH (short) is the sandbox's alone, and makes the store where it is
 * missing. LOCKED: the caller holds the repository's lock, so that notes of branches that are gone
 * can be dropped. 0 or -errno; EBUSY: another daemon does the same.
 */
int sbx_git_store_mark(git_repository *source, const char *branch, bool locked);
/*
 * The same, locked, where COMMIT, at which the branch is to begin, leads to what is in the store.
 */
int sbx_git_store_mark_led(git_repository *source, const char *branch, const git_oid *commit);
struct sbx_strings;
/*
 * Appends to RET the branches that sbx_git_store_mark has noted in COMMON, and sorts RET. 0, also
 * when there are none, or -errno.
 */
int sbx_git_store_marked(const char *common, struct sbx_strings *ret);
/* Which of them the ref NAME is, or follows in a remote; NULL: none. */
const char *sbx_git_store_mark_of(const struct sbx_strings *marked, const char *name);
/* 1: COMMIT leads to what is in the store, 0, or -errno. */
int sbx_git_store_leads(git_repository *source, const git_oid *commit);

struct sbx_git_taken;
/*
 * Notes in TAKEN, whose sandbox has all that TIPS lead to, what need not be looked at again
 * (sbx_git_taken_trust). 0 or -errno.
 */
int sbx_git_store_trust(git_repository *source, const struct sbx_git_tips *tips,
                        struct sbx_git_taken *taken);
/*
 * The same of the files of COMMIT alone, but for those that BASE, which may be NULL, has as well.
 */
int sbx_git_store_trust_files(git_repository *source, const git_oid *commit, const git_oid *base,
                              struct sbx_git_taken *taken);

/* Takes out what nothing has led to for weeks: when there is much in it, or NOW. Long. */
void sbx_git_store_prune(const char *common, bool now);
/*
 * Adds the commits whose history was whole when the store was made; ROOM: the directory above its
 * objects.
 */
int sbx_git_store_begun(int room, struct sbx_git_tips *ret);

#endif
