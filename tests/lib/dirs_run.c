/*
 * Runs and puts of the provider dirs. Each goes from a thread of the pool, where it is looked up
 * what becomes of it, over a timer of the loop, which is its latency, to the pool again, where it
 * is done, and back. While it is in the pool it cannot end, because what it works on is the
 * caller's.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/pool.h"
#include "tests/lib/dirs_impl.h"

#define CHUNK     ((size_t)64 * 1024)
#define WAKING_MS 500

struct call {
	struct dirs_machine *machine;
	struct dirs *dirs;
	struct sbx_machine_run *run; /* or: */
	struct sbx_machine_put *put;
	uint64_t deadline_ms;
	atomic_uint refs;     /* the call's own, and of each cancel on its way */
	atomic_bool given_up; /* to be seen in the pool */
	bool in_pool, ended;  /* the loop's, as is: */
	int over;             /* what ends it when it comes back from the pool, positive */
	int code;             /* of what the pool did, positive */
	struct sbx_error err; /* of CODE */
	struct dirs_fault fault;
	struct sbx_timer latency, deadline;
	struct sbx_watch process, output;
	pid_t pid; /* 0: none, or it was waited for */
	char *out;
	size_t len, cap;
};

static void unref(struct call *c)
{
	if (atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	free(c->out);
	free(c);
}

/* ---- the end ---- */

/* As when a connection is lost: what the shell has started in the background goes on. */
static void end_process(struct call *c)
{
	int fd = sbx_loop_unwatch(c->dirs->loop, &c->output);

	if (fd >= 0)
		close(fd);
	fd = sbx_loop_unwatch(c->dirs->loop, &c->process);
	if (c->pid) {
		kill(c->pid, SIGKILL);
		waitid(P_PIDFD, (id_t)fd, &(siginfo_t){0}, WEXITED);
		c->pid = 0;
	}
	if (fd >= 0)
		close(fd);
}

static void call_end(struct call *c, int code)
{
	const int r = -code;

	c->ended = true;
	sbx_loop_timer_cancel(c->dirs->loop, &c->latency);
	sbx_loop_timer_cancel(c->dirs->loop, &c->deadline);
	end_process(c);
	if (code && !c->err.code)
		sbx_fail(&c->err, code, "%s",
		         code == EINTR ? "cancelled" : "the server does not answer");
	atomic_fetch_sub(&c->machine->runs, 1);
	if (c->run)
		c->run->not_run = sbx_machine_not_run(r);
	if (c->run)
		c->run->done(c->run, r, code ? NULL : sbx_steal_ptr(&c->out), code ? 0 : c->len,
		             &c->err);
	else
		c->put->done(c->put, r, &c->err);
	unref(c);
}

/* Ends the call by CODE, or has it end so when it comes back from the pool. */
static void stop(struct call *c, int code)
{
	if (c->ended)
		return;
	atomic_store(&c->given_up, true);
	if (!c->in_pool) {
		call_end(c, code);
	} else if (!c->over) {
		c->over = code;
	}
}

/* Back from the pool: whether it goes on. If not, it is no more. */
static bool goes_on(struct call *c)
{
	int code = c->over;

	c->in_pool = false;
	if (code)
		c->err = SBX_ERROR_INIT;
	else
		code = c->code ? c->code : atomic_load(&c->given_up) ? EINTR : 0;
	if (code)
		call_end(c, code);
	return !code;
}

static void on_deadline(struct sbx_timer *t)
{
	stop(t->data, ETIMEDOUT);
}

static void on_cancel(void *data)
{
	struct call *c = data;

	stop(c, EINTR);
	unref(c);
}

static void cancel(struct call *c)
{
	atomic_fetch_add(&c->refs, 1);
	atomic_store(&c->given_up, true);
	sbx_loop_post(c->dirs->loop, on_cancel, c);
}

/* ---- what a script says ---- */

static void answer(struct call *c)
{
	switch (c->fault.kind) {
	case DIRS_STALL:
		end_process(c);
		return;
	case DIRS_LOST:
		sbx_fail(&c->err, EREMOTEIO, "the server's answer was cut");
		call_end(c, EREMOTEIO);
		return;
	case DIRS_CUT:
		c->len /= 2;
		break;
	default:
		break;
	}
	call_end(c, 0);
}

static void on_swept(void *data)
{
	struct call *c = data;

	if (goes_on(c))
		answer(c);
}

static void sweep(void *data)
{
	struct call *c = data;

	dirs_machine_kill(c->dirs, c->machine->name);
	sbx_loop_post(c->dirs->loop, on_swept, c);
}

/* The script has ended, and its output is whole. */
static void script_ended(struct call *c)
{
	if (c->dirs->impl.can & SBX_PROVIDER_DETACHES) {
		answer(c);
		return;
	}
	c->in_pool = true;
	sbx_pool_submit(c->dirs->pool, sweep, c);
}

static void on_exit_of_process(struct sbx_watch *w, uint32_t events)
{
	struct call *c = w->data;

	(void)events;
	waitid(P_PIDFD, (id_t)w->fd, &(siginfo_t){0}, WEXITED);
	c->pid = 0;
	close(sbx_loop_unwatch(c->dirs->loop, w));
	if (c->output.fd < 0)
		script_ended(c);
}

static bool make_room(struct call *c)
{
	const size_t cap = c->cap ? 2 * c->cap : CHUNK;
	char *out;

	if (c->len < c->cap)
		return true;
	out = realloc(c->out, cap);
	if (!out)
		return false;
	c->out = out;
	c->cap = cap;
	return true;
}

/* As most services do, it waits until all who have the output have closed it. */
static void on_output(struct sbx_watch *w, uint32_t events)
{
	struct call *c = w->data;
	ssize_t n;

	(void)events;
	if (!make_room(c)) {
		stop(c, ENOMEM);
		return;
	}
	n = read(w->fd, c->out + c->len, c->cap - c->len);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		c->len += (size_t)n;
		if (c->len <= c->run->answer_max)
			return;
		sbx_fail(&c->err, EMSGSIZE, "the answer is longer than %zu bytes",
		         c->run->answer_max);
		stop(c, EMSGSIZE);
		return;
	}
	close(sbx_loop_unwatch(c->dirs->loop, w));
	if (!c->pid)
		script_ended(c);
}

