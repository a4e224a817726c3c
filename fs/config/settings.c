/*
 * Every key is one row: name, kind, place in struct sbx_settings, help. -o, the JSON file, --help
 * and ctl/config are all driven by this table.
 *
 * All kinds but lists and maps take their JSON value through the text form of -o, so the two ways
 * in cannot differ in what they allow.
 */
#include "fs/config/settings.h"

#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/request.h"
#include "fs/net/host_rules.h"
#include "fs/util/json.h"
#include "fs/util/nearest.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

struct sbx_key;

/* How a word of -o is taken, how a JSON value is taken, how it is shown. */
struct sbx_kind {
	/* VALUE is NULL for a bare word. Both return 0, or -EINVAL, -EOPNOTSUPP, -ENOMEM naming
	 * KEY. */
	int (*set)(struct sbx_settings *s, const struct sbx_key *key, const char *value,
	           struct sbx_error *err);
	int (*load)(struct sbx_settings *s, const struct sbx_key *key, struct json_object *value,
	            struct sbx_error *err);
	/* A new object; NULL member: not shown. */
	struct json_object *(*show)(const struct sbx_settings *s, const struct sbx_key *key);
	const char *form; /* of VALUE in --help */
};

struct sbx_key {
	const char *name;
	const struct sbx_kind *kind;
	size_t offset;     /* in struct sbx_settings */
	const char *words; /* of a text or flag: what it may be, separated by |; of a number: that
	                      for 0 */
	/* Looks at VALUE, not empty, before it is taken; NULL: anything goes. */
	int (*check)(const struct sbx_key *key, const char *value, struct sbx_error *err);
	const char *help;
};

/* The place of KEY in S. */
static inline void *sbx_key_place(const struct sbx_settings *s, const struct sbx_key *key)
{
	return (char *)(uintptr_t)s + key->offset;
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
		return sbx_no_memory(err);
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
	return sbx_strings_add(sbx_key_place(s, key), item) < 0 ? sbx_no_memory(err) : 0;
}

static int set_list(struct sbx_settings *s, const struct sbx_key *key, const char *value,
                    struct sbx_error *err)
{
	int r = 0;

	do {
		size_t n = value ? strcspn(value, ":") : 0;
		_cleanup_free_ char *item = strndup(value ? value : "", n);

		r = item ? add_item(s, key, item, err) : sbx_no_memory(err);
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
			return sbx_no_memory(err);
		free(env->items[i]);
		env->items[i] = copy;
		return 0;
	}
	return sbx_strings_add(env, value) < 0 ? sbx_no_memory(err) : 0;
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
			return sbx_no_memory(err);
		}
		r = set_env(s, key, pair, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Whether the value of NAME had better not be shown. */
static bool looks_secret(const char *name)
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
			        json_object_new_string(looks_secret(name) ? "***" : value));
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

static int check_ctl(const struct sbx_key *key, const char *value, struct sbx_error *err)
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

static int check_net(const struct sbx_key *key, const char *value, struct sbx_error *err)
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

static int check_absolute(const struct sbx_key *key, const char *value, struct sbx_error *err)
{
	if (value[0] == '/')
		return 0;
	return sbx_fail(err, EINVAL, "\"%s\" must hold absolute paths", key->name);
}

static int check_search_path(const struct sbx_key *key, const char *value, struct sbx_error *err)
{
	for (const char *dir = value;; dir++) {
		if (*dir != '/')
			return check_absolute(key, dir, err);
		dir = strchr(dir, ':');
		if (!dir)
			return 0;
	}
}

static const struct sbx_kind kind_text = {set_text, load_text, show_text, "=WORD"};
static const struct sbx_kind kind_flag = {set_flag, load_flag, show_flag, "=WORD"};
static const struct sbx_kind kind_number = {set_number, load_number, show_number, "=N"};
static const struct sbx_kind kind_list = {set_list, load_list, show_list, "=A:B"};
static const struct sbx_kind kind_env = {set_env, load_env, show_env, "=KEY=VALUE"};
static const struct sbx_kind kind_ctl = {set_ctl, load_text, show_text, "=WORD"};
static const struct sbx_kind kind_file = {set_file, load_text, NULL, "=FILE"};

