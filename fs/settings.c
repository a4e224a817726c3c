/*
 * Every key is one row: name, kind, place in struct sbx_settings, help. A kind knows how to take a
 * word of -o, how to take a JSON value and how to show what it holds; all but lists and maps go
 * through the same text form, so the two ways in cannot differ in what they allow.
 */
#include "fs/settings.h"

#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/json.h"
#include "fs/request.h"
#include "fs/strv.h"
#include "sandboxfs/cleanup.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct key;

struct kind {
	/* VALUE is NULL for a bare word. */
	int (*set)(struct sbx_settings *s, const struct key *key, const char *value,
	           struct sbx_error *err);
	int (*load)(struct sbx_settings *s, const struct key *key, struct json_object *value,
	            struct sbx_error *err);
	struct json_object *(*show)(const struct sbx_settings *s, const struct key *key);
	const char *form; /* of VALUE in --help */
};

struct key {
	const char *name;
	const struct kind *kind;
	size_t offset;
	const char *words; /* of a word or flag: what it may be, separated by | */
	int (*check)(const struct key *key, const char *value, struct sbx_error *err);
	const char *help;
};

static void *place(const struct sbx_settings *s, const struct key *key)
{
	return (char *)(uintptr_t)s + key->offset;
}

static int no_memory(struct sbx_error *err)
{
	return sbx_fail(err, ENOMEM, "out of memory");
}

/* Which of the words WORDS ("a|b|c") VALUE is, -1: none. */
static int find_word(const char *words, const char *value)
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

static int check(const struct key *key, const char *value, struct sbx_error *err)
{
	if (!value || !*value)
		return sbx_fail(err, EINVAL, "\"%s\" needs a value", key->name);
	return key->check ? key->check(key, value, err) : 0;
}

/* Strings and words */

static int set_text(struct sbx_settings *s, const struct key *key, const char *value,
                    struct sbx_error *err)
{
	char **p = place(s, key), *copy;
	int r = check(key, value, err);

	if (r < 0)
		return r;
	if (key->words && find_word(key->words, value) < 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be one of %s", key->name, key->words);
	copy = strdup(value);
	if (!copy)
		return no_memory(err);
	free(*p);
	*p = copy;
	return 0;
}

static int load_text(struct sbx_settings *s, const struct key *key, struct json_object *value,
                     struct sbx_error *err)
{
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"%s\" must be a string", key->name);
	return key->kind->set(s, key, json_object_get_string(value), err);
}

static struct json_object *show_text(const struct sbx_settings *s, const struct key *key)
{
	char **p = place(s, key);

	return *p ? json_object_new_string(*p) : NULL;
}

/* Flags: on and off, or the two words of the row */

static int set_flag(struct sbx_settings *s, const struct key *key, const char *value,
                    struct sbx_error *err)
{
	const char *words = key->words ? key->words : "off|on|false|true|0|1";
	int i = value ? find_word(words, value) : 1;

	if (i < 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be one of %s", key->name, words);
	*(bool *)place(s, key) = i & 1;
	return 0;
}

static int load_flag(struct sbx_settings *s, const struct key *key, struct json_object *value,
                     struct sbx_error *err)
{
	if (key->words)
		return load_text(s, key, value, err);
	if (!json_object_is_type(value, json_type_boolean))
		return sbx_fail(err, EINVAL, "\"%s\" must be true or false", key->name);
	return set_flag(s, key, json_object_get_boolean(value) ? "true" : "false", err);
}

static struct json_object *show_flag(const struct sbx_settings *s, const struct key *key)
{
	bool on = *(bool *)place(s, key);
	int off_len;

	if (!key->words)
		return json_object_new_boolean(on);
	off_len = (int)strcspn(key->words, "|");
	return on ? json_object_new_string(key->words + off_len + 1)
	          : json_object_new_string_len(key->words, off_len);
}

/* Numbers */

static int set_number(struct sbx_settings *s, const struct key *key, const char *value,
                      struct sbx_error *err)
{
	uint64_t n = 0;
	int r = check(key, value, err);

	for (const char *c = value; !r && *c; c++) {
		if (!isdigit((unsigned char)*c))
			return sbx_fail(err, EINVAL, "\"%s\" must be an integer, 0 or more",
			                key->name);
		n = n * 10 + (uint64_t)(*c - '0');
		if (n > SBX_NUMBER_MAX)
			return sbx_fail(err, EINVAL, "\"%s\" is too large", key->name);
	}
	if (!r)
		*(uint64_t *)place(s, key) = n;
	return r;
}

static int load_number(struct sbx_settings *s, const struct key *key, struct json_object *value,
                       struct sbx_error *err)
{
	return sbx_json_number(value, key->name, place(s, key), err);
}

static struct json_object *show_number(const struct sbx_settings *s, const struct key *key)
{
	return json_object_new_uint64(*(uint64_t *)place(s, key));
}

/* Lists: ':' between items in -o, an array in JSON */

static int add_item(struct sbx_settings *s, const struct key *key, const char *item,
                    struct sbx_error *err)
{
	int r = check(key, item, err);

