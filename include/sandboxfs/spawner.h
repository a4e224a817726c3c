/*
 * The spawner: a small single-threaded process, forked before the daemon has
 * any thread, that makes namespaces and starts jobs. It dies with the daemon
 * (PR_SET_PDEATHSIG) and every job dies with it, so kill -9 of the daemon
 * leaves no process. A small process also forks faster than a big one, and
 * joining a user namespace needs a single thread (setns(2)).
 */
#ifndef SANDBOXFS_SPAWNER_H
#define SANDBOXFS_SPAWNER_H

#include "sandboxfs/backend.h"

struct sbx_spawner;
struct sbx_loop;

/*
 * Forks the spawner. Must be called while the process has one thread and, as the
 * child keeps them, before descriptors are opened that a job must not hold alive.
 * Returns 0 or a negative errno.
 */
int sbx_spawner_start(const struct sbx_settings *settings, struct sbx_spawner **ret,
                      struct sbx_error *err);
/* Starts listening on LOOP. Before the first sbx_spawner_exec. */
int sbx_spawner_attach(struct sbx_spawner *sp, struct sbx_loop *loop);
/* Ends the spawner and with it every job; waits until it is gone. Accepts NULL. */
void sbx_spawner_stop(struct sbx_spawner *sp);

/* Where a sandbox's commands run. Strings are copied during the call. */
struct sbx_place {
	const char *id;      /* of the sandbox */
	const char *workdir; /* absolute path of the tree */
	const char *view;    /* absolute path at which commands see the tree (MNT/NAME) */
	const char *const
	        *ro; /* further paths visible read only (source's .git), NULL-terminated or NULL */
	const char *const *rw;
};

/*
 * [any] As sbx_sandbox_impl.exec, in PLACE.
 */
int sbx_spawner_exec(struct sbx_spawner *sp, const struct sbx_place *place,
                     const struct sbx_exec *spec, const struct sbx_exec_events *events, void *data,
                     struct sbx_job **ret, struct sbx_error *err);
/* [any] Forgets what is kept warm for the sandbox ID (namespaces, mounts); its jobs have ended. */
void sbx_spawner_forget(struct sbx_spawner *sp, const char *id);
/* [any] Adds "isolation" as it is in force to OBJ. */
void sbx_spawner_policy(struct sbx_spawner *sp, struct json_object *obj);

#endif
