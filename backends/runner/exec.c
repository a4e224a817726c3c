/* From a request to a message to the spawner, on any thread. */
#include "backends/runner/runner_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

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
	job->drain = (struct sbx_timer){.fn = spawner_drained, .data = job};
	job->look = (struct sbx_timer){.fn = spawner_look, .data = job};
	for (int i = 0; i < 2; i++) {
		job->pipe[i] = -1;
		job->watch[i] = (struct sbx_watch){.fd = -1, .fn = spawner_on_output, .data = job};
	}
	job->cwd = strdup(spec->cwd ? spec->cwd : "");
	job->sandbox = strdup(place->id);
	if (!job->cwd || !job->sandbox) {
		spawner_job_free(job);
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
	if (place->layered)
		cmd.flags |= SPAWN_LAYERED;
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
		spawner_job_free(job);
		return exec_failed(r, err);
	}
	return 0;
}
