/*
 * The defaults of the next requests as files, in the way of sysfs: one value and a
 * newline, each write sets it. env is a list and may come in pieces; see below.
 */
#include "fs/control/setting_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/request_file.h"
#include "fs/job/job_table.h"
#include "fs/job/plan.h"
#include "sandboxfs/cleanup.h"

#define ENV_MAX (1024 * 1024) /* bytes of the whole list */

#define _cleanup_defaults_ _cleanup_(sbx_job_defaults_release)

/* BUF as a string without its final newline. */
static int value_of(struct sbx_control_handle *h, const char *buf, size_t len, char **ret,
                    struct sbx_error *err)
{
	if (len && buf[len - 1] == '\n')
		len--;
	if (len > 4096)
		return sbx_fail(err, E2BIG, "a value of %s is at most 4096 bytes long",
		                h->node.row->name);
	if (memchr(buf, '\0', len) || memchr(buf, '\n', len))
		return sbx_fail(err, EINVAL, "%s holds one value on one line", h->node.row->name);
	*ret = strndup(buf, len);
	return *ret ? 0 : sbx_no_memory(err);
}

/* A number; nothing at all is 0, which means none. */
static int number_of(struct sbx_control_handle *h, const char *buf, size_t len, uint64_t *ret,
                     struct sbx_error *err)
{
	_cleanup_free_ char *value = NULL;
	const char *digits;
	size_t n;
	int r = value_of(h, buf, len, &value, err);

	if (r < 0)
		return r;
	digits = value + strspn(value, " \t");
	n = strspn(digits, "0123456789");
	if (digits[n + strspn(digits + n, " \t\r")] || n > 15 ||
	    strtoull(digits, NULL, 10) > SBX_NUMBER_MAX)
		return sbx_fail(err, EINVAL, "%s takes a number, or nothing for no limit",
		                h->node.row->name);
	*ret = n ? strtoull(digits, NULL, 10) : 0;
	return 0;
}

/* cwd */

int sbx_control_text_cwd(struct sbx_registry *reg, const struct sbx_control_node *node,
                         struct text *ret)
{
	_cleanup_defaults_ struct sbx_job_defaults d = {0};
	char *line = NULL;
	int r = sbx_jobs_get_defaults(node->box->jobs, &d);

	(void)reg;
	if (r < 0)
		return r;
	return asprintf(&line, "%s\n", d.cwd && *d.cwd ? d.cwd : ".") < 0
	               ? -ENOMEM
	               : sbx_control_text_take(line, ret);
}

static int cwd_set(struct sbx_control_handle *h, const char *buf, size_t len, struct sbx_error *err)
{
	_cleanup_free_ char *value = NULL;
	int r = value_of(h, buf, len, &value, err);

	return r < 0 ? r : sbx_jobs_set_cwd(h->node.box->jobs, value, err);
}

const struct control_ops sbx_control_cwd_ops = {.set = cwd_set};

/* timeout_ms */

int sbx_control_text_timeout(struct sbx_registry *reg, const struct sbx_control_node *node,
                             struct text *ret)
{
	_cleanup_defaults_ struct sbx_job_defaults d = {0};
	char *line = NULL;
	int r = sbx_jobs_get_defaults(node->box->jobs, &d);

	(void)reg;
	if (r < 0)
		return r;
	return asprintf(&line, "%llu\n", (unsigned long long)d.timeout_ms) < 0
	               ? -ENOMEM
	               : sbx_control_text_take(line, ret);
}

static int timeout_set(struct sbx_control_handle *h, const char *buf, size_t len,
                       struct sbx_error *err)
{
	uint64_t value = 0;
	int r = number_of(h, buf, len, &value, err);

	if (r >= 0)
		sbx_jobs_set_timeout(h->node.box->jobs, value);
	return r;
}

const struct control_ops sbx_control_timeout_ops = {.set = timeout_set};

/* limits/ */

static uint64_t *limit_of(struct sbx_limits *limits, int which)
{
	uint64_t *const members[] = {
	        [LIMIT_CPU] = &limits->cpu_s,    [LIMIT_MEMORY] = &limits->memory_mb,
	        [LIMIT_PROCS] = &limits->procs,  [LIMIT_FILE] = &limits->file_mb,
	        [LIMIT_DISK] = &limits->disk_mb, [LIMIT_OUTPUT] = &limits->output_bytes,
	        [LIMIT_JOBS] = &limits->jobs,
	};

	return members[which];
}

