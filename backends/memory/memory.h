/* The memory backend: the smallest complete one. Read it before writing another. */
#ifndef SANDBOXFS_MEMORY_H
#define SANDBOXFS_MEMORY_H

#include "sandboxfs/backend.h"

/* As sbx_backend_open. Sandboxes start empty and vanish with the daemon. EINVAL a source was given.
 */
int sbx_memory_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);

#endif
