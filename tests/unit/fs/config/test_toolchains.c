/*
 * The parts of a home directory that commands get to see because PATH leads there: the layouts of
 * version managers.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/config/options.h"
#include "fs/config/toolchains.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/system_dirs.h"
#include "tests/lib/scratch.h"

static const char *home;
static struct sbx_settings settings;

static void make_dirs(const char *path)
{
	char at[PATH_MAX];

	snprintf(at, sizeof(at), "%s", path);
	for (char *c = at + strlen(home) + 1; (c = strchr(c, '/')); *c++ = '/') {
		*c = '\0';
		mkdir(at, 0755);
	}
}

/* A file of the home, or a program, with the directories above it. */
static void file(const char *name)
{
	const char *path = scratch_path("%s", name);

	make_dirs(path);
	scratch_write(path, "#!/bin/sh\n");
	assert_int_equal(chmod(path, 0755), 0);
}

static void leads(const char *name, const char *target)
{
	const char *path = scratch_path("%s", name);

	make_dirs(path);
	assert_int_equal(symlink(target, path), 0);
}

/* Finds what the home's directories NAMES, a list with colons, bring when they are in PATH. */
static void find(const char *names)
{
	char path[PATH_MAX] = "/usr/bin", *all = strdup(names), *save = NULL;

	for (char *n = strtok_r(all, ":", &save); n; n = strtok_r(NULL, ":", &save))
		snprintf(path + strlen(path), sizeof(path) - strlen(path), ":%s/%s", home, n);
	free(all);
	free(settings.path);
	settings.path = strdup(path);
	assert_int_equal(sbx_toolchains_find(&settings), 0);
}

static bool sees(const char *name)
{
	return sbx_toolchains_sees(&settings, scratch_path("%s", name));
}

#define assert_sees(name)     assert_true(sees(name))
#define assert_not_seen(name) assert_false(sees(name))

static void assert_variable(const char *key, const char *name)
{
	char want[PATH_MAX];
	bool found = false;

	snprintf(want, sizeof(want), "%s=%s/%s", key, home, name);
	for (size_t i = 0; i < settings.tool_env.n; i++)
		found |= strcmp(settings.tool_env.items[i], want) == 0;
	if (!found)
		fail_msg("there is no %s", want);
}

static int set_up(void **state)
{
	static const char *const told[] = {"ASDF_DATA_DIR", "MISE_DATA_DIR", "VOLTA_HOME",
	                                   "RUSTUP_HOME"};

	(void)state;
	home = scratch_make();
	setenv("HOME", home, 1);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(told); i++)
		unsetenv(told[i]);
	assert_int_equal(sbx_settings_defaults(&settings), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_settings_release(&settings);
	scratch_remove();
	return 0;
}

static void the_system_is_seen_and_a_home_is_not(void **state)
{
	char path[PATH_MAX];

	(void)state;
	for (const char *const *dir = sbx_system_dirs; *dir; dir++) {
		snprintf(path, sizeof(path), "%s/x", *dir);
		assert_true(sbx_toolchains_sees(&settings, *dir));
		assert_true(sbx_toolchains_sees(&settings, path));
		snprintf(path, sizeof(path), "%sx", *dir);
		assert_false(sbx_toolchains_sees(&settings, path));
	}
	file("bin/own");
	find("bin:.");
	assert_sees("bin/own");
	assert_false(sbx_toolchains_sees(&settings, home));
}

/* A shim is a link to mise itself, which looks for the tool in installs/. */
static void mise_with_shims(void **state)
{
	(void)state;
	file(".local/bin/mise");
	file(".local/bin/other");
	leads(".local/share/mise/shims/node", scratch_path(".local/bin/mise"));
	file(".local/share/mise/installs/node/20.1.0/bin/node");
	file(".local/share/mise/plugins/own/bin/install");
	file(".local/share/mise/.env");
	file(".local/state/mise/trusted");
	find(".local/share/mise/shims");
	assert_sees(".local/share/mise/shims/node");
	assert_sees(".local/share/mise/installs/node/20.1.0/bin/node");
	assert_sees(".local/share/mise/plugins/own");
	assert_sees(".local/bin/mise");
	assert_not_seen(".local/bin/other");
	assert_not_seen(".local/share/mise/.env");
	assert_not_seen(".local/share/mise");
	assert_not_seen(".local/state/mise/trusted");
	assert_variable("MISE_DATA_DIR", ".local/share/mise");
}

/* As its activation in a shell has it: each tool's own directory. */
static void mise_activated(void **state)
{
	(void)state;
	file(".local/share/mise/installs/node/20.1.0/bin/node");
	file(".local/share/mise/installs/node/20.1.0/lib/node_modules/npm/cli");
	file(".local/share/mise/installs/python/3.99/bin/python");
	leads(".local/share/mise/installs/node/20", "20.1.0");
	find(".local/share/mise/installs/node/20/bin");
	assert_sees(".local/share/mise/installs/node/20/lib");
	assert_sees(".local/share/mise/installs/node/20.1.0/lib/node_modules/npm/cli");
	assert_not_seen(".local/share/mise/installs/python/3.99/bin/python");
}

