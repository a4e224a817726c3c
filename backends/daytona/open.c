/* The backend: a provider that is made by the settings of a mount and the environment. */
#include "backends/daytona/daytona.h"
#include "sandboxfs/settings.h"

static int provider_of(const struct sbx_host *host, struct sbx_provider **ret,
                       struct sbx_error *err)
{
	struct sbx_daytona_config config = {.http = host->http,
	                                    .loop = host->loop,
	                                    .pool = host->pool,
	                                    .key = sbx_host_secret(host, "DAYTONA_API_KEY"),
	                                    .git_token = sbx_host_secret(host, "GITHUB_TOKEN"),
	                                    .net = host->settings->net,
	                                    .env = host->settings->env.items};
	int r;

	sbx_daytona_environment(&config);
	r = sbx_daytona_check_source(host->settings->source, config.github_api, err);
	return r ? r : sbx_daytona_provider(&config, ret, err);
}

int sbx_daytona_check(const struct sbx_host *host, struct sbx_error *err)
{
	struct sbx_provider *p;
	int r = provider_of(host, &p, err);

	if (!r)
		p->impl->destroy(p);
	return r;
}

int sbx_daytona_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	struct sbx_provider *p;
	int r = provider_of(host, &p, err);

	return r ? r : sbx_remote_open(host, p, ret, err);
}