	if (r < 0)
		return r;
	return sbx_strings_add(place(s, key), item, strlen(item)) < 0 ? no_memory(err) : 0;
}

static int set_list(struct sbx_settings *s, const struct key *key, const char *value,
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

static int load_list(struct sbx_settings *s, const struct key *key, struct json_object *value,
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

static struct json_object *show_list(const struct sbx_settings *s, const struct key *key)
{
	const struct sbx_strings *list = place(s, key);
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < list->n; i++)
		json_object_array_add(array, json_object_new_string(list->items[i]));
	return array;
}

/* Environment: KEY=VALUE in -o, an object in JSON; a key that is given again replaces the first */

static int set_env(struct sbx_settings *s, const struct key *key, const char *value,
                   struct sbx_error *err)
{
	struct sbx_strings *env = place(s, key);
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

static int load_env(struct sbx_settings *s, const struct key *key, struct json_object *value,
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

static bool looks_secret(const char *name)
{
	static const char *const words[] = {"token", "key", "secret", "password"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(words); i++)
		if (strcasestr(name, words[i]))
			return true;
	return false;
}

static struct json_object *show_env(const struct sbx_settings *s, const struct key *key)
{
	const struct sbx_strings *env = place(s, key);
	struct json_object *obj = json_object_new_object();

	for (size_t i = 0; i < env->n; i++) {
		const char *value = strchr(env->items[i], '=') + 1;
		_cleanup_free_ char *name =
		        strndup(env->items[i], (size_t)(value - 1 - env->items[i]));

		if (name)
			json_object_object_add(
			        obj, name,
			        json_object_new_string(looks_secret(name) ? "***" : value));
	}
	return obj;
}

/* Single keys with a meaning of their own */

static int set_ctl(struct sbx_settings *s, const struct key *key, const char *value,
                   struct sbx_error *err)
{
	if (!value || strcmp(value, "listed") != 0)
		return set_text(s, key, value, err);
	s->ctl_listed = true;
	return 0;
}

static int set_file(struct sbx_settings *s, const struct key *key, const char *value,
                    struct sbx_error *err)
{
	(void)s;
	(void)value;
	return sbx_fail(err, EINVAL, "\"%s\" is for the command line only", key->name);
}

static int check_ctl(const struct key *key, const char *value, struct sbx_error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                              "0123456789._-";
	size_t len = strlen(value);

	if (len > 63 || strspn(value, allowed) != len || find_word(".|..", value) >= 0)
		return sbx_fail(err, EINVAL, "\"%s\" must be \"listed\" or a file name", key->name);
	if (find_word("stdout|stderr|status", value) >= 0)
		return sbx_fail(err, EINVAL, "\"%s\" cannot be %s, which has a meaning already",
		                key->name, value);
	return 0;
}

static int check_net(const struct key *key, const char *value, struct sbx_error *err)
{
	if (strncmp(value, "allow:", 6) == 0)
		return sbx_fail(err, EOPNOTSUPP,
		                "\"%s\" cannot allow single hosts yet: use none or host",
		                key->name);
	return 0;
}

static int check_absolute(const struct key *key, const char *value, struct sbx_error *err)
{
	if (value[0] == '/')
		return 0;
	return sbx_fail(err, EINVAL, "\"%s\" must hold absolute paths", key->name);
}

static int check_search_path(const struct key *key, const char *value, struct sbx_error *err)
{
	for (const char *dir = value;; dir++) {
		if (*dir != '/')
			return check_absolute(key, dir, err);
		dir = strchr(dir, ':');
		if (!dir)
			return 0;
	}
}

static const struct kind text = {set_text, load_text, show_text, "=WORD"};
static const struct kind flag = {set_flag, load_flag, show_flag, ""};
static const struct kind number = {set_number, load_number, show_number, "=N"};
static const struct kind list = {set_list, load_list, show_list, "=A:B"};
static const struct kind env = {set_env, load_env, show_env, "=KEY=VALUE"};
static const struct kind ctl = {set_ctl, load_text, show_text, "=WORD"};
static const struct kind file = {set_file, load_text, NULL, "=FILE"};

#define AT(member)    offsetof(struct sbx_settings, member)
#define LIMIT(member) AT(limits.member)

/* clang-format off */
static const struct key keys[] = {
	{"backend", &text, AT(backend), "local|memory|daytona|vercel|dagger", NULL,
	 "where sandboxes live: local, memory, daytona, vercel, dagger"},
	{"base", &text, AT(base), NULL, NULL, "commit that new sandboxes start from (HEAD)"},
	{"branch", &text, AT(branch), NULL, NULL, "branch of a new sandbox (sandbox/{name})"},
	{"state_dir", &text, AT(state_dir), NULL, NULL,
	 "where sandboxes are kept ($TMPDIR/sandboxfs-UID/...)"},
	{"logs_dir", &text, AT(logs_dir), NULL, NULL, "durable copies of the logs"},
	{"path", &text, AT(path), NULL, check_search_path, "PATH of commands"},
	{"isolation", &text, AT(isolation), "auto|require|none", NULL,
	 "auto, require (refuse to start with less), none"},
	{"net", &text, AT(net), "none|host", check_net, "network of commands: none, host"},
	{"controls", &text, AT(controls), "linked|inline", NULL,
	 "linked, or inline: all on one connection"},
	{"ctl", &ctl, AT(ctl_name), NULL, check_ctl,
	 "listed: readdir shows it; else the name of the control directory"},
	{"ctl_listed", &flag, AT(ctl_listed), NULL, NULL, "as ctl=listed"},
	{"ephemeral", &flag, AT(ephemeral), NULL, NULL, "tear sandboxes down at unmount"},
	{"trash", &flag, AT(trash), NULL, NULL, "save uncommitted work at teardown (on)"},
	{"track", &flag, AT(track), NULL, NULL, "record the files that each job changes"},
	{"user_xattr", &flag, AT(user_xattr), NULL, NULL, "user.* attributes, whatever they cost"},
	{"allow_other", &flag, AT(allow_other), NULL, NULL, "other users may enter the mount"},
	{"exec_fail", &flag, AT(exec_fail_errno), "status|errno", NULL,
	 "errno: a command that fails makes the write fail too"},
	{"timeout_ms", &number, AT(operation_timeout_ms), NULL, NULL,
	 "of one command, 0: none (600000)"},
	{"operation_timeout_ms", &number, AT(operation_timeout_ms), NULL, NULL, "same as timeout_ms"},
	{"run_timeout_ms", &number, AT(run_timeout_ms), NULL, NULL, "lifetime of a sandbox, 0: none"},
	{"cpu_s", &number, LIMIT(cpu_s), NULL, NULL, "limit: processor seconds of a process"},
	{"memory_mb", &number, LIMIT(memory_mb), NULL, NULL, "limit: MiB of memory"},
	{"procs", &number, LIMIT(procs), NULL, NULL, "limit: processes"},
	{"file_mb", &number, LIMIT(file_mb), NULL, NULL, "limit: MiB of one file"},
	{"disk_mb", &number, LIMIT(disk_mb), NULL, NULL, "limit: MiB of one sandbox"},
	{"output_bytes", &number, LIMIT(output_bytes), NULL, NULL,
	 "kept of stdout and of stderr (67108864)"},
	{"jobs", &number, LIMIT(jobs), NULL, NULL, "limit: jobs at once in one sandbox"},
	{"cache_mb", &number, AT(cache_mb), NULL, NULL, "MiB of kept checkouts"},
	{"allow", &list, AT(allow), NULL, NULL, "the only programs that may be run"},
	{"env", &env, AT(env), NULL, NULL, "variable of every command; may repeat"},
	{"ro_paths", &list, AT(ro_paths), NULL, check_absolute, "visible to commands, read only"},
	{"rw_paths", &list, AT(rw_paths), NULL, check_absolute, "visible to commands, writable"},
	{"hide_paths", &list, AT(hide_paths), NULL, check_absolute, "hidden from commands"},
	{"config", &file, 0, NULL, NULL, "JSON file with these keys"},
};
/* clang-format on */

static const struct key *find_key(const char *name)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

/* Edits that turn A into B (Levenshtein); both shorter than 64. */
static size_t distance(const char *a, const char *b)
{
	size_t row[64];
	size_t n = strlen(b);

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < n; j++) {
			size_t best = diagonal + (a[i] != b[j]);

			best = row[j] + 1 < best ? row[j] + 1 : best;
			best = row[j + 1] + 1 < best ? row[j + 1] + 1 : best;
			diagonal = row[j + 1];
			row[j + 1] = best;
		}
	}
	return row[n];
}

static const char *nearest(const char *name)
{
	const struct key *best = &keys[0];
	size_t least = SIZE_MAX;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++) {
		size_t d = distance(name, keys[i].name);

		if (d < least) {
			least = d;
			best = &keys[i];
		}
	}
	return best->name;
}

static int unknown_key(const char *name, struct sbx_error *err)
{
	int shown = sbx_clip(name, strlen(name));

	if (looks_secret(name))
		return sbx_fail(err, EINVAL,
		                "\"%.*s\" is no key: secrets come from the environment "
		                "(GITHUB_TOKEN, DAYTONA_API_KEY, VERCEL_TOKEN)",
		                shown, name);
	if (strlen(name) >= 64)
		return sbx_fail(err, EINVAL, "unknown key \"%.*s\"", shown, name);
	return sbx_fail(err, EINVAL, "unknown key \"%s\"; the nearest is \"%s\"", name,
	                nearest(name));
}

int sbx_settings_set(struct sbx_settings *settings, const char *name, const char *value,
                     struct sbx_error *err)
{
	const struct key *key = find_key(name);

