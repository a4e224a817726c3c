/* The messages between the two sides of a mounter: one there, one back. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_MOUNTER_IMPL_H
#define SANDBOXFS_RUNNER_ISOLATION_MOUNTER_IMPL_H

#include <stdint.h>

enum mounter_verb { MOUNTER_MOUNT, MOUNTER_UNMOUNT, MOUNTER_DISK, MOUNTER_RESIZE };

struct mounter_request {
	uint32_t verb;
	char id[128];   /* of the sandbox */
	char base[128]; /* name of the base; of MOUNTER_MOUNT */
	uint64_t mb;    /* of MOUNTER_DISK and MOUNTER_RESIZE */
};

/* After MOUNTER_MOUNT and MOUNTER_DISK and on 0 the root comes along. The first answer is about the
 * room itself. */
struct mounter_answer {
	int32_t error; /* a positive errno, or 0 */
	char what[48];
};

#endif
