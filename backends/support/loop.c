/*
 * epoll, a binary heap of timers driving one timerfd-free timeout, and a list of posted
 * work behind an eventfd, which the loop's own thread need not touch. Watches are found
 * through the epoll data pointer; one that is removed while its events wait in the current batch is
 * struck out of the batch, so a callback may free any object but the one it is called for.
 */
#include "sandboxfs/loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define BATCH 64

struct posted {
	struct posted *next;
	void (*fn)(void *data);
	void *data;
};

struct sbx_loop {
	int epfd;
	int wakefd;
	atomic_bool stopping;
	pthread_mutex_t lock; /* head, tail */
	struct posted *head, **tail;
	struct sbx_timer **heap; /* loop thread only, as are the rest */
	int heap_n, heap_cap;
	struct epoll_event batch[BATCH];
	int batch_at, batch_n;
};

int sbx_loop_create(struct sbx_loop **ret)
{
	struct sbx_loop *loop = calloc(1, sizeof(*loop));
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

	if (!loop)
		return -ENOMEM;
	loop->tail = &loop->head;
	loop->epfd = epoll_create1(EPOLL_CLOEXEC);
	loop->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->epfd < 0 || loop->wakefd < 0 ||
	    epoll_ctl(loop->epfd, EPOLL_CTL_ADD, loop->wakefd, &ev) < 0) {
		int r = -errno;

		sbx_cleanup_fd(&loop->epfd);
		sbx_cleanup_fd(&loop->wakefd);
		free(loop);
		return r;
	}
	pthread_mutex_init(&loop->lock, NULL);
	*ret = loop;
	return 0;
}

/* The loop of this thread, which looks for posted work before it waits. */
static _Thread_local struct sbx_loop *running;

static bool has_posted(struct sbx_loop *loop)
{
	bool some;

	pthread_mutex_lock(&loop->lock);
	some = loop->head;
	pthread_mutex_unlock(&loop->lock);
	return some;
}

static void run_posted(struct sbx_loop *loop)
{
	struct posted *p, *next;

	pthread_mutex_lock(&loop->lock);
	p = loop->head;
	loop->head = NULL;
	loop->tail = &loop->head;
	pthread_mutex_unlock(&loop->lock);

	for (; p; p = next) {
		next = p->next;
		p->fn(p->data);
		free(p);
	}
}

void sbx_loop_drain(struct sbx_loop *loop)
{
	assert(running != loop);
	while (has_posted(loop))
		run_posted(loop);
}

void sbx_loop_destroy(struct sbx_loop *loop)
{
	if (!loop)
		return;
	sbx_loop_drain(loop);
	close(loop->epfd);
	close(loop->wakefd);
	pthread_mutex_destroy(&loop->lock);
	free(loop->heap);
	free(loop);
}

static void wake(struct sbx_loop *loop)
{
	uint64_t one = 1;
	/* EAGAIN: the counter is full, so the loop is awake anyway. */
	ssize_t n = write(loop->wakefd, &one, sizeof(one));

	(void)n;
}

void sbx_loop_post(struct sbx_loop *loop, void (*fn)(void *data), void *data)
{
	struct posted *p = malloc(sizeof(*p));
	bool first;

	assert(fn);
	if (!p)
		abort();
	*p = (struct posted){.fn = fn, .data = data};
	pthread_mutex_lock(&loop->lock);
	first = !loop->head;
	*loop->tail = p;
	loop->tail = &p->next;
	pthread_mutex_unlock(&loop->lock);
	if (first && loop != running)
		wake(loop);
}

void sbx_loop_stop(struct sbx_loop *loop)
{
	atomic_store(&loop->stopping, true);
	wake(loop);
}

int sbx_loop_watch(struct sbx_loop *loop, struct sbx_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	assert(w->fd >= 0 && w->fn);
	return epoll_ctl(loop->epfd, EPOLL_CTL_ADD, w->fd, &ev) < 0 ? -errno : 0;
}

int sbx_loop_rewatch(struct sbx_loop *loop, struct sbx_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	return epoll_ctl(loop->epfd, EPOLL_CTL_MOD, w->fd, &ev) < 0 ? -errno : 0;
}

