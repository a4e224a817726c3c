/*
 * Patterns as in .gitignore (gitignore(5)), on text that is in memory already: nothing here opens a
 * file, since what lies in a sandbox's tree may be a link or a FIFO. A matcher is a stack, grown
 * while a walk goes down and shrunk when it comes back. A path is tried against each pattern, in
 * time bounded by the length of the one times that of the other: bound the text that comes from a
 * stranger. Not thread-safe.
 */
#ifndef SANDBOXFS_GIT_GITIGNORE_H
#define SANDBOXFS_GIT_GITIGNORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_ignore;

/* 0 or -ENOMEM. ICASE: as core.ignorecase. */
int sbx_ignore_new(bool icase, struct sbx_ignore **ret);
void sbx_ignore_free(struct sbx_ignore *ig); /* accepts NULL */
/*
 * Adds the patterns of one file, which lies in the directory DIR ("" the top, else "a/b"). What is
 * pushed later outranks what was pushed before; so does a later line. LEN bytes of TEXT are copied;
 * what is no pattern is passed over. 0 or -ENOMEM.
 */
int sbx_ignore_push(struct sbx_ignore *ig, const char *dir, const char *text, size_t len);
/* Takes back the last sbx_ignore_push that has not been taken back. */
void sbx_ignore_pop(struct sbx_ignore *ig);
/*
 * 1: the last pattern that fits PATH ("a/b/c", from the top) ignores it, 0: there is none or it
 * takes it back with "!". A walk does not go into a directory that is ignored; parents are not
 * looked at.
 */
bool sbx_ignore_match(struct sbx_ignore *ig, const char *path, bool directory);
/* The work of all tries so far, in steps of some nanoseconds each. */
uint64_t sbx_ignore_work(const struct sbx_ignore *ig);
/* Whether something below the directory DIR may be ignored by a pattern of its own; true in doubt.
 */
bool sbx_ignore_reaches(const struct sbx_ignore *ig, const char *dir);

#endif
