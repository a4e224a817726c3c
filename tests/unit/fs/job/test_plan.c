/*
 * The plan of a command and the requests that are refused: directory, environment, allowlist,
 * limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/plan.h"
#include "sandboxfs/clock.h"
#include "tests/lib/job_fixture.h"

static struct fixture fx;
static char *true_argv[] = {"true", NULL};

static void put(const char *name, mode_t mode)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", fx.root, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	close(fd);
}

static void put_dir(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", fx.root, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void put_link(const char *name, const char *target)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", fx.root, name);
	assert_int_equal(symlink(target, path), 0);
}

static int set_up(void **state)
{
	(void)state;
	fixture_set_up(&fx);
	put_dir("src");
	put_dir("src/deep");
	put_dir("...");
	put("file", 0600);
	put_link("loop", "loop");
	put_link("out", "/");
	put_link("magic", "/proc/self/cwd");
	put_link("inner", "src/deep");
	put_link("up", "../..");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_tear_down(&fx);
	return 0;
}

static void run(const struct sbx_request *req)
{
	struct sbx_jobrec *rec;
	bool repeated;

	assert_int_equal(sbx_job_start(fx.jobs, req, SBX_JOB_EXEC, NULL, &rec, &repeated, NULL), 0);
	sbx_job_unref(rec);
}

/* ---- working directory ---- */

static void expect_cwd(const char *cwd, const char *want)
{
	struct sbx_request req = {.argv = true_argv, .set = SBX_REQ_CWD, .cwd = (char *)cwd};

	run(&req);
	assert_string_equal(fixture_last(&fx)->cwd, want);
}

static void expect_cwd_refused(const char *cwd, int code, const char *text)
{
	struct sbx_request req = {.argv = true_argv, .set = SBX_REQ_CWD, .cwd = (char *)cwd};

	fixture_expect_refused(&fx, &req, NULL, code, text);
}

static void a_directory_inside_may_be_named_in_many_ways(void **state)
{
	char path[256];

	(void)state;
	expect_cwd("", "");
	expect_cwd(".", "");
	expect_cwd("src", "src");
	expect_cwd("./src/deep", "src/deep");
	expect_cwd("src/..", "src/..");
	expect_cwd("inner", "inner");
	expect_cwd("...", "...");
	expect_cwd("/view/box", "");
	expect_cwd("/view/box/src", "src");
	expect_cwd("//view/./box//src/deep", "src/deep");
	snprintf(path, sizeof(path), "%s/src", fx.root);
	expect_cwd(path, "src");
}

static void a_directory_outside_is_a_confinement_violation(void **state)
{
	static const char *const outside[] = {"..",
	                                      "../..",
	                                      "src/../..",
	                                      "/",
	                                      "/etc",
	                                      "/view",
	                                      "/view/boxer",
	                                      "/view/box/..",
	                                      "/view/box/../other",
	                                      "/view/other",
	                                      "out",
	                                      "out/etc",
	                                      "magic",
	                                      "up",
	                                      "src/deep/../../../x",
	                                      "/proc/self/root/etc",
	                                      "/viewbox"};

	(void)state;
	for (size_t i = 0; i < sizeof(outside) / sizeof(*outside); i++) {
		char text[128];

		snprintf(text, sizeof(text),
		         "path confinement violation: %s is outside the sandbox", outside[i]);
		expect_cwd_refused(outside[i], EACCES, text);
	}
	assert_int_equal(atomic_load(&fx.runner.execs), 0);
}

static void what_is_missing_or_no_directory_is_named_so(void **state)
{
	(void)state;
	expect_cwd_refused("none", ENOENT, "none does not exist");
	expect_cwd_refused("file", ENOTDIR, "file is not a directory");
	expect_cwd_refused("file/x", ENOTDIR, "file/x is not a directory");
	expect_cwd_refused("/view/box/none", ENOENT, "does not exist");
	expect_cwd_refused("loop", ELOOP, "loop");
}

static void a_path_in_an_error_cannot_forge_a_line(void **state)
{
	(void)state;
	expect_cwd_refused("../a\nb", EACCES, "../a?b is outside");
}

