/* The messages between the two sides of a mounter: one there, one back. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_MOUNTER_IMPL_H
#define SANDBOXFS_RUNNER_ISOLATION_MOUNTER_IMPL_H

#include <stdint.h>

enum room_verb { ROOM_MOUNT, ROOM_UNMOUNT, ROOM_DISK, ROOM_RESIZE };

struct room_request {
	uint32_t verb;
	char id[128];   /* of the sandbox */
	char base[128]; /* name of the base; of ROOM_MOUNT */
	uint64_t mb;    /* of ROOM_DISK and ROOM_RESIZE */
};

/* After ROOM_MOUNT and ROOM_DISK and on 0 the root comes along. The first answer is about the room itself. */
struct room_answer {
	int32_t error; /* a positive errno, or 0 */
	char what[48];
};

#endif
