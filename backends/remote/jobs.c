/* The states of jobs. A job is made on any thread, and all that follows happens on the loop. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/jobs_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define LEASE_S    900
#define NUMBERS    1000000u /* of files that are put for jobs, and as many behind it */
#define PREFIX_MAX 48

int remote_jobs_create(const struct remote_jobs_config *config, struct remote_jobs **ret)
{
	struct remote_jobs *j = calloc(1, sizeof(*j));

	assert(strlen(config->prefix) <= PREFIX_MAX);
	if (!j)
		return -ENOMEM;
	j->config = *config;
	if (!j->config.lease_s)
		j->config.lease_s = LEASE_S;
	j->prefix = strdup(config->prefix);
	if (!j->prefix) {
		free(j);
		return -ENOMEM;
	}
	atomic_init(&j->refs, 1);
	remote_works_init(&j->kills);
	j->last = &j->first;
	j->last_taking = &j->taking;
	j->pause = (struct sbx_timer){.fn = jobs_pause_over, .data = j};
	*ret = j;
	return 0;
}

static void free_jobs(struct remote_jobs *j)
{
	assert(!j->first && !j->taking && !j->lagging && !j->polling && !j->pause.due_ns);
	remote_text_release(&j->drops.ended);
	remote_text_release(&j->drops.lost);
	remote_works_finish(&j->kills);
	free(j->prefix);
	free(j);
}

void jobs_ref(struct remote_jobs *j)
{
	atomic_fetch_add(&j->refs, 1);
}

/*
 * [loop] The owner may destroy J, from any thread, once it was told, or where there is nothing to
 * tell. So all that is read of J is read before it is let go of.
 */
void jobs_unref(struct remote_jobs *j)
{
	const bool tells = j->failed.code && !j->idle;
	const unsigned refs = atomic_fetch_sub(&j->refs, 1);

	if (refs == 1) {
		free_jobs(j);
	} else if (tells && refs == 2) {
		j->idle = true;
		if (j->config.idle)
			j->config.idle(j->config.data);
	}
}

void remote_jobs_destroy(struct remote_jobs *j)
{
	if (j && atomic_fetch_sub(&j->refs, 1) == 1)
		free_jobs(j);
}

/* ---- one job ---- */

struct job *job_ref(struct job *job)
{
	job->refs++;
	return job;
}

void job_unref(struct job *job)
{
	struct remote_jobs *j = job->jobs;

	assert(job->refs > 0);
	if (--job->refs)
		return;
	assert(!job->caller);
	job_words_release(&job->words);
	free(job);
	jobs_unref(j);
}

static void remove_job(struct job *job)
{
	struct remote_jobs *j = job->jobs;
	struct job **at = &j->first;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	if (!job->next)
		j->last = at;
}

/*
 * Where a machine does one thing at a time it could not be asked before the command's end, and what
 * the command changes comes with that: until then what is here is right.
 */
static void set_busy(struct remote_jobs *j, bool busy)
{
	remote_tree_busy(j->config.tree, busy && j->parallel);
	remote_sync_busy(j->config.sync, busy);
}

void job_count(struct job *job)
{
	job->counted = true;
	if (job->jobs->busy++ == 0)
		set_busy(job->jobs, true);
}

static void uncount(struct job *job)
{
	if (job->counted && --job->jobs->busy == 0)
		set_busy(job->jobs, false);
}

void job_tell_end(struct job *job)
{
	struct sbx_job *caller = sbx_steal_ptr(&job->caller);
	const struct sbx_exit exit = job->exit;

	assert(job->state == JOB_ENDING);
	remove_job(job);
	uncount(job);
	caller->part = NULL;
	caller->events->ended(caller, &exit);
	job_unref(job);
}

static void tell_end_posted(void *data)
{
	job_tell_end(data);
}

void job_end_soon(struct job *job, enum sbx_end end, int code, const char *text)
{
	assert(job->caller && job->state != JOB_ENDING);
	/* What it has done until then nobody has told. */
	if (end == SBX_END_LOST)
		remote_tree_distrust(job->jobs->config.tree);
	job->exit = (struct sbx_exit){.end = end, .code = end == SBX_END_LOST ? 0 : code};
	if (*text)
		sbx_fail(&job->exit.error, code > 0 && end != SBX_END_SIGNALED ? code : EREMOTEIO,
		         "%s", text);
	job->state = JOB_ENDING;
	sbx_loop_post(job->jobs->config.loop, tell_end_posted, job);
}

bool job_signal_ends(int sig)
{
	const int harmless[] = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
	                        SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(harmless); i++)
		if (sig == harmless[i])
			return false;
	return true;
}

bool remote_jobs_take(unsigned can, int sig)
{
	return can & (SBX_PROVIDER_DETACHES | SBX_PROVIDER_PARALLEL) || job_signal_ends(sig);
}

/* The second would wait for as long as the first runs, without a word. */
bool remote_jobs_alone(unsigned can)
{
	return !(can & (SBX_PROVIDER_DETACHES | SBX_PROVIDER_PARALLEL));
}

bool job_is_killed(const struct job *job, int *sig)
{
	for (*sig = 1; *sig <= 64; ++*sig)
		if (job->signals >> (*sig - 1) & 1 && job_signal_ends(*sig))
			return true;
	return false;
}

/* ---- the beginning ---- */

static void enter(void *data)
{
	struct job *job = data;
	struct remote_jobs *j = job->jobs;
	int sig;

	job->next = NULL;
	*j->last = job;
	j->last = &job->next;
	job->entered = true;
	if (job_is_killed(job, &sig))
		job_end_soon(job, SBX_END_SIGNALED, sig, "");
	else if (j->failed.code)
		job_end_soon(job, SBX_END_FAILED, j->failed.code, j->failed.text);
	else if (j->link)
		job_begin(job);
}

