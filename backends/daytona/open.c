/* The backend: a provider that is made by the settings of a mount and the environment. */
#include "backends/daytona/daytona.h"
#include "sandboxfs/settings.h"

int sbx_daytona_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	struct sbx_daytona_config config = {.http = host->http,
	                                    .loop = host->loop,
	                                    .pool = host->pool,
	                                    .key = sbx_host_secret(host, "DAYTONA_API_KEY"),
	                                    .git_token = sbx_host_secret(host, "GITHUB_TOKEN"),
	                                    .net = host->settings->net,
	                                    .env = host->settings->env.items};
	struct sbx_provider *p;
	int r;

	sbx_daytona_environment(&config);
	r = sbx_daytona_check_source(host->settings->source_abs ? host->settings->source_abs
	                                                        : host->settings->source,
	                             config.github_api, err);
	if (!r)
		r = sbx_daytona_provider(&config, &p, err);
	return r ? r : sbx_remote_open(host, p, ret, err);
}
