/*
 * One entry for each node that is open or has an id, in a hash; those with an id that are not open
 * stand in a ring, most recent first. One mutex guards all. It is held over the calls to the
 * kernel: they look up a descriptor and a number, and an order between them and the count is the
 * point.
 */
#include "fs/fuse/passthrough.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define BUCKETS 1024 /* a power of two */

struct entry {
	uint64_t node, box;
	int id; /* 0: through the page cache */
	unsigned opens;
	bool dead; /* nothing is to be kept of it once it is closed */
	struct entry *hash_next;
	struct entry *prev, *next; /* in the ring */
};

struct sbx_passthrough {
	struct sbx_backing_calls calls;
	pthread_mutex_t lock; /* everything below */
	struct entry *hash[BUCKETS];
	struct entry idle;
	unsigned nidle, max_idle;
};

int sbx_passthrough_create(const struct sbx_backing_calls *calls, unsigned max_idle,
                           struct sbx_passthrough **ret)
{
	struct sbx_passthrough *pt = calloc(1, sizeof(*pt));

	if (!pt)
		return -ENOMEM;
	pt->calls = *calls;
	pt->max_idle = max_idle;
	pt->idle.prev = pt->idle.next = &pt->idle;
	pthread_mutex_init(&pt->lock, NULL);
	*ret = pt;
	return 0;
}

static struct entry **find(struct sbx_passthrough *pt, uint64_t node)
{
	struct entry **e = &pt->hash[(node ^ node >> 32) & (BUCKETS - 1)];

	while (*e && (*e)->node != node)
		e = &(*e)->hash_next;
	return e;
}

static bool is_idle(const struct entry *e)
{
	return e->prev;
}

static void leave_ring(struct sbx_passthrough *pt, struct entry *e)
{
	assert(pt->nidle > 0);
	e->prev->next = e->next;
	e->next->prev = e->prev;
	e->prev = e->next = NULL;
	pt->nidle--;
}

static void enter_ring(struct sbx_passthrough *pt, struct entry *e)
{
	assert(!is_idle(e) && !e->opens && e->id);
	e->prev = &pt->idle;
	e->next = pt->idle.next;
	e->next->prev = e;
	pt->idle.next = e;
	pt->nidle++;
}

/* Lock held; nobody has it open. */
static void entry_free(struct sbx_passthrough *pt, struct entry *e)
{
	*find(pt, e->node) = e->hash_next;
	if (is_idle(e))
		leave_ring(pt, e);
	if (e->id)
		pt->calls.close(pt->calls.data, e->id);
	free(e);
}

void sbx_passthrough_destroy(struct sbx_passthrough *pt)
{
	if (!pt)
		return;
	for (unsigned i = 0; i < BUCKETS; i++)
		while (pt->hash[i])
			entry_free(pt, pt->hash[i]);
	pthread_mutex_destroy(&pt->lock);
	free(pt);
}

static int join(struct sbx_passthrough *pt, struct entry *e)
{
	assert(!is_idle(e) || !e->opens);
	if (is_idle(e))
		leave_ring(pt, e);
	e->opens++;
	e->dead = false;
	return e->id;
}

int sbx_passthrough_join(struct sbx_passthrough *pt, uint64_t node)
{
	struct entry *e;
	int r;

	pthread_mutex_lock(&pt->lock);
	e = *find(pt, node);
	r = e ? join(pt, e) : -ENOENT;
	pthread_mutex_unlock(&pt->lock);
	return r;
}

static struct entry *entry_new(struct sbx_passthrough *pt, uint64_t node, uint64_t box, int fd)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->node = node;
	e->box = box;
	e->id = fd < 0 ? 0 : pt->calls.open(pt->calls.data, fd);
	if (e->id < 0)
		e->id = 0;
	*find(pt, node) = e;
	return e;
}

int sbx_passthrough_choose(struct sbx_passthrough *pt, uint64_t node, uint64_t box, int fd)
{
	struct entry *e;
	int r;

	pthread_mutex_lock(&pt->lock);
	e = *find(pt, node);
	if (!e)
		e = entry_new(pt, node, box, fd);
	r = e ? join(pt, e) : -ENOMEM;
	pthread_mutex_unlock(&pt->lock);
	return r;
}

void sbx_passthrough_release(struct sbx_passthrough *pt, uint64_t node)
{
	struct entry *e;

	pthread_mutex_lock(&pt->lock);
	e = *find(pt, node);
	if (e && e->opens && --e->opens == 0) {
		if (!e->id || e->dead)
			entry_free(pt, e);
		else
			enter_ring(pt, e);
	}
	if (pt->nidle > pt->max_idle)
		entry_free(pt, pt->idle.prev);
	pthread_mutex_unlock(&pt->lock);
}

/* Lock held. */
static void entry_drop(struct sbx_passthrough *pt, struct entry *e)
{
	if (e->opens)
		e->dead = true;
	else
		entry_free(pt, e);
}

void sbx_passthrough_forget(struct sbx_passthrough *pt, uint64_t node)
{
	struct entry *e;

	pthread_mutex_lock(&pt->lock);
	e = *find(pt, node);
	if (e)
		entry_drop(pt, e);
	pthread_mutex_unlock(&pt->lock);
}

void sbx_passthrough_drop_box(struct sbx_passthrough *pt, uint64_t box)
{
	struct entry *e, *next;

	pthread_mutex_lock(&pt->lock);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (e = pt->hash[i]; e; e = next) {
			next = e->hash_next;
			if (e->box == box)
				entry_drop(pt, e);
		}
	pthread_mutex_unlock(&pt->lock);
}
