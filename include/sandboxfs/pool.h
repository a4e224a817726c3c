/*
 * The worker pool: a few threads for what can only block (libgit2, copying and
 * removing trees). FUSE workers and the event loop hand such work over here.
 */
#ifndef SANDBOXFS_POOL_H
#define SANDBOXFS_POOL_H

struct sbx_pool;

/* Starts THREADS threads (1..64). Returns 0 or a negative errno. */
int sbx_pool_create(int threads, struct sbx_pool **ret);
/* As create; the threads give way to whatever else wants processor or disk. */
int sbx_pool_create_low(int threads, struct sbx_pool **ret);
/* Runs what is queued to its end, then joins the threads. Accepts NULL. */
void sbx_pool_destroy(struct sbx_pool *pool);
/* Has fn(data) called on some worker. Any thread; never blocks. */
void sbx_pool_submit(struct sbx_pool *pool, void (*fn)(void *data), void *data);

#endif
