/*
 * The readable results of a job: the status line, the result, kept output. All values are copied
 * from the record in one look under the lock (struct view), and texts are made from the copy.
 * Output is read through references, so a large result holds nobody up.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/job_table.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/strv.h"

#define EMBED_MAX  (1024 * 1024) /* bytes of a stream in a result */
#define EMBED_HALF (EMBED_MAX / 2)
#define MARK_MAX   64 /* bytes of what stands for those left out */

struct view {
	enum sbx_job_state state;
	enum sbx_end end;
	int code;
	uint64_t number;
	uint64_t wall_ns, user_us, sys_us, max_rss_kb;
	uint64_t cut[2]; /* bytes of stdout and stderr that were discarded */
	bool timed_out, killed;
	struct sbx_error error; /* why it was not started, or was lost */
};

/* Lock held. */
static void look(const struct sbx_jobrec *rec, struct view *v)
{
	bool ended = rec->state == SBX_JOB_ENDED;
	int code = rec->exit.code;

	*v = (struct view){
	        .state = rec->state,
	        .end = rec->exit.end,
	        .code = code,
	        .number = rec->number,
	        .wall_ns = (ended ? rec->end_ns : sbx_now_ns()) - rec->start_ns,
	        .user_us = rec->exit.user_us,
	        .sys_us = rec->exit.sys_us,
	        .max_rss_kb = rec->exit.max_rss_kb,
	        .timed_out = ended && rec->timed_out,
	        .error = rec->start_error,
	};

	if (ended && v->end == SBX_END_LOST)
		v->error = rec->exit.error;
	for (int i = 0; i < 2; i++)
		v->cut[i] = rec->out[i] ? sbx_output_cut(rec->out[i]) : 0;
	v->killed = ended && v->end == SBX_END_SIGNALED && code >= 1 && code <= 64 &&
	            rec->sent >> (code - 1) & 1;
}

static void look_locked(struct sbx_jobrec *rec, struct view *v)
{
	pthread_mutex_lock(&rec->jobs->lock);
	look(rec, v);
	pthread_mutex_unlock(&rec->jobs->lock);
}

/* The signal that ended it, 0: none. */
static int end_signal(const struct view *v)
{
	bool signaled = v->end == SBX_END_SIGNALED || v->end == SBX_END_OOM;

	return v->state == SBX_JOB_ENDED && signaled ? v->code : 0;
}

/* Whether it was lost, and it is known why. */
static bool is_lost(const struct view *v)
{
	return v->state == SBX_JOB_ENDED && v->end == SBX_END_LOST && v->error.code;
}

/* Whether a start was tried and failed, and not merely given up before. */
static bool is_failed(const struct view *v)
{
	return v->state == SBX_JOB_FAILED && v->number;
}

static int exit_code(const struct view *v)
{
	/* As a shell has it: not found, and found but not to be run. */
	if (is_failed(v))
		return v->error.code == ENOENT ? 127 : 126;
	if (v->state != SBX_JOB_ENDED)
		return -1;
	if (v->timed_out)
		return 124;
	if (v->end == SBX_END_EXITED)
		return v->code;
	return end_signal(v) ? 128 + end_signal(v) : -1;
}

static const char *word(const struct view *v)
{
	if (v->state == SBX_JOB_PREPARED || v->state == SBX_JOB_FAILED)
		return "idle";
	if (v->state != SBX_JOB_ENDED)
		return "running";
	if (v->timed_out)
		return "timeout";
	switch (v->end) {
	case SBX_END_EXITED:
		return "exited";
	case SBX_END_SIGNALED:
		return v->killed ? "killed" : "signaled";
	case SBX_END_OOM:
		return "oom";
	default:
		return "lost";
	}
}

/* ---- single facts ---- */

const char *sbx_job_name(const struct sbx_jobrec *rec)
{
	return rec->name;
}

uint64_t sbx_job_number(const struct sbx_jobrec *rec)
{
	uint64_t number;

	pthread_mutex_lock(&rec->jobs->lock);
	number = rec->number;
	pthread_mutex_unlock(&rec->jobs->lock);
	return number;
}

enum sbx_job_kind sbx_job_kind(struct sbx_jobrec *rec)
{
	enum sbx_job_kind kind;

	pthread_mutex_lock(&rec->jobs->lock);
	kind = rec->kind;
	pthread_mutex_unlock(&rec->jobs->lock);
	return kind;
}

int64_t sbx_job_time_ns(struct sbx_jobrec *rec)
{
	int64_t t;

	pthread_mutex_lock(&rec->jobs->lock);
	t = rec->time_ns;
	pthread_mutex_unlock(&rec->jobs->lock);
	return t;
}