/* Shims are scripts that run its own program, and that has its parts beside it. */
static void asdf(void **state)
{
	(void)state;
	file(".asdf/bin/asdf");
	file(".asdf/lib/utils.bash");
	file(".asdf/defaults");
	file(".asdf/shims/ruby");
	file(".asdf/installs/ruby/3.3.0/bin/ruby");
	file(".asdf/plugins/ruby/bin/exec-env");
	file(".asdf/tmp/secret");
	scratch_write(scratch_path(".tool-versions"), "ruby 3.3.0\n");
	find(".asdf/bin:.asdf/shims");
	assert_sees(".asdf/bin/asdf");
	assert_sees(".asdf/lib/utils.bash");
	assert_sees(".asdf/defaults");
	assert_sees(".asdf/shims/ruby");
	assert_sees(".asdf/installs/ruby/3.3.0/bin/ruby");
	assert_sees(".asdf/plugins/ruby/bin/exec-env");
	assert_not_seen(".asdf/tmp/secret");
	assert_variable("ASDF_DATA_DIR", ".asdf");
	/* Which version is meant stands in the home, and goes into the private one. */
	assert_int_equal(settings.carried.n, 2);
	assert_string_equal(settings.carried.items[0], ".tool-versions");
	assert_non_null(strstr(settings.carried.items[1], "ruby 3.3.0\n"));
}

/* Without the file of its layout it would migrate its directory, which is read only. */
static void volta(void **state)
{
	(void)state;
	file(".volta/bin/volta-shim");
	leads(".volta/bin/node", "volta-shim");
	file(".volta/layout.v4");
	file(".volta/tools/image/node/20.1.0/bin/node");
	file(".volta/hooks.json");
	find(".volta/bin");
	assert_sees(".volta/bin/node");
	assert_sees(".volta/layout.v4");
	assert_sees(".volta/tools/image/node/20.1.0/bin/node");
	assert_not_seen(".volta/hooks.json");
	assert_variable("VOLTA_HOME", ".volta");
}

/* PATH has candidates/NAME/current/bin, and current is a link to the version. */
static void sdkman(void **state)
{
	(void)state;
	file(".sdkman/candidates/java/21-tem/bin/java");
	file(".sdkman/candidates/java/21-tem/lib/modules");
	file(".sdkman/candidates/java/21-tem/conf/net.properties");
	file(".sdkman/candidates/java/17-tem/bin/java");
	leads(".sdkman/candidates/java/current", "21-tem");
	file(".sdkman/candidates/maven/current/bin/mvn");
	file(".sdkman/candidates/maven/current/lib/maven-core.jar");
	file(".sdkman/candidates/maven/current/boot/plexus.jar");
	file(".sdkman/candidates/maven/current/conf/settings.xml");
	file(".sdkman/candidates/maven/current/conf/logging/simplelogger.properties");
	file(".sdkman/candidates/groovy/current/bin/groovy");
	file(".sdkman/candidates/groovy/current/lib/groovy.jar");
	file(".sdkman/candidates/groovy/current/conf/groovy-starter.conf");
	file(".sdkman/etc/config");
	find(".sdkman/candidates/java/current/bin:.sdkman/candidates/maven/current/bin:"
	     ".sdkman/candidates/groovy/current/bin");
	assert_sees(".sdkman/candidates/java/current/bin/java");
	assert_sees(".sdkman/candidates/java/21-tem/lib/modules");
	assert_sees(".sdkman/candidates/java/21-tem/conf/net.properties");
	assert_not_seen(".sdkman/candidates/java/17-tem/bin/java");
	assert_sees(".sdkman/candidates/maven/current/boot/plexus.jar");
	assert_sees(".sdkman/candidates/maven/current/conf/logging");
	assert_not_seen(".sdkman/candidates/maven/current/conf/settings.xml");
	assert_sees(".sdkman/candidates/groovy/current/conf/groovy-starter.conf");
	assert_not_seen(".sdkman/etc/config");
}

static void what_is_not_shown_is_found(void **state)
{
	char program[PATH_MAX], dir[PATH_MAX];

	(void)state;
	file("work/tool");
	find("bin");
	assert_true(sbx_toolchains_hidden(&settings, scratch_path("work/tool"), program, dir));
	assert_string_equal(program, scratch_path("work/tool"));
	assert_string_equal(dir, scratch_path("work"));
	assert_false(sbx_toolchains_hidden(&settings, "/usr/bin/env", program, dir));
	assert_false(sbx_toolchains_hidden(&settings, "no-such-program", program, dir));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
	        T(the_system_is_seen_and_a_home_is_not),
	        T(mise_with_shims),
	        T(mise_activated),
	        T(asdf),
	        T(volta),
	        T(sdkman),
	        T(what_is_not_shown_is_found),
	};

	return cmocka_run_group_tests_name("toolchains", tests, NULL, NULL);
}
