/*
 * Control files that are read at an offset: texts generated on the spot, and the kept output
 * and log, which are read where they lie because they may be large.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/config/options.h"
#include "fs/control/control_impl.h"
#include "fs/sandbox/registry.h"
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

int sbx_control_text_readme(struct sbx_registry *reg, const struct sbx_control_node *node,
                            struct text *ret)
{
	(void)reg;
	(void)node;
	return sbx_control_text_take(strdup(sbx_readme), ret);
}

int sbx_control_text_pending(struct sbx_registry *reg, const struct sbx_control_node *node,
                             struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_pending_text(reg), ret);
}

int sbx_control_text_list(struct sbx_registry *reg, const struct sbx_control_node *node,
                          struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_list_text(reg), ret);
}

int sbx_control_text_list_json(struct sbx_registry *reg, const struct sbx_control_node *node,
                               struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_list_json(reg), ret);
}

int sbx_control_text_trash(struct sbx_registry *reg, const struct sbx_control_node *node,
                           struct text *ret)
{
	char *string = NULL;
	int r = sbx_registry_trash_text(reg, &string);

	(void)node;
	return r < 0 ? r : sbx_control_text_take(string, ret);
}

int sbx_control_text_trash_json(struct sbx_registry *reg, const struct sbx_control_node *node,
                                struct text *ret)
{
	char *string = NULL;
	int r = sbx_registry_trash_json(reg, &string);

	(void)node;
	return r < 0 ? r : sbx_control_text_take(string, ret);
}

int sbx_control_text_stats(struct sbx_registry *reg, const struct sbx_control_node *node,
                           struct text *ret)
{
	(void)node;
	return sbx_control_text_take(sbx_registry_stats_text(reg), ret);
}

int sbx_control_text_version(struct sbx_registry *reg, const struct sbx_control_node *node,
                             struct text *ret)
{
	(void)reg;
	(void)node;
	return sbx_control_text_take(strdup("sandboxfs " SBX_VERSION "\n"), ret);
}

int sbx_control_text_config(struct sbx_registry *reg, const struct sbx_control_node *node,
                            struct text *ret)
{
	(void)node;
	return text_json(sbx_settings_json(sbx_registry_settings(reg)), ret);
}

int sbx_control_text_error(struct sbx_registry *reg, const struct sbx_control_node *node,
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

int sbx_control_text_info(struct sbx_registry *reg, const struct sbx_control_node *node,
                          struct text *ret)
{
	(void)reg;
	return sbx_control_text_take(sbx_box_info_json(node->box), ret);
}

int sbx_control_text_policy(struct sbx_registry *reg, const struct sbx_control_node *node,
                            struct text *ret)
{
	(void)reg;
	return sbx_control_text_take(sbx_box_policy_json(node->box), ret);
}

int sbx_control_text_workdir(struct sbx_registry *reg, const struct sbx_control_node *node,
                             struct text *ret)
{
	_cleanup_free_ char *path = NULL;
	char name[64];

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

int sbx_control_text_result(struct sbx_registry *reg, const struct sbx_control_node *node,
                            struct text *ret)
{
	(void)reg;
	return text_json(sbx_job_result(node->job), ret);
}

int sbx_control_text_argv(struct sbx_registry *reg, const struct sbx_control_node *node,
                          struct text *ret)
{
	_cleanup_free_ char *argv = sbx_job_argv_json(node->job);

	(void)reg;
	return text_line(argv, ret);
}

int sbx_control_text_job_cwd(struct sbx_registry *reg, const struct sbx_control_node *node,
                             struct text *ret)
{
	_cleanup_free_ char *cwd = sbx_job_cwd(node->job);

	(void)reg;
	return text_line(cwd, ret);
}

/* Streams */

/* The job of an open stdout or stderr. NAME/ctl/stdout follows the last exec at each read from 0. */
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

const struct control_ops sbx_control_log_ops = {.read = log_read, .size = log_size};
