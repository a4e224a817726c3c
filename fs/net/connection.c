/*
 * One connection until its bytes only pass: the head of the request is read, the host looked up, a checked
 * address connected to.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/net/http_head.h"
#include "fs/net/proxy_impl.h"
#include "sandboxfs/cleanup.h"

#define HEAD_MS    30000
#define CONNECT_MS 10000 /* to one address */
#define LOOKUP_MS  60000
#define IDLE_MS    600000

void conn_close(struct conn *c)
{
	struct sbx_proxy *p = c->proxy;

	for (int i = 0; i < ENDS; i++) {
		sbx_loop_unwatch(loop_of(c), &c->watches[i]);
		sbx_cleanup_fd(&c->fds[i]);
	}
	sbx_loop_timer_cancel(loop_of(c), &c->timer);
	if (c->lookup)
		sbx_lookup_cancel(c->lookup);
	if (c->list)
		freeaddrinfo(c->list);
	if (c->next)
		c->next->prev = c->prev;
	*(c->prev ? &c->prev->next : &p->first) = c->next;
	free(c);
	proxy_conn_gone(p);
}

/* --- to the server -------------------------------------------------------------------------------------------- */

static void fail_target(struct conn *c, int status, const char *why)
{
	char sentence[SBX_HOST_MAX + 256];

	snprintf(sentence, sizeof(sentence), "%s:%u: %s", c->target.host, c->target.port, why);
	conn_answer(c, status, sentence);
}

static void connected(struct conn *c)
{
	struct flow *f = &c->flows[SERVER];
	const int one = 1;

	for (int i = 0; i < ENDS; i++)
		setsockopt(c->fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->state = RELAY;
	c->active_ns = sbx_now_ns();
	sbx_loop_timer_set(loop_of(c), &c->timer, IDLE_MS);
	if (c->connect)
		f->len = (size_t)snprintf(f->buf, BUFFER,
		                          "HTTP/1.1 200 Connection established\r\n\r\n");
	conn_relay(c);
}

/* Begins with the next address that may be; false: it failed at once. */
static bool try_address(struct conn *c, const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	c->fds[SERVER] = fd;
	if ((connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS) ||
	    !conn_watch(c, SERVER, EPOLLOUT)) {
		sbx_cleanup_fd(&c->fds[SERVER]);
		return false;
	}
	sbx_loop_timer_set(loop_of(c), &c->timer, CONNECT_MS);
	return true;
}

static void connect_next(struct conn *c, int err)
{
	bool private = false;

	conn_close_server(c);
	c->state = CONNECT;
	while (c->next_address) {
		struct addrinfo *a = c->next_address;

		c->next_address = a->ai_next;
		private |= sbx_address_allowed(a->ai_addr, SBX_REACH_PRIVATE);
		if (!sbx_address_allowed(a->ai_addr, c->reach))
			continue;
		if (try_address(c, a))
			return;
		err = errno;
	}
	if (err)
		fail_target(c, err == ETIMEDOUT ? 504 : 502, strerror(err));
	else
		conn_deny_target(c,
		                 private ? "it leads to an address that is not public: a rule with "
		                           "/private behind the name allows that"
		                         : "it leads to an address that is not public: only a "
		                           "rule with the address itself allows that");
}

static void on_connect(struct conn *c)
{
	int err = 0;
	socklen_t len = sizeof(err);

	getsockopt(c->fds[SERVER], SOL_SOCKET, SO_ERROR, &err, &len);
	if (err)
		connect_next(c, err);
	else
		connected(c);
}

static void on_resolved(int error, struct addrinfo *list, void *data)
{
	struct conn *c = data;

	c->lookup = NULL;
	if (error) {
		fail_target(c, 502, gai_strerror(error));
		return;
	}
	c->list = c->next_address = list;
	connect_next(c, 0);
}

/* --- from the client ------------------------------------------------------------------------------------------- */

/* Puts the head that the server gets before what came after the client's. */
static bool replace_head(struct conn *c, const struct sbx_head *head, size_t len)
{
	struct flow *f = &c->flows[CLIENT];
	char *spare = c->flows[SERVER].buf; /* nothing is in it yet */
	size_t rest = f->len - len, n = sbx_head_rewrite(head, spare, BUFFER);

	if (!n || n + rest > BUFFER)
		return false;
	memmove(f->buf + n, f->buf + len, rest);
	memcpy(f->buf, spare, n);
	f->len = n + rest;
	return true;
}

static void take_request(struct conn *c, size_t len)
{
	struct flow *f = &c->flows[CLIENT];
	struct sbx_head head = {0};
	int status = sbx_head_parse(f->buf, len, &head);

	if (status == 403) {
		conn_deny(c, head.host, head.host_len, "it is not written as a host should be");
		return;
	}
	if (status) {
		conn_answer(c, status, "this proxy knows CONNECT and requests for http://HOST/");
		return;
	}
	c->target = head.target;
	c->connect = head.connect;
	c->reach = sbx_hosts_reach(c->proxy->egress->hosts, &c->target);
	if (!c->reach) {
		conn_deny_target(c, "it is not in the list of net=allow");
		return;
	}
	if (c->connect) {
		f->off = len;
		f->len -= len;
	} else if (!replace_head(c, &head, len)) {
		conn_answer(c, 431, "the head of the request is too long");
		return;
	}
	conn_watch(c, CLIENT, 0);
	c->state = LOOKUP;
	sbx_loop_timer_set(loop_of(c), &c->timer, LOOKUP_MS);
	c->lookup = sbx_resolve(c->proxy->egress->resolver, &c->target, on_resolved, c);
	if (!c->lookup)
		conn_close(c);
}

static void read_head(struct conn *c)
{
	struct flow *f = &c->flows[CLIENT];
	ssize_t n = recv(c->fds[CLIENT], f->buf + f->len, SBX_HEAD_MAX - f->len, 0);
	size_t len;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_close(c);
		return;
	}
	f->len += (size_t)n;
	len = sbx_head_length(f->buf, f->len);
	if (len)
		take_request(c, len);
	else if (f->len == SBX_HEAD_MAX)
		conn_answer(c, 431, "the head of the request is too long");
}

