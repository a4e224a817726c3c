/* Where things are: found once, at the start. Not thread-safe. */
#ifndef SANDBOXFS_FS_CONFIG_PATHS_H
#define SANDBOXFS_FS_CONFIG_PATHS_H

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

/*
 * The directory that holds the state directories of this user: without state_dir, and with
 * state_dir=persistent. It need not be there. The caller's. -EACCES it is not ours, -EINVAL no home.
 */
int sbx_places_temporary(char **ret, struct sbx_error *err);
int sbx_places_persistent(char **ret, struct sbx_error *err);

/*
 * Fills source_abs, mountpoint, state_dir and logs_dir: absolute, without symlinks. A MOUNTPOINT that is
 * a dead FUSE mount is good. -ENOENT, -ENOTDIR, -EACCES..., -EINVAL when they lie in each
 * other, -EOPNOTSUPP when source is remote and the backend is not.
 */
int sbx_settings_resolve(struct sbx_settings *settings, const char *mountpoint,
                         struct sbx_error *err);

#endif
