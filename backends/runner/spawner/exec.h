/*
 * The leader of a job: the process that becomes the command. It is made ahead of the request, gives
 * up its rights and parks, because that takes longer than all that is left to do when the request
 * comes. It runs in init's memory and shares its descriptors until it executes; of the two only one
 * runs at a time.
 */
#ifndef SANDBOXFS_RUNNER_SPAWNER_EXEC_H
#define SANDBOXFS_RUNNER_SPAWNER_EXEC_H

#include <stdint.h>
#include <sys/types.h>

#include "backends/runner/spawner/init.h"

struct leader {
	const struct init_config *config;
	const struct spawn_request *req; /* given by leader_release */
	pid_t pid;
	/* Written by the leader, in the memory it shares with us: */
	int error; /* an errno: it has not become the command */
	enum spawn_stage stage;
	/* Futexes: */
	uint32_t held; /* what it is at; the kernel clears it when our memory is no longer its */
	uint32_t gate; /* opened by leader_release */
};

/* Starts the leader and returns when it is parked. 0 or an errno, of L->stage. */
int leader_prepare(struct leader *l, const struct init_config *config);
/*
 * Makes it execute REQ: its descriptors 0, 1, 2 are ours, its directory is INIT_CWD_FD. Returns
 * when it does: 0, or the errno of L->stage, and it has ended.
 */
int leader_release(struct leader *l, const struct spawn_request *req);

#endif
