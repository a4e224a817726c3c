/* The control files of jobs, of settings and of the mount, without FUSE, over a fake backend. */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fs/control/control.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/control_fixture.h"

static void directories_list_what_the_design_names(void **state)
{
	(void)state;
	assert_list("/", "README SKILL.md create teardown pending list list.json trash trash.json "
	                 "error events stats version config ");
	assert_list("",
	            "exec spawn run stdout stderr status jobs cwd timeout_ms env limits policy "
	            "kill snapshot snapshots restore reset undo fork diff changes diffs push sync "
	            "import.tar "
	            "export.tar info workdir log events error ");
	assert_list("limits", "cpu_s memory_mb procs file_mb disk_mb output_bytes jobs ");
	assert_list("snapshots", "");
	assert_list("jobs", "");
	assert_int_equal(put("exec", "echo\n"), 0);
	assert_list("jobs", "last 1 ");
	assert_list("jobs/1", "argv cwd stdin stdout stderr status result kill ");
}

static void root_names_boxes_and_resolves_numbers(void **state)
{
	struct sbx_control_node root, node;
	struct listing l = {""};
	char number[32];

	(void)state;
	sbx_control_root(&root);
	assert_int_equal(sbx_control_list(registry_fixture.registry, &root, list_name, &l), 0);
	assert_string_equal(l.names, ".mount a ");
	snprintf(number, sizeof(number), ".%llu", (unsigned long long)box->number);
	assert_int_equal(sbx_control_lookup(registry_fixture.registry, &root, number, &node), 0);
	assert_ptr_equal(node.box, box);
	sbx_control_node_release(&node);
	assert_int_equal(sbx_control_lookup(registry_fixture.registry, &root, "a", &node), 0);
	assert_ptr_equal(node.box, box);
	sbx_control_node_release(&node);
	assert_int_equal(sbx_control_lookup(registry_fixture.registry, &root, ".mount", &node), 0);
	sbx_control_node_release(&node);
	assert_int_equal(sbx_control_lookup(registry_fixture.registry, &root, ".77", &node),
	                 -ENOENT);
	assert_int_equal(sbx_control_lookup(registry_fixture.registry, &root, ".1x", &node),
	                 -ENOENT);
	assert_int_equal(sbx_control_lookup(registry_fixture.registry, &root, "b", &node), -ENOENT);
}

static void nodes_have_numbers_of_their_own(void **state)
{
	static const char *const paths[] = {
	        "exec",        "spawn",       "limits/jobs",  "jobs",  "jobs/1", "jobs/2",
	        "jobs/1/argv", "jobs/2/argv", "jobs/1/stdin", "/list", "",       "/"};
	uint64_t seen[SBX_ARRAY_SIZE(paths)];

	(void)state;
	assert_int_equal(put("exec", "echo\necho\n"), 0);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(paths); i++) {
		struct sbx_control_node node;

		assert_int_equal(find(paths[i], &node), 0);
		seen[i] = sbx_control_ino(&node);
		assert_int_equal(sbx_control_ino(&node), seen[i]);
		sbx_control_node_release(&node);
		for (size_t k = 0; k < i; k++)
			assert_true(seen[k] != seen[i]);
	}
}