/* --- what happens ------------------------------------------------------------------------------------------------ */

static void on_event(struct sbx_watch *w, uint32_t events)
{
	struct conn *c = w->data;

	(void)events;
	if (c->state == HEAD)
		read_head(c);
	else if (c->state == CONNECT)
		on_connect(c);
	else
		conn_relay(c);
}

static void on_timer(struct sbx_timer *t)
{
	struct conn *c = t->data;
	uint64_t idle_ms = (sbx_now_ns() - c->active_ns) / 1000000u;

	if (c->state == CONNECT) {
		connect_next(c, ETIMEDOUT);
	} else if (c->state == LOOKUP) {
		sbx_lookup_cancel(c->lookup);
		c->lookup = NULL;
		fail_target(c, 504, "the name is not resolved in time");
	} else if (c->state == RELAY && idle_ms < IDLE_MS) {
		sbx_loop_timer_set(loop_of(c), t, IDLE_MS - idle_ms);
	} else {
		conn_close(c);
	}
}

void conn_start(struct sbx_proxy *p, int fd)
{
	struct conn *c = malloc(sizeof(*c));

	if (!c) {
		close(fd);
		proxy_conn_gone(p);
		return;
	}
	/* Not the buffers: what is not used costs nothing. */
	memset(c, 0, offsetof(struct conn, flows));
	for (int i = 0; i < ENDS; i++) {
		struct flow *f = &c->flows[i];

		f->off = f->len = 0;
		f->eof = f->shut = false;
		c->fds[i] = -1;
		c->watches[i] = (struct sbx_watch){.fd = -1, .fn = on_event, .data = c};
	}
	c->proxy = p;
	c->fds[CLIENT] = fd;
	c->timer = (struct sbx_timer){.fn = on_timer, .data = c};
	c->next = p->first;
	if (c->next)
		c->next->prev = c;
	p->first = c;
	sbx_loop_timer_set(loop_of(c), &c->timer, HEAD_MS);
	if (!conn_watch(c, CLIENT, EPOLLIN))
		conn_close(c);
}
