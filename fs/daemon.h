/* The daemon: everything started in order, and ended in reverse. */
#ifndef SANDBOXFS_FS_DAEMON_H
#define SANDBOXFS_FS_DAEMON_H

#include "fs/config/options.h"
#include "sandboxfs/error.h"

/*
 * Mounts what OPTS says and serves it until it is unmounted or told to end (TERM, INT, HUP). Goes
 * to the background once the mount can be used, unless settings.foreground; in the calling process
 * it returns then. 0, or a negative errno with a sentence: nothing is mounted or left.
 */
int sbx_daemon_run(struct sbx_options *opts, struct sbx_error *err);

#endif
