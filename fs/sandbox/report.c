/*
 * The registry's reports on itself (list, list.json, pending, stats) and on a box (info, policy).
 * Boxes are referenced under the lock and asked after it, because job tables and backends have
 * locks of their own.
 */
#include "fs/sandbox/report.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/http.h"

const char *const sbx_end_words[] = {"exited", "signaled", "timeout", "oom",
                                     "killed", "lost",     "failed"};
_Static_assert(SBX_ARRAY_SIZE(sbx_end_words) == END_WORDS, "one counter for each word");

static const char *state_word(enum sbx_box_state state)
{
	static const char *const words[] = {"creating", "ready", "stopping", "failed", "retired"};

	return words[state];
}

struct snapshot {
	struct sbx_box **boxes;
	size_t n;
};

static void snapshot_release(struct snapshot *s)
{
	for (size_t i = 0; i < s->n; i++)
		sbx_box_unref(s->boxes[i]);
	free(s->boxes);
}

static int snapshot_take(struct sbx_registry *reg, struct snapshot *ret)
{
	int r = 0;

	pthread_mutex_lock(&reg->lock);
	ret->boxes = calloc(reg->n + 1, sizeof(*ret->boxes));
	if (!ret->boxes)
		r = -ENOMEM;
	for (size_t i = 0; i < reg->n && !r; i++)
		if (reg->boxes[i]->pub.state != SBX_BOX_CREATING)
			ret->boxes[ret->n++] = sbx_box_ref(&reg->boxes[i]->pub);
	pthread_mutex_unlock(&reg->lock);
	return r;
}

static enum sbx_box_state box_state(struct sbx_box *box)
{
	enum sbx_box_state state;

	pthread_mutex_lock(&box->registry->lock);
	state = box->state;
	pthread_mutex_unlock(&box->registry->lock);
	return state;
}

/* Of one that is elsewhere its backend says more than that it is ready; INFO is what that says. */
static const char *state_of(struct sbx_box *box, struct json_object *info)
{
	const enum sbx_box_state state = box_state(box);
	struct json_object *word;

	if (state == SBX_BOX_READY && sbx_is_away(box->sandbox) &&
	    json_object_object_get_ex(info, "state", &word))
		return json_object_get_string(word);
	return state_word(state);
}

static void add_string(struct json_object *obj, const char *key, const char *value)
{
	json_object_object_add(obj, key, value ? json_object_new_string(value) : NULL);
}

static char *json_text(struct json_object *obj)
{
	const char *text = json_object_to_json_string_ext(
	        obj, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	char *copy = NULL;

	if (!text || asprintf(&copy, "%s\n", text) < 0)
		copy = NULL;
	json_object_put(obj);
	return copy;
}

/* List */

static void format_age(int64_t created_ms, char buf[24])
{
	long long s = sbx_real_ms() / 1000 - created_ms / 1000;

	if (s < 0)
		s = 0;
	if (s < 60)
		snprintf(buf, 24, "%llds", s);
	else if (s < 3600)
		snprintf(buf, 24, "%lldm", s / 60);
	else if (s < 2 * 86400)
		snprintf(buf, 24, "%lldh", s / 3600);
	else
		snprintf(buf, 24, "%lldd", s / 86400);
}

static void print_row(FILE *out, struct sbx_box *box)
{
	struct json_object *info = json_object_new_object();
	struct json_object *branch = NULL;
	char name[64], age[24];

	sbx_sandbox_info(box->sandbox, info);
	json_object_object_get_ex(info, "branch", &branch);
	sbx_box_name(box, name);
	format_age(box->sandbox->created_ms, age);
	fprintf(out, "%-20s %-9s %-24s %4u %5s\n", name, state_of(box, info),
	        branch ? json_object_get_string(branch) : "-", sbx_jobs_running(box->jobs), age);
	json_object_put(info);
}

char *sbx_registry_list_text(struct sbx_registry *reg)
{
	_cleanup_(snapshot_release) struct snapshot s = {0};
	char *text = NULL;
	size_t size;
	FILE *out;

	if (snapshot_take(reg, &s) < 0)
		return NULL;
	out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	fprintf(out, "%-20s %-9s %-24s %4s %5s\n", "NAME", "STATE", "BRANCH", "JOBS", "AGE");
	for (size_t i = 0; i < s.n; i++)
		print_row(out, s.boxes[i]);
	fclose(out);
	return text;
}

/* Info */

/* ISO 8601, UTC. */
static void format_time(int64_t ms, char buf[48])
{
	time_t s = (time_t)(ms / 1000);
	char day[32];
	struct tm tm;

	gmtime_r(&s, &tm);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf, 48, "%s.%03dZ", day, (int)(ms % 1000));
}

