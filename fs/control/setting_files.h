/* Settings of a sandbox as files. */
#ifndef SANDBOXFS_FS_CONTROL_SETTING_FILES_H
#define SANDBOXFS_FS_CONTROL_SETTING_FILES_H

#include "fs/control/control_impl.h"

enum { LIMIT_CPU, LIMIT_MEMORY, LIMIT_PROCS, LIMIT_FILE, LIMIT_DISK, LIMIT_OUTPUT, LIMIT_JOBS };
extern const struct control_ops sbx_control_cwd_ops, sbx_control_timeout_ops, sbx_control_limit_ops,
        sbx_control_env_ops;
/* As text_fn: the default directory on a line, relative to the root, "." for that. */
int sbx_control_text_cwd(struct sbx_registry *, const struct sbx_control_node *, struct text *);
/* As text_fn: the default timeout_ms on a line. */
int sbx_control_text_timeout(struct sbx_registry *, const struct sbx_control_node *, struct text *);
/* As text_fn: the limit LIMIT_... of the row's arg on a line; empty when there is none. */
int sbx_control_text_limit(struct sbx_registry *, const struct sbx_control_node *, struct text *);
/* As text_fn: the default environment, KEY=VALUE on a line each. */
int sbx_control_text_env(struct sbx_registry *, const struct sbx_control_node *, struct text *);

#endif
