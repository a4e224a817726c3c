/*
 * The setup of a box: its log, its events, its job table, its lifetime; and the records that are
 * written to log and events.
 */
#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/config/toolchains.h"
#include "fs/log/events.h"
#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "fs/sandbox/track.h"
#include "fs/util/shell_words.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

/* An outcome that is known before anything was begun. */
struct outcome {
	sbx_box_done done;
	void *data;
	int code;
	struct sbx_error err;
};

static void tell(void *data)
{
	struct outcome *o = data;

	o->done(o->code, NULL, &o->err, o->data);
	free(o);
}

void sbx_tell_later(struct sbx_registry *reg, int code, const struct sbx_error *err,
                    sbx_box_done done, void *data)
{
	struct outcome *o = sbx_must_alloc(sizeof(*o));

	*o = (struct outcome){.done = done, .data = data, .code = code, .err = *err};
	if (code < 0)
		sbx_error_store(reg, NULL, &o->err);
	sbx_loop_post(reg->config.loop, tell, o);
}

static double seconds_since(uint64_t begun_ns)
{
	return (double)((sbx_now_ns() - begun_ns) / 1000000u) / 1000.0;
}

void sbx_box_record_span(struct box *box, const char *event, uint64_t begun_ns)
{
	struct json_object *extra = json_object_new_object();

	char seconds[32];

	snprintf(seconds, sizeof(seconds), "%.3f", seconds_since(begun_ns));
	json_object_object_add(extra, "duration_sec",
	                       json_object_new_double_s(seconds_since(begun_ns), seconds));
	sbx_log_record(box->pub.log, event, extra);
}

static const char *const kinds[] = {"exec", "spawn", "run"}; /* by enum sbx_job_kind */
static_assert(SBX_ARRAY_SIZE(kinds) == SBX_JOB_RUN + 1, "a word for each kind");

static void record_job(struct box *box, struct sbx_jobrec *rec)
{
	sbx_log_record(box->pub.log, kinds[sbx_job_kind(rec)], sbx_job_log_members(rec));
}

static void count_end(struct sbx_registry *reg, const char *status)
{
	const char *word = strchr(status, ' ');
	size_t len = word ? strcspn(++word, " \n") : 0;

	pthread_mutex_lock(&reg->lock);
	for (int i = 0; word && i < END_WORDS; i++)
		if (strlen(sbx_end_words[i]) == len && strncmp(sbx_end_words[i], word, len) == 0)
			reg->counters.jobs_ended[i]++;
	pthread_mutex_unlock(&reg->lock);
}

/* "exec job=12" and what more there is to say. */
static void job_event(struct box *box, struct sbx_jobrec *rec, const char *event, const char *more)
{
	char text[SBX_STATUS_MAX];

	snprintf(text, sizeof(text), "%s job=%llu%s%s", kinds[sbx_job_kind(rec)],
	         (unsigned long long)sbx_job_number(rec), *more ? ": " : "", more);
	sbx_box_event(box->pub.registry, box, event, text);
}

/* What a job table calls when a job has changed and when jobs run; DATA is the box. */
static void job_changed(struct sbx_jobrec *rec, void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;
	struct sbx_error err = SBX_ERROR_INIT;
	char status[SBX_STATUS_MAX];

	if (!sbx_job_ended(rec)) {
		job_event(box, rec, "job_start", "");
		return;
	}
	record_job(box, rec);
	if (sbx_job_start_error(rec, &err) < 0) {
		count_end(reg, "- failed");
		job_event(box, rec, "job_failed", err.text);
		return;
	}
	if (sbx_job_lost(rec, &err))
		sbx_error_store(reg, &box->pub, &err);
	sbx_job_status(rec, status, sizeof(status));
	count_end(reg, status);
	status[strcspn(status, "\n")] = '\0';
	job_event(box, rec, "job_end", status);
}

static void jobs_busy(bool busy, void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;

	atomic_store(&box->pub.sandbox->busy, busy);
	if (reg->config.observer)
		reg->config.observer->invalidate(&box->pub, busy, reg->config.observer_data);
	if (!busy)
		sbx_box_save(box);
}

static void job_left(void *data)
{
	struct box *box = data;
	struct sbx_registry *reg = box->pub.registry;

	if (reg->config.observer)
		reg->config.observer->wrote(&box->pub, reg->config.observer_data);
}

static void tell_denied(struct json_object *members, const char *text, void *data)
{
	struct box *box = data;

	sbx_log_record(box->pub.log, "denied", json_object_get(members));
	sbx_box_event(box->pub.registry, box, "denied", text);
}

