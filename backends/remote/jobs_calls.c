/*
 * The calls about jobs: one that starts a job and waits a little for its end, one that polls for
 * all that run, one for each signal. What an answer says of the tree is taken over in the pool, one
 * answer after the other, and whoever has ended by it is told after that. Where the host has moved
 * or changed meanwhile what it speaks of, those are told after a flush that asks once more.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/deadline.h"
#include "backends/remote/jobs_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/pool.h"

#define START_MS    1000  /* that a start waits for the end; */
#define SPAWN_MS    50    /* where the client does not; and */
#define POLL_MS     20000 /* a poll for something new; but */
#define TURN_MS     1000  /* where other calls wait for it, or where no start was told yet */
#define DEADLINE_MS 30000 /* of a call, besides */
#define DAY_MS      (UINT64_C(24) * 3600 * 1000)
#define LATE_MS     10000 /* that a script takes longer than its job may, naps are long */
#define NEAR_MS     1000  /* that a signal for a timeout comes before it, as seen from here */
#define PAUSE_MS    100   /* behind a poll that brought output */
#define AGAIN_MS    1000  /* behind one that failed, twice as long each time, up to */
#define AGAIN_MAX   30000
#define BYTES_MAX   (UINT64_C(1024) * 1024) /* of a stream in an answer, */
#define ANSWER_MAX  (8 * BYTES_MAX)         /* of all of them, about */
#define ANSWER_ROOM (3 * ANSWER_MAX)        /* for what is no output */
#define BLOCK       512
#define LAG_ROUNDS  2 /* flushes that an end waits for */

/* ---- what an answer says of a job ---- */

static void tell_started(struct job *job)
{
	if (job->started)
		return;
	job->started = true;
	if (job->caller->events->started)
		job->caller->events->started(job->caller);
}

/* A frame may begin before what is wanted, but not behind it. */
static void take_output(struct job *job, const struct remote_frame *f)
{
	const int stream = f->kind == REMOTE_OUT ? 0 : 1;
	uint64_t *got = &job->got[stream];

	if (f->a > *got || f->len <= *got - f->a)
		return;
	tell_started(job);
	job->caller->events->output(job->caller, stream + 1, f->bytes + (*got - f->a),
	                            f->len - (size_t)(*got - f->a));
	*got = f->a + f->len;
}

static uint64_t ms_to_us(uint64_t ms)
{
	return ms < UINT64_MAX / 1000 ? ms * 1000 : 0;
}

/* A shell has an end by a signal as 128 and its number; one that was sent is believed. */
static void set_exit(struct job *job, const struct remote_frame *f)
{
	const int code = f->a <= 255 ? (int)f->a : 255, sig = code - 128;

	job->exit = (struct sbx_exit){.end = SBX_END_EXITED,
	                              .code = code,
	                              .user_us = ms_to_us(f->b),
	                              .sys_us = ms_to_us(f->c)};
	if (strcmp(f->bytes, "oom") == 0) {
		job->exit.end = SBX_END_OOM;
		job->exit.code = SIGKILL;
		return;
	}
	if (sig >= 1 && sig <= 64 && job->signals >> (sig - 1) & 1) {
		job->exit.end = SBX_END_SIGNALED;
		job->exit.code = sig;
	}
}

static void set_failed(struct job *job, const struct remote_frame *f)
{
	const int code = remote_reply_errno(f);
	const bool lost = job->started || code == ESTALE || !code;

	job->exit = (struct sbx_exit){.end = lost ? SBX_END_LOST : SBX_END_FAILED,
	                              .code = lost ? 0 : code};
	sbx_fail(&job->exit.error, lost ? ESTALE : code, "%.*s", f->len < 512 ? (int)f->len : 512,
	         f->bytes);
}

/* Whoever looks for an error looks at stderr. */
static void tell_merged(struct job *job, const struct remote_reply *reply)
{
	for (size_t i = 0; i < reply->n; i++) {
		const struct remote_frame *f = &reply->frames[i];

		if (f->kind == REMOTE_OUT && strcmp(f->word, job->id) == 0)
			job->caller->events->output(job->caller, 2, f->bytes, f->len);
	}
}

