/* The backend of the name "dagger". */
#include <stdlib.h>

#include "backends/dagger/dagger.h"

const char *const sbx_dagger_secrets[] = {"DAGGER_SESSION_TOKEN", "GITHUB_TOKEN", NULL};

/* What is set to nothing is not set. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

int sbx_dagger_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	const struct sbx_dagger_config config = {
	        .http = host->http,
	        .loop = host->loop,
	        .token = sbx_host_secret(host, "DAGGER_SESSION_TOKEN"),
	        .git_token = sbx_host_secret(host, "GITHUB_TOKEN"),
	        .port = variable("DAGGER_SESSION_PORT"),
	        .program = variable("_EXPERIMENTAL_DAGGER_CLI_BIN"),
	        .image = variable("DAGGER_IMAGE"),
	        .state_dir = host->settings->state_dir,
	};
	struct sbx_provider *p;
	int r = sbx_dagger_provider(&config, &p, err);

	return r ? r : sbx_remote_open(host, p, ret, err);
}
