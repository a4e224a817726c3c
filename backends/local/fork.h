/* Sandboxes that begin as copies of others. */
#ifndef SANDBOXFS_LOCAL_FORK_H
#define SANDBOXFS_LOCAL_FORK_H

#include "backends/local/create.h"
#include "backends/local/trash/removed.h"

/* As sbx_backend_impl.create for an origin of the kind SANDBOX; the name has been checked. */
int sbx_local_fork(struct sbx_local *b, const struct sbx_create *req, struct sbx_sandbox **ret,
                   struct sbx_error *err);

/*
 * The same from OF, which has been removed and whose entry in the trash is ORIGIN. On failure
 * nothing is left, and the seed alone may do.
 */
int sbx_local_fork_removed(struct sbx_local *b, const struct sbx_create *req,
                           const struct sbx_local_origin *origin, const struct sbx_removed *of,
                           struct sbx_sandbox **ret, struct sbx_error *err);

#endif
