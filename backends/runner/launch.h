/* Handing a command to the spawner, for backends whose commands run on this machine. */
#ifndef SANDBOXFS_RUNNER_LAUNCH_H
#define SANDBOXFS_RUNNER_LAUNCH_H

#include "sandboxfs/spawner.h"

struct json_object;

/* Where a sandbox's commands run. */
struct sbx_launch {
	const struct sbx_host *host;
	const char *name;
	const char *home; /* becomes HOME, and is writable */
	struct sbx_place
	        place; /* without its view, which is MNT/NAME, and without home in its rw */
};

/*
 * As sbx_command_impl.exec: sets HOME, TMPDIR and PWD, and asks the spawner. EOPNOTSUPP without
 * a spawner, E2BIG more than 14 further paths. Any thread.
 */
int sbx_launch(const struct sbx_launch *l, const struct sbx_exec *spec, struct sbx_job *job,
               struct sbx_error *err);

/*
 * Where a view of its own is in force: each path that commands see, with the reason; all below it
 * is seen as well. A caller's object, or NULL. Asks the disk. Any thread.
 */
struct json_object *sbx_launch_shown(const struct sbx_launch *l);

#endif
