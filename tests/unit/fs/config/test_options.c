/* The command line, the configuration file and the paths they name. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "fs/config/options.h"
#include "tests/lib/tmp.h"

static char dir[64]; /* holds mnt/, src/ and file */
static struct sbx_options opts;
static struct sbx_settings settings;
static struct sbx_error err;

static char *at(const char *name)
{
	static char path[4][256];
	static int i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
	return path[i];
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static char *outer; /* TMPDIR around the tests, NULL: none */

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	outer = tmp ? strdup(tmp) : NULL;
	if (!tmp_make(dir, sizeof(dir), "test_options") || mkdir(at("mnt"), 0755) ||
	    mkdir(at("src"), 0755))
		return -1;
	write_file(at("file"), "");
	setenv("HOME", dir, 1);
	setenv("TMPDIR", dir, 1);
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("VERCEL");
	unsetenv("SANDBOXFS_BACKEND");
	err = SBX_ERROR_INIT;
	return sbx_settings_defaults(&settings);
}

static int tear_down(void **state)
{
	static const char *const made[] = {"file",
	                                   "sandboxfs.json",
	                                   ".config/sandboxfs.json",
	                                   ".config",
	                                   "link",
	                                   "real/state",
	                                   "real",
	                                   "org/repo",
	                                   "org",
	                                   "mnt/in",
	                                   "mnt",
	                                   "src"};
	char own[64];

	(void)state;
	if (outer)
		setenv("TMPDIR", outer, 1);
	else
		unsetenv("TMPDIR");
	free(outer);
	sbx_options_release(&opts);
	sbx_settings_release(&settings);
	for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++)
		remove(at(made[i]));
	snprintf(own, sizeof(own), "sandboxfs-%u", (unsigned)geteuid());
	remove(at(own));
	return rmdir(dir);
}

/* Parses "sandboxfs ARGS...", the last of which is NULL. */
static int parse(const char *first, ...)
{
	char *argv[16] = {"sandboxfs"};
	int argc = 1;
	va_list ap;

	va_start(ap, first);
	for (const char *a = first; a; a = va_arg(ap, const char *))
		argv[argc++] = (char *)(uintptr_t)a;
	va_end(ap);
	err = SBX_ERROR_INIT;
	sbx_options_release(&opts);
	return sbx_options_parse(argc, argv, &opts, &err);
}

static int parse_o(const char *words)
{
	return parse(at("mnt"), "-o", words, NULL);
}

static void expect_failure(int r, int code, const char *sentence)
{
	if (r != -code || err.code != code || !strstr(err.text, sentence))
		fail_msg("got %d, %d %s; want %d %s", r, err.code, err.text, code, sentence);
}

static int set(const char *key, const char *value)
{
	err = SBX_ERROR_INIT;
	return sbx_settings_set(&settings, key, value, &err);
}

static int load(const char *json)
{
	err = SBX_ERROR_INIT;
	return sbx_settings_load(&settings, json, strlen(json), &err);
}

/* Command line */

static void defaults_are_those_documented(void **state)
{
	(void)state;
	assert_int_equal(parse(at("mnt"), NULL), 0);
	assert_int_equal(opts.action, SBX_RUN);
	assert_null(opts.settings.source);
	assert_null(opts.settings.source_abs);
	assert_string_equal(opts.settings.mountpoint, at("mnt"));
	assert_string_equal(opts.settings.backend, "local");
	assert_string_equal(opts.settings.branch, "sandbox/{name}");
	assert_string_equal(opts.settings.isolation, "auto");
	assert_string_equal(opts.settings.net, "none");
	assert_string_equal(opts.settings.controls, "linked");
	assert_string_equal(opts.settings.ctl_name, "ctl");
	assert_false(opts.settings.foreground);
	assert_int_equal(opts.settings.operation_timeout_ms, 600000);
	assert_int_equal(opts.settings.run_timeout_ms, 0);
	assert_int_equal(opts.settings.limits.output_bytes, 64 << 20);
	assert_int_equal(opts.settings.limits.procs, 4096);
	assert_int_equal(opts.settings.limits.memory_mb, 0);
	assert_int_equal(opts.settings.cpu_percent, 0);
	assert_int_equal(opts.settings.allow.n, 0);
}

