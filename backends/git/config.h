/*
 * The text of git's configuration files (git-config(1), "Syntax"), without a repository and
 * following nothing.
 */
#ifndef SANDBOXFS_GIT_CONFIG_H
#define SANDBOXFS_GIT_CONFIG_H

#include <stdbool.h>

/*
 * KEY is section.name or section.subsection.name, all but the subsection in small letters; VALUE
 * is NULL where none is assigned.
 */
typedef int (*sbx_git_config_fn)(const char *key, const char *value, void *data);

/*
 * Calls FN for each variable of TEXT, in order, until it answers other than 0, which is returned.
 * -EINVAL: TEXT is no configuration; -ENOMEM. Thread-safe.
 */
int sbx_git_config_parse(const char *text, sbx_git_config_fn fn, void *data);

/* Whether VALUE is one of git's words for yes or no; NULL is yes. */
bool sbx_git_config_is_bool(const char *value);

#endif
