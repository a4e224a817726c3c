/*
 * As whom commands run. An ordinary user's commands are that user's; a daemon of root's has them
 * run as somebody without rights, never as root.
 */
#ifndef SANDBOXFS_IDENTITY_H
#define SANDBOXFS_IDENTITY_H

#include <sys/types.h>

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

struct sbx_identity {
	uid_t uid;
	gid_t gid;
};

/*
 * As whom the commands of SETTINGS run: settings->run_as ("name", "uid" or "uid:gid"); without it,
 * for root, whoever called sudo, else the account "sandboxfs" where there is one, else
 * nobody. With isolation=none whoever the daemon is. EINVAL run_as cannot be read, is unknown
 * or is root; EPERM it is another user and the daemon is not root. Thread-safe.
 */
int sbx_identity_find(const struct sbx_settings *settings, struct sbx_identity *ret,
                      struct sbx_error *err);

#endif
