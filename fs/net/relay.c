/*
 * Bytes between the two ends of a connection, each way through one buffer that is filled again only
 * when it is empty. A refusal is an answer in the buffer towards the client, while what he still sends is
 * thrown away.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "fs/net/proxy_impl.h"
#include "sandboxfs/cleanup.h"

#define TURNS      8 /* of reading and writing before others have theirs */
#define REFUSED_MS 5000

/* --- moving bytes: these return false when the connection is to be closed ------------------------------- */

/* An end with nothing to wait for is not watched at all: a hangup would be told again and again. */
bool conn_watch(struct conn *c, int end, uint32_t mask)
{
	struct sbx_watch *w = &c->watches[end];
	int r = 0;

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

void conn_close_server(struct conn *c)
{
	sbx_loop_unwatch(loop_of(c), &c->watches[SERVER]);
	c->masks[SERVER] = 0;
	sbx_cleanup_fd(&c->fds[SERVER]);
}

static bool watch_both(struct conn *c)
{
	for (int i = 0; i < ENDS; i++) {
		const struct flow *in = &c->flows[i], *out = &c->flows[!i];
		uint32_t mask = 0;

		if (c->fds[i] < 0)
			continue;
		if (!in->eof && !in->len)
			mask |= EPOLLIN;
		if (out->len)
			mask |= EPOLLOUT;
		if (!conn_watch(c, i, mask))
			return false;
	}
	return true;
}

static bool fill(struct conn *c, int from, bool *again)
{
	struct flow *f = &c->flows[from];
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
	struct flow *f = &c->flows[from];
	ssize_t n = send(c->fds[!from], f->buf + f->off, f->len, MSG_NOSIGNAL);

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
	struct flow *f = &c->flows[from];
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

void conn_relay(struct conn *c)
{
	const bool ok = move(c, CLIENT) && move(c, SERVER);

	if (!ok || (c->flows[CLIENT].shut && c->flows[SERVER].shut) || !watch_both(c))
		conn_close(c);
}

/* --- answers ----------------------------------------------------------------------------------------------- */

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
void conn_answer(struct conn *c, int status, const char *sentence)
{
	struct flow *f = &c->flows[SERVER];
	int n;

	conn_close_server(c);
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
	conn_relay(c);
}

void conn_deny(struct conn *c, const char *host, size_t len, const char *reason)
{
	char what[SBX_HOST_MAX + 16], sentence[512];
	const struct sbx_denied denied = {.kind = SBX_DENIED_HOST, .what = what, .reason = reason};

	snprintf(what, sizeof(what), "%.*s", (int)len, host);
	snprintf(sentence, sizeof(sentence), "%s: %s", what, reason);
	sbx_denials_add(c->proxy->denials, &denied);
	conn_answer(c, 403, sentence);
}

void conn_deny_target(struct conn *c, const char *reason)
{
	const bool v6 = c->target.literal && strchr(c->target.host, ':');
	char host[SBX_HOST_MAX + 16];
	int n = snprintf(host, sizeof(host), "%s%s%s:%u", v6 ? "[" : "", c->target.host,
	                 v6 ? "]" : "", c->target.port);

	conn_deny(c, host, (size_t)n, reason);
}
