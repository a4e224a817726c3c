/*
 * The table: which jobs a sandbox has, by number and name, and the defaults of those to come. A
 * list in order of age is enough: it holds a few hundred, and what is looked for is mostly at its
 * end.
 */
#include "fs/job/job_table.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/job/plan.h"
#include "fs/job/wait.h"
#include "fs/util/utf8.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/identity.h"
#include "sandboxfs/strv.h"

/* ---- records ---- */

void sbx_asked_release(struct sbx_asked *asked)
{
	sbx_strv_free(asked->argv);
	sbx_strv_free(asked->env);
	free(asked->cwd);
	free(asked->dir);
	free(asked->stdin_data);
	*asked = (struct sbx_asked){0};
}

struct sbx_jobrec *sbx_jobrec_new(struct sbx_jobs *jobs, const char *name)
{
	struct sbx_jobrec *rec = calloc(1, sizeof(*rec));

	if (!rec)
		return NULL;
	atomic_init(&rec->refs, 1);
	rec->jobs = sbx_jobs_ref(jobs);
	rec->named = name != NULL;
	if (name)
		snprintf(rec->name, sizeof(rec->name), "%s", name);
	rec->waiters_tail = &rec->waiters;
	rec->time_ns = sbx_real_ns();
	rec->in.watch.fd = -1;
	rec->in.deferred_tail = &rec->in.deferred;
	return rec;
}

struct sbx_jobrec *sbx_job_ref(struct sbx_jobrec *rec)
{
	assert(atomic_load(&rec->refs) > 0);
	atomic_fetch_add(&rec->refs, 1);
	return rec;
}

void sbx_job_unref(struct sbx_jobrec *rec)
{
	if (!rec || atomic_fetch_sub(&rec->refs, 1) > 1)
		return;
	assert(!rec->listed && !rec->run);
	assert(!rec->waiters && !rec->timer.due_ns);
	assert(!rec->in.deferred && rec->in.watch.fd < 0);
	sbx_strv_free(rec->changed);
	free(rec->hint);
	sbx_asked_release(&rec->asked);
	free(rec->in.buf);
	sbx_output_unref(rec->out[0]);
	sbx_output_unref(rec->out[1]);
	sbx_jobs_unref(rec->jobs);
	free(rec);
}

bool sbx_jobrec_active(const struct sbx_jobrec *rec)
{
	return rec->state == SBX_JOB_STARTING || rec->state == SBX_JOB_RUNNING;
}

/* ---- the list ---- */

void sbx_jobs_link(struct sbx_jobs *jobs, struct sbx_jobrec *rec)
{
	assert(!rec->listed && rec->jobs == jobs);
	sbx_job_ref(rec);
	rec->listed = true;
	rec->next = NULL;
	rec->prev = jobs->last;
	*(jobs->last ? &jobs->last->next : &jobs->first) = rec;
	jobs->last = rec;
}

void sbx_jobs_unlink(struct sbx_jobs *jobs, struct sbx_jobrec *rec)
{
	assert(rec->listed);
	assert(rec->prev ? rec->prev->next == rec : jobs->first == rec);
	assert(rec->next ? rec->next->prev == rec : jobs->last == rec);
	*(rec->prev ? &rec->prev->next : &jobs->first) = rec->next;
	*(rec->next ? &rec->next->prev : &jobs->last) = rec->prev;
	rec->prev = rec->next = NULL;
	rec->listed = false;
	sbx_job_unref(rec);
}

static bool was_started(const struct sbx_jobrec *rec)
{
	return rec->number && rec->state != SBX_JOB_PREPARED;
}

struct sbx_jobrec *sbx_jobs_last_exec(struct sbx_jobs *jobs)
{
	struct sbx_jobrec *rec = jobs->last;

	while (rec && !(was_started(rec) && rec->kind == SBX_JOB_EXEC))
		rec = rec->prev;
	return rec;
}

static struct sbx_jobrec *last_started(struct sbx_jobs *jobs)
{
	struct sbx_jobrec *rec = jobs->last;

	while (rec && !was_started(rec))
		rec = rec->prev;
	return rec;
}

