/* Texts of GitHub's REST API: the title of a pull request, and the parts of an answer. All
 * thread-safe. */
#ifndef SANDBOXFS_FS_GITHUB_TEXT_H
#define SANDBOXFS_FS_GITHUB_TEXT_H

#include <stddef.h>

#include "sandboxfs/error.h"

#define SBX_GITHUB_TITLE 256 /* characters of a title */

/* "PREFIX TEXT" on one line, cut to SBX_GITHUB_TITLE characters; PREFIX may be "". malloc'd; NULL:
 * no memory. */
char *sbx_github_title(const char *prefix, const char *text);

/*
 * The string KEY of the object that BODY[0..len) is: the caller's, in *ret. EBADMSG: it is none, or
 * no plain line of at most 2000 bytes.
 */
int sbx_github_member(const char *body, size_t len, const char *key, char **ret,
                      struct sbx_error *err);
/* Always fails: with what BODY, the answer with the status STATUS, says went wrong. The errno goes
 * by STATUS. */
int sbx_github_refusal(long status, const char *body, size_t len, struct sbx_error *err);

#endif