int sbx_control_text_limit(struct sbx_registry *reg, const struct sbx_control_node *node,
                           struct text *ret)
{
	_cleanup_defaults_ struct sbx_job_defaults d = {0};
	char *line = NULL;
	uint64_t value;
	int r = sbx_jobs_get_defaults(node->box->jobs, &d);

	(void)reg;
	if (r < 0)
		return r;
	value = *limit_of(&d.limits, node->row->arg);
	if (!value)
		return sbx_control_text_take(strdup(""), ret);
	return asprintf(&line, "%llu\n", (unsigned long long)value) < 0
	               ? -ENOMEM
	               : sbx_control_text_take(line, ret);
}

/* The one limit that is the tree's and not the next command's. */
static int set_disk(struct sbx_box *box, uint64_t before, uint64_t value, struct sbx_error *err)
{
	return value == before ? 0 : sbx_sandbox_resize(box->sandbox, value, err);
}

static int limit_set(struct sbx_control_handle *h, const char *buf, size_t len,
                     struct sbx_error *err)
{
	_cleanup_defaults_ struct sbx_job_defaults d = {0};
	struct sbx_box *box = h->node.box;
	uint64_t value = 0, disk_mb;
	int r = number_of(h, buf, len, &value, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&box->defaults_lock);
	r = sbx_jobs_get_defaults(box->jobs, &d);
	if (r < 0)
		sbx_no_memory(err);
	disk_mb = d.limits.disk_mb;
	if (r >= 0) {
		*limit_of(&d.limits, h->node.row->arg) = value;
		d.limits =
		        sbx_limits_clamp(&d.limits, &sbx_registry_settings(box->registry)->limits);
		r = set_disk(box, disk_mb, d.limits.disk_mb, err);
	}
	if (r >= 0)
		sbx_jobs_set_limits(box->jobs, &d.limits);
	pthread_mutex_unlock(&box->defaults_lock);
	return r;
}

const struct control_ops sbx_control_limit_ops = {.set = limit_set};

/*
 * env. What is written to one open file accumulates: complete lines apply at once, the rest at the
 * next flush. The first of them replaces the list, unless the file was opened with O_APPEND. A
 * write with a bad line changes nothing.
 */

struct env_file {
	char *rest; /* the beginning of a line; under the file's lock */
	size_t len;
	bool adding;
};

/* A list of KEY=VALUE, ended by NULL. */
struct env {
	char **items;
	size_t n, bytes;
};

static void env_release(struct env *env)
{
	for (size_t i = 0; i < env->n; i++)
		free(env->items[i]);
	free(env->items);
}

/* Takes over ITEM; a variable that is there already gets the new value. */
static int env_add(struct env *env, char *item)
{
	size_t key = strcspn(item, "=") + 1;
	char **items;

	env->bytes += strlen(item) + 1;
	for (size_t i = 0; i < env->n; i++) {
		if (strncmp(env->items[i], item, key) == 0) {
			env->bytes -= strlen(env->items[i]) + 1;
			free(env->items[i]);
			env->items[i] = item;
			return 0;
		}
	}
	items = realloc(env->items, (env->n + 2) * sizeof(*items));
	if (!items) {
		free(item);
		return -ENOMEM;
	}
	items[env->n] = item;
	items[++env->n] = NULL;
	env->items = items;
	return 0;
}

static int env_add_line(struct env *env, const char *line, size_t len, struct sbx_error *err)
{
	const char *equals = memchr(line, '=', len);
	char *item;
	int r;

	if (len == 0)
		return 0;
	if (!equals)
		return sbx_fail(err, EINVAL, "a line of env is KEY=VALUE, not \"%.*s\"",
		                (int)(len < 100 ? len : 100), line);
	r = sbx_env_key_check(line, (size_t)(equals - line), err);
	if (r < 0)
		return r;
	if (memchr(line, '\0', len))
		return sbx_fail(err, EINVAL, "the value of %.*s holds a NUL byte",
		                (int)(equals - line), line);
	item = strndup(line, len);
	if (!item || env_add(env, item) < 0)
		return sbx_no_memory(err);
	if (env->bytes > ENV_MAX)
		return sbx_fail(err, E2BIG, "the environment is larger than 1 MiB");
	return 0;
}

/* The lines of TEXT into ENV. Returns what is left after the last newline, or NULL. */
static int env_add_lines(struct env *env, const char *text, size_t len, size_t *rest,
                         struct sbx_error *err)
{
	size_t at = 0;
	const char *end;

	while ((end = memchr(text + at, '\n', len - at))) {
		int r = env_add_line(env, text + at, (size_t)(end - text) - at, err);

		if (r < 0)
			return r;
		at = (size_t)(end - text) + 1;
	}
	*rest = len - at;
	return 0;
}

