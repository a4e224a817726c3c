/* The control files of a sandbox's history, without FUSE, over a fake backend. */
#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <json-c/json.h>
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

#include "sandboxfs/cleanup.h"
#include "tests/lib/control_fixture.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

/* Files of the tree, as a user of the mount changes them. */
static void write_file(const char *path, const char *text)
{
	int root = sbx_box_root(box), fd;

	assert_true(root >= 0);
	fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	close(root);
}

static void assert_file(const char *path, const char *expected)
{
	int root = sbx_box_root(box), fd;
	char text[256] = "";

	fd = openat(root, path, O_RDONLY | O_CLOEXEC);
	close(root);
	if (!expected) {
		assert_int_equal(fd, -1);
		return;
	}
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) >= 0);
	close(fd);
	assert_string_equal(text, expected);
}

static void open_history(const char *source)
{
	registry_fixture_open(&registry_fixture, "local", source);
	assert_int_equal(sbx_registry_recover(registry_fixture.registry, NULL), 0);
	registry_fixture_start(&registry_fixture);
	box = registry_fixture_make(&registry_fixture, "a");
	/* What its first command would wait for. */
	assert_int_equal(sbx_sandbox_sync(box->sandbox, NULL), 0);
}

static int set_up_history(void **state)
{
	(void)state;
	open_history(NULL);
	return 0;
}

/* A commit of nothing but a submodule. */
static void commit_submodule(const char *path)
{
	const git_oid elsewhere = {{1}};
	git_repository *repo;
	git_treebuilder *builder;
	git_signature *who;
	git_oid id;
	git_tree *tree;

	assert_int_equal(git_repository_open(&repo, path), 0);
	assert_int_equal(git_treebuilder_new(&builder, repo, NULL), 0);
	assert_int_equal(
	        git_treebuilder_insert(NULL, builder, "m.sub", &elsewhere, GIT_FILEMODE_COMMIT), 0);
	assert_int_equal(git_treebuilder_write(&id, builder), 0);
	assert_int_equal(git_tree_lookup(&tree, repo, &id), 0);
	assert_int_equal(git_signature_new(&who, "T", "t@example.org", 1, 0), 0);
	assert_int_equal(git_commit_create_v(&id, repo, "HEAD", who, who, NULL, "first", tree, 0),
	                 0);
	git_signature_free(who);
	git_tree_free(tree);
	git_treebuilder_free(builder);
	git_repository_free(repo);
}

static int set_up_source(void **state)
{
	const char *source = scratch_make();

	(void)state;
	repo_init(source, false);
	commit_submodule(source);
	open_history(source);
	return 0;
}

static int tear_down_source(void **state)
{
	tear_down(state);
	scratch_remove();
	return 0;
}

/* snapshot */

static void snapshot_answers_with_its_id(void **state)
{
	struct sbx_control_handle *h = must_open("snapshot", O_RDWR);

	(void)state;
	assert_cat_begins("snapshot", "");
	assert_int_equal(write_text(h, "first\n"), 6);
	assert_string_equal(faults_asked(&registry_fixture.backend, SNAPSHOT), "first|-|0");
	assert_int_equal(put("snapshot", "second"), 0);
	assert_string_equal(faults_asked(&registry_fixture.backend, SNAPSHOT), "second|-|0");
	assert_read(h, "abcd0001\n");
	assert_read(h, "");
	sbx_control_release(h);
	h = must_open("snapshot", O_RDONLY);
	assert_read(h, "abcd0002\n");
	sbx_control_release(h);
	assert_list("snapshots", "abcd0001 abcd0002 ");
}

static void snapshot_takes_an_empty_line_and_several(void **state)
{
	(void)state;
	assert_int_equal(put("snapshot", "\n"), 0);
	assert_string_equal(faults_asked(&registry_fixture.backend, SNAPSHOT), "|-|0");
	assert_int_equal(put("snapshot", "subject\n\nbody\n"), 0);
	assert_string_equal(faults_asked(&registry_fixture.backend, SNAPSHOT),
	                    "subject\n\nbody|-|0");
	assert_list("snapshots", "abcd0001 abcd0002 ");
}

static void snapshot_takes_json_and_refuses_what_it_does_not_know(void **state)
{
	static const char *const bad[] = {"{\"message\":7}",       "{\"massage\":\"x\"}",
	                                  "{\"ignored\":1}",       "{\"author\":\"me\"}",
	                                  "{\"author\":\"<m>\"}",  "{\"author\":\"a <b> <c>\"}",
	                                  "{\"message\":\"a\"} x", "{\"message\":\"a\"",
	                                  "bad \xff text\n",       "{\"author\":\"a <b\\n>\"}"};
	struct sbx_control_handle *h = must_open("snapshot", O_WRONLY);

	(void)state;
	assert_int_equal(write_text(h, "{\"message\":\"m\",\"author\":"), 24);
	assert_int_equal(write_text(h, "\"A B <a@b>\",\"ignored\":true}"), 27);
	assert_string_equal(faults_asked(&registry_fixture.backend, SNAPSHOT), "m|A B <a@b>|1");
	sbx_control_release(h);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(bad); i++)
		assert_int_equal(put("snapshot", bad[i]), -EINVAL);
	assert_list("snapshots", "abcd0001 ");
}

static void refused_snapshot_has_its_sentence(void **state)
{
	(void)state;
	faults_refuse(&registry_fixture.backend, SNAPSHOT, ENOSPC);
	assert_int_equal(put("snapshot", "a\nb\n"), -ENOSPC);
	assert_cat("error", "ENOSPC: recording was refused\n");
}