int sbx_loop_unwatch(struct sbx_loop *loop, struct sbx_watch *w)
{
	int fd = w->fd;

	if (fd < 0)
		return -1;
	epoll_ctl(loop->epfd, EPOLL_CTL_DEL, fd, NULL);
	w->fd = -1;
	for (int i = loop->batch_at; i < loop->batch_n; i++)
		if (loop->batch[i].data.ptr == w)
			loop->batch[i].events = 0;
	return fd;
}

static void heap_put(struct sbx_loop *loop, int i, struct sbx_timer *t)
{
	loop->heap[i] = t;
	t->slot = i;
}

static void heap_sift(struct sbx_loop *loop, int i)
{
	struct sbx_timer *t = loop->heap[i];

	while (i > 0 && loop->heap[(i - 1) / 2]->due_ns > t->due_ns) {
		heap_put(loop, i, loop->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	for (;;) {
		int c = 2 * i + 1;

		if (c >= loop->heap_n)
			break;
		if (c + 1 < loop->heap_n && loop->heap[c + 1]->due_ns < loop->heap[c]->due_ns)
			c++;
		if (loop->heap[c]->due_ns >= t->due_ns)
			break;
		heap_put(loop, i, loop->heap[c]);
		i = c;
	}
	heap_put(loop, i, t);
}

void sbx_loop_timer_cancel(struct sbx_loop *loop, struct sbx_timer *t)
{
	struct sbx_timer *last;

	if (!t->due_ns)
		return;
	assert(t->slot < loop->heap_n && loop->heap[t->slot] == t);
	t->due_ns = 0;
	last = loop->heap[--loop->heap_n];
	if (last != t) {
		heap_put(loop, t->slot, last);
		heap_sift(loop, t->slot);
	}
}

void sbx_loop_timer_set(struct sbx_loop *loop, struct sbx_timer *t, uint64_t delay_ms)
{
	assert(t->fn);
	sbx_loop_timer_cancel(loop, t);
	if (loop->heap_n == loop->heap_cap) {
		int cap = loop->heap_cap ? 2 * loop->heap_cap : 64;
		struct sbx_timer **heap = realloc(loop->heap, (size_t)cap * sizeof(*heap));

		if (!heap)
			abort();
		loop->heap = heap;
		loop->heap_cap = cap;
	}
	if (delay_ms > UINT64_MAX / 2000000u)
		delay_ms = UINT64_MAX / 2000000u;
	t->due_ns = sbx_now_ns() + delay_ms * 1000000u;
	heap_put(loop, loop->heap_n++, t);
	heap_sift(loop, t->slot);
}

static void run_timers(struct sbx_loop *loop)
{
	uint64_t now = sbx_now_ns();

	while (loop->heap_n && loop->heap[0]->due_ns <= now) {
		struct sbx_timer *t = loop->heap[0];

		sbx_loop_timer_cancel(loop, t);
		t->fn(t);
	}
}

static int wait_ms(struct sbx_loop *loop)
{
	uint64_t now, left;

	if (has_posted(loop))
		return 0;
	if (!loop->heap_n)
		return -1;
	now = sbx_now_ns();
	if (loop->heap[0]->due_ns <= now)
		return 0;
	left = (loop->heap[0]->due_ns - now + 999999u) / 1000000u;
	return left > 3600000u ? 3600000 : (int)left;
}

static void clear_wake(struct sbx_loop *loop)
{
	uint64_t count;
	ssize_t n = read(loop->wakefd, &count, sizeof(count));

	(void)n;
}

void sbx_loop_run(struct sbx_loop *loop)
{
	assert(!running);
	running = loop;
	while (!atomic_load(&loop->stopping)) {
		int n = epoll_wait(loop->epfd, loop->batch, BATCH, wait_ms(loop));

		loop->batch_n = n > 0 ? n : 0;
		for (loop->batch_at = 0; loop->batch_at < loop->batch_n;) {
			struct epoll_event ev = loop->batch[loop->batch_at++];
			struct sbx_watch *w = ev.data.ptr;

			if (!w)
				clear_wake(loop);
			else if (ev.events)
				w->fn(w, ev.events);
		}
		loop->batch_n = 0;
		run_timers(loop);
		run_posted(loop);
	}
	run_posted(loop);
	running = NULL;
}
