/*
 * The daemon's side: commands go out under a lock from any thread, reports come in on the
 * loop thread, which owns everything else of a job. A send never blocks: what the socket does
 * not take is queued, since the spawner may itself be waiting for us to read.
 *
 * The pipes of a job are watched only once its STARTED was read and nothing after it in the
 * same batch: a short command is over by then and costs no epoll calls.
 */
#include "sandboxfs/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/local/cgroup.h"
#include "backends/local/filter.h"
#include "backends/local/spawn_proto.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

#define BUCKETS  256
#define BUF_SIZE ((size_t)256 * 1024)
#define BATCH    64
#define DRAIN_MS 100  /* that output is awaited past the leader's end */
#define LOST_MS  1000 /* that the death of an init is awaited when the spawner is dead */

struct job {
	struct sbx_job base;
	struct sbx_spawner *sp;
	struct job *next;  /* in its bucket; under sp->lock */
	struct job *fresh; /* in sp->fresh */
	uint64_t number;
	pid_t init; /* 0 until STARTED */
	struct sbx_exec_events events;
	void *data;
	int pipe[2]; /* stdout, stderr; -1 once at its end. Owned here while not watched. */
	struct sbx_watch watch[2];
	struct sbx_timer drain;
	bool started, leader_ended, ended;
	struct spawn_report last; /* of the leader's end */
	char *cwd;
	char program[]; /* for the sentence when it cannot be started */
};

struct outgoing {
	struct outgoing *next;
	int fds[SPAWN_FDS], n_fds;
	size_t len;
	char bytes[];
};

struct sbx_spawner {
	const struct sbx_settings *settings;
	struct sbx_loop *loop;
	pid_t pid;
	struct spawn_powers powers;
	struct cgroup group;
	struct sbx_watch watch; /* the socket */

	pthread_mutex_t lock; /* the next five */
	int fd;               /* the socket; -1 when the spawner is gone */
	uint64_t jobs;
	struct job *table[BUCKETS];
	struct outgoing *head, **tail;

	struct job *fresh; /* started in this batch, perhaps to be watched; loop thread */
	char *buf;         /* loop thread */
};

/* --- sending ------------------------------------------------------------------------------- */

static void outgoing_free(struct outgoing *out)
{
	for (int i = 0; i < out->n_fds; i++)
		close(out->fds[i]);
	free(out);
}

