/*
 * The system calls of a job that the filter refuses: answered by its init, and told to the daemon.
 * So is the first one that would lead out of a network without a way out.
 */
#ifndef SANDBOXFS_RUNNER_SPAWNER_DENIALS_H
#define SANDBOXFS_RUNNER_SPAWNER_DENIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/runner/spawner/protocol.h"

struct refusals {
	int fd; /* the listener of filter_load, or -1 */
	uint64_t job;
	uint64_t begun_ms; /* of the second that counts, CLOCK_MONOTONIC */
	unsigned told;     /* in it */
	uint32_t more;     /* not told singly, and not yet told as a number */
	bool tried;        /* an attempt to get out was told */
};

/*
 * Something came up on fd (EVENTS of poll): one call is answered EPERM, and reported unless ten of
 * this second have been; or let go on, when it was only to be heard of. Never waits for the daemon.
 */
void refusals_serve(struct refusals *r, short events);
/* For poll: when there is a number to be told; -1: none. */
int refusals_due_ms(const struct refusals *r);
/* Tells the number if its time has come, or in any case (FORCE). */
void refusals_flush(struct refusals *r, bool force);

#endif
