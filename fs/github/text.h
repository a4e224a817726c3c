/*
 * Texts of GitHub's REST API: the repository that an URL means, the title of a pull request,
 * requests, and the parts of an answer. All thread-safe.
 */
#ifndef SANDBOXFS_FS_GITHUB_TEXT_H
#define SANDBOXFS_FS_GITHUB_TEXT_H

#include <stddef.h>

#include "sandboxfs/error.h"

#define SBX_GITHUB_API   "https://api.github.com"
#define SBX_GITHUB_TITLE 256 /* characters of a title */

struct sbx_github_repo {
	char owner[128];
	char name[128];
};

/*
 * The repository that URL means: ORG/REPO, https://HOST/ORG/REPO, git@HOST:ORG/REPO,
 * ssh://git@HOST/ORG/REPO, each with or without .git. HOST is github.com, or the one that the API
 * at API (a URL) belongs to, which may be asked by http when that is. EINVAL with a sentence,
 * without what stands before an @.
 */
int sbx_github_parse(const char *url, const char *api, struct sbx_github_repo *ret,
                     struct sbx_error *err);

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
