/*
 * Three objects, each with the other's interface and the real one behind it. Lines are written by
 * one write(2) each, so that those of several threads do not mix.
 */
#include "backends/trace.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

struct trace_backend {
	struct sbx_backend base;
	struct sbx_backend_impl impl; /* carries the name of inner */
	struct sbx_backend *inner;
};

struct trace_sandbox {
	struct sbx_sandbox base;      /* its strings belong to inner */
	struct sbx_sandbox_impl impl; /* without the tables that inner does not have */
	struct sbx_sandbox *inner;
};

/* The part behind a caller's job: a job of the inner backend's. */
struct trace_job {
	struct sbx_job inner;
	struct sbx_job *caller;
	uint64_t stdout_bytes, stderr_bytes;
	char id[96];
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *fmt, ...)
{
	char line[1024] = "sandboxfs: trace: ";
	size_t at = strlen(line);
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line + at, sizeof(line) - at - 1, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	at = strlen(line);
	line[at] = '\n';
	if (write(STDERR_FILENO, line, at + 1) < 0)
		return;
}

/* Result of a call that began at START (sbx_now_ns). */
static int result(const char *call, const char *subject, uint64_t start, int r,
                  const struct sbx_error *err)
{
	double ms = (double)(sbx_now_ns() - start) / 1e6;

	if (r < 0)
		say("%s(%s) = %s (%s) %.2f ms", call, subject, strerrorname_np(-r),
		    err ? err->text : "", ms);
	else
		say("%s(%s) = %d %.2f ms", call, subject, r, ms);
	return r;
}

static struct trace_job *trace_of(struct sbx_job *inner)
{
	return sbx_container_of(inner, struct trace_job, inner);
}

static void job_signal(struct sbx_job *caller, int sig)
{
	struct trace_job *job = caller->part;

	if (!job)
		return;
	say("job.signal(%s, %s)", job->id, sigabbrev_np(sig) ? sigabbrev_np(sig) : "?");
	sbx_job_signal(&job->inner, sig);
}

static void job_started(struct sbx_job *inner)
{
	struct trace_job *job = trace_of(inner);

	say("job.started(%s)", job->id);
	if (job->caller->events->started)
		job->caller->events->started(job->caller);
}

static void job_output(struct sbx_job *inner, int stream, const void *buf, size_t len)
{
	struct trace_job *job = trace_of(inner);

	*(stream == 1 ? &job->stdout_bytes : &job->stderr_bytes) += len;
	job->caller->events->output(job->caller, stream, buf, len);
}

static void job_ended(struct sbx_job *inner, const struct sbx_exit *exit)
{
	static const char *const words[] = {"failed", "exited", "signaled", "oom", "lost"};
	struct trace_job *job = trace_of(inner);
	struct sbx_job *caller = job->caller;

	say("job.ended(%s) %s code=%d stdout=%llu stderr=%llu %s", job->id, words[exit->end],
	    exit->code, (unsigned long long)job->stdout_bytes,
	    (unsigned long long)job->stderr_bytes, exit->error.text);
	free(job);
	caller->part = NULL;
	caller->events->ended(caller, exit);
}

static void job_denied(struct sbx_job *inner, const struct sbx_denial *denial)
{
	struct trace_job *job = trace_of(inner);

	say("job.denied(%s) %s", job->id, denial->call ? denial->call : "more");
	if (job->caller->events->denied)
		job->caller->events->denied(job->caller, denial);
}

static void job_discarded(struct sbx_job *inner, int stream, uint64_t n)
{
	struct trace_job *job = trace_of(inner);

	say("job.discarded(%s) stream=%d %llu", job->id, stream, (unsigned long long)n);
	if (job->caller->events->discarded)
		job->caller->events->discarded(job->caller, stream, n);
}

static const struct sbx_job_events job_events = {.started = job_started,
                                                 .output = job_output,
                                                 .ended = job_ended,
                                                 .denied = job_denied,
                                                 .discarded = job_discarded};

static void sandbox_listening(struct sbx_sandbox *inner, int fd, void *data)
{
	say("sandbox.listening(%s)", inner->id);
	sbx_sandbox_listening(data, fd);
}

