/*
 * The control files, one row each, and the texts of those that are only read. What a row's file
 * does is behind its text function (a file that is read) and its operations (one that is written,
 * or waits).
 *
 * Texts are generated on the spot. The kept output and the log are read where they lie, because
 * they may be large.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/config/options.h"
#include "fs/control/control_impl.h"
#include "fs/control/history_args.h"
#include "fs/control/setting_files.h"
#include "fs/control/snapshots.h"
#include "fs/sandbox/registry.h"
#include "fs/sandbox/report.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"

#define PART_MAX (1024 * 1024) /* of one read of a stream */

struct sbx_jobrec *sbx_control_job(const struct sbx_control_node *node)
{
	if (node->job)
		return sbx_job_ref(node->job);
	return sbx_job_last_exec(node->box->jobs);
}

static void cleanup_job(struct sbx_jobrec **job)
{
	sbx_job_unref(*job);
}
#define _cleanup_job_ _cleanup_(cleanup_job)

/* STRING and a newline; NULL gives an empty text. */
static int text_line(const char *string, struct text *ret)
{
	char *line = NULL;

	if (!string)
		return sbx_control_text_take(strdup(""), ret);
	return asprintf(&line, "%s\n", string) < 0 ? -ENOMEM : sbx_control_text_take(line, ret);
}

static int text_json(struct json_object *obj, struct text *ret)
{
	int r = text_line(json_object_to_json_string_ext(
	                          obj, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE),
	                  ret);

	json_object_put(obj);
	return r;
}

/* The mount */

const struct sbx_top_file sbx_top_files[SBX_TOP_FILES] = {
        {"README", sbx_readme},
        {"SKILL.md", sbx_skill},
};

static int text_top_file(struct sbx_registry *reg, const struct sbx_control_node *node,
                         struct text *ret)
{
	(void)reg;
	return sbx_control_text_take(strdup(sbx_top_files[node->row->arg].text), ret);
}

static int text_pending(struct sbx_registry *reg, const struct sbx_control_node *node,
                        struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_pending_text(reg), ret);
}

static int text_list(struct sbx_registry *reg, const struct sbx_control_node *node,
                     struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_list_text(reg), ret);
}

static int text_list_json(struct sbx_registry *reg, const struct sbx_control_node *node,
                          struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_list_json(reg), ret);
}

static int text_trash(struct sbx_registry *reg, const struct sbx_control_node *node,
                      struct text *ret)
{
	char *string = NULL;
	int r = sbx_registry_trash_text(reg, &string);

	(void)node;
	return r < 0 ? r : sbx_control_text_take(string, ret);
}

static int text_trash_json(struct sbx_registry *reg, const struct sbx_control_node *node,
                           struct text *ret)
{
	char *string = NULL;
	int r = sbx_registry_trash_json(reg, &string);

	(void)node;
	return r < 0 ? r : sbx_control_text_take(string, ret);
}

static int text_stats(struct sbx_registry *reg, const struct sbx_control_node *node,
                      struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_stats_text(reg), ret);
}

static int text_version(struct sbx_registry *reg, const struct sbx_control_node *node,
                        struct text *ret)
{
	(void)reg;
	(void)node;
	return sbx_control_text_take(strdup("sandboxfs " SBX_VERSION "\n"), ret);
}

static int text_config(struct sbx_registry *reg, const struct sbx_control_node *node,
                       struct text *ret)
{
	(void)node;
	return text_json(sbx_settings_json(sbx_registry_settings(reg)), ret);
}

static int text_error(struct sbx_registry *reg, const struct sbx_control_node *node,
                      struct text *ret)
{
	struct sbx_error err;
	const char *name;
	char *line = NULL;

	sbx_error_fetch(reg, node->box, &err);
	if (!err.code)
		return text_line(NULL, ret);
	name = strerrorname_np(err.code);
	if (asprintf(&line, "%s: %s\n", name ? name : "EIO", err.text) < 0)
		return -ENOMEM;
	return sbx_control_text_take(line, ret);
}

