#include "fs/net/resolver.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define AT_ONCE 2

struct sbx_lookup {
	struct sbx_lookup *next;
	struct sbx_resolver *resolver;
	struct sbx_target target;
	sbx_resolved fn; /* NULL: cancelled */
	void *data;
	int error; /* the pool's, until it has posted */
	struct addrinfo *list;
};

struct sbx_resolver {
	struct sbx_loop *loop;
	struct sbx_pool *pool;
	unsigned running;
	bool destroyed;
	struct sbx_lookup *head, **tail; /* not given to the pool yet */
	pthread_mutex_t lock;            /* closed, and giving to the pool */
	bool closed;
};

int sbx_resolver_create(struct sbx_loop *loop, struct sbx_pool *pool, struct sbx_resolver **ret)
{
	struct sbx_resolver *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->loop = loop;
	r->pool = pool;
	r->tail = &r->head;
	pthread_mutex_init(&r->lock, NULL);
	*ret = r;
	return 0;
}

void sbx_resolver_close(struct sbx_resolver *r)
{
	pthread_mutex_lock(&r->lock);
	r->closed = true;
	pthread_mutex_unlock(&r->lock);
}

/* The last that runs comes back to the loop when it is destroyed, if not before. */
static void free_if_last(struct sbx_resolver *r)
{
	struct sbx_lookup *next;

	assert(r->running <= AT_ONCE);
	if (!r->destroyed || r->running)
		return;
	for (struct sbx_lookup *l = r->head; l; l = next) {
		next = l->next;
		free(l);
	}
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void sbx_resolver_destroy(struct sbx_resolver *r)
{
	if (!r)
		return;
	sbx_resolver_close(r);
	r->destroyed = true;
	free_if_last(r);
}

static void start_some(struct sbx_resolver *r);

static void done(void *data)
{
	struct sbx_lookup *l = data;
	struct sbx_resolver *r = l->resolver;

	assert(r->running > 0);
	r->running--;
	if (l->fn)
		l->fn(l->error, l->list, l->data);
	else if (!l->error)
		freeaddrinfo(l->list);
	free(l);
	start_some(r);
	free_if_last(r);
}

/* [pool] */
static void work(void *data)
{
	struct sbx_lookup *l = data;
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	char port[8];

	snprintf(port, sizeof(port), "%u", l->target.port);
	l->error = getaddrinfo(l->target.host, port, &hints, &l->list);
	sbx_loop_post(l->resolver->loop, done, l);
}

static void start_some(struct sbx_resolver *r)
{
	pthread_mutex_lock(&r->lock);
	while (r->head && r->running < AT_ONCE && !r->closed) {
		struct sbx_lookup *l = r->head;

		r->head = l->next;
		if (!r->head)
			r->tail = &r->head;
		if (l->fn) {
			r->running++;
			sbx_pool_submit(r->pool, work, l);
		} else {
			free(l);
		}
	}
	pthread_mutex_unlock(&r->lock);
}

struct sbx_lookup *sbx_resolve(struct sbx_resolver *r, const struct sbx_target *target,
                               sbx_resolved fn, void *data)
{
	struct sbx_lookup *l = calloc(1, sizeof(*l));

	assert(fn && !r->destroyed);
	if (!l)
		return NULL;
	*l = (struct sbx_lookup){.resolver = r, .target = *target, .fn = fn, .data = data};
	*r->tail = l;
	r->tail = &l->next;
	start_some(r);
	return l;
}

void sbx_lookup_cancel(struct sbx_lookup *lookup)
{
	assert(lookup->fn);
	lookup->fn = NULL;
}