/* Of --help: where the texts begin, and how long a line of them may be. */
#define HELP_COLUMN 28
#define HELP_WIDTH  70

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#define AT(member)    offsetof(struct sbx_settings, member)
#define LIMIT(member) AT(limits.member)

/* clang-format off */
static const struct sbx_key keys[] = {
	{"backend", &kind_text, AT(backend), sbx_backend_names, NULL, sbx_backend_help},
	{"base", &kind_text, AT(base), NULL, NULL, "commit that new sandboxes start from (HEAD)"},
	{"branch", &kind_text, AT(branch), NULL, NULL, "branch of a new sandbox (sandbox/{name})"},
	{"branch_exists", &kind_text, AT(branch_exists), SBX_BRANCH_EXISTS, NULL,
	 "if that branch is there: new (NAME-2, NAME-3...), refuse, continue (new)"},
	{"state_dir", &kind_text, AT(state_dir), NULL, NULL,
	 "where sandboxes are kept ($TMPDIR/sandboxfs-UID/...), or persistent: what outlives a "
	 "reboot ($XDG_STATE_HOME/sandboxfs, root /var/lib/sandboxfs)"},
	{"cow", &kind_text, AT(cow), "auto|off|require", NULL,
	 "copy on write: auto, off (each sandbox a full copy), require"},
	{"cache_dir", &kind_text, AT(cache_dir), NULL, NULL,
	 "checkouts that sandboxes share ($XDG_CACHE_HOME/sandboxfs, root /var/cache/sandboxfs)"},
	{"cache_mb", &kind_number, AT(cache_mb), NULL, NULL,
	 "MiB that the cache may grow to with what is not in use (4096)"},
	{"logs_dir", &kind_text, AT(logs_dir), NULL, NULL, "durable copies of the logs"},
	{"path", &kind_text, AT(path), NULL, check_search_path, "PATH of commands"},
	{"isolation", &kind_text, AT(isolation), "auto|require|none", NULL,
	 "auto, require (refuse to start with less), none"},
	{"run_as", &kind_text, AT(run_as), NULL, NULL,
	 "user of commands when root mounts: name, uid or uid:gid (sudo's caller, or nobody)"},
	{"net", &kind_text, AT(net), NULL, check_net,
	 "network of commands: none, host, or allow:HOST[:PORT],... through a proxy"},
	{"controls", &kind_text, AT(controls), "linked|inline", NULL,
	 "linked (default): a second mount, reached by links; inline: below the mountpoint, so that "
	 "realpath of a control stays there; files are opened more slowly"},
	{"io", &kind_text, AT(io), "cached|passthrough", NULL,
	 "cached, or passthrough: written and large files at native speed (root, libfuse 3.17)"},
	{"ctl", &kind_ctl, AT(ctl_name), NULL, check_ctl,
	 "listed: readdir shows it; else the name of the control directory"},
	{"ctl_listed", &kind_flag, AT(ctl_listed), NULL, NULL, "as ctl=listed"},
	{"track", &kind_flag, AT(track), NULL, NULL,
	 "record what each command changes: jobs/ID/diff, changedFiles, undo"},
	{"ephemeral", &kind_flag, AT(ephemeral), NULL, NULL, "tear sandboxes down at unmount"},
	{"durable", &kind_flag, AT(durable), NULL, NULL,
	 "keep sandboxes of a provider that may forget them in state_dir at unmount"},
	{"trash", &kind_number, AT(trash_days), "off", NULL,
	 "days that uncommitted work is kept after rmdir, or off (7)"},
	{"nested_git", &kind_flag, AT(nested_shared), "private|shared", NULL,
	 "private: below the root the host sees no .git of commands, and commands cannot write to "
	 "one of the host's; shared: all is seen"},
	{"git_programs", &kind_flag, AT(tree_programs), "none|tree", NULL,
	 "tree: git on the host also runs what its settings name in a sandbox's tree, where "
	 "commands write (core.hooksPath=.husky)"},
	{"user_xattr", &kind_flag, AT(user_xattr), NULL, NULL,
	 "serve user.* attributes; writing and ls -l then cost a request more per file"},
	{"allow_other", &kind_flag, AT(allow_other), NULL, NULL, "other users may enter the mount"},
	{"exec_fail", &kind_flag, AT(exec_fail_errno), "status|errno", NULL,
	 "errno: a command that fails makes the write fail too"},
	{"timeout_ms", &kind_number, AT(operation_timeout_ms), NULL, NULL,
	 "of one command, 0: none (600000)"},
	{"operation_timeout_ms", &kind_number, AT(operation_timeout_ms), NULL, NULL, "same as timeout_ms"},
	{"run_timeout_ms", &kind_number, AT(run_timeout_ms), NULL, NULL, "lifetime of a sandbox, 0: none"},
	{"cpu_s", &kind_number, LIMIT(cpu_s), NULL, NULL, "limit: processor seconds of a process"},
	{"memory_mb", &kind_number, LIMIT(memory_mb), NULL, NULL, "limit: MiB of memory of a job"},
	{"procs", &kind_number, LIMIT(procs), NULL, NULL, "limit: processes and threads (4096)"},
	{"file_mb", &kind_number, LIMIT(file_mb), NULL, NULL, "limit: MiB of one file"},
	{"disk_mb", &kind_number, LIMIT(disk_mb), NULL, NULL, "limit: MiB of one sandbox"},
	{"output_bytes", &kind_number, LIMIT(output_bytes), NULL, NULL,
	 "kept of stdout and of stderr (67108864)"},
	{"jobs", &kind_number, LIMIT(jobs), NULL, NULL, "limit: jobs at once in one sandbox"},
	{"cpu_percent", &kind_number, AT(cpu_percent), NULL, NULL,
	 "of one processor, for a sandbox; needs cgroup v2 (0: no limit)"},
	{"allow", &kind_list, AT(allow), NULL, NULL, "the only programs that may be run"},
	{"env", &kind_env, AT(env), NULL, NULL, "variable of every command; may repeat"},
	{"ro_paths", &kind_list, AT(ro_paths), NULL, check_absolute, "visible to commands, read only"},
	{"rw_paths", &kind_list, AT(rw_paths), NULL, check_absolute, "visible to commands, writable"},
	{"hide_paths", &kind_list, AT(hide_paths), NULL, check_absolute, "hidden from commands"},
	{"config", &kind_file, 0, NULL, NULL, "JSON file with these keys"},
};
/* clang-format on */

