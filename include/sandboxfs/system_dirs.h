/*
 * The directories of the host that every command sees, read only. What mounts the view, what makes
 * the Landlock rules and what looks for tools elsewhere ask this one list, so that they agree.
 */
#ifndef SANDBOXFS_SYSTEM_DIRS_H
#define SANDBOXFS_SYSTEM_DIRS_H

/*
 * Absolute paths, the last entry is NULL; not all of them exist everywhere. Of Nix its daemon's
 * socket is left out, because a read-only mount does not keep anybody from connecting to a socket.
 */
extern const char *const sbx_system_dirs[];

#endif
