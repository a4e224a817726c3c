/* The memory of a whole job where no cgroup limits it: counted now and then by its init. */
#ifndef SANDBOXFS_RUNNER_SPAWNER_MEMORY_LIMIT_H
#define SANDBOXFS_RUNNER_SPAWNER_MEMORY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct memory_watch {
	uint64_t limit; /* bytes; 0: nothing is watched */
	uint64_t next;  /* CLOCK_MONOTONIC ns of the next look */
};

/* Starts to watch what /proc shows for MB MiB; 0: never. */
void memory_watch_start(struct memory_watch *w, uint64_t mb);
/* For poll(2): how long to wait at most, ms; -1 for ever. */
int memory_watch_due_ms(const struct memory_watch *w);
/*
 * When it is time for another look: whether all processes but the caller have more memory than the
 * limit. What several share is counted once where we may look into them.
 */
bool memory_watch_over(struct memory_watch *w);

#endif