static void vercel_is_the_default_where_vercel_is_1(void **state)
{
	(void)state;
	setenv("VERCEL", "1", 1);
	assert_int_equal(parse(at("mnt"), NULL), 0);
	assert_string_equal(opts.settings.backend, "vercel");
	assert_int_equal(parse_o("backend=local"), 0);
	assert_string_equal(opts.settings.backend, "local");
	setenv("VERCEL", "0", 1);
	assert_int_equal(parse(at("mnt"), NULL), 0);
	assert_string_equal(opts.settings.backend, "local");
}

/* Between what is asked for on the command line and what a file says. */
static void the_environment_names_a_backend(void **state)
{
	(void)state;
	setenv("SANDBOXFS_BACKEND", "memory", 1);
	setenv("VERCEL", "1", 1);
	write_file(at("sandboxfs.json"), "{\"backend\": \"local\"}");
	setenv("XDG_CONFIG_HOME", dir, 1);
	assert_int_equal(parse(at("mnt"), NULL), 0);
	assert_string_equal(opts.settings.backend, "memory");
	assert_int_equal(parse_o("backend=vercel"), 0);
	assert_string_equal(opts.settings.backend, "vercel");
	setenv("SANDBOXFS_BACKEND", "", 1);
	assert_int_equal(parse(at("mnt"), NULL), 0);
	assert_string_equal(opts.settings.backend, "local");
	setenv("SANDBOXFS_BACKEND", "docker", 1);
	assert_int_equal(parse(at("mnt"), NULL), -EINVAL);
	assert_non_null(strstr(err.text, "SANDBOXFS_BACKEND: \"backend\" must be one of local|"));
}

static void arguments_come_in_any_order(void **state)
{
	(void)state;
	assert_int_equal(parse("-f", at("src"), "-o", "ephemeral", at("mnt"),
	                       "-obase=main,net=host", "-d", NULL),
	                 0);
	assert_string_equal(opts.settings.source, at("src"));
	assert_string_equal(opts.settings.source_abs, at("src"));
	assert_true(opts.settings.foreground);
	assert_true(opts.settings.debug);
	assert_true(opts.settings.ephemeral);
	assert_string_equal(opts.settings.base, "main");
	assert_string_equal(opts.settings.net, "host");
	assert_int_equal(parse_o("net=allow:a.org,*.b.org:8080,[::1]:1,base=v1,x-a.b,10.0.0.1"),
	                 -EINVAL);
	assert_int_equal(parse_o("net=allow:a.org,*.b.org:8080,[::1]:1,base=v1,x-a.b"), 0);
	assert_string_equal(opts.settings.net, "allow:a.org,*.b.org:8080,[::1]:1");
	assert_string_equal(opts.settings.base, "v1");
	assert_int_equal(parse_o("net=allow:a\\,b,noatime"), 0);
	assert_string_equal(opts.settings.net, "allow:a,b");
	assert_int_equal(parse("-f", "--", "none", at("mnt"), NULL), 0);
	assert_null(opts.settings.source);
}

static void actions_need_no_mountpoint(void **state)
{
	(void)state;
	assert_int_equal(parse("--help", NULL), 0);
	assert_int_equal(opts.action, SBX_HELP);
	assert_int_equal(parse("-h", NULL), 0);
	assert_int_equal(opts.action, SBX_HELP);
	assert_int_equal(parse("-V", NULL), 0);
	assert_int_equal(opts.action, SBX_PRINT_VERSION);
	assert_int_equal(parse("--version", NULL), 0);
	assert_int_equal(opts.action, SBX_PRINT_VERSION);
	assert_int_equal(parse("--doctor", NULL), 0);
	assert_int_equal(opts.action, SBX_DOCTOR);
}

static void bad_command_lines_are_refused(void **state)
{
	(void)state;
	expect_failure(parse(NULL, NULL), EINVAL, "mountpoint is missing");
	expect_failure(parse("a", "b", "c", "d", NULL), EINVAL, "too many arguments from c on");
	expect_failure(parse("-x", at("mnt"), NULL), EINVAL, "unknown option -x");
	expect_failure(parse("--nonsense", at("mnt"), NULL), EINVAL, "unknown option --nonsense");
	expect_failure(parse("--docter", at("mnt"), NULL), EINVAL, "is --doctor meant?");
	expect_failure(parse(at("mnt"), "-o", NULL), EINVAL, "-o needs a value");
}

