/* The local backend: sandboxes are directories of this machine. See local_impl.h for the inside. */
#ifndef SANDBOXFS_LOCAL_H
#define SANDBOXFS_LOCAL_H

#include "sandboxfs/backend.h"

/* As sbx_backend_open. EBUSY the state directory is in use, EINVAL unusable source, ENOENT no such
 * source. */
int sbx_local_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);

#endif