static void add_created(struct json_object *obj, int64_t created_ms)
{
	char text[48];

	format_time(created_ms, text);
	add_string(obj, "created", text);
}

static void count_job(struct sbx_jobrec *rec, void *data)
{
	(void)rec;
	++*(unsigned *)data;
}

static struct json_object *jobs_json(struct sbx_box *box)
{
	struct json_object *obj = json_object_new_object();
	unsigned known = 0;

	sbx_jobs_walk(box->jobs, count_job, &known);
	json_object_object_add(obj, "running", json_object_new_int64(sbx_jobs_running(box->jobs)));
	json_object_object_add(obj, "known", json_object_new_int64(known));
	return obj;
}

static struct json_object *info_json(struct sbx_box *box)
{
	const struct sbx_settings *settings = box->registry->config.settings;
	struct json_object *obj = json_object_new_object();
	_cleanup_free_ char *path = NULL;
	char name[64];

	sbx_box_name(box, name);
	if (asprintf(&path, "%s/%s", settings->mountpoint, name) < 0)
		path = NULL;
	add_string(obj, "name", name);
	add_string(obj, "id", box->sandbox->id);
	add_string(obj, "state", state_word(box_state(box)));
	add_string(obj, "backend", settings->backend);
	add_string(obj, "path", path);
	/* Of one that is elsewhere the backend tells, once it is known. */
	if (!sbx_is_away(box->sandbox))
		add_string(obj, "workdir",
		           box->sandbox->tree.mounted ? path : box->sandbox->workdir);
	add_string(obj, "io", settings->io);
	add_created(obj, box->sandbox->created_ms);
	json_object_object_add(obj, "jobs", jobs_json(box));
	sbx_sandbox_info(box->sandbox, obj);
	add_string(obj, "state", state_of(box, obj));
	return obj;
}

char *sbx_box_info_json(struct sbx_box *box)
{
	return json_text(info_json(box));
}

char *sbx_registry_list_json(struct sbx_registry *reg)
{
	_cleanup_(snapshot_release) struct snapshot s = {0};
	struct json_object *list;

	if (snapshot_take(reg, &s) < 0)
		return NULL;
	list = json_object_new_array();
	for (size_t i = 0; i < s.n; i++)
		json_object_array_add(list, info_json(s.boxes[i]));
	return json_text(list);
}

/* Trash */

static int print_trash(const struct sbx_trash *t, void *data)
{
	char time[48];

	format_time(t->time_ms, time);
	fprintf(data, "%s %s %s %s\n", t->name, t->sandbox, time, t->branch ? t->branch : "-");
	return 0;
}

static int list_trash(struct sbx_registry *reg, int (*fn)(const struct sbx_trash *t, void *data),
                      void *data)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_backend_trash(reg->config.backend, fn, data, &err);

	sbx_error_store(reg, NULL, &err);
	return r;
}

int sbx_registry_trash_text(struct sbx_registry *reg, char **ret)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int r;

	if (!out)
		return -ENOMEM;
	r = list_trash(reg, print_trash, out);
	fclose(out);
	if (r < 0)
		free(text);
	else
		*ret = text;
	return r;
}

static int add_trash(const struct sbx_trash *t, void *data)
{
	struct json_object *obj = json_object_new_object();
	char time[48];

	format_time(t->time_ms, time);
	add_string(obj, "name", t->name);
	add_string(obj, "sandbox", t->sandbox);
	add_string(obj, "time", time);
	add_string(obj, "branch", t->branch);
	json_object_object_add(obj, "whole", json_object_new_boolean(t->whole));
	json_object_array_add(data, obj);
	return 0;
}