/* A sandbox */

static int text_info(struct sbx_registry *reg, const struct sbx_control_node *node,
                     struct text *ret)
{
	(void)reg;
	return sbx_control_text_take(sbx_box_info_json(node->box), ret);
}

static int text_policy(struct sbx_registry *reg, const struct sbx_control_node *node,
                       struct text *ret)
{
	(void)reg;
	return sbx_control_text_take(sbx_box_policy_json(node->box), ret);
}

/* Of one that is elsewhere, where it is there; nothing while that is not known, see ROW_UP. */
static int text_workdir_away(struct sbx_sandbox *sandbox, struct text *ret)
{
	struct json_object *info = json_object_new_object(), *dir = NULL;
	int r;

	sbx_sandbox_info(sandbox, info);
	json_object_object_get_ex(info, "workdir", &dir);
	r = text_line(dir ? json_object_get_string(dir) : NULL, ret);
	json_object_put(info);
	return r;
}

static int text_workdir(struct sbx_registry *reg, const struct sbx_control_node *node,
                        struct text *ret)
{
	_cleanup_free_ char *path = NULL;
	char name[64];

	if (sbx_is_away(node->box->sandbox))
		return text_workdir_away(node->box->sandbox, ret);
	if (!node->box->sandbox->tree.mounted)
		return text_line(node->box->sandbox->workdir, ret);
	sbx_box_name(node->box, name);
	if (asprintf(&path, "%s/%s", sbx_registry_settings(reg)->mountpoint, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return text_line(path, ret);
}

/* A job */

int sbx_control_text_status(struct sbx_registry *reg, const struct sbx_control_node *node,
                            struct text *ret)
{
	_cleanup_job_ struct sbx_jobrec *job = sbx_control_job(node);
	char line[SBX_STATUS_MAX];

	(void)reg;
	sbx_job_status(job, line, sizeof(line));
	return sbx_control_text_take(strdup(line), ret);
}

static int text_result(struct sbx_registry *reg, const struct sbx_control_node *node,
                       struct text *ret)
{
	(void)reg;
	return text_json(sbx_job_result(node->job), ret);
}

static int text_argv(struct sbx_registry *reg, const struct sbx_control_node *node,
                     struct text *ret)
{
	_cleanup_free_ char *argv = sbx_job_argv_json(node->job);

	(void)reg;
	return text_line(argv, ret);
}

static int text_job_cwd(struct sbx_registry *reg, const struct sbx_control_node *node,
                        struct text *ret)
{
	_cleanup_free_ char *cwd = sbx_job_cwd(node->job);

	(void)reg;
	return text_line(cwd, ret);
}

/* Streams */

/* The job of an open stdout or stderr. NAME/ctl/stdout follows the last exec at each read from 0.
 */
static struct sbx_jobrec *stream_job(struct sbx_control_handle *h, uint64_t off)
{
	struct sbx_jobrec *job;

	if (h->node.job)
		return sbx_job_ref(h->node.job);
	pthread_mutex_lock(&h->lock);
	if (off == 0 || !h->state) {
		sbx_job_unref(h->state);
		h->state = sbx_job_last_exec(h->node.box->jobs);
	}
	job = h->state ? sbx_job_ref(h->state) : NULL;
	pthread_mutex_unlock(&h->lock);
	return job;
}

static void answer(struct sbx_pending *p, const char *buf, ssize_t n)
{
	if (n < 0)
		sbx_pending_error(p, (int)-n);
	else
		sbx_pending_data(p, buf, (size_t)n);
}

static size_t part(struct sbx_pending *p)
{
	return p->size < PART_MAX ? p->size : PART_MAX;
}

static void stream_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	_cleanup_job_ struct sbx_jobrec *job = stream_job(h, off);
	_cleanup_free_ char *buf = malloc(part(p) + 1);

	if (!buf)
		answer(p, NULL, -ENOMEM);
	else if (!job)
		answer(p, buf, 0);
	else
		answer(p, buf, sbx_job_output_read(job, h->node.row->arg, buf, part(p), off));
}

static void stream_release(struct sbx_control_handle *h)
{
	sbx_job_unref(h->state);
}

static uint64_t stream_size(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	_cleanup_job_ struct sbx_jobrec *job = sbx_control_job(node);

	(void)reg;
	return job ? sbx_job_output_size(job, node->row->arg) : 0;
}

const struct control_ops sbx_control_stream_ops = {
        .read = stream_read,
        .release = stream_release,
        .size = stream_size,
};

/* Log */

static void log_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	_cleanup_free_ char *buf = malloc(part(p) + 1);

