/* snapshots/: each snapshot as a directory. */
#ifndef SANDBOXFS_FS_CONTROL_SNAPSHOTS_H
#define SANDBOXFS_FS_CONTROL_SNAPSHOTS_H

#include "fs/control/control_impl.h"

extern const struct control_ops sbx_control_content_ops;
/* PATH is DIR/NAME, or NAME where DIR is "". NULL: no memory. */
struct sbx_item *sbx_item_create(const char *dir, const char *name, const struct sbx_object *object,
                                 int64_t time_ns);
struct sbx_item *sbx_item_ref(struct sbx_item *item); /* accepts NULL */
void sbx_item_unref(struct sbx_item *item);           /* accepts NULL */
/* Whether the list has REV, "base" or the first digits of one snapshot. */
bool sbx_snapshots_know(struct sbx_sandbox *sandbox, const char *rev);
/*
 * As sbx_control_lookup and so on, below snapshots/. EOPNOTSUPP, which is stored: the backend has
 * the snapshot where it cannot be browsed.
 */
int sbx_snapshots_lookup(struct sbx_registry *reg, const struct sbx_control_node *dir,
                         const char *name, struct sbx_control_node *ret);
/* As sbx_control_list, below snapshots/. */
int sbx_snapshots_list(const struct sbx_control_node *dir,
                       void (*fn)(const char *name, mode_t mode, void *data), void *data);
/* As sbx_control_readlink, of a link in a snapshot. */
void sbx_snapshots_readlink(const struct sbx_control_node *node, struct sbx_pending *p);

#endif