static void snapshot_is_told_and_recorded(void **state)
{
	_cleanup_free_ char *events = NULL, *log = NULL;

	(void)state;
	assert_int_equal(put("snapshot", "x\n"), 0);
	events = cat("events");
	log = cat("log");
	assert_non_null(strstr(events, "\"event\":\"snapshot\""));
	assert_non_null(strstr(events, "abcd0001"));
	assert_non_null(strstr(log, "\"detail\":\"abcd0001\""));
}

static void dying_client_takes_its_snapshot_along(void **state)
{
	struct sbx_control_handle *h = must_open("snapshot", O_WRONLY);
	struct writing w;

	(void)state;
	faults_hold(&registry_fixture.backend, SNAPSHOT);
	write_begin(&w, h, "x\n");
	faults_await(&registry_fixture.backend, SNAPSHOT);
	answer_cancel(&registry_fixture, &w.a, false);
	registry_fixture_settle(&registry_fixture);
	assert_false(answer_come(&w.a));
	answer_cancel(&registry_fixture, &w.a, true);
	faults_let_go(&registry_fixture.backend, SNAPSHOT);
	assert_int_equal(write_end(&w), -EINTR);
	assert_list("snapshots", "");
	sbx_control_release(h);
}

/* restore, reset */

static void restore_goes_back_and_reset_to_the_beginning(void **state)
{
	(void)state;
	write_file("f", "one");
	assert_int_equal(put("snapshot", "\n"), 0);
	write_file("f", "two");
	write_file("g", "new");
	assert_int_equal(put("restore", "abcd0001\n"), 0);
	assert_file("f", "one");
	assert_file("g", NULL);
	assert_int_equal(put("restore", "previous\n"), 0);
	assert_file("f", "two");
	assert_int_equal(put("reset", "1\n"), 0);
	assert_file("f", NULL);
	assert_int_equal(put("restore", "abcd"), 0);
	assert_file("f", "one");
	assert_int_equal(put("restore", "base"), 0);
	assert_file("f", NULL);
	assert_int_equal(faults_calls(&registry_fixture.backend, RESTORE), 5);
	assert_int_equal(atomic_load(&registry_fixture.busy), 0);
}

static void restore_refuses_what_is_no_id(void **state)
{
	struct sbx_control_handle *h;

	(void)state;
	write_file("f", "kept");
	assert_int_equal(put("restore", "\n"), -EINVAL);
	assert_int_equal(put("restore", "../x"), -EINVAL);
	assert_int_equal(put("restore", "mark:restore"), -EINVAL);
	/* At the write, not when it is closed: a shell does not look at that. */
	h = must_open("restore", O_WRONLY);
	assert_int_equal(write_text(h, "ffff"), -ENOENT);
	assert_int_equal(flush(h), 0);
	sbx_control_release(h);
	assert_error("error", "ENOENT: there is no snapshot ffff");
	assert_int_equal(faults_calls(&registry_fixture.backend, RESTORE), 1);
	assert_file("f", "kept");
}

static void restore_is_refused_while_commands_run(void **state)
{
	(void)state;
	assert_int_equal(put("spawn", "hang\n"), 0);
	assert_int_equal(put("reset", "1"), -EBUSY);
	assert_error("error", "EBUSY: a command is running and may change files meanwhile: wait "
	                      "for it or kill it\n");
	assert_int_equal(put("snapshot", "\n"), 0);
	assert_int_equal(put("kill", "1"), 0);
	assert_cat_begins("jobs/1/wait", "137 ");
	assert_int_equal(put("reset", "1"), 0);
}

static void command_waits_for_the_end_of_a_restore(void **state)
{
	struct sbx_control_handle *h = must_open("reset", O_WRONLY),
	                          *exec = must_open("exec", O_WRONLY);
	struct writing w, e;

	(void)state;
	write_file("f", "one");
	faults_hold(&registry_fixture.backend, RESTORE);
	write_begin(&w, h, "1\n");
	faults_await(&registry_fixture.backend, RESTORE);
	assert_int_equal(atomic_load(&registry_fixture.busy), 1);
	write_begin(&e, exec, "write f two\n");
	registry_fixture_settle(&registry_fixture);
	assert_false(answer_come(&e.a));
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 0);
	faults_let_go(&registry_fixture.backend, RESTORE);
	assert_int_equal(write_end(&w), 2);
	assert_int_equal(write_end(&e), 12);
	assert_file("f", "two\n");
	sbx_control_release(h);
	sbx_control_release(exec);
}

static void waiting_command_is_given_up_with_its_client(void **state)
{
	struct sbx_control_handle *h = must_open("reset", O_WRONLY),
	                          *exec = must_open("exec", O_WRONLY);
	struct writing w, e;

	(void)state;
	faults_hold(&registry_fixture.backend, RESTORE);
	write_begin(&w, h, "1\n");
	faults_await(&registry_fixture.backend, RESTORE);
	write_begin(&e, exec, "echo\n");
	answer_cancel(&registry_fixture, &e.a, true);
	faults_let_go(&registry_fixture.backend, RESTORE);
	assert_int_equal(write_end(&w), 2);
	assert_int_equal(write_end(&e), -EINTR);
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 0);
	assert_int_equal(put("exec", "echo\n"), 0);
	sbx_control_release(h);
	sbx_control_release(exec);
}

static void teardown_asks_a_restore_to_stop(void **state)
{
	struct sbx_control_handle *h = must_open("reset", O_WRONLY);
	struct writing w;
	struct outcome o;

	(void)state;
	faults_hold(&registry_fixture.backend, RESTORE);
	write_begin(&w, h, "1\n");
	faults_await(&registry_fixture.backend, RESTORE);
	outcome_init(&o);
	sbx_registry_teardown(registry_fixture.registry, "a", true, outcome_done, &o);
	faults_let_go(&registry_fixture.backend, RESTORE);
	assert_int_equal(write_end(&w), -EBUSY);
	assert_int_equal(outcome_wait(&o), 0);
	outcome_finish(&o);
	assert_int_equal(write_text(h, "1\n"), -ESTALE);
	sbx_control_release(h);
}

