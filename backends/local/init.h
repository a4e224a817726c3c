/*
 * The init of a job: pid 1 of the job's pid namespace, or where there is none a subreaper.
 * It starts the leader, reaps, passes signals on and reports to the daemon.
 */
#ifndef SANDBOXFS_BACKENDS_LOCAL_INIT_H
#define SANDBOXFS_BACKENDS_LOCAL_INIT_H

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "backends/local/spawn_proto.h"
#include "backends/local/view.h"

#define INIT_REPORT_FD 3 /* where the spawner keeps its socket, and init too */
#define INIT_LIFE_FD   5 /* a file that the spawner has a record lock on while it lives */
#define INIT_FREE_FD   6 /* from here on init may put its own; the spawner keeps three free */

/* SIGRTMIN with a value from the spawner asks init to send that signal to everything. */

struct init_job {
	const struct spawn_request *req;
	const struct spawn_powers *powers;
	const struct view *view;         /* NULL: nothing but the host */
	const struct sock_fprog *filter; /* of system calls, NULL: none */
	struct rlimit nofile;            /* what the daemon was started with */
};

/* The whole life of a job, in the forked process. Exits 0 when the daemon was told the end. */
_Noreturn void init_main(const struct init_job *job);

#endif
