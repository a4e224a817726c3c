/* The backends that are known, and how one is opened. */
#include "sandboxfs/backend.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "backends/dagger/dagger.h"
#include "backends/daytona/daytona.h"
#include "backends/local/local.h"
#include "backends/memory/memory.h"
#include "backends/trace.h"
#include "backends/vercel/vercel.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/spawner.h"

#ifdef SBX_DIRS
#include "tests/lib/dirs.h"
#endif

static const char *const daytona_secrets[] = {"DAYTONA_API_KEY", NULL};

static const struct known {
	const char *name;
	int (*open)(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);
	/* NULL: it runs no commands on this host */
	int (*start_early)(const struct sbx_settings *settings, struct sbx_spawner **ret,
	                   struct sbx_error *err);
	const char *const *secrets; /* see sbx_backend_secrets; NULL: none */
	/* See sbx_backend_check; NULL: it needs nothing of either. */
	int (*check)(const struct sbx_host *host, struct sbx_error *err);
} backends[] = {
        {"local", sbx_local_open, sbx_spawner_start},
        {"memory", sbx_memory_open, sbx_spawner_start},
        {"daytona", sbx_daytona_open, NULL, daytona_secrets, sbx_daytona_check},
        {"vercel", sbx_vercel_open, NULL, sbx_vercel_secrets, sbx_vercel_check},
        {"dagger", sbx_dagger_open, NULL, sbx_dagger_secrets, sbx_dagger_check},
#ifdef SBX_DIRS
        {"dirs", sbx_dirs_open},
#endif
};

static void check_members(const struct sbx_backend_impl *impl)
{
	assert(impl->name && impl->recover && impl->create && impl->destroy);
	(void)impl;
}

/* Returns 0 or a negative errno. */
static int find(const struct sbx_settings *settings, const struct known **ret,
                struct sbx_error *err)
{
	const char *name = settings->backend ? settings->backend : "local";

	*ret = NULL;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(backends); i++) {
		if (strcmp(backends[i].name, name) != 0)
			continue;
		*ret = &backends[i];
		return 0;
	}
	return sbx_fail(err, EINVAL,
	                "unknown backend %s; there are local, memory, daytona, vercel, dagger",
	                name);
}

int sbx_backend_start_early(const struct sbx_settings *settings, struct sbx_spawner **ret,
                            struct sbx_error *err)
{
	const struct known *known;
	int r = find(settings, &known, err);

	*ret = NULL;
	return r < 0 || !known->start_early ? r : known->start_early(settings, ret, err);
}

const char *const *sbx_backend_secrets(const struct sbx_settings *settings)
{
	static const char *const none[] = {NULL};
	const struct known *known;

	return find(settings, &known, NULL) < 0 || !known->secrets ? none : known->secrets;
}

int sbx_backend_check(const struct sbx_host *host, struct sbx_error *err)
{
	const struct known *known;
	int r = find(host->settings, &known, err);

	return r < 0 || !known->check ? r : known->check(host, err);
}

int sbx_backend_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	const struct known *known;
	struct sbx_backend *b;
	int r = find(host->settings, &known, err);

	if (!r)
		r = known->open(host, &b, err);
	if (r)
		return r;
	check_members(b->impl);
	if (host->settings->debug) {
		r = sbx_trace_wrap(b, &b);
		if (r) {
			b->impl->destroy(b);
			return sbx_fail(err, -r, "out of memory");
		}
	}
	*ret = b;
	return 0;
}