	if (!buf)
		answer(p, NULL, -ENOMEM);
	else
		answer(p, buf, sbx_log_read(h->node.box->log, buf, part(p), off));
}

static uint64_t log_size(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	(void)reg;
	return sbx_log_size(node->box->log);
}

static const struct control_ops log_ops = {.read = log_read, .size = log_size};

#define DIRECTORY(n, m, r)                                                                         \
	{                                                                                          \
		.name = (n), .mode = S_IFDIR | (m), .rows = (r)                                    \
	}
#define TEXT(n, fn)                                                                                \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0400, .text = (fn)                                  \
	}
#define TOP_FILE(n, a)                                                                             \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0400, .text = text_top_file, .arg = (a)             \
	}
#define SETTING(n, fn, o, a)                                                                       \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0600, .text = (fn), .ops = &(o), .arg = (a)         \
	}
#define READER(n, o, a, f)                                                                         \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0400, .ops = &(o), .arg = (a), .flags = (f)         \
	}
#define WRITER(n, o, f)                                                                            \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0200, .ops = &(o), .flags = (f)                     \
	}
#define REQUEST(n, o, a, f)                                                                        \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0600, .ops = &(o), .arg = (a),                      \
		.flags = ROW_WAITS | (f)                                                           \
	}
#define OPTIONS(n, a)                                                                              \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0200, .ops = &sbx_control_history_ops, .arg = (a),  \
		.flags = ROW_WAITS                                                                 \
	}
/* Of features that the backend does not have; MODE as if it had. */
#define ABSENT(n, m)                                                                               \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | (m), .ops = &sbx_control_absent_ops                 \
	}
#define END                                                                                        \
	{                                                                                          \
		.name = NULL                                                                       \
	}

static const struct sbx_control_row mount_rows[] = {
        TOP_FILE("README", 0),
        TOP_FILE("SKILL.md", 1),
        REQUEST("create", sbx_control_create_ops, 0, 0),
        WRITER("teardown", sbx_control_teardown_ops, ROW_WAITS),
        TEXT("pending", text_pending),
        TEXT("list", text_list),
        TEXT("list.json", text_list_json),
        TEXT("trash", text_trash),
        TEXT("trash.json", text_trash_json),
        TEXT("error", text_error),
        READER("events", sbx_control_events_ops, 0, 0),
        TEXT("stats", text_stats),
        TEXT("version", text_version),
        TEXT("config", text_config),
        END,
};

static const struct sbx_control_row limit_rows[] = {
        SETTING("cpu_s", sbx_control_text_limit, sbx_control_limit_ops, LIMIT_CPU),
        SETTING("memory_mb", sbx_control_text_limit, sbx_control_limit_ops, LIMIT_MEMORY),
        SETTING("procs", sbx_control_text_limit, sbx_control_limit_ops, LIMIT_PROCS),
        SETTING("file_mb", sbx_control_text_limit, sbx_control_limit_ops, LIMIT_FILE),
        SETTING("disk_mb", sbx_control_text_limit, sbx_control_limit_ops, LIMIT_DISK),
        SETTING("output_bytes", sbx_control_text_limit, sbx_control_limit_ops, LIMIT_OUTPUT),
        SETTING("jobs", sbx_control_text_limit, sbx_control_limit_ops, LIMIT_JOBS),
        END,
};