static void words_of_mount_are_sorted_out(void **state)
{
	(void)state;
	assert_int_equal(parse(at("src"), at("mnt"), "-o",
	                       "rw,dev,suid,noatime,_netdev,x-systemd.automount,user,ephemeral,"
	                       "noauto,max_read=4096,allow_other",
	                       NULL),
	                 0);
	assert_int_equal(opts.fuse.n, 2);
	assert_string_equal(opts.fuse.items[0], "rw");
	assert_string_equal(opts.fuse.items[1], "noatime");
	assert_true(opts.settings.ephemeral);
	assert_true(opts.settings.allow_other);
}

static void habits_of_other_mounts_are_passed_over(void **state)
{
	(void)state;
	assert_int_equal(parse(at("src"), at("mnt"), "-o",
	                       "defaults,rw,exec,async,relatime,diratime,auto,nouser,users,nofail,"
	                       "x-gvfs-show,x-gvfs-name=a b,X-mount.mkdir,comment=c,nonempty,"
	                       "big_writes,large_read,use_ino,readdir_ino,hard_remove,intr,nodev,"
	                       "nosuid,sync,default_permissions",
	                       NULL),
	                 0);
	assert_int_equal(opts.fuse.n, 7);
	for (size_t i = 0; i < opts.fuse.n; i++)
		assert_null(strstr("nonempty big_writes use_ino", opts.fuse.items[i]));
}

static void habits_that_cannot_hold_are_refused_in_words(void **state)
{
	static const char *const words[][2] = {
	        {"allow_root", "allow_root is not served: root enters with allow_other"},
	        {"attr_timeout=1", "attr_timeout is not served: what the kernel may keep"},
	        {"entry_timeout=1.5", "entry_timeout is not served: "},
	        {"negative_timeout=0", "negative_timeout is not served: "},
	        {"kernel_cache", "kernel_cache is not served: "},
	        {"auto_cache", "auto_cache is not served: "},
	        {"direct_io", "direct_io is not served: "},
	        {"uid=1000", "uid is not served: files show the owner"},
	        {"gid=1000", "gid is not served: "},
	        {"umask=022", "umask is not served: "},
	        {"fsname=x", "fsname is not served: it is SOURCE"},
	        {"subtype=x", "subtype is not served: it is sandboxfs"},
	        {"remount", "remount is not served: unmount and mount anew"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		expect_failure(parse(at("src"), at("mnt"), "-o", words[i][0], NULL), EINVAL,
		               words[i][1]);
}

static void what_is_never_granted_is_refused(void **state)
{
	(void)state;
	expect_failure(parse(at("src"), at("mnt"), "-o", "dev", NULL), EINVAL,
	               "the option dev is never granted: there are no devices");
	expect_failure(parse(at("src"), at("mnt"), "-o", "nodev,suid", NULL), EINVAL,
	               "the option suid is never granted: no program gains rights");
}

static void escaped_comma_does_not_split(void **state)
{
	(void)state;
	assert_int_equal(parse_o("env=A=1\\,2,,env=B=x\\y,base=v1"), 0);
	assert_int_equal(opts.settings.env.n, 2);
	assert_string_equal(opts.settings.env.items[0], "A=1,2");
	assert_string_equal(opts.settings.env.items[1], "B=x\\y");
	assert_string_equal(opts.settings.base, "v1");
}

/* Keys */

static void unknown_key_names_itself_and_the_nearest(void **state)
{
	char longest[100];

	(void)state;
	expect_failure(parse_o("isolatoin=none"), EINVAL,
	               "unknown key \"isolatoin\"; the nearest is \"isolation\"");
	expect_failure(set("bas", "x"), EINVAL, "\"bas\"; the nearest is \"base\"");
	expect_failure(set("timeout", "5"), EINVAL,
	               "the nearest is \"timeout_ms\", in milliseconds");
	expect_failure(set("network", "none"), EINVAL, "the nearest is \"net\"");
	expect_failure(set("RO-paths", "/"), EINVAL, "the nearest is \"ro_paths\"");
	expect_failure(set("nonsense", "1"), EINVAL, "\"nonsense\"; see --help");
	expect_failure(set("", NULL), EINVAL, "unknown key \"\"");
	memset(longest, 'x', 99);
	longest[99] = '\0';
	expect_failure(set(longest, "1"), EINVAL, "unknown key \"xxx");
}

static void secrets_are_refused_and_not_repeated(void **state)
{
	static const char *const keys[] = {"github_token", "api_key", "SECRET", "password"};

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		expect_failure(set(keys[i], "hunter2"), EINVAL, "environment");
		assert_non_null(strstr(err.text, keys[i]));
		assert_null(strstr(err.text, "hunter2"));
	}
	expect_failure(load("{\"daytona_api_key\":\"hunter2\"}"), EINVAL, "environment");
	expect_failure(parse("https://u:hunter2@example.org/r", at("mnt"), NULL), EINVAL,
	               "credentials");
	assert_null(strstr(err.text, "hunter2"));
}

static void flags_take_six_words_or_none(void **state)
{
	static const char *const on[] = {NULL, "on", "true", "1"};
	static const char *const off[] = {"off", "false", "0"};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		settings.ephemeral = false;
		assert_int_equal(set("ephemeral", on[i]), 0);
		assert_true(settings.ephemeral);
	}
	for (size_t i = 0; i < 3; i++) {
		settings.ephemeral = true;
		assert_int_equal(set("ephemeral", off[i]), 0);
		assert_false(settings.ephemeral);
	}
	expect_failure(set("ephemeral", "maybe"), EINVAL, "\"ephemeral\" must be one of");
	expect_failure(set("ephemeral", ""), EINVAL, "\"ephemeral\" must be one of");
	assert_int_equal(set("exec_fail", "errno"), 0);
	assert_true(settings.exec_fail_errno);
	assert_int_equal(set("exec_fail", "status"), 0);
	assert_false(settings.exec_fail_errno);
	expect_failure(set("exec_fail", "on"), EINVAL, "\"exec_fail\" must be one of status|errno");
}