static void sandbox_replaced(struct sbx_sandbox *inner, int old, int new, void *data)
{
	say("sandbox.replaced(%s)", inner->id);
	sbx_sandbox_replaced(data, old, new);
}

static void sandbox_altered(struct sbx_sandbox *inner, void *data)
{
	say("sandbox.altered(%s)", inner->id);
	sbx_sandbox_altered(data);
}

static void sandbox_told(struct sbx_sandbox *inner, const char *event, const char *text, void *data)
{
	say("sandbox.told(%s) %s %s", inner->id, event, text ? text : "");
	sbx_sandbox_told(data, event, text);
}

static const struct sbx_sandbox_events sandbox_events = {
        .listening = sandbox_listening,
        .replaced = sandbox_replaced,
        .altered = sandbox_altered,
        .told = sandbox_told,
};

static struct trace_sandbox *downcast(struct sbx_sandbox *sb)
{
	return (struct trace_sandbox *)sb;
}

static int sandbox_root(struct sbx_sandbox *sb)
{
	return sbx_sandbox_root(downcast(sb)->inner);
}

static void sandbox_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	sbx_sandbox_info(downcast(sb)->inner, obj);
	say("sandbox.info(%s)", sb->id);
}

static void sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj)
{
	sbx_sandbox_policy(downcast(sb)->inner, obj);
	say("sandbox.policy(%s)", sb->id);
}

static int sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_sandbox_rename(downcast(sb)->inner, name, err);

	sb->name = downcast(sb)->inner->name;
	return result("sandbox.rename", sb->id, start, r, err);
}

static int sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_sandbox_retire(downcast(sb)->inner, err);

	return result("sandbox.retire", sb->id, start, r, err);
}

static void sandbox_hurry(struct sbx_sandbox *sb, unsigned ms)
{
	say("sandbox.hurry(%s, %u)", sb->id, ms);
	sbx_sandbox_hurry(downcast(sb)->inner, ms);
}

static void sandbox_discard(struct sbx_sandbox *sb)
{
	say("sandbox.discard(%s)", sb->id);
	sbx_sandbox_discard(downcast(sb)->inner);
}

static int sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_sandbox_remove(downcast(sb)->inner, err);

	return result("sandbox.remove", sb->id, start, r, err);
}

static void sandbox_close(struct sbx_sandbox *sb)
{
	say("sandbox.close(%s)", sb->id);
	sbx_sandbox_close(downcast(sb)->inner);
	free(sb);
}

static int sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *caller,
                        struct sbx_error *err)
{
	struct trace_job *job = calloc(1, sizeof(*job));
	uint64_t start = sbx_now_ns();
	int r;

	if (!job)
		return sbx_no_memory(err);
	job->inner.events = &job_events;
	job->caller = caller;
	caller->part = job;
	snprintf(job->id, sizeof(job->id), "%s: %.20s", sb->id, spec->argv[0]);
	/* So that a barrier which is under way gives up. */
	atomic_store(&downcast(sb)->inner->busy, true);
	r = sbx_sandbox_exec(downcast(sb)->inner, spec, &job->inner, err);
	/* Of one that was started the end may have been told by now. */
	if (r) {
		caller->part = NULL;
		free(job);
	}
	return result("sandbox.exec", sb->id, start, r, err);
}

static int sandbox_resize(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_sandbox_resize(downcast(sb)->inner, mb, err);

	return result("sandbox.resize", sb->id, start, r, err);
}

static int sandbox_barrier(struct sbx_sandbox *sb, bool now, struct sbx_error *err)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;
	uint64_t start = sbx_now_ns();
	int r;

	atomic_store(&inner->busy, atomic_load(&sb->busy));
	r = sbx_sandbox_barrier(inner, now, err);
	atomic_store(&sb->anchored, atomic_load(&inner->anchored));
	return result("sandbox.barrier", sb->id, start, r, err);
}

static bool sandbox_takes(struct sbx_sandbox *sb, int sig)
{
	return sbx_sandbox_takes(downcast(sb)->inner, sig);
}

static bool sandbox_alone(struct sbx_sandbox *sb)
{
	return sbx_sandbox_alone(downcast(sb)->inner);
}

static uint64_t sandbox_output_max(struct sbx_sandbox *sb)
{
	return sbx_sandbox_output_max(downcast(sb)->inner);
}

