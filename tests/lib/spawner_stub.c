#include "tests/lib/spawner_stub.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void job_signal(struct sbx_job *job, int sig)
{
	(void)job;
	(void)sig;
}

static void job_destroy(struct sbx_job *job)
{
	free(job);
}

static const struct sbx_job_impl job_impl = {.signal = job_signal, .destroy = job_destroy};

static void remember(struct sbx_spawner *sp, const struct sbx_place *place,
                     const struct sbx_exec *spec)
{
	int n = 0;

	sp->calls++;
	snprintf(sp->id, sizeof(sp->id), "%s", place->id);
	snprintf(sp->workdir, sizeof(sp->workdir), "%s", place->workdir);
	snprintf(sp->view, sizeof(sp->view), "%s", place->view);
	memset(sp->ro, 0, sizeof(sp->ro));
	memset(sp->rw, 0, sizeof(sp->rw));
	memset(sp->env, 0, sizeof(sp->env));
	for (const char *const *p = place->ro; p && *p && n < 3; p++)
		snprintf(sp->ro[n++], sizeof(sp->ro[0]), "%s", *p);
	n = 0;
	for (const char *const *p = place->rw; p && *p && n < 3; p++)
		snprintf(sp->rw[n++], sizeof(sp->rw[0]), "%s", *p);
	n = 0;
	for (char *const *e = spec->env; e && *e && n < 31; e++)
		snprintf(sp->env[n++], sizeof(sp->env[0]), "%s", *e);
}

__attribute__((weak)) bool sbx_spawner_shows_tmp(const struct sbx_spawner *sp)
{
	(void)sp;
	return true;
}

__attribute__((weak)) int sbx_spawner_exec(struct sbx_spawner *sp, const struct sbx_place *place,
                                           const struct sbx_exec *spec,
                                           const struct sbx_exec_events *events, void *data,
                                           struct sbx_job **ret, struct sbx_error *err)
{
	struct sbx_job *job;

	remember(sp, place, spec);
	if (sp->answer)
		return sbx_fail(err, -sp->answer, "the stub was told to fail");
	job = malloc(sizeof(*job));
	job->impl = &job_impl;
	*ret = job;
	events->started(data);
	events->output(data, 1, "out", 3);
	events->ended(data, &(struct sbx_exit){.end = SBX_END_EXITED});
	return 0;
}

__attribute__((weak)) void sbx_spawner_forget(struct sbx_spawner *sp, const char *id)
{
	(void)id;
	sp->forgotten++;
}

__attribute__((weak)) void sbx_spawner_policy(struct sbx_spawner *sp, struct json_object *obj)
{
	(void)sp;
	json_object_object_add(obj, "isolation", json_object_new_string("stub"));
}
