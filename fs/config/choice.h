/* The backend of a mount that asks for none, which --doctor tells. Not thread-safe. */
#ifndef SANDBOXFS_FS_CONFIG_CHOICE_H
#define SANDBOXFS_FS_CONFIG_CHOICE_H

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

/*
 * Fills SETTINGS as a mount without options would have them, but for what it resolves; the caller
 * releases them in any case. *WHY: what has named the backend, in words.
 */
int sbx_choice_find(struct sbx_settings *settings, const char **why, struct sbx_error *err);
/*
 * Whether that backend has what it needs of this environment; else an errno, and a sentence. It
 * takes the backend's secrets out of the environment, and asks nobody. *NOTE, the caller's: what is
 * to be known of what it has; NULL: nothing.
 */
int sbx_choice_check(const struct sbx_settings *settings, char **note, struct sbx_error *err);

#endif
