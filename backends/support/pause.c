#include "backends/support/pause.h"

#include <errno.h>
#include <time.h>

#define SLICE_MS 100

int sbx_pause(uint64_t ms, atomic_bool *cancelled, struct sbx_error *err)
{
	while (ms && !(cancelled && atomic_load(cancelled))) {
		const uint64_t slice = ms < SLICE_MS ? ms : SLICE_MS;
		const struct timespec t = {.tv_nsec = (long)slice * 1000000};

		nanosleep(&t, NULL);
		ms -= slice;
	}
	return cancelled && atomic_load(cancelled) ? sbx_fail(err, EINTR, "it was given up") : 0;
}
