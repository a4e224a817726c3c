/*
 * The spawner: a small single-threaded program, sandboxfs-runner, that makes
 * namespaces and starts jobs. It dies with the daemon (PR_SET_PDEATHSIG) and
 * every job dies with it, so kill -9 of the daemon leaves no process. A small
 * process also forks faster than a big one, and joining a user namespace
 * needs a single thread (setns(2)).
 */
#ifndef SANDBOXFS_SPAWNER_H
#define SANDBOXFS_SPAWNER_H

#include "sandboxfs/backend.h"

struct sbx_spawner;
struct sbx_loop;

/*
 * A text on settings that may forbid user namespaces on this machine, and how to allow them.
 * Thread-safe.
 */
const char *sbx_userns_mend(void);
/* Whether this process has changed its root by chroot(2), as far as /proc tells. Thread-safe. */
bool sbx_in_chroot(void);

/*
 * Starts the spawner. The calling thread must live as long as the daemon (PR_SET_PDEATHSIG is bound
 * to it), and SETTINGS as long as the spawner. Commands get the limits of descriptors that are in
 * force now. Waits until the spawner has found out what it can make. Returns 0 or a negative errno:
 * EPERM when isolation=require cannot be met, ENOENT the program is not there, EPROTO it is of
 * another build.
 */
int sbx_spawner_start(const struct sbx_settings *settings, struct sbx_spawner **ret,
                      struct sbx_error *err);
/* Starts listening on LOOP. Before the first sbx_spawner_exec. */
int sbx_spawner_attach(struct sbx_spawner *sp, struct sbx_loop *loop);
/*
 * Ends the spawner and with it every job (their ended is called from here); waits until it is
 * gone. On the loop thread or after the loop has stopped, before it is destroyed. Accepts NULL.
 */
void sbx_spawner_stop(struct sbx_spawner *sp);

/* Where a sandbox's commands run. Strings are copied during the call. */
struct sbx_place {
	const char *id;      /* of the sandbox */
	const char *workdir; /* absolute path of the tree */
	bool overlaid;  /* the tree is what the room has for ID; workdir is but a name for it */
	bool as_source; /* it is a copy of the source, whose path leads to it too */
	bool on_disk;   /* the first two of rw, home and repository, are what the room has on a disk
	                   for ID, where it does */
	const char *view; /* absolute path at which commands see the tree (MNT/NAME) */
	const char *const
	        *ro; /* further paths visible read only (source's .git), NULL-terminated or NULL */
	const char *const *rw;
	/* Pairs: a path, and one relative to the tree over which it is shown read only, where that
	 * is there and leads through no link; NULL-terminated or NULL. */
	const char *const *over;
};

/*
 * [any] As sbx_command_impl.exec, in PLACE; the environment is passed on as it is. What the spawner
 * or the kernel refuses (cwd, program) comes by ended. E2BIG, ENOMEM, EAGAIN (descriptors), ESRCH
 * (the spawner has died).
 */
int sbx_spawner_exec(struct sbx_spawner *sp, const struct sbx_place *place,
                     const struct sbx_exec *spec, struct sbx_job *job, struct sbx_error *err);
/* As sbx_command_impl.signal. */
void sbx_spawner_signal(struct sbx_job *job, int sig);
/* [any] Whether a command of the sandbox ID, or a process that it started, may be alive. */
bool sbx_spawner_runs(struct sbx_spawner *sp, const char *id);
/* [any] Forgets what is kept warm for the sandbox ID (namespaces, mounts); its jobs have ended. */
void sbx_spawner_forget(struct sbx_spawner *sp, const char *id);
/* [pool] As forget, and waits until it is done. */
void sbx_spawner_forget_now(struct sbx_spawner *sp, const char *id);
/*
 * [pool] Has the spawner start the process that mounts trees of TREES over bases of BASES; *ret is
 * the socket to it, on which it tells whether it could (backends/runner/isolation/mounter.h).
 * EOPNOTSUPP: commands have no mounts of their own.
 */
int sbx_spawner_open_mounter(struct sbx_spawner *sp, const char *bases, const char *trees, int *ret,
                             struct sbx_error *err);
/* [any] Whether commands can write to /tmp: where Landlock is the only wall the host's is refused.
 */
bool sbx_spawner_shows_tmp(const struct sbx_spawner *sp);
/* [any] Whether commands see a view of their own instead of the host. */
bool sbx_spawner_views(const struct sbx_spawner *sp);
/* [any] Whether files in memory can appear as those of whom commands run as, whoever owns them. */
bool sbx_spawner_maps_memory(const struct sbx_spawner *sp);
/* [any] Adds "isolation" as it is in force to OBJ. */
void sbx_spawner_policy(struct sbx_spawner *sp, struct json_object *obj);

#endif
