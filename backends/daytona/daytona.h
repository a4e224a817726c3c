/*
 * Daytona as a provider of machines (backends/remote/provider.h): its control plane makes and
 * removes sandboxes, the toolbox of each runs scripts in it and takes files.
 */
#ifndef SANDBOXFS_BACKENDS_DAYTONA_DAYTONA_H
#define SANDBOXFS_BACKENDS_DAYTONA_DAYTONA_H

#include <stdbool.h>

#include "backends/remote/provider.h"

struct sbx_loop;
struct sbx_pool;
struct sbx_secret;

/* Strings are copied; what is pointed to above them outlives the provider. */
struct sbx_daytona_config {
	struct sbx_http *http;
	struct sbx_loop *loop;
	struct sbx_pool *pool;              /* wide: works of it wait for the network */
	const struct sbx_secret *key;       /* DAYTONA_API_KEY */
	const struct sbx_secret *git_token; /* GITHUB_TOKEN; NULL: none */
	const char *api_url;                /* NULL: Daytona's own */
	const char *github_api;             /* NULL: GitHub's own */
	const char *target;                 /* region; NULL: the organization's default */
	const char *organization;           /* its id, for keys that are JWTs; or NULL */
	const char *snapshot; /* NULL: SBX_DAYTONA_SNAPSHOT, unless there is an image */
	const char *image;    /* a sandbox of it is built, of the size below; or NULL */
	const char *net;      /* as sbx_settings.net; NULL: "none" */
	char *const *env; /* KEY=VALUE of all that runs there, ended by NULL; borrowed, or NULL */
	unsigned cpus, memory_gb, disk_gb; /* of an image's; 0: Daytona's default */
	unsigned idle_min;                 /* until a sandbox that is not used stops; 0: never */
	bool kept;                         /* one that has stopped is kept, and can be woken */
	bool simple_exec; /* a command is one request, which has its streams merged */
	/* Of requests that are answered at once, the longest; others may take a multiple. 0: 30 s.
	 */
	uint64_t ask_ms;
	uint64_t pause_ms; /* the least before a change is looked at again. 0: 100 */
};
#define SBX_DAYTONA_API      "https://app.daytona.io/api"
#define SBX_DAYTONA_SNAPSHOT "daytona-medium"
#define SBX_DAYTONA_IDLE_MIN 30

/* EACCES: no key. EINVAL: a URL, or sizes that a snapshot does not take. EOPNOTSUPP: a network that
 * Daytona cannot enforce. */
int sbx_daytona_provider(const struct sbx_daytona_config *config, struct sbx_provider **ret,
                         struct sbx_error *err);
/* EINVAL: SOURCE (NULL: none) cannot be cloned in a sandbox of Daytona's. */
int sbx_daytona_check_source(const char *source, const char *github_api, struct sbx_error *err);

/*
 * Sets what DAYTONA_API_URL, DAYTONA_TARGET, DAYTONA_ORGANIZATION_ID, DAYTONA_SNAPSHOT,
 * DAYTONA_SIMPLE_EXEC and GITHUB_API_URL say (borrowed of the environment), and the usual idle_min.
 */
void sbx_daytona_environment(struct sbx_daytona_config *config);

/* As sbx_backend_open(). Nothing is asked of Daytona. */
int sbx_daytona_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);
/* As sbx_backend_check(). EACCES: there is no key. */
int sbx_daytona_check(const struct sbx_host *host, struct sbx_error *err);

#endif
