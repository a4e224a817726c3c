/* The paths of a mount, found once, at the start. Not thread-safe. */
#ifndef SANDBOXFS_FS_CONFIG_PATHS_H
#define SANDBOXFS_FS_CONFIG_PATHS_H

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

/*
 * The directory that holds this user's state directories when state_dir is not given. It need not
 * be there. *RET is the caller's. -EACCES: it is not ours.
 */
int sbx_paths_temporary(char **ret, struct sbx_error *err);
/*
 * The same for state_dir=persistent: below XDG_STATE_HOME, /var/lib for root, or HOME. -EINVAL:
 * there is no home.
 */
int sbx_paths_persistent(char **ret, struct sbx_error *err);

/*
 * Fills source_abs, mountpoint, state_dir and logs_dir: absolute, without symlinks. A MOUNTPOINT
 * that is a dead FUSE mount is good. -ENOENT, -ENOTDIR, -EACCES..., -EINVAL when they lie in each
 * other, -EOPNOTSUPP when source is remote and the backend is not.
 */
int sbx_settings_resolve(struct sbx_settings *settings, const char *mountpoint,
                         struct sbx_error *err);

#endif
