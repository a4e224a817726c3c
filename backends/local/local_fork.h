/* Sandboxes that begin as copies of others. */
#ifndef SANDBOXFS_LOCAL_FORK_H
#define SANDBOXFS_LOCAL_FORK_H

#include "backends/local/local_impl.h"

/* As sbx_backend_impl.create for a REQ with from; its name has been checked. */
int sbx_local_fork(struct sbx_local *b, const struct sbx_create *req, struct sbx_sandbox **ret,
                   struct sbx_error *err);

/*
 * Copies what stands apart from the tree of FROM (sbx_sandbox_impl.nested) for TO, whose tree, a copy, is open in ROOT.
 */
int sbx_local_fork_nested(struct sbx_local *b, const char *from, const char *to, int root,
                          atomic_bool *cancelled, struct sbx_error *err);

#endif