static const struct sbx_control_row job_rows[] = {
        REQUEST("exec", sbx_control_exec_ops, SBX_JOB_EXEC, ROW_NAMED),
        REQUEST("spawn", sbx_control_exec_ops, SBX_JOB_SPAWN, ROW_NAMED),
        REQUEST("run", sbx_control_exec_ops, SBX_JOB_RUN, ROW_NAMED),
        TEXT("argv", text_argv),
        TEXT("cwd", text_job_cwd),
        WRITER("stdin", sbx_control_stdin_ops, ROW_WAITS),
        READER("stdout", sbx_control_stream_ops, 1, 0),
        READER("stderr", sbx_control_stream_ops, 2, 0),
        TEXT("status", sbx_control_text_status),
        TEXT("result", text_result),
        READER("diff", sbx_control_job_diff_ops, SBX_DIFF_PATCH, ROW_TRACKED),
        READER("changes", sbx_control_job_diff_ops, SBX_DIFF_NAMES, ROW_TRACKED),
        READER("wait", sbx_control_wait_ops, 0, ROW_UNLISTED),
        WRITER("kill", sbx_control_job_kill_ops, 0),
        END,
};

static const struct sbx_control_row box_rows[] = {
        REQUEST("exec", sbx_control_exec_ops, SBX_JOB_EXEC, 0),
        REQUEST("spawn", sbx_control_exec_ops, SBX_JOB_SPAWN, 0),
        REQUEST("run", sbx_control_exec_ops, SBX_JOB_RUN, 0),
        READER("stdout", sbx_control_stream_ops, 1, 0),
        READER("stderr", sbx_control_stream_ops, 2, 0),
        TEXT("status", sbx_control_text_status),
        {.name = "jobs", .mode = S_IFDIR | 0700, .flags = ROW_JOBS, .rows = sbx_control_no_rows},
        SETTING("cwd", sbx_control_text_cwd, sbx_control_cwd_ops, 0),
        SETTING("timeout_ms", sbx_control_text_timeout, sbx_control_timeout_ops, 0),
        SETTING("env", sbx_control_text_env, sbx_control_env_ops, 0),
        DIRECTORY("limits", 0700, limit_rows),
        TEXT("policy", text_policy),
        WRITER("kill", sbx_control_kill_ops, 0),
        REQUEST("snapshot", sbx_control_history_ops, HISTORY_OP_SNAPSHOT, 0),
        {.name = "snapshots",
         .mode = S_IFDIR | 0700,
         .flags = ROW_STATES,
         .rows = sbx_control_no_rows},
        OPTIONS("restore", HISTORY_OP_RESTORE),
        OPTIONS("reset", HISTORY_OP_RESET),
        OPTIONS("undo", HISTORY_OP_UNDO),
        OPTIONS("fork", HISTORY_OP_FORK),
        READER("diff", sbx_control_diff_ops, SBX_DIFF_PATCH, 0),
        READER("changes", sbx_control_diff_ops, SBX_DIFF_NAMES, 0),
        {.name = "diffs", .mode = S_IFDIR | 0700, .flags = ROW_RANGES, .rows = sbx_control_no_rows},
        REQUEST("push", sbx_control_push_ops, 0, 0),
        WRITER("sync", sbx_control_sync_ops, ROW_WAITS),
        ABSENT("import.tar", 0200),
        ABSENT("export.tar", 0400),
        TEXT("info", text_info),
        {.name = "workdir", .mode = S_IFREG | 0400, .flags = ROW_UP, .text = text_workdir},
        READER("log", log_ops, 0, 0),
        READER("events", sbx_control_events_ops, 0, 0),
        TEXT("error", text_error),
        END,
};

const struct sbx_control_row sbx_control_mount_row = DIRECTORY(".mount", 0700, mount_rows);
const struct sbx_control_row sbx_control_box_row = DIRECTORY("", 0700, box_rows);
const struct sbx_control_row sbx_control_job_row = DIRECTORY("", 0700, job_rows);
const struct sbx_control_row sbx_control_last_row = {.name = "last", .mode = S_IFLNK | 0777};
