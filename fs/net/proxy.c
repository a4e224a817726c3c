#include "fs/net/proxy.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/net/proxy_impl.h"
#include "sandboxfs/cleanup.h"

#define CONNS_MAX  512 /* of a mount; two descriptors and 128 KiB each, once used */
#define SHARE      4   /* one sandbox has at most that part of them */
#define PAUSE_MS   100
#define ACCEPT_MAX 16 /* in one turn of the loop */

static unsigned max_conns(void)
{
	struct rlimit rl = {.rlim_max = 1024};

	getrlimit(RLIMIT_NOFILE, &rl);
	return rl.rlim_max / 16 < CONNS_MAX ? (unsigned)(rl.rlim_max / 16) : CONNS_MAX;
}

int sbx_egress_create(const char *hosts, struct sbx_loop *loop, struct sbx_pool *pool,
                      struct sbx_egress **ret, struct sbx_error *err)
{
	struct sbx_egress *e = calloc(1, sizeof(*e));
	int r = e ? sbx_hosts_parse(hosts, &e->hosts, err) : sbx_no_memory(err);

	if (!r && sbx_resolver_create(loop, pool, &e->resolver) < 0)
		r = sbx_no_memory(err);
	if (r < 0) {
		sbx_egress_destroy(e);
		return r;
	}
	e->loop = loop;
	e->most = max_conns();
	*ret = e;
	return 0;
}

void sbx_egress_close(struct sbx_egress *egress)
{
	if (egress)
		sbx_resolver_close(egress->resolver);
}

void sbx_egress_destroy(struct sbx_egress *egress)
{
	if (!egress)
		return;
	assert(!egress->conns);
	sbx_resolver_destroy(egress->resolver);
	sbx_hosts_free(egress->hosts);
	free(egress);
}

/* --- who is accepted
 * ------------------------------------------------------------------------------ */

static bool has_room(const struct sbx_proxy *p)
{
	const struct sbx_egress *e = p->egress;

	return e->conns < e->most && p->conns < (e->most + SHARE - 1) / SHARE;
}

/* A listener that cannot be watched now is tried again. */
static void watch_all(struct sbx_proxy *p)
{
	for (int i = 0; i < LISTENERS; i++) {
		struct sbx_watch *w = &p->watches[i];

		if (p->listeners[i] < 0 || w->fd >= 0)
			continue;
		w->fd = p->listeners[i];
		if (sbx_loop_watch(p->egress->loop, w, EPOLLIN) == 0)
			continue;
		w->fd = -1;
		sbx_loop_timer_set(p->egress->loop, &p->pause, PAUSE_MS);
	}
}

static void unwatch_all(struct sbx_proxy *p)
{
	for (int i = 0; i < LISTENERS; i++)
		sbx_loop_unwatch(p->egress->loop, &p->watches[i]);
}

/* Who comes waits in the kernel's queue. */
static void pause_accepting(struct sbx_proxy *p)
{
	unwatch_all(p);
	sbx_loop_timer_set(p->egress->loop, &p->pause, PAUSE_MS);
}

static void resume(struct sbx_timer *t)
{
	struct sbx_proxy *p = t->data;

	if (has_room(p))
		watch_all(p);
	else
		pause_accepting(p);
}

void proxy_conn_gone(struct sbx_proxy *p)
{
	assert(p->conns > 0 && p->egress->conns > 0);
	p->conns--;
	p->egress->conns--;
	if (p->pause.due_ns) {
		sbx_loop_timer_cancel(p->egress->loop, &p->pause);
		resume(&p->pause);
	}
}

static void on_client(struct sbx_watch *w, uint32_t events)
{
	struct sbx_proxy *p = w->data;

	(void)events;
	for (int i = 0; i < ACCEPT_MAX && w->fd >= 0; i++) {
		int fd;

		if (!has_room(p)) {
			pause_accepting(p);
			return;
		}
		fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			p->conns++;
			p->egress->conns++;
			conn_start(p, fd);
		} else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
			pause_accepting(p);
		} else if (errno == EAGAIN) {
			return;
		}
	}
}

/* --- a proxy
 * ---------------------------------------------------------------------------------------- */

struct sbx_proxy *sbx_proxy_create(struct sbx_egress *egress, struct sbx_denials *denials)
{
	struct sbx_proxy *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->egress = egress;
	p->denials = denials;
	p->pause = (struct sbx_timer){.fn = resume, .data = p};
	for (int i = 0; i < LISTENERS; i++) {
		p->listeners[i] = -1;
		p->watches[i] = (struct sbx_watch){.fd = -1, .fn = on_client, .data = p};
	}
	return p;
}

void sbx_proxy_listen(struct sbx_proxy *p, int fd)
{
	assert(fd >= 0);
	unwatch_all(p);
	sbx_cleanup_fd(&p->listeners[LISTENERS - 1]);
	for (int i = LISTENERS - 1; i > 0; i--)
		p->listeners[i] = p->listeners[i - 1];
	p->listeners[0] = fd;
	if (!p->pause.due_ns)
		watch_all(p);
}

void sbx_proxy_destroy(struct sbx_proxy *p)
{
	if (!p)
		return;
	while (p->first)
		conn_close(p->first);
	assert(!p->conns);
	sbx_loop_timer_cancel(p->egress->loop, &p->pause);
	unwatch_all(p);
	for (int i = 0; i < LISTENERS; i++)
		sbx_cleanup_fd(&p->listeners[i]);
	free(p);
}
