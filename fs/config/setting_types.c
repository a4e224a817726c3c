/*
 * All kinds but lists and maps take their JSON value through the text form of -o, so the two ways
 * in cannot differ in what they allow.
 */
#include "fs/config/setting_types.h"

#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/strv.h"
#include "fs/job/request.h"
#include "fs/net/host_rules.h"
#include "fs/util/json.h"
#include "sandboxfs/cleanup.h"

static int no_memory(struct sbx_error *err)
{
	return sbx_fail(err, ENOMEM, "out of memory");
}

int sbx_find_word(const char *words, const char *value)
{
	size_t len = strlen(value);
	int i = 0;

	for (const char *w = words;; w++, i++) {
		size_t n = strcspn(w, "|");

		if (n == len && strncmp(w, value, n) == 0)
			return i;
		w += n;
		if (!*w)
			return -1;
	}
}

static int check(const struct sbx_key *key, const char *value, struct sbx_error *err)
{
	if (!value || !*value)
		return sbx_fail(err, EINVAL, "\"%s\" needs a value", key->name);
	return key->check ? key->check(key, value, err) : 0;
}

/* Strings and words */

static int set_text(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                    struct sbx_error *err)
{
	char **p = sbx_key_place(s, key), *copy;
	int r = check(key, value, err);

	if (r < 0)
		return r;
	if (key->words && sbx_find_word(key->words, value) < 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be one of %s", key->name, key->words);
	copy = strdup(value);
	if (!copy)
		return no_memory(err);
	free(*p);
	*p = copy;
	return 0;
}

static int load_text(struct sbx_settings *s, const struct sbx_key *key, struct json_object *value,
                     struct sbx_error *err)
{
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"%s\" must be a string", key->name);
	return key->kind->set(s, key, json_object_get_string(value), err);
}

static struct json_object *show_text(const struct sbx_settings *s, const struct sbx_key *key)
{
	char **p = sbx_key_place(s, key);

	return *p ? json_object_new_string(*p) : NULL;
}

/* Flags: on and off, or the two words of the row */

static int set_flag(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                    struct sbx_error *err)
{
	const char *words = key->words ? key->words : "off|on|false|true|0|1";
	int i = value ? sbx_find_word(words, value) : 1;

	if (i < 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be one of %s", key->name, words);
	*(bool *)sbx_key_place(s, key) = i & 1;
	return 0;
}

static int load_flag(struct sbx_settings *s, const struct sbx_key *key, struct json_object *value,
                     struct sbx_error *err)
{
	if (key->words)
		return load_text(s, key, value, err);
	if (!json_object_is_type(value, json_type_boolean))
		return sbx_fail(err, EINVAL, "\"%s\" must be true or false", key->name);
	return set_flag(s, key, json_object_get_boolean(value) ? "true" : "false", err);
}

static struct json_object *show_flag(const struct sbx_settings *s, const struct sbx_key *key)
{
	bool on = *(bool *)sbx_key_place(s, key);
	int off_len;

	if (!key->words)
		return json_object_new_boolean(on);
	off_len = (int)strcspn(key->words, "|");
	return on ? json_object_new_string(key->words + off_len + 1)
	          : json_object_new_string_len(key->words, off_len);
}

/* Numbers */

static int set_number(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                      struct sbx_error *err)
{
	uint64_t n = 0;
	int r = check(key, value, err);

	/* The word for none. */
	if (!r && key->words && strcmp(value, key->words) == 0)
		value = "0";
	for (const char *c = value; !r && *c; c++) {
		if (!isdigit((unsigned char)*c))
			return sbx_fail(err, EINVAL, "\"%s\" must be an integer, 0 or more",
			                key->name);
		n = n * 10 + (uint64_t)(*c - '0');
		if (n > SBX_NUMBER_MAX)
			return sbx_fail(err, EINVAL, "\"%s\" is too large", key->name);
	}
	if (!r)
		*(uint64_t *)sbx_key_place(s, key) = n;
	return r;
}

static int load_number(struct sbx_settings *s, const struct sbx_key *key, struct json_object *value,
                       struct sbx_error *err)
{
	if (key->words && json_object_is_type(value, json_type_string))
		return set_number(s, key, json_object_get_string(value), err);
	return sbx_json_number(value, key->name, sbx_key_place(s, key), err);
}

static struct json_object *show_number(const struct sbx_settings *s, const struct sbx_key *key)
{
	return json_object_new_uint64(*(uint64_t *)sbx_key_place(s, key));
}

/* Lists: ':' between items in -o, an array in JSON */

static int add_item(struct sbx_settings *s, const struct sbx_key *key, const char *item,
                    struct sbx_error *err)
{
	int r = check(key, item, err);

	if (r < 0)
		return r;
	return sbx_strings_add(sbx_key_place(s, key), item, strlen(item)) < 0 ? no_memory(err) : 0;
}

static int set_list(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                    struct sbx_error *err)
{
	int r = 0;

	do {
		size_t n = value ? strcspn(value, ":") : 0;
		_cleanup_free_ char *item = strndup(value ? value : "", n);

		r = item ? add_item(s, key, item, err) : no_memory(err);
		value = value && value[n] ? value + n + 1 : NULL;
	} while (!r && value);
	return r;
}

static int load_list(struct sbx_settings *s, const struct sbx_key *key, struct json_object *value,
                     struct sbx_error *err)
{
	int r = 0;

	if (!json_object_is_type(value, json_type_array))
		return sbx_fail(err, EINVAL, "\"%s\" must be an array of strings", key->name);
	for (size_t i = 0; !r && i < json_object_array_length(value); i++) {
		struct json_object *item = json_object_array_get_idx(value, i);

		if (!json_object_is_type(item, json_type_string))
			return sbx_fail(err, EINVAL, "\"%s\" must be an array of strings",
			                key->name);
		r = add_item(s, key, json_object_get_string(item), err);
	}
	return r;
}

static struct json_object *show_list(const struct sbx_settings *s, const struct sbx_key *key)
{
	const struct sbx_strings *list = sbx_key_place(s, key);
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < list->n; i++)
		json_object_array_add(array, json_object_new_string(list->items[i]));
	return array;
}