static void the_default_directory_is_checked_when_set_and_used(void **state)
{
	struct sbx_request req = {.argv = true_argv};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_job_defaults d;
	char path[256];

	(void)state;
	assert_int_equal(sbx_jobs_set_cwd(fx.jobs, "/view/box/src/deep", &err), 0);
	assert_int_equal(sbx_jobs_set_cwd(fx.jobs, "..", &err), -EACCES);
	assert_int_equal(sbx_jobs_set_cwd(fx.jobs, "none", &err), -ENOENT);
	assert_int_equal(sbx_jobs_set_cwd(fx.jobs, "file", &err), -ENOTDIR);
	run(&req);
	assert_string_equal(fixture_last(&fx)->cwd, "src/deep");
	assert_int_equal(sbx_jobs_get_defaults(fx.jobs, &d), 0);
	assert_string_equal(d.cwd, "src/deep");
	assert_null(d.env);
	assert_int_equal(d.timeout_ms, 600000);
	sbx_job_defaults_release(&d);
	snprintf(path, sizeof(path), "%s/src/deep", fx.root);
	assert_int_equal(rmdir(path), 0);
	fixture_expect_refused(&fx, &req, NULL, ENOENT, "src/deep does not exist");
}

static void after_a_rename_the_new_view_counts(void **state)
{
	(void)state;
	sbx_jobs_set_view(fx.jobs, "/view/new");
	expect_cwd("/view/new/src", "src");
	expect_cwd_refused("/view/box/src", EACCES, "path confinement violation");
}

/* ---- environment ---- */

static void the_environment_is_made_of_nothing_else(void **state)
{
	struct sbx_request req = {.argv = true_argv};
	size_t n = 0;

	(void)state;
	setenv("GITHUB_TOKEN", "hush", 1);
	run(&req);
	assert_string_equal(played_env(fixture_last(&fx), "PATH"), "/usr/bin:/bin");
	assert_string_equal(played_env(fixture_last(&fx), "LANG"), "C.UTF-8");
	assert_string_equal(played_env(fixture_last(&fx), "TERM"), "dumb");
	assert_non_null(played_env(fixture_last(&fx), "USER"));
	assert_string_equal(played_env(fixture_last(&fx), "NO_PROXY"), "*");
	while (fixture_last(&fx)->env[n])
		n++;
	assert_int_equal(n, 5 + 3); /* and the backend's HOME, TMPDIR, PWD */
	unsetenv("GITHUB_TOKEN");
}

static void the_later_word_counts(void **state)
{
	char *mount[] = {"A=mount", "B=mount", "C=mount", "TERM=xterm", NULL};
	char *defaults[] = {"B=default", "C=default", NULL};
	char *asked[] = {"C=request", "AB=", "C=last", NULL};
	struct sbx_request req = {.argv = true_argv, .env = asked};

	(void)state;
	fx.settings.env = (struct sbx_strings){.items = mount, .n = 4};
	assert_int_equal(sbx_jobs_set_env(fx.jobs, defaults, NULL), 0);
	run(&req);
	assert_string_equal(played_env(fixture_last(&fx), "A"), "mount");
	assert_string_equal(played_env(fixture_last(&fx), "B"), "default");
	assert_string_equal(played_env(fixture_last(&fx), "C"), "last");
	assert_string_equal(played_env(fixture_last(&fx), "AB"), "");
	assert_string_equal(played_env(fixture_last(&fx), "TERM"), "xterm");
}

static void proxies_are_stripped_without_network_only(void **state)
{
	char *asked[] = {"http_proxy=p",    "HTTPS_PROXY=p", "All_Proxy=p", "ftp_proxy=p",
	                 "my_http_proxy=p", "NO_PROXY=none", NULL};
	struct sbx_request req = {.argv = true_argv, .env = asked};

	(void)state;
	run(&req);
	assert_null(played_env(fixture_last(&fx), "http_proxy"));
	assert_null(played_env(fixture_last(&fx), "HTTPS_PROXY"));
	assert_null(played_env(fixture_last(&fx), "All_Proxy"));
	assert_null(played_env(fixture_last(&fx), "ftp_proxy"));
	assert_string_equal(played_env(fixture_last(&fx), "my_http_proxy"), "p");
	assert_string_equal(played_env(fixture_last(&fx), "NO_PROXY"), "*");
	fx.settings.net = "host";
	run(&req);
	assert_string_equal(played_env(fixture_last(&fx), "http_proxy"), "p");
	assert_string_equal(played_env(fixture_last(&fx), "NO_PROXY"), "none");
}

