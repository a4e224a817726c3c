/* Repositories of GitHub, as their URLs name them. All thread-safe. */
#ifndef SANDBOXFS_GITHUB_H
#define SANDBOXFS_GITHUB_H

#include <stdbool.h>

#include "sandboxfs/error.h"

#define SBX_GITHUB_API "https://api.github.com"

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

/*
 * The URL by which the repository that URL means is cloned by HTTP, malloc'd, without what stands
 * before an @. ORG/REPO is where the API is. EINVAL as above, ENOMEM.
 */
int sbx_github_clone_url(const char *url, const char *api, char **ret, struct sbx_error *err);

/*
 * Whether GITHUB_TOKEN may be shown to the server that URL asks: by https to a host of GitHub or of
 * the API at API (NULL or "": GitHub's), by http to the latter only, and only when it is asked so.
 */
bool sbx_github_token_is_for(const char *url, const char *api);
/* The API that GITHUB_API_URL names, or GitHub's own. Borrowed from the environment. */
const char *sbx_github_api_url(void);

#endif
