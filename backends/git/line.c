/*
 * A stream for libgit2 that differs from its own in one thing: its descriptor is known here. How long nothing has moved is
 * the kernel's to tell, as an SSH library reads and writes the descriptor without asking us.
 */
#include "backends/git/line.h"

#include <errno.h>
#include <git2.h>
#include <git2/sys/stream.h>
#if __has_include(<git2/sys/errors.h>)
#include <git2/sys/errors.h>
#endif
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/thread.h"

#define LOOK_MS    100
#define CONNECT_MS 15000
#define SILENT_MS  60000

struct sbx_git_line {
	atomic_bool *cancelled;
	uint64_t begun_ns, timeout_ms;
	atomic_ullong moved_ns;
	pthread_t watcher;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t end;
	bool ended;
	int fd; /* of the connection there is, or -1 */
	uint64_t dialled_ns;
	int cut; /* errno, positive: it has been given up */
	char why[128];
};

/*
 * libgit2 hands a stream nothing but host and port; it runs in the thread that called it. Its SSH transport takes fd from
 * the place where its own stream has it, behind host and port.
 */
struct stream {
	git_stream parent;
	char *host, *port;
	int fd;
};

static _Thread_local struct sbx_git_line *current;

static uint64_t ms_since(uint64_t ns)
{
	return (sbx_now_ns() - ns) / 1000000;
}

/* The lock is held. */
static void give_up(struct sbx_git_line *line, int code, const char *why)
{
	line->cut = code;
	snprintf(line->why, sizeof(line->why), "%s", why);
}

