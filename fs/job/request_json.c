/*
 * One table per kind of object: key, and what takes its value. Strings need no check for NUL
 * bytes, as sbx_json_feed() lets none through.
 */
#include "fs/job/request_json.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/strv.h"
#include "fs/util/json.h"
#include "fs/util/nearest.h"
#include "sandboxfs/cleanup.h"

struct request_key {
	const char *name;
	int (*take)(struct sbx_request *req, struct json_object *value, struct sbx_error *err);
};

static int no_memory(struct sbx_error *err)
{
	return sbx_fail(err, ENOMEM, "out of memory");
}

static int take_string(struct json_object *value, const char *key, char **ret,
                       struct sbx_error *err)
{
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"%s\" must be a string", key);
	*ret = strdup(json_object_get_string(value));
	return *ret ? 0 : no_memory(err);
}

static int take_argv(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	struct sbx_strings argv = {0};
	int r = 0;

	if (!json_object_is_type(value, json_type_array))
		return sbx_fail(err, EINVAL, "\"argv\" must be an array of strings");
	for (size_t i = 0; !r && i < json_object_array_length(value); i++) {
		struct json_object *arg = json_object_array_get_idx(value, i);

		if (!json_object_is_type(arg, json_type_string))
			r = sbx_fail(err, EINVAL, "\"argv\" must be an array of strings");
		else if (sbx_strings_add(&argv, json_object_get_string(arg),
		                         (size_t)json_object_get_string_len(arg)) < 0)
			r = no_memory(err);
	}
	req->argv = argv.items;
	return r;
}

static int take_cwd(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	req->set |= SBX_REQ_CWD;
	return take_string(value, "cwd", &req->cwd, err);
}

static int add_env(struct sbx_strings *env, const char *key, struct json_object *value,
                   struct sbx_error *err)
{
	_cleanup_free_ char *pair = NULL;
	int r = sbx_env_key_check(key, strlen(key), err);

	if (r < 0)
		return r;
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"env\" must be an object of strings: \"%.*s\"",
		                sbx_clip(key, strlen(key)), key);
	if (asprintf(&pair, "%s=%s", key, json_object_get_string(value)) < 0) {
		pair = NULL;
		return no_memory(err);
	}
	return sbx_strings_add(env, pair, strlen(pair)) < 0 ? no_memory(err) : 0;
}

static int take_env(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	struct sbx_strings env = {0};
	int r = 0;

	if (!json_object_is_type(value, json_type_object))
		return sbx_fail(err, EINVAL, "\"env\" must be an object of strings");
	json_object_object_foreach(value, key, one)
	{
		r = add_env(&env, key, one, err);
		if (r < 0)
			break;
	}
	req->env = env.items;
	return r;
}

static int take_timeout(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	req->set |= SBX_REQ_TIMEOUT;
	return sbx_json_number(value, "timeout_ms", &req->timeout_ms, err);
}

static int take_stdin(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	req->set |= SBX_REQ_STDIN;
	if (!value)
		return 0;
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"stdin\" must be a string or null");
	req->stdin_len = (size_t)json_object_get_string_len(value);
	return take_string(value, "stdin", &req->stdin_data, err);
}

static int take_limit(struct sbx_request *req, const char *key, struct json_object *value,
                      struct sbx_error *err)
{
	static const struct {
		const char *name;
		unsigned bit;
		size_t offset;
	} keys[] = {
	        {"cpu_s", SBX_REQ_CPU, offsetof(struct sbx_limits, cpu_s)},
	        {"memory_mb", SBX_REQ_MEMORY, offsetof(struct sbx_limits, memory_mb)},
	        {"procs", SBX_REQ_PROCS, offsetof(struct sbx_limits, procs)},
	        {"file_mb", SBX_REQ_FILE, offsetof(struct sbx_limits, file_mb)},
	        {"disk_mb", SBX_REQ_DISK, offsetof(struct sbx_limits, disk_mb)},
	        {"output_bytes", SBX_REQ_OUTPUT, offsetof(struct sbx_limits, output_bytes)},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i].name, key) != 0)
			continue;
		req->set |= keys[i].bit;
		return sbx_json_number(value, key,
		                       (uint64_t *)(void *)((char *)&req->limits + keys[i].offset),
		                       err);
	}
	if (strcmp(key, "jobs") == 0)
		return sbx_fail(err, EINVAL,
		                "\"jobs\" is a limit of the sandbox, not of one request");
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

