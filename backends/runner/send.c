/* Messages to the spawner: none waits, and none is lost as long as it lives. */
#include "backends/runner/runner_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"

static void outgoing_free(struct outgoing *out)
{
	for (int i = 0; i < out->n_fds; i++)
		close(out->fds[i]);
	free(out);
}

static int enqueue(struct sbx_spawner *sp, const void *bytes, size_t len, const int *fds, int n_fds)
{
	struct outgoing *out = calloc(1, sizeof(*out) + len);

	assert(n_fds <= SPAWN_FDS && len >= sizeof(struct spawn_command));
	if (!out)
		return -ENOMEM;
	out->len = len;
	memcpy(out->bytes, bytes, len);
	for (; out->n_fds < n_fds; out->n_fds++) {
		int copy = fcntl(fds[out->n_fds], F_DUPFD_CLOEXEC, 3);

		if (copy < 0) {
			int r = -errno;

			outgoing_free(out);
			return r;
		}
		out->fds[out->n_fds] = copy;
	}
	if (!sp->head)
		sbx_loop_rewatch(sp->loop, &sp->watch, EPOLLIN | EPOLLOUT);
	*sp->tail = out;
	sp->tail = &out->next;
	return 0;
}

/* Under the lock. */
int spawner_post(struct sbx_spawner *sp, const void *bytes, size_t len, const int *fds, int n_fds)
{
	int r;

	if (sp->fd < 0)
		return -EPIPE;
	if (sp->head)
		return enqueue(sp, bytes, len, fds, n_fds);
	r = sbx_send_fds(sp->fd, bytes, len, fds, (size_t)n_fds, MSG_DONTWAIT);
	return r == -EAGAIN ? enqueue(sp, bytes, len, fds, n_fds) : r;
}

/* Whether the socket took the first in the queue, or never will: then it is *RET, for RET's error.
 */
static bool send_first(struct sbx_spawner *sp, struct outgoing **ret, int *error)
{
	struct outgoing *out;

	pthread_mutex_lock(&sp->lock);
	out = sp->head;
	*error = out ? sbx_send_fds(sp->fd, out->bytes, out->len, out->fds, (size_t)out->n_fds,
	                            MSG_DONTWAIT)
	             : -EAGAIN;
	if (*error == -EAGAIN)
		out = NULL;
	else
		sp->head = out->next;
	if (!sp->head) {
		sp->tail = &sp->head;
		sbx_loop_rewatch(sp->loop, &sp->watch, EPOLLIN);
	}
	pthread_mutex_unlock(&sp->lock);
	*ret = out;
	return out;
}

void spawner_flush(struct sbx_spawner *sp)
{
	struct outgoing *out;
	int error;

	while (send_first(sp, &out, &error)) {
		struct spawn_command cmd;

		memcpy(&cmd, out->bytes, sizeof(cmd));
		outgoing_free(out);
		/* That the spawner is gone is noticed by reading. */
		if (error && error != -EPIPE && error != -ECONNRESET && cmd.verb == SPAWN_EXEC)
			spawner_fail_job(sp, cmd.job, -error);
	}
}

void spawner_drop_queue(struct sbx_spawner *sp)
{
	while (sp->head) {
		struct outgoing *out = sp->head;

		sp->head = out->next;
		outgoing_free(out);
	}
	sp->tail = &sp->head;
}

/* A message that is no job's. FD may be -1. */
static int post_order(struct sbx_spawner *sp, enum spawn_verb verb, const char *payload, size_t len,
                      int fd)
{
	const struct spawn_command cmd = {.verb = verb, .payload = len};
	_cleanup_free_ char *message = malloc(sizeof(cmd) + len);
	int r;

	if (!message)
		return -ENOMEM;
	memcpy(message, &cmd, sizeof(cmd));
	memcpy(message + sizeof(cmd), payload, len);
	pthread_mutex_lock(&sp->lock);
	r = spawner_post(sp, message, sizeof(cmd) + len, &fd, fd >= 0);
	pthread_mutex_unlock(&sp->lock);
	return r;
}

void sbx_spawner_forget(struct sbx_spawner *sp, const char *id)
{
	post_order(sp, SPAWN_FORGET, id, strlen(id) + 1, -1);
}

void sbx_spawner_forget_now(struct sbx_spawner *sp, const char *id)
{
	struct pollfd p;
	int pair[2];

	if (pipe2(pair, O_CLOEXEC) < 0) {
		sbx_spawner_forget(sp, id);
		return;
	}
	post_order(sp, SPAWN_FORGET, id, strlen(id) + 1, pair[1]);
	close(pair[1]);
	p = (struct pollfd){.fd = pair[0]};
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	close(pair[0]);
}

int sbx_spawner_open_mounter(struct sbx_spawner *sp, const char *bases, const char *trees, int *ret,
                             struct sbx_error *err)
{
	const size_t n = strlen(bases) + 1, m = strlen(trees) + 1;
	_cleanup_free_ char *payload = malloc(n + m);
	int pair[2], r;

	if (!sp->features.mount_ns)
		return sbx_fail(err, EOPNOTSUPP, "commands have no mounts of their own here%s%s",
		                *sp->features.reason ? ": " : "", sp->features.reason);
	if (!payload)
		return sbx_no_memory(err);
	memcpy(payload, bases, n);
	memcpy(payload + n, trees, m);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sbx_fail(err, errno, "socketpair: %s", strerror(errno));
	r = n + m > SPAWN_INLINE ? -ENAMETOOLONG
	                         : post_order(sp, SPAWN_MOUNTER, payload, n + m, pair[1]);
	close(pair[1]);
	if (r < 0) {
		close(pair[0]);
		return sbx_fail(err, -r, "the process that mounts trees cannot be asked for: %s",
		                strerror(-r));
	}
	*ret = pair[0];
	return 0;
}