static void several_at_once_come_one_after_another(void **state)
{
	static const char *const texts[8] = {"1\n", "2\n", "1\n", "4\n",
	                                     "1\n", "6\n", "1\n", "8\n"};
	struct sbx_control_handle *h[8];
	struct writing w[8];

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(h); i++) {
		h[i] = must_open(i % 2 ? "snapshot" : "reset", O_WRONLY);
		write_begin(&w[i], h[i], texts[i]);
	}
	for (size_t i = 0; i < SBX_ARRAY_SIZE(h); i++) {
		assert_int_equal(write_end(&w[i]), 2);
		sbx_control_release(h[i]);
	}
	assert_list("snapshots", "abcd0001 abcd0002 abcd0003 abcd0004 ");
	assert_int_equal(faults_calls(&registry_fixture.backend, RESTORE), 4);
}

/* A snapshot that takes long is another client's; who waits behind it is let go, and nothing is
 * held back for him. */
static void dying_clients_do_not_wait_for_their_turn(void **state)
{
	struct sbx_control_handle *first = must_open("snapshot", O_WRONLY);
	struct sbx_control_handle *second = must_open("snapshot", O_WRONLY);
	struct sbx_control_handle *third = must_open("reset", O_WRONLY);
	struct writing w[3];

	(void)state;
	faults_hold(&registry_fixture.backend, SNAPSHOT);
	write_begin(&w[0], first, "1\n");
	faults_await(&registry_fixture.backend, SNAPSHOT);
	write_begin(&w[1], second, "2\n");
	write_begin(&w[2], third, "1\n");
	answer_cancel(&registry_fixture, &w[1].a, true);
	answer_cancel(&registry_fixture, &w[2].a, true);
	assert_int_equal(write_end(&w[1]), -EINTR);
	assert_int_equal(write_end(&w[2]), -EINTR);
	assert_int_equal(put("exec", "echo\n"), 0);
	faults_let_go(&registry_fixture.backend, SNAPSHOT);
	assert_int_equal(write_end(&w[0]), 2);
	assert_list("snapshots", "abcd0001 ");
	sbx_control_release(first);
	sbx_control_release(second);
	sbx_control_release(third);
}

/* snapshots/ */

static mode_t mode_of(const char *path, struct stat *st)
{
	struct sbx_control_node node;

	assert_int_equal(find(path, &node), 0);
	assert_int_equal(sbx_control_getattr(registry_fixture.registry, &node, st), 0);
	assert_int_equal(sbx_control_steady(&node), true);
	sbx_control_node_release(&node);
	return st->st_mode;
}

static int read_link(const char *path, char text[256])
{
	struct sbx_control_node node;
	struct answer a;
	int r;

	assert_int_equal(find(path, &node), 0);
	answer_init(&a, 0);
	sbx_control_readlink(registry_fixture.registry, &node, &a.p);
	sbx_control_node_release(&node);
	answer_wait(&a);
	snprintf(text, 256, "%s", a.data ? a.data : "");
	r = -a.errnum;
	answer_finish(&a);
	return r;
}

static void make_tree(void)
{
	int root = sbx_box_root(box);

	write_file("f", "content");
	assert_int_equal(mkdirat(root, "d", 0755), 0);
	assert_int_equal(mkdirat(root, "d/e", 0755), 0);
	write_file("d/e/run", "#!/bin/sh\n");
	assert_int_equal(fchmodat(root, "d/e/run", 0755, 0), 0);
	assert_int_equal(symlinkat("../../f", root, "d/e/in"), 0);
	assert_int_equal(symlinkat("../../../f", root, "d/e/out"), 0);
	assert_int_equal(symlinkat("/etc/passwd", root, "abs"), 0);
	assert_int_equal(symlinkat("d/../../x", root, "sly"), 0);
	close(root);
	assert_int_equal(put("snapshot", "tree\n"), 0);
}

static void snapshots_are_browsed(void **state)
{
	struct sbx_control_node a, b;
	struct stat st;

	(void)state;
	make_tree();
	write_file("f", "changed");
	assert_list("snapshots/abcd0001", "abs d f m.sub sly ");
	assert_list("snapshots/abcd0001/d/e", "in out run ");
	assert_list("snapshots/abcd0001/m.sub", "");
	assert_list("snapshots/base", "m.sub ");
	assert_int_equal(faults_calls(&registry_fixture.backend, CONTENT), 0);
	assert_cat("snapshots/abcd0001/f", "content");
	assert_cat("snapshots/abcd/d/e/run", "#!/bin/sh\n");
	assert_int_equal(mode_of("snapshots/abcd0001/f", &st), S_IFREG | 0444);
	assert_int_equal(st.st_size, 7);
	assert_int_equal(mode_of("snapshots/abcd0001/d/e/run", &st), S_IFREG | 0555);
	assert_int_equal(mode_of("snapshots/abcd0001/d", &st), S_IFDIR | 0755);
	assert_int_equal(mode_of("snapshots/abcd0001/m.sub", &st), S_IFDIR | 0755);
	assert_int_equal(mode_of("snapshots/abcd0001/abs", &st), S_IFLNK | 0777);
	assert_int_equal(find("snapshots/abcd0001/nothing", &a), -ENOENT);
	assert_int_equal(find("snapshots/abcd0001/m.sub/x", &a), -ENOENT);
	assert_int_equal(find("snapshots/abcd0002", &a), -ENOENT);
	assert_int_equal(find("snapshots/mark:x", &a), -ENOENT);
	assert_int_equal(find("snapshots/abcd0001/f/x", &a), -ENOTDIR);
	assert_int_equal(find("snapshots/abcd0001/f", &a), 0);
	assert_int_equal(find("snapshots/abcd0001/f", &b), 0);
	assert_true(sbx_control_node_same(&a, &b));
	assert_int_equal(sbx_control_ino(&a), sbx_control_ino(&b));
	assert_true(sbx_control_constant(&a));
	assert_true(sbx_control_kept(&a));
	sbx_control_node_release(&b);
	assert_int_equal(find("snapshots/abcd0001", &b), 0);
	assert_true(sbx_control_kept(&b));
	sbx_control_node_release(&b);
	/* The beginning of an id may come to mean another one. */
	assert_int_equal(find("snapshots/abcd", &b), 0);
	assert_false(sbx_control_node_same(&a, &b));
	assert_false(sbx_control_kept(&b));
	sbx_control_node_release(&a);
	sbx_control_node_release(&b);
}