static bool sandbox_stale(struct sbx_sandbox *sb)
{
	return sbx_sandbox_stale(downcast(sb)->inner);
}

static int sandbox_sync(struct sbx_sandbox *sb, struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_sandbox_sync(downcast(sb)->inner, err);

	return result("sandbox.sync", sb->id, start, r, err);
}

static const char *sandbox_gitfile(struct sbx_sandbox *sb)
{
	return sbx_sandbox_gitfile(downcast(sb)->inner);
}

/* Once for each command of host git. */
static int sandbox_guard(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sbx_sandbox_guard(downcast(sb)->inner, err);
}

/* Too many to be told of. */
static void sandbox_before_write(struct sbx_sandbox *sb, int dirfd, const char *name)
{
	sbx_sandbox_before_write(downcast(sb)->inner, dirfd, name);
}

static bool sandbox_make_room(struct sbx_sandbox *sb)
{
	bool any = sbx_sandbox_make_room(downcast(sb)->inner);

	say("%s.make_room() = %d", sb->name, any);
	return any;
}

static int sandbox_nested(struct sbx_sandbox *sb, bool make)
{
	return sbx_sandbox_nested(downcast(sb)->inner, make);
}

/* ---- history ---- */

static const char *rev_word(const char *rev)
{
	return rev ? rev : "now";
}

static int history_snapshot(struct sbx_sandbox *sb, const struct sbx_snapshot_options *options,
                            char id[SBX_REV_MAX], struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_history_snapshot(downcast(sb)->inner, options, id, err);

	if (!r)
		say("history.snapshot: %s", id);
	return result("history.snapshot", sb->id, start, r, err);
}

static int history_forget(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_history_forget(downcast(sb)->inner, name, err);

	return result("history.forget", name, start, r, err);
}

static int history_list(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
                        void *data, struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_history_list(downcast(sb)->inner, fn, data, err);

	return result("history.list", sb->id, start, r, err);
}

static int history_restore(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
                           struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_history_restore(downcast(sb)->inner, rev, cancelled, err);

	say("history.restore: %s to %s", sb->id, rev);
	return result("history.restore", sb->id, start, r, err);
}

static int history_diff(struct sbx_sandbox *sb, const struct sbx_diff_options *options, int fd,
                        struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_history_diff(downcast(sb)->inner, options, fd, err);

	say("history.diff: %s from %s to %s", sb->id, rev_word(options->from),
	    rev_word(options->to));
	return result("history.diff", sb->id, start, r, err);
}

static int history_tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                        struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();

	return result("history.tree", rev, start,
	              sbx_history_tree(downcast(sb)->inner, rev, ret, err), err);
}

static int history_entry(struct sbx_sandbox *sb, const char *dir, const char *name,
                         struct sbx_object *ret)
{
	return sbx_history_entry(downcast(sb)->inner, dir, name, ret);
}

static int history_entries(struct sbx_sandbox *sb, const char *dir,
                           int (*fn)(const char *name, const struct sbx_object *o, void *data),
                           void *data)
{
	return sbx_history_entries(downcast(sb)->inner, dir, fn, data);
}

static int history_content(struct sbx_sandbox *sb, const char *id, int fd)
{
	uint64_t start = sbx_now_ns();

	return result("history.content", id, start,
	              sbx_history_content(downcast(sb)->inner, id, fd), NULL);
}

/* ---- remote ---- */

static int remote_url(struct sbx_sandbox *sb, const char *name, bool written, char **ret,
                      struct sbx_error *err)
{
	return sbx_remote_url(downcast(sb)->inner, name, written, ret, err);
}

static int remote_push(struct sbx_sandbox *sb, const struct sbx_push_options *options,
                       struct sbx_error *err)
{
	uint64_t start = sbx_now_ns();
	int r = sbx_remote_push(downcast(sb)->inner, options, err);

	return result("remote.push", sb->id, start, r, err);
}

/* ---- away ---- */

static const char *const needs[] = {"up", "names", "attr", "data", "sent"};
static const char *const changes[] = {"data",  "emptied", "made",   "gone",
                                      "moved", "swapped", "linked", "status"};
static_assert(SBX_ARRAY_SIZE(needs) == SBX_NEED_SENT + 1, "a word for each need");
static_assert(SBX_ARRAY_SIZE(changes) == SBX_CHANGE_STATUS + 1, "a word for each kind");