bool sbx_job_ended(struct sbx_jobrec *rec)
{
	struct view v;

	look_locked(rec, &v);
	return v.state == SBX_JOB_ENDED || v.state == SBX_JOB_FAILED;
}

bool sbx_job_lost(struct sbx_jobrec *rec, struct sbx_error *err)
{
	struct view v;

	look_locked(rec, &v);
	*err = v.error;
	return is_lost(&v);
}

int sbx_job_start_error(struct sbx_jobrec *rec, struct sbx_error *err)
{
	struct view v;

	look_locked(rec, &v);
	if (v.state != SBX_JOB_FAILED)
		return 0;
	if (err)
		*err = v.error;
	return -v.error.code;
}

int sbx_job_code(struct sbx_jobrec *rec)
{
	struct view v;

	look_locked(rec, &v);
	return exit_code(&v);
}

uint64_t sbx_job_track(struct sbx_jobrec *rec)
{
	uint64_t track;

	pthread_mutex_lock(&rec->jobs->lock);
	track = rec->track;
	pthread_mutex_unlock(&rec->jobs->lock);
	return track;
}

void sbx_job_set_changed(struct sbx_jobrec *rec, char **paths, bool cut)
{
	pthread_mutex_lock(&rec->jobs->lock);
	sbx_strv_free(rec->changed);
	rec->changed = paths;
	rec->changed_cut = cut;
	pthread_mutex_unlock(&rec->jobs->lock);
}

void sbx_job_set_hint(struct sbx_jobrec *rec, const char *text)
{
	char *hint = strdup(text);

	if (!hint)
		return;
	pthread_mutex_lock(&rec->jobs->lock);
	free(rec->hint);
	rec->hint = hint;
	pthread_mutex_unlock(&rec->jobs->lock);
}

char *sbx_job_hint(struct sbx_jobrec *rec)
{
	char *hint;

	pthread_mutex_lock(&rec->jobs->lock);
	hint = rec->hint ? strdup(rec->hint) : NULL;
	pthread_mutex_unlock(&rec->jobs->lock);
	return hint;
}

/* ---- status ---- */

/* The end of the line: what was cut, for who looks at nothing else. */
static void print_cut(const struct view *v, char *buf, size_t size)
{
	int n = 0;

	*buf = '\0';
	if (v->cut[0])
		n = snprintf(buf, size, " stdout_cut=%" PRIu64, v->cut[0]);
	if (v->cut[1])
		snprintf(buf + n, size - (size_t)n, " stderr_cut=%" PRIu64, v->cut[1]);
}

static const char *error_name(const struct view *v)
{
	const char *name = strerrorname_np(v->error.code);

	return name ? name : "EIO";
}

size_t sbx_job_status(struct sbx_jobrec *rec, char *buf, size_t size)
{
	struct view v = {.state = SBX_JOB_PREPARED};
	char code[16] = "-", cut[80];
	int n;

	if (rec)
		look_locked(rec, &v);
	print_cut(&v, cut, sizeof(cut));
	if (exit_code(&v) >= 0)
		snprintf(code, sizeof(code), "%d", exit_code(&v));
	if (is_failed(&v))
		n = snprintf(buf, size, "%s failed job=%" PRIu64 " %s %s\n", code, v.number,
		             error_name(&v), v.error.text);
	else if (v.state == SBX_JOB_PREPARED || v.state == SBX_JOB_FAILED)
		n = snprintf(buf, size, "- idle\n");
	else if (v.state != SBX_JOB_ENDED)
		n = snprintf(buf, size, "- running job=%" PRIu64 " wall_ms=%" PRIu64 "%s\n",
		             v.number, v.wall_ns / 1000000u, cut);
	else
		n = snprintf(buf, size,
		             "%s %s job=%" PRIu64 " wall_ms=%" PRIu64 " user_ms=%" PRIu64
		             " sys_ms=%" PRIu64 " max_rss_kb=%" PRIu64 "%s%s%s%s%s\n",
		             code, word(&v), v.number, v.wall_ns / 1000000u, v.user_us / 1000u,
		             v.sys_us / 1000u, v.max_rss_kb, cut, is_lost(&v) ? " " : "",
		             is_lost(&v) ? error_name(&v) : "", is_lost(&v) ? " " : "",
		             is_lost(&v) ? v.error.text : "");
	return (size_t)n < size ? (size_t)n : size ? size - 1 : 0;
}

/* ---- output ---- */

static struct sbx_output *get_output(struct sbx_jobrec *rec, int stream)
{
	struct sbx_output *o;

