/* The cache as base.c and base_index.c have it. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_BASE_IMPL_H
#define SANDBOXFS_LOCAL_OVERLAY_BASE_IMPL_H

#include <pthread.h>
#include <sys/stat.h>

#include "backends/local/overlay/base_index.h"

#define SBX_BOOT_ID 64

/* A copy of an index that is ready, and what another is to be made of; descriptors or -1. */
struct sbx_base_spare {
	int fd;
	struct stat of; /* what it is a copy of */
	int from, at;   /* the index, and where copies are wanted */
	int64_t due_ms; /* not before, so that it does not slow down the create that asks for it */
};

struct sbx_bases {
	char *path; /* of bases/ */
	int dir, bases, users, locks, tmp;
	uint64_t limit_mb;
	char boot[SBX_BOOT_ID];
	atomic_ulong serial; /* of names in tmp/ */
	pthread_t keeper;    /* does what nobody waits for */
	bool keeping;
	pthread_mutex_t lock; /* the rest */
	pthread_cond_t more;
	bool dirty, ending;
	int64_t sync_ms; /* when what is new is seen to the disk; 0: nothing is */
	atomic_bool cancelled;
	struct sbx_base_recipe *wanted;
	void (*free_wanted)(struct sbx_base_recipe *recipe);
	struct sbx_base_spare spare;
	struct sbx_base_index *index; /* that was asked for last, or NULL */
};

#endif