static void serve(struct sbx_sandbox *sandbox, int fd, void *data)
{
	struct box *box = data;
	struct sbx_egress *egress = box->pub.registry->egress;

	(void)sandbox;
	if (!box->pub.proxy && egress)
		box->pub.proxy = sbx_proxy_create(egress, box->pub.denials);
	if (box->pub.proxy)
		sbx_proxy_listen(box->pub.proxy, fd);
	else
		close(fd);
}

static void replaced(struct sbx_sandbox *sandbox, int old, int new, void *data)
{
	struct box *box = data;
	const struct sbx_registry_config *config = &box->pub.registry->config;

	(void)sandbox;
	if (config->observer)
		config->observer->replaced(&box->pub, old, new, config->observer_data);
}

static void altered(struct sbx_sandbox *sandbox, void *data)
{
	struct box *box = data;
	const struct sbx_registry_config *config = &box->pub.registry->config;

	(void)sandbox;
	if (config->observer)
		config->observer->altered(&box->pub, config->observer_data);
}

static void told(struct sbx_sandbox *sandbox, const char *event, const char *text, void *data)
{
	struct box *box = data;

	(void)sandbox;
	sbx_box_event(box->pub.registry, box, event, text);
}

static const struct sbx_sandbox_events sandbox_events = {
        .listening = serve, .replaced = replaced, .altered = altered, .told = told};

/* A program that commands did not find, while it is looked for where they cannot see it. */
struct search {
	struct box *box;
	struct sbx_jobrec *rec;
	struct sbx_exit *exit; /* the job's, to be mended */
	void (*then)(void *arg);
	void *arg;
	bool found;
};

static const char not_found[] = ": program not found";

/* [loop] */
static void searched(void *data)
{
	struct search *s = data;
	const struct sbx_denial_report denied = {.kind = SBX_DENIED_PROGRAM,
	                                         .what = s->exit->error.text,
	                                         .job = sbx_job_name(s->rec)};

	if (s->found)
		sbx_box_denied(&denied, s->box);
	if (!sbx_box_track_end(&s->box->pub, s->rec, true, s->then, s->arg))
		s->then(s->arg);
	sbx_job_unref(s->rec);
	free(s);
}

/* [pool], as what PATH names may lie on a file system that is slow to answer. */
static void search(void *data)
{
	struct search *s = data;
	struct sbx_registry *reg = s->box->pub.registry;
	struct sbx_error *err = &s->exit->error;
	_cleanup_free_ char *word = strdup(err->text);
	char file[PATH_MAX], dir[PATH_MAX];

	if (word)
		word[strlen(word) - strlen(not_found)] = '\0';
	/* What this machine has is no matter to commands of another. */
	if (word && !sbx_is_away(s->box->pub.sandbox))
		s->found = sbx_toolchains_hidden(reg->config.settings, word, file, dir);
	/* Nobody is advised to show a home. */
	if (s->found)
		sbx_fail(err, ENOENT,
		         "%.200s: program not found: %.400s is there, but not shown to commands: "
		         "mount with -o ro_paths=%.400s",
		         word, file, sbx_holds_home(dir) ? file : dir);
	else if (word && sbx_words_of_shell(word))
		sbx_fail(err, ENOENT,
		         "%s: program not found: it is a shell's own, use [\"sh\",\"-c\",\"...\"]",
		         word);
	sbx_loop_post(reg->config.loop, searched, s);
}

static bool is_not_found(const struct sbx_exit *exit)
{
	const size_t n = strlen(exit->error.text), m = strlen(not_found);

	return exit->end == SBX_END_FAILED && exit->code == ENOENT && n > m &&
	       strcmp(exit->error.text + n - m, not_found) == 0;
}

/* Git state that a command has moved is where the host sees it before anyone hears of the end. */
static bool before_end(struct sbx_jobrec *rec, struct sbx_exit *exit, void (*then)(void *arg),
                       void *arg, void *data)
{
	struct box *box = data;
	struct search *s;

	assert(box->pub.sandbox);
	if (!is_not_found(exit))
		return sbx_box_hear(box, rec, exit, then, arg) ||
		       sbx_box_track_end(&box->pub, rec, exit->end == SBX_END_FAILED, then, arg);
	s = sbx_must_alloc(sizeof(*s));
	*s = (struct search){
	        .box = box, .rec = sbx_job_ref(rec), .exit = exit, .then = then, .arg = arg};
	sbx_pool_submit(box->pub.registry->config.lane, search, s);
	return true;
}

static int job_root(void *data)
{
	struct box *box = data;

	return sbx_box_root(&box->pub);
}

