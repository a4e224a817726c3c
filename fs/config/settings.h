/* Between settings.c and options.c. Start-up only, not thread-safe. */
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

/* What the environment sets, which is stronger than a file: SANDBOXFS_BACKEND. */
int sbx_settings_environment(struct sbx_settings *settings, struct sbx_error *err);

/* The configuration file of the user or the machine, which need not be there. */
int sbx_settings_found(struct sbx_settings *settings, struct sbx_error *err);

#endif