static void proxies_are_set_with_allowed_hosts_unless_asked_otherwise(void **state)
{
	char *asked[] = {"https_proxy=p", NULL};
	struct sbx_request req = {.argv = true_argv};

	(void)state;
	fx.settings.net = "allow:example.org";
	run(&req);
	assert_string_equal(played_env(fixture_last(&fx), "HTTPS_PROXY"), "http://127.0.0.1:808");
	assert_string_equal(played_env(fixture_last(&fx), "http_proxy"), "http://127.0.0.1:808");
	assert_string_equal(played_env(fixture_last(&fx), "NO_PROXY"), "localhost,127.0.0.1");
	req.env = asked;
	run(&req);
	assert_string_equal(played_env(fixture_last(&fx), "https_proxy"), "p");
}

static void default_variables_are_checked(void **state)
{
	char *bad_key[] = {"1A=x", NULL}, *no_value[] = {"A", NULL}, *good[] = {"A=1", NULL};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_job_defaults d;

	(void)state;
	assert_int_equal(sbx_jobs_set_env(fx.jobs, good, &err), 0);
	assert_int_equal(sbx_jobs_set_env(fx.jobs, bad_key, &err), -EINVAL);
	assert_non_null(strstr(err.text, "Invalid env key"));
	assert_int_equal(sbx_jobs_set_env(fx.jobs, no_value, &err), -EINVAL);
	assert_int_equal(sbx_jobs_get_defaults(fx.jobs, &d), 0);
	assert_string_equal(d.env[0], "A=1");
	sbx_job_defaults_release(&d);
	assert_int_equal(sbx_jobs_set_env(fx.jobs, NULL, &err), 0);
}

static void a_hundred_thousand_variables_are_no_trouble(void **state)
{
	enum { MANY = 100000 };
	char **env = calloc(MANY + 1, sizeof(*env));
	struct sbx_request req = {.argv = true_argv, .env = env};
	uint64_t before = sbx_now_ns();

	(void)state;
	for (int i = 0; i < MANY; i++)
		assert_true(asprintf(&env[i], "K%d=v", i % (MANY / 2)) > 0);
	run(&req);
	assert_string_equal(played_env(fixture_last(&fx), "K49999"), "v");
	assert_true(sbx_now_ns() - before < 10000000000u);
	for (int i = 0; i < MANY; i++)
		free(env[i]);
	free(env);
}

/* ---- limits ---- */

static void a_request_comes_before_defaults_but_not_above_the_mount(void **state)
{
	struct sbx_limits defaults = {.cpu_s = 50, .memory_mb = 200, .procs = 70};
	struct sbx_request req = {.argv = true_argv,
	                          .set = SBX_REQ_CPU | SBX_REQ_MEMORY | SBX_REQ_FILE |
	                                 SBX_REQ_OUTPUT | SBX_REQ_PROCS | SBX_REQ_DISK,
	                          .limits = {.cpu_s = 10, .memory_mb = 500, .file_mb = 7}};

	(void)state;
	fx.settings.limits.memory_mb = 300;
	fx.settings.limits.procs = 90;
	sbx_jobs_set_limits(fx.jobs, &defaults);
	run(&req);
	assert_int_equal(fixture_last(&fx)->limits.cpu_s, 10);
	assert_int_equal(fixture_last(&fx)->limits.memory_mb, 300);
	assert_int_equal(fixture_last(&fx)->limits.file_mb, 7);
	assert_int_equal(fixture_last(&fx)->limits.procs, 90);
	assert_int_equal(fixture_last(&fx)->limits.disk_mb, 0);
	assert_int_equal(fixture_last(&fx)->limits.output_bytes, 64u << 20);
	req.set = 0;
	run(&req);
	assert_int_equal(fixture_last(&fx)->limits.cpu_s, 50);
	assert_int_equal(fixture_last(&fx)->limits.memory_mb, 200);
	assert_int_equal(fixture_last(&fx)->limits.procs, 70);
}

/* ---- allowlist ---- */

static char *allowed[8];

/* A table that allows WORDS, in place of the one that set_up has made. */
static void allow(char *one, char *two)
{
	allowed[0] = one;
	allowed[1] = two;
	allowed[2] = NULL;
	fx.settings.allow = (struct sbx_strings){.items = allowed, .n = two ? 2 : 1};
	assert_int_equal(sbx_allow_create(&fx.settings, &fx.jobs->allow), 0);
}

static void expect_program(const char *word, const char *want)
{
	char *argv[] = {(char *)word, NULL}, real[4096];
	struct sbx_request req = {.argv = argv};

	assert_non_null(realpath(want, real));
	run(&req);
	assert_string_equal(fixture_last(&fx)->program, real);
	assert_string_equal(fixture_last(&fx)->argv[0], word);
}

