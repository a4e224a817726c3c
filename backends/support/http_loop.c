/*
 * libcurl says which sockets and which timer it waits for, and is called when one of them has come.
 * Watches are freed with all else, as one may be given up in its own call.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "backends/support/http_impl.h"

struct sbx_http_socket {
	struct sbx_http_socket *next;
	struct sbx_watch watch; /* fd -1: free for the next socket */
};

static struct sbx_http_socket *spare_socket(struct sbx_http_multi *m)
{
	struct sbx_http_socket *s = m->sockets;

	while (s && s->watch.fd >= 0)
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (s) {
		s->watch.fd = -1;
		s->next = m->sockets;
		m->sockets = s;
	}
	return s;
}

/* What is ended may begin another, but no message of it is read before that. */
static void reap(struct sbx_http_multi *m)
{
	struct CURLMsg *msg;
	void *data;
	int left;

	while ((msg = curl_multi_info_read(m->curl, &left))) {
		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &data);
		m->ended(data, msg->data.result);
	}
}

static void on_event(struct sbx_watch *w, uint32_t events)
{
	struct sbx_http_multi *m = w->data;
	int what = 0, running;

	if (events & EPOLLIN)
		what |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	if (events & (EPOLLERR | EPOLLHUP))
		what |= CURL_CSELECT_ERR;
	curl_multi_socket_action(m->curl, w->fd, what, &running);
	reap(m);
}

/*
 * A socket that cannot be watched has its transfer end at the deadline: to tell libcurl would have
 * it end all.
 */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *own)
{
	struct sbx_http_multi *m = arg;
	struct sbx_http_socket *s = own;
	const uint32_t events =
	        (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);

	(void)easy;
	if (what == CURL_POLL_REMOVE || !events) {
		if (s)
			sbx_loop_unwatch(m->loop, &s->watch);
		curl_multi_assign(m->curl, fd, NULL);
		return 0;
	}
	if (s && sbx_loop_rewatch(m->loop, &s->watch, events) == 0)
		return 0;
	if (!s)
		s = spare_socket(m);
	if (!s)
		return 0;
	s->watch = (struct sbx_watch){.fd = fd, .fn = on_event, .data = m};
	if (sbx_loop_watch(m->loop, &s->watch, events) < 0)
		s->watch.fd = -1;
	else
		curl_multi_assign(m->curl, fd, s);
	return 0;
}

static void on_timer(struct sbx_timer *timer)
{
	struct sbx_http_multi *m = timer->data;
	int running;

	curl_multi_socket_action(m->curl, CURL_SOCKET_TIMEOUT, 0, &running);
	reap(m);
}

static int set_timer(CURLM *multi, long ms, void *arg)
{
	struct sbx_http_multi *m = arg;

	(void)multi;
	if (ms < 0)
		sbx_loop_timer_cancel(m->loop, &m->timer);
	else
		sbx_loop_timer_set(m->loop, &m->timer, (uint64_t)ms);
	return 0;
}

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

int sbx_http_multi_init(struct sbx_http_multi *m, struct sbx_loop *loop, long connections,
                        void (*ended)(void *data, CURLcode code))
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_curl);
	*m = (struct sbx_http_multi){.curl = curl_multi_init(), .loop = loop, .ended = ended};
	if (!m->curl)
		return -ENOMEM;
	m->timer = (struct sbx_timer){.fn = on_timer, .data = m};
	curl_multi_setopt(m->curl, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(m->curl, CURLMOPT_SOCKETDATA, m);
	curl_multi_setopt(m->curl, CURLMOPT_TIMERFUNCTION, set_timer);
	curl_multi_setopt(m->curl, CURLMOPT_TIMERDATA, m);
	curl_multi_setopt(m->curl, CURLMOPT_MAXCONNECTS, connections);
	return 0;
}

void sbx_http_multi_finish(struct sbx_http_multi *m)
{
	struct sbx_http_socket *next;

	if (!m->curl)
		return;
	curl_multi_cleanup(m->curl);
	sbx_loop_timer_cancel(m->loop, &m->timer);
	for (struct sbx_http_socket *s = m->sockets; s; s = next) {
		next = s->next;
		sbx_loop_unwatch(m->loop, &s->watch);
		free(s);
	}
}