/* Of merged streams stdout was told as stderr as well where JOB has failed. */
static void tell_cut(struct job *job, const struct remote_frame *f, bool failed)
{
	const struct sbx_job_events *events = job->caller->events;
	const uint64_t n[2] = {f->a, job->jobs->merges && failed ? f->a : f->b};

	for (int i = 0; i < 2; i++)
		if (n[i] && events->discarded)
			events->discarded(job->caller, i + 1, n[i]);
}

/* Takes the frames of JOB. *NEWS: there was output. Returns whether it has ended. */
static bool take_frames(struct job *job, const struct remote_reply *reply, bool *news)
{
	const struct remote_frame *cut = NULL;

	for (size_t i = 0; i < reply->n; i++) {
		const struct remote_frame *f = &reply->frames[i];

		if (strcmp(f->word, job->id) != 0)
			continue;
		if (f->kind == REMOTE_STARTED)
			tell_started(job);
		if (f->kind == REMOTE_OUT || f->kind == REMOTE_ERR) {
			take_output(job, f);
			*news = true;
		}
		if (f->kind == REMOTE_CUT)
			cut = f;
		if (f->kind == REMOTE_END)
			set_exit(job, f);
		if (f->kind == REMOTE_END && job->jobs->merges && f->a != 0)
			tell_merged(job, reply);
		if (f->kind == REMOTE_END && cut)
			tell_cut(job, cut, f->a != 0);
		if (f->kind == REMOTE_FAILED)
			set_failed(job, f);
		if (f->kind == REMOTE_END || f->kind == REMOTE_FAILED)
			return true;
	}
	return false;
}

/* ---- what an answer says of the tree ---- */

static void begin_taking(struct remote_jobs *j);

static void tell_ended(struct taking *t)
{
	struct remote_jobs *j = t->jobs;
	struct job *next;

	for (struct job *job = t->ended; job; job = next) {
		next = job->with;
		job_tell_end(job);
	}
	free(t);
	jobs_unref(j);
}

static void wait_for_lagging(struct taking *t);

/* sbx_want.done: what could not be asked for is left to whoever looks next. */
static void lagging_done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct taking *t = sbx_container_of(w, struct taking, want);
	struct taking **at = &t->jobs->lagging;

	(void)err;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	if (code)
		tell_ended(t);
	else
		wait_for_lagging(t);
}

/* T was taken over. What its jobs have done may be told of by names that are others by now. */
static void wait_for_lagging(struct taking *t)
{
	struct remote_jobs *j = t->jobs;

	if (!t->ended || t->rounds == LAG_ROUNDS || atomic_load(&j->abandoned) || j->failed.code ||
	    !remote_tree_lags(j->config.tree)) {
		tell_ended(t);
		return;
	}
	t->rounds++;
	t->want = (struct sbx_want){.path = "", .done = lagging_done};
	t->next = j->lagging;
	j->lagging = t;
	remote_sync_flush(j->config.sync, &t->want);
}

void jobs_unwant_lagging(struct remote_jobs *j)
{
	struct taking *next;

	for (struct taking *t = j->lagging; t; t = next) {
		next = t->next;
		remote_sync_unwant(j->config.sync, &t->want);
	}
}

/* [loop] */
static void taken(void *data)
{
	struct taking *t = data;
	struct remote_jobs *j = t->jobs;

	jobs_ref(j);
	assert(j->taking == t);
	j->taking = t->next;
	if (!j->taking)
		j->last_taking = &j->taking;
	if (t->altered)
		sbx_sandbox_altered(j->config.sandbox);
	remote_reply_release(&t->reply);
	wait_for_lagging(t);
	begin_taking(j);
	jobs_unref(j);
}

/* [pool] The job has ended as it has, also where the copy cannot be changed: that the tree tells
 * of, and asks again. */
static void take(void *data)
{
	struct taking *t = data;
	struct sbx_loop *loop = t->jobs->config.loop;

	remote_tree_take(t->jobs->config.tree, &t->reply, t->seen, true, &t->altered, NULL);
	sbx_loop_post(loop, taken, t);
}

static void begin_taking(struct remote_jobs *j)
{
	if (j->taking)
		sbx_pool_submit(j->config.pool, take, j->taking);
}

/* REPLY is stolen; the jobs of the list ENDED are told their end after it. */
static void take_over(struct remote_jobs *j, struct remote_reply *reply, uint64_t seen,
                      struct job *ended)
{
	struct taking *t = calloc(1, sizeof(*t));
	const bool first = !j->taking;

