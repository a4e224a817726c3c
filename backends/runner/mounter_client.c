/* The daemon's end of the room's socket. One request at a time: a mount takes a fraction of a
 * millisecond. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/runner/isolation/mounter.h"
#include "backends/runner/isolation/mounter_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"

struct sbx_mounter {
	pthread_mutex_t lock; /* a request and its answer */
	int sock;
};

/* Returns the descriptor that came along, or -1; in ANSWER what the room said. */
static int receive(int sock, struct mounter_answer *answer)
{
	int fd;

	if (sbx_receive_fds(sock, answer, sizeof(*answer), &fd, 1, 0) != (ssize_t)sizeof(*answer)) {
		sbx_cleanup_fd(&fd);
		*answer =
		        (struct mounter_answer){.error = ESRCH, .what = "the process that mounts"};
	}
	return fd;
}

static int ask(struct sbx_mounter *mounter, const struct mounter_request *req,
               struct mounter_answer *answer)
{
	int fd = -1;

	pthread_mutex_lock(&mounter->lock);
	if (send(mounter->sock, req, sizeof(*req), MSG_NOSIGNAL) < 0)
		*answer =
		        (struct mounter_answer){.error = ESRCH, .what = "the process that mounts"};
	else
		fd = receive(mounter->sock, answer);
	pthread_mutex_unlock(&mounter->lock);
	return fd;
}

int sbx_mounter_open(struct sbx_spawner *sp, const char *bases, const char *trees,
                     struct sbx_mounter **ret, struct sbx_error *err)
{
	struct mounter_answer answer;
	struct sbx_mounter *mounter;
	int sock, r;

	r = sbx_spawner_open_mounter(sp, bases, trees, &sock, err);
	if (r < 0)
		return r;
	receive(sock, &answer);
	mounter = answer.error ? NULL : malloc(sizeof(*mounter));
	if (!mounter) {
		close(sock);
		return answer.error ? sbx_fail(err, answer.error, "%s: %s", answer.what,
		                               strerror(answer.error))
		                    : sbx_no_memory(err);
	}
	pthread_mutex_init(&mounter->lock, NULL);
	mounter->sock = sock;
	*ret = mounter;
	return 0;
}

void sbx_mounter_close(struct sbx_mounter *mounter)
{
	struct mounter_answer answer;
	int fd;

	if (!mounter)
		return;
	/* It ends by itself and is waited for: the spawner's end would kill it. */
	shutdown(mounter->sock, SHUT_WR);
	fd = receive(mounter->sock, &answer);
	sbx_cleanup_fd(&fd);
	close(mounter->sock);
	pthread_mutex_destroy(&mounter->lock);
	free(mounter);
}

static int fill(struct mounter_request *req, const char *id, const char *base)
{
	int n = snprintf(req->id, sizeof(req->id), "%s", id);
	int m = snprintf(req->base, sizeof(req->base), "%s", base);

	return n < (int)sizeof(req->id) && m < (int)sizeof(req->base) ? 0 : -ENAMETOOLONG;
}

int sbx_mounter_mount(struct sbx_mounter *mounter, const char *id, const char *base,
                      struct sbx_error *err)
{
	struct mounter_request req = {.verb = MOUNTER_MOUNT};
	struct mounter_answer answer;
	int fd, r = fill(&req, id, base);

	if (r)
		return sbx_fail(err, -r, "the names of a tree are too long");
	fd = ask(mounter, &req, &answer);
	if (answer.error)
		return sbx_fail(err, answer.error, "the tree cannot be mounted (%s): %s",
		                answer.what, strerror(answer.error));
	return fd < 0 ? sbx_fail(err, EMFILE, "too many open files") : fd;
}

int sbx_mounter_disk(struct sbx_mounter *mounter, const char *id, uint64_t mb,
                     struct sbx_error *err)
{
	struct mounter_request req = {.verb = MOUNTER_DISK, .mb = mb};
	struct mounter_answer answer;
	int fd, r = fill(&req, id, "");

	if (r)
		return sbx_fail(err, -r, "the names of a tree are too long");
	fd = ask(mounter, &req, &answer);
	if (answer.error)
		return sbx_fail(err, answer.error, "a disk of disk_mb cannot be made: %s",
		                strerror(answer.error));
	return fd < 0 ? sbx_fail(err, EMFILE, "too many open files") : fd;
}

int sbx_mounter_resize(struct sbx_mounter *mounter, const char *id, uint64_t mb,
                       struct sbx_error *err)
{
	struct mounter_request req = {.verb = MOUNTER_RESIZE, .mb = mb};
	struct mounter_answer answer;
	int fd, r = fill(&req, id, "");

	if (r)
		return sbx_fail(err, -r, "the names of a tree are too long");
	fd = ask(mounter, &req, &answer);
	sbx_cleanup_fd(&fd);
	if (answer.error == EINVAL)
		return sbx_fail(err, ENOSPC, "more than %llu MiB are in use",
		                (unsigned long long)mb);
	return answer.error ? sbx_fail(err, answer.error, "the disk cannot be resized: %s",
	                               strerror(answer.error))
	                    : 0;
}

void sbx_mounter_unmount(struct sbx_mounter *mounter, const char *id)
{
	struct mounter_request req = {.verb = MOUNTER_UNMOUNT};
	struct mounter_answer answer;
	int fd;

	if (fill(&req, id, "") < 0)
		return;
	fd = ask(mounter, &req, &answer);
	sbx_cleanup_fd(&fd);
}
