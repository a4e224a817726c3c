/*
 * The control files, one row each. What a row's file does is behind its text function (a file
 * that is read) and its operations (one that is written, or waits).
 */
#include "fs/control/control_impl.h"

#define DIRECTORY(n, m, r)                                                                         \
	{                                                                                          \
		.name = (n), .mode = S_IFDIR | (m), .rows = (r)                                    \
	}
#define TEXT(n, fn)                                                                                \
	{                                                                                          \
		.name = (n), .mode = S_IFREG | 0400, .text = (fn)                                  \
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
#define WISH(n, a)                                                                                 \
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
        TEXT("README", sbx_control_text_readme),
        REQUEST("create", sbx_control_create_ops, 0, 0),
        WRITER("teardown", sbx_control_teardown_ops, ROW_WAITS),
        TEXT("pending", sbx_control_text_pending),
        TEXT("list", sbx_control_text_list),
        TEXT("list.json", sbx_control_text_list_json),
        TEXT("trash", sbx_control_text_trash),
        TEXT("trash.json", sbx_control_text_trash_json),
        TEXT("error", sbx_control_text_error),
        READER("events", sbx_control_events_ops, 0, 0),
        TEXT("stats", sbx_control_text_stats),
        TEXT("version", sbx_control_text_version),
        TEXT("config", sbx_control_text_config),
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
        TEXT("argv", sbx_control_text_argv),
        TEXT("cwd", sbx_control_text_job_cwd),
        WRITER("stdin", sbx_control_stdin_ops, ROW_WAITS),
        READER("stdout", sbx_control_stream_ops, 1, 0),
        READER("stderr", sbx_control_stream_ops, 2, 0),
        TEXT("status", sbx_control_text_status),
        TEXT("result", sbx_control_text_result),
        READER("diff", sbx_control_job_diff_ops, SBX_DIFF_PATCH, ROW_TRACKED),
        READER("changes", sbx_control_job_diff_ops, SBX_DIFF_NAMES, ROW_TRACKED),
        READER("wait", sbx_control_wait_ops, 0, ROW_UNLISTED),
        WRITER("kill", sbx_control_job_kill_ops, 0),
        END,
};

/* Of directories whose entries come from elsewhere, or that are empty. */
static const struct sbx_control_row no_rows[] = {END};

static const struct sbx_control_row box_rows[] = {
        REQUEST("exec", sbx_control_exec_ops, SBX_JOB_EXEC, 0),
        REQUEST("spawn", sbx_control_exec_ops, SBX_JOB_SPAWN, 0),
        REQUEST("run", sbx_control_exec_ops, SBX_JOB_RUN, 0),
        READER("stdout", sbx_control_stream_ops, 1, 0),
        READER("stderr", sbx_control_stream_ops, 2, 0),
        TEXT("status", sbx_control_text_status),
        {.name = "jobs", .mode = S_IFDIR | 0700, .flags = ROW_JOBS, .rows = no_rows},
        SETTING("cwd", sbx_control_text_cwd, sbx_control_cwd_ops, 0),
        SETTING("timeout_ms", sbx_control_text_timeout, sbx_control_timeout_ops, 0),
        SETTING("env", sbx_control_text_env, sbx_control_env_ops, 0),
        DIRECTORY("limits", 0700, limit_rows),
        TEXT("policy", sbx_control_text_policy),
        WRITER("kill", sbx_control_kill_ops, 0),
        REQUEST("snapshot", sbx_control_history_ops, DEED_SNAPSHOT, 0),
        {.name = "snapshots", .mode = S_IFDIR | 0700, .flags = ROW_STATES, .rows = no_rows},
        WISH("restore", DEED_RESTORE),
        WISH("reset", DEED_RESET),
        WISH("undo", DEED_UNDO),
        WISH("fork", DEED_FORK),
        READER("diff", sbx_control_diff_ops, SBX_DIFF_PATCH, 0),
        READER("changes", sbx_control_diff_ops, SBX_DIFF_NAMES, 0),
        {.name = "diffs", .mode = S_IFDIR | 0700, .flags = ROW_RANGES, .rows = no_rows},
        REQUEST("push", sbx_control_push_ops, 0, 0),
        ABSENT("import.tar", 0200),
        ABSENT("export.tar", 0400),
        TEXT("info", sbx_control_text_info),
        TEXT("workdir", sbx_control_text_workdir),
        READER("log", sbx_control_log_ops, 0, 0),
        READER("events", sbx_control_events_ops, 0, 0),
        TEXT("error", sbx_control_text_error),
        END,
};

const struct sbx_control_row sbx_control_root_row = DIRECTORY("", 0700, no_rows);
const struct sbx_control_row sbx_control_mount_row = DIRECTORY(".mount", 0700, mount_rows);
const struct sbx_control_row sbx_control_box_row = DIRECTORY("", 0700, box_rows);
const struct sbx_control_row sbx_control_job_row = DIRECTORY("", 0700, job_rows);
const struct sbx_control_row sbx_control_last_row = {.name = "last", .mode = S_IFLNK | 0777};
const struct sbx_control_row sbx_control_tree_row = {
        .name = "", .mode = S_IFDIR | 0755, .flags = ROW_TREE, .rows = no_rows};
const struct sbx_control_row sbx_control_file_row = {
        .name = "", .mode = S_IFREG | 0444, .ops = &sbx_control_content_ops};
const struct sbx_control_row sbx_control_program_row = {
        .name = "", .mode = S_IFREG | 0555, .ops = &sbx_control_content_ops};
const struct sbx_control_row sbx_control_link_row = {.name = "", .mode = S_IFLNK | 0777};
/*
 * Of a private buffer. Before they save, vim and its kin make a file beside it, and where that has another mode than the
 * file they write in place instead of renaming the control out of the way: so no control has this mode.
 */
const struct sbx_control_row sbx_control_buffer_row = {
        .name = "", .mode = S_IFREG | 0700, .ops = &sbx_control_buffer_ops};
const struct sbx_control_row sbx_control_range_row =
        READER("", sbx_control_range_ops, SBX_DIFF_PATCH, 0);
const struct sbx_control_row sbx_control_range_names_row =
        READER("", sbx_control_range_ops, SBX_DIFF_NAMES, 0);
