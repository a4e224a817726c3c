/* The local backend's table of history. What its members promise is in sandboxfs/history.h. */
#ifndef SANDBOXFS_LOCAL_HISTORY_OPS_H
#define SANDBOXFS_LOCAL_HISTORY_OPS_H

#include "backends/local/history/history.h"
#include "sandboxfs/backend.h"

extern const struct sbx_history_impl sbx_local_history;

/* What the past of SB goes by; borrowed from it. */
struct sbx_past_place sbx_local_place(struct sbx_sandbox *sb);
/*
 * Brings what commands committed and staged over to the host's side. STRICT: EEXIST when both sides moved apart,
 * EBUSY when a command's git has had the index for a second; else neither matters.
 */
int sbx_local_settle(struct sbx_sandbox *sb, bool strict, struct sbx_error *err);

int sbx_local_tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                   struct sbx_error *err);
int sbx_local_entry(struct sbx_sandbox *sb, const char *dir, const char *name,
                    struct sbx_object *ret);
int sbx_local_entries(struct sbx_sandbox *sb, const char *dir,
                      int (*fn)(const char *name, const struct sbx_object *o, void *data),
                      void *data);
int sbx_local_content(struct sbx_sandbox *sb, const char *id, int fd);

#endif