	return key ? key->kind->set(settings, key, value, err) : unknown_key(name, err);
}

void sbx_settings_clear(struct sbx_settings *settings, const char *name)
{
	const struct key *key = find_key(name);

	if (key && key->kind == &list)
		sbx_strings_release(place(settings, key));
}

static int load_object(struct sbx_settings *settings, struct json_object *obj,
                       struct sbx_error *err)
{
	if (!json_object_is_type(obj, json_type_object))
		return sbx_fail(err, EINVAL, "the configuration must be a JSON object");
	json_object_object_foreach(obj, name, value)
	{
		const struct key *key = find_key(name);
		int r = key ? key->kind->load(settings, key, value, err) : unknown_key(name, err);

		if (r < 0)
			return r;
	}
	return 0;
}

int sbx_settings_load(struct sbx_settings *settings, const char *json, size_t len,
                      struct sbx_error *err)
{
	struct json_object *obj;
	size_t used;
	int r = sbx_json_parse(json, len, true, &obj, &used, err);

	if (r < 0)
		return r;
	while (used < len && memchr(" \t\r\n", json[used], 4))
		used++;
	if (used < len)
		r = sbx_fail(err, EINVAL, "invalid JSON: trailing data at byte %zu", used);
	else
		r = load_object(settings, obj, err);
	json_object_put(obj);
	return r;
}

struct json_object *sbx_settings_json(const struct sbx_settings *settings)
{
	struct json_object *obj = json_object_new_object();
	const char *source = settings->source ? settings->source : "none";