	if (!t)
		abort();
	jobs_ref(j);
	*t = (struct taking){.jobs = j, .reply = *reply, .seen = seen, .ended = ended};
	*reply = (struct remote_reply){0};
	*j->last_taking = t;
	j->last_taking = &t->next;
	if (first)
		begin_taking(j);
}

/* The machine may drop what it has of JOB. */
static void reap(struct job *job)
{
	remote_text_word(&job->jobs->drops.ended, job->id);
}

static void add_kill(const struct job *job, int sig, struct remote_text *body)
{
	remote_text_add(body, "r_kill");
	remote_text_word(body, job->id);
	remote_text_printf(body, " %d\n", sig);
}

/* The same of one that nobody asks for any more, and that may have begun all the same. */
static void reap_lost(struct job *job)
{
	struct remote_text *lines = &job->jobs->drops.lost;

	add_kill(job, SIGKILL, lines);
	remote_text_add(lines, "r_reap");
	remote_text_word(lines, job->id);
	remote_text_add(lines, "\n");
}

/* All that may be dropped by now goes with BODY, and is in *SENT. */
static void add_reap(struct remote_jobs *j, struct remote_text *body, struct job_drops *sent)
{
	*sent = j->drops;
	j->drops = (struct job_drops){0};
	if (sent->ended.n) {
		remote_text_add(body, "r_reap");
		remote_text_add_n(body, sent->ended.at, sent->ended.n);
		remote_text_add(body, "\n");
	}
	if (sent->lost.n)
		remote_text_add_n(body, sent->lost.at, sent->lost.n);
}

/* The call with it has ended by CODE; whatever that is, it may be done twice. */
static void reap_answered(struct remote_jobs *j, struct job_drops *sent, int code)
{
	if (code && sent->ended.n)
		remote_text_add_n(&j->drops.ended, sent->ended.at, sent->ended.n);
	if (code && sent->lost.n)
		remote_text_add_n(&j->drops.lost, sent->lost.at, sent->lost.n);
	remote_text_release(&sent->ended);
	remote_text_release(&sent->lost);
}

/* ---- the start ---- */

static void poll_soon(struct remote_jobs *j);
static void send_kill(struct job *job, int sig, bool asks);

static const char silent_text[] =
        "the machine does not answer; the command is killed there as soon as it does";

/* The start has failed by CODE (negative) with ERR. */
static void start_failed(struct job *job, int code, const struct sbx_error *err)
{
	const struct sbx_error *failed = &job->jobs->failed;
	char text[sizeof(err->text)];
	int sig;

	if (failed->code)
		err = failed;
	if (!job->jobs->detaches && job_is_killed(job, &sig)) {
		job_end_soon(job, SBX_END_SIGNALED, sig, "");
		if (!job->start.maybe || !job->jobs->parallel)
			return;
		/* It may still run there. */
		remote_tree_distrust(job->jobs->config.tree);
		reap_lost(job);
		poll_soon(job->jobs);
	} else if (job->start.maybe) {
		send_kill(job, SIGKILL, true);
		reap_lost(job);
		/* By lose_killed. */
		if (code == -EINTR && !failed->code)
			job_end_soon(job, SBX_END_LOST, ETIMEDOUT, silent_text);
		else
			job_end_soon(job, SBX_END_LOST, -code, err->text);
	} else {
		snprintf(text, sizeof(text), "%.900s; the command has not run", err->text);
		job_end_soon(job, SBX_END_FAILED, failed->code ? failed->code : -code, text);
	}
}

static void start_answered(struct job *job, struct remote_reply *reply)
{
	struct remote_jobs *j = job->jobs;
	bool news = false, ended = false;

	j->heard_ns = sbx_now_ns();
	j->poll_failures = 0;
	if (job->sweeps)
		remote_jobs_swept(j, reply);
	sbx_loop_timer_cancel(j->config.loop, &j->pause);
	if (job->state == JOB_STARTING) {
		ended = take_frames(job, reply, &news);
		job->state = ended ? JOB_ENDING : JOB_RUNNING;
	}
	if (ended) {
		reap(job);
	} else if (job->state == JOB_RUNNING && !j->detaches) {
		reap_lost(job);
		job_end_soon(job, SBX_END_LOST, 0, "the machine has ended it with its call");
	}
	take_over(j, reply, job->seen, ended ? job : NULL);
	poll_soon(j);
}