static void modes_are_held_to(void **state)
{
	struct sbx_control_handle *h;
	struct sbx_control_node node;
	struct stat st;

	(void)state;
	assert_int_equal(try_open("stdout", O_WRONLY, &h), -EACCES);
	assert_error("error", "EACCES: stdout can only be read");
	assert_int_equal(try_open("kill", O_RDONLY, &h), -EACCES);
	assert_int_equal(try_open("kill", O_RDWR, &h), -EACCES);
	assert_int_equal(try_open("/teardown", O_RDONLY, &h), -EACCES);
	assert_int_equal(try_open("jobs", O_WRONLY, &h), -EISDIR);
	assert_int_equal(try_open("nothing", O_RDONLY, &h), -ENOENT);
	assert_int_equal(find("exec", &node), 0);
	assert_int_equal(sbx_control_getattr(registry_fixture.registry, &node, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(st.st_blksize, 1 << 20);
	assert_true(sbx_control_waits(&node));
	sbx_control_node_release(&node);
	assert_int_equal(find("cwd/x", &node), -ENOTDIR);
}

static void absent_features_say_so_at_open(void **state)
{
	static const char *const names[] = {"snapshot", "restore",    "reset",
	                                    "fork",     "diff",       "changes",
	                                    "push",     "import.tar", "export.tar"};
	struct sbx_control_handle *h;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++) {
		struct sbx_control_node node;
		_cleanup_free_ char *text = NULL;
		struct stat st;

		assert_int_equal(find(names[i], &node), 0);
		assert_int_equal(sbx_control_getattr(registry_fixture.registry, &node, &st), 0);
		sbx_control_node_release(&node);
		assert_int_equal(try_open(names[i], st.st_mode & 0200 ? O_WRONLY : O_RDONLY, &h),
		                 -EOPNOTSUPP);
		assert_true(asprintf(&text,
		                     "EOPNOTSUPP: %s is not available with the memory backend",
		                     names[i]) > 0);
		assert_error("error", text);
	}
}

static void torn_down_sandbox_is_estale(void **state)
{
	struct sbx_control_handle *h, *open = must_open("info", O_RDONLY);
	struct sbx_control_node node, dir;

	(void)state;
	sbx_control_box_node(box, &dir);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
	assert_int_equal(sbx_control_lookup(registry_fixture.registry, &dir, "exec", &node),
	                 -ESTALE);
	assert_int_equal(sbx_control_open(registry_fixture.registry, &dir, O_RDONLY, &h), -ESTALE);
	sbx_control_node_release(&dir);
	sbx_control_release(open);
}

/* Texts */

static void texts_of_the_mount(void **state)
{
	_cleanup_free_ char *config = NULL;
	struct json_object *obj;

	(void)state;
	assert_cat("/version", "sandboxfs " SBX_VERSION "\n");
	assert_cat("/README", sbx_readme);
	assert_cat("/SKILL.md", sbx_skill);
	assert_cat("/pending", "");
	assert_cat("/error", "");
	assert_cat_begins("/list", "NAME ");
	assert_cat_begins("/list.json", "[{\"name\":\"a\"");
	assert_cat_begins("/stats", "# HELP sandboxfs_sandboxes ");
	config = cat("/config");
	obj = json_tokener_parse(config);
	assert_non_null(obj);
	json_object_put(obj);
}

static void readme_has_at_most_40_lines(void **state)
{
	int lines = 0;

	(void)state;
	for (const char *c = sbx_readme; *c; c++)
		lines += *c == '\n';
	assert_in_range(lines, 20, 40);
}

static void skill_has_front_matter_and_at_most_120_lines(void **state)
{
	static const char head[] = "---\nname: sandboxfs\ndescription: ";
	int lines = 0;

	(void)state;
	assert_memory_equal(sbx_skill, head, sizeof(head) - 1);
	assert_non_null(strstr(sbx_skill, "\n---\n"));
	for (const char *c = sbx_skill; *c; c++)
		lines += *c == '\n';
	assert_in_range(lines, 40, 120);
}

static void text_is_of_one_moment_until_read_from_the_start(void **state)
{
	struct sbx_control_handle *h = must_open("cwd", O_RDWR);
	char *data;

	(void)state;
	data = read_once(h, 1, 0, NULL);
	assert_string_equal(data, ".");
	free(data);
	assert_int_equal(write_text(h, "/mnt/test/a\n"), 12);
	data = read_once(h, 10, 1, NULL);
	assert_string_equal(data, "\n");
	free(data);
	data = read_once(h, 10, 5, NULL);
	assert_string_equal(data, "");
	free(data);
	sbx_control_release(h);
}

/* exec */

static void exec_returns_when_the_command_has_ended(void **state)
{
	(void)state;
	assert_cat("status", "- idle\n");
	assert_cat("stdout", "");
	assert_int_equal(put("exec", "echo one two\n"), 0);
	assert_cat("stdout", "one two\n");
	assert_cat("stderr", "");
	assert_cat_begins("status", "0 exited job=1 ");
	assert_int_equal(put("exec", "err oops\n"), 0);
	assert_cat("stdout", "");
	assert_cat("stderr", "oops\n");
	assert_int_equal(put("exec", "[\"exit\",\"3\"]"), 0);
	assert_cat_begins("status", "3 exited job=3 ");
}

static void exec_takes_what_is_unfinished_at_flush_and_read(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_RDWR);
	_cleanup_free_ char *result = NULL;

	(void)state;
	assert_int_equal(flush(h), 0);
	assert_int_equal(write_text(h, "echo ha"), 7);
	assert_cat("stdout", "");
	assert_int_equal(write_text(h, "lf"), 2);
	assert_int_equal(flush(h), 0);
	assert_cat("stdout", "half\n");
	assert_int_equal(write_text(h, "echo again"), 10);
	result = read_once(h, 65536, 0, NULL);
	assert_non_null(strstr(result, "\"stdout\":\"again\\n\""));
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 2);
	sbx_control_release(h);
}

static void exec_read_gives_the_result_once_with_a_cursor(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_RDWR);
	char whole[4096] = "", *piece;
	struct json_object *obj, *code;

	(void)state;
	assert_read(h, "");
	assert_int_equal(write_text(h, "exit 7\n"), 7);
	do {
		piece = read_once(h, 10, 99, NULL);
		snprintf(whole + strlen(whole), sizeof(whole) - strlen(whole), "%s", piece);
	} while (*piece && (free(piece), true));
	free(piece);
	obj = json_tokener_parse(whole);
	assert_true(json_object_object_get_ex(obj, "exitCode", &code));
	assert_int_equal(json_object_get_int(code), 7);
	json_object_put(obj);
	assert_int_equal(whole[strlen(whole) - 1], '\n');
	sbx_control_release(h);
}

static void exec_runs_lines_in_order_and_stops_at_the_first_failure(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_WRONLY);

	(void)state;
	assert_int_equal(write_text(h, "echo a\nmissing\necho c\n"), -ENOENT);
	assert_error("error", "ENOENT: line 2: missing: No such file or directory");
	assert_cat("stdout", "");
	assert_cat("jobs/1/stdout", "a\n");
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 2);
	assert_int_equal(write_text(h, "echo d\necho a;b\n"), -EINVAL);
	assert_error("error", "EINVAL: line 2: ");
	assert_cat("stdout", "");
	assert_cat("jobs/3/stdout", "d\n");
	assert_int_equal(write_text(h, "echo |\necho e\n"), -EINVAL);
	assert_error("error", "EINVAL: line 1: ");
	assert_int_equal(write_text(h, "echo f\necho g\n"), 14);
	assert_cat("stdout", "g\n");
	sbx_control_release(h);
}