static int enqueue(struct sbx_spawner *sp, const void *bytes, size_t len, const int *fds, int n_fds)
{
	struct outgoing *out = calloc(1, sizeof(*out) + len);

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
static int post(struct sbx_spawner *sp, const void *bytes, size_t len, const int *fds, int n_fds)
{
	int r;

	if (sp->fd < 0)
		return -EIO;
	if (sp->head)
		return enqueue(sp, bytes, len, fds, n_fds);
	r = spawn_send(sp->fd, bytes, len, fds, n_fds);
	return r == -EAGAIN ? enqueue(sp, bytes, len, fds, n_fds) : r;
}

static void flush_queue(struct sbx_spawner *sp)
{
	pthread_mutex_lock(&sp->lock);
	while (sp->head) {
		struct outgoing *out = sp->head;

		/* A message that can never be sent has a job that never starts; the spawner
		 * being gone is noticed by reading. */
		if (spawn_send(sp->fd, out->bytes, out->len, out->fds, out->n_fds) == -EAGAIN)
			break;
		sp->head = out->next;
		outgoing_free(out);
	}
	if (!sp->head) {
		sp->tail = &sp->head;
		sbx_loop_rewatch(sp->loop, &sp->watch, EPOLLIN);
	}
	pthread_mutex_unlock(&sp->lock);
}

/* --- the table of jobs ----------------------------------------------------------------------- */

static struct job **find_slot(struct sbx_spawner *sp, uint64_t number)
{
	struct job **slot = &sp->table[number % BUCKETS];

	while (*slot && (*slot)->number != number)
		slot = &(*slot)->next;
	return slot;
}

static struct job *find_job(struct sbx_spawner *sp, uint64_t number)
{
	struct job *job;

	pthread_mutex_lock(&sp->lock);
	job = *find_slot(sp, number);
	pthread_mutex_unlock(&sp->lock);
	return job;
}

static void forget_job(struct job *job)
{
	struct sbx_spawner *sp = job->sp;
	struct job **slot;

	pthread_mutex_lock(&sp->lock);
	slot = find_slot(sp, job->number);
	if (*slot)
		*slot = job->next;
	pthread_mutex_unlock(&sp->lock);
	for (slot = &sp->fresh; *slot; slot = &(*slot)->fresh) {
		if (*slot == job) {
			*slot = job->fresh;
			break;
		}
	}
}

/* --- the life of a job, on the loop thread ---------------------------------------------------- */

static void job_signal(struct sbx_job *base, int sig)
{
	struct job *job = sbx_container_of(base, struct job, base);
	struct spawn_command cmd = {.verb = SPAWN_SIGNAL, .job = job->number, .sig = sig};

	if (job->ended)
		return;
	pthread_mutex_lock(&job->sp->lock);
	post(job->sp, &cmd, sizeof(cmd), NULL, 0);
	pthread_mutex_unlock(&job->sp->lock);
}

static void job_free(struct job *job)
{
	for (int i = 0; i < 2; i++)
		sbx_cleanup_fd(&job->pipe[i]);
	free(job->cwd);
	free(job);
}

static void job_destroy(struct sbx_job *base)
{
	job_free(sbx_container_of(base, struct job, base));
}

static const struct sbx_job_impl job_impl = {.signal = job_signal, .destroy = job_destroy};

static void tell_started(struct job *job)
{
	if (job->started)
		return;
	job->started = true;
	if (job->events.started)
		job->events.started(job->data);
}

static void close_pipe(struct job *job, int i)
{
	if (job->watch[i].fd >= 0)
		sbx_loop_unwatch(job->sp->loop, &job->watch[i]);
	sbx_cleanup_fd(&job->pipe[i]);
}

/* At most LIMIT bytes. Returns what read(2) does. */
static ssize_t read_some(struct job *job, int i, size_t limit)
{
	struct sbx_spawner *sp = job->sp;
	ssize_t n = read(job->pipe[i], sp->buf, limit < BUF_SIZE ? limit : BUF_SIZE);

	if (n > 0) {
		tell_started(job);
		job->events.output(job->data, i + 1, sp->buf, (size_t)n);
	}
	return n;
}

/* Everything is dead. What the pipe holds now is all: a stranger who got hold of it may go on. */
static void drain_pipe(struct job *job, int i)
{
	int left = 0;

	if (job->pipe[i] >= 0 && ioctl(job->pipe[i], FIONREAD, &left) == 0) {
		while (left > 0) {
			ssize_t n = read_some(job, i, (size_t)left);

			if (n <= 0)
				break;
			left -= (int)n;
		}
	}
	close_pipe(job, i);
}

static void finish(struct job *job, struct sbx_exit *exit)
{
	job->ended = true;
	forget_job(job);
	sbx_loop_timer_cancel(job->sp->loop, &job->drain);
	for (int i = 0; i < 2; i++)
		drain_pipe(job, i);
	job->events.ended(job->data, exit);
}

static void finish_from_status(struct job *job, int status, const struct spawn_report *usage)
{
	struct sbx_exit exit = {.end = SBX_END_EXITED,
	                        .code = WEXITSTATUS(status),
	                        .user_us = usage->user_us,
	                        .sys_us = usage->sys_us,
	                        .max_rss_kb = usage->max_rss_kb};

	if (WIFSIGNALED(status)) {
		exit.code = WTERMSIG(status);
		exit.end = usage->oom && exit.code == SIGKILL ? SBX_END_OOM : SBX_END_SIGNALED;
	}
	finish(job, &exit);
}

static void describe_failure(const struct job *job, const struct spawn_report *r,
                             struct sbx_error *err)
{
	const char *name = job->program;

	if (r->stage == SPAWN_AT_CWD && (r->code == EXDEV || r->code == ELOOP))
		sbx_fail(err, EACCES, "path confinement violation: cwd %s leads out of the sandbox",
		         job->cwd);
	else if (r->stage == SPAWN_AT_CWD)
		sbx_fail(err, r->code, "cwd %s: %s", *job->cwd ? job->cwd : ".", strerror(r->code));
	else if (r->stage == SPAWN_AT_INTERPRETER && r->code == ENOENT)
		sbx_fail(err, ENOENT, "%s: the interpreter it names was not found", name);
	else if (r->stage == SPAWN_AT_EXEC && r->code == ENOENT)
		sbx_fail(err, ENOENT, "%s: program not found", name);
	else if (r->stage == SPAWN_AT_EXEC && r->code == EACCES)
		sbx_fail(err, EACCES, "%s: not executable", name);
	else if (r->stage == SPAWN_AT_EXEC && r->code == ENOEXEC)
		sbx_fail(err, ENOEXEC, "%s: neither a binary nor a script that begins with #!",
		         name);
	else if (r->stage == SPAWN_AT_LIMITS)
		sbx_fail(err, r->code, "cannot limit %s: %s", name, strerror(r->code));
	else if (r->stage == SPAWN_AT_RIGHTS)
		sbx_fail(err, r->code, "cannot give up rights for %s: %s", name, strerror(r->code));
	else if (r->stage == SPAWN_AT_VIEW)
		sbx_fail(err, r->code, "cannot make the sandbox's namespaces: %s",
		         strerror(r->code));
	else
		sbx_fail(err, r->code, "cannot start %s: %s", name, strerror(r->code));
}

static void finish_failed(struct job *job, const struct spawn_report *r)
{
	struct sbx_exit exit = {.end = SBX_END_FAILED};

	describe_failure(job, r, &exit.error);
	exit.code = exit.error.code;
	finish(job, &exit);
}

static bool pipes_at_end(const struct job *job)
{
	return job->pipe[0] < 0 && job->pipe[1] < 0;
}

static void drained(struct sbx_timer *t)
{
	job_signal(&((struct job *)t->data)->base, SIGKILL);
}

static void on_output(struct sbx_watch *w, uint32_t events)
{
	struct job *job = w->data;
	int i = w == &job->watch[1];
	ssize_t n = read_some(job, i, BUF_SIZE);

	(void)events;
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	close_pipe(job, i);
	if (job->leader_ended && pipes_at_end(job))
		job_signal(&job->base, SIGKILL);
}

static void watch_pipe(struct job *job, int i)
{
	if (job->pipe[i] < 0 || job->watch[i].fd >= 0)
		return;
	job->watch[i].fd = job->pipe[i];
	if (sbx_loop_watch(job->sp->loop, &job->watch[i], EPOLLIN) < 0) {
		job->watch[i].fd = -1;
		job_signal(&job->base, SIGKILL);
	}
}

static void on_started(struct job *job, pid_t init)
{
	job->init = init;
	job->fresh = job->sp->fresh;
	job->sp->fresh = job;
	tell_started(job);
}

static void on_leader_ended(struct job *job, const struct spawn_report *r)
{
	tell_started(job);
	if (!r->remain) {
		finish_from_status(job, r->code, r);
		return;
	}
	job->leader_ended = true;
	job->last = *r;
	if (pipes_at_end(job))
		job_signal(&job->base, SIGKILL);
	else
		sbx_loop_timer_set(job->sp->loop, &job->drain, DRAIN_MS);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Where init may not look at the job's processes, it is the job's command that is named. */
static void on_refused(struct job *job, const struct spawn_report *r)
{
	char call[64], program[SPAWN_NAME];
	struct sbx_denial denial = {.more = r->refused.more};

	if (!job->events.denied)
		return;
	snprintf(program, sizeof(program), "%.*s", SPAWN_NAME, r->refused.program);
	denial.program = *program ? program : base_name(job->program);
	if (r->code >= 0) {
		denial.class = filter_describe(r->code, call, sizeof(call));
		denial.call = call;
	}
	tell_started(job);
	job->events.denied(job->data, &denial);
}

static void on_listening(struct job *job, int *fd)
{
	if (job->events.listening && *fd >= 0)
		job->events.listening(job->data, sbx_steal_fd(fd));
}

static void on_gone(struct job *job, struct spawn_report r)
{
	r.oom |= job->last.oom;
	finish_from_status(job, job->leader_ended ? job->last.code : SIGKILL, &r);
}

/* FD came along, or -1; what is not wanted of it stays. */
static void on_report(struct sbx_spawner *sp, const struct spawn_report *r, int *fd)
{
	struct job *job = find_job(sp, r->job);

	if (!job)
		return;
	if (r->event == SPAWN_LISTENING)
		on_listening(job, fd);
	else if (r->event == SPAWN_STARTED)
		on_started(job, r->code);
	else if (r->event == SPAWN_FAILED)
		finish_failed(job, r);
	else if (r->event == SPAWN_ENDED)
		on_leader_ended(job, r);
	else if (r->event == SPAWN_REFUSED)
		on_refused(job, r);
	else if (r->event == SPAWN_GONE)
		on_gone(job, *r);
}

static void watch_fresh(struct sbx_spawner *sp)
{
	while (sp->fresh) {
		struct job *job = sp->fresh;

		sp->fresh = job->fresh;
		job->fresh = NULL;
		watch_pipe(job, 0);
		watch_pipe(job, 1);
	}
}

static struct job *any_job(struct sbx_spawner *sp)
{
	struct job *job = NULL;

	pthread_mutex_lock(&sp->lock);
	for (int i = 0; i < BUCKETS && !job; i++)
		job = sp->table[i];
	pthread_mutex_unlock(&sp->lock);
	return job;
}

/*
 * A dying init closes its socket before the kernel has killed the rest of its namespace; its
 * pidfd tells when that is done. The limit is for a pid that has become another's. (Of a
 * job that was being started at that moment we do not know the pid; the kernel is at it.)
 */
static void await_init(pid_t pid)
{
	_cleanup_fd_ int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fd >= 0)
		poll(&p, 1, LOST_MS);
}

/* Spawner and inits are gone, or going, and with them all that they ran. */
static void lose_everything(struct sbx_spawner *sp)
{
	struct job *job;
	int fd;

	sbx_loop_unwatch(sp->loop, &sp->watch);
	pthread_mutex_lock(&sp->lock);
	fd = sp->fd;
	sp->fd = -1;
	while (sp->head) {
		struct outgoing *out = sp->head;

		sp->head = out->next;
		outgoing_free(out);
	}
	sp->tail = &sp->head;
	pthread_mutex_unlock(&sp->lock);
	close(fd);
	while ((job = any_job(sp))) {
		struct sbx_exit exit = {.end = SBX_END_LOST};

		await_init(job->init);
		sbx_fail(&exit.error, EIO, "the process that runs commands has died");
		finish(job, &exit);
	}
}

/* Handles one report. Returns what recvmsg(2) does. */
static ssize_t receive(struct sbx_spawner *sp, int sock, int flags)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct spawn_report r;
	struct iovec iov = {.iov_base = &r, .iov_len = sizeof(r)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	ssize_t n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	_cleanup_fd_ int fd = -1;
	struct cmsghdr *c;

	if (n != (ssize_t)sizeof(r))
		return n;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	on_report(sp, &r, &fd);
	return n;
}

static void on_socket(struct sbx_watch *w, uint32_t events)
{
	struct sbx_spawner *sp = w->data;
	ssize_t n = 0;

	for (int i = 0; i < BATCH; i++) {
		n = receive(sp, w->fd, MSG_DONTWAIT);
		if (n != (ssize_t)sizeof(struct spawn_report))
			break;
	}
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		lose_everything(sp);
		return;
	}
	watch_fresh(sp);
	if (events & EPOLLOUT)
		flush_queue(sp);
}