int sbx_registry_trash_json(struct sbx_registry *reg, char **ret)
{
	struct json_object *list = json_object_new_array();
	int r = list_trash(reg, add_trash, list);

	if (r < 0)
		json_object_put(list);
	else
		*ret = json_text(list);
	return r;
}

/* Policy */

static struct json_object *strings_json(const struct sbx_strings *strings)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < strings->n; i++)
		json_object_array_add(list, json_object_new_string(strings->items[i]));
	return list;
}

static void add_limit(struct json_object *obj, const char *key, uint64_t value)
{
	json_object_object_add(obj, key, value ? json_object_new_uint64(value) : NULL);
}

static struct json_object *limits_json(const struct sbx_limits *limits)
{
	struct json_object *obj = json_object_new_object();

	add_limit(obj, "cpu_s", limits->cpu_s);
	add_limit(obj, "memory_mb", limits->memory_mb);
	add_limit(obj, "procs", limits->procs);
	add_limit(obj, "file_mb", limits->file_mb);
	add_limit(obj, "disk_mb", limits->disk_mb);
	add_limit(obj, "output_bytes", limits->output_bytes);
	add_limit(obj, "jobs", limits->jobs);
	return obj;
}

/* Of tools in a home: each place with the reason why it is there. */
static struct json_object *tools_json(const struct sbx_settings *settings)
{
	struct json_object *obj = json_object_new_object();

	for (size_t i = 0; i < settings->shown.n; i++)
		add_string(obj, settings->shown.items[i], settings->shown_why.items[i]);
	return obj;
}

static struct json_object *carried_json(const struct sbx_settings *settings)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i + 1 < settings->carried.n; i += 2)
		json_object_array_add(list, json_object_new_string(settings->carried.items[i]));
	return list;
}

static struct json_object *paths_json(const struct sbx_settings *settings)
{
	struct json_object *obj = json_object_new_object();

	json_object_object_add(obj, "tools", tools_json(settings));
	json_object_object_add(obj, "carried", carried_json(settings));

	json_object_object_add(obj, "ro", strings_json(&settings->ro_paths));
	json_object_object_add(obj, "rw", strings_json(&settings->rw_paths));
	json_object_object_add(obj, "hide", strings_json(&settings->hide_paths));
	return obj;
}

char *sbx_box_policy_json(struct sbx_box *box)
{
	const struct sbx_settings *settings = box->registry->config.settings;
	struct json_object *obj = json_object_new_object();
	struct sbx_job_defaults defaults;

	add_string(obj, "network", settings->net);
	/* null: any program may run */
	json_object_object_add(obj, "allow",
	                       settings->allow.n ? strings_json(&settings->allow) : NULL);
	/* Of this machine nothing is shown to commands on another. */
	if (!sbx_is_away(box->sandbox))
		json_object_object_add(obj, "paths", paths_json(settings));
	if (sbx_jobs_get_defaults(box->jobs, &defaults) >= 0) {
		json_object_object_add(obj, "limits", limits_json(&defaults.limits));
		add_limit(obj, "timeout_ms", defaults.timeout_ms);
		sbx_job_defaults_release(&defaults);
	}
	sbx_sandbox_policy(box->sandbox, obj);
	return json_text(obj);
}

/* Pending and stats */

char *sbx_registry_pending_text(struct sbx_registry *reg)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	pthread_mutex_lock(&reg->lock);
	for (struct box *box = reg->retired; box; box = box->next)
		if (box->why.code)
			fprintf(out, "%s\t%s\t%s\n", box->pub.name, box->pub.sandbox->id,
			        box->why.text);
		else
			fprintf(out, "%s\n", box->pub.name);
	pthread_mutex_unlock(&reg->lock);
	fclose(out);
	return text;
}