/* Environment: KEY=VALUE in -o, an object in JSON; a key that is given again replaces the first */

static int set_env(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                   struct sbx_error *err)
{
	struct sbx_strings *env = sbx_key_place(s, key);
	size_t len = value ? strcspn(value, "=") : 0;
	char *copy;
	int r = check(key, value, err);

	if (!r)
		r = sbx_env_key_check(value, len, err);
	if (r < 0)
		return r;
	if (!value[len])
		return sbx_fail(err, EINVAL, "\"env\" must be KEY=VALUE");
	for (size_t i = 0; i < env->n; i++) {
		if (strncmp(env->items[i], value, len + 1) != 0)
			continue;
		copy = strdup(value);
		if (!copy)
			return no_memory(err);
		free(env->items[i]);
		env->items[i] = copy;
		return 0;
	}
	return sbx_strings_add(env, value, strlen(value)) < 0 ? no_memory(err) : 0;
}

static int load_env(struct sbx_settings *s, const struct sbx_key *key, struct json_object *value,
                    struct sbx_error *err)
{
	if (!json_object_is_type(value, json_type_object))
		return sbx_fail(err, EINVAL, "\"%s\" must be an object of strings", key->name);
	json_object_object_foreach(value, name, text)
	{
		_cleanup_free_ char *pair = NULL;
		int r = sbx_env_key_check(name, strlen(name), err);

		if (r < 0)
			return r;
		if (!json_object_is_type(text, json_type_string))
			return sbx_fail(err, EINVAL, "\"%s\" must be an object of strings",
			                key->name);
		if (asprintf(&pair, "%s=%s", name, json_object_get_string(text)) < 0) {
			pair = NULL;
			return no_memory(err);
		}
		r = set_env(s, key, pair, err);
		if (r < 0)
			return r;
	}
	return 0;
}

bool sbx_looks_secret(const char *name)
{
	static const char *const words[] = {"token", "key", "secret", "password"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(words); i++)
		if (strcasestr(name, words[i]))
			return true;
	return false;
}

static struct json_object *show_env(const struct sbx_settings *s, const struct sbx_key *key)
{
	const struct sbx_strings *env = sbx_key_place(s, key);
	struct json_object *obj = json_object_new_object();

	for (size_t i = 0; i < env->n; i++) {
		const char *value = strchr(env->items[i], '=') + 1;
		_cleanup_free_ char *name =
		        strndup(env->items[i], (size_t)(value - 1 - env->items[i]));

		if (name)
			json_object_object_add(
			        obj, name,
			        json_object_new_string(sbx_looks_secret(name) ? "***" : value));
	}
	return obj;
}

/* Single keys with a meaning of their own */

static int set_ctl(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                   struct sbx_error *err)
{
	if (!value || strcmp(value, "listed") != 0)
		return set_text(s, key, value, err);
	s->ctl_listed = true;
	return 0;
}

static int set_file(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                    struct sbx_error *err)
{
	(void)s;
	(void)value;
	return sbx_fail(err, EINVAL, "\"%s\" is for the command line only", key->name);
}

int sbx_check_ctl(const struct sbx_key *key, const char *value, struct sbx_error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                              "0123456789._-";
	size_t len = strlen(value);

	if (len > 63 || strspn(value, allowed) != len || sbx_find_word(".|..", value) >= 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be \"listed\" or a file name", key->name);
	if (sbx_find_word("stdout|stderr|status", value) >= 0)
		return sbx_fail(err, EINVAL, "\"%s\" cannot be %s, which has a meaning already",
		                key->name, value);
	return 0;
}

int sbx_check_net(const struct sbx_key *key, const char *value, struct sbx_error *err)
{
	struct sbx_hosts *hosts;
	int r;

	if (strcmp(value, "none") == 0 || strcmp(value, "host") == 0)
		return 0;
	if (strncmp(value, "allow:", 6) != 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be one of none|host|allow:HOST,...",
		                key->name);
	r = sbx_hosts_parse(value + 6, &hosts, err);
	if (!r)
		sbx_hosts_free(hosts);
	return r;
}

int sbx_check_absolute(const struct sbx_key *key, const char *value, struct sbx_error *err)
{
	if (value[0] == '/')
		return 0;
	return sbx_fail(err, EINVAL, "\"%s\" must hold absolute paths", key->name);
}

int sbx_check_search_path(const struct sbx_key *key, const char *value, struct sbx_error *err)
{
	for (const char *dir = value;; dir++) {
		if (*dir != '/')
			return sbx_check_absolute(key, dir, err);
		dir = strchr(dir, ':');
		if (!dir)
			return 0;
	}
}

const struct sbx_kind sbx_kind_text = {set_text, load_text, show_text, "=WORD"};
const struct sbx_kind sbx_kind_flag = {set_flag, load_flag, show_flag, ""};
const struct sbx_kind sbx_kind_number = {set_number, load_number, show_number, "=N"};
const struct sbx_kind sbx_kind_list = {set_list, load_list, show_list, "=A:B"};
const struct sbx_kind sbx_kind_env = {set_env, load_env, show_env, "=KEY=VALUE"};
const struct sbx_kind sbx_kind_ctl = {set_ctl, load_text, show_text, "=WORD"};
const struct sbx_kind sbx_kind_file = {set_file, load_text, NULL, "=FILE"};
