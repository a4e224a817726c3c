/*
 * Each report is an object posted to the loop. A job that gets a deadly signal reports its end by itself,
 * as a real one does; a second end is dropped.
 */
#include "tests/lib/fake_sandbox.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/util/utf8.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/strv.h"

enum kind { STARTED, OUTPUT, ENDED };

struct report {
	struct fake_job *job;
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

static struct fake_sandbox *fake_of(struct sbx_sandbox *sb)
{
	return (struct fake_sandbox *)sb;
}

static void play(void *data)
{
	struct report *r = data;
	struct fake_job *job = r->job;

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
		atomic_fetch_sub(&job->sandbox->live, 1);
		job->caller->events->ended(job->caller, &r->exit);
		break;
	}
	free(r);
}

static struct report *report(struct fake_job *job, enum kind kind, const void *buf, size_t len)
{
	struct report *r = must(calloc(1, sizeof(*r) + len + 1));

	r->job = job;
	r->kind = kind;
	r->len = len;
	if (len)
		memcpy(r->data, buf, len);
	return r;
}

void fake_job_started(struct fake_job *job)
{
	sbx_loop_post(job->sandbox->loop, play, report(job, STARTED, NULL, 0));
}

void fake_job_output(struct fake_job *job, int stream, const void *buf, size_t len)
{
	struct report *r = report(job, OUTPUT, buf, len);

	r->stream = stream;
	sbx_loop_post(job->sandbox->loop, play, r);
}

void fake_job_ended(struct fake_job *job, enum sbx_end end, int code)
{
	struct report *r = report(job, ENDED, NULL, 0);

	r->exit = (struct sbx_exit){
	        .end = end, .code = code, .user_us = 3000, .sys_us = 1000, .max_rss_kb = 2100};
	if (end == SBX_END_FAILED)
		sbx_fail(&r->exit.error, code, "the fake refuses: %s", strerror(code));
	sbx_loop_post(job->sandbox->loop, play, r);
}

const char *fake_job_env(const struct fake_job *job, const char *key)
{
	size_t n = strlen(key);

	for (size_t i = 0; job->env[i]; i++)
		if (strncmp(job->env[i], key, n) == 0 && job->env[i][n] == '=')
			return job->env[i] + n + 1;
	return NULL;
}

/* ---- the backend's side ---- */

static void job_signal(struct sbx_job *caller, int sig)
{
	struct fake_job *job = caller->part;
	uint64_t bit = (uint64_t)1 << (sig - 1);

	if (!job)
		return;
	atomic_fetch_or(&job->signals, bit);
	if (sig == SIGKILL || !(job->sandbox->survives & bit))
		fake_job_ended(job, SBX_END_SIGNALED, sig);
}

static void job_free(struct fake_job *job)
{
	sbx_strv_free(job->argv);
	sbx_strv_free(job->env);
	free(job->program);
	free(job->cwd);
	if (job->stdin_fd >= 0)
		close(job->stdin_fd);
	free(job);
}

static int sandbox_root(struct sbx_sandbox *sb)
{
	return fake_of(sb)->root;
}

static int sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *caller,
                        struct sbx_error *err)
{
	struct fake_sandbox *fake = fake_of(sb);
	struct fake_job *job;

	if (fake->refuse)
		return fake->refuse_text ? sbx_fail(err, -fake->refuse, "%s", fake->refuse_text)
		                         : fake->refuse;
	job = must(calloc(1, sizeof(*job)));
	job->caller = caller;
	caller->part = job;
	job->sandbox = fake;
	job->argv = must(sbx_strv_copy(spec->argv));
	job->env = must(sbx_strv_copy(spec->env));
	job->program = spec->program ? must(strdup(spec->program)) : NULL;
	job->cwd = must(strdup(spec->cwd));
	job->stdin_fd = spec->stdin_fd < 0 ? -1 : fcntl(spec->stdin_fd, F_DUPFD_CLOEXEC, 0);
	job->limits = spec->limits;
	atomic_fetch_add(&fake->live, 1);
	atomic_fetch_add(&fake->execs, 1);
	job->older = atomic_exchange(&fake->last, job);
	if (fake->on_exec)
		fake->on_exec(job, fake->on_exec_data);
	return 0;
}

static int sandbox_nothing(struct sbx_sandbox *sb, struct sbx_error *err)
{
	(void)sb;
	(void)err;
	return 0;
}

static void sandbox_close(struct sbx_sandbox *sb)
{
	struct fake_sandbox *fake = fake_of(sb);
	struct fake_job *job = atomic_load(&fake->last);

	assert(!atomic_load(&fake->live));
	while (job) {
		struct fake_job *older = job->older;

		job_free(job);
		job = older;
	}
	close(fake->root);
	free(sb->name);
	free(sb->id);
	free(sb->workdir);
	free(fake);
}

static const struct sbx_command_impl commands = {.exec = sandbox_exec, .signal = job_signal};

static const struct sbx_sandbox_impl sandbox_impl = {
        .root = sandbox_root,
        .retire = sandbox_nothing,
        .remove = sandbox_nothing,
        .close = sandbox_close,
        .commands = &commands,
};

struct fake_sandbox *fake_sandbox_create(struct sbx_loop *loop, const char *root)
{
	struct fake_sandbox *fake = must(calloc(1, sizeof(*fake)));

	fake->base.impl = &sandbox_impl;
	fake->base.tree.owner = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	fake->base.name = must(strdup("fake"));
	fake->base.id = must(strdup("fake-1"));
	fake->base.workdir = must(strdup(root));
	fake->loop = loop;
	fake->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fake->root < 0)
		abort();
	return fake;
}

void fake_sandbox_destroy(struct fake_sandbox *fake)
{
	sandbox_close(&fake->base);
}