/* Whether the server lets us wait too long. The lock is held. */
static void judge_connection(struct sbx_git_line *line)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	uint64_t idle = ms_since(atomic_load(&line->moved_ns));

	if (getsockopt(line->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return;
	if (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT) {
		if (ms_since(line->dialled_ns) > CONNECT_MS)
			give_up(line, ETIMEDOUT, "the server could not be reached within 15 s");
		return;
	}
	idle = idle < info.tcpi_last_data_recv ? idle : info.tcpi_last_data_recv;
	idle = idle < info.tcpi_last_data_sent ? idle : info.tcpi_last_data_sent;
	if (idle > SILENT_MS)
		give_up(line, ETIMEDOUT, "the server has been silent for 60 s");
}

/* The lock is held. */
static void judge(struct sbx_git_line *line)
{
	if (line->cut)
		return;
	if (line->cancelled && atomic_load(line->cancelled))
		give_up(line, EINTR, "it was given up");
	else if (line->timeout_ms && ms_since(line->begun_ns) > line->timeout_ms)
		give_up(line, ETIMEDOUT, "it took longer than it may");
	else if (line->fd >= 0)
		judge_connection(line);
}

static void *watch(void *data)
{
	struct sbx_git_line *line = data;

	pthread_mutex_lock(&line->lock);
	while (!line->ended) {
		const struct timespec until = sbx_clock_after(CLOCK_MONOTONIC, LOOK_MS * 1000000);

		pthread_cond_timedwait(&line->end, &line->lock, &until);
		judge(line);
		if (line->cut && line->fd >= 0)
			shutdown(line->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&line->lock);
	return NULL;
}

/* ---- the stream ---- */

/* Has the watcher know FD; false when it is to be given up already. */
static bool hold(int fd)
{
	struct sbx_git_line *line = current;
	bool go;

	if (!line)
		return true;
	pthread_mutex_lock(&line->lock);
	line->fd = fd;
	line->dialled_ns = sbx_now_ns();
	go = !line->cut;
	pthread_mutex_unlock(&line->lock);
	atomic_store(&line->moved_ns, sbx_now_ns());
	return go;
}

static void let_go(int *fd)
{
	if (current) {
		pthread_mutex_lock(&current->lock);
		current->fd = -1;
		pthread_mutex_unlock(&current->lock);
	}
	sbx_cleanup_fd(fd);
}

static int net_error(const char *what, const char *why)
{
	char text[256];

	snprintf(text, sizeof(text), "%s: %s", what, why);
	git_error_set_str(GIT_ERROR_NET, text);
	return -1;
}

static int stream_connect(git_stream *base)
{
	struct stream *s = (struct stream *)base;
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	int r = getaddrinfo(s->host, s->port, &hints, &list), last = ECONNREFUSED;

	if (r)
		return net_error("the server's name leads nowhere", gai_strerror(r));
	for (struct addrinfo *a = list; a && s->fd < 0; a = a->ai_next) {
		s->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
		if (s->fd >= 0 && hold(s->fd) && connect(s->fd, a->ai_addr, a->ai_addrlen) == 0)
			break;
		last = errno;
		let_go(&s->fd);
	}
	freeaddrinfo(list);
	return s->fd < 0 ? net_error("the server cannot be reached", strerror(last)) : 0;
}

static ssize_t stream_read(git_stream *base, void *buf, size_t len)
{
	ssize_t n = recv(((struct stream *)base)->fd, buf, len, 0);

	return n < 0 ? net_error("the connection broke", strerror(errno)) : n;
}

static ssize_t stream_write(git_stream *base, const char *buf, size_t len, int flags)
{
	ssize_t n = send(((struct stream *)base)->fd, buf, len, flags | MSG_NOSIGNAL);

	return n < 0 ? net_error("the connection broke", strerror(errno)) : n;
}

static int stream_close(git_stream *base)
{
	let_go(&((struct stream *)base)->fd);
	return 0;
}

static void stream_free(git_stream *base)
{
	struct stream *s = (struct stream *)base;

	if (s->fd >= 0)
		let_go(&s->fd);
	free(s->host);
	free(s->port);
	free(s);
}

static int stream_new(git_stream **ret, const char *host, const char *port)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return net_error("the connection", "out of memory");
	s->parent = (git_stream){
	        .version = GIT_STREAM_VERSION,
	        .connect = stream_connect,
	        .read = stream_read,
	        .write = stream_write,
	        .close = stream_close,
	        .free = stream_free,
	};
	s->fd = -1;
	s->host = strdup(host);
	s->port = strdup(port);
	if (!s->host || !s->port) {
		stream_free(&s->parent);
		return net_error("the connection", "out of memory");
	}
	*ret = &s->parent;
	return 0;
}

static void register_stream(void)
{
	git_stream_registration reg = {.version = GIT_STREAM_VERSION, .init = stream_new};

	git_stream_register(GIT_STREAM_STANDARD, &reg);
}

/* ---- the watch ---- */

int sbx_git_line_open(atomic_bool *cancelled, uint64_t timeout_ms, struct sbx_git_line **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct sbx_git_line *line = calloc(1, sizeof(*line));
	pthread_condattr_t attr;
	int r;

	if (!line)
		return -ENOMEM;
	pthread_once(&once, register_stream);
	line->cancelled = cancelled;
	line->timeout_ms = timeout_ms;
	line->begun_ns = sbx_now_ns();
	line->fd = -1;
	atomic_store(&line->moved_ns, line->begun_ns);
	pthread_mutex_init(&line->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&line->end, &attr);
	pthread_condattr_destroy(&attr);
	r = sbx_thread_start(&line->watcher, watch, line);
	if (r) {
		free(line);
		return r;
	}
	current = line;
	*ret = line;
	return 0;
}

bool sbx_git_line_move(struct sbx_git_line *line)
{
	bool go;

	atomic_store(&line->moved_ns, sbx_now_ns());
	pthread_mutex_lock(&line->lock);
	judge(line);
	go = !line->cut;
	pthread_mutex_unlock(&line->lock);
	return go;
}

int sbx_git_line_cut(struct sbx_git_line *line, struct sbx_error *err)
{
	int r = 0;

	pthread_mutex_lock(&line->lock);
	if (line->cut)
		r = sbx_fail(err, line->cut, "%s", line->why);
	pthread_mutex_unlock(&line->lock);
	return r;
}

void sbx_git_line_close(struct sbx_git_line *line)
{
	if (!line)
		return;
	current = NULL;
	pthread_mutex_lock(&line->lock);
	line->ended = true;
	pthread_cond_signal(&line->end);
	pthread_mutex_unlock(&line->lock);
	pthread_join(line->watcher, NULL);
	pthread_cond_destroy(&line->end);
	pthread_mutex_destroy(&line->lock);
	free(line);
}
