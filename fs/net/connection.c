/*
 * One connection. The head of the request is read, the host looked up, a checked address connected
 * to; from then on its bytes only pass, each way through one buffer that is filled again only when
 * it is empty. A refusal is an answer in the buffer towards the client, while what he still sends
 * is thrown away.
 */
#include <assert.h>
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
#include "sandboxfs/clock.h"

#define BUFFER ((size_t)64 * 1024)

enum { CLIENT, SERVER, ENDS };

enum state { HEAD, LOOKUP, CONNECT, RELAY, REFUSED };

/* From the end of the same number to the other. */
struct requests {
	size_t off, len; /* what of buf is still to be written */
	bool eof;        /* nothing more comes */
	bool shut;       /* and the other end was told */
	char buf[BUFFER];
};

struct conn {
	struct conn *prev, *next;
	struct sbx_proxy *proxy;
	enum state state;
	int fds[ENDS];
	struct sbx_watch watches[ENDS];
	uint32_t masks[ENDS];
	struct sbx_timer timer;
	uint64_t active_ns; /* when bytes last went, while RELAY */
	struct sbx_lookup *lookup;
	struct addrinfo *list, *next_address;
	enum sbx_reach reach;
	bool connect;
	struct sbx_target target;
	struct requests flows[ENDS];
};

static inline struct sbx_loop *loop_of(const struct conn *c)
{
	return c->proxy->egress->loop;
}

#define TURNS      8 /* of reading and writing before others have theirs */
#define REFUSED_MS 5000

/* --- moving bytes: these return false when the connection is to be closed
 * ------------------------------- */

/* An end with nothing to wait for is not watched at all: a hangup would be told again and again. */
static bool watch(struct conn *c, int end, uint32_t mask)
{
	struct sbx_watch *w = &c->watches[end];
	int r = 0;

	assert(c->fds[end] >= 0 || !mask);
	if (mask == c->masks[end])
		return true;
	if (!mask) {
		sbx_loop_unwatch(loop_of(c), w);
	} else if (!c->masks[end]) {
		w->fd = c->fds[end];
		r = sbx_loop_watch(loop_of(c), w, mask);
		if (r < 0)
			w->fd = -1;
	} else {
		r = sbx_loop_rewatch(loop_of(c), w, mask);
	}
	if (r >= 0)
		c->masks[end] = mask;
	return r >= 0;
}

static void close_server(struct conn *c)
{
	sbx_loop_unwatch(loop_of(c), &c->watches[SERVER]);
	c->masks[SERVER] = 0;
	sbx_cleanup_fd(&c->fds[SERVER]);
}

static bool watch_both(struct conn *c)
{
	for (int i = 0; i < ENDS; i++) {
		const struct requests *in = &c->flows[i], *out = &c->flows[!i];
		uint32_t mask = 0;

		if (c->fds[i] < 0)
			continue;
		if (!in->eof && !in->len)
			mask |= EPOLLIN;
		if (out->len)
			mask |= EPOLLOUT;
		if (!watch(c, i, mask))
			return false;
	}
	return true;
}

static bool fill(struct conn *c, int from, bool *again)
{
	struct requests *f = &c->flows[from];
	ssize_t n = recv(c->fds[from], f->buf, BUFFER, 0);

	f->off = 0;
	if (n > 0)
		f->len = (size_t)n;
	else if (n == 0)
		f->eof = true;
	else if (errno != EAGAIN && errno != EINTR)
		return false;
	*again = n > 0;
	return true;
}

static bool drain(struct conn *c, int from, bool *again)
{
	struct requests *f = &c->flows[from];
	ssize_t n = send(c->fds[!from], f->buf + f->off, f->len, MSG_NOSIGNAL);

	assert(f->off + f->len <= BUFFER);
	if (n > 0) {
		f->off += (size_t)n;
		f->len -= (size_t)n;
		c->active_ns = sbx_now_ns();
	} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
		return false;
	}
	*again = !f->len;
	return true;
}

static bool move(struct conn *c, int from)
{
	struct requests *f = &c->flows[from];
	bool again = true;

	for (int i = 0; i < TURNS && again; i++) {
		again = false;
		if (!f->len && !f->eof && !fill(c, from, &again))
			return false;
		if (c->state == REFUSED && from == CLIENT)
			f->len = 0;
		if (f->len && !drain(c, from, &again))
			return false;
	}
	if (f->eof && !f->len && !f->shut) {
		f->shut = true;
		if (c->fds[!from] >= 0)
			shutdown(c->fds[!from], SHUT_WR);
	}
	return true;
}

/* Moves what can be moved, and closes the connection when there will be no more. */
static void relay(struct conn *c)
{
	const bool ok = move(c, CLIENT) && move(c, SERVER);

	if (!ok || (c->flows[CLIENT].shut && c->flows[SERVER].shut) || !watch_both(c))
		conn_close(c);
}

/* --- answers
 * -----------------------------------------------------------------------------------------------
 */

static const char *word_of(int status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 431:
		return "Request Header Fields Too Large";
	case 501:
		return "Not Implemented";
	case 504:
		return "Gateway Timeout";
	default:
		return "Bad Gateway";
	}
}

/* SENTENCE is printable, but for what the client himself has sent. */
static void answer(struct conn *c, int status, const char *sentence)
{
	struct requests *f = &c->flows[SERVER];
	int n;

	assert(c->state == HEAD || c->state == LOOKUP || c->state == CONNECT);
	assert(!c->lookup);
	close_server(c);
	n = snprintf(f->buf, BUFFER,
	             "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
	             "Connection: close\r\n\r\nsandboxfs: %s\n",
	             status, word_of(status), strlen(sentence) + 12, sentence);
	f->off = 0;
	f->len = (size_t)n;
	f->eof = true;
	c->flows[CLIENT].len = 0;
	c->state = REFUSED;
	sbx_loop_timer_set(loop_of(c), &c->timer, REFUSED_MS);
	relay(c);
}