	json_object_object_add(obj, "source", json_object_new_string(source));
	if (settings->mountpoint)
		json_object_object_add(obj, "mountpoint",
		                       json_object_new_string(settings->mountpoint));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (keys[i].kind->show)
			json_object_object_add(obj, keys[i].name,
			                       keys[i].kind->show(settings, &keys[i]));
	return obj;
}

void sbx_settings_help(void)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++) {
		int n = printf("  %s%s", keys[i].name, keys[i].kind->form);

		printf("%*s%s\n", n < 28 ? 28 - n : 1, "", keys[i].help);
	}
}

/* The daemon's PATH without what depends on the working directory. */
static char *default_path(void)
{
	const char *path = getenv("PATH");
	char *ret = malloc(path ? strlen(path) + 1 : 1);
	size_t len = 0;

	if (!ret)
		return NULL;
	while (path && *path) {
		size_t n = strcspn(path, ":");

		if (*path == '/') {
			ret[len] = ':';
			memcpy(ret + len + (len > 0), path, n);
			len += n + (len > 0);
		}
		path += n + (path[n] == ':');
	}
	ret[len] = '\0';
	if (len)
		return ret;
	free(ret);
	return strdup(DEFAULT_PATH);
}

int sbx_settings_defaults(struct sbx_settings *settings)
{
	const char *vercel = getenv("VERCEL");

	*settings = (struct sbx_settings){
	        .backend = strdup(vercel && strcmp(vercel, "1") == 0 ? "vercel" : "local"),
	        .branch = strdup("sandbox/{name}"),
	        .path = default_path(),
	        .isolation = strdup("auto"),
	        .net = strdup("none"),
	        .controls = strdup("linked"),
	        .ctl_name = strdup("ctl"),
	        .trash = true,
	        .operation_timeout_ms = 600000,
	        .limits.output_bytes = UINT64_C(64) << 20,
	};
	if (settings->backend && settings->branch && settings->path && settings->isolation &&
	    settings->net && settings->controls && settings->ctl_name)
		return 0;
	sbx_settings_release(settings);
	return -ENOMEM;
}

void sbx_settings_release(struct sbx_settings *settings)
{
	char *owned[] = {settings->source,    settings->source_abs, settings->mountpoint,
	                 settings->state_dir, settings->logs_dir,   settings->backend,
	                 settings->base,      settings->branch,     settings->path,
	                 settings->isolation, settings->net,        settings->controls,
	                 settings->ctl_name};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(owned); i++)
		free(owned[i]);
	sbx_strings_release(&settings->allow);
	sbx_strings_release(&settings->env);
	sbx_strings_release(&settings->ro_paths);
	sbx_strings_release(&settings->rw_paths);
	sbx_strings_release(&settings->hide_paths);
	*settings = (struct sbx_settings){0};
}