static void beginning_of_an_id_must_mean_one(void **state)
{
	struct sbx_control_node node;

	(void)state;
	assert_int_equal(put("snapshot", "\n"), 0);
	assert_int_equal(find("snapshots/abc", &node), -ENOENT);
	assert_int_equal(find("snapshots/abcd", &node), 0);
	sbx_control_node_release(&node);
	assert_int_equal(put("snapshot", "\n"), 0);
	assert_int_equal(find("snapshots/abcd", &node), -ENOENT);
}

static void links_of_snapshots_stay_inside(void **state)
{
	char text[256];

	(void)state;
	make_tree();
	assert_int_equal(read_link("snapshots/abcd0001/d/e/in", text), 0);
	assert_string_equal(text, "../../f");
	assert_int_equal(read_link("snapshots/abcd0001/d/e/out", text), -EACCES);
	assert_error("error", "EACCES: a link to ../../../f leads out of the snapshot");
	assert_int_equal(read_link("snapshots/abcd0001/abs", text), -EACCES);
	assert_int_equal(read_link("snapshots/abcd0001/sly", text), -EACCES);
	assert_int_equal(read_link("snapshots/abcd0001/f", text), -EINVAL);
}

static void signals_that_are_handled_do_not_end_the_reading_of_a_link(void **state)
{
	struct sbx_control_node node;
	struct answer a;

	(void)state;
	make_tree();
	assert_int_equal(find("snapshots/abcd0001/d/e/in", &node), 0);
	faults_hold(&registry_fixture.backend, CONTENT);
	answer_init(&a, 0);
	sbx_control_readlink(registry_fixture.registry, &node, &a.p);
	faults_await(&registry_fixture.backend, CONTENT);
	answer_cancel(&registry_fixture, &a, false);
	assert_false(answer_come(&a));
	faults_let_go(&registry_fixture.backend, CONTENT);
	answer_wait(&a);
	assert_string_equal(a.data, "../../f");
	answer_finish(&a);
	sbx_control_node_release(&node);
}

static void snapshots_cannot_be_written(void **state)
{
	struct sbx_control_node dir, node;
	struct sbx_control_handle *h;

	(void)state;
	make_tree();
	assert_int_equal(try_open("snapshots/abcd0001/f", O_WRONLY, &h), -EACCES);
	assert_int_equal(try_open("snapshots/abcd0001/f", O_RDWR, &h), -EACCES);
	assert_int_equal(find("snapshots/abcd0001", &dir), 0);
	assert_int_equal(sbx_control_mkdir(registry_fixture.registry, &dir, "x", &node), -EPERM);
	sbx_control_node_release(&dir);
}

static void content_is_read_once_and_by_offset(void **state)
{
	struct sbx_control_handle *h;
	struct answer a, b;
	char *data;

	(void)state;
	make_tree();
	h = must_open("snapshots/abcd0001/f", O_RDONLY);
	faults_hold(&registry_fixture.backend, CONTENT);
	answer_init(&a, 3);
	answer_init(&b, 100);
	sbx_control_read(h, 2, &a.p);
	sbx_control_read(h, 5, &b.p);
	faults_await(&registry_fixture.backend, CONTENT);
	answer_cancel(&registry_fixture, &b, false);
	assert_false(answer_come(&b));
	answer_cancel(&registry_fixture, &b, true);
	answer_wait(&b);
	assert_int_equal(b.errnum, EINTR);
	faults_let_go(&registry_fixture.backend, CONTENT);
	answer_wait(&a);
	assert_string_equal(a.data, "nte");
	answer_finish(&a);
	answer_finish(&b);
	data = read_once(h, 100, 5, NULL);
	assert_string_equal(data, "nt");
	free(data);
	data = read_once(h, 100, 7, NULL);
	assert_string_equal(data, "");
	free(data);
	assert_int_equal(faults_calls(&registry_fixture.backend, CONTENT), 1);
	sbx_control_release(h);
}

static void closing_does_not_wait_for_content(void **state)
{
	struct sbx_control_handle *h;
	struct answer a;

	(void)state;
	make_tree();
	h = must_open("snapshots/abcd0001/f", O_RDONLY);
	faults_hold(&registry_fixture.backend, CONTENT);
	answer_init(&a, 3);
	sbx_control_read(h, 0, &a.p);
	faults_await(&registry_fixture.backend, CONTENT);
	answer_cancel(&registry_fixture, &a, true);
	answer_wait(&a);
	answer_finish(&a);
	sbx_control_release(h);
	faults_let_go(&registry_fixture.backend, CONTENT);
}

/* diff, changes */

/* Of a patch: what it adds and takes away, and of which files. */
static void assert_patch(char *patch, const char *expected)
{
	char *kept = patch;

	for (char *line = patch, *end; *line; line = end) {
		end = strchrnul(line, '\n');
		end += *end == '\n';
		if ((*line == '+' || *line == '-') && strncmp(line, "--- ", 4) != 0) {
			memmove(kept, line, (size_t)(end - line));
			kept += end - line;
		}
	}
	*kept = '\0';
	assert_string_equal(patch, expected);
	free(patch);
}

