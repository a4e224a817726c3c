/*
 * The init of a job: pid 1 of the job's pid namespace, or where there is none a subreaper. It is
 * made for a place and waits there for its request; then it starts the leader, reaps, passes
 * signals on and reports to the daemon. When nothing tells it from a new one then, it waits for
 * another.
 */
#ifndef SANDBOXFS_RUNNER_SPAWNER_INIT_H
#define SANDBOXFS_RUNNER_SPAWNER_INIT_H

#include <sys/resource.h>
#include <sys/types.h>

#include "backends/runner/isolation/namespaces.h"
#include "backends/runner/isolation/seccomp.h"
#include "backends/runner/spawner/protocol.h"

/* Numbers of descriptors that the spawner keeps for itself, and those that init puts its own at. */
enum {
	INIT_REPORT_FD = SPAWN_SOCKET, /* the spawner's socket, and init's too */
	INIT_SIGNAL_FD,   /* a signalfd of what the spawner and inits wait for: each gets his own */
	INIT_LIFE_FD,     /* a file that the spawner has a record lock on while it lives */
	INIT_LISTENER_FD, /* of the filter */
	INIT_CWD_FD,
	INIT_USER_FD,
	INIT_RULES_FD,
	INIT_EVENTS_FD,
	INIT_ORDERS_FD, /* where signals to be sent come from */
	INIT_WORK_FD,   /* where requests come from */
	INIT_NULL_FD,   /* holds the place of what is not open */
	INIT_END_FD
};

/*
 * From the spawner: send SIG to everything, while you run JOB. Not by a queued signal: of those the
 * kernel has only so many for a user, and any command of his may take them all.
 */
struct init_order {
	uint64_t job;
	int sig;
};

/* The configuration of an init. */
struct init_config {
	const struct spawn_features *features;
	const struct view *view;     /* NULL: nothing but the host */
	const struct filter *filter; /* of system calls, NULL: none */
	struct rlimit nofile;        /* what the daemon was started with */
	const struct cgroup *cgroup; /* the mount's */
	int group;                   /* the job's, to be entered, or -1 */
	int events;                  /* memory.events of the job's, or -1 */
	int work;                    /* a socket: SPAWN_EXECs as the spawner got them */
	int orders;                  /* a pipe of init_orders, which does not block */
	bool reuse;    /* for more than one: it sends a struct usage when it is ready */
	char *message; /* room for it: SPAWN_MESSAGE bytes */
};

/*
 * The whole life of an init, in the forked process. Exits 0 when the daemon was told the end, or
 * when its socket was closed before another request.
 */
_Noreturn void init_main(const struct init_config *config);

#endif