static const struct sbx_key *find_key(const char *name)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

static int unknown_key(const char *name, struct sbx_error *err)
{
	const char *near = sbx_nearest(name, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]));
	int shown = sbx_clip(name, strlen(name));

	if (looks_secret(name))
		return sbx_fail(err, EINVAL,
		                "\"%.*s\" is no key: secrets come from the environment "
		                "(GITHUB_TOKEN, and those of the backend)",
		                shown, name);
	if (!near)
		return sbx_fail(err, EINVAL, "unknown key \"%.*s\"; see --help", shown, name);
	return sbx_fail(err, EINVAL, "unknown key \"%.*s\"; the nearest is \"%s\"%s", shown, name,
	                near, sbx_unit_note(near));
}

int sbx_settings_set(struct sbx_settings *settings, const char *name, const char *value,
                     struct sbx_error *err)
{
	const struct sbx_key *key = find_key(name);

	return key ? key->kind->set(settings, key, value, err) : unknown_key(name, err);
}

int sbx_settings_environment(struct sbx_settings *settings, struct sbx_error *err)
{
	const char *backend = getenv("SANDBOXFS_BACKEND");
	struct sbx_error inner = SBX_ERROR_INIT;
	int r;

	if (!backend || !*backend)
		return 0;
	r = sbx_settings_set(settings, "backend", backend, &inner);
	return r < 0 ? sbx_fail(err, -r, "SANDBOXFS_BACKEND: %s", inner.text) : 0;
}