/* --- exec, on any thread ------------------------------------------------------------------------ */

static struct job *job_new(struct sbx_spawner *sp, const struct sbx_exec *spec,
                           const struct sbx_exec_events *events, void *data)
{
	const char *name = spec->program ? spec->program : spec->argv[0];
	size_t len = strlen(name) + 1;
	struct job *job = calloc(1, sizeof(*job) + len);

	if (!job)
		return NULL;
	job->base.impl = &job_impl;
	job->sp = sp;
	job->events = *events;
	job->data = data;
	memcpy(job->program, name, len);
	job->drain = (struct sbx_timer){.fn = drained, .data = job};
	for (int i = 0; i < 2; i++) {
		job->pipe[i] = -1;
		job->watch[i] = (struct sbx_watch){.fd = -1, .fn = on_output, .data = job};
	}
	job->cwd = strdup(spec->cwd ? spec->cwd : "");
	if (!job->cwd) {
		job_free(job);
		return NULL;
	}
	return job;
}

static int make_pipe(int *ret_read, int *ret_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	*ret_read = p[0];
	*ret_write = p[1];
	return 0;
}

static int payload_to_memfd(const char *payload, size_t len, int *ret)
{
	_cleanup_fd_ int fd = memfd_create("exec", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (size_t at = 0; at < len;) {
		ssize_t n = write(fd, payload + at, len - at);

		if (n < 0)
			return -errno;
		at += (size_t)n;
	}
	*ret = sbx_steal_fd(&fd);
	return 0;
}

/* Registers the job and sends it, or does neither. */
static int launch(struct sbx_spawner *sp, struct job *job, struct spawn_command *cmd,
                  const char *payload, int *fds, int n_fds)
{
	size_t inlined = cmd->flags & SPAWN_IN_MEMFD ? 0 : cmd->payload;
	_cleanup_free_ char *message = malloc(sizeof(*cmd) + inlined);
	struct job **slot;
	int r;

	if (!message)
		return -ENOMEM;
	pthread_mutex_lock(&sp->lock);
	job->number = cmd->job = ++sp->jobs;
	memcpy(message, cmd, sizeof(*cmd));
	memcpy(message + sizeof(*cmd), payload, inlined);
	slot = &sp->table[job->number % BUCKETS];
	job->next = *slot;
	*slot = job;
	r = post(sp, message, sizeof(*cmd) + inlined, fds, n_fds);
	if (r < 0)
		*slot = job->next;
	pthread_mutex_unlock(&sp->lock);
	return r;
}

static int send_job(struct sbx_spawner *sp, struct job *job, const struct sbx_place *place,
                    const struct sbx_exec *spec)
{
	struct spawn_command cmd = {.verb = SPAWN_EXEC, .limits = spec->limits};
	_cleanup_free_ char *payload = NULL;
	_cleanup_fd_ int out = -1, err = -1, memfd = -1;
	int fds[SPAWN_FDS], n = 0, r;

	r = spawn_encode(place, spec, &cmd, &payload);
	if (!r)
		r = make_pipe(&job->pipe[0], &out);
	if (!r)
		r = make_pipe(&job->pipe[1], &err);
	if (!r && cmd.payload > SPAWN_INLINE)
		r = payload_to_memfd(payload, cmd.payload, &memfd);
	if (r < 0)
		return r;
	if (place->layered)
		cmd.flags |= SPAWN_LAYERED;
	if (spec->stdin_fd >= 0) {
		cmd.flags |= SPAWN_HAS_STDIN;
		fds[n++] = spec->stdin_fd;
	}
	fds[n++] = out;
	fds[n++] = err;
	if (memfd >= 0) {
		cmd.flags |= SPAWN_IN_MEMFD;
		fds[n++] = memfd;
	}
	return launch(sp, job, &cmd, payload, fds, n);
}

static int exec_failed(int r, struct sbx_error *err)
{
	switch (r) {
	case -E2BIG:
		return sbx_fail(err, E2BIG, "arguments and environment are too long");
	case -EIO:
	case -EPIPE:
	case -ECONNRESET:
		return sbx_fail(err, EIO, "the process that runs commands has died");
	case -ENOMEM:
		return sbx_fail(err, ENOMEM, "out of memory");
	case -ETOOMANYREFS:
	case -EMFILE:
	case -ENFILE:
		return sbx_fail(err, EAGAIN, "too many open files for another command");
	default:
		return sbx_fail(err, -r, "cannot start a command: %s", strerror(-r));
	}
}

int sbx_spawner_exec(struct sbx_spawner *sp, const struct sbx_place *place,
                     const struct sbx_exec *spec, const struct sbx_exec_events *events, void *data,
                     struct sbx_job **ret, struct sbx_error *err)
{
	struct sbx_job *before = *ret;
	struct job *job;
	int r;

	if (!sp->loop)
		return sbx_fail(err, EIO, "the process that runs commands is not attached");
	job = job_new(sp, spec, events, data);
	if (!job)
		return exec_failed(-ENOMEM, err);
	/* Before the first event can come. */
	*ret = &job->base;
	r = send_job(sp, job, place, spec);
	if (r < 0) {
		*ret = before;
		job_free(job);
		return exec_failed(r, err);
	}
	return 0;
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
	r = post(sp, message, sizeof(cmd) + len, &fd, fd >= 0);
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

int sbx_spawner_open_room(struct sbx_spawner *sp, const char *bases, const char *trees, int *ret,
                          struct sbx_error *err)
{
	const size_t n = strlen(bases) + 1, m = strlen(trees) + 1;
	_cleanup_free_ char *payload = malloc(n + m);
	int pair[2], r;

	if (!sp->powers.mount_ns)
		return sbx_fail(err, EOPNOTSUPP, "commands have no mounts of their own here%s%s",
		                *sp->powers.reason ? ": " : "", sp->powers.reason);
	if (!payload)
		return sbx_fail(err, ENOMEM, "out of memory");
	memcpy(payload, bases, n);
	memcpy(payload + n, trees, m);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return sbx_fail(err, errno, "socketpair: %s", strerror(errno));
	r = n + m > SPAWN_INLINE ? -ENAMETOOLONG
	                         : post_order(sp, SPAWN_ROOM, payload, n + m, pair[1]);
	close(pair[1]);
	if (r < 0) {
		close(pair[0]);
		return sbx_fail(err, -r, "the process that mounts trees cannot be asked for: %s",
		                strerror(-r));
	}
	*ret = pair[0];
	return 0;
}

static const char *mode(const struct sbx_spawner *sp)
{
	if (sp->settings->isolation && strcmp(sp->settings->isolation, "none") == 0)
		return "none";
	if (sp->powers.mount_ns)
		return "namespaces";
	if (sp->powers.landlock)
		return "landlock";
	return sp->powers.pid_ns ? "pid_namespace" : "subreaper";
}

bool sbx_spawner_shows_tmp(const struct sbx_spawner *sp)
{
	return sp->powers.mount_ns || !sp->powers.landlock;
}

/* Without a namespace the filter refuses sockets. */
static const char *network(const struct sbx_spawner *sp)
{
	const char *net = sp->settings->net;
	const bool host = net && strcmp(net, "host") == 0;

	if (sbx_settings_hosts(sp->settings))
		return net;
	return sp->powers.net_ns || (sp->powers.seccomp && !host) ? "none" : "host";
}

static struct json_object *cgroup_json(const struct sbx_cgroup_powers *powers)
{
	struct json_object *obj = json_object_new_object();

	json_object_object_add(obj, "memory", json_object_new_boolean(powers->memory));
	json_object_object_add(obj, "pids", json_object_new_boolean(powers->pids));
	json_object_object_add(obj, "cpu", json_object_new_boolean(powers->cpu));
	if (*powers->reason)
		json_object_object_add(obj, "reason", json_object_new_string(powers->reason));
	return obj;
}

/* What memory_mb means here. */
static const char *memory_wall(const struct spawn_powers *powers)
{
	if (powers->cgroup.memory)
		return "cgroup";
	return spawn_watches(powers) ? "watched" : "address space";
}

void sbx_spawner_policy(struct sbx_spawner *sp, struct json_object *obj)
{
	struct json_object *iso = json_object_new_object();

	json_object_object_add(iso, "mode", json_object_new_string(mode(sp)));
	json_object_object_add(iso, "user_ns", json_object_new_boolean(sp->powers.user_ns));
	json_object_object_add(iso, "pid_ns", json_object_new_boolean(sp->powers.pid_ns));
	json_object_object_add(iso, "mount_ns", json_object_new_boolean(sp->powers.mount_ns));
	json_object_object_add(iso, "net_ns", json_object_new_boolean(sp->powers.net_ns));
	json_object_object_add(iso, "landlock", json_object_new_int(sp->powers.landlock));
	json_object_object_add(iso, "seccomp", json_object_new_boolean(sp->powers.seccomp));
	json_object_object_add(iso, "no_capabilities",
	                       json_object_new_boolean(sp->powers.isolated));
	json_object_object_add(iso, "no_new_privs", json_object_new_boolean(true));
	json_object_object_add(iso, "run_as", json_object_new_int64(sp->powers.who.uid));
	if (*sp->powers.reason)
		json_object_object_add(iso, "reason", json_object_new_string(sp->powers.reason));
	json_object_object_add(obj, "isolation", iso);
	json_object_object_add(obj, "cgroup", cgroup_json(&sp->powers.cgroup));
	json_object_object_add(obj, "memory", json_object_new_string(memory_wall(&sp->powers)));
	json_object_object_add(obj, "network", json_object_new_string(network(sp)));
}

/* --- start and stop -------------------------------------------------------------------------------- */

static int await_hello(struct sbx_spawner *sp, struct sbx_error *err)
{
	struct spawn_hello hello;
	ssize_t n;

	do
		n = recv(sp->fd, &hello, sizeof(hello), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(hello))
		return sbx_fail(err, EIO, "the process that runs commands died at its start");
	if (hello.report.code)
		return sbx_fail(err, hello.report.code, "commands cannot be isolated: %s",
		                *hello.powers.reason ? hello.powers.reason
		                                     : strerror(hello.report.code));
	sp->powers = hello.powers;
	return 0;
}

/* A daemon that goes to the background is waited for by the program it was forked from. */
static bool is_same_program(pid_t pid)
{
	struct stat ours, its;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return stat("/proc/self/exe", &ours) == 0 && stat(path, &its) == 0 &&
	       ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

static void make_group(struct sbx_spawner *sp)
{
	const pid_t ours[] = {getpid(), getppid()};
	struct sbx_cgroup_powers *powers = &sp->group.powers;
	struct cgroup_where where;
	int r = cgroup_find("/proc/self/mountinfo", "/proc/self/cgroup", &where);

	if (r < 0)
		snprintf(powers->reason, sizeof(powers->reason), "cgroup v2 is not mounted");
	else
		cgroup_open(&sp->group, &where, ours, is_same_program(ours[1]) ? 2 : 1);
}

int sbx_spawner_start(const struct sbx_settings *settings, struct sbx_spawner **ret,
                      struct sbx_error *err)
{
	struct sbx_spawner *sp = calloc(1, sizeof(*sp));
	pid_t daemon = getpid();
	int pair[2], r;

	if (!sp || !(sp->buf = malloc(BUF_SIZE))) {
		free(sp);
		return sbx_fail(err, ENOMEM, "out of memory");
	}
	sp->settings = settings;
	sp->tail = &sp->head;
	sp->group = CGROUP_NONE;
	sp->watch = (struct sbx_watch){.fd = -1, .fn = on_socket, .data = sp};
	pthread_mutex_init(&sp->lock, NULL);
	sp->fd = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		r = sbx_fail(err, errno, "socketpair: %s", strerror(errno));
		sbx_spawner_stop(sp);
		return r;
	}
	make_group(sp); /* before the fork: both may have to be in it */
	/* Not fork(3): what hooks it (ThreadSanitizer) may start a thread, and the spawner must have one. */
	sp->pid = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, 0UL);
	if (sp->pid == 0)
		spawner_main(pair[1], settings, daemon, &sp->group);
	sp->fd = pair[0];
	close(pair[1]);
	r = sp->pid < 0 ? sbx_fail(err, errno, "fork: %s", strerror(errno)) : await_hello(sp, err);
	if (r < 0) {
		sbx_spawner_stop(sp);
		return r;
	}
	*ret = sp;
	return 0;
}

int sbx_spawner_attach(struct sbx_spawner *sp, struct sbx_loop *loop)
{
	int r;

	sp->watch.fd = sp->fd;
	r = sbx_loop_watch(loop, &sp->watch, EPOLLIN);
	if (r < 0)
		sp->watch.fd = -1;
	else
		sp->loop = loop;
	return r;
}

void sbx_spawner_stop(struct sbx_spawner *sp)
{
	if (!sp)
		return;
	if (sp->fd >= 0 && sp->loop) {
		shutdown(sp->fd, SHUT_WR);
		while (receive(sp, sp->fd, 0) == (ssize_t)sizeof(struct spawn_report))
			;
		lose_everything(sp);
	}
	sbx_cleanup_fd(&sp->fd);
	if (sp->pid > 0)
		waitpid(sp->pid, NULL, 0);
	cgroup_close(&sp->group);
	pthread_mutex_destroy(&sp->lock);
	free(sp->buf);
	free(sp);
}
