/* The backend of the name "dagger": a provider by the settings of a mount and the environment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/dagger/dagger.h"
#include "sandboxfs/cleanup.h"

const char *const sbx_dagger_secrets[] = {"DAGGER_SESSION_TOKEN", NULL};

/* What is set to nothing is not set. */
static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static struct sbx_dagger_config config_of(const struct sbx_host *host)
{
	return (struct sbx_dagger_config){
	        .http = host->http,
	        .loop = host->loop,
	        .token = sbx_host_secret(host, "DAGGER_SESSION_TOKEN"),
	        .git_token = sbx_host_secret(host, "GITHUB_TOKEN"),
	        .port = variable("DAGGER_SESSION_PORT"),
	        .program = variable("_EXPERIMENTAL_DAGGER_CLI_BIN"),
	        .image = variable("DAGGER_IMAGE"),
	        .github_api = variable("GITHUB_API_URL"),
	        .state_dir = host->settings->state_dir,
	};
}

/* Whether PROGRAM, as a shell would look for it, can be executed. */
static bool is_program(const char *program)
{
	const char *path = variable("PATH");
	char file[4096];

	if (strchr(program, '/'))
		return access(program, X_OK) == 0;
	while (path && *path) {
		const size_t n = strcspn(path, ":");
		const int len = snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, program);

		if (len > 0 && (size_t)len < sizeof(file) && access(file, X_OK) == 0)
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

/* One that lies on this host is NULL in SOURCE_ABS only if it is none. */
static int check_source(const struct sbx_settings *s, const char *github_api, struct sbx_error *err)
{
	return sbx_dagger_check_source(s->source_abs ? s->source_abs : s->source, github_api, err);
}

int sbx_dagger_check(const struct sbx_host *host, struct sbx_error *err)
{
	const struct sbx_dagger_config config = config_of(host);
	const char *program = config.program ? config.program : SBX_DAGGER_PROGRAM;
	int r = sbx_dagger_check_config(&config, err);

	if (!r)
		r = check_source(host->settings, config.github_api, err);
	if (!r && !config.port && !is_program(program))
		return sbx_fail(err, ENOENT,
		                "DAGGER_SESSION_PORT is not set, and there is no program %s, "
		                "which starts the engine of Dagger",
		                program);
	return r;
}

int sbx_dagger_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	const struct sbx_dagger_config config = config_of(host);
	struct sbx_provider *p;
	int r = check_source(host->settings, config.github_api, err);

	if (!r)
		r = sbx_dagger_provider(&config, &p, err);
	return r ? r : sbx_remote_open(host, p, ret, err);
}