/* Before every operation: too many to be told of. */
static bool away_here(struct sbx_sandbox *sb, uint64_t ino, enum sbx_need need, uint64_t off,
                      uint64_t len)
{
	return sbx_away_here(downcast(sb)->inner, ino, need, off, len);
}

static void away_want(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	say("away.want(%s, %s of \"%s\")", sb->id, needs[w->need], w->path);
	inner->impl->away->want(inner, w);
}

static void away_unwant(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	say("away.unwant(%s)", sb->id);
	inner->impl->away->unwant(inner, w);
}

static int away_admit(struct sbx_sandbox *sb, const struct sbx_change *meant, struct sbx_error *err)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	return inner->impl->away->admit(inner, meant, err);
}

static void away_changed(struct sbx_sandbox *sb, const struct sbx_change *c)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	say("away.changed(%s, %s \"%s\")", sb->id, changes[c->kind], c->path);
	inner->impl->away->changed(inner, c);
}

static void away_dropped(struct sbx_sandbox *sb, const struct sbx_change *meant)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	inner->impl->away->dropped(inner, meant);
}

static void away_flush(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	say("away.flush(%s)", sb->id);
	inner->impl->away->flush(inner, w);
}

static void away_begin(struct sbx_sandbox *sb)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	say("away.begin(%s)", sb->id);
	inner->impl->away->begin(inner);
}

static void away_rest(struct sbx_sandbox *sb, unsigned ms)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;
	const uint64_t start = sbx_now_ns();

	inner->impl->away->rest(inner, ms);
	result("away.rest", sb->id, start, 0, NULL);
}

static void away_leave(struct sbx_sandbox *sb)
{
	struct sbx_sandbox *inner = downcast(sb)->inner;

	say("away.leave(%s)", sb->id);
	inner->impl->away->leave(inner);
}

static const struct sbx_away_impl away_impl = {
        .begin = away_begin,
        .rest = away_rest,
        .leave = away_leave,
        .here = away_here,
        .want = away_want,
        .unwant = away_unwant,
        .admit = away_admit,
        .changed = away_changed,
        .dropped = away_dropped,
        .flush = away_flush,
};

static const struct sbx_command_impl commands_impl = {
        .exec = sandbox_exec,
        .signal = job_signal,
        .takes = sandbox_takes,
        .alone = sandbox_alone,
        .output_max = sandbox_output_max,
        .stale = sandbox_stale,
        .sync = sandbox_sync,
        .hurry = sandbox_hurry,
};

static const struct sbx_storage_impl storage_impl = {
        .barrier = sandbox_barrier,
        .resize = sandbox_resize,
        .before_write = sandbox_before_write,
        .make_room = sandbox_make_room,
        .discard = sandbox_discard,
};

static const struct sbx_git_impl git_impl = {
        .gitfile = sandbox_gitfile,
        .guard = sandbox_guard,
        .nested = sandbox_nested,
};

static const struct sbx_history_impl history_impl = {
        .snapshot = history_snapshot,
        .forget = history_forget,
        .list = history_list,
        .restore = history_restore,
        .diff = history_diff,
        .tree = history_tree,
        .entry = history_entry,
        .entries = history_entries,
        .content = history_content,
};

static const struct sbx_remote_impl remote_impl = {.url = remote_url, .push = remote_push};

static const struct sbx_sandbox_impl sandbox_impl = {
        .root = sandbox_root,
        .info = sandbox_info,
        .policy = sandbox_policy,
        .rename = sandbox_rename,
        .retire = sandbox_retire,
        .remove = sandbox_remove,
        .close = sandbox_close,
        .commands = &commands_impl,
        .storage = &storage_impl,
        .git = &git_impl,
        .history = &history_impl,
        .remote = &remote_impl,
        .away = &away_impl,
};