void sbx_settings_clear(struct sbx_settings *settings, const char *name)
{
	const struct sbx_key *key = find_key(name);

	if (key && key->kind == &kind_list)
		sbx_strings_release(sbx_key_place(settings, key));
}

static int load_object(struct sbx_settings *settings, struct json_object *obj,
                       struct sbx_error *err)
{
	if (!json_object_is_type(obj, json_type_object))
		return sbx_fail(err, EINVAL, "the configuration must be a JSON object");
	json_object_object_foreach(obj, name, value)
	{
		const struct sbx_key *key = find_key(name);
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

void sbx_settings_walk(void (*fn)(const struct sbx_option_text *key, void *data), void *data)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++) {
		const bool flag = keys[i].kind == &kind_flag;
		struct sbx_option_text text = {
		        .name = keys[i].name,
		        .form = keys[i].kind->form,
		        .words = keys[i].words,
		        .help = keys[i].help,
		};

		if (flag && !text.words)
			text.form = NULL;
		fn(&text, data);
	}
}

/* One key of --help, its text broken at blanks. */
static void print_key(const struct sbx_option_text *key, void *data)
{
	const char *text = key->help;
	int n = printf("  %s%s", key->name, key->form ? key->form : "");

	(void)data;
	printf("%*s", n < HELP_COLUMN ? HELP_COLUMN - n : 1, "");
	while (strlen(text) > HELP_WIDTH) {
		const char *end = memrchr(text, ' ', HELP_WIDTH + 1);

		printf("%.*s\n%*s", (int)(end - text), text, HELP_COLUMN, "");
		text = end + 1;
	}
	puts(text);
}

void sbx_settings_help(void)
{
	sbx_settings_walk(print_key, NULL);
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
	const char *why;

	*settings = (struct sbx_settings){
	        .backend = strdup(sbx_backend_default(&why)),
	        .branch = strdup("sandbox/{name}"),
	        .branch_exists = strdup("new"),
	        .path = default_path(),
	        .isolation = strdup("auto"),
	        .net = strdup("none"),
	        .controls = strdup("linked"),
	        .io = strdup("cached"),
	        .cow = strdup("auto"),
	        .cache_mb = 4096,
	        .trash_days = 7,
	        .ctl_name = strdup("ctl"),
	        .operation_timeout_ms = 600000,
	        .limits.procs = SBX_PROCS_DEFAULT,
	        .limits.output_bytes = UINT64_C(64) << 20,
	};
	if (settings->backend && settings->branch && settings->branch_exists && settings->path &&
	    settings->isolation && settings->net && settings->controls && settings->io &&
	    settings->cow && settings->ctl_name)
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
	                 settings->ctl_name,  settings->run_as,     settings->io,
	                 settings->cow,       settings->cache_dir,  settings->branch_exists};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(owned); i++)
		free(owned[i]);
	sbx_strings_release(&settings->allow);
	sbx_strings_release(&settings->env);
	sbx_strings_release(&settings->ro_paths);
	sbx_strings_release(&settings->rw_paths);
	sbx_strings_release(&settings->hide_paths);
	sbx_strings_release(&settings->shown);
	sbx_strings_release(&settings->shown_why);
	sbx_strings_release(&settings->covered);
	sbx_strings_release(&settings->tool_env);
	sbx_strings_release(&settings->carried);
	sbx_strings_release(&settings->not_carried);
	*settings = (struct sbx_settings){0};
}
