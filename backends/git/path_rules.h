/* The rules for names from inside a sandbox that may stand in an index or a tree of host git. */
#ifndef SANDBOXFS_GIT_PATH_RULES_H
#define SANDBOXFS_GIT_PATH_RULES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the N bytes at NAME are fit to be one component of a path: not empty, "." or "..", no
 * slash, no NUL, and not .git in any spelling that some file system takes for it (case, NTFS short
 * names and streams, code points that HFS+ ignores).
 */
bool sbx_git_component_ok(const char *name, size_t n);
/* The same for each component of the relative path of N bytes. */
bool sbx_git_path_ok(const char *path, size_t n);

#endif