static void diff_and_changes_are_against_the_beginning(void **state)
{
	struct sbx_control_handle *h;

	(void)state;
	assert_cat("diff", "");
	write_file("f", "one\n");
	h = must_open("changes", O_RDONLY);
	assert_read(h, "A\tf\n");
	write_file("g", "two\n");
	assert_read(h, "A\tf\n");
	sbx_control_release(h);
	assert_patch(cat("diff"), "+++ b/f\n+one\n+++ b/g\n+two\n");
}

static void assert_reads(const char *path, const char *expected)
{
	_cleanup_free_ char *data = cat(path);

	assert_string_equal(data, expected);
}

static void diffs_are_between_any_two_states(void **state)
{
	static const char *const bad[] = {
	        "ffff",         "abcd0001..ffff", "..abcd0001", "abcd0001..",         "mark:x",
	        "base..mark:x", ".changes",       "x",          "abcd0001...abcd0002"};
	struct sbx_control_node node;

	(void)state;
	write_file("f", "one\n");
	assert_int_equal(put("snapshot", "\n"), 0);
	write_file("f", "two\n");
	write_file("g", "new\n");
	assert_int_equal(put("snapshot", "\n"), 0);
	write_file("h", "newer\n");
	assert_reads("diffs/abcd0001.changes", "M\tf\nA\tg\nA\th\n");
	assert_reads("diffs/abcd0001..abcd0002.changes", "M\tf\nA\tg\n");
	assert_reads("diffs/abcd0002..abcd0001.changes", "M\tf\nD\tg\n");
	assert_patch(cat("diffs/base..abcd0001"), "+++ b/f\n+one\n");
	assert_patch(cat("diffs/abcd0002"), "+++ b/h\n+newer\n");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(bad); i++) {
		_cleanup_free_ char *path = NULL;

		assert_true(asprintf(&path, "diffs/%s", bad[i]) > 0);
		assert_int_equal(find(path, &node), -ENOENT);
	}
	assert_list("diffs", "");
}

static void diff_is_made_once_for_an_open_file(void **state)
{
	struct sbx_control_handle *h = must_open("changes", O_RDONLY);
	struct answer a;

	(void)state;
	write_file("f", "one\n");
	faults_hold(&registry_fixture.backend, DIFF);
	answer_init(&a, 100);
	sbx_control_read(h, 0, &a.p);
	faults_await(&registry_fixture.backend, DIFF);
	/* Commands do not wait for it. */
	assert_int_equal(put("exec", "echo\n"), 0);
	answer_cancel(&registry_fixture, &a, true);
	answer_wait(&a);
	assert_int_equal(a.errnum, EINTR);
	answer_finish(&a);
	faults_let_go(&registry_fixture.backend, DIFF);
	/* Another process has the same open file. */
	assert_read(h, "A\tf\n");
	sbx_control_release(h);
}

/* Nobody has a signal, and a client that is told so reads again, and again. */
static void teardown_ends_the_making_of_a_diff(void **state)
{
	struct sbx_control_handle *h = must_open("diff", O_RDONLY);
	struct answer a, b;
	struct outcome o;

	(void)state;
	faults_hold(&registry_fixture.backend, DIFF);
	answer_init(&a, 100);
	answer_init(&b, 100);
	sbx_control_read(h, 0, &a.p);
	faults_await(&registry_fixture.backend, DIFF);
	outcome_init(&o);
	sbx_registry_teardown(registry_fixture.registry, "a", true, outcome_done, &o);
	faults_let_go(&registry_fixture.backend, DIFF);
	answer_wait(&a);
	assert_int_equal(a.errnum, EBUSY);
	sbx_control_read(h, 0, &b.p);
	answer_wait(&b);
	assert_int_equal(b.errnum, EBUSY);
	assert_int_equal(outcome_wait(&o), 0);
	outcome_finish(&o);
	answer_finish(&a);
	answer_finish(&b);
	sbx_control_release(h);
}

/* fork */

static void assert_in(const char *name, const char *path, const char *expected)
{
	struct sbx_box *mine = box;

	box = sbx_registry_find(registry_fixture.registry, name);
	assert_non_null(box);
	assert_file(path, expected);
	sbx_box_unref(box);
	box = mine;
}

static void fork_has_the_same_content(void **state)
{
	_cleanup_free_ char *events = NULL;

	(void)state;
	write_file("f", "one");
	assert_int_equal(put("snapshot", "\n"), 0);
	write_file("f", "two");
	assert_int_equal(put("fork", "b\n"), 0);
	assert_string_equal(faults_asked(&registry_fixture.backend, CREATE), "a|-|-|-");
	assert_in("b", "f", "two");
	/* Without a source there are no branches. */
	assert_int_equal(put("fork", "{\"name\":\"c\",\"rev\":\"abcd0001\",\"branch\":\"x\"}"),
	                 -EINVAL);
	assert_string_equal(faults_asked(&registry_fixture.backend, CREATE), "a|abcd0001|-|x");
	assert_int_equal(put("fork", "{\"name\":\"c\",\"rev\":\"abcd0001\"}"), 0);
	assert_in("c", "f", "one");
	assert_int_equal(put("/create", "{\"name\":\"d\",\"from\":\"a\"}"), 0);
	assert_in("d", "f", "two");
	assert_int_equal(put("/create", "{\"name\":\"e\",\"from\":\"a@base\"}"), 0);
	assert_string_equal(faults_asked(&registry_fixture.backend, CREATE), "a|base|-|-");
	assert_in("e", "f", NULL);
	events = cat("/events");
	assert_non_null(strstr(events, "from a@abcd0001"));
	assert_int_equal(atomic_load(&registry_fixture.busy), 0);
}