static struct sbx_jobrec *by_number(struct sbx_jobs *jobs, const char *name)
{
	char text[24];

	for (struct sbx_jobrec *rec = jobs->last; rec; rec = rec->prev) {
		snprintf(text, sizeof(text), "%" PRIu64, rec->number);
		if (rec->number && strcmp(text, name) == 0)
			return rec;
	}
	return NULL;
}

struct sbx_jobrec *sbx_jobs_by_name(struct sbx_jobs *jobs, const char *name)
{
	struct sbx_jobrec *rec = jobs->last;

	if (name[0] >= '0' && name[0] <= '9')
		return by_number(jobs, name);
	while (rec && strcmp(rec->name, name) != 0)
		rec = rec->prev;
	return rec;
}

struct sbx_jobrec *sbx_job_find(struct sbx_jobs *jobs, const char *name)
{
	struct sbx_jobrec *rec;

	pthread_mutex_lock(&jobs->lock);
	rec = strcmp(name, "last") == 0 ? last_started(jobs) : sbx_jobs_by_name(jobs, name);
	if (rec)
		sbx_job_ref(rec);
	pthread_mutex_unlock(&jobs->lock);
	return rec;
}

struct sbx_jobrec *sbx_job_last_exec(struct sbx_jobs *jobs)
{
	struct sbx_jobrec *rec;

	pthread_mutex_lock(&jobs->lock);
	rec = sbx_jobs_last_exec(jobs);
	if (rec)
		sbx_job_ref(rec);
	pthread_mutex_unlock(&jobs->lock);
	return rec;
}

/* References to all records; NULL-terminated; NULL: no memory. */
static struct sbx_jobrec **snapshot(struct sbx_jobs *jobs)
{
	struct sbx_jobrec **all;
	size_t n = 0;

	pthread_mutex_lock(&jobs->lock);
	for (struct sbx_jobrec *rec = jobs->first; rec; rec = rec->next)
		n++;
	all = calloc(n + 1, sizeof(struct sbx_jobrec *));
	n = 0;
	for (struct sbx_jobrec *rec = jobs->first; all && rec; rec = rec->next)
		all[n++] = sbx_job_ref(rec);
	pthread_mutex_unlock(&jobs->lock);
	return all;
}

void sbx_jobs_walk(struct sbx_jobs *jobs, void (*fn)(struct sbx_jobrec *rec, void *data),
                   void *data)
{
	struct sbx_jobrec **all = snapshot(jobs);

	for (size_t i = 0; all && all[i]; i++) {
		fn(all[i], data);
		sbx_job_unref(all[i]);
	}
	free(all);
}

unsigned sbx_jobs_running(struct sbx_jobs *jobs)
{
	unsigned n;

	pthread_mutex_lock(&jobs->lock);
	n = jobs->running;
	pthread_mutex_unlock(&jobs->lock);
	return n;
}

/* ---- preparing and removing ---- */

int sbx_job_prepare(struct sbx_jobs *jobs, const char *name, struct sbx_jobrec **ret,
                    struct sbx_error *err)
{
	struct sbx_jobrec *rec;
	bool known;
	int r = sbx_job_id_check(name, err);

	if (r < 0)
		return r;
	rec = sbx_jobrec_new(jobs, name);
	if (!rec)
		return sbx_no_memory(err);
	rec->prepared = true;
	pthread_mutex_lock(&jobs->lock);
	known = sbx_jobs_by_name(jobs, name);
	if (!known)
		sbx_jobs_link(jobs, rec);
	pthread_mutex_unlock(&jobs->lock);
	if (known) {
		sbx_job_unref(rec);
		return sbx_fail(err, EEXIST, "there is a job \"%s\" already", name);
	}
	*ret = rec;
	return 0;
}

/* Takes REC out of the list; who waits for the start of a job that was merely prepared is told. */
static void forget(struct sbx_jobs *jobs, struct sbx_jobrec *rec)
{
	assert(!rec->run);
	if (rec->state == SBX_JOB_ENDED && !rec->named)
		jobs->ended--;
	if (rec->state == SBX_JOB_FAILED && !rec->named)
		jobs->failed--;
	if (rec->state == SBX_JOB_PREPARED) {
		rec->state = SBX_JOB_FAILED;
		sbx_fail(&rec->start_error, ENOENT, "the job was removed before it was started");
	}
	sbx_jobs_unlink(jobs, rec);
}