static void exec_of_one_request_names_no_line(void **state)
{
	_cleanup_free_ char *text = NULL;

	(void)state;
	assert_int_equal(put("exec", "missing\n"), -ENOENT);
	assert_cat("error", "ENOENT: missing: No such file or directory\n");
	assert_int_equal(put("exec", "{\n\"argv\":\n[]}\n"), -EINVAL);
	text = cat("error");
	assert_null(strstr(text, "line"));
	assert_int_equal(put("exec", "{\"argv\":"), -EINVAL);
}

static void exec_refuses_a_cwd_outside(void **state)
{
	(void)state;
	assert_int_equal(put("exec", "{\"argv\":[\"echo\"],\"cwd\":\"/etc\"}"), -EACCES);
	assert_error("error", "EACCES: path confinement violation: ");
	assert_int_equal(put("exec", "{\"argv\":[\"echo\"],\"cwd\":\"none\"}"), -ENOENT);
}

static void exec_stays_refused_after_too_much(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_WRONLY);
	size_t len = SBX_REQUEST_MAX + 1;
	_cleanup_free_ char *much = malloc(len);

	(void)state;
	assert_non_null(much);
	memset(much, 'x', len);
	assert_int_equal(write_bytes(h, much, len), -E2BIG);
	assert_error("error", "E2BIG: ");
	assert_int_equal(write_text(h, "echo\n"), -E2BIG);
	assert_int_equal(flush(h), 0);
	sbx_control_release(h);
	assert_int_equal(put("exec", "echo\n"), 0);
}

static void exec_fail_errno_fails_the_write(void **state)
{
	(void)state;
	registry_fixture.settings.exec_fail_errno = true;
	assert_int_equal(put("exec", "exit 2\n"), -EREMOTEIO);
	assert_error("error", "EREMOTEIO: job 1 ended with code 2");
	assert_int_equal(put("exec", "exit 0\n"), 0);
	registry_fixture.settings.exec_fail_errno = false;
}

static void signals_do_not_end_a_write_but_a_fatal_one_ends_its_job(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_WRONLY);
	struct writing w;

	(void)state;
	write_begin(&w, h, "hang\n");
	registry_fixture_settle(&registry_fixture);
	answer_cancel(&registry_fixture, &w.a, false);
	registry_fixture_settle(&registry_fixture);
	assert_false(answer_come(&w.a));
	answer_cancel(&registry_fixture, &w.a, true);
	assert_int_equal(write_end(&w), 5);
	assert_cat_begins("status", "137 killed job=1 ");
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 1);
	sbx_control_release(h);
}

/* As of a command on a machine that is silent: what is unheard of there may be so for long. */
static void a_client_that_is_killed_does_not_wait_for_its_command(void **state)
{
	static const char *const names[] = {"exec", "run"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++) {
		struct sbx_control_handle *h = must_open(names[i], O_RDWR);
		struct writing w;

		registry_fixture.runner.survives = UINT64_C(1) << (SIGKILL - 1);
		registry_fixture.runner.on_exec = i == 0 ? registry_fixture.runner.on_exec : NULL;
		write_begin(&w, h, "hang\n");
		registry_fixture_settle(&registry_fixture);
		answer_cancel(&registry_fixture, &w.a, true);
		answer_cancel(&registry_fixture, &w.a, true);
		assert_int_equal(write_end(&w), -ETIMEDOUT);
		assert_error("error", i == 0 ? "ETIMEDOUT: job 1 was killed with its client"
		                             : "ETIMEDOUT: job 2 was killed with its client");
		sbx_control_release(h);
		assert_int_equal(sbx_jobs_running(box->jobs), 1);
		registry_fixture.runner.survives = 0;
		played_ended(registry_fixture.runner.last, SBX_END_SIGNALED, SIGKILL);
		registry_fixture_settle(&registry_fixture);
		assert_int_equal(sbx_jobs_running(box->jobs), 0);
		assert_cat_begins(i == 0 ? "jobs/1/status" : "jobs/2/status", "137 killed ");
	}
}

static void writes_to_one_open_file_run_one_after_another(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_RDWR);
	struct writing first, second, third;
	struct answer a;

	(void)state;
	write_begin(&first, h, "slow\n");
	write_begin(&second, h, "echo second\n");
	write_begin(&third, h, "echo third\n");
	answer_init(&a, 65536);
	sbx_control_read(h, 0, &a.p);
	registry_fixture_settle(&registry_fixture);
	assert_int_equal(flush(h), 0);
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 1);
	answer_cancel(&registry_fixture, &second.a, false);
	answer_cancel(&registry_fixture, &second.a, true);
	assert_int_equal(write_end(&second), -EINTR);
	registry_fixture_end(&registry_fixture, 0);
	assert_int_equal(write_end(&first), 5);
	assert_int_equal(write_end(&third), 11);
	answer_wait(&a);
	assert_non_null(strstr(a.data, "\"stdout\":\"third\\n\""));
	answer_finish(&a);
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 2);
	sbx_control_release(h);
}

static void repeated_id_runs_nothing(void **state)
{
	const char *request = "{\"argv\":[\"echo\",\"x\"],\"id\":\"once\"}";
	struct sbx_control_handle *h = must_open("exec", O_RDWR);
	_cleanup_free_ char *result = NULL;

	(void)state;
	assert_int_equal(put("exec", request), 0);
	assert_int_equal(write_text(h, request), (int)strlen(request));
	result = read_once(h, 65536, 0, NULL);
	assert_non_null(strstr(result, "\"stdout\":\"x\\n\""));
	sbx_control_release(h);
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 1);
	assert_int_equal(put("exec", "{\"argv\":[\"echo\",\"y\"],\"id\":\"once\"}"), -EEXIST);
}

