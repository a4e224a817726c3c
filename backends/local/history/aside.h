/*
 * Files that a restore takes out of the tree. They are kept as the very files, until the next
 * restore replaces its mark.
 *
 *   history/aside/NAME/
 *     files/     the files, each at the path that it had; one more link to the file of the
 *                sandbox's own layer, so that what a program still writes through an open
 *                descriptor arrives here too
 *     dirs       a record for each directory: MODE SECONDS NANOSECONDS PATH, ended by a NUL; the
 *                first of a path counts
 *     nested     paths of .git that stood in the store of the host's repositories, each ended by
 *                a NUL
 *     made       paths at which a restore put something where nothing was, or after it took all
 *                that was there, each ended by a NUL: they are taken before anything is given back
 *     lowered    paths of repositories below which single files were taken or made, each ended by
 *                a NUL
 *     links      where hard links among copies are found again
 *
 *   history/repos/COMMIT/      the same of the repositories that lay in the tree of a snapshot,
 *                              copied
 *     tops       their paths, each ended by a NUL
 *
 * A file of the base alone is copied, since the base's own files are shared. So is a file on a
 * disk of limited size, since keeping it there would leave no room; a descriptor that writes to
 * it is heeded until the restore is done.
 */
#ifndef SANDBOXFS_LOCAL_HISTORY_ASIDE_H
#define SANDBOXFS_LOCAL_HISTORY_ASIDE_H

#include "backends/local/history/history.h"

#define SBX_ASIDE_NAME_MAX 40

struct sbx_aside {
	const struct sbx_snapshot_context *context;
	struct sbx_error *err; /* borrowed; receives the first sentence */
	int dir, files, links; /* aside/NAME, and what is in it */
	int own; /* what of the tree is the sandbox's own: its upper layer, or the tree itself */
	int temp, own_temp; /* SBX_CAPTURE_TEMP in the tree, and the same in OWN */
	void *noted;        /* tsearch(3): paths of the directories that have a record by this */
	struct sbx_aside_copy *copies; /* of files that may still be written to */
	size_t ncopies;
	bool several; /* something may have been taken that has other names */
};

/* A name that no other aside directory has. */
void sbx_aside_name(char ret[SBX_ASIDE_NAME_MAX]);
extern const struct sbx_aside sbx_no_aside; /* closed */
/*
 * Opens the aside directory NAME of PLACE, made when it is not there. Zero RET before; close it
 * also after a failure.
 */
int sbx_aside_open(const struct sbx_snapshot_context *context, const char *name,
                   struct sbx_aside *ret, struct sbx_error *err);
/* The same for reading alone. -ENOENT: there is none. */
int sbx_aside_find(const struct sbx_snapshot_context *context, const char *name,
                   struct sbx_aside *ret);
/*
 * Heeds no more what is written to files that were copied, so that their room is free: whether
 * there were any.
 */
bool sbx_aside_make_room(struct sbx_aside *a);
/*
 * Has what was taken and still has a name in the tree be files of their own, once everything is in
 * its place, so that who writes by that name changes the tree alone. What is linked among what was
 * taken stays so.
 */
int sbx_aside_part(struct sbx_aside *a);
/* Brings copies up to date that were written to meanwhile, and ends. */
void sbx_aside_close(struct sbx_aside *a);

/*
 * Takes PATH, whatever it is, with all below it. 0 also when nothing is there, or something new
 * came meanwhile and stays.
 */
int sbx_aside_take(struct sbx_aside *a, const char *path);
/*
 * Notes what the directories that PATH lies in are like, before something is made or removed there.
 */
int sbx_aside_note(struct sbx_aside *a, const char *path);
/*
 * Puts what stands at "new" in a->temp at PATH, whose directory is there, and takes what was at
 * PATH.
 */
int sbx_aside_replace(struct sbx_aside *a, const char *path);
/* Whether A has a file or link of PATH. */
bool sbx_aside_has(const struct sbx_aside *a, const char *path);
/* Takes what FROM says was made, unless it is recorded in the index NOW. Before files are made. */
int sbx_aside_take_made(const struct sbx_aside *from, struct sbx_aside *a,
                        const struct sbx_index *now);
/* Notes that files below PATH, which no index knows, may come and go. */
int sbx_aside_lowered(struct sbx_aside *a, const char *path);
/* Gives back to the tree all that FROM has; what is in the way is taken by A. */
int sbx_aside_give_back(const struct sbx_aside *from, struct sbx_aside *a);
/* Has PATH be what it is in FROM->files, with all below; what was there is taken by A. */
int sbx_aside_put(const struct sbx_aside *from, struct sbx_aside *a, const char *path);
/* The list LIST of A, *LEN bytes with a NUL after each item; the caller's. */
int sbx_aside_list(const struct sbx_aside *a, const char *list, char **ret, size_t *len);

/*
 * Copies the repositories that lie at PATHS to a directory for a snapshot, which has no name until
 * sbx_repos_name gives it that of its COMMIT. A sentence tells which cannot be copied.
 */
int sbx_repos_copy(const struct sbx_snapshot_context *context, const struct sbx_strings *paths,
                   atomic_bool *cancelled, struct sbx_error *err);
/* Gives the directory of the last sbx_repos_copy the name of COMMIT. 0 or -errno. */
int sbx_repos_name(const struct sbx_snapshot_context *context, const git_oid *commit);
/* Opens the repositories of the snapshot COMMIT for reading. -ENOENT: it has none. */
int sbx_repos_find(const struct sbx_snapshot_context *context, const git_oid *commit,
                   struct sbx_aside *ret);
/* Takes what stands where REPOS has repositories, and puts these there. */
int sbx_repos_give_back(const struct sbx_aside *repos, struct sbx_aside *a);

/* Removes all aside directories but the one called KEEP (may be NULL). */
void sbx_aside_drop_others(const struct sbx_snapshot_context *context, const char *keep);

#endif
