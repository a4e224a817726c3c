/* A mutex, a condition and a list: the work is milliseconds long, so nothing cleverer pays. */
#include "sandboxfs/pool.h"

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
	int threads;
	pthread_t thread[];
};

#define NICE 10

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
			if (pool->ending)
				break;
			pthread_cond_wait(&pool->more, &pool->lock);
			continue;
		}
		pool->head = w->next;
		if (!pool->head)
			pool->tail = &pool->head;
		pthread_mutex_unlock(&pool->lock);
		w->fn(w->data);
		free(w);
		pthread_mutex_lock(&pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static int create(int threads, bool low, struct sbx_pool **ret)
{
	struct sbx_pool *pool = calloc(1, sizeof(*pool) + (size_t)threads * sizeof(pthread_t));
	int r = 0;

	if (!pool)
		return -ENOMEM;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->more, NULL);
	pool->tail = &pool->head;
	pool->low = low;
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

int sbx_pool_create(int threads, struct sbx_pool **ret)
{
	return create(threads, false, ret);
}

int sbx_pool_create_low(int threads, struct sbx_pool **ret)
{
	return create(threads, true, ret);
}

void sbx_pool_destroy(struct sbx_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->more);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->threads; i++)
		pthread_join(pool->thread[i], NULL);
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
	pthread_cond_signal(&pool->more);
	pthread_mutex_unlock(&pool->lock);
}
