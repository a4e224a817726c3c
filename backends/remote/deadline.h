/* How long is waited for a machine: in a place of its own, so that tests can shorten it. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_DEADLINE_H
#define SANDBOXFS_BACKENDS_REMOTE_DEADLINE_H

#include <stdint.h>

/* MS, for whoever is to wait so long. Thread-safe. */
uint64_t remote_deadline(uint64_t ms);
/* How much longer BYTES may take than a question does, on a line of 4 Mbit/s. */
static inline uint64_t remote_bytes_ms(uint64_t bytes)
{
	return (bytes >> 20) * 2000;
}

#endif
