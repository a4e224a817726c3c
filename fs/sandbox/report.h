/* What a mount and its boxes tell of themselves. */
#ifndef SANDBOXFS_FS_SANDBOX_REPORT_H
#define SANDBOXFS_FS_SANDBOX_REPORT_H

#include "fs/sandbox/registry.h"

/*
 * Text of ctl/list (table), list.json, pending (a name per line; where an attempt has failed also the id and the reason, after tabs), info,
 * stats; malloc'd.
 */
char *sbx_registry_list_text(struct sbx_registry *reg);
char *sbx_registry_list_json(struct sbx_registry *reg);
char *sbx_registry_pending_text(struct sbx_registry *reg);
char *sbx_registry_stats_text(struct sbx_registry *reg);
char *sbx_box_info_json(struct sbx_box *box);
/* The same of ctl/trash, trash.json, where the backend may have to say that it cannot: 0 or -errno. */
int sbx_registry_trash_text(struct sbx_registry *reg, char **ret);
int sbx_registry_trash_json(struct sbx_registry *reg, char **ret);
char *sbx_box_policy_json(struct sbx_box *box);

#endif