int remote_jobs_exec(struct remote_jobs *j, const struct sbx_exec *spec, struct sbx_job *caller,
                     struct sbx_error *err)
{
	struct job *job = calloc(1, sizeof(*job));
	const unsigned long long number = atomic_fetch_add(&j->number, 1) + 1;
	int r;

	if (!job)
		return sbx_no_memory(err);
	r = job_words_take(&job->words, spec, NUMBERS + (unsigned)(number % NUMBERS), err);
	if (r < 0) {
		job_words_release(&job->words);
		free(job);
		return r;
	}
	jobs_ref(j);
	job->jobs = j;
	job->caller = caller;
	job->begun_ns = sbx_now_ns();
	job->refs = 1;
	snprintf(job->id, sizeof(job->id), "%s-%010llu", j->prefix, number);
	caller->part = job;
	sbx_loop_post(j->config.loop, enter, job);
	return 0;
}

void remote_jobs_connect(struct remote_jobs *j, struct remote_link *link, unsigned can)
{
	struct job *next;

	assert(!j->link);
	j->link = link;
	j->detaches = can & SBX_PROVIDER_DETACHES;
	j->parallel = can & SBX_PROVIDER_PARALLEL;
	j->merges = can & SBX_PROVIDER_MERGES;
	assert(!j->merges || !j->detaches);
	j->heard_ns = sbx_now_ns();
	/* None is removed meanwhile, as ends are told later. */
	for (struct job *job = j->first; job; job = next) {
		next = job->next;
		if (job->state == JOB_WAITING)
			job_begin(job);
	}
}

/* ---- ends that are not its own ---- */

/* What becomes of JOB at the machine is not looked after any more. */
static void lose(struct job *job, int code, const char *text)
{
	if (job->state == JOB_STARTING)
		remote_call_cancel(&job->start);
	job_end_soon(job, SBX_END_LOST, code, text);
}

static void fail_job(struct job *job)
{
	const struct sbx_error *failed = &job->jobs->failed;

	if (job->state == JOB_WAITING)
		job_end_soon(job, SBX_END_FAILED, failed->code, failed->text);
	else if (job->state == JOB_BOARDING)
		remote_sync_leave(&job->ride);
	else if (job->state == JOB_STARTING)
		remote_call_cancel(&job->start); /* which knows whether it may have run */
	else if (job->state == JOB_RUNNING)
		lose(job, failed->code, failed->text);
}

static void look_whether_idle(void *data)
{
	jobs_unref(data);
}

void remote_jobs_fail(struct remote_jobs *j, int code, const char *text)
{
	struct job *next;

	sbx_fail(&j->failed, code, "%s", text);
	jobs_ref(j);
	for (struct job *job = j->first; job; job = next) {
		next = job->next;
		fail_job(job);
	}
	sbx_loop_timer_cancel(j->config.loop, &j->pause);
	jobs_unwant_lagging(j);
	if (j->polling)
		remote_call_cancel(&j->poll);
	sbx_loop_post(j->config.loop, look_whether_idle, j);
}

static const char abandoned_text[] = "nobody waits for the machine to end it";

static bool is_abandoned(const struct job *job)
{
	return atomic_load(&job->jobs->abandoned) && job->signals & UINT64_C(1) << (SIGKILL - 1) &&
	       (job->state == JOB_STARTING || job->state == JOB_RUNNING);
}

void remote_jobs_signal(struct sbx_job *caller, int sig)
{
	struct job *job = caller->part;
	int killed;

	if (!job || sig < 1 || sig > 64)
		return;
	job->signals |= UINT64_C(1) << (sig - 1);
	if (sig == SIGKILL && !job->killed_ns)
		job->killed_ns = sbx_now_ns();
	if (!job->entered || job->state == JOB_ENDING)
		return;
	if (job->state >= JOB_STARTING) {
		job_send_kill(job, sig);
		if (is_abandoned(job))
			lose(job, ECANCELED, abandoned_text);
	} else if (job_is_killed(job, &killed)) {
		if (job->state == JOB_BOARDING)
			remote_sync_leave(&job->ride);
		else
			job_end_soon(job, SBX_END_SIGNALED, killed, "");
	}
}

static void lose_abandoned(void *data)
{
	struct remote_jobs *j = data;
	struct job *next;

	for (struct job *job = j->first; job; job = next) {
		next = job->next;
		if (is_abandoned(job))
			lose(job, ECANCELED, abandoned_text);
	}
	jobs_unwant_lagging(j);
	jobs_unref(j);
}

void remote_jobs_await_kills(struct remote_jobs *j, const struct timespec *until)
{
	remote_works_wait_until(&j->kills, until);
}

int remote_jobs_sweep(struct remote_jobs *j, struct remote_text *lines)
{
	if (j->detaches)
		remote_text_printf(lines, "r_sweep %s\n", j->prefix);
	return lines->failed ? -ENOMEM : 0;
}

void remote_jobs_swept(struct remote_jobs *j, const struct remote_reply *reply)
{
	unsigned n = 0;
	char text[80];

	atomic_store(&j->swept, true);
	for (size_t at = 0; remote_reply_next(reply, &at, REMOTE_INFO, "killed");)
		n++;
	snprintf(text, sizeof(text), "%u commands of an earlier mount were ended", n);
	if (n)
		sbx_sandbox_told(j->config.sandbox, "recovery", text);
}

void remote_jobs_abandon(struct remote_jobs *j, bool abandon)
{
	atomic_store(&j->abandoned, abandon);
	if (!abandon)
		return;
	jobs_ref(j);
	sbx_loop_post(j->config.loop, lose_abandoned, j);
}