static void start_done(struct remote_call *call, int code, struct remote_reply *reply,
                       const struct sbx_error *err)
{
	struct job *job = call->data;

	code = code > 0 ? -code : code;
	sbx_loop_timer_cancel(job->jobs->config.loop, &job->patience);
	if (job->carries)
		remote_sync_landed(&job->ride, code, reply);
	job_words_release(&job->words);
	reap_answered(job->jobs, &job->drops, code);
	if (!code)
		start_answered(job, reply);
	else if (job->state == JOB_STARTING)
		start_failed(job, code, err);
	job_unref(job);
}

/* How long a start waits there: where nothing goes on after a script, as long as the job takes. */
static uint64_t start_wait_ms(const struct job *job)
{
	const uint64_t time_ms = job->words.time_ms;

	if (job->jobs->detaches)
		return job->words.soon ? SPAWN_MS : START_MS;
	return time_ms && time_ms < DAY_MS ? time_ms + LATE_MS : DAY_MS;
}

static uint64_t ms_since(uint64_t ns)
{
	return (sbx_now_ns() - ns) / 1000000;
}

/* Where no signal can be sent the machine has to see to the timeout. What there was to wait for
 * before is a part of the time. */
static void add_timeout(const struct job *job, struct remote_text *body)
{
	const uint64_t timeout_ms = job->words.timeout_ms, spent_ms = ms_since(job->begun_ns);

	if (timeout_ms && !job->jobs->detaches && !job->jobs->parallel)
		remote_text_printf(
		        body, "R_TERM=%llu\n",
		        (unsigned long long)(timeout_ms > spent_ms ? timeout_ms - spent_ms : 1));
}

uint64_t remote_jobs_output(unsigned can)
{
	return can & SBX_PROVIDER_DETACHES ? 0 : ANSWER_MAX;
}

/* How much of each stream is kept there; 0: all. */
static uint64_t kept_of(const struct job *job)
{
	const uint64_t keep = job->words.keep, most = job->jobs->detaches ? 0 : ANSWER_MAX;

	return most && (!keep || keep > most) ? most : keep;
}

/* Where there is no second answer, the one has all that is kept, and what tells that it was cut; as
 * hexadecimal digits at worst. */
static void add_start(struct job *job, struct remote_text *body)
{
	const struct remote_jobs *j = job->jobs;
	const uint64_t keep = kept_of(job);
	if (j->merges)
		remote_text_add(body, "R_MERGE=1\n");
	add_timeout(job, body);
	remote_text_printf(body, "r_exec %llu %llu", (unsigned long long)start_wait_ms(job),
	                   (unsigned long long)(j->detaches ? BYTES_MAX : 2 * (keep + BLOCK)));
	remote_text_word(body, job->id);
	remote_text_printf(body, " %u %llu", j->detaches ? j->config.lease_s : 0,
	                   (unsigned long long)(keep ? keep / BLOCK + 1 : 0));
	remote_text_add_n(body, job->words.line.at, job->words.line.n);
	remote_text_add(body, "\n");
}

/* Who brings nothing lands at once, so that nobody waits for how long the start takes. */
static void add_ride(struct job *job, struct remote_text *body)
{
	const struct remote_reply none = {0};

	job->carries = job->ride.body.n != 0;
	if (job->carries) {
		remote_text_add_n(body, job->ride.body.at, job->ride.body.n);
		remote_text_add(body, "\n");
	} else {
		remote_sync_landed(&job->ride, 0, &none);
	}
}

static void send_start(struct job *job)
{
	struct remote_jobs *j = job->jobs;
	struct remote_call *call = &job->start;

	job->seen = remote_ride_seen(&job->ride);
	job->state = JOB_STARTING;
	job_count(job);
	*call = (struct remote_call){
	        .op = "exec",
	        .answer_max = j->detaches ? 0 : 4 * (size_t)kept_of(job) + ANSWER_ROOM,
	        .safe = j->detaches,
	        .does = true,
	        .held = !j->detaches,
	        .deadline_ms =
	                start_wait_ms(job) + remote_deadline(DEADLINE_MS) + job->ride.apply_ms,
	        .done = start_done,
	        .data = job};
	if (job->words.input.bytes.size) {
		call->files = &job->words.input;
		call->files_n = 1;
	}
	job->sweeps = !atomic_load(&j->swept);
	if (job->sweeps)
		remote_jobs_sweep(j, &call->body);
	add_ride(job, &call->body);
	add_reap(j, &call->body, &job->drops);
	add_start(job, &call->body);
	remote_tree_ask(j->config.tree, &call->body);
	remote_call_begin(j->link, call);
}

