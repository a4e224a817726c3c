/*
 * A mutex, a condition and a list. A wide pool has a thread for each work that is under way: some
 * of them take minutes, as a command decides, and whoever is next shall not wait for those. Its
 * threads end when there is nothing to do for more than a few, and are not joined: the last to
 * leave says so.
 */
#include "sandboxfs/pool.h"

#include <assert.h>
#include <errno.h>
#include <linux/ioprio.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandboxfs/thread.h"

struct work {
	struct work *next;
	void (*fn)(void *data);
	void *data;
};

struct sbx_pool {
	pthread_mutex_t lock; /* all below */
	pthread_cond_t more;
	struct work *head, **tail;
	bool ending, low;
	int threads;            /* that were started, and of a wide pool have not ended */
	int idle, queued, most; /* most 0: not wide */
	pthread_cond_t left;    /* threads of a wide pool became 0 */
	pthread_t thread[];
};

#define NICE 10
#define KEEP 4 /* idle threads of a wide pool */

/* On Linux both are a thread's own. */
static void give_way(void)
{
	setpriority(PRIO_PROCESS, 0, NICE);
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
}

static void *worker(void *data)
{
	struct sbx_pool *pool = data;

	if (pool->low)
		give_way();
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct work *w = pool->head;

		if (!w) {
			if (pool->ending || (pool->most && pool->idle >= KEEP))
				break;
			pool->idle++;
			pthread_cond_wait(&pool->more, &pool->lock);
			pool->idle--;
			continue;
		}
		pool->head = w->next;
		if (!pool->head)
			pool->tail = &pool->head;
		assert(pool->queued > 0);
		pool->queued--;
		pthread_mutex_unlock(&pool->lock);
		w->fn(w->data);
		free(w);
		pthread_mutex_lock(&pool->lock);
	}
	if (pool->most && !--pool->threads)
		pthread_cond_signal(&pool->left);
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static struct sbx_pool *pool_new(int threads, int most, bool low)
{
	struct sbx_pool *pool = calloc(1, sizeof(*pool) + (size_t)threads * sizeof(pthread_t));

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->more, NULL);
	pthread_cond_init(&pool->left, NULL);
	pool->tail = &pool->head;
	pool->most = most;
	pool->low = low;
	return pool;
}

int sbx_pool_create(int threads, struct sbx_pool **ret)
{
	struct sbx_pool *pool = pool_new(threads, 0, false);
	int r = 0;

	assert(threads >= 1 && threads <= 64);
	if (!pool)
		return -ENOMEM;
	while (pool->threads < threads && !r) {
		r = sbx_thread_start(&pool->thread[pool->threads], worker, pool);
		pool->threads += !r;
	}
	if (r) {
		sbx_pool_destroy(pool);
		return r;
	}
	*ret = pool;
	return 0;
}

/* One more thread. The lock is held. */
static int widen(struct sbx_pool *pool)
{
	pthread_t thread;
	int r = sbx_thread_start(&thread, worker, pool);

	if (r)
		return r;
	pthread_detach(thread);
	pool->threads++;
	return 0;
}

/*
 * The first thread is there from the start: what is submitted is done even where no other is to be
 * had.
 */
int sbx_pool_create_wide(int most, bool low, struct sbx_pool **ret)
{
	struct sbx_pool *pool = pool_new(0, most, low);
	int r;

	assert(most >= 1);
	if (!pool)
		return -ENOMEM;
	pthread_mutex_lock(&pool->lock);
	r = widen(pool);
	pthread_mutex_unlock(&pool->lock);
	if (r) {
		sbx_pool_destroy(pool);
		return r;
	}
	*ret = pool;
	return 0;
}

void sbx_pool_destroy(struct sbx_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->more);
	while (pool->most && pool->threads)
		pthread_cond_wait(&pool->left, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->threads; i++)
		pthread_join(pool->thread[i], NULL);
	assert(!pool->head && !pool->queued && !pool->idle);
	pthread_cond_destroy(&pool->left);
	pthread_cond_destroy(&pool->more);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

void sbx_pool_submit(struct sbx_pool *pool, void (*fn)(void *data), void *data)
{
	struct work *w = malloc(sizeof(*w));

	if (!w)
		abort();
	*w = (struct work){.fn = fn, .data = data};
	pthread_mutex_lock(&pool->lock);
	*pool->tail = w;
	pool->tail = &w->next;
	pool->queued++;
	/* Who was woken already has not come yet, and takes one of those. */
	if (pool->queued > pool->idle && pool->threads < pool->most)
		widen(pool);
	pthread_cond_signal(&pool->more);
	pthread_mutex_unlock(&pool->lock);
}
