/* The local backend's table of history. What its members promise is in sandboxfs/history.h. */
#ifndef SANDBOXFS_LOCAL_HISTORY_OPS_H
#define SANDBOXFS_LOCAL_HISTORY_OPS_H

#include "backends/local/history/history.h"
#include "sandboxfs/backend.h"

extern const struct sbx_history_impl sbx_local_history;

/* The sandbox SB as its history needs it; borrowed from SB. */
struct sbx_snapshot_context sbx_local_snapshot_context(struct sbx_sandbox *sb);

#endif