/* spawn and jobs */

static void spawn_returns_at_the_start_and_tells_the_id(void **state)
{
	struct sbx_control_handle *h = must_open("spawn", O_RDWR);

	(void)state;
	assert_int_equal(write_text(h, "hang\n"), 5);
	assert_read(h, "1\n");
	assert_read(h, "");
	assert_cat_begins("jobs/1/status", "- running job=1 ");
	assert_cat("status", "- idle\n");
	assert_int_equal(write_text(h, "missing\n"), -ENOENT);
	assert_read(h, "");
	assert_int_equal(write_text(h, "slow\n"), 5);
	assert_read(h, "3\n");
	assert_int_equal(write_text(h, "{\"argv\":[]}"), -EINVAL);
	assert_read(h, "");
	assert_int_equal(write_text(h, "slow\nmissing\nslow\n"), -ENOENT);
	assert_read(h, "5\n");
	assert_read(h, "");
	sbx_control_release(h);
	assert_cat_begins("jobs/1/status", "- running job=1 ");
	assert_int_equal(put("kill", "1\n"), 0);
}

static void wait_gives_the_status_at_the_end(void **state)
{
	struct sbx_control_handle *h, *nonblock;
	struct answer a, b;
	int errnum;

	(void)state;
	assert_int_equal(put("spawn", "slow\n"), 0);
	h = must_open("jobs/1/wait", O_RDONLY);
	nonblock = must_open("jobs/last", O_RDONLY);
	sbx_control_release(nonblock);
	nonblock = must_open("jobs/1/wait", O_RDONLY | O_NONBLOCK);
	assert_null(read_once(nonblock, 100, 0, &errnum));
	assert_int_equal(errnum, EAGAIN);
	answer_init(&a, 100);
	answer_init(&b, 100);
	sbx_control_read(h, 0, &a.p);
	sbx_control_read(nonblock, 0, &b.p);
	answer_wait(&b);
	registry_fixture_settle(&registry_fixture);
	assert_false(answer_come(&a));
	registry_fixture_end(&registry_fixture, 4);
	answer_wait(&a);
	assert_int_equal(strncmp(a.data, "4 exited job=1 ", 15), 0);
	assert_read(h, "");
	answer_finish(&a);
	answer_finish(&b);
	sbx_control_release(h);
	sbx_control_release(nonblock);
}

static void waiting_read_is_ended_by_any_signal(void **state)
{
	struct sbx_control_handle *h;
	struct answer a;

	(void)state;
	assert_int_equal(put("spawn", "slow\n"), 0);
	h = must_open("jobs/1/wait", O_RDONLY);
	answer_init(&a, 100);
	sbx_control_read(h, 0, &a.p);
	answer_cancel(&registry_fixture, &a, false);
	answer_wait(&a);
	assert_int_equal(a.errnum, EINTR);
	answer_finish(&a);
	sbx_control_release(h);
	registry_fixture_end(&registry_fixture, 0);
}

static void job_directory_tells_of_the_job(void **state)
{
	_cleanup_free_ char *result = NULL;
	struct sbx_control_node node;
	struct answer a;

	(void)state;
	assert_int_equal(put("exec", "echo 'a b'\n"), 0);
	assert_cat("jobs/1/argv", "[\"echo\",\"a b\"]\n");
	assert_cat("jobs/1/cwd", ".\n");
	assert_cat("jobs/1/stdout", "a b\n");
	assert_cat_begins("jobs/1/status", "0 exited ");
	result = cat("jobs/1/result");
	assert_int_equal(strncmp(result, "{\"id\":\"1\"", 9), 0);
	assert_int_equal(find("jobs/last", &node), 0);
	answer_init(&a, 0);
	sbx_control_readlink(registry_fixture.registry, &node, &a.p);
	answer_wait(&a);
	assert_string_equal(a.data, "1");
	answer_finish(&a);
	sbx_control_node_release(&node);
	assert_int_equal(find("jobs/1/exec", &node), -ENOENT);
	assert_int_equal(find("jobs/2", &node), -ENOENT);
}

static void mkdir_names_a_job_that_exec_runs(void **state)
{
	struct sbx_control_node jobs, node;

	(void)state;
	assert_int_equal(find("jobs", &jobs), 0);
	assert_int_equal(sbx_control_mkdir(registry_fixture.registry, &jobs, "build", &node), 0);
	sbx_control_node_release(&node);
	assert_int_equal(sbx_control_mkdir(registry_fixture.registry, &jobs, "build", &node),
	                 -EEXIST);
	assert_int_equal(sbx_control_mkdir(registry_fixture.registry, &jobs, "a b", &node),
	                 -EINVAL);
	assert_cat("jobs/build/status", "- idle\n");
	assert_cat("jobs/build/argv", "");
	assert_int_equal(put("jobs/build/exec", "echo made\n"), 0);
	assert_cat("jobs/build/stdout", "made\n");
	assert_int_equal(put("jobs/build/spawn", "hang\n"), 0);
	assert_int_equal(sbx_control_rmdir(registry_fixture.registry, &jobs, "build"), -EBUSY);
	assert_int_equal(put("jobs/build/kill", "\n"), 0);
	assert_cat_begins("jobs/build/wait", "137 killed ");
	assert_int_equal(sbx_control_rmdir(registry_fixture.registry, &jobs, "build"), 0);
	assert_int_equal(sbx_control_rmdir(registry_fixture.registry, &jobs, "build"), -ENOENT);
	sbx_control_node_release(&jobs);
}