/* Why JOB, which was to be started, is not; false: it is. */
static bool end_before_start(struct job *job, int code, const struct sbx_error *err)
{
	const struct sbx_error *failed = &job->jobs->failed;
	int sig;

	if (job_is_killed(job, &sig))
		job_end_soon(job, SBX_END_SIGNALED, sig, "");
	else if (failed->code)
		job_end_soon(job, SBX_END_FAILED, failed->code, failed->text);
	else if (code)
		job_end_soon(job, SBX_END_FAILED, abs(code), err ? err->text : "");
	return job->state == JOB_ENDING;
}

/* remote_ride.ready */
static void on_ready(struct remote_ride *ride, int code, const struct sbx_error *err)
{
	struct job *job = sbx_container_of(ride, struct job, ride);

	if (!end_before_start(job, code, err)) {
		send_start(job);
		return;
	}
	if (!code)
		remote_sync_landed(ride, -EINTR, NULL);
	job_unref(job);
}

void job_begin(struct job *job)
{
	job->state = JOB_BOARDING;
	job->ride = (struct remote_ride){.ready = on_ready};
	remote_sync_board(job->jobs->config.sync, &job_ref(job)->ride);
}

/* ---- polls ---- */

/* *ALL_TOLD: of none that may run by now the start is still to be told. */
static unsigned count_running(const struct remote_jobs *j, bool *all_told)
{
	unsigned n = 0;

	*all_told = true;
	for (const struct job *job = j->first; job; job = job->next) {
		n += job->state == JOB_RUNNING;
		*all_told &=
		        job->state != JOB_STARTING && (job->state != JOB_RUNNING || job->started);
	}
	return n;
}

static void lose_all(struct remote_jobs *j, int code, const char *text)
{
	for (struct job *job = j->first; job; job = job->next)
		if (job->state == JOB_RUNNING) {
			reap_lost(job);
			job_end_soon(job, SBX_END_LOST, code, text);
		}
}

static void pause_before_poll(struct remote_jobs *j, uint64_t ms)
{
	if (!j->failed.code)
		sbx_loop_timer_set(j->config.loop, &j->pause, ms);
}

/*
 * A call has failed. Nobody waits for the end of a job that was killed for as long as a silent
 * machine may keep it: the lines that kill it go with every poll until one is answered.
 */
static void lose_killed(struct remote_jobs *j)
{
	const uint64_t now = sbx_now_ns();

	for (struct job *job = j->first; job; job = job->next) {
		const uint64_t since = job->killed_ns > j->heard_ns ? job->killed_ns : j->heard_ns;

		if (!job->killed_ns || now - since < remote_deadline(DEADLINE_MS) * 1000000)
			continue;
		/* Its call may be given much time, for what it brings. */
		if (job->state == JOB_STARTING)
			remote_call_cancel(&job->start);
		if (job->state != JOB_RUNNING)
			continue;
		reap_lost(job);
		job_end_soon(job, SBX_END_LOST, ETIMEDOUT, silent_text);
	}
}

static void poll_failed(struct remote_jobs *j, int code, const struct sbx_error *err)
{
	const uint64_t silent_s = (sbx_now_ns() - j->heard_ns) / 1000000000;
	const unsigned n = j->poll_failures < 8 ? j->poll_failures++ : 8;
	const uint64_t ms = (uint64_t)AGAIN_MS << n;

	if (code == -ESTALE) {
		lose_all(j, ESTALE, err->text);
		return;
	}
	lose_killed(j);
	if (silent_s < j->config.lease_s) {
		pause_before_poll(j, ms < AGAIN_MAX ? ms : AGAIN_MAX);
		return;
	}
	j->poll_failures = 0;
	lose_all(j, ETIMEDOUT, "the machine has not answered for as long as it lets a job run");
}