static int env_present(struct sbx_box *box, struct env *env, struct sbx_error *err)
{
	_cleanup_defaults_ struct sbx_job_defaults d = {0};

	if (sbx_jobs_get_defaults(box->jobs, &d) < 0)
		return sbx_no_memory(err);
	for (char **item = d.env; item && *item; item++) {
		char *copy = strdup(*item);

		if (!copy || env_add(env, copy) < 0)
			return sbx_no_memory(err);
	}
	return 0;
}

/* Applies the complete lines of TEXT; all or nothing. */
static int env_apply(struct sbx_control_handle *h, const char *text, size_t len, size_t *rest,
                     struct sbx_error *err)
{
	_cleanup_(env_release) struct env env = {0};
	struct env_file *f = h->state;
	struct sbx_box *box = h->node.box;
	int r = 0;

	*rest = len;
	if (!memchr(text, '\n', len))
		return 0;
	pthread_mutex_lock(&box->defaults_lock);
	if (f->adding)
		r = env_present(box, &env, err);
	if (r >= 0)
		r = env_add_lines(&env, text, len, rest, err);
	if (r >= 0)
		r = sbx_jobs_set_env(box->jobs, env.items, err);
	pthread_mutex_unlock(&box->defaults_lock);
	if (r >= 0)
		f->adding = true;
	return r;
}

/* The lock is held. */
static int env_more(struct sbx_control_handle *h, const char *buf, size_t len,
                    struct sbx_error *err)
{
	struct env_file *f = h->state;
	_cleanup_free_ char *text = malloc(f->len + len + 1);
	size_t rest;
	char *kept;
	int r;

	if (f->len + len > ENV_MAX)
		return sbx_fail(err, E2BIG, "the environment is larger than 1 MiB");
	if (!text)
		return sbx_no_memory(err);
	if (f->len)
		memcpy(text, f->rest, f->len);
	memcpy(text + f->len, buf, len);
	len += f->len;
	r = env_apply(h, text, len, &rest, err);
	if (r < 0)
		return r;
	kept = malloc(rest + 1);
	if (!kept)
		return sbx_no_memory(err);
	memcpy(kept, text + len - rest, rest);
	free(f->rest);
	f->rest = kept;
	f->len = rest;
	return 0;
}

static int env_set(struct sbx_control_handle *h, const char *buf, size_t len, struct sbx_error *err)
{
	int r;

	pthread_mutex_lock(&h->lock);
	r = env_more(h, buf, len, err);
	pthread_mutex_unlock(&h->lock);
	return r;
}

static bool env_unfinished(struct sbx_control_handle *h)
{
	struct env_file *f = h->state;

	return f->len > 0;
}

static int env_flush(struct sbx_control_handle *h, bool broken, struct sbx_error *err)
{
	struct env_file *f = h->state;
	int r = 0;

	pthread_mutex_lock(&h->lock);
	if (f->len)
		r = broken ? sbx_request_file_broken(err) : env_more(h, "\n", 1, err);
	if (r < 0)
		f->len = 0;
	pthread_mutex_unlock(&h->lock);
	return r;
}

static int env_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	struct env_file *f = calloc(1, sizeof(*f));

	if (!f)
		return sbx_no_memory(err);
	f->adding = h->flags & O_APPEND;
	h->state = f;
	return 0;
}

static void env_close(struct sbx_control_handle *h)
{
	struct env_file *f = h->state;

	free(f->rest);
	free(f);
}

static int env_truncate(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	int r;

	(void)reg;
	pthread_mutex_lock(&node->box->defaults_lock);
	r = sbx_jobs_set_env(node->box->jobs, NULL, NULL);
	pthread_mutex_unlock(&node->box->defaults_lock);
	return r;
}

int sbx_control_text_env(struct sbx_registry *reg, const struct sbx_control_node *node,
                         struct text *ret)
{
	_cleanup_defaults_ struct sbx_job_defaults d = {0};
	char *string = NULL;
	size_t size;
	FILE *out;
	int r = sbx_jobs_get_defaults(node->box->jobs, &d);

	(void)reg;
	if (r < 0)
		return r;
	out = open_memstream(&string, &size);
	if (!out)
		return -ENOMEM;
	for (char **item = d.env; item && *item; item++)
		fprintf(out, "%s\n", *item);
	fclose(out);
	return sbx_control_text_take(string, ret);
}

const struct control_ops sbx_control_env_ops = {
        .open = env_open,
        .release = env_close,
        .set = env_set,
        .flush = env_flush,
        .unfinished = env_unfinished,
        .truncate = env_truncate,
};
