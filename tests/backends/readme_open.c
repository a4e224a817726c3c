/* Linked with --wrap into sandboxfs-readme: `memory` is the backend that backends/README.md makes.
 */
#include "sandboxfs/backend.h"

int two_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);
int __wrap_sbx_memory_open(const struct sbx_host *host, struct sbx_backend **ret,
                           struct sbx_error *err);

int __wrap_sbx_memory_open(const struct sbx_host *host, struct sbx_backend **ret,
                           struct sbx_error *err)
{
	return two_open(host, ret, err);
}
