/*
 * Each report is an object posted to the loop. A job that gets a deadly signal reports its end by
 * itself, as a real one does; a second end is dropped.
 */
#include "tests/lib/played.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/strv.h"

enum kind { STARTED, OUTPUT, ENDED };

struct report {
	struct played_job *job;
	enum kind kind;
	struct sbx_exit exit;
	int stream;
	size_t len;
	char data[];
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void play(void *data)
{
	struct report *r = data;
	struct played_job *job = r->job;

	if (job->ending) {
		free(r);
		return;
	}
	switch (r->kind) {
	case STARTED:
		job->caller->events->started(job->caller);
		break;
	case OUTPUT:
		job->caller->events->output(job->caller, r->stream, r->data, r->len);
		break;
	case ENDED:
		job->ending = true;
		job->caller->part = NULL;
		atomic_fetch_sub(&job->by->live, 1);
		job->caller->events->ended(job->caller, &r->exit);
		break;
	}
	free(r);
}

static struct report *report(struct played_job *job, enum kind kind, const void *buf, size_t len)
{
	struct report *r = must(calloc(1, sizeof(*r) + len + 1));

	r->job = job;
	r->kind = kind;
	r->len = len;
	if (len)
		memcpy(r->data, buf, len);
	return r;
}

void played_started(struct played_job *job)
{
	sbx_loop_post(job->by->loop, play, report(job, STARTED, NULL, 0));
}

void played_output(struct played_job *job, int stream, const void *buf, size_t len)
{
	struct report *r = report(job, OUTPUT, buf, len);

	r->stream = stream;
	sbx_loop_post(job->by->loop, play, r);
}

void played_ended(struct played_job *job, enum sbx_end end, int code)
{
	struct report *r = report(job, ENDED, NULL, 0);

	r->exit = (struct sbx_exit){
	        .end = end, .code = code, .user_us = 3000, .sys_us = 1000, .max_rss_kb = 2100};
	if (end == SBX_END_FAILED)
		sbx_fail(&r->exit.error, code, "%s: %s", job->argv[0], strerror(code));
	sbx_loop_post(job->by->loop, play, r);
}

const char *played_env(const struct played_job *job, const char *key)
{
	size_t n = strlen(key);

	for (size_t i = 0; job->env[i]; i++)
		if (strncmp(job->env[i], key, n) == 0 && job->env[i][n] == '=')
			return job->env[i] + n + 1;
	return NULL;
}

/* ---- in the place of the runner's ---- */

void sbx_spawner_signal(struct sbx_job *caller, int sig)
{
	struct played_job *job = caller->part;
	uint64_t bit = (uint64_t)1 << (sig - 1);

	if (!job)
		return;
	atomic_fetch_or(&job->signals, bit);
	if (!(job->by->survives & bit))
		played_ended(job, SBX_END_SIGNALED, sig);
}

int sbx_spawner_exec(struct sbx_spawner *sp, const struct sbx_place *place,
                     const struct sbx_exec *spec, struct sbx_job *caller, struct sbx_error *err)
{
	struct played *p = sbx_container_of(sp, struct played, base);
	struct played_job *job;

	if (p->refuse)
		return p->refuse_text ? sbx_fail(err, -p->refuse, "%s", p->refuse_text) : p->refuse;
	job = must(calloc(1, sizeof(*job)));
	job->caller = caller;
	caller->part = job;
	job->by = p;
	job->argv = must(sbx_strv_copy(spec->argv));
	job->env = must(sbx_strv_copy(spec->env));
	job->program = spec->program ? must(strdup(spec->program)) : NULL;
	job->cwd = must(strdup(spec->cwd));
	job->workdir = must(strdup(place->workdir));
	job->stdin_fd = spec->stdin_fd < 0 ? -1 : fcntl(spec->stdin_fd, F_DUPFD_CLOEXEC, 0);
	job->timeout_ms = spec->timeout_ms;
	job->limits = spec->limits;
	atomic_fetch_add(&p->live, 1);
	atomic_fetch_add(&p->execs, 1);
	job->older = atomic_exchange(&p->last, job);
	if (p->on_exec)
		p->on_exec(job);
	return 0;
}

void played_init(struct played *p, struct sbx_loop *loop)
{
	*p = (struct played){.loop = loop};
}

static void job_free(struct played_job *job)
{
	sbx_strv_free(job->argv);
	sbx_strv_free(job->env);
	free(job->program);
	free(job->cwd);
	free(job->workdir);
	if (job->stdin_fd >= 0)
		close(job->stdin_fd);
	free(job);
}

void played_finish(struct played *p)
{
	struct played_job *job = atomic_load(&p->last);

	assert(!atomic_load(&p->live));
	while (job) {
		struct played_job *older = job->older;

		job_free(job);
		job = older;
	}
}
