/* The backends that are known, and how one is opened. */
#include "sandboxfs/backend.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "backends/local/local.h"
#include "backends/memory/memory.h"
#include "backends/trace.h"
#include "sandboxfs/cleanup.h"

static const struct {
	const char *name;
	int (*open)(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);
	const char *absent; /* why it cannot be opened, when open is NULL */
} backends[] = {
        {"local", sbx_local_open, NULL},
        {"memory", sbx_memory_open, NULL},
        {"daytona", NULL, "Daytona sandbox not yet implemented"},
        {"vercel", NULL, "Vercel sandbox not yet implemented"},
        {"dagger", NULL, "Dagger backend not yet implemented"},
};

static void check_members(const struct sbx_backend_impl *impl)
{
	assert(impl->name && impl->recover && impl->create && impl->destroy);
	(void)impl;
}

static int open_known(const struct sbx_host *host, size_t i, struct sbx_backend **ret,
                      struct sbx_error *err)
{
	struct sbx_backend *b;
	int r;

	if (!backends[i].open)
		return sbx_fail(err, EOPNOTSUPP, "%s", backends[i].absent);
	r = backends[i].open(host, &b, err);
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

int sbx_backend_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	const char *name = host->settings->backend ? host->settings->backend : "local";

	for (size_t i = 0; i < SBX_ARRAY_SIZE(backends); i++)
		if (strcmp(backends[i].name, name) == 0)
			return open_known(host, i, ret, err);
	return sbx_fail(err, EINVAL,
	                "unknown backend %s; there are local, memory, daytona, vercel, dagger",
	                name);
}
