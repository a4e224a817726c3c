/* The daemon's end of the room's socket. One request at a time: a mount takes a fraction of a millisecond. */
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

struct sbx_room {
	pthread_mutex_t lock; /* a request and its answer */
	int sock;
};

/* Returns the descriptor that came along, or -1; in ANSWER what the room said. */
static int receive(int sock, struct room_answer *answer)
{
	int fd;

	if (sbx_receive_fds(sock, answer, sizeof(*answer), &fd, 1, 0) != (ssize_t)sizeof(*answer)) {
		sbx_cleanup_fd(&fd);
		*answer = (struct room_answer){.error = ESRCH, .what = "the process that mounts"};
	}
	return fd;
}

static int ask(struct sbx_room *room, const struct room_request *req, struct room_answer *answer)
{
	int fd = -1;

	pthread_mutex_lock(&room->lock);
	if (send(room->sock, req, sizeof(*req), MSG_NOSIGNAL) < 0)
		*answer = (struct room_answer){.error = ESRCH, .what = "the process that mounts"};
	else
		fd = receive(room->sock, answer);
	pthread_mutex_unlock(&room->lock);
	return fd;
}

int sbx_room_open(struct sbx_spawner *sp, const char *bases, const char *trees,
                  struct sbx_room **ret, struct sbx_error *err)
{
	struct room_answer answer;
	struct sbx_room *room;
	int sock, r;

	r = sbx_spawner_open_room(sp, bases, trees, &sock, err);
	if (r < 0)
		return r;
	receive(sock, &answer);
	room = answer.error ? NULL : malloc(sizeof(*room));
	if (!room) {
		close(sock);
		return answer.error ? sbx_fail(err, answer.error, "%s: %s", answer.what,
		                               strerror(answer.error))
		                    : sbx_no_memory(err);
	}
	pthread_mutex_init(&room->lock, NULL);
	room->sock = sock;
	*ret = room;
	return 0;
}

void sbx_room_close(struct sbx_room *room)
{
	struct room_answer answer;
	int fd;

	if (!room)
		return;
	/* It ends by itself and is waited for: the spawner's end would kill it. */
	shutdown(room->sock, SHUT_WR);
	fd = receive(room->sock, &answer);
	sbx_cleanup_fd(&fd);
	close(room->sock);
	pthread_mutex_destroy(&room->lock);
	free(room);
}

static int fill(struct room_request *req, const char *id, const char *base)
{
	int n = snprintf(req->id, sizeof(req->id), "%s", id);
	int m = snprintf(req->base, sizeof(req->base), "%s", base);

	return n < (int)sizeof(req->id) && m < (int)sizeof(req->base) ? 0 : -ENAMETOOLONG;
}

int sbx_room_mount(struct sbx_room *room, const char *id, const char *base, struct sbx_error *err)
{
	struct room_request req = {.verb = ROOM_MOUNT};
	struct room_answer answer;
	int fd, r = fill(&req, id, base);

	if (r)
		return sbx_fail(err, -r, "the names of a tree are too long");
	fd = ask(room, &req, &answer);
	if (answer.error)
		return sbx_fail(err, answer.error, "the tree cannot be mounted (%s): %s",
		                answer.what, strerror(answer.error));
	return fd < 0 ? sbx_fail(err, EMFILE, "too many open files") : fd;
}

int sbx_room_disk(struct sbx_room *room, const char *id, uint64_t mb, struct sbx_error *err)
{
	struct room_request req = {.verb = ROOM_DISK, .mb = mb};
	struct room_answer answer;
	int fd, r = fill(&req, id, "");

	if (r)
		return sbx_fail(err, -r, "the names of a tree are too long");
	fd = ask(room, &req, &answer);
	if (answer.error)
		return sbx_fail(err, answer.error, "a disk of disk_mb cannot be made: %s",
		                strerror(answer.error));
	return fd < 0 ? sbx_fail(err, EMFILE, "too many open files") : fd;
}

int sbx_room_resize(struct sbx_room *room, const char *id, uint64_t mb, struct sbx_error *err)
{
	struct room_request req = {.verb = ROOM_RESIZE, .mb = mb};
	struct room_answer answer;
	int fd, r = fill(&req, id, "");

	if (r)
		return sbx_fail(err, -r, "the names of a tree are too long");
	fd = ask(room, &req, &answer);
	sbx_cleanup_fd(&fd);
	if (answer.error == EINVAL)
		return sbx_fail(err, ENOSPC, "more than %llu MiB are in use",
		                (unsigned long long)mb);
	return answer.error ? sbx_fail(err, answer.error, "the disk cannot be resized: %s",
	                               strerror(answer.error))
	                    : 0;
}

void sbx_room_unmount(struct sbx_room *room, const char *id)
{
	struct room_request req = {.verb = ROOM_UNMOUNT};
	struct room_answer answer;
	int fd;

	if (fill(&req, id, "") < 0)
		return;
	fd = ask(room, &req, &answer);
	sbx_cleanup_fd(&fd);
}
