/* Handing a command to the spawner, for backends whose commands run on this machine. */
#ifndef SANDBOXFS_SUPPORT_LAUNCH_H
#define SANDBOXFS_SUPPORT_LAUNCH_H

#include "sandboxfs/spawner.h"

struct sbx_launch {
	const struct sbx_host *host;
	const char *id;
	const char *name;
	const char *workdir;
	bool layered, as_source; /* as in struct sbx_place */
	const char *home;        /* becomes HOME, and is writable */
	const char *const *ro;   /* further paths to read, NULL-terminated, or NULL */
	const char *const *rw;   /* to write as well */
	const char *const *over; /* as in struct sbx_place */
};

/*
 * As sbx_sandbox_impl.exec: sees to HOME, TMPDIR and PWD, and asks the spawner. EOPNOTSUPP without
 * a spawner, E2BIG more than 14 further paths. Any thread.
 */
int sbx_launch(const struct sbx_launch *l, const struct sbx_exec *spec,
               const struct sbx_exec_events *events, void *data, struct sbx_job **ret,
               struct sbx_error *err);

#endif
