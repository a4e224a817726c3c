#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona.h"

/* NULL: it is not set, or empty. */
static const char *value_of(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

void sbx_daytona_environment(struct sbx_daytona_config *config)
{
	const char *simple = value_of("DAYTONA_SIMPLE_EXEC");

	config->api_url = value_of("DAYTONA_API_URL");
	config->target = value_of("DAYTONA_TARGET");
	config->organization = value_of("DAYTONA_ORGANIZATION_ID");
	config->snapshot = value_of("DAYTONA_SNAPSHOT");
	config->github_api = value_of("GITHUB_API_URL");
	config->simple_exec = simple && strcmp(simple, "1") == 0;
	config->idle_min = SBX_DAYTONA_IDLE_MIN;
}