static void the_trash_is_days_or_off(void **state)
{
	(void)state;
	assert_int_equal(settings.trash_days, 7);
	assert_int_equal(set("trash", "30"), 0);
	assert_int_equal(settings.trash_days, 30);
	assert_int_equal(set("trash", "off"), 0);
	assert_int_equal(settings.trash_days, 0);
	expect_failure(set("trash", "never"), EINVAL, "\"trash\" must be");
	assert_int_equal(load("{\"trash\":3}"), 0);
	assert_int_equal(settings.trash_days, 3);
	assert_int_equal(load("{\"trash\":\"off\"}"), 0);
	assert_int_equal(settings.trash_days, 0);
}

static void numbers_are_decimal_and_bounded(void **state)
{
	(void)state;
	assert_int_equal(set("memory_mb", "512"), 0);
	assert_int_equal(settings.limits.memory_mb, 512);
	assert_int_equal(set("operation_timeout_ms", "7"), 0);
	assert_int_equal(settings.operation_timeout_ms, 7);
	assert_int_equal(set("timeout_ms", "0"), 0);
	assert_int_equal(settings.operation_timeout_ms, 0);
	assert_int_equal(set("jobs", "8796093022207"), 0);
	expect_failure(set("jobs", "8796093022208"), EINVAL, "\"jobs\" is too large");
	expect_failure(set("jobs", "99999999999999999999999"), EINVAL, "\"jobs\" is too large");
	expect_failure(set("jobs", "-1"), EINVAL, "\"jobs\" must be an integer");
	expect_failure(set("jobs", "1k"), EINVAL, "\"jobs\" must be an integer");
	expect_failure(set("jobs", ""), EINVAL, "\"jobs\" needs a value");
	expect_failure(set("jobs", NULL), EINVAL, "\"jobs\" needs a value");
}

static void words_are_checked(void **state)
{
	(void)state;
	assert_int_equal(set("isolation", "require"), 0);
	assert_string_equal(settings.isolation, "require");
	expect_failure(set("isolation", "requir"), EINVAL, "\"isolation\" must be one of auto|");
	expect_failure(set("isolation", NULL), EINVAL, "\"isolation\" needs a value");
	expect_failure(set("backend", "cloud"), EINVAL, "\"backend\" must be one of local|");
	expect_failure(set("controls", "x"), EINVAL, "\"controls\"");
	expect_failure(set("io", "x"), EINVAL, "\"io\" must be one of cached|passthrough");
	expect_failure(set("net", "lan"), EINVAL,
	               "\"net\" must be one of none|host|allow:HOST,...");
	expect_failure(set("net", "allow:"), EINVAL, "net=allow: an empty rule");
	expect_failure(set("net", "allow:a.org,b c"), EINVAL, "net=allow: \"b c\"");
	assert_string_equal(settings.net, "none");
}