static void fork_refuses_in_words(void **state)
{
	(void)state;
	assert_int_equal(put("fork", "a\n"), -EEXIST);
	assert_error("error", "EEXIST: there is a sandbox a already");
	assert_int_equal(put("fork", "\n"), -EINVAL);
	assert_int_equal(put("fork", "no/name\n"), -EINVAL);
	assert_int_equal(put("fork", "{\"rev\":\"base\"}"), -EINVAL);
	assert_int_equal(put("fork", "{\"name\":\"b\",\"rev\":\"mark:x\"}"), -EINVAL);
	assert_int_equal(put("fork", "{\"name\":\"b\",\"form\":\"a\"}"), -EINVAL);
	assert_int_equal(put("fork", "{\"name\":\"b\",\"rev\":\"ffff\"}"), -ENOENT);
	assert_error("error", "ENOENT: there is no snapshot ffff");
	assert_int_equal(put("/create", "{\"name\":\"b\",\"from\":\"z\"}"), -ENOENT);
	assert_error("/error", "ENOENT: there is no sandbox z to fork");
	assert_int_equal(put("/create", "{\"name\":\"b\",\"from\":\"a@\"}"), -EINVAL);
	assert_int_equal(put("/create", "{\"name\":\"b\",\"from\":\"a@mark:x\"}"), -EINVAL);
	assert_int_equal(put("/create", "{\"name\":\"b\",\"from\":\"a\",\"base\":\"x\"}"), -EINVAL);
	assert_int_equal(put("/create", "{\"name\":\"b\",\"from\":\"trash:../x\"}"), -EINVAL);
	assert_null(sbx_registry_find(registry_fixture.registry, "b"));
}

static void fork_of_what_is_there_now_needs_quiet(void **state)
{
	(void)state;
	assert_int_equal(put("snapshot", "\n"), 0);
	assert_int_equal(put("spawn", "hang\n"), 0);
	assert_int_equal(put("fork", "b\n"), -EBUSY);
	assert_error("error", "EBUSY: a command is running and may change files meanwhile: wait "
	                      "for it or kill it; or fork a snapshot: \"rev\":\"ID\" in fork");
	assert_int_equal(put("spawn", "hang\n"), 0);
	assert_int_equal(put("/create", "{\"name\":\"b\",\"from\":\"a\"}"), -EBUSY);
	assert_error("/error", "EBUSY: 2 commands are running");
	assert_null(sbx_registry_find(registry_fixture.registry, "b"));
	assert_int_equal(put("fork", "{\"name\":\"b\",\"rev\":\"abcd0001\"}"), 0);
	assert_int_equal(put("kill", "1"), 0);
}

static void assert_removed(const char *name)
{
	struct sbx_box *found = sbx_registry_find(registry_fixture.registry, name);

	assert_true(!found || found->state != SBX_BOX_READY);
	sbx_box_unref(found);
}

static void dying_client_takes_its_fork_along(void **state)
{
	struct sbx_control_handle *h = must_open("fork", O_WRONLY);
	struct writing w;

	(void)state;
	registry_fixture_play_away(&registry_fixture);
	write_begin(&w, h, "b\n");
	played_away_await(&registry_fixture.away, 1);
	answer_cancel(&registry_fixture, &w.a, false);
	registry_fixture_settle(&registry_fixture);
	assert_false(answer_come(&w.a));
	answer_cancel(&registry_fixture, &w.a, true);
	assert_int_equal(write_end(&w), -EINTR);
	assert_removed("b");
	sbx_control_release(h);
}

static void post_and_wait(void *data)
{
	sem_t *sems = data;

	sem_post(&sems[0]);
	wait_sem(&sems[1]);
}

static void cancel_fatally(void *data)
{
	sbx_pending_cancel(data, true);
}

static void meet(void *data)
{
	pthread_barrier_wait(data);
}

/* Returns when each of the two threads of the pool has done what it was at. */
static void await_pool(void)
{
	static pthread_barrier_t barrier;
	static bool made;

	if (!made)
		pthread_barrier_init(&barrier, NULL, 3);
	made = true;
	sbx_pool_submit(registry_fixture.pool, meet, &barrier);
	sbx_pool_submit(registry_fixture.pool, meet, &barrier);
	pthread_barrier_wait(&barrier);
}

/* Its client dies when it is made, and the loop does not know that yet. */
static void die_late(const char *file, const char *text)
{
	struct sbx_control_handle *h = must_open(file, O_WRONLY);
	struct writing w;
	sem_t sems[2];

	sem_init(&sems[0], 0, 0);
	sem_init(&sems[1], 0, 0);
	faults_hold(&registry_fixture.backend, CREATE);
	write_begin(&w, h, text);
	faults_await(&registry_fixture.backend, CREATE);
	sbx_loop_post(registry_fixture.loop, post_and_wait, sems);
	wait_sem(&sems[0]);
	sbx_loop_post(registry_fixture.loop, cancel_fatally, &w.a.p);
	faults_let_go(&registry_fixture.backend, CREATE);
	await_pool();
	sem_post(&sems[1]);
	assert_int_equal(write_end(&w), -EINTR);
	assert_removed("b");
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "b", true), 0);
	sem_destroy(&sems[0]);
	sem_destroy(&sems[1]);
	sbx_control_release(h);
}

static void client_that_dies_late_takes_what_it_made_along(void **state)
{
	(void)state;
	die_late("fork", "b\n");
	die_late("/create", "b\n");
	registry_fixture_play_away(&registry_fixture);
	die_late("fork", "b\n");
	die_late("/create", "b\n");
}

static int two_of_the_trash(struct sbx_backend *b, int (*fn)(const struct sbx_trash *t, void *data),
                            void *data, struct sbx_error *err)
{
	int r = fn(&(struct sbx_trash){"b-20260101T000000", "b", "sandbox/b", 1500}, data);

	(void)b;
	(void)err;
	return r ? r : fn(&(struct sbx_trash){"c-20260101T000001", "c", NULL, 2000}, data);
}

