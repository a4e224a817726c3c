/* The backend of sandboxfs-dirs: the remote layer over the provider dirs. */
#include <errno.h>
#include <stdlib.h>

#include "tests/lib/dirs.h"

int sbx_dirs_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	const char *base = getenv("SBX_DIRS");
	struct sbx_provider *provider;
	int r;

	if (!base)
		return sbx_fail(err, EINVAL, "SBX_DIRS has to name a directory for the machines");
	r = dirs_create(base, host->loop, &provider, err);
	return r ? r : sbx_remote_open(host, provider, ret, err);
}
