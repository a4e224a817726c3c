/* The reports of a mount and its boxes, as texts of control files. */
#ifndef SANDBOXFS_FS_SANDBOX_REPORT_H
#define SANDBOXFS_FS_SANDBOX_REPORT_H

#include "fs/sandbox/registry.h"

/* Text of ctl/list: a table with a heading, by name. malloc'd; NULL without memory. Any thread. */
char *sbx_registry_list_text(struct sbx_registry *reg);
/* Text of ctl/list.json: an array of the objects of sbx_box_info_json. As the above. */
char *sbx_registry_list_json(struct sbx_registry *reg);
/*
 * Text of ctl/pending: a line per box whose removal goes on, with its name; where an attempt has
 * failed also its id and the reason, after tabs. As the above.
 */
char *sbx_registry_pending_text(struct sbx_registry *reg);
/*
 * Text of ctl/stats: counts of sandboxes, removals and running jobs, and counters since the
 * mount. As the above.
 */
char *sbx_registry_stats_text(struct sbx_registry *reg);
/* Text of NAME/ctl/info, one JSON object. BOX is referenced by the caller. As the above. */
char *sbx_box_info_json(struct sbx_box *box);
/*
 * Text of ctl/trash, a table. 0 and *RET is the caller's (NULL without memory), or the errno with
 * which the backend could not list its trash.
 */
int sbx_registry_trash_text(struct sbx_registry *reg, char **ret);
/* Text of ctl/trash.json, an array. As sbx_registry_trash_text. */
int sbx_registry_trash_json(struct sbx_registry *reg, char **ret);
/*
 * Text of NAME/ctl/policy, one JSON object: network, allowlist, paths, limits, and what the
 * backend adds. malloc'd; NULL without memory. Any thread.
 */
char *sbx_box_policy_json(struct sbx_box *box);

#endif
