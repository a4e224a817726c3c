/*
 * Every key is one row: name, kind, place in struct sbx_settings, help. -o, the JSON file, --help
 * and ctl/config are all driven by this table; the kinds are in setting_types.c.
 */
#include "fs/config/settings.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/strv.h"
#include "fs/config/setting_types.h"
#include "fs/job/request.h"
#include "fs/util/json.h"
#include "fs/util/nearest.h"
#include "sandboxfs/cleanup.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#define AT(member)    offsetof(struct sbx_settings, member)
#define LIMIT(member) AT(limits.member)

/* clang-format off */
static const struct sbx_key keys[] = {
	{"backend", &sbx_kind_text, AT(backend), "local|memory|daytona|vercel|dagger", NULL,
	 "where sandboxes live: local, memory, daytona, vercel, dagger"},
	{"base", &sbx_kind_text, AT(base), NULL, NULL, "commit that new sandboxes start from (HEAD)"},
	{"branch", &sbx_kind_text, AT(branch), NULL, NULL, "branch of a new sandbox (sandbox/{name})"},
	{"branch_exists", &sbx_kind_text, AT(branch_exists), SBX_BRANCH_EXISTS, NULL,
	 "if that branch is there: new (NAME-2, NAME-3...), refuse, continue (new)"},
	{"state_dir", &sbx_kind_text, AT(state_dir), NULL, NULL,
	 "where sandboxes are kept ($TMPDIR/sandboxfs-UID/...), or persistent: what outlives a\n"
	 "                            reboot ($XDG_STATE_HOME/sandboxfs, root /var/lib/sandboxfs)"},
	{"cow", &sbx_kind_text, AT(cow), "auto|off|require", NULL,
	 "copy on write: auto, off (each sandbox a full copy), require"},
	{"cache_dir", &sbx_kind_text, AT(cache_dir), NULL, NULL,
	 "checkouts that sandboxes share ($XDG_CACHE_HOME/sandboxfs, root /var/cache/sandboxfs)"},
	{"cache_mb", &sbx_kind_number, AT(cache_mb), NULL, NULL,
	 "MiB that the cache may grow to with what is not in use (4096)"},
	{"logs_dir", &sbx_kind_text, AT(logs_dir), NULL, NULL, "durable copies of the logs"},
	{"path", &sbx_kind_text, AT(path), NULL, sbx_check_search_path, "PATH of commands"},
	{"isolation", &sbx_kind_text, AT(isolation), "auto|require|none", NULL,
	 "auto, require (refuse to start with less), none"},
	{"run_as", &sbx_kind_text, AT(run_as), NULL, NULL,
	 "user of commands when root mounts: name, uid or uid:gid (sudo's caller, or nobody)"},
	{"net", &sbx_kind_text, AT(net), NULL, sbx_check_net,
	 "network of commands: none, host, or allow:HOST[:PORT],... through a proxy"},
	{"controls", &sbx_kind_text, AT(controls), "linked|inline", NULL,
	 "linked (default): a second mount, reached by links; inline: below the mountpoint, so that "
	 "realpath of a control stays there; files are opened more slowly"},
	{"io", &sbx_kind_text, AT(io), "cached|passthrough", NULL,
	 "cached, or passthrough: written and large files at native speed (root, libfuse 3.17)"},
	{"ctl", &sbx_kind_ctl, AT(ctl_name), NULL, sbx_check_ctl,
	 "listed: readdir shows it; else the name of the control directory"},
	{"ctl_listed", &sbx_kind_flag, AT(ctl_listed), NULL, NULL, "as ctl=listed"},
	{"track", &sbx_kind_flag, AT(track), NULL, NULL,
	 "record what each command changes: jobs/ID/diff, changedFiles, undo"},
	{"ephemeral", &sbx_kind_flag, AT(ephemeral), NULL, NULL, "tear sandboxes down at unmount"},
	{"trash", &sbx_kind_number, AT(trash_days), "off", NULL,
	 "days that uncommitted work is kept after rmdir, or off (7)"},
	{"nested_git", &sbx_kind_flag, AT(nested_shared), "private|shared", NULL, "whether host and commands see each other's .git below the root"},
	{"git_programs", &sbx_kind_flag, AT(tree_programs), "none|tree", NULL,
	 "tree: git on the host also runs what its settings name in a sandbox's tree, where "
	 "commands write (core.hooksPath=.husky)"},
	{"user_xattr", &sbx_kind_flag, AT(user_xattr), NULL, NULL, "serve user.* attributes; writing and ls -l then cost a request more per file"},
	{"allow_other", &sbx_kind_flag, AT(allow_other), NULL, NULL, "other users may enter the mount"},
	{"exec_fail", &sbx_kind_flag, AT(exec_fail_errno), "status|errno", NULL,
	 "errno: a command that fails makes the write fail too"},
	{"timeout_ms", &sbx_kind_number, AT(operation_timeout_ms), NULL, NULL,
	 "of one command, 0: none (600000)"},
	{"operation_timeout_ms", &sbx_kind_number, AT(operation_timeout_ms), NULL, NULL, "same as timeout_ms"},
	{"run_timeout_ms", &sbx_kind_number, AT(run_timeout_ms), NULL, NULL, "lifetime of a sandbox, 0: none"},
	{"cpu_s", &sbx_kind_number, LIMIT(cpu_s), NULL, NULL, "limit: processor seconds of a process"},
	{"memory_mb", &sbx_kind_number, LIMIT(memory_mb), NULL, NULL, "limit: MiB of memory of a job"},
	{"procs", &sbx_kind_number, LIMIT(procs), NULL, NULL, "limit: processes and threads (4096)"},
	{"file_mb", &sbx_kind_number, LIMIT(file_mb), NULL, NULL, "limit: MiB of one file"},
	{"disk_mb", &sbx_kind_number, LIMIT(disk_mb), NULL, NULL, "limit: MiB of one sandbox"},
	{"output_bytes", &sbx_kind_number, LIMIT(output_bytes), NULL, NULL,
	 "kept of stdout and of stderr (67108864)"},
	{"jobs", &sbx_kind_number, LIMIT(jobs), NULL, NULL, "limit: jobs at once in one sandbox"},
	{"cpu_percent", &sbx_kind_number, AT(cpu_percent), NULL, NULL,
	 "of one processor, for a sandbox; needs cgroup v2 (0: no limit)"},
	{"allow", &sbx_kind_list, AT(allow), NULL, NULL, "the only programs that may be run"},
	{"env", &sbx_kind_env, AT(env), NULL, NULL, "variable of every command; may repeat"},
	{"ro_paths", &sbx_kind_list, AT(ro_paths), NULL, sbx_check_absolute, "visible to commands, read only"},
	{"rw_paths", &sbx_kind_list, AT(rw_paths), NULL, sbx_check_absolute, "visible to commands, writable"},
	{"hide_paths", &sbx_kind_list, AT(hide_paths), NULL, sbx_check_absolute, "hidden from commands"},
	{"config", &sbx_kind_file, 0, NULL, NULL, "JSON file with these keys"},
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

	if (sbx_looks_secret(name))
		return sbx_fail(err, EINVAL,
		                "\"%.*s\" is no key: secrets come from the environment "
		                "(GITHUB_TOKEN, DAYTONA_API_KEY, VERCEL_TOKEN)",
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

void sbx_settings_clear(struct sbx_settings *settings, const char *name)
{
	const struct sbx_key *key = find_key(name);

	if (key && key->kind == &sbx_kind_list)
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
