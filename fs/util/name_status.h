/* Lists of names as a diff gives them (SBX_DIFF_NAMES). Thread-safe. */
#ifndef SANDBOXFS_FS_UTIL_NAME_STATUS_H
#define SANDBOXFS_FS_UTIL_NAME_STATUS_H

#include "sandboxfs/settings.h"

/*
 * Adds the paths in TEXT to RET, as they are, without the quotes of odd ones: of a renamed file
 * both. A last line without its end is left out. 0 or -ENOMEM.
 */
int sbx_names_read(const char *text, size_t len, struct sbx_strings *ret);

#endif