/* 403, and a denial. HOST: LEN bytes, printable. */
static void deny(struct conn *c, const char *host, size_t len, const char *reason)
{
	char what[SBX_HOST_MAX + 16], sentence[512];
	const struct sbx_denial_report denied = {
	        .kind = SBX_DENIED_HOST, .what = what, .reason = reason};

	snprintf(what, sizeof(what), "%.*s", (int)len, host);
	snprintf(sentence, sizeof(sentence), "%s: %s", what, reason);
	sbx_denials_add(c->proxy->denials, &denied);
	answer(c, 403, sentence);
}

static void deny_target(struct conn *c, const char *reason)
{
	const bool v6 = c->target.literal && strchr(c->target.host, ':');
	char host[SBX_HOST_MAX + 16];
	int n = snprintf(host, sizeof(host), "%s%s%s:%u", v6 ? "[" : "", c->target.host,
	                 v6 ? "]" : "", c->target.port);

	deny(c, host, (size_t)n, reason);
}

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

/* --- to the server
 * -------------------------------------------------------------------------------------------- */

static void fail_target(struct conn *c, int status, const char *why)
{
	char sentence[SBX_HOST_MAX + 256];

	snprintf(sentence, sizeof(sentence), "%s:%u: %s", c->target.host, c->target.port, why);
	answer(c, status, sentence);
}

static void connected(struct conn *c)
{
	struct requests *f = &c->flows[SERVER];
	const int one = 1;

	assert(c->state == CONNECT && c->fds[SERVER] >= 0);
	for (int i = 0; i < ENDS; i++)
		setsockopt(c->fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->state = RELAY;
	c->active_ns = sbx_now_ns();
	sbx_loop_timer_set(loop_of(c), &c->timer, IDLE_MS);
	if (c->connect)
		f->len = (size_t)snprintf(f->buf, BUFFER,
		                          "HTTP/1.1 200 Connection established\r\n\r\n");
	relay(c);
}

/* Begins with the next address that may be; false: it failed at once. */
static bool try_address(struct conn *c, const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert(c->fds[SERVER] < 0);
	if (fd < 0)
		return false;
	c->fds[SERVER] = fd;
	if ((connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS) ||
	    !watch(c, SERVER, EPOLLOUT)) {
		sbx_cleanup_fd(&c->fds[SERVER]);
		return false;
	}
	sbx_loop_timer_set(loop_of(c), &c->timer, CONNECT_MS);
	return true;
}

static void connect_next(struct conn *c, int err)
{
	bool private = false;

	assert(c->state == LOOKUP || c->state == CONNECT);
	close_server(c);
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
		deny_target(c, private ? "it leads to an address that is not public: a rule with "
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

	assert(c->state == LOOKUP && c->lookup);
	c->lookup = NULL;
	if (error) {
		fail_target(c, 502, gai_strerror(error));
		return;
	}
	c->list = c->next_address = list;
	connect_next(c, 0);
}

/* --- from the client
 * ------------------------------------------------------------------------------------------- */

/* Puts the head that the server gets before what came after the client's. */
static bool replace_head(struct conn *c, const struct sbx_head *head, size_t len)
{
	struct requests *f = &c->flows[CLIENT];
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
	struct requests *f = &c->flows[CLIENT];
	struct sbx_head head = {0};
	int status = sbx_head_parse(f->buf, len, &head);

	assert(c->state == HEAD && len <= f->len);
	if (status == 403) {
		deny(c, head.host, head.host_len, "it is not written as a host should be");
		return;
	}
	if (status) {
		answer(c, status, "this proxy knows CONNECT and requests for http://HOST/");
		return;
	}
	c->target = head.target;
	c->connect = head.connect;
	c->reach = sbx_hosts_reach(c->proxy->egress->hosts, &c->target);
	if (!c->reach) {
		deny_target(c, "it is not in the list of net=allow");
		return;
	}
	if (c->connect) {
		f->off = len;
		f->len -= len;
	} else if (!replace_head(c, &head, len)) {
		answer(c, 431, "the head of the request is too long");
		return;
	}
	watch(c, CLIENT, 0);
	c->state = LOOKUP;
	sbx_loop_timer_set(loop_of(c), &c->timer, LOOKUP_MS);
	c->lookup = sbx_resolve(c->proxy->egress->resolver, &c->target, on_resolved, c);
	if (!c->lookup)
		conn_close(c);
}

static void read_head(struct conn *c)
{
	struct requests *f = &c->flows[CLIENT];
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
		answer(c, 431, "the head of the request is too long");
}

/* --- what happens
 * ------------------------------------------------------------------------------------------------
 */

static void on_event(struct sbx_watch *w, uint32_t events)
{
	struct conn *c = w->data;

	assert(c->state != LOOKUP);
	(void)events;
	if (c->state == HEAD)
		read_head(c);
	else if (c->state == CONNECT)
		on_connect(c);
	else
		relay(c);
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

	assert(fd >= 0);
	if (!c) {
		close(fd);
		proxy_conn_gone(p);
		return;
	}
	/* Not the buffers: what is not used costs nothing. */
	memset(c, 0, offsetof(struct conn, flows));
	for (int i = 0; i < ENDS; i++) {
		struct requests *f = &c->flows[i];

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
	if (!watch(c, CLIENT, EPOLLIN))
		conn_close(c);
}
