/*
 * Works that are under way for one sandbox, in pools and at the provider: so that its end can be
 * waited for. Thread-safe.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_WORKS_H
#define SANDBOXFS_BACKENDS_REMOTE_WORKS_H

#include <assert.h>
#include <pthread.h>
#include <time.h>

struct remote_works {
	pthread_mutex_t lock;
	pthread_cond_t none;
	unsigned n;
};

/* Finish it. */
static inline void remote_works_init(struct remote_works *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->none, NULL);
	w->n = 0;
}

static inline void remote_works_finish(struct remote_works *w)
{
	assert(!w->n);
	pthread_cond_destroy(&w->none);
	pthread_mutex_destroy(&w->lock);
}

/* One more is under way. W may be NULL, here and below: nobody waits for it. */
static inline void remote_works_begin(struct remote_works *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->n++;
	pthread_mutex_unlock(&w->lock);
}

/* One has ended: what it used may be gone when this returns. */
static inline void remote_works_end(struct remote_works *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	assert(w->n > 0);
	if (--w->n == 0)
		pthread_cond_broadcast(&w->none);
	pthread_mutex_unlock(&w->lock);
}

/* Returns when none is under way, or at UNTIL (CLOCK_REALTIME). Blocks. */
static inline void remote_works_wait_until(struct remote_works *w, const struct timespec *until)
{
	int r = 0;

	pthread_mutex_lock(&w->lock);
	while (w->n && r == 0)
		r = pthread_cond_timedwait(&w->none, &w->lock, until);
	pthread_mutex_unlock(&w->lock);
}

/* Returns when none is under way. Blocks; not on the loop, which ends them. */
static inline void remote_works_wait(struct remote_works *w)
{
	pthread_mutex_lock(&w->lock);
	while (w->n)
		pthread_cond_wait(&w->none, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

#endif