/* ---- in the pool ---- */

static int start_script(struct call *c)
{
	const char *filter = c->fault.kind == DIRS_HOSTILE ? c->fault.arg : NULL;
	pid_t pid = dirs_machine_spawn(c->machine, c->run->script, c->run->script_len, filter,
	                               &c->output.fd);

	if (pid < 0)
		return sbx_fail(&c->err, EREMOTEIO, "the shell cannot be started: %s",
		                strerror(-pid));
	c->pid = pid;
	c->process.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (c->process.fd < 0)
		abort();
	return 0;
}

static int copy_file(struct call *c, const struct sbx_http_bytes *from, int to)
{
	_cleanup_free_ char *buf = malloc(CHUNK);
	uint64_t at = 0;
	int r = buf ? 0 : -ENOMEM;

	if (from->data)
		return sbx_write_all(to, from->data, from->size);
	while (r == 0 && at < from->size) {
		const size_t want = from->size - at < CHUNK ? (size_t)(from->size - at) : CHUNK;
		const ssize_t n = pread(from->fd, buf, want, (off_t)(from->offset + at));

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		if (atomic_load(&c->given_up))
			return -EINTR;
		r = sbx_write_all(to, buf, (size_t)n);
		at += (uint64_t)n;
	}
	return r;
}

static int write_file(struct call *c, int dir, const struct sbx_machine_file *file)
{
	char name[16];
	_cleanup_fd_ int fd = -1;

	snprintf(name, sizeof(name), "%u", file->number);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : copy_file(c, &file->bytes, fd);
}

static int write_files(struct call *c)
{
	const struct sbx_machine_put *put = c->put;
	const size_t n = c->fault.kind == DIRS_CUT ? put->n / 2 : put->n;
	_cleanup_fd_ int room = sbx_dir_make(AT_FDCWD, c->machine->base.room, 0700);
	_cleanup_fd_ int in = room < 0 ? room : sbx_dir_make(room, "in", 0700);
	int r = in < 0 ? in : 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = atomic_load(&c->given_up) ? -EINTR : write_file(c, in, &put->files[i]);
	if (r < 0)
		return sbx_fail(&c->err, r == -EINTR || r == -ENOSPC ? -r : EREMOTEIO,
		                "a file cannot be put: %s", strerror(-r));
	if (c->fault.kind == DIRS_CUT || c->fault.kind == DIRS_LOST)
		return sbx_fail(&c->err, EREMOTEIO, "the server's answer was cut");
	return 0;
}

