/*
 * A backend over the one in memory whose files are elsewhere, in a directory that the test has: a
 * machine that the test plays. It is what sandboxfs-away calls `memory`. SBX_AWAY names a
 * directory; of sandbox NAME there is
 *
 *   NAME/far/   the machine's tree, as it is; empty where the test has made none
 *   NAME/log    what is asked and told, a line each
 *   NAME/hold   while it is there nothing comes
 *   NAME/down   while it is there the machine is being made
 *   NAME/delay  holds how many ms each answer takes
 *   NAME/fail   holds an errno (a number) and the path that cannot be had, "*": any
 *   NAME/old    until something is asked for the attributes of nothing are new enough
 *   NAME/doze   while it is there the answer whether contents are here takes its time
 *   NAME/full   while it is there no change can be noted
 *   NAME/refresh holds a path that stands otherwise in far/ by now; it goes when that is taken over
 */
#ifndef SANDBOXFS_TESTS_AWAY_H
#define SANDBOXFS_TESTS_AWAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandboxfs/away.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/strv.h"

#define AWAY_CHUNK (UINT64_C(1) << 20)

struct away_change {
	enum sbx_change_kind kind;
	char *path, *to, *target;
	ino_t ino;
	mode_t mode;
};

struct away_file {
	struct away_file *next;
	ino_t ino;
	bool names;    /* of a directory: they are here */
	uint64_t have; /* of a file: a bit for each chunk that is here */
	unsigned chunks;
	bool dirty, restated;
};

#define AWAY_BUCKETS 4096 /* a power of two */

struct away_sandbox {
	struct sbx_sandbox base; /* its strings belong to inner */
	struct sbx_sandbox_impl impl;
	struct sbx_sandbox *inner;
	struct away *backend;
	int play; /* SBX_AWAY/NAME */
	int far;  /* its far/ */
	int nested;
	int temp;
	pthread_rwlock_t turn;
	struct sbx_timer timer; /* loop thread */
	bool refreshing;        /* loop thread */
	atomic_int admitted;    /* and not told of */
	pthread_mutex_t lock;   /* what follows, and the log */
	struct away_file *files[AWAY_BUCKETS];
	struct away_change *changes; /* not flushed */
	size_t nchanges, cap;
	bool looked; /* since `old` came */
};

/* What is known of INO, made where it is not. The lock is held. */
struct away_file *away_file_of(struct away_sandbox *s, ino_t ino);
/* How many chunks SIZE bytes have. */
unsigned away_chunks(uint64_t size);

/* Each returns 0 or -errno, and may block. */
/* Has the names of the directory PATH in the copy. */
int away_fetch_names(struct away_sandbox *s, const char *path);
/* Has LEN bytes (0: all) of PATH from OFF on in the copy. */
int away_fetch_data(struct away_sandbox *s, const char *path, uint64_t off, uint64_t len);
/* Takes over how PATH stands in far/: as a new file under its name, or gone. */
int away_take_over(struct away_sandbox *s, const char *path);
/* Does in far/ what was told. */
int away_send(struct away_sandbox *s, struct away_change *changes, size_t n);
void away_changes_free(struct away_change *changes, size_t n);

#endif