static void metric(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	fprintf(out, "# HELP sandboxfs_%s %s\n# TYPE sandboxfs_%s %s\nsandboxfs_%s %llu\n", name,
	        help, name, type, name, (unsigned long long)value);
}

static void print_ended(FILE *out, const struct counters *c)
{
	fprintf(out, "# HELP sandboxfs_jobs_ended_total Jobs ended, by the word in status.\n"
	             "# TYPE sandboxfs_jobs_ended_total counter\n");
	for (int i = 0; i < END_WORDS; i++)
		fprintf(out, "sandboxfs_jobs_ended_total{end=\"%s\"} %llu\n", sbx_end_words[i],
		        (unsigned long long)c->jobs_ended[i]);
}

static const struct {
	const char *name, *help;
	size_t offset; /* of the number */
	unsigned per;  /* what is shown */
} http_metrics[] = {
        {"requests_total", "HTTP requests sent.", offsetof(struct sbx_http_count, requests), 1},
        {"failures_total", "HTTP requests failed.", offsetof(struct sbx_http_count, failed), 1},
        {"sent_bytes_total", "Bytes sent by HTTP.", offsetof(struct sbx_http_count, sent), 1},
        {"received_bytes_total", "Bytes received by HTTP.",
         offsetof(struct sbx_http_count, received), 1},
        {"milliseconds_total", "Time of all HTTP requests.", offsetof(struct sbx_http_count, ns),
         1000000},
};

/* What each request was for is a label. */
static void print_http(FILE *out, struct sbx_http *http)
{
	_cleanup_free_ struct sbx_http_count *counts = NULL;
	size_t n = 0;

	if (!http || sbx_http_counts(http, &counts, &n) < 0)
		return;
	for (size_t m = 0; n && m < SBX_ARRAY_SIZE(http_metrics); m++) {
		const char *name = http_metrics[m].name;

		fprintf(out, "# HELP sandboxfs_http_%s %s\n# TYPE sandboxfs_http_%s counter\n",
		        name, http_metrics[m].help, name);
		for (size_t i = 0; i < n; i++) {
			uint64_t value;

			memcpy(&value, (const char *)&counts[i] + http_metrics[m].offset,
			       sizeof(value));
			fprintf(out, "sandboxfs_http_%s{op=\"%s\"} %llu\n", name, counts[i].op,
			        (unsigned long long)(value / http_metrics[m].per));
		}
	}
}

static void print_stats(FILE *out, size_t sandboxes, size_t pending, unsigned running,
                        const struct counters *c)
{
	metric(out, "sandboxes", "gauge", "Sandboxes that the mount shows.", sandboxes);
	metric(out, "removals_pending", "gauge", "Sandboxes whose removal goes on.", pending);
	metric(out, "jobs_running", "gauge", "Jobs running now.", running);
	print_ended(out, c);
	metric(out, "creates_total", "counter", "Sandboxes created.", c->creates);
	metric(out, "create_failures_total", "counter", "Creations that failed.",
	       c->create_failures);
	metric(out, "teardowns_total", "counter", "Sandboxes torn down.", c->teardowns);
	metric(out, "removals_total", "counter", "Sandboxes removed to the last byte.",
	       c->removals);
	metric(out, "remove_failures_total", "counter", "Attempts at removal that failed.",
	       c->remove_failures);
}

char *sbx_registry_stats_text(struct sbx_registry *reg)
{
	_cleanup_(snapshot_release) struct snapshot s = {0};
	struct counters counters;
	char *text = NULL;
	size_t size, pending = 0;
	unsigned running = 0;
	FILE *out;

	if (snapshot_take(reg, &s) < 0)
		return NULL;
	out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	pthread_mutex_lock(&reg->lock);
	counters = reg->counters;
	for (struct box *box = reg->retired; box; box = box->next)
		pending++;
	pthread_mutex_unlock(&reg->lock);
	for (size_t i = 0; i < s.n; i++)
		running += sbx_jobs_running(s.boxes[i]->jobs);
	print_stats(out, s.n, pending, running, &counters);
	print_http(out, reg->config.http);
	fclose(out);
	return text;
}