static void poll_answered(struct remote_jobs *j, struct remote_reply *reply)
{
	struct job *ended = NULL;
	bool news = false;

	j->heard_ns = sbx_now_ns();
	j->poll_failures = 0;
	for (struct job *job = j->first; job; job = job->next)
		if (job->state == JOB_RUNNING && take_frames(job, reply, &news)) {
			job->state = JOB_ENDING;
			reap(job);
			job->with = ended;
			ended = job;
		}
	take_over(j, reply, j->poll_seen, ended);
	if (news)
		pause_before_poll(j, PAUSE_MS);
	else
		poll_soon(j);
}

static void poll_done(struct remote_call *call, int code, struct remote_reply *reply,
                      const struct sbx_error *err)
{
	struct remote_jobs *j = call->data;

	j->polling = false;
	reap_answered(j, &j->poll_drops, code);
	for (struct job *job = j->first; job; job = job->next) {
		job->again |= code ? job->went : 0;
		job->went = 0;
	}
	if (code)
		poll_failed(j, code, err);
	else
		poll_answered(j, reply);
	jobs_unref(j);
}

/* Signals whose call has failed. */
static void add_kills(struct remote_jobs *j, struct remote_text *body)
{
	for (struct job *job = j->first; job; job = job->next) {
		for (int sig = 1; sig <= 64; sig++)
			if (job->again >> (sig - 1) & 1)
				add_kill(job, sig, body);
		job->went = job->again;
		job->again = 0;
	}
}

/* How far each job has been read. */
static void add_poll(struct remote_jobs *j, unsigned n, uint64_t wait_ms, struct remote_text *body)
{
	const uint64_t share = ANSWER_MAX / 2 / n;

	remote_text_printf(body, "r_poll %llu %llu", (unsigned long long)wait_ms,
	                   (unsigned long long)(share < BYTES_MAX ? share : BYTES_MAX));
	for (struct job *job = j->first; job; job = job->next)
		if (job->state == JOB_RUNNING) {
			remote_text_word(body, job->id);
			remote_text_printf(body, " %llu %llu", (unsigned long long)job->got[0],
			                   (unsigned long long)job->got[1]);
		}
	remote_text_add(body, "\n");
}

/* Whether there is anything to be killed, and the machine can be asked to. */
static bool has_kills(const struct remote_jobs *j)
{
	uint64_t again = 0;

	for (const struct job *job = j->first; job; job = job->next)
		again |= job->again;
	return (j->detaches || j->parallel) && (again || j->drops.lost.n);
}

static void begin_poll(struct remote_jobs *j)
{
	bool all_told;
	const unsigned n = count_running(j, &all_told);
	uint64_t wait_ms = all_told && j->parallel ? POLL_MS : TURN_MS;

	/* A poll counts as asking when it begins. */
	if (wait_ms > (uint64_t)j->config.lease_s * 1000 / 3)
		wait_ms = (uint64_t)j->config.lease_s * 1000 / 3;
	/* Where nobody is polled for, there may still be some to be killed. */
	if ((!n && !has_kills(j)) || j->failed.code)
		return;
	/* It was not asked before, and so was not silent. */
	if (!n && !j->poll_failures)
		j->heard_ns = sbx_now_ns();
	j->polling = true;
	j->poll_seen = j->config.seen(j->config.data);
	j->poll = (struct remote_call){.op = "poll",
	                               .safe = true,
	                               .does = true,
	                               .held = true,
	                               .deadline_ms = wait_ms + remote_deadline(DEADLINE_MS),
	                               .done = poll_done,
	                               .data = j};
	add_reap(j, &j->poll.body, &j->poll_drops);
	add_kills(j, &j->poll.body);
	if (n)
		add_poll(j, n, wait_ms, &j->poll.body);
	remote_tree_ask(j->config.tree, &j->poll.body);
	jobs_ref(j);
	remote_call_begin(j->link, &j->poll);
}

/*
 * Who was polled for meanwhile, was not if he came later: a start ends a poll that is under way.
 * The next one may begin before that start is told, and is short.
 */
static void poll_soon(struct remote_jobs *j)
{
	if (!j->polling && !j->pause.due_ns)
		begin_poll(j);
}

void jobs_pause_over(struct sbx_timer *t)
{
	struct remote_jobs *j = t->data;

	if (!j->polling)
		begin_poll(j);
}

