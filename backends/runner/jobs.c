/*
 * Jobs, from the request to their end. A start becomes a message to the spawner on any thread; all
 * that follows happens on the loop thread.
 *
 * The pipes of a job are watched only once its STARTED was read and nothing after it in the
 * same batch: a short command is over by then and costs no epoll calls.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/seccomp.h"
#include "backends/runner/runner_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"

#define BATCH       64
#define DRAIN_MS    100 /* that output is awaited past the leader's end */
#define LOOK_MS     20  /* between looks at a pipe that cannot be watched, */
#define TURNS       16  /* of reading at each */
#define NAME_SERVER 53
#define LOST_MS     1000 /* that the death of an init is awaited when the spawner is dead */

/* --- the table of jobs ----------------------------------------------------------------------- */

/* Where the job NUMBER hangs in the table. Under the lock. */
static struct job **slot_of(struct sbx_spawner *sp, uint64_t number)
{
	struct job **slot = &sp->table[number % SPAWNER_BUCKETS];

	while (*slot && (*slot)->number != number)
		slot = &(*slot)->next;
	return slot;
}

static struct job *find_job(struct sbx_spawner *sp, uint64_t number)
{
	struct job *job;

	pthread_mutex_lock(&sp->lock);
	job = *slot_of(sp, number);
	pthread_mutex_unlock(&sp->lock);
	return job;
}

static void forget_job(struct job *job)
{
	struct sbx_spawner *sp = job->sp;
	struct job **slot;

	pthread_mutex_lock(&sp->lock);
	slot = slot_of(sp, job->number);
	assert(*slot == job);
	*slot = job->next;
	pthread_mutex_unlock(&sp->lock);
	for (slot = &sp->fresh; *slot; slot = &(*slot)->fresh) {
		if (*slot == job) {
			*slot = job->fresh;
			break;
		}
	}
}

bool sbx_spawner_runs(struct sbx_spawner *sp, const char *id)
{
	bool runs = false;

	pthread_mutex_lock(&sp->lock);
	for (int i = 0; i < SPAWNER_BUCKETS && !runs; i++)
		for (struct job *job = sp->table[i]; job && !runs; job = job->next)
			runs = strcmp(job->sandbox, id) == 0;
	pthread_mutex_unlock(&sp->lock);
	return runs;
}

/* --- the life of a job, on the loop thread ---------------------------------------------------- */

static void job_signal(struct job *job, int sig)
{
	struct spawn_command cmd = {.verb = SPAWN_SIGNAL, .job = job->number, .sig = sig};

	if (job->ended)
		return;
	pthread_mutex_lock(&job->sp->lock);
	spawner_post(job->sp, &cmd, sizeof(cmd), NULL, 0);
	pthread_mutex_unlock(&job->sp->lock);
}

void sbx_spawner_signal(struct sbx_job *caller, int sig)
{
	if (caller->part)
		job_signal(caller->part, sig);
}

static void job_free(struct job *job)
{
	assert(job->watch[0].fd < 0 && job->watch[1].fd < 0);
	assert(!job->drain.due_ns && !job->look.due_ns);
	for (int i = 0; i < 2; i++)
		sbx_cleanup_fd(&job->pipe[i]);
	free(job->cwd);
	free(job->sandbox);
	free(job);
}

