/* Between settings.c, paths.c and options.c. Start-up only, not thread-safe. */
#ifndef SANDBOXFS_FS_CONFIG_SETTINGS_H
#define SANDBOXFS_FS_CONFIG_SETTINGS_H

#include "fs/config/options.h"

/* Empties KEY when it is a list that does not merge, so that what is set next replaces it. */
void sbx_settings_clear(struct sbx_settings *settings, const char *key);
/* Which of WORDS ("a|b|c") VALUE is, -1: none. Thread-safe. */
int sbx_find_word(const char *words, const char *value);
/* One line per key on stdout. */
void sbx_settings_help(void);

/* The word for a state directory that outlives a reboot. */
#define SBX_STATE_PERSISTENT "persistent"

/*
 * The directory that holds the state directories of this user: without state_dir, and with
 * state_dir=persistent. It need not be there. The caller's. -EACCES it is not ours, -EINVAL no home.
 */
int sbx_places_temporary(char **ret, struct sbx_error *err);
int sbx_places_persistent(char **ret, struct sbx_error *err);

/* The configuration file of the user or the machine, which need not be there. */
int sbx_settings_found(struct sbx_settings *settings, struct sbx_error *err);

/*
 * Fills source_abs, mountpoint, state_dir and logs_dir: absolute, without symlinks. A MOUNTPOINT that is
 * a dead FUSE mount is good. -ENOENT, -ENOTDIR, -EACCES..., -EINVAL when they lie in each
 * other, -EOPNOTSUPP when source is remote and the backend is not.
 */
int sbx_settings_resolve(struct sbx_settings *settings, const char *mountpoint,
                         struct sbx_error *err);

#endif