/* A call that comes to a machine which is not simply there. */
static int wake(struct call *c)
{
	struct dirs *d = c->dirs;
	char reason[256];

	if (c->fault.kind == DIRS_VANISH)
		dirs_machine_remove(d, c->machine->name, NULL);
	if (c->fault.kind == DIRS_ASLEEP)
		dirs_machine_sleep(d, c->machine->name);
	switch (dirs_state(d, c->machine->name, reason, NULL)) {
	case SBX_MACHINE_UP:
		return 0;
	case SBX_MACHINE_ASLEEP:
		if (!(d->impl.can & SBX_PROVIDER_SLEEPS))
			return sbx_fail(&c->err, ESTALE, "the machine has stopped");
		c->fault.latency_ms += dirs_fault_number(&c->fault, WAKING_MS);
		return dirs_set_state(d, c->machine->name, "up\n");
	case SBX_MACHINE_CHANGING:
		return sbx_fail(&c->err, EBUSY, "the machine is being made");
	case SBX_MACHINE_FAILED:
		return sbx_fail(&c->err, EREMOTEIO, "%s", reason);
	default:
		return sbx_fail(&c->err, ESTALE, "the machine is gone");
	}
}

/* What a call meets before anything is done. */
static int meet(struct call *c)
{
	uint64_t bytes = c->run ? c->run->script_len : 0;
	int r;

	for (size_t i = 0; c->put && i < c->put->n; i++)
		bytes += c->put->files[i].bytes.size;
	r = dirs_request(c->dirs, c->machine->name, c->run ? "run" : "put",
	                 c->run ? c->run->op : c->put->op, bytes, &c->fault, &c->err);
	if (r < 0)
		return r;
	if (c->fault.kind == DIRS_BUSY)
		return sbx_fail(&c->err, EAGAIN, "the server is asked too often");
	if (c->fault.kind == DIRS_BROKEN)
		return sbx_fail(&c->err, EREMOTEIO, "the server has failed (500)");
	if (c->fault.kind == DIRS_BLACKHOLE)
		return 0;
	if (!(c->dirs->impl.can & SBX_PROVIDER_PARALLEL) && atomic_load(&c->machine->runs) > 1)
		return sbx_fail(&c->err, EBUSY, "the machine does something else");
	return wake(c);
}

/* ---- from step to step ---- */

static void on_done(void *data)
{
	struct call *c = data;
	struct sbx_loop *loop = c->dirs->loop;

	if (c->pid && (sbx_loop_watch(loop, &c->process, EPOLLIN) < 0 ||
	               sbx_loop_watch(loop, &c->output, EPOLLIN) < 0))
		abort();
	if (goes_on(c) && c->put && c->fault.kind != DIRS_STALL)
		call_end(c, 0);
}

static void do_it(void *data)
{
	struct call *c = data;
	const int r = c->run ? start_script(c) : write_files(c);

	c->code = -r;
	sbx_loop_post(c->dirs->loop, on_done, c);
}

static void on_latency(struct sbx_timer *t)
{
	struct call *c = t->data;

	if (c->fault.kind == DIRS_BLACKHOLE)
		return;
	c->in_pool = true;
	sbx_pool_submit(c->dirs->pool, do_it, c);
}

static void on_met(void *data)
{
	struct call *c = data;

	if (!goes_on(c))
		return;
	sbx_loop_timer_set(c->dirs->loop, &c->deadline, c->deadline_ms);
	if (c->fault.latency_ms)
		sbx_loop_timer_set(c->dirs->loop, &c->latency, c->fault.latency_ms);
	else
		on_latency(&c->latency);
}

static void meet_it(void *data)
{
	struct call *c = data;

	c->code = -meet(c);
	sbx_loop_post(c->dirs->loop, on_met, c);
}

static struct call *begin(struct sbx_machine *base, uint64_t deadline_ms)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->machine = dirs_machine_of(base);
	c->dirs = c->machine->dirs;
	c->deadline_ms = deadline_ms;
	c->refs = 1;
	c->in_pool = true;
	c->latency = (struct sbx_timer){.fn = on_latency, .data = c};
	c->deadline = (struct sbx_timer){.fn = on_deadline, .data = c};
	c->process = (struct sbx_watch){.fd = -1, .fn = on_exit_of_process, .data = c};
	c->output = (struct sbx_watch){.fd = -1, .fn = on_output, .data = c};
	atomic_fetch_add(&c->machine->runs, 1);
	return c;
}

void dirs_run(struct sbx_machine *m, struct sbx_machine_run *run)
{
	struct call *c = begin(m, run->deadline_ms);

	c->run = run;
	run->part = c;
	sbx_pool_submit(c->dirs->pool, meet_it, c);
}

void dirs_cancel_run(struct sbx_machine *m, struct sbx_machine_run *run)
{
	(void)m;
	cancel(run->part);
}

void dirs_put(struct sbx_machine *m, struct sbx_machine_put *put)
{
	struct call *c = begin(m, put->deadline_ms);

	c->put = put;
	put->part = c;
	sbx_pool_submit(c->dirs->pool, meet_it, c);
}

void dirs_cancel_put(struct sbx_machine *m, struct sbx_machine_put *put)
{
	(void)m;
	cancel(put->part);
}
