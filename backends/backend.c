/* The backends that are known, and how one is opened. */
#include "sandboxfs/backend.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
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
	unsigned sources; /* see sbx_backend_sources */
	/* NULL: it runs no commands on this host */
	int (*start_early)(const struct sbx_settings *settings, struct sbx_spawner **ret,
	                   struct sbx_error *err);
	const char *const *secrets; /* see sbx_backend_secrets; NULL: none */
	/* See sbx_backend_check; NULL: it needs nothing of either. */
	int (*check)(const struct sbx_host *host, struct sbx_error *err);
	char *(*note)(const struct sbx_host *host); /* see sbx_backend_note; NULL: nothing */
	const char *variable; /* that makes it the default where it is VALUE; NULL: none */
	const char *value, *why;
} backends[] = {
        {"local", sbx_local_open, SBX_SOURCE_PATHS, sbx_spawner_start},
        {"memory", sbx_memory_open, SBX_SOURCE_PATHS, sbx_spawner_start},
        {"daytona", sbx_daytona_open, SBX_SOURCE_URLS, NULL, daytona_secrets, sbx_daytona_check},
        {"vercel", sbx_vercel_open, SBX_SOURCE_URLS, NULL, sbx_vercel_secrets, sbx_vercel_check,
         sbx_vercel_note, "VERCEL", "1", "because VERCEL is 1"},
        {"dagger", sbx_dagger_open, SBX_SOURCE_PATHS | SBX_SOURCE_URLS, NULL, sbx_dagger_secrets,
         sbx_dagger_check},
#ifdef SBX_DIRS
        {"dirs", sbx_dirs_open, SBX_SOURCE_PATHS | SBX_SOURCE_URLS},
#endif
};

#ifdef SBX_DIRS
const char sbx_backend_names[] = "local|memory|daytona|vercel|dagger|dirs";
#else
const char sbx_backend_names[] = "local|memory|daytona|vercel|dagger";
#endif
const char sbx_backend_help[] = "where sandboxes live: local, memory, daytona, vercel, dagger";
const char sbx_backend_elsewhere[] = "daytona, vercel or dagger";

const char *sbx_backend_default(const char **why)
{
	*why = "as nothing names another";
	for (size_t i = 0; i < SBX_ARRAY_SIZE(backends); i++) {
		const char *value = backends[i].variable ? getenv(backends[i].variable) : NULL;

		if (!value || strcmp(value, backends[i].value) != 0)
			continue;
		*why = backends[i].why;
		return backends[i].name;
	}
	return "local";
}

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
	return sbx_fail(err, EINVAL, "unknown backend %s; there are %s", name, sbx_backend_names);
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

unsigned sbx_backend_sources(const struct sbx_settings *settings)
{
	const struct known *known;

	return find(settings, &known, NULL) < 0 ? SBX_SOURCE_PATHS : known->sources;
}

char *sbx_backend_note(const struct sbx_host *host)
{
	const struct known *known;

	return find(host->settings, &known, NULL) < 0 || !known->note ? NULL : known->note(host);
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