static void directories_are_made_in_jobs_only(void **state)
{
	struct sbx_control_node dir, node;

	(void)state;
	assert_int_equal(find("limits", &dir), 0);
	assert_int_equal(sbx_control_mkdir(registry_fixture.registry, &dir, "x", &node), -EPERM);
	assert_error("error", "EPERM: ");
	assert_int_equal(sbx_control_rmdir(registry_fixture.registry, &dir, "cpu_s"), -EPERM);
	assert_error("error", "EPERM: cpu_s");
	registry_fixture.settings.ctl_listed = true; /* rm -rf must get through */
	assert_int_equal(sbx_control_rmdir(registry_fixture.registry, &dir, "cpu_s"), 0);
	sbx_control_node_release(&dir);
}

static void stdin_can_be_written_before_the_start(void **state)
{
	struct sbx_control_node jobs, node;

	(void)state;
	assert_int_equal(find("jobs", &jobs), 0);
	assert_int_equal(sbx_control_mkdir(registry_fixture.registry, &jobs, "j", &node), 0);
	sbx_control_node_release(&node);
	sbx_control_node_release(&jobs);
	assert_int_equal(put("jobs/j/stdin", "input"), 0);
	assert_int_equal(put("jobs/j/exec", "echo\n"), 0);
	assert_cat_begins("jobs/j/status", "0 exited ");
}

/* run */

static void run_streams_output_to_the_end(void **state)
{
	struct sbx_control_handle *h = must_open("run", O_RDWR);
	struct answer a;

	(void)state;
	assert_read(h, "");
	assert_int_equal(write_text(h, "slow\n"), 5);
	answer_init(&a, 100);
	sbx_control_read(h, 0, &a.p);
	registry_fixture_settle(&registry_fixture);
	assert_false(answer_come(&a));
	registry_fixture_print(&registry_fixture, "one");
	answer_wait(&a);
	assert_string_equal(a.data, "one");
	answer_finish(&a);
	registry_fixture_print(&registry_fixture, "two");
	assert_read(h, "two");
	assert_int_equal(write_text(h, "echo\n"), -EBUSY);
	assert_error("error", "EBUSY: run takes one request at a time");
	answer_init(&a, 100);
	sbx_control_read(h, 0, &a.p);
	registry_fixture_end(&registry_fixture, 0);
	answer_wait(&a);
	assert_int_equal(a.n, 0);
	answer_finish(&a);
	assert_int_equal(write_text(h, "echo next\n"), 10);
	assert_read(h, "next\n");
	assert_read(h, "");
	sbx_control_release(h);
}

static void run_begins_with_what_was_unfinished_and_can_be_interrupted(void **state)
{
	struct sbx_control_handle *h = must_open("run", O_RDWR);
	struct answer a;

	(void)state;
	assert_int_equal(write_text(h, "echo hi"), 7);
	assert_read(h, "hi\n");
	assert_read(h, "");
	assert_int_equal(write_text(h, "slow\n"), 5);
	answer_init(&a, 100);
	sbx_control_read(h, 0, &a.p);
	answer_cancel(&registry_fixture, &a, false);
	answer_wait(&a);
	assert_int_equal(a.errnum, EINTR);
	answer_finish(&a);
	sbx_control_release(h);
}

static void closing_run_kills_its_job(void **state)
{
	struct sbx_control_handle *h = must_open("run", O_RDWR);

	(void)state;
	assert_int_equal(write_text(h, "hang\n"), 5);
	sbx_control_release(h);
	assert_cat_begins("jobs/1/wait", "137 killed ");
}

static void run_without_waiting_is_eagain(void **state)
{
	struct sbx_control_handle *h = must_open("run", O_RDWR | O_NONBLOCK);
	int errnum;

	(void)state;
	assert_int_equal(write_text(h, "hang\n"), 5);
	assert_null(read_once(h, 10, 0, &errnum));
	assert_int_equal(errnum, EAGAIN);
	sbx_control_release(h);
}

/* kill */

static void kill_takes_ids_and_signals(void **state)
{
	(void)state;
	assert_int_equal(put("spawn", "hang\nhang\nhang\nhang\n"), 0);
	assert_int_equal(put("kill", "2 TERM\n"), 0);
	assert_cat_begins("jobs/2/wait", "143 ");
	assert_int_equal(put("kill", "3 SIGINT"), 0);
	assert_cat_begins("jobs/3/wait", "130 ");
	assert_int_equal(put("jobs/4/kill", "1"), 0);
	assert_cat_begins("jobs/4/wait", "129 ");
	assert_int_equal(put("kill", "1\n"), 0);
	assert_cat_begins("jobs/1/wait", "137 killed ");
}

static void kill_refuses_what_it_does_not_know(void **state)
{
	(void)state;
	assert_int_equal(put("exec", "echo\n"), 0);
	assert_int_equal(put("kill", "9\n"), -ENOENT);
	assert_error("error", "ENOENT: there is no job 9");
	assert_int_equal(put("kill", "1 KILL\n"), -ESRCH);
	assert_int_equal(put("kill", "1 NOSUCH\n"), -EINVAL);
	assert_int_equal(put("kill", "1 0\n"), -EINVAL);
	assert_int_equal(put("kill", "1 9 9\n"), -EINVAL);
	assert_int_equal(put("kill", "\n"), -EINVAL);
	assert_int_equal(put("jobs/1/kill", "KILL x\n"), -EINVAL);
	assert_int_equal(put("jobs/1/kill", "99\n"), -EINVAL);
}

/* Settings */