int sbx_job_remove(struct sbx_jobs *jobs, const char *name, struct sbx_error *err)
{
	struct sbx_jobrec *rec;
	bool active;

	pthread_mutex_lock(&jobs->lock);
	rec = sbx_jobs_by_name(jobs, name);
	active = rec && sbx_jobrec_active(rec);
	if (rec && !active) {
		sbx_job_ref(rec);
		forget(jobs, rec);
	}
	pthread_mutex_unlock(&jobs->lock);
	if (!rec)
		return sbx_fail(err, ENOENT, "there is no job \"%s\"", name);
	if (active)
		return sbx_fail(err, EBUSY, "job \"%s\" is running", name);
	sbx_job_tell_soon(rec);
	sbx_job_unref(rec);
	return 0;
}

/* ---- the table itself ---- */

struct sbx_jobs *sbx_jobs_ref(struct sbx_jobs *jobs)
{
	assert(atomic_load(&jobs->refs) > 0);
	atomic_fetch_add(&jobs->refs, 1);
	return jobs;
}

void sbx_jobs_unref(struct sbx_jobs *jobs)
{
	if (atomic_fetch_sub(&jobs->refs, 1) > 1)
		return;
	assert(!jobs->first && !jobs->live);
	assert(!jobs->done);
	if (jobs->spill_dir)
		rmdir(jobs->spill_dir);
	sbx_job_defaults_release(&jobs->defaults);
	sbx_allow_destroy(jobs->allow);
	pthread_mutex_destroy(&jobs->turn);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs->spill_dir);
	free(jobs->user);
	free(jobs->view);
	free(jobs);
}

static char *user_name(const struct sbx_settings *settings)
{
	struct sbx_identity who = {.uid = getuid()};
	struct passwd pw, *found = NULL;
	char buf[4096];
	char *text = NULL;

	sbx_identity_find(settings, &who, NULL);
	if (getpwuid_r(who.uid, &pw, buf, sizeof(buf), &found) == 0 && found)
		return strdup(found->pw_name);
	return asprintf(&text, "%u", (unsigned)who.uid) < 0 ? NULL : text;
}

/*
 * Removes the output that a killed daemon has left there, because its jobs are unknown to this
 * one.
 */
static void clear_spill_dir(const char *path)
{
	_cleanup_dir_ DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
}

static int fill(struct sbx_jobs *jobs, const struct sbx_jobs_config *config)
{
	jobs->settings = config->settings;
	jobs->loop = config->loop;
	jobs->sandbox = config->sandbox;
	jobs->busy = config->busy;
	jobs->left = config->left;
	jobs->before_end = config->before_end;
	jobs->changed = config->changed;
	jobs->denied = config->denied;
	jobs->root = config->root;
	jobs->data = config->data;
	jobs->grace_ms = SBX_JOB_GRACE_MS;
	jobs->view = strdup(config->view);
	jobs->spill_dir = strdup(config->spill_dir);
	jobs->user = user_name(jobs->settings);
	jobs->defaults.cwd = strdup("");
	jobs->defaults.timeout_ms = config->settings->operation_timeout_ms;
	jobs->defaults.limits = config->settings->limits;
	if (!jobs->view || !jobs->spill_dir || !jobs->user || !jobs->defaults.cwd)
		return -ENOMEM;
	clear_spill_dir(jobs->spill_dir);
	/* Else it is a matter of words. */
	return sbx_is_away(jobs->sandbox) ? 0 : sbx_allow_create(config->settings, &jobs->allow);
}

int sbx_jobs_create(const struct sbx_jobs_config *config, struct sbx_jobs **ret)
{
	struct sbx_jobs *jobs = calloc(1, sizeof(*jobs));
	int r;

	if (!jobs)
		return -ENOMEM;
	atomic_init(&jobs->refs, 1);
	pthread_mutex_init(&jobs->turn, NULL);
	pthread_mutex_init(&jobs->lock, NULL);
	r = fill(jobs, config);
	if (r < 0) {
		sbx_jobs_unref(jobs);
		return r;
	}
	*ret = jobs;
	return 0;
}

