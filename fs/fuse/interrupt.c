/*
 * The parked requests stand in a list under a lock. The interrupt callback of libfuse may come while
 * the answer is being given on another thread, so it carries a key, not a pointer, and only
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

struct sbx_park {
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
static struct sbx_park *the_park;

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

static struct sbx_pending *next_interrupted(struct sbx_park *park, uint64_t after)
{
	struct sbx_pending *p;

	for (p = park->list.behind; p != &park->list; p = p->behind)
		if (p->interrupted && p->key > after)
			return p;
	return NULL;
}

/*
 * Loop thread. What is found can be answered meanwhile only by another thread that has
 * never made it cancellable: sbx_park_remove waits for that moment to pass.
 */
static void look(struct sbx_park *park)
{
	struct sbx_pending *p;
	uint64_t key = 0;
	bool more;

	for (;;) {
		pthread_mutex_lock(&park->lock);
		assert(!park->current);
		p = next_interrupted(park, key);
		park->current = p;
		park->looker = pthread_self();
		pthread_mutex_unlock(&park->lock);
		if (!p)
			break;
		key = p->key;
		sbx_pending_cancel(p, p->pid && signals_fatal(p->pid));
		pthread_mutex_lock(&park->lock);
		park->current = NULL;
		pthread_cond_broadcast(&park->looked);
		pthread_mutex_unlock(&park->lock);
	}
	pthread_mutex_lock(&park->lock);
	more = next_interrupted(park, 0) != NULL;
	park->looking = more;
	pthread_mutex_unlock(&park->lock);
	if (more)
		sbx_loop_timer_set(park->loop, &park->timer, LOOK_AGAIN_MS);
}

static void look_posted(void *data)
{
	look(data);
}

static void look_again(struct sbx_timer *t)
{
	look(t->data);
}

int sbx_park_create(struct sbx_loop *loop, struct sbx_park **ret)
{
	struct sbx_park *park = calloc(1, sizeof(*park));

	assert(!the_park);
	if (!park)
		return -ENOMEM;
	pthread_mutex_init(&park->lock, NULL);
	pthread_cond_init(&park->looked, NULL);
	park->loop = loop;
	park->timer = (struct sbx_timer){.fn = look_again, .data = park};
	park->list.behind = park->list.before = &park->list;
	the_park = park;
	*ret = park;
	return 0;
}

void sbx_park_destroy(struct sbx_park *park)
{
	if (!park)
		return;
	assert(the_park == park);
	the_park = NULL;
	pthread_cond_destroy(&park->looked);
	pthread_mutex_destroy(&park->lock);
	free(park);
}

static void handle_interrupt(fuse_req_t req, void *data)
{
	struct sbx_park *park = the_park;
	uint64_t key = (uintptr_t)data;
	struct sbx_pending *p;
	bool post = false;

	(void)req;
	if (!park)
		return;
	pthread_mutex_lock(&park->lock);
	for (p = park->list.behind; p != &park->list; p = p->behind)
		if (p->key == key) {
			p->interrupted = true;
			post = !park->looking;
			park->looking = true;
			break;
		}
	pthread_mutex_unlock(&park->lock);
	if (post)
		sbx_loop_post(park->loop, look_posted, park);
}

void sbx_park_add(struct sbx_park *park, fuse_req_t req, struct sbx_pending *p)
{
	assert(!p->behind);
	p->req = req;
	p->pid = fuse_req_ctx(req)->pid;
	pthread_mutex_lock(&park->lock);
	p->key = ++park->last_key;
	p->before = park->list.before;
	p->behind = &park->list;
	p->before->behind = p;
	park->list.before = p;
	pthread_mutex_unlock(&park->lock);
	fuse_req_interrupt_func(req, handle_interrupt, (void *)(uintptr_t)p->key);
}

void sbx_park_remove(struct sbx_park *park, struct sbx_pending *p)
{
	pthread_mutex_lock(&park->lock);
	assert(p->behind);
	while (park->current == p && !pthread_equal(park->looker, pthread_self()))
		pthread_cond_wait(&park->looked, &park->lock);
	p->before->behind = p->behind;
	p->behind->before = p->before;
	p->before = p->behind = NULL;
	pthread_mutex_unlock(&park->lock);
}