static void settings_are_one_value_each(void **state)
{
	(void)state;
	assert_cat("timeout_ms", "600000\n");
	assert_int_equal(put("timeout_ms", "5000\n"), 0);
	assert_cat("timeout_ms", "5000\n");
	assert_int_equal(put("timeout_ms", "0"), 0);
	assert_cat("timeout_ms", "0\n");
	assert_int_equal(put("timeout_ms", "-1\n"), -EINVAL);
	assert_error("error", "EINVAL: timeout_ms takes a number");
	assert_int_equal(put("timeout_ms", "5 s\n"), -EINVAL);
	assert_int_equal(put("timeout_ms", "99999999999999999999\n"), -EINVAL);
	assert_cat("limits/cpu_s", "");
	assert_int_equal(put("limits/cpu_s", "7\n"), 0);
	assert_int_equal(put("limits/procs", "9\n"), 0);
	assert_cat("limits/cpu_s", "7\n");
	assert_cat("limits/procs", "9\n");
	assert_int_equal(put("limits/cpu_s", "\n"), 0);
	assert_cat("limits/cpu_s", "");
	assert_cat("limits/output_bytes", "67108864\n");
	assert_cat("cwd", ".\n");
	assert_int_equal(put("cwd", "/etc\n"), -EACCES);
	assert_error("error", "EACCES: path confinement violation");
	assert_int_equal(put("cwd", "a\nb\n"), -EINVAL);
	assert_int_equal(put("cwd", "none\n"), -ENOENT);
	assert_int_equal(put("cwd", ".\n"), 0);
}

static void env_lines_replace_then_add(void **state)
{
	struct sbx_control_handle *h = must_open("env", O_WRONLY);

	(void)state;
	assert_cat("env", "");
	assert_int_equal(put("env", "A=1\nB=two words\n"), 0);
	assert_cat("env", "A=1\nB=two words\n");
	assert_int_equal(write_text(h, "C=3\n"), 4);
	assert_cat("env", "C=3\n");
	assert_int_equal(write_text(h, "D=4\nC=5\n\nE="), 11);
	assert_cat("env", "C=5\nD=4\n");
	assert_int_equal(write_text(h, "6"), 1);
	assert_int_equal(flush(h), 0);
	assert_cat("env", "C=5\nD=4\nE=6\n");
	sbx_control_release(h);
	h = must_open("env", O_WRONLY | O_APPEND);
	assert_int_equal(write_text(h, "F=7\n"), 4);
	assert_cat("env", "C=5\nD=4\nE=6\nF=7\n");
	sbx_control_release(h);
	assert_int_equal(put("env", "G=8"), 0);
	assert_cat("env", "G=8\n");
}

static void bad_env_line_changes_nothing(void **state)
{
	struct sbx_control_handle *h;

	(void)state;
	assert_int_equal(put("env", "A=1\n"), 0);
	h = must_open("env", O_WRONLY);
	assert_int_equal(write_text(h, "B=2\n1X=3\n"), -EINVAL);
	assert_error("error", "Invalid env key \"1X\"");
	assert_int_equal(write_text(h, "B\n"), -EINVAL);
	assert_int_equal(write_bytes(h, "B=\0x\n", 5), -EINVAL);
	assert_cat("env", "A=1\n");
	assert_int_equal(write_text(h, "Z"), 1);
	assert_int_equal(flush(h), -EINVAL);
	assert_int_equal(write_text(h, "B=2\n"), 4);
	assert_cat("env", "B=2\n");
	sbx_control_release(h);
}

static void truncating_env_clears_it(void **state)
{
	struct sbx_control_node node;

	(void)state;
	assert_int_equal(put("env", "A=1\n"), 0);
	assert_int_equal(find("env", &node), 0);
	assert_int_equal(sbx_control_truncate(registry_fixture.registry, &node), 0);
	sbx_control_node_release(&node);
	assert_cat("env", "");
}

static void truncating_others_is_accepted(void **state)
{
	struct sbx_control_node node;

	(void)state;
	assert_int_equal(find("exec", &node), 0);
	assert_int_equal(sbx_control_truncate(registry_fixture.registry, &node), 0);
	sbx_control_node_release(&node);
}

/* create and teardown */

static void create_waits_and_tells(void **state)
{
	struct sbx_control_handle *h = must_open("/create", O_RDWR);
	struct sbx_box *made;
	char *data;

	(void)state;
	assert_int_equal(write_text(h, "{\"name\":\"b\"}\n"), 13);
	made = sbx_registry_find(registry_fixture.registry, "b");
	assert_non_null(made);
	sbx_box_unref(made);
	data = read_once(h, 4096, 0, NULL);
	assert_int_equal(strncmp(data, "{\"name\":\"b\"", 11), 0);
	free(data);
	assert_read(h, "");
	assert_int_equal(write_text(h, "{\"name\":\"b\"}\n"), -EEXIST);
	assert_error("/error", "EEXIST: ");
	assert_int_equal(write_text(h, "{\"nome\":\"c\"}\n"), -EINVAL);
	assert_int_equal(write_text(h, "c\nd\n"), 4);
	sbx_control_release(h);
	assert_int_equal(put("/create", "e"), 0);
	assert_cat_begins("/list.json", "[{\"name\":\"a\"");
	assert_int_equal(put("/teardown", "b\nc\nd"), 0);
	assert_int_equal(put("/teardown", "e\nnever-was\n"), 0);
	assert_int_equal(put("/teardown", "../x\n"), -EINVAL);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 1);
}