/* ---- signals ---- */

struct killing {
	struct remote_call call;
	struct job *job;
	int sig;
	bool asks; /* what JOB, whose answer is lost, has done until then */
	uint64_t seen;
};

static uint64_t bit(int sig)
{
	return UINT64_C(1) << (sig - 1);
}

/*
 * The signals that stop or continue a job. The last of them counts, so that each is sent when the
 * call of the one before has ended. As in a kernel, what one undoes is not sent any more.
 */
static bool turns_it(int sig)
{
	return sig == SIGCONT || sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN ||
	       sig == SIGTTOU;
}

/* Whether SIG, such a signal, is sent to JOB now. */
static bool begin_turn(struct job *job, int sig)
{
	const uint64_t undone = sig == SIGCONT
	                                ? bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU)
	                                : bit(SIGCONT);

	job->again &= ~undone;
	job->went &= ~undone;
	job->turn = job->turning ? sig : 0;
	job->turning = true;
	return !job->turn;
}

static void end_turn(struct job *job)
{
	job->turning = false;
	if (job->turn && job->state == JOB_RUNNING)
		send_kill(job, job->turn, false);
}

static void kill_done(struct remote_call *call, int code, struct remote_reply *reply,
                      const struct sbx_error *err)
{
	struct killing *k = call->data;
	struct remote_jobs *j = k->job->jobs;

	(void)err;
	if (k->asks && code)
		remote_tree_distrust(j->config.tree);
	else if (k->asks)
		take_over(j, reply, k->seen, NULL);
	if (k->sig == SIGKILL)
		remote_works_end(&j->kills);
	if (code)
		k->job->again |= bit(k->sig);
	if (turns_it(k->sig))
		end_turn(k->job);
	if (code) {
		lose_killed(j);
		poll_soon(j);
	}
	job_unref(k->job);
	free(k);
}

/* Whether the machine ends JOB by SIG of itself, because its time is over: add_timeout. */
static bool ends_there(const struct job *job, int sig)
{
	const bool over =
	        job->words.timeout_ms && ms_since(job->begun_ns) + NEAR_MS >= job->words.timeout_ms;

	return over && (sig == SIGTERM || (sig == SIGKILL && job->signals & bit(SIGTERM)));
}

static void on_patience(struct sbx_timer *t)
{
	remote_call_cancel(&sbx_container_of(t, struct job, patience)->start);
}

/* The caller's SIGKILL for a timeout comes when the answer may be on its way, with all that was
 * done, so that it is waited for a little longer. */
static void end_call(struct job *job, int sig)
{
	if (!ends_there(job, sig)) {
		remote_call_cancel(&job->start);
	} else if (sig == SIGKILL && !job->patience.due_ns) {
		job->patience = (struct sbx_timer){.fn = on_patience};
		sbx_loop_timer_set(job->jobs->config.loop, &job->patience, LATE_MS);
	}
}

/* Where the script's end is the job's, the call is given up: what it did there is gone. */
static void send_kill(struct job *job, int sig, bool asks)
{
	struct remote_jobs *j = job->jobs;
	struct killing *k;

	if (!j->detaches && !j->parallel) {
		if (job->state == JOB_STARTING && job_signal_ends(sig))
			end_call(job, sig);
		return;
	}
	/* Of a job that has not begun yet this takes the start away, for which not all are meant.
	 */
	if (!job->started && !job_signal_ends(sig))
		return;
	if (turns_it(sig) && !begin_turn(job, sig))
		return;
	k = calloc(1, sizeof(*k));
	if (!k)
		abort();
	*k = (struct killing){.call = {.op = "kill",
	                               .safe = true,
	                               .deadline_ms = remote_deadline(DEADLINE_MS),
	                               .done = kill_done,
	                               .data = k},
	                      .job = job_ref(job),
	                      .sig = sig,
	                      .asks = asks,
	                      .seen = j->config.seen(j->config.data)};
	add_kill(job, sig, &k->call.body);
	if (asks)
		remote_tree_ask(j->config.tree, &k->call.body);
	if (sig == SIGKILL)
		remote_works_begin(&j->kills);
	remote_call_begin(j->link, &k->call);
}

void job_send_kill(struct job *job, int sig)
{
	send_kill(job, sig, false);
}
