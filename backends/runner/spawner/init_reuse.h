/*
 * The check whether an init may run another command after one that has ended: it may when that
 * command finds init and its namespaces as the first one did.
 */
#ifndef SANDBOXFS_RUNNER_SPAWNER_INIT_REUSE_H
#define SANDBOXFS_RUNNER_SPAWNER_INIT_REUSE_H

#include <linux/capability.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

#define REUSE_RIGHT CAP_CHECKPOINT_RESTORE /* all that an init has to keep for reuse_ready */

/* State of a process that another of the same user may change; children inherit it. */
struct reuse {
	struct rlimit limits[RLIM_NLIMITS];
	uint8_t sched[56]; /* a struct sched_attr */
	cpu_set_t cpus;
	int io;
};

/* Resources that a process and its children have used so far. */
struct usage {
	uint64_t user_us, sys_us, max_rss_kb;
};

/* Whether the calling process has, and the kernel knows, what it takes. */
bool reuse_is_possible(void);
/* Notes how the calling process is now. */
void reuse_note(struct reuse *ret);
/*
 * Whether the calling process, pid 1 of its namespace and the last one in it, is as AS says and has
 * no signal waiting; then the next process in the namespace gets the number 2, as the first did.
 */
bool reuse_ready(const struct reuse *as);
/* Adds what was used by one process, as wait4(2) tells it. */
void usage_add(struct usage *u, const struct rusage *ru);

#endif