static void failed_create_leaves_its_sentence(void **state)
{
	(void)state;
	faults_refuse(&registry_fixture.backend, CREATE, ENOSPC);
	assert_int_equal(put("/create", "b\n"), -ENOSPC);
	assert_cat("/error", "ENOSPC: creating was refused\n");
	assert_int_equal(put("/create", "b\nc\n"), -ENOSPC);
	assert_cat("/error", "ENOSPC: line 1: creating was refused\n");
}

static void dying_client_takes_its_creation_along(void **state)
{
	struct sbx_control_handle *h = must_open("/create", O_WRONLY);
	struct writing w;

	(void)state;
	faults_hold(&registry_fixture.backend, CREATE);
	write_begin(&w, h, "b\n");
	faults_await(&registry_fixture.backend, CREATE);
	answer_cancel(&registry_fixture, &w.a, false);
	answer_cancel(&registry_fixture, &w.a, true);
	faults_let_go(&registry_fixture.backend, CREATE);
	assert_int_equal(write_end(&w), -EINTR);
	assert_null(sbx_registry_find(registry_fixture.registry, "b"));
	sbx_control_release(h);
}

/* Elsewhere */

static void create_waits_until_it_is_there(void **state)
{
	struct sbx_control_handle *h = must_open("/create", O_RDWR);
	struct played_away *away = &registry_fixture.away;
	struct writing w;
	char *data;

	(void)state;
	registry_fixture_play_away(&registry_fixture);
	write_begin(&w, h, "b\n");
	played_away_await(away, 1);
	assert_int_equal(away->wants->need, SBX_NEED_UP);
	assert_false(answer_come(&w.a));
	assert_cat_begins("/list", "NAME ");
	played_away_answer(away, 0, "");
	assert_int_equal(write_end(&w), 2);
	data = read_once(h, 4096, 0, NULL);
	assert_int_equal(strncmp(data, "{\"name\":\"b\"", 11), 0);
	free(data);
	sbx_control_release(h);
}

static void create_tells_what_kept_it_from_being_there(void **state)
{
	struct sbx_control_handle *h = must_open("/create", O_WRONLY);
	struct sbx_box *made;
	struct writing w;

	(void)state;
	registry_fixture_play_away(&registry_fixture);
	write_begin(&w, h, "b\n");
	played_away_await(&registry_fixture.away, 1);
	played_away_answer(&registry_fixture.away, EDQUOT, "all machines are taken");
	assert_int_equal(write_end(&w), -EDQUOT);
	assert_cat("/error", "EDQUOT: all machines are taken\n");
	made = sbx_registry_find(registry_fixture.registry, "b");
	assert_non_null(made);
	sbx_box_unref(made);
	write_begin(&w, h, "c\n");
	played_away_await(&registry_fixture.away, 2);
	answer_cancel(&registry_fixture, &w.a, true);
	assert_int_equal(write_end(&w), -EINTR);
	sbx_control_release(h);
}

static void sync_waits_for_where_it_really_is(void **state)
{
	struct sbx_box *other = box;
	struct played_away *away = &registry_fixture.away;
	struct sbx_control_handle *h;
	struct writing w;

	(void)state;
	registry_fixture_play_away(&registry_fixture);
	box = registry_fixture_make(&registry_fixture, "b");
	h = must_open("sync", O_WRONLY);
	write_begin(&w, h, "1\n2\n");
	played_away_await(away, 1);
	assert_int_equal(away->flushed, 1);
	assert_false(answer_come(&w.a));
	played_away_answer(away, 0, "");
	assert_int_equal(write_end(&w), 4);
	write_begin(&w, h, "1");
	played_away_await(away, 2);
	played_away_answer(away, EREMOTEIO, "the machine has lost it");
	assert_int_equal(write_end(&w), -EREMOTEIO);
	assert_cat("error", "EREMOTEIO: the machine has lost it\n");
	write_begin(&w, h, "1");
	played_away_await(away, 3);
	answer_cancel(&registry_fixture, &w.a, false);
	assert_false(answer_come(&w.a));
	answer_cancel(&registry_fixture, &w.a, true);
	assert_int_equal(write_end(&w), -EINTR);
	assert_int_equal(away->given_up, 1);
	sbx_control_release(h);
	sbx_box_unref(box);
	box = other;
}

static void sync_saves_what_is_here(void **state)
{
	struct sbx_control_handle *h = must_open("sync", O_WRONLY);
	struct faults *f = &registry_fixture.backend;
	struct writing w;

	(void)state;
	assert_int_equal(write_text(h, "1\n"), 2);
	assert_int_equal(faults_calls(f, BARRIER_NOW), 1);
	faults_refuse(f, BARRIER_NOW, EIO);
	assert_int_equal(write_text(h, "1\n"), -EIO);
	assert_cat("error", "EIO: saving was refused\n");
	faults_mend(f, BARRIER_NOW);
	faults_hold(f, BARRIER_NOW);
	write_begin(&w, h, "1\n");
	faults_await(f, BARRIER_NOW);
	answer_cancel(&registry_fixture, &w.a, true);
	assert_int_equal(write_end(&w), -EINTR);
	faults_let_go(f, BARRIER_NOW);
	sbx_control_release(h);
	atomic_store(&box->sandbox->anchored, true);
	assert_int_equal(put("sync", "1"), 0);
}

static void teardown_goes_on_without_its_client(void **state)
{
	struct sbx_control_handle *h = must_open("/teardown", O_WRONLY);
	struct writing w;

	(void)state;
	faults_hold(&registry_fixture.backend, REMOVE);
	write_begin(&w, h, "a\n");
	faults_await(&registry_fixture.backend, REMOVE);
	assert_cat("/pending", "a\n");
	answer_cancel(&registry_fixture, &w.a, true);
	assert_int_equal(write_end(&w), -EINTR);
	sbx_control_release(h);
	faults_let_go(&registry_fixture.backend, REMOVE);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 0);
}