	pthread_mutex_lock(&rec->jobs->lock);
	o = rec->out[stream - 1];
	if (o)
		sbx_output_ref(o);
	pthread_mutex_unlock(&rec->jobs->lock);
	return o;
}

uint64_t sbx_job_output_size(struct sbx_jobrec *rec, int stream)
{
	struct sbx_output *o = get_output(rec, stream);
	uint64_t n = o ? sbx_output_size(o) : 0;

	sbx_output_unref(o);
	return n;
}

ssize_t sbx_job_output_read(struct sbx_jobrec *rec, int stream, void *buf, size_t len, uint64_t off)
{
	struct sbx_output *o = get_output(rec, stream);
	ssize_t n = o ? sbx_output_read(o, buf, len, off) : 0;

	sbx_output_unref(o);
	return n;
}

/* ---- result ---- */

static size_t read_all(struct sbx_output *o, char *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = sbx_output_read(o, buf + done, len - done, off + done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

/* The text that a result shows of the SIZE kept bytes of O; malloc'd, NULL: no memory. */
static char *excerpt(struct sbx_output *o, uint64_t size, size_t *len)
{
	char *buf = malloc(size > EMBED_MAX ? EMBED_MAX + MARK_MAX : (size_t)size + 1);
	size_t head, skip, tail;
	int mark;

	if (!buf)
		return NULL;
	if (size <= EMBED_MAX) {
		*len = read_all(o, buf, (size_t)size, 0);
		if (sbx_output_truncated(o))
			*len = sbx_utf8_floor(buf, *len);
		return buf;
	}
	head = sbx_utf8_floor(buf, read_all(o, buf, EMBED_HALF, 0));
	tail = read_all(o, buf + head + MARK_MAX, EMBED_HALF, size - EMBED_HALF);
	skip = sbx_utf8_skip(buf + head + MARK_MAX, tail);
	mark = snprintf(buf + head, MARK_MAX, "\n[... %" PRIu64 " bytes left out ...]\n",
	                size - head - (tail - skip));
	memmove(buf + head + mark, buf + head + MARK_MAX + skip, tail - skip);
	*len = head + (size_t)mark + tail - skip;
	if (sbx_output_truncated(o))
		*len = sbx_utf8_floor(buf, *len);
	return buf;
}

static void add_stream(struct json_object *obj, const char *key, struct sbx_output *o)
{
	_cleanup_free_ char *buf = NULL, *coded = NULL;
	char base64_key[32];
	size_t len = 0;

	buf = o ? excerpt(o, sbx_output_size(o), &len) : NULL;
	if (sbx_utf8_span(buf, len) == len) {
		json_object_object_add(obj, key,
		                       json_object_new_string_len(buf ? buf : "", (int)len));
		return;
	}
	coded = sbx_base64(buf, len);
	snprintf(base64_key, sizeof(base64_key), "%sBase64", key);
	json_object_object_add(obj, base64_key, json_object_new_string(coded ? coded : ""));
}

static void add_signal(struct json_object *obj, const char *key, int sig)
{
	const char *name = sig ? sigabbrev_np(sig) : NULL;
	char text[32];

	if (name)
		snprintf(text, sizeof(text), "SIG%s", name);
	else
		snprintf(text, sizeof(text), "%d", sig);
	json_object_object_add(obj, key, sig ? json_object_new_string(text) : NULL);
}

static void add_code(struct json_object *obj, const char *key, const struct view *v)
{
	int code = exit_code(v);

	json_object_object_add(obj, key, code >= 0 ? json_object_new_int(code) : NULL);
}

static const char *shown_dir(const struct sbx_jobrec *rec)
{
	return rec->asked.dir && rec->asked.dir[0] ? rec->asked.dir : ".";
}

static void add_counts(struct json_object *obj, struct sbx_output *out[2])
{
	bool cut[2];
	uint64_t total[2];

	for (int i = 0; i < 2; i++) {
		cut[i] = out[i] && sbx_output_truncated(out[i]);
		total[i] = out[i] ? sbx_output_total(out[i]) : 0;
	}
	json_object_object_add(obj, "stdoutTruncated", json_object_new_boolean(cut[0]));
	json_object_object_add(obj, "stderrTruncated", json_object_new_boolean(cut[1]));
	json_object_object_add(obj, "stdoutBytes", json_object_new_uint64(total[0]));
	json_object_object_add(obj, "stderrBytes", json_object_new_uint64(total[1]));
}

struct json_object *sbx_job_result(struct sbx_jobrec *rec)
{
	struct json_object *obj = json_object_new_object();
	struct json_object *changed;
	struct sbx_output *out[2];
	struct view v;
	bool oom, ran, cut;

	json_object_object_add(obj, "id", json_object_new_string(rec->name));
	pthread_mutex_lock(&rec->jobs->lock);
	look(rec, &v);
	for (int i = 0; i < 2; i++)
		out[i] = rec->out[i] ? sbx_output_ref(rec->out[i]) : NULL;
	json_object_object_add(obj, "argv", sbx_text_json_list(rec->asked.argv));
	json_object_object_add(obj, "cwd", sbx_text_json(shown_dir(rec), strlen(shown_dir(rec))));
	changed = v.state == SBX_JOB_ENDED ? sbx_text_json_list(rec->changed) : NULL;
	cut = rec->changed_cut;
	pthread_mutex_unlock(&rec->jobs->lock);
	oom = v.state == SBX_JOB_ENDED && v.end == SBX_END_OOM;
	ran = v.state != SBX_JOB_PREPARED && v.state != SBX_JOB_FAILED;
	add_code(obj, "exitCode", &v);
	if (is_failed(&v) || is_lost(&v)) {
		json_object_object_add(obj, "error", json_object_new_string(v.error.text));
		json_object_object_add(obj, "errno", json_object_new_string(error_name(&v)));
	}
	add_signal(obj, "signal", end_signal(&v));
	json_object_object_add(obj, "timedOut", json_object_new_boolean(v.timed_out));
	json_object_object_add(obj, "oomKilled", json_object_new_boolean(oom));
	json_object_object_add(obj, "durationMs",
	                       ran ? json_object_new_uint64(v.wall_ns / 1000000u) : NULL);
	add_stream(obj, "stdout", out[0]);
	add_stream(obj, "stderr", out[1]);
	add_counts(obj, out);
	json_object_object_add(obj, "changedFiles", changed);
	if (changed && cut)
		json_object_object_add(obj, "changedFilesTruncated", json_object_new_boolean(true));
	sbx_output_unref(out[0]);
	sbx_output_unref(out[1]);
	return obj;
}

/* Written out: json-c prints 0.003 with all the digits that a double has. */
static void add_seconds(struct json_object *obj, const char *key, uint64_t ns)
{
	uint64_t ms = ns / 1000000u;
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 ".%03u", ms / 1000u, (unsigned)(ms % 1000u));
	json_object_object_add(obj, key, json_object_new_double_s((double)ms / 1e3, text));
}

struct json_object *sbx_job_log_members(struct sbx_jobrec *rec)
{
	struct json_object *obj = json_object_new_object();
	struct view v;

	json_object_object_add(obj, "job", json_object_new_string(rec->name));
	pthread_mutex_lock(&rec->jobs->lock);
	look(rec, &v);
	json_object_object_add(obj, "cmd", sbx_text_json_list(rec->asked.argv));
	if (v.state == SBX_JOB_ENDED && rec->changed)
		json_object_object_add(obj, "changed_files", sbx_text_json_list(rec->changed));
	pthread_mutex_unlock(&rec->jobs->lock);
	if (v.state == SBX_JOB_ENDED) {
		add_code(obj, "exit_code", &v);
		add_signal(obj, "signal", end_signal(&v));
		json_object_object_add(obj, "timed_out", json_object_new_boolean(v.timed_out));
		add_seconds(obj, "duration_sec", v.wall_ns);
	}
	if (v.state == SBX_JOB_FAILED || is_lost(&v))
		json_object_object_add(obj, "error", json_object_new_string(v.error.text));
	return obj;
}

char *sbx_job_argv_json(struct sbx_jobrec *rec)
{
	struct json_object *list;
	char *text = NULL;

	pthread_mutex_lock(&rec->jobs->lock);
	list = sbx_text_json_list(rec->asked.argv);
	pthread_mutex_unlock(&rec->jobs->lock);
	if (list)
		text = strdup(json_object_to_json_string_ext(
		        list, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(list);
	return text;
}

char *sbx_job_cwd(struct sbx_jobrec *rec)
{
	char *dir;

	pthread_mutex_lock(&rec->jobs->lock);
	dir = strdup(shown_dir(rec));
	pthread_mutex_unlock(&rec->jobs->lock);
	return dir;
}

char *sbx_job_program(struct sbx_jobrec *rec)
{
	const char *slash;
	char *program;

	pthread_mutex_lock(&rec->jobs->lock);
	slash = strrchr(rec->asked.argv[0], '/');
	program = strdup(slash ? slash + 1 : rec->asked.argv[0]);
	pthread_mutex_unlock(&rec->jobs->lock);
	return program;
}
