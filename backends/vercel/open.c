/* The backend of the name "vercel": a provider by the settings of a mount and the environment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/settings.h"
#include "sandboxfs/strv.h"

const char *const sbx_vercel_secrets[] = {"VERCEL_TOKEN", "VERCEL_OIDC_TOKEN", NULL};

/* What is set to nothing is not set. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int number(const char *name, uint64_t most, uint64_t *ret, struct sbx_error *err)
{
	const char *value = variable(name);
	uint64_t n = 0;

	for (const char *c = value; c && *c; c++) {
		if (*c < '0' || *c > '9' || n > most)
			return sbx_fail(err, EINVAL, "%s is no number", name);
		n = 10 * n + (uint64_t)(*c - '0');
	}
	if (n > most)
		return sbx_fail(err, EINVAL, "%s is too large", name);
	*ret = n;
	return 0;
}

/* PORT,PORT... */
static int split(const char *text, struct sbx_strings *ret, struct sbx_error *err)
{
	while (text && *text) {
		const size_t n = strcspn(text, ",");

		if (n && sbx_strings_add_n(ret, text, n) < 0)
			return sbx_no_memory(err);
		text += n + (text[n] == ',');
	}
	return 0;
}

static int numbers(struct sbx_vercel_config *config, struct sbx_error *err)
{
	uint64_t vcpus = 0;
	int r = number("VERCEL_SANDBOX_VCPUS", 1000, &vcpus, err);

	config->vcpus = (unsigned)vcpus;
	return r ? r : number("VERCEL_SANDBOX_TIMEOUT", UINT64_C(1) << 40, &config->life_ms, err);
}

int sbx_vercel_provider_of(const struct sbx_host *host, struct sbx_provider **ret,
                           struct sbx_error *err)
{
	const char *sudo = variable("VERCEL_SANDBOX_SUDO");
	struct sbx_strings ports = {0};
	struct sbx_vercel_config config = {
	        .http = host->http,
	        .loop = host->loop,
	        .token = sbx_host_secret(host, "VERCEL_TOKEN"),
	        .oidc = sbx_host_secret(host, "VERCEL_OIDC_TOKEN"),
	        .git_token = sbx_host_secret(host, "GITHUB_TOKEN"),
	        .env = &host->settings->env,
	        .ports = &ports,
	        .team = variable("VERCEL_TEAM_ID"),
	        .project = variable("VERCEL_PROJECT_ID"),
	        .api_url = variable("VERCEL_API_URL"),
	        .github_api = variable("GITHUB_API_URL"),
	        .runtime = variable("VERCEL_SANDBOX_RUNTIME"),
	        .image = variable("VERCEL_SANDBOX_IMAGE"),
	        .region = variable("VERCEL_SANDBOX_REGION"),
	        .net = host->settings->net,
	        .spool = host->settings->state_dir,
	        .sudo = sudo && strcmp(sudo, "1") == 0,
	        .ephemeral = host->settings->ephemeral,
	};
	int r = sbx_vercel_check_source(host->settings->source, config.github_api, err);

	if (!r)
		r = numbers(&config, err);
	if (!r)
		r = split(variable("VERCEL_SANDBOX_PORTS"), &ports, err);
	if (!r)
		r = sbx_vercel_provider(&config, ret, err);
	if (!r && vercel_token_expired(&vercel_of(*ret)->token)) {
		r = vercel_token_refused(&vercel_of(*ret)->token, err);
		(*ret)->impl->destroy(*ret);
	}
	sbx_strings_release(&ports);
	return r;
}

int sbx_vercel_check(const struct sbx_host *host, struct sbx_error *err)
{
	struct sbx_provider *p;
	int r = sbx_vercel_provider_of(host, &p, err);

	if (!r)
		p->impl->destroy(p);
	return r;
}

char *sbx_vercel_note(const struct sbx_host *host)
{
	struct sbx_provider *p;
	char *note;

	if (sbx_vercel_provider_of(host, &p, NULL) < 0)
		return NULL;
	note = vercel_token_note(&vercel_of(p)->token);
	p->impl->destroy(p);
	return note;
}

int sbx_vercel_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	struct sbx_provider *p;
	int r = sbx_vercel_provider_of(host, &p, err);

	return r ? r : sbx_remote_open(host, p, ret, err);
}