static void events_come_as_they_happen(void **state)
{
	struct sbx_control_handle *h = must_open("/events", O_RDONLY);
	struct sbx_control_handle *mine = must_open("events", O_RDONLY | O_NONBLOCK);
	struct answer a;
	char *data;
	int errnum;

	(void)state;
	data = read_once(h, 65536, 0, NULL);
	assert_non_null(strstr(data, "\"event\":\"create\""));
	assert_non_null(strstr(strstr(data, "\"event\":\"create\""), "\"event\":\"live\"}\n"));
	free(data);
	answer_init(&a, 65536);
	sbx_control_read(h, 0, &a.p);
	assert_int_equal(put("exec", "echo\n"), 0);
	answer_wait(&a);
	assert_non_null(strstr(a.data, "\"event\":\"job_"));
	answer_finish(&a);
	data = read_once(mine, 65536, 0, NULL);
	assert_non_null(strstr(data, "\"event\":\"live\""));
	assert_non_null(strstr(strstr(data, "\"event\":\"live\""), "\"event\":\"job_end\""));
	free(data);
	assert_null(read_once(mine, 65536, 0, &errnum));
	assert_int_equal(errnum, EAGAIN);
	sbx_control_release(mine);
	sbx_control_release(h);
}

static void log_holds_a_record_of_each_command(void **state)
{
	_cleanup_free_ char *data = NULL;

	(void)state;
	assert_int_equal(put("exec", "exit 3\n"), 0);
	data = cat("log");
	assert_non_null(strstr(data, "\"event\":\"create\""));
	assert_non_null(strstr(data, "\"event\":\"exec\""));
	assert_non_null(strstr(data, "\"exit_code\":3"));
	assert_non_null(strstr(data, "\"task_id\":\"a\""));
}

static void jobs_make_the_sandbox_busy_and_idle(void **state)
{
	(void)state;
	assert_int_equal(put("spawn", "hang\n"), 0);
	assert_int_equal(atomic_load(&registry_fixture.busy), 1);
	assert_int_equal(put("exec", "echo\n"), 0);
	assert_int_equal(atomic_load(&registry_fixture.busy), 1);
	assert_int_equal(put("kill", "1"), 0);
	assert_cat_begins("jobs/1/wait", "137 ");
	assert_int_equal(atomic_load(&registry_fixture.busy), 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(directories_list_what_the_design_names),
	        CASE(root_names_boxes_and_resolves_numbers),
	        CASE(nodes_have_numbers_of_their_own),
	        CASE(modes_are_held_to),
	        CASE(absent_features_say_so_at_open),
	        CASE(torn_down_sandbox_is_estale),
	        CASE(texts_of_the_mount),
	        CASE(readme_has_at_most_40_lines),
	        CASE(skill_has_front_matter_and_at_most_120_lines),
	        CASE(text_is_of_one_moment_until_read_from_the_start),
	        CASE(exec_returns_when_the_command_has_ended),
	        CASE(exec_takes_what_is_unfinished_at_flush_and_read),
	        CASE(exec_read_gives_the_result_once_with_a_cursor),
	        CASE(exec_runs_lines_in_order_and_stops_at_the_first_failure),
	        CASE(exec_of_one_request_names_no_line),
	        CASE(exec_refuses_a_cwd_outside),
	        CASE(exec_stays_refused_after_too_much),
	        CASE(exec_fail_errno_fails_the_write),
	        CASE(signals_do_not_end_a_write_but_a_fatal_one_ends_its_job),
	        CASE(a_client_that_is_killed_does_not_wait_for_its_command),
	        CASE(writes_to_one_open_file_run_one_after_another),
	        CASE(repeated_id_runs_nothing),
	        CASE(spawn_returns_at_the_start_and_tells_the_id),
	        CASE(wait_gives_the_status_at_the_end),
	        CASE(waiting_read_is_ended_by_any_signal),
	        CASE(job_directory_tells_of_the_job),
	        CASE(mkdir_names_a_job_that_exec_runs),
	        CASE(directories_are_made_in_jobs_only),
	        CASE(stdin_can_be_written_before_the_start),
	        CASE(run_streams_output_to_the_end),
	        CASE(run_begins_with_what_was_unfinished_and_can_be_interrupted),
	        CASE(closing_run_kills_its_job),
	        CASE(run_without_waiting_is_eagain),
	        CASE(kill_takes_ids_and_signals),
	        CASE(kill_refuses_what_it_does_not_know),
	        CASE(settings_are_one_value_each),
	        CASE(env_lines_replace_then_add),
	        CASE(bad_env_line_changes_nothing),
	        CASE(truncating_env_clears_it),
	        CASE(truncating_others_is_accepted),
	        CASE(create_waits_and_tells),
	        CASE(failed_create_leaves_its_sentence),
	        CASE(dying_client_takes_its_creation_along),
	        CASE(create_waits_until_it_is_there),
	        CASE(create_tells_what_kept_it_from_being_there),
	        CASE(sync_waits_for_where_it_really_is),
	        CASE(sync_saves_what_is_here),
	        CASE(teardown_goes_on_without_its_client),
	        CASE(events_come_as_they_happen),
	        CASE(log_holds_a_record_of_each_command),
	        CASE(jobs_make_the_sandbox_busy_and_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