static void ctl_is_listed_or_renamed(void **state)
{
	(void)state;
	assert_int_equal(set("ctl", "listed"), 0);
	assert_true(settings.ctl_listed);
	assert_string_equal(settings.ctl_name, "ctl");
	assert_int_equal(set("ctl", ".box"), 0);
	assert_string_equal(settings.ctl_name, ".box");
	expect_failure(set("ctl", "a/b"), EINVAL, "\"ctl\" must be");
	expect_failure(set("ctl", ".."), EINVAL, "\"ctl\" must be");
	expect_failure(set("ctl", ""), EINVAL, "\"ctl\" needs a value");
	expect_failure(set("ctl", "stdout"), EINVAL, "stdout");
}

static void lists_are_split_at_colons(void **state)
{
	(void)state;
	assert_int_equal(set("allow", "git:/usr/bin/make"), 0);
	assert_int_equal(set("allow", "cc"), 0);
	assert_int_equal(settings.allow.n, 3);
	assert_string_equal(settings.allow.items[1], "/usr/bin/make");
	assert_string_equal(settings.allow.items[2], "cc");
	assert_null(settings.allow.items[3]);
	expect_failure(set("allow", "a::b"), EINVAL, "\"allow\" needs a value");
	expect_failure(set("allow", NULL), EINVAL, "\"allow\" needs a value");
	assert_int_equal(set("ro_paths", "/a:/b"), 0);
	assert_int_equal(settings.ro_paths.n, 2);
	expect_failure(set("rw_paths", "/a:b"), EINVAL, "\"rw_paths\" must hold absolute paths");
	expect_failure(set("hide_paths", "~"), EINVAL, "\"hide_paths\" must hold absolute paths");
	assert_int_equal(set("path", "/bin:/usr/bin"), 0);
	expect_failure(set("path", "/bin::/usr/bin"), EINVAL, "\"path\" must hold absolute paths");
	expect_failure(set("path", ":/bin"), EINVAL, "\"path\" must hold absolute paths");
}

static void environment_merges_by_key(void **state)
{
	(void)state;
	assert_int_equal(set("env", "A=1"), 0);
	assert_int_equal(set("env", "AB=2"), 0);
	assert_int_equal(set("env", "A=3=4"), 0);
	assert_int_equal(settings.env.n, 2);
	assert_string_equal(settings.env.items[0], "A=3=4");
	assert_string_equal(settings.env.items[1], "AB=2");
	expect_failure(set("env", "A"), EINVAL, "KEY=VALUE");
	expect_failure(set("env", "A B=1"), EINVAL, "Invalid env key \"A B\"");
	expect_failure(set("env", "=1"), EINVAL, "Invalid env key \"\"");
	expect_failure(set("env", NULL), EINVAL, "\"env\" needs a value");
}

static void daemon_path_loses_relative_directories(void **state)
{
	char *old = strdup(getenv("PATH"));

	(void)state;
	setenv("PATH", ".:/bin::/usr/bin:x/y:", 1);
	sbx_settings_release(&settings);
	assert_int_equal(sbx_settings_defaults(&settings), 0);
	assert_string_equal(settings.path, "/bin:/usr/bin");
	setenv("PATH", ".", 1);
	sbx_settings_release(&settings);
	assert_int_equal(sbx_settings_defaults(&settings), 0);
	assert_non_null(strstr(settings.path, "/usr/local/bin:"));
	setenv("PATH", old, 1);
	free(old);
}

/* Configuration file */

static void json_has_the_same_keys_with_real_types(void **state)
{
	(void)state;
	assert_int_equal(load("{\"base\":\"main\",\"ephemeral\":true,\"cpu_s\":3,"
	                      "\"exec_fail\":\"errno\",\"allow\":[\"a:b\",\"c\"],\"ctl\":\"c\","
	                      "\"env\":{\"A\":\"=\"},\"ro_paths\":[\"/x\"],\"ctl_listed\":true}\n"),
	                 0);
	assert_string_equal(settings.base, "main");
	assert_true(settings.ephemeral);
	assert_int_equal(settings.limits.cpu_s, 3);
	assert_true(settings.exec_fail_errno);
	assert_int_equal(settings.allow.n, 2);
	assert_string_equal(settings.allow.items[0], "a:b");
	assert_string_equal(settings.env.items[0], "A==");
	assert_string_equal(settings.ctl_name, "c");
	assert_true(settings.ctl_listed);
}