static void trash_is_listed_and_brought_back(void **state)
{
	_cleanup_free_ char *list = NULL, *request = NULL;

	(void)state;
	assert_cat("/trash", "");
	assert_cat("/trash.json", "[]\n");
	write_file("f", "one");
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
	list = cat("/trash");
	*strchrnul(list, ' ') = '\0';
	assert_true(asprintf(&request, "{\"name\":\"b\",\"from\":\"trash:%s\"}", list) > 0);
	assert_int_equal(put("/create", request), 0);
	assert_in("b", "f", "one");
	registry_fixture.backend.impl.trash = two_of_the_trash;
	assert_cat("/trash", "b-20260101T000000 b 1970-01-01T00:00:01.500Z sandbox/b\n"
	                     "c-20260101T000001 c 1970-01-01T00:00:02.000Z -\n");
	assert_cat_begins("/trash.json", "[{\"name\":\"b-20260101T000000\",\"sandbox\":\"b\",");
	assert_int_equal(put("/create", "{\"name\":\"b\",\"from\":\"trash:c-20260101T000001\"}"),
	                 -EEXIST);
	assert_int_equal(put("/create", "{\"name\":\"c\",\"from\":\"trash:c-20260101T000001\"}"),
	                 -ENOENT);
	assert_string_equal(faults_asked(&registry_fixture.backend, CREATE),
	                    "-|-|c-20260101T000001|-");
}

/* track, undo */

static void without_track_it_says_how(void **state)
{
	struct sbx_control_handle *h;
	struct json_object *result;
	_cleanup_free_ char *text = NULL;

	(void)state;
	assert_int_equal(put("exec", "write f one\n"), 0);
	assert_int_equal(try_open("jobs/1/diff", O_RDONLY, &h), -EOPNOTSUPP);
	assert_error("error", "-o track");
	assert_int_equal(try_open("undo", O_WRONLY, &h), -EOPNOTSUPP);
	assert_error("error", "-o track");
	assert_list("jobs/1", "argv cwd stdin stdout stderr status result kill ");
	text = cat("jobs/1/result");
	result = json_tokener_parse(text);
	assert_true(json_object_object_get_ex(result, "changedFiles", NULL));
	assert_null(json_object_object_get(result, "changedFiles"));
	json_object_put(result);
	assert_int_equal(find("snapshots/mark:job-0-before", &(struct sbx_control_node){0}),
	                 -ENOENT);
}

static int set_up_track(void **state)
{
	set_up_history(state);
	registry_fixture.settings.track = true;
	return 0;
}

static void assert_changed(const char *job, const char *expected)
{
	_cleanup_free_ char *path = NULL, *text = NULL;

	assert_true(asprintf(&path, "jobs/%s/result", job) > 0);
	text = cat(path);
	if (!strstr(text, expected))
		fail_msg("%s", text);
}

static void each_command_has_its_diff(void **state)
{
	_cleanup_free_ char *log = NULL;

	(void)state;
	write_file("mine", "x");
	assert_int_equal(put("exec", "write f one\n"), 0);
	write_file("mine", "y");
	assert_int_equal(put("exec", "write f two\nwrite g three\n"), 0);
	assert_int_equal(put("exec", "echo\n"), 0);
	assert_changed("1", "\"changedFiles\":[\"f\"]");
	assert_changed("2", "\"changedFiles\":[\"f\"]");
	assert_changed("3", "\"changedFiles\":[\"g\"]");
	assert_changed("4", "\"changedFiles\":[]");
	assert_reads("jobs/1/changes", "A\tf\n");
	assert_reads("jobs/2/changes", "M\tf\n");
	assert_patch(cat("jobs/2/diff"), "+++ b/f\n-one\n+two\n");
	assert_list("jobs/1", "argv cwd stdin stdout stderr status result diff changes kill ");
	log = cat("log");
	assert_non_null(strstr(log, "\"changed_files\":[\"g\"]"));
	assert_list("snapshots", "");
}

static void answer_of_exec_tells_what_changed(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_RDWR);
	char *data;

	(void)state;
	assert_int_equal(write_text(h, "write f one\n"), 12);
	data = read_once(h, 65536, 0, NULL);
	assert_non_null(strstr(data, "\"changedFiles\":[\"f\"]"));
	free(data);
	sbx_control_release(h);
}

static void diff_of_a_running_job_is_up_to_now(void **state)
{
	(void)state;
	write_file("f", "one");
	assert_int_equal(put("spawn", "hang\n"), 0);
	write_file("g", "two");
	assert_reads("jobs/1/changes", "A\tg\n");
	assert_changed("1", "\"changedFiles\":null");
	assert_int_equal(put("kill", "1"), 0);
	assert_cat_begins("jobs/1/wait", "137 ");
	assert_changed("1", "\"changedFiles\":[\"g\"]");
}

static void undo_goes_back_step_by_step(void **state)
{
	(void)state;
	assert_int_equal(put("undo", "1\n"), -ENOENT);
	assert_error("error", "ENOENT: there is nothing to undo");
	assert_int_equal(put("exec", "write f one\nwrite f two\nwrite f three\nwrite f four\n"), 0);
	assert_int_equal(put("undo", "1\n"), 0);
	assert_file("f", "three\n");
	assert_int_equal(put("undo", "last\n"), 0);
	assert_file("f", "two\n");
	assert_int_equal(put("restore", "previous\n"), 0);
	assert_file("f", "three\n");
	assert_int_equal(put("undo", "jobs/1\n"), 0);
	assert_file("f", NULL);
	assert_int_equal(put("undo", "1\n"), -ENOENT);
	assert_int_equal(put("undo", "3\n"), 0);
	assert_file("f", "two\n");
	assert_int_equal(put("undo", "9\n"), -ENOENT);
	assert_error("error", "ENOENT: what job 9 changed is not known");
	assert_int_equal(put("undo", "a b\n"), -EINVAL);
	assert_int_equal(put("spawn", "hang\n"), 0);
	assert_int_equal(put("undo", "1"), -EBUSY);
	assert_int_equal(put("kill", "1"), 0);
}

