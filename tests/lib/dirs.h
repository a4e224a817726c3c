/*
 * A provider (backends/remote/provider.h) whose machines are directories of this host, so that all
 * that is built on providers can be tested without one: with latency, with faults at every verb,
 * and with requests that can be counted.
 *
 *   BASE/machines/NAME/tree, room, home   of a machine; HOME of what runs there
 *   BASE/machines/NAME/meta               lines "name", "label", "made" (ms), each with its value
 *   BASE/machines/NAME/state              making, up, asleep, or "failed ERRNO SENTENCE"
 *   BASE/machines/NAME/log                stderr of all that ran there
 *   BASE/faults                           what goes wrong; read anew when it is another file
 *   BASE/requests                         a line each: MS MACHINE VERB OP BYTES FAULT
 *
 * A line of faults is
 *   VERB[:OP][@MACHINE] KIND [COUNT|all|every N] [ARG]
 * VERB: make look unmake find touch run put, or *. OP: of a run or put, else any. COUNT: the
 * first so many that match since the file is there; every N: each Nth that matches. The first line
 * that applies is the fault of a request, which those below do not count; all of the kind latency
 * come on top. KIND:
 *   latency    ARG ms later
 *   lost       it is done, and the answer is EREMOTEIO
 *   stall      it is done, and there is no answer before the deadline
 *   cut        half of the answer's bytes; of a put, half of its files, and EREMOTEIO
 *   429        EAGAIN
 *   5xx        EREMOTEIO, and nothing is done
 *   vanish     the machine is gone, here and from then on: ESTALE
 *   asleep     the machine had fallen asleep, which ends all that ran there; wakes in ARG ms (500)
 *   hostile    a run's answer goes through `sh BASE/ARG`, which reads it and prints another
 *   blackhole  nothing is done, and there is no answer: not before the deadline of a run or put,
 *              else not for ARG ms (30 000), then ETIMEDOUT
 *   given_up   of what is no run or put: EINTR, though nobody has given it up
 *   late       of make: there is no answer, and the machine is made ARG ms later, whoever waits
 *
 * Environment: SBX_DIRS the base; SBX_DIRS_LATENCY ms of each request (0); SBX_DIRS_LIFE
 * ms after a touch, when a machine is said to end (0: never); SBX_DIRS_CAN words of
 * what it can, "detaches parallel sleeps blocks_network filters_hosts ephemeral merges
 * continues" (the first three and the last);
 * SBX_DIRS_SHELL the shell with its arguments ("sh"); SBX_DIRS_PATH the PATH of what runs there.
 */
#ifndef SANDBOXFS_TESTS_DIRS_H
#define SANDBOXFS_TESTS_DIRS_H

#include "backends/remote/provider.h"

struct sbx_loop;

/* A provider of machines in the directory BASE, which may have to be made. 0 or -errno. */
int dirs_create(const char *base, struct sbx_loop *loop, struct sbx_provider **ret,
                struct sbx_error *err);

/* The backend `dirs`, in the directory that SBX_DIRS names. As sbx_backend_open(). */
int sbx_dirs_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);

#endif
