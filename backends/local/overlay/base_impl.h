/* What the files of the cache share. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_BASE_IMPL_H
#define SANDBOXFS_LOCAL_OVERLAY_BASE_IMPL_H

#include <pthread.h>
#include <sys/stat.h>

#include "backends/local/overlay/base_index.h"

#define SBX_BOOT_ID   64
#define SBX_BASE_SEEN 256

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

struct sbx_base_marker {
	struct sbx_base_facts facts;
	int64_t born_ns;
	char boot[SBX_BOOT_ID]; /* in which it was made */
	bool synced;            /* it has reached the disk */
};

void sbx_base_boot_id(char ret[SBX_BOOT_ID]);
int sbx_base_marker_write(int dir, const struct sbx_base_marker *m);
/* -ENOENT; -EINVAL: unreadable, or the base is not what it says. */
int sbx_base_marker_read(int dir, struct sbx_base_marker *ret);
/* A descriptor to close; -EBUSY: taken, and WAIT is false; -EINTR cancelled. */
int sbx_base_lock(struct sbx_bases *bases, const char *key, bool wait, atomic_bool *cancelled);
/* Under the lock of KEY. Forgets users that are no more. */
bool sbx_base_is_used(struct sbx_bases *bases, const char *key);
/* Under the lock of KEY. Out of sight at once, then removed unless it is in use. */
int sbx_base_discard(struct sbx_bases *bases, const char *key);
/* Has the keeper look after the cache. */
void sbx_bases_wake(struct sbx_bases *bases);
/* CLOCK_REALTIME, by which the keeper waits. */
int64_t sbx_base_now_ms(void);
/* Under bases->lock, which it gives up while it copies. */
void sbx_base_make_spare(struct sbx_bases *bases);
void sbx_base_spare_release(struct sbx_bases *bases);

#endif