/* A caller may ask whether a table is there before it calls, so absence shows through. */
static int wrap_sandbox(struct sbx_sandbox *inner, struct sbx_sandbox **ret)
{
	struct trace_sandbox *sb = malloc(sizeof(*sb));

	if (!sb)
		return -ENOMEM;
	*sb = (struct trace_sandbox){.base = *inner, .impl = sandbox_impl, .inner = inner};
	inner->events = &sandbox_events;
	inner->events_data = &sb->base;
	sb->base.impl = &sb->impl;
	if (!inner->impl->commands)
		sb->impl.commands = NULL;
	if (!inner->impl->storage)
		sb->impl.storage = NULL;
	if (!inner->impl->git)
		sb->impl.git = NULL;
	if (!inner->impl->history)
		sb->impl.history = NULL;
	if (!inner->impl->remote)
		sb->impl.remote = NULL;
	if (!inner->impl->away)
		sb->impl.away = NULL;
	*ret = &sb->base;
	return 0;
}

static const struct sbx_recover *outer_of(void *data)
{
	return data;
}

static void recover_found(struct sbx_sandbox *inner, void *data)
{
	struct sbx_sandbox *sb = inner;

	say("backend.recover: found %s as %s", inner->id, inner->name);
	/* Untraced rather than lost. */
	if (wrap_sandbox(inner, &sb))
		sb = inner;
	outer_of(data)->found(sb, outer_of(data)->data);
}

static void recover_leaving(struct sbx_sandbox *inner, void *data)
{
	struct sbx_sandbox *sb = inner;

	say("backend.recover: %s is leaving", inner->id);
	if (wrap_sandbox(inner, &sb))
		sb = inner;
	outer_of(data)->leaving(sb, outer_of(data)->data);
}

static void recover_note(const char *text, void *data)
{
	say("backend.recover: %s", text);
	if (outer_of(data)->note)
		outer_of(data)->note(text, outer_of(data)->data);
}

static int backend_recover(struct sbx_backend *base, const struct sbx_recover *r,
                           struct sbx_error *err)
{
	struct trace_backend *b = (struct trace_backend *)base;
	struct sbx_recover mine = {.found = recover_found,
	                           .note = recover_note,
	                           .leaving = r->leaving ? recover_leaving : NULL,
	                           .data = (void *)(uintptr_t)r};
	uint64_t start = sbx_now_ns();

	return result("backend.recover", base->impl->name, start,
	              sbx_backend_recover(b->inner, &mine, err), err);
}

static void backend_begin(struct sbx_backend *base)
{
	say("backend.begin()");
	sbx_backend_begin(((struct trace_backend *)base)->inner);
}

static int backend_create(struct sbx_backend *base, const struct sbx_create *req,
                          struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct trace_backend *b = (struct trace_backend *)base;
	struct sbx_sandbox *from = req->origin.sandbox;
	struct sbx_create plain = *req;
	struct sbx_sandbox *inner;
	uint64_t start = sbx_now_ns();
	int r;

	if (from && from->impl->close == sandbox_close)
		plain.origin.sandbox = downcast(from)->inner;
	r = sbx_backend_create(b->inner, &plain, &inner, err);
	if (!r && wrap_sandbox(inner, ret))
		*ret = inner;
	return result("backend.create", req->name, start, r, err);
}

static int backend_trash(struct sbx_backend *base, int (*fn)(const struct sbx_trash *t, void *data),
                         void *data, struct sbx_error *err)
{
	struct trace_backend *b = (struct trace_backend *)base;
	uint64_t start = sbx_now_ns();

	return result("backend.trash", base->impl->name, start,
	              sbx_backend_trash(b->inner, fn, data, err), err);
}

static void backend_destroy(struct sbx_backend *base)
{
	struct trace_backend *b = (struct trace_backend *)base;

	say("backend.destroy()");
	sbx_backend_destroy(b->inner);
	free(b);
}

static const struct sbx_backend_impl backend_impl = {
        .recover = backend_recover,
        .begin = backend_begin,
        .create = backend_create,
        .trash = backend_trash,
        .destroy = backend_destroy,
};

int sbx_trace_wrap(struct sbx_backend *inner, struct sbx_backend **ret)
{
	struct trace_backend *b = malloc(sizeof(*b));

	if (!b)
		return -ENOMEM;
	*b = (struct trace_backend){.impl = backend_impl, .inner = inner};
	b->impl.name = inner->impl->name;
	b->impl.away = inner->impl->away;
	b->impl.forks_alone = inner->impl->forks_alone;
	b->base.impl = &b->impl;
	*ret = &b->base;
	return 0;
}
