/*
 * The tools below a home directory that commands get: the directories that PATH leads to, the
 * variables by which tools find themselves, and the user's settings of registries without their
 * secrets.
 */
#ifndef SANDBOXFS_FS_CONFIG_TOOLCHAINS_H
#define SANDBOXFS_FS_CONFIG_TOOLCHAINS_H

#include <limits.h>
#include <stdbool.h>

#include "sandboxfs/settings.h"

/*
 * Fills shown, shown_why, covered, tool_env, carried and not_carried of SETTINGS from its path, the
 * environment and the files that they lead to. Before any thread starts and before the mount. What
 * cannot be read is left out. 0 or -ENOMEM.
 */
int sbx_toolchains_find(struct sbx_settings *settings);

/* The second half of it: variables and settings of registries, and the certificates that they name.
 */
int sbx_carried_find(struct sbx_settings *settings, const char *home);

/*
 * Adds PATH, absolute, to what is shown, for the reason WHY, unless it is shown already or must not
 * be: a home directory, a store of credentials, what is not there. 0 or -ENOMEM; *shown (may be
 * NULL) says whether commands see it.
 */
int sbx_toolchains_show(struct sbx_settings *settings, const char *path, const char *why,
                        bool *shown);

/* Whether commands see PATH without anything more being shown. */
bool sbx_toolchains_sees(const struct sbx_settings *settings, const char *path);

/*
 * Looks for the program WORD as commands would, where they cannot: FILE is what they would have
 * found, DIR the directory that would have to be shown. False: there is none. Reads the disk. Any
 * thread.
 */
bool sbx_toolchains_hidden(const struct sbx_settings *settings, const char *word,
                           char file[PATH_MAX], char dir[PATH_MAX]);

/* Whether PATH is a home directory, or one that homes lie in. */
bool sbx_holds_home(const char *path);

/* One line for each place that is shown and each thing that is left out, to standard output. */
void sbx_toolchains_tell(const struct sbx_settings *settings);

#endif
