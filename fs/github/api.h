/* GitHub's REST API. Calls block: they are for threads that may wait for a network. */
#ifndef SANDBOXFS_FS_GITHUB_API_H
#define SANDBOXFS_FS_GITHUB_API_H

#include <stdatomic.h>

#include "fs/github/text.h"
#include "sandboxfs/github.h"

struct sbx_http;
struct sbx_secret;
struct sbx_github;

/*
 * API is the URL of the API (NULL: GitHub's own), TOKEN the secret, which is borrowed for as long
 * as this lives, as HTTP is. EINVAL: no http or https URL; ENOMEM.
 */
int sbx_github_create(struct sbx_http *http, const char *api, const struct sbx_secret *token,
                      struct sbx_github **ret, struct sbx_error *err);
void sbx_github_destroy(struct sbx_github *gh); /* accepts NULL */
/* The URL of the API, borrowed. */
const char *sbx_github_api(const struct sbx_github *gh);

struct sbx_github_pull {
	const char *title, *body;
	const char *head; /* branch */
};

/*
 * Opens a pull request against the repository's default branch, which is asked for once. *ret: its
 * URL, the caller's. EACCES, ENOENT, EINVAL, EREMOTEIO as GitHub answers; ECONNREFUSED,
 * ETIMEDOUT...; EINTR when *CANCELLED becomes true. Thread-safe.
 */
int sbx_github_pull(struct sbx_github *gh, const struct sbx_github_repo *repo,
                    const struct sbx_github_pull *pull, atomic_bool *cancelled, char **ret,
                    struct sbx_error *err);

#endif
