/*
 * The worker pool: a few threads for what can only block (libgit2, copying and
 * removing trees). FUSE workers and the event loop hand such work over here.
 */
#ifndef SANDBOXFS_POOL_H
#define SANDBOXFS_POOL_H

#include <stdbool.h>

struct sbx_pool;

/* Starts THREADS threads (1..64). Returns 0 or a negative errno. */
int sbx_pool_create(int threads, struct sbx_pool **ret);
/*
 * A pool for works that may take long: no work waits for another's end, as each that finds no idle
 * thread has one started, up to MOST (1 or more) at once. LOW: the threads give way to whatever
 * else wants processor or disk. Returns 0 or a negative errno.
 */
int sbx_pool_create_wide(int most, bool low, struct sbx_pool **ret);
/* Runs what is queued to its end, then joins the threads. Accepts NULL. */
void sbx_pool_destroy(struct sbx_pool *pool);
/* Has fn(data) called on some worker. Any thread; never blocks. */
void sbx_pool_submit(struct sbx_pool *pool, void (*fn)(void *data), void *data);

#endif
