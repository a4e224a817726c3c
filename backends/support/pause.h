/* A wait that somebody may give up. */
#ifndef SANDBOXFS_BACKENDS_SUPPORT_PAUSE_H
#define SANDBOXFS_BACKENDS_SUPPORT_PAUSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"

/*
 * [wait] Sleeps for MS milliseconds. -EINTR: *CANCELLED (may be NULL), which is looked at ten times
 * a second, is true. Thread-safe.
 */
int sbx_pause(uint64_t ms, atomic_bool *cancelled, struct sbx_error *err);

#endif