void sbx_jobs_destroy(struct sbx_jobs *jobs)
{
	if (!jobs)
		return;
	pthread_mutex_lock(&jobs->lock);
	assert(!jobs->live && !jobs->running);
	assert(!jobs->held);
	jobs->stopping = true;
	while (jobs->first) {
		struct sbx_jobrec *rec = sbx_job_ref(jobs->first);

		forget(jobs, rec);
		pthread_mutex_unlock(&jobs->lock);
		sbx_job_tell(rec);
		sbx_job_unref(rec);
		pthread_mutex_lock(&jobs->lock);
	}
	pthread_mutex_unlock(&jobs->lock);
	sbx_jobs_unref(jobs);
}

void sbx_jobs_set_view(struct sbx_jobs *jobs, const char *view)
{
	char *copy = strdup(view);
	char *old;

	if (!copy)
		abort();
	pthread_mutex_lock(&jobs->lock);
	old = jobs->view;
	jobs->view = copy;
	pthread_mutex_unlock(&jobs->lock);
	free(old);
}

/* ---- defaults ---- */

void sbx_job_defaults_release(struct sbx_job_defaults *d)
{
	free(d->cwd);
	sbx_strv_free(d->env);
	*d = (struct sbx_job_defaults){0};
}

int sbx_jobs_get_defaults(struct sbx_jobs *jobs, struct sbx_job_defaults *ret)
{
	struct sbx_job_defaults d;
	bool ok;

	pthread_mutex_lock(&jobs->lock);
	d = jobs->defaults;
	d.cwd = strdup(d.cwd);
	d.env = sbx_strv_copy(d.env);
	ok = d.cwd && (d.env || !jobs->defaults.env);
	pthread_mutex_unlock(&jobs->lock);
	if (!ok) {
		sbx_job_defaults_release(&d);
		return -ENOMEM;
	}
	*ret = d;
	return 0;
}

int sbx_jobs_set_cwd(struct sbx_jobs *jobs, const char *cwd, struct sbx_error *err)
{
	char *fresh, *old;
	int r = sbx_cwd_resolve(jobs, cwd, &fresh, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&jobs->lock);
	old = jobs->defaults.cwd;
	jobs->defaults.cwd = fresh;
	pthread_mutex_unlock(&jobs->lock);
	free(old);
	return 0;
}

static int check_env(char *const *env, struct sbx_error *err)
{
	for (size_t i = 0; env && env[i]; i++) {
		size_t key = strcspn(env[i], "=");
		int r = sbx_env_key_check(env[i], key, err);

		if (r < 0)
			return r;
		if (!env[i][key])
			return sbx_fail(err, EINVAL, "\"%s\" is not KEY=VALUE", env[i]);
	}
	return 0;
}

int sbx_jobs_set_env(struct sbx_jobs *jobs, char *const *env, struct sbx_error *err)
{
	char **fresh, **old;
	int r = check_env(env, err);

	if (r < 0)
		return r;
	fresh = sbx_strv_copy(env);
	if (env && !fresh)
		return sbx_no_memory(err);
	pthread_mutex_lock(&jobs->lock);
	old = jobs->defaults.env;
	jobs->defaults.env = fresh;
	pthread_mutex_unlock(&jobs->lock);
	sbx_strv_free(old);
	return 0;
}

void sbx_jobs_set_timeout(struct sbx_jobs *jobs, uint64_t timeout_ms)
{
	pthread_mutex_lock(&jobs->lock);
	jobs->defaults.timeout_ms = timeout_ms;
	pthread_mutex_unlock(&jobs->lock);
}

void sbx_jobs_set_limits(struct sbx_jobs *jobs, const struct sbx_limits *limits)
{
	pthread_mutex_lock(&jobs->lock);
	jobs->defaults.limits = sbx_limits_clamp(limits, &jobs->settings->limits);
	pthread_mutex_unlock(&jobs->lock);
}
