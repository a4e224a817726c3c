/*
 * The parked requests stand in a list under a lock. The interrupt callback of libfuse may come
 * while the answer is being given on another thread, so it carries a key, not a pointer, and only
 * marks; the loop thread does the rest.
 */
#include "fs/fuse/interrupt.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

#define LOOK_AGAIN_MS 100

struct sbx_deferred {
	struct sbx_loop *loop;
	struct sbx_timer timer;  /* loop thread */
	pthread_mutex_t lock;    /* what follows, and the links and marks of what is parked */
	struct sbx_pending list; /* ring */
	pthread_cond_t looked;
	uint64_t last_key;
	bool looking;                /* a look is posted or the timer is armed */
	struct sbx_pending *current; /* its cancel is being called */
	pthread_t looker;
};

/* Interrupts have only a key to go by; there is one park per process. */
static struct sbx_deferred *the_deferred;

static int signal_bits(const char *status, const char *key, uint64_t *ret)
{
	const char *at = strstr(status, key);

	if (!at)
		return -ENOENT;
	*ret = strtoull(at + strlen(key), NULL, 16);
	return 0;
}

/*
 * The effect of the pending signals of thread PID: 1 one ends it or asks it to stop (KILL, or
 * INT, TERM, QUIT neither blocked nor ignored; also when the process is gone), 0 others or none.
 * Any thread.
 */
static int signals_fatal(pid_t pid)
{
	const uint64_t kill = 1ull << (SIGKILL - 1);
	const uint64_t stop = 1ull << (SIGINT - 1) | 1ull << (SIGTERM - 1) | 1ull << (SIGQUIT - 1);
	uint64_t own, shared, blocked, ignored;
	_cleanup_file_ FILE *f = NULL;
	char path[64], buf[4096];
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return 1;
	n = fread(buf, 1, sizeof(buf) - 1, f);
	buf[n] = '\0';
	if (signal_bits(buf, "\nSigPnd:", &own) < 0 || signal_bits(buf, "\nShdPnd:", &shared) < 0 ||
	    signal_bits(buf, "\nSigBlk:", &blocked) < 0 ||
	    signal_bits(buf, "\nSigIgn:", &ignored) < 0)
		return 1;
	return ((own | shared) & (kill | (stop & ~blocked & ~ignored))) != 0;
}

static struct sbx_pending *next_interrupted(struct sbx_deferred *deferred, uint64_t after)
{
	struct sbx_pending *p;

	for (p = deferred->list.behind; p != &deferred->list; p = p->behind)
		if (p->interrupted && p->key > after)
			return p;
	return NULL;
}

/*
 * Loop thread. What is found can be answered meanwhile only by another thread that has
 * never made it cancellable: sbx_deferred_remove waits for that moment to pass.
 */
static void look(struct sbx_deferred *deferred)
{
	struct sbx_pending *p;
	uint64_t key = 0;
	bool more;

	for (;;) {
		pthread_mutex_lock(&deferred->lock);
		assert(!deferred->current);
		p = next_interrupted(deferred, key);
		deferred->current = p;
		deferred->looker = pthread_self();
		pthread_mutex_unlock(&deferred->lock);
		if (!p)
			break;
		key = p->key;
		sbx_pending_cancel(p, p->pid && signals_fatal(p->pid));
		pthread_mutex_lock(&deferred->lock);
		deferred->current = NULL;
		pthread_cond_broadcast(&deferred->looked);
		pthread_mutex_unlock(&deferred->lock);
	}
	pthread_mutex_lock(&deferred->lock);
	more = next_interrupted(deferred, 0) != NULL;
	deferred->looking = more;
	pthread_mutex_unlock(&deferred->lock);
	if (more)
		sbx_loop_timer_set(deferred->loop, &deferred->timer, LOOK_AGAIN_MS);
}

static void look_posted(void *data)
{
	look(data);
}

static void look_again(struct sbx_timer *t)
{
	look(t->data);
}

int sbx_deferred_create(struct sbx_loop *loop, struct sbx_deferred **ret)
{
	struct sbx_deferred *deferred = calloc(1, sizeof(*deferred));

	assert(!the_deferred);
	if (!deferred)
		return -ENOMEM;
	pthread_mutex_init(&deferred->lock, NULL);
	pthread_cond_init(&deferred->looked, NULL);
	deferred->loop = loop;
	deferred->timer = (struct sbx_timer){.fn = look_again, .data = deferred};
	deferred->list.behind = deferred->list.before = &deferred->list;
	the_deferred = deferred;
	*ret = deferred;
	return 0;
}

void sbx_deferred_destroy(struct sbx_deferred *deferred)
{
	if (!deferred)
		return;
	assert(the_deferred == deferred);
	the_deferred = NULL;
	pthread_cond_destroy(&deferred->looked);
	pthread_mutex_destroy(&deferred->lock);
	free(deferred);
}

static void handle_interrupt(fuse_req_t req, void *data)
{
	struct sbx_deferred *deferred = the_deferred;
	uint64_t key = (uintptr_t)data;
	struct sbx_pending *p;
	bool post = false;

	(void)req;
	if (!deferred)
		return;
	pthread_mutex_lock(&deferred->lock);
	for (p = deferred->list.behind; p != &deferred->list; p = p->behind)
		if (p->key == key) {
			p->interrupted = true;
			post = !deferred->looking;
			deferred->looking = true;
			break;
		}
	pthread_mutex_unlock(&deferred->lock);
	if (post)
		sbx_loop_post(deferred->loop, look_posted, deferred);
}

void sbx_deferred_add(struct sbx_deferred *deferred, fuse_req_t req, struct sbx_pending *p)
{
	assert(!p->behind);
	p->req = req;
	p->pid = fuse_req_ctx(req)->pid;
	pthread_mutex_lock(&deferred->lock);
	p->key = ++deferred->last_key;
	p->before = deferred->list.before;
	p->behind = &deferred->list;
	p->before->behind = p;
	deferred->list.before = p;
	pthread_mutex_unlock(&deferred->lock);
	fuse_req_interrupt_func(req, handle_interrupt, (void *)(uintptr_t)p->key);
}

void sbx_deferred_remove(struct sbx_deferred *deferred, struct sbx_pending *p)
{
	pthread_mutex_lock(&deferred->lock);
	assert(p->behind);
	while (deferred->current == p && !pthread_equal(deferred->looker, pthread_self()))
		pthread_cond_wait(&deferred->looked, &deferred->lock);
	p->before->behind = p->behind;
	p->behind->before = p->before;
	p->before = p->behind = NULL;
	pthread_mutex_unlock(&deferred->lock);
}