static void bad_json_is_refused_by_name(void **state)
{
	static const char *const bad[][2] = {
	        {"", "incomplete JSON"},
	        {"[]", "must be a JSON object"},
	        {"null", "must be a JSON object"},
	        {"{} {}", "trailing data"},
	        {"{\"base\":1}", "\"base\" must be a string"},
	        {"{\"base\":\"\"}", "\"base\" needs a value"},
	        {"{\"ephemeral\":1}", "\"ephemeral\" must be true or false"},
	        {"{\"ephemeral\":\"on\"}", "\"ephemeral\" must be true or false"},
	        {"{\"cpu_s\":\"3\"}", "\"cpu_s\" must be an integer"},
	        {"{\"cpu_s\":-1}", "\"cpu_s\" must be an integer"},
	        {"{\"cpu_s\":99999999999999999}", "\"cpu_s\" is too large"},
	        {"{\"exec_fail\":true}", "\"exec_fail\" must be a string"},
	        {"{\"allow\":\"a\"}", "\"allow\" must be an array of strings"},
	        {"{\"allow\":[1]}", "\"allow\" must be an array of strings"},
	        {"{\"allow\":[\"\"]}", "\"allow\" needs a value"},
	        {"{\"ro_paths\":[\"x\"]}", "\"ro_paths\" must hold absolute paths"},
	        {"{\"env\":[]}", "\"env\" must be an object of strings"},
	        {"{\"env\":{\"A\":1}}", "\"env\" must be an object of strings"},
	        {"{\"env\":{\"A=B\":\"\"}}", "Invalid env key \"A=B\""},
	        {"{\"config\":\"x\"}", "\"config\" is for the command line only"},
	        {"{\"cpu\":1}", "unknown key \"cpu\"; the nearest is \"cpu_s\""},
	        {"{\"cpu_s\":1,\"cpu_s\":2}", "duplicate key \"cpu_s\""},
	        {"{\"base\":\"\\u0000\"}", "u0000"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		expect_failure(load(bad[i][0]), EINVAL, bad[i][1]);
}

static void options_outrank_the_file(void **state)
{
	char words[400];

	(void)state;
	write_file(at("sandboxfs.json"), "{\"base\":\"f\",\"cpu_s\":1,\"allow\":[\"a\",\"b\"],"
	                                 "\"env\":{\"A\":\"f\",\"B\":\"f\"}}");
	snprintf(words, sizeof(words), "base=o,allow=c,allow=d,env=A=o,config=%s",
	         at("sandboxfs.json"));
	assert_int_equal(parse_o(words), 0);
	assert_string_equal(opts.settings.base, "o");
	assert_int_equal(opts.settings.limits.cpu_s, 1);
	assert_int_equal(opts.settings.allow.n, 2);
	assert_string_equal(opts.settings.allow.items[0], "c");
	assert_int_equal(opts.settings.env.n, 2);
	assert_string_equal(opts.settings.env.items[0], "A=o");
	assert_string_equal(opts.settings.env.items[1], "B=f");
}

static void file_is_found_where_users_keep_theirs(void **state)
{
	(void)state;
	mkdir(at(".config"), 0755);
	write_file(at(".config/sandboxfs.json"), "{\"base\":\"home\"}");
	assert_int_equal(parse(at("mnt"), NULL), 0);
	assert_string_equal(opts.settings.base, "home");
	write_file(at("sandboxfs.json"), "{\"base\":\"xdg\"}");
	setenv("XDG_CONFIG_HOME", dir, 1);
	assert_int_equal(parse(at("mnt"), NULL), 0);
	assert_string_equal(opts.settings.base, "xdg");
	write_file(at("sandboxfs.json"), "{");
	expect_failure(parse(at("mnt"), NULL), EINVAL, "sandboxfs.json: incomplete JSON");
}

static void missing_file_is_an_error_when_it_was_named(void **state)
{
	char words[300];

	(void)state;
	snprintf(words, sizeof(words), "config=%s", at("nowhere"));
	expect_failure(parse_o(words), ENOENT, "nowhere");
	expect_failure(parse_o("config"), EINVAL, "\"config\" needs a value");
	snprintf(words, sizeof(words), "config=%s", dir);
	expect_failure(parse_o(words), EISDIR, dir);
}

/* Paths */

static void paths_are_resolved(void **state)
{
	char words[300], mounted[300];

	(void)state;
	mkdir(at("real"), 0755);
	assert_int_equal(symlink("real", at("link")), 0);
	snprintf(words, sizeof(words), "state_dir=%s//new/deep,logs_dir=%s", at("link"),
	         at("link"));
	snprintf(mounted, sizeof(mounted), "%s/../mnt//", at("src"));
	assert_int_equal(parse(mounted, "-o", words, NULL), 0);
	assert_string_equal(opts.settings.mountpoint, at("mnt"));
	assert_string_equal(opts.settings.state_dir, at("real/new/deep"));
	assert_string_equal(opts.settings.logs_dir, at("real"));
	snprintf(words, sizeof(words), "state_dir=%s/new/../x", at("real"));
	expect_failure(parse_o(words), EINVAL, "\"state_dir\" must not contain ..");
	snprintf(words, sizeof(words), "state_dir=%s/x", at("file"));
	expect_failure(parse_o(words), ENOTDIR, "\"state_dir\"");
}

static void relative_paths_become_absolute(void **state)
{
	char old[4096];

	(void)state;
	assert_non_null(getcwd(old, sizeof(old)));
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(parse("src", "mnt", "-o", "state_dir=state", NULL), 0);
	assert_int_equal(chdir(old), 0);
	assert_string_equal(opts.settings.source, "src");
	assert_string_equal(opts.settings.source_abs, at("src"));
	assert_string_equal(opts.settings.mountpoint, at("mnt"));
	assert_string_equal(opts.settings.state_dir, at("state"));
}

static void bad_mountpoints_and_sources_are_refused(void **state)
{
	(void)state;
	expect_failure(parse(at("gone"), NULL), ENOENT, "mountpoint");
	expect_failure(parse(at("file"), NULL), ENOTDIR, "mountpoint");
	expect_failure(parse(at("file/x"), NULL), ENOTDIR, "mountpoint");
	expect_failure(parse("", NULL), ENOENT, "mountpoint");
	expect_failure(parse(at("gone"), at("mnt"), NULL), ENOENT, "source");
	expect_failure(parse("./gone", at("mnt"), NULL), ENOENT, "source");
	expect_failure(parse(at("file"), at("mnt"), NULL), ENOTDIR, "source");
}

static void remote_sources_need_a_remote_backend(void **state)
{
	static const char *const remote[] = {"org/repo-that-is-not-here",
	                                     "https://example.org/r.git", "git@example.org:o/r"};

	(void)state;
	for (size_t i = 0; i < sizeof(remote) / sizeof(*remote); i++) {
		expect_failure(parse(remote[i], at("mnt"), NULL), EOPNOTSUPP, "remote backend");
		assert_int_equal(parse(remote[i], at("mnt"), "-o", "backend=daytona", NULL), 0);
		assert_string_equal(opts.settings.source, remote[i]);
		assert_null(opts.settings.source_abs);
	}
}

static void state_belongs_to_source_and_mountpoint(void **state)
{
	char *first = NULL;
	char prefix[200];

	(void)state;
	assert_int_equal(parse(at("src"), at("mnt"), NULL), 0);
	first = strdup(opts.settings.state_dir);
	snprintf(prefix, sizeof(prefix), "%s/sandboxfs-%u/", dir, (unsigned)geteuid());
	assert_memory_equal(first, prefix, strlen(prefix));
	assert_int_equal(strlen(first), strlen(prefix) + 16);
	assert_int_equal(parse(at("src/."), at("src/../mnt"), NULL), 0);
	assert_string_equal(opts.settings.state_dir, first);
	assert_int_equal(parse("none", at("mnt"), NULL), 0);
	assert_string_not_equal(opts.settings.state_dir, first);
	free(first);
}

static void state_of_somebody_else_is_not_used(void **state)
{
	char own[64];

	(void)state;
	snprintf(own, sizeof(own), "sandboxfs-%u", (unsigned)geteuid());
	assert_int_equal(symlink("src", at(own)), 0);
	expect_failure(parse(at("mnt"), NULL), EACCES, "not a directory of yours");
}

static void state_and_mountpoint_lie_apart(void **state)
{
	char words[300];

	(void)state;
	snprintf(words, sizeof(words), "state_dir=%s", at("mnt"));
	expect_failure(parse_o(words), EINVAL, "\"state_dir\"");
	snprintf(words, sizeof(words), "state_dir=%s", at("mnt/in"));
	expect_failure(parse_o(words), EINVAL, "\"state_dir\"");
	snprintf(words, sizeof(words), "state_dir=%s", dir);
	expect_failure(parse_o(words), EINVAL, "\"state_dir\"");
	expect_failure(parse_o("state_dir=/"), EINVAL, "\"state_dir\"");
	snprintf(words, sizeof(words), "logs_dir=%s", at("mnt/in"));
	expect_failure(parse_o(words), EINVAL, "\"logs_dir\"");
	snprintf(words, sizeof(words), "state_dir=%s", at("mntx"));
	assert_int_equal(parse_o(words), 0);
}

/* What a daemon that was killed leaves behind: a FUSE mount without its other end. */
static bool mount_dead(const char *path)
{
	char data[100];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	bool mounted;

	snprintf(data, sizeof(data), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	mounted = fd >= 0 && mount("test", path, "fuse", 0, data) == 0;
	if (fd >= 0)
		close(fd);
	return mounted;
}

static void dead_mount_is_a_good_mountpoint(void **state)
{
	struct stat st;
	char slashed[200];
	int r, again;

	(void)state;
	if (!mount_dead(at("mnt")))
		skip();
	snprintf(slashed, sizeof(slashed), "%s//", at("mnt"));
	r = stat(at("mnt"), &st) < 0 ? parse(at("mnt"), NULL) : 1;
	again = r ? r : parse(slashed, NULL);
	umount2(at("mnt"), MNT_DETACH);
	assert_int_equal(r, 0);
	assert_int_equal(again, 0);
	assert_string_equal(opts.settings.mountpoint, at("mnt"));
}

/* What is shown */

static const char *shown(struct json_object *obj, const char *key)
{
	struct json_object *value;

	assert_true(json_object_object_get_ex(obj, key, &value));
	return json_object_to_json_string_ext(value, JSON_C_TO_STRING_NOSLASHESCAPE);
}

static void config_shows_every_key_and_no_secret(void **state)
{
	struct json_object *obj;

	(void)state;
	assert_int_equal(set("env", "MY_TOKEN=hunter2"), 0);
	assert_int_equal(set("env", "A=1"), 0);
	assert_int_equal(set("allow", "a:b"), 0);
	assert_int_equal(set("exec_fail", "errno"), 0);
	obj = sbx_settings_json(&settings);
	assert_string_equal(shown(obj, "source"), "\"none\"");
	assert_string_equal(shown(obj, "backend"), "\"local\"");
	assert_string_equal(shown(obj, "base"), "null");
	assert_string_equal(shown(obj, "timeout_ms"), "600000");
	assert_string_equal(shown(obj, "exec_fail"), "\"errno\"");
	assert_string_equal(shown(obj, "allow"), "[\"a\",\"b\"]");
	assert_string_equal(shown(obj, "env"), "{\"MY_TOKEN\":\"***\",\"A\":\"1\"}");
	assert_string_equal(shown(obj, "hide_paths"), "[]");
	json_object_put(obj);
}

static void release_accepts_a_zeroed_struct_twice(void **state)
{
	struct sbx_options zero = {0};

	(void)state;
	sbx_options_release(&zero);
	sbx_options_release(&zero);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        T(defaults_are_those_documented),
	        T(vercel_is_the_default_where_vercel_is_1),
	        T(the_environment_names_a_backend),
	        T(arguments_come_in_any_order),
	        T(actions_need_no_mountpoint),
	        T(bad_command_lines_are_refused),
	        T(words_of_mount_are_sorted_out),
	        T(habits_of_other_mounts_are_passed_over),
	        T(habits_that_cannot_hold_are_refused_in_words),
	        T(what_is_never_granted_is_refused),
	        T(escaped_comma_does_not_split),
	        T(unknown_key_names_itself_and_the_nearest),
	        T(secrets_are_refused_and_not_repeated),
	        T(flags_take_six_words_or_none),
	        T(the_trash_is_days_or_off),
	        T(numbers_are_decimal_and_bounded),
	        T(words_are_checked),
	        T(ctl_is_listed_or_renamed),
	        T(lists_are_split_at_colons),
	        T(environment_merges_by_key),
	        T(daemon_path_loses_relative_directories),
	        T(json_has_the_same_keys_with_real_types),
	        T(bad_json_is_refused_by_name),
	        T(options_outrank_the_file),
	        T(file_is_found_where_users_keep_theirs),
	        T(missing_file_is_an_error_when_it_was_named),
	        T(paths_are_resolved),
	        T(relative_paths_become_absolute),
	        T(bad_mountpoints_and_sources_are_refused),
	        T(remote_sources_need_a_remote_backend),
	        T(state_belongs_to_source_and_mountpoint),
	        T(state_of_somebody_else_is_not_used),
	        T(state_and_mountpoint_lie_apart),
	        T(dead_mount_is_a_good_mountpoint),
	        T(config_shows_every_key_and_no_secret),
	        T(release_accepts_a_zeroed_struct_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