static void expect_denied(const char *word, char **env)
{
	char *argv[] = {(char *)word, NULL};
	struct sbx_request req = {.argv = argv, .env = env};
	char text[512];

	snprintf(text, sizeof(text), "\"%s\" is not in the allowlist", word);
	fixture_expect_refused(&fx, &req, NULL, EPERM, text);
}

static void what_is_allowed_runs_by_its_absolute_path(void **state)
{
	(void)state;
	allow("cat", "/bin/ls");
	expect_program("cat", "/usr/bin/cat");
	expect_program("/usr/bin/cat", "/usr/bin/cat");
	expect_program("/usr/bin/../bin/cat", "/usr/bin/cat");
	expect_program("ls", "/bin/ls");
}

static void everything_else_is_denied(void **state)
{
	(void)state;
	allow("cat", "no-such-program");
	expect_denied("ls", NULL);
	expect_denied("/bin/ls", NULL);
	expect_denied("no-such-program", NULL);
	expect_denied("./cat", NULL);
	expect_denied("src/cat", NULL);
	expect_denied("../../usr/bin/cat", NULL);
	expect_denied("/usr/bin", NULL);
	expect_denied("cat ", NULL);
	expect_denied("/view/box/cat", NULL);
}

static void a_path_of_the_request_cannot_bring_in_another_file(void **state)
{
	char dir[128], *env[] = {dir, NULL}, *relative[] = {"PATH=.:src", NULL};
	char *own_mount[] = {"PATH=/view/box:/usr/bin", NULL};

	(void)state;
	snprintf(dir, sizeof(dir), "PATH=%s", fx.root);
	allow("cat", NULL);
	put("cat", 0755);
	expect_denied("cat", env);
	expect_denied("cat", relative);
	{
		char *argv[] = {"cat", NULL};
		struct sbx_request req = {.argv = argv, .env = own_mount};

		run(&req);
		assert_non_null(fixture_last(&fx)->program);
	}
	snprintf(dir, sizeof(dir), "%s/cat", fx.root);
	assert_int_equal(unlink(dir), 0);
}

static void another_name_of_the_same_file_is_denied(void **state)
{
	char link_path[256];

	(void)state;
	snprintf(link_path, sizeof(link_path), "%s/othername", fx.root);
	assert_int_equal(symlink("/usr/bin/cat", link_path), 0);
	allow("cat", NULL);
	expect_denied(link_path, NULL);
	assert_int_equal(unlink(link_path), 0);
}

/* ---- elsewhere ---- */

static int set_up_away(void **state)
{
	(void)state;
	fixture_prepare(&fx);
	fx.away = true;
	fixture_start(&fx);
	return 0;
}

static void a_directory_elsewhere_need_not_be_here(void **state)
{
	(void)state;
	expect_cwd("", "");
	expect_cwd("not/here", "not/here");
	expect_cwd("/view/box/not/here", "not/here");
	expect_cwd("a/b/../..", "a/b/../..");
	expect_cwd("...", "...");
	expect_cwd_refused("..", EACCES, "path confinement violation");
	expect_cwd_refused("a/../..", EACCES, "path confinement violation");
	expect_cwd_refused("/view/box/../x", EACCES, "path confinement violation");
	expect_cwd_refused("a/./../../a", EACCES, "path confinement violation");
	expect_cwd_refused("/etc", EACCES, "path confinement violation");
	assert_int_equal(sbx_jobs_set_cwd(fx.jobs, "not/here", NULL), 0);
}

static void an_environment_elsewhere_is_what_was_set(void **state)
{
	char *mount[] = {"A=mount", NULL}, *tools[] = {"TOOL=here", NULL};
	char *asked[] = {"B=asked", "http_proxy=p", NULL};
	struct sbx_request req = {.argv = true_argv, .env = asked};
	size_t n = 0;

	(void)state;
	fx.settings.env = (struct sbx_strings){.items = mount, .n = 1};
	fx.settings.tool_env = (struct sbx_strings){.items = tools, .n = 1};
	fx.settings.net = "allow:example.org";
	run(&req);
	assert_string_equal(played_env(fixture_last(&fx), "A"), "mount");
	assert_string_equal(played_env(fixture_last(&fx), "B"), "asked");
	assert_string_equal(played_env(fixture_last(&fx), "http_proxy"), "p");
	assert_string_equal(played_env(fixture_last(&fx), "LANG"), "C.UTF-8");
	assert_string_equal(played_env(fixture_last(&fx), "TERM"), "dumb");
	while (fixture_last(&fx)->env[n])
		n++;
	assert_int_equal(n, 5 + 3); /* and the backend's HOME, TMPDIR, PWD */
}