static int open_jobs(struct box *box, struct sbx_sandbox *sandbox)
{
	const struct sbx_settings *settings = box->pub.registry->config.settings;
	_cleanup_free_ char *view = NULL, *spill = NULL;

	if (asprintf(&view, "%s/%s", settings->mountpoint, sandbox->name) < 0)
		return -ENOMEM;
	if (asprintf(&spill, "%s/jobs/%s", settings->state_dir, sandbox->id) < 0)
		return -ENOMEM;
	return sbx_jobs_create(
	        &(struct sbx_jobs_config){
	                .settings = settings,
	                .loop = box->pub.registry->config.loop,
	                .sandbox = sandbox,
	                .view = view,
	                .spill_dir = spill,
	                .busy = jobs_busy,
	                .left = job_left,
	                .before_end = before_end,
	                .changed = job_changed,
	                .denied = sbx_box_denied,
	                .root = job_root,
	                .data = box,
	        },
	        &box->pub.jobs);
}

/* The limit of the disk that the tree was made with outlives the mount that set it. */
static int take_over_disk(struct sbx_jobs *jobs, const struct sbx_sandbox *sandbox)
{
	struct sbx_job_defaults d;
	int r = sandbox->disk_mb ? sbx_jobs_get_defaults(jobs, &d) : 1;

	if (r)
		return r > 0 ? 0 : r;
	d.limits.disk_mb = sandbox->disk_mb;
	sbx_jobs_set_limits(jobs, &d.limits);
	sbx_job_defaults_release(&d);
	return 0;
}

int sbx_box_attach(struct box *box, struct sbx_sandbox *sandbox)
{
	struct sbx_registry *reg = box->pub.registry;
	const struct sbx_settings *settings = reg->config.settings;
	struct stat st;
	int r = sbx_log_open(settings->state_dir, settings->logs_dir, sandbox->id, sandbox->name,
	                     &box->pub.log);

	assert(!box->pub.sandbox && !box->pub.jobs);
	if (r >= 0)
		r = sbx_events_create(reg->config.loop, &box->pub.events);
	if (r >= 0)
		r = sbx_denials_create(reg->config.loop, tell_denied, box, &box->pub.denials);
	if (r >= 0)
		r = open_jobs(box, sandbox);
	if (r >= 0)
		r = take_over_disk(box->pub.jobs, sandbox);
	if (r < 0) {
		sbx_box_detach(box);
		return r;
	}
	box->pub.hides_git = sandbox->impl->git && !settings->nested_shared;
	sandbox->events = &sandbox_events;
	sandbox->events_data = box;
	box->pub.sandbox = sandbox;
	box->pub.own_results = sandbox->tree.own_results;
	/* One that has been removed, and is not saved yet, has no root any more. */
	if (sbx_is_away(sandbox) && fstat(sbx_sandbox_root(sandbox), &st) == 0)
		box->pub.root_ino = st.st_ino;
	return 0;
}

void sbx_box_detach(struct box *box)
{
	sbx_jobs_destroy(box->pub.jobs);
	sbx_denials_destroy(box->pub.denials);
	sbx_events_destroy(box->pub.events);
	sbx_log_close(box->pub.log);
	box->pub.jobs = NULL;
	box->pub.denials = NULL;
	box->pub.events = NULL;
	box->pub.log = NULL;
	box->pub.sandbox = NULL;
}

static void lifetime_over(struct sbx_timer *t)
{
	struct box *box = t->data;
	struct sbx_registry *reg = box->pub.registry;
	bool ready;

	pthread_mutex_lock(&reg->lock);
	ready = box->pub.state == SBX_BOX_READY && !reg->closing;
	if (ready)
		sbx_box_stop_begin(box);
	pthread_mutex_unlock(&reg->lock);
	if (!ready)
		return;
	sbx_box_event(reg, box, "expired", "its lifetime (run_timeout_ms) is over");
	sbx_box_stop(box);
}

void sbx_box_arm_lifetime(struct box *box, uint64_t least_ms)
{
	struct sbx_registry *reg = box->pub.registry;
	uint64_t span = reg->config.settings->run_timeout_ms;
	int64_t age;

	if (!span || box->lifetime.due_ns)
		return;
	age = sbx_real_ms() - box->pub.sandbox->created_ms;
	if (age < 0)
		age = 0;
	box->lifetime.fn = lifetime_over;
	box->lifetime.data = box;
	span = (uint64_t)age >= span ? 0 : span - (uint64_t)age;
	sbx_loop_timer_set(reg->config.loop, &box->lifetime, span > least_ms ? span : least_ms);
}
