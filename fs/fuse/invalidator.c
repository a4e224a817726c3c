#include "fs/fuse/invalidator.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "sandboxfs/clock.h"

#define QUEUED 8192

struct sbx_forgetter {
	pthread_t thread;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t added, done;
	uint64_t head, tail; /* of the queue, counted from the beginning: done, and added */
	bool late;           /* somebody has waited in vain for what is being done */
	bool stopping;
	bool left; /* to the thread, which frees it */
	void (*forget)(uint64_t id, void *data);
	void *data;
	uint64_t queue[QUEUED];
};

static void release(struct sbx_forgetter *f)
{
	assert(f->head == f->tail);
	pthread_cond_destroy(&f->added);
	pthread_cond_destroy(&f->done);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void *run(void *data)
{
	struct sbx_forgetter *f = data;
	bool left;

	pthread_mutex_lock(&f->lock);
	for (;;) {
		uint64_t id;

		while (f->head == f->tail && !f->stopping)
			pthread_cond_wait(&f->added, &f->lock);
		if (f->stopping)
			break;
		assert(f->tail - f->head <= QUEUED);
		id = f->queue[f->head % QUEUED];
		pthread_mutex_unlock(&f->lock);
		f->forget(id, f->data);
		pthread_mutex_lock(&f->lock);
		f->head++;
		f->late = false;
		pthread_cond_broadcast(&f->done);
	}
	f->head = f->tail;
	pthread_cond_broadcast(&f->done);
	left = f->left;
	pthread_mutex_unlock(&f->lock);
	if (left)
		release(f);
	return NULL;
}

int sbx_forgetter_create(void (*forget)(uint64_t id, void *data), void *data,
                         struct sbx_forgetter **ret)
{
	struct sbx_forgetter *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;
	int r;

	if (!f)
		return -ENOMEM;
	pthread_mutex_init(&f->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->added, &attr);
	pthread_cond_init(&f->done, &attr);
	pthread_condattr_destroy(&attr);
	f->forget = forget;
	f->data = data;
	r = pthread_create(&f->thread, NULL, run, f);
	if (r) {
		release(f);
		return -r;
	}
	*ret = f;
	return 0;
}

/* Until all up to END is done, WAIT_MS at most. Lock held. */
static void await(struct sbx_forgetter *f, uint64_t end, unsigned wait_ms)
{
	const struct timespec until = sbx_clock_after(CLOCK_MONOTONIC, wait_ms * INT64_C(1000000));

	while (f->head < end && !f->late)
		f->late = pthread_cond_timedwait(&f->done, &f->lock, &until) == ETIMEDOUT &&
		          f->head < end;
}

void sbx_forgetter_destroy(struct sbx_forgetter *f)
{
	pthread_t thread;
	bool left;

	if (!f)
		return;
	thread = f->thread;
	pthread_mutex_lock(&f->lock);
	f->stopping = true;
	pthread_cond_signal(&f->added);
	await(f, f->tail, SBX_FORGET_WAIT_MS);
	left = f->left = f->late;
	pthread_mutex_unlock(&f->lock);
	if (left) {
		pthread_detach(thread);
		return;
	}
	pthread_join(thread, NULL);
	release(f);
}

void sbx_forgetter_add(struct sbx_forgetter *f, const uint64_t *ids, size_t n, unsigned wait_ms)
{
	if (n == 0)
		return;
	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < n && f->tail - f->head < QUEUED; i++)
		f->queue[f->tail++ % QUEUED] = ids[i];
	pthread_cond_signal(&f->added);
	if (wait_ms > 0)
		await(f, f->tail, wait_ms);
	pthread_mutex_unlock(&f->lock);
}