static int take_limits(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	if (!json_object_is_type(value, json_type_object))
		return sbx_fail(err, EINVAL, "\"limits\" must be an object of integers");
	json_object_object_foreach(value, key, one)
	{
		int r = take_limit(req, key, one, err);

		if (r < 0)
			return r;
	}
	return 0;
}

static int take_id(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	int r = take_string(value, "id", &req->id, err);

	return r < 0 ? r : sbx_job_id_check(req->id, err);
}

static int take_tty(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	(void)req;
	if (value && !json_object_is_type(value, json_type_boolean))
		return sbx_fail(err, EINVAL, "\"tty\" must be true, false or null");
	if (value && json_object_get_boolean(value))
		return sbx_fail(err, EOPNOTSUPP, "a terminal cannot be given to a command yet");
	return 0;
}

static int take_member(struct sbx_request *req, const char *key, struct json_object *value,
                       struct sbx_error *err)
{
	static const struct request_key keys[] = {
	        {"argv", take_argv},
	        {"cwd", take_cwd},
	        {"env", take_env},
	        {"id", take_id},
	        {"limits", take_limits},
	        {"stdin", take_stdin},
	        {"timeout_ms", take_timeout},
	        {"tty", take_tty},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, key) == 0)
			return keys[i].take(req, value, err);
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

int sbx_request_from_json(struct json_object *obj, struct sbx_request *ret, struct sbx_error *err)
{
	if (json_object_is_type(obj, json_type_array))
		return take_argv(ret, obj, err);
	json_object_object_foreach(obj, key, value)
	{
		int r = take_member(ret, key, value, err);

		if (r < 0)
			return r;
	}
	if (!json_object_object_get_ex(obj, "argv", NULL))
		return sbx_fail(err, EINVAL, "\"argv\" is missing");
	return 0;
}

static int take_create_member(struct sbx_create_request *req, const char *key,
                              struct json_object *value, struct sbx_error *err)
{
	const struct {
		const char *name;
		char **place;
	} keys[] = {
	        {"name", &req->name},
	        {"backend", &req->backend},
	        {"repo", &req->repo},
	        {"base", &req->base},
	        {"branch", &req->branch},
	        {"from", &req->from},
	        {"branch_exists", &req->branch_exists},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, key) == 0)
			return take_string(value, key, keys[i].place, err);
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

int sbx_create_from_json(struct json_object *obj, struct sbx_create_request *ret,
                         struct sbx_error *err)
{
	if (!json_object_is_type(obj, json_type_object))
		return sbx_fail(err, EINVAL, "a create request is a JSON object or a bare name");
	json_object_object_foreach(obj, key, value)
	{
		int r = take_create_member(ret, key, value, err);

		if (r < 0)
			return r;
	}
	if (!ret->name || !*ret->name)
		return sbx_fail(err, EINVAL, "\"name\" is missing");
	return 0;
}

static int take_push_member(struct sbx_push_request *req, const char *key,
                            struct json_object *value, struct sbx_error *err)
{
	const struct {
		const char *name;
		char **place;
	} keys[] = {
	        {"pr", NULL},
	        {"remote", &req->remote},
	        {"title", &req->title},
	        {"intent", &req->intent},
	        {"blueprint", &req->blueprint},
	        {"run", &req->run},
	};

	if (strcmp(key, keys[0].name) == 0) {
		if (!json_object_is_type(value, json_type_boolean))
			return sbx_fail(err, EINVAL, "\"pr\" must be true or false");
		req->pr = json_object_get_boolean(value);
		return 0;
	}
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, key) == 0)
			return take_string(value, key, keys[i].place, err);
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

int sbx_push_from_json(struct json_object *obj, struct sbx_push_request *ret, struct sbx_error *err)
{
	if (!json_object_is_type(obj, json_type_object))
		return sbx_fail(err, EINVAL, "a push request is a JSON object or an empty line");
	json_object_object_foreach(obj, key, value)
	{
		int r = take_push_member(ret, key, value, err);

		if (r < 0)
			return r;
	}
	return 0;
}