static void expect_word(const char *word, const char *program)
{
	char *argv[] = {(char *)word, NULL};
	struct sbx_request req = {.argv = argv};

	run(&req);
	if (program)
		assert_string_equal(fixture_last(&fx)->program, program);
	else
		assert_null(fixture_last(&fx)->program);
}

static void an_allowlist_elsewhere_goes_by_words(void **state)
{
	char *path[] = {"PATH=src", NULL};

	(void)state;
	allowed[0] = "no-such-program";
	allowed[1] = "/opt/none/tool";
	fx.settings.allow = (struct sbx_strings){.items = allowed, .n = 2};
	expect_word("no-such-program", NULL);
	expect_word("/opt/none/tool", "/opt/none/tool");
	expect_word("tool", "/opt/none/tool");
	expect_denied("true", NULL);
	expect_denied("./no-such-program", NULL);
	expect_denied("/tmp/tool", NULL);
	expect_denied("no-such-program", path);
	assert_int_equal(sbx_jobs_set_env(fx.jobs, path, NULL), 0);
	expect_denied("no-such-program", NULL);
	expect_word("tool", "/opt/none/tool");
}

static void a_backend_is_told_how_long_a_command_may_take(void **state)
{
	struct sbx_request req = {.argv = true_argv, .set = SBX_REQ_TIMEOUT, .timeout_ms = 1234};

	(void)state;
	run(&req);
	assert_int_equal(fixture_last(&fx)->timeout_ms, 1234);
}

static void stdin_elsewhere_is_what_was_kept(void **state)
{
	struct sbx_request req = {.argv = true_argv};
	struct sbx_jobrec *rec = NULL, *same;
	struct awaited a;
	bool repeated;
	char text[8] = "";

	(void)state;
	assert_int_equal(sbx_job_prepare(fx.jobs, "build", &rec, NULL), 0);
	sbx_job_stdin_open(rec);
	fixture_expect_refused(&fx, &req, rec, EOPNOTSUPP, "written while it runs");
	assert_int_equal(atomic_load(&fx.runner.execs), 0);
	sbx_job_stdin_close(rec);
	sbx_job_stdin_open(rec);
	awaited_init(&a, 4);
	sbx_job_stdin_write(rec, "kept", 4, &a.base);
	fixture_wait(&a.given);
	assert_int_equal(a.count, 4);
	sbx_job_stdin_close(rec);
	assert_int_equal(sbx_job_start(fx.jobs, &req, SBX_JOB_EXEC, rec, &same, &repeated, NULL),
	                 0);
	assert_int_equal(pread(fixture_last(&fx)->stdin_fd, text, sizeof(text), 0), 4);
	assert_string_equal(text, "kept");
	sbx_job_unref(same);
	sbx_job_unref(rec);
}

#define AWAY(fn) cmocka_unit_test_setup_teardown(fn, set_up_away, tear_down)
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_directory_inside_may_be_named_in_many_ways),
	        CASE(a_directory_outside_is_a_confinement_violation),
	        CASE(what_is_missing_or_no_directory_is_named_so),
	        CASE(a_path_in_an_error_cannot_forge_a_line),
	        CASE(the_default_directory_is_checked_when_set_and_used),
	        CASE(after_a_rename_the_new_view_counts),
	        CASE(the_environment_is_made_of_nothing_else),
	        CASE(the_later_word_counts),
	        CASE(proxies_are_stripped_without_network_only),
	        CASE(proxies_are_set_with_allowed_hosts_unless_asked_otherwise),
	        CASE(default_variables_are_checked),
	        CASE(a_hundred_thousand_variables_are_no_trouble),
	        CASE(a_request_comes_before_defaults_but_not_above_the_mount),
	        CASE(what_is_allowed_runs_by_its_absolute_path),
	        CASE(everything_else_is_denied),
	        CASE(a_path_of_the_request_cannot_bring_in_another_file),
	        CASE(another_name_of_the_same_file_is_denied),
	        CASE(a_backend_is_told_how_long_a_command_may_take),
	        AWAY(a_directory_elsewhere_need_not_be_here),
	        AWAY(an_environment_elsewhere_is_what_was_set),
	        AWAY(an_allowlist_elsewhere_goes_by_words),
	        AWAY(stdin_elsewhere_is_what_was_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