static void tell_started(struct job *job)
{
	if (job->started)
		return;
	job->started = true;
	if (job->caller->events->started)
		job->caller->events->started(job->caller);
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
	ssize_t n =
	        read(job->pipe[i], sp->buf, limit < SPAWNER_BUF_SIZE ? limit : SPAWNER_BUF_SIZE);

	if (n > 0) {
		tell_started(job);
		job->caller->events->output(job->caller, i + 1, sp->buf, (size_t)n);
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

/* Frees JOB. */
static void finish(struct job *job, struct sbx_exit *exit)
{
	struct sbx_job *caller = job->caller;

	assert(!job->ended);
	job->ended = true;
	forget_job(job);
	sbx_loop_timer_cancel(job->sp->loop, &job->drain);
	sbx_loop_timer_cancel(job->sp->loop, &job->look);
	for (int i = 0; i < 2; i++)
		drain_pipe(job, i);
	job_free(job);
	caller->part = NULL;
	caller->events->ended(caller, exit);
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

void spawner_fail_job(struct sbx_spawner *sp, uint64_t number, int err)
{
	const bool busy = err == ETOOMANYREFS || err == EMFILE || err == ENFILE;
	const struct spawn_report r = {.stage = SPAWN_AT_FORK, .code = busy ? EAGAIN : err};
	struct job *job = find_job(sp, number);

	if (job)
		finish_failed(job, &r);
}

static bool pipes_at_end(const struct job *job)
{
	return job->pipe[0] < 0 && job->pipe[1] < 0;
}

/* sbx_timer.fn: the output of a job whose leader ended was awaited for long enough. */
static void drained(struct sbx_timer *t)
{
	job_signal(t->data, SIGKILL);
}

/* Returns whether there may be more at once. */
static bool take_output(struct job *job, int i)
{
	ssize_t n = read_some(job, i, SPAWNER_BUF_SIZE);

	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return n > 0;
	close_pipe(job, i);
	if (job->leader_ended && pipes_at_end(job))
		job_signal(job, SIGKILL);
	return false;
}

/* sbx_watch.fn of a job's pipe. */
static void on_output(struct sbx_watch *w, uint32_t events)
{
	struct job *job = w->data;

	(void)events;
	take_output(job, w == &job->watch[1]);
}

static bool watch_pipe(struct job *job, int i)
{
	if (job->pipe[i] < 0 || job->watch[i].fd >= 0)
		return true;
	job->watch[i].fd = job->pipe[i];
	if (sbx_loop_watch(job->sp->loop, &job->watch[i], EPOLLIN) == 0)
		return true;
	job->watch[i].fd = -1;
	return false;
}

/* The kernel has so many watches for a user, and a command of his may have taken them. */
static void watch_pipes(struct job *job)
{
	const bool out = watch_pipe(job, 0), err = watch_pipe(job, 1);

	if (!out || !err)
		sbx_loop_timer_set(job->sp->loop, &job->look, LOOK_MS);
}

/* sbx_timer.fn: reads pipes that cannot be watched. */
static void look_at_pipes(struct sbx_timer *t)
{
	struct job *job = t->data;

	for (int i = 0; i < 2; i++)
		for (int turns = 0; turns < TURNS && job->pipe[i] >= 0; turns++)
			if (job->watch[i].fd >= 0 || !take_output(job, i))
				break;
	watch_pipes(job);
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
		job_signal(job, SIGKILL);
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

	if (!job->caller->events->denied)
		return;
	snprintf(program, sizeof(program), "%.*s", SPAWN_NAME, r->refused.program);
	denial.program = *program ? program : base_name(job->program);
	if (r->code >= 0) {
		denial.class = filter_describe(r->code, call, sizeof(call));
		denial.call = call;
	}
	tell_started(job);
	job->caller->events->denied(job->caller, &denial);
}

static void on_tried(struct job *job, const struct spawn_report *r)
{
	char host[INET6_ADDRSTRLEN] = "", to[INET6_ADDRSTRLEN + 16], program[SPAWN_NAME];
	const bool v6 = r->refused.family == AF_INET6;
	struct sbx_denial denial = {.call = to, .network = true};

	if (!job->caller->events->denied)
		return;
	snprintf(program, sizeof(program), "%.*s", SPAWN_NAME, r->refused.program);
	denial.program = *program ? program : base_name(job->program);
	denial.lookup = r->refused.port == NAME_SERVER;
	if (r->refused.family && inet_ntop(r->refused.family, r->refused.to, host, sizeof(host)))
		snprintf(to, sizeof(to), "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
		         r->refused.port);
	else
		snprintf(to, sizeof(to), "the network");
	tell_started(job);
	job->caller->events->denied(job->caller, &denial);
}

static void on_listening(struct job *job, int *fd)
{
	if (*fd >= 0)
		sbx_sandbox_listening(job->caller->sandbox, sbx_steal_fd(fd));
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
	else if (r->event == SPAWN_TRIED)
		on_tried(job, r);
	else if (r->event == SPAWN_GONE)
		on_gone(job, *r);
}

static void watch_fresh(struct sbx_spawner *sp)
{
	while (sp->fresh) {
		struct job *job = sp->fresh;

		sp->fresh = job->fresh;
		job->fresh = NULL;
		watch_pipes(job);
	}
}

static struct job *any_job(struct sbx_spawner *sp)
{
	struct job *job = NULL;

	pthread_mutex_lock(&sp->lock);
	for (int i = 0; i < SPAWNER_BUCKETS && !job; i++)
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
void spawner_lose_everything(struct sbx_spawner *sp)
{
	struct job *job;
	int fd;

	sbx_loop_unwatch(sp->loop, &sp->watch);
	pthread_mutex_lock(&sp->lock);
	fd = sp->fd;
	sp->fd = -1;
	spawner_drop_queue(sp);
	pthread_mutex_unlock(&sp->lock);
	close(fd);
	while ((job = any_job(sp))) {
		struct sbx_exit exit = {.end = SBX_END_LOST};

		await_init(job->init);
		sbx_fail(&exit.error, ESRCH, "the process that runs commands has died");
		finish(job, &exit);
	}
}

ssize_t spawner_receive(struct sbx_spawner *sp, int sock, int flags)
{
	struct spawn_report r;
	_cleanup_fd_ int fd = -1;
	const ssize_t n = sbx_receive_fds(sock, &r, sizeof(r), &fd, 1, flags);

	if (n == (ssize_t)sizeof(r))
		on_report(sp, &r, &fd);
	return n;
}

void spawner_on_socket(struct sbx_watch *w, uint32_t events)
{
	struct sbx_spawner *sp = w->data;
	ssize_t n = 0;

	for (int i = 0; i < BATCH; i++) {
		n = spawner_receive(sp, w->fd, MSG_DONTWAIT);
		if (n != (ssize_t)sizeof(struct spawn_report))
			break;
	}
	if (n == 0 || (n < 0 && n != -EAGAIN)) {
		spawner_lose_everything(sp);
		return;
	}
	watch_fresh(sp);
	if (events & EPOLLOUT)
		spawner_flush(sp);
}

static struct job *job_new(struct sbx_spawner *sp, const struct sbx_place *place,
                           const struct sbx_exec *spec, struct sbx_job *caller)
{
	const char *name = spec->program ? spec->program : spec->argv[0];
	size_t len = strlen(name) + 1;
	struct job *job = calloc(1, sizeof(*job) + len);

	if (!job)
		return NULL;
	job->caller = caller;
	job->sp = sp;
	memcpy(job->program, name, len);
	job->drain = (struct sbx_timer){.fn = drained, .data = job};
	job->look = (struct sbx_timer){.fn = look_at_pipes, .data = job};
	for (int i = 0; i < 2; i++) {
		job->pipe[i] = -1;
		job->watch[i] = (struct sbx_watch){.fd = -1, .fn = on_output, .data = job};
	}
	job->cwd = strdup(spec->cwd ? spec->cwd : "");
	job->sandbox = strdup(place->id);
	if (!job->cwd || !job->sandbox) {
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
	slot = &sp->table[job->number % SPAWNER_BUCKETS];
	job->next = *slot;
	*slot = job;
	r = spawner_post(sp, message, sizeof(*cmd) + inlined, fds, n_fds);
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
		r = spawn_memfd(payload, cmd.payload, &memfd);
	if (r < 0)
		return r;
	if (place->overlaid)
		cmd.flags |= SPAWN_OVERLAID;
	if (place->as_source)
		cmd.flags |= SPAWN_AS_SOURCE;
	if (place->on_disk)
		cmd.flags |= SPAWN_ON_DISK;
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
	case -EPIPE:
	case -ECONNRESET:
		return sbx_fail(err, ESRCH, "the process that runs commands has died");
	case -ENOMEM:
		return sbx_no_memory(err);
	case -ETOOMANYREFS:
	case -EMFILE:
	case -ENFILE:
		return sbx_fail(err, EAGAIN, "too many open files for another command");
	default:
		return sbx_fail(err, -r, "cannot start a command: %s", strerror(-r));
	}
}

int sbx_spawner_exec(struct sbx_spawner *sp, const struct sbx_place *place,
                     const struct sbx_exec *spec, struct sbx_job *caller, struct sbx_error *err)
{
	struct job *job;
	int r;

	if (!sp->loop)
		return sbx_fail(err, ESRCH, "the process that runs commands is not attached");
	job = job_new(sp, place, spec, caller);
	if (!job)
		return exec_failed(-ENOMEM, err);
	/* Before the first event can come. */
	caller->part = job;
	r = send_job(sp, job, place, spec);
	if (r < 0) {
		caller->part = NULL;
		job_free(job);
		return exec_failed(r, err);
	}
	return 0;
}