static void changes_of_the_last_jobs_are_kept(void **state)
{
	struct sbx_control_handle *h;
	int errnum;

	(void)state;
	assert_int_equal(put("spawn", "hang\n"), 0);
	for (int i = 0; i < 40; i++)
		assert_int_equal(put("exec", i == 1 ? "missing\n" : "write f x\n"),
		                 i == 1 ? -ENOENT : 0);
	assert_reads("jobs/1/changes", "A\tf\n");
	assert_reads("jobs/41/changes", "");
	assert_int_equal(put("kill", "1"), 0);
	assert_cat_begins("jobs/1/wait", "137 ");
	h = must_open("jobs/2/changes", O_RDONLY);
	assert_null(read_once(h, 100, 0, &errnum));
	assert_int_equal(errnum, ENOENT);
	sbx_control_release(h);
	assert_error("error", "ENOENT: what job 2 changed is not known");
	/* What could not be started has given its place back. */
	for (int i = 0; i < 40; i++)
		assert_int_equal(put("exec", "missing\n"), -ENOENT);
	assert_reads("jobs/41/changes", "");
}

static void command_runs_though_it_cannot_be_tracked(void **state)
{
	_cleanup_free_ char *events = NULL;

	(void)state;
	faults_refuse(&registry_fixture.backend, SNAPSHOT, ENOSPC);
	assert_int_equal(put("exec", "write f one\n"), 0);
	assert_changed("1", "\"changedFiles\":null");
	events = cat("events");
	assert_non_null(strstr(events, "\"event\":\"track_failed\""));
	faults_mend(&registry_fixture.backend, SNAPSHOT);
	assert_int_equal(put("exec", "write f two\n"), 0);
	assert_changed("2", "\"changedFiles\":[\"f\"]");
}

static void dying_client_ends_the_marking(void **state)
{
	struct sbx_control_handle *h = must_open("exec", O_WRONLY);
	struct writing w;

	(void)state;
	faults_hold(&registry_fixture.backend, SNAPSHOT);
	write_begin(&w, h, "echo\n");
	faults_await(&registry_fixture.backend, SNAPSHOT);
	/* It is about to start, so nothing may change the tree. */
	assert_int_equal(put("reset", "1"), -EBUSY);
	assert_error("error", "EBUSY: a command is about to start");
	answer_cancel(&registry_fixture, &w.a, true);
	faults_let_go(&registry_fixture.backend, SNAPSHOT);
	assert_int_equal(write_end(&w), -EINTR);
	assert_int_equal(atomic_load(&registry_fixture.runner.execs), 0);
	assert_int_equal(put("reset", "1"), 0);
	sbx_control_release(h);
}

static void teardown_does_not_wait_for_marks(void **state)
{
	(void)state;
	assert_int_equal(put("spawn", "hang\n"), 0);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
}

#define TRACKED(fn) cmocka_unit_test_setup_teardown(fn, set_up_track, tear_down)
#define CASE(fn)    cmocka_unit_test_setup_teardown(fn, set_up_history, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(snapshot_answers_with_its_id),
	        CASE(snapshot_takes_an_empty_line_and_several),
	        CASE(snapshot_takes_json_and_refuses_what_it_does_not_know),
	        CASE(refused_snapshot_has_its_sentence),
	        CASE(snapshot_is_told_and_recorded),
	        CASE(dying_client_takes_its_snapshot_along),
	        CASE(restore_goes_back_and_reset_to_the_beginning),
	        CASE(restore_refuses_what_is_no_id),
	        CASE(restore_is_refused_while_commands_run),
	        CASE(command_waits_for_the_end_of_a_restore),
	        CASE(waiting_command_is_given_up_with_its_client),
	        CASE(teardown_asks_a_restore_to_stop),
	        CASE(several_at_once_come_one_after_another),
	        CASE(dying_clients_do_not_wait_for_their_turn),
	        cmocka_unit_test_setup_teardown(snapshots_are_browsed, set_up_source,
	                                        tear_down_source),
	        CASE(beginning_of_an_id_must_mean_one),
	        CASE(links_of_snapshots_stay_inside),
	        CASE(signals_that_are_handled_do_not_end_the_reading_of_a_link),
	        CASE(snapshots_cannot_be_written),
	        CASE(content_is_read_once_and_by_offset),
	        CASE(closing_does_not_wait_for_content),
	        CASE(diff_and_changes_are_against_the_beginning),
	        CASE(diffs_are_between_any_two_states),
	        CASE(diff_is_made_once_for_an_open_file),
	        CASE(teardown_ends_the_making_of_a_diff),
	        CASE(fork_has_the_same_content),
	        CASE(fork_refuses_in_words),
	        CASE(fork_of_what_is_there_now_needs_quiet),
	        CASE(dying_client_takes_its_fork_along),
	        CASE(client_that_dies_late_takes_what_it_made_along),
	        CASE(trash_is_listed_and_brought_back),
	        CASE(without_track_it_says_how),
	        TRACKED(each_command_has_its_diff),
	        TRACKED(answer_of_exec_tells_what_changed),
	        TRACKED(diff_of_a_running_job_is_up_to_now),
	        TRACKED(undo_goes_back_step_by_step),
	        TRACKED(changes_of_the_last_jobs_are_kept),
	        TRACKED(command_runs_though_it_cannot_be_tracked),
	        TRACKED(dying_client_ends_the_marking),
	        TRACKED(teardown_does_not_wait_for_marks),
	};

	repo_setup();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
