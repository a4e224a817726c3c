/* The registry over a fake backend: the lives of sandboxes, and their races. */
#include <errno.h>
#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "fs/log/events.h"
#include "fs/sandbox/await.h"
#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/report.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/registry_fixture.h"

static struct registry_fixture registry_fixture;

static int set_up(void **state)
{
	(void)state;
	registry_fixture_open(&registry_fixture, "memory", NULL);
	registry_fixture_start(&registry_fixture);
	return 0;
}

static int set_up_stopped(void **state)
{
	(void)state;
	registry_fixture_open(&registry_fixture, "memory", NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	registry_fixture_close(&registry_fixture);
	return 0;
}

static void assert_absent(const char *name)
{
	struct sbx_box *box = sbx_registry_find(registry_fixture.registry, name);

	assert_null(box);
}

static int make_code(const struct sbx_create_request *req, struct sbx_error *err)
{
	struct outcome o;
	int code;

	outcome_init(&o);
	sbx_registry_make(registry_fixture.registry, req, outcome_done, &o);
	code = outcome_wait(&o);
	*err = o.err;
	outcome_finish(&o);
	return code;
}

static int make_named(const char *name)
{
	struct sbx_error err;

	return make_code(&(struct sbx_create_request){.name = (char *)name}, &err);
}

static int rename_code(const char *from, const char *to)
{
	struct outcome o;
	int code;

	outcome_init(&o);
	sbx_registry_rename(registry_fixture.registry, from, to, outcome_done, &o);
	code = outcome_wait(&o);
	outcome_finish(&o);
	return code;
}

/* Reads the mount's events until one is called EVENT. */
static void await_event(const char *event)
{
	_cleanup_free_ char *word = NULL;
	struct sbx_events_reader cursor = {0};
	bool seen = false;

	assert_true(asprintf(&word, "\"event\":\"%s\"", event) > 0);
	while (!seen) {
		struct answer a;

		answer_init(&a, 65536);
		sbx_events_read(sbx_registry_events(registry_fixture.registry), &cursor, &a.p, 0);
		answer_wait(&a);
		assert_true(a.n > 0);
		seen = strstr(a.data, word);
		answer_finish(&a);
	}
}

static void assert_error(int code, const char *text)
{
	struct sbx_error err;

	sbx_error_fetch(registry_fixture.registry, NULL, &err);
	assert_int_equal(err.code, code);
	assert_non_null(strstr(err.text, text));
}

/* Make */

static void made_sandbox_is_there_and_ready(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a"), *found;

	(void)state;
	assert_int_equal(box->state, SBX_BOX_READY);
	assert_true(sbx_box_alive(box));
	found = sbx_registry_find(registry_fixture.registry, "a");
	assert_ptr_equal(found, box);
	sbx_box_unref(found);
	found = sbx_registry_find_number(registry_fixture.registry, box->number);
	assert_ptr_equal(found, box);
	sbx_box_unref(found);
	sbx_box_unref(box);
	await_event("create");
}

static void bad_names_are_einval(void **state)
{
	static const char *const bad[] = {"",    ".",      "..",       "-a",  "a/b",
	                                  "ctl", "README", "SKILL.md", "a\nb"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(bad); i++)
		assert_int_equal(make_named(bad[i]), -EINVAL);
	assert_int_equal(make_named(NULL), -EINVAL);
	assert_error(EINVAL, "name");
}

static void what_the_backend_lacks_is_eopnotsupp(void **state)
{
	struct sbx_error err;

	(void)state;
	assert_int_equal(
	        make_code(&(struct sbx_create_request){.name = "a", .backend = "moon"}, &err),
	        -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "moon"));
	assert_int_equal(make_code(&(struct sbx_create_request){.name = "a", .repo = "o/r"}, &err),
	                 -EOPNOTSUPP);
	assert_int_equal(
	        make_code(&(struct sbx_create_request){.name = "a", .backend = "memory"}, &err), 0);
}

static void existing_name_is_eexist(void **state)
{
	(void)state;
	assert_int_equal(make_named("a"), 0);
	assert_int_equal(make_named("a"), -EEXIST);
	assert_error(EEXIST, "a already");
}

static void name_being_made_is_hidden_and_taken(void **state)
{
	struct outcome o;

	(void)state;
	outcome_init(&o);
	faults_hold(&registry_fixture.backend, CREATE);
	sbx_registry_make(registry_fixture.registry, &(struct sbx_create_request){.name = "a"},
	                  outcome_done, &o);
	faults_await(&registry_fixture.backend, CREATE);
	assert_absent("a");
	assert_int_equal(make_named("a"), -EEXIST);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", false), -EBUSY);
	assert_int_equal(rename_code("a", "b"), -ENOENT);
	faults_let_go(&registry_fixture.backend, CREATE);
	assert_int_equal(outcome_wait(&o), 0);
	outcome_finish(&o);
}

static void failed_make_leaves_nothing_but_the_sentence(void **state)
{
	(void)state;
	faults_refuse(&registry_fixture.backend, CREATE, ENOSPC);
	assert_int_equal(make_named("a"), -ENOSPC);
	assert_absent("a");
	assert_error(ENOSPC, "creating was refused");
	await_event("create_failed");
	faults_mend(&registry_fixture.backend, CREATE);
	assert_int_equal(make_named("a"), 0);
}

static void make_without_a_place_for_its_log_leaves_nothing(void **state)
{
	(void)state;
	registry_fixture.settings.logs_dir = "/dev/null/no";
	assert_true(make_named("a") < 0);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 0);
	assert_absent("a");
	registry_fixture.settings.logs_dir = NULL;
}

struct cancelling {
	struct sbx_creation *creation;
	sem_t done;
};

static void cancel(void *data)
{
	struct cancelling *c = data;

	sbx_registry_cancel(c->creation);
	sem_post(&c->done);
}

static void cancelled_make_is_eintr(void **state)
{
	struct cancelling c = {0};
	struct outcome o;

	(void)state;
	outcome_init(&o);
	sem_init(&c.done, 0, 0);
	faults_hold(&registry_fixture.backend, CREATE);
	c.creation = sbx_registry_make(registry_fixture.registry,
	                               &(struct sbx_create_request){.name = "a"}, outcome_done, &o);
	assert_non_null(c.creation);
	faults_await(&registry_fixture.backend, CREATE);
	sbx_loop_post(registry_fixture.loop, cancel, &c);
	wait_sem(&c.done);
	faults_let_go(&registry_fixture.backend, CREATE);
	assert_int_equal(outcome_wait(&o), -EINTR);
	assert_absent("a");
	outcome_finish(&o);
	sem_destroy(&c.done);
}

/* Teardown */

static void teardown_frees_the_name_before_everything_is_removed(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a");
	_cleanup_free_ char *pending = NULL;
	struct outcome complete;

	(void)state;
	outcome_init(&complete);
	faults_hold(&registry_fixture.backend, REMOVE);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", false), 0);
	faults_await(&registry_fixture.backend, REMOVE);
	assert_absent("a");
	assert_false(sbx_box_alive(box));
	pending = sbx_registry_pending_text(registry_fixture.registry);
	assert_string_equal(pending, "a\n");
	sbx_registry_teardown(registry_fixture.registry, "a", true, outcome_done, &complete);
	registry_fixture_settle(&registry_fixture);
	faults_let_go(&registry_fixture.backend, REMOVE);
	assert_int_equal(outcome_wait(&complete), 0);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 0);
	outcome_finish(&complete);
	sbx_box_unref(box);
	await_event("removed");
}

static void name_is_free_again_at_once(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(make_named("a"), 0);
		assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", i % 2), 0);
	}
}

static void teardown_of_what_is_not_there(void **state)
{
	(void)state;
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", false), -ENOENT);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "../a", true), -EINVAL);
}

static void two_teardowns_at_once_both_succeed(void **state)
{
	struct outcome first, second, third;

	(void)state;
	outcome_init(&first);
	outcome_init(&second);
	outcome_init(&third);
	sbx_box_unref(registry_fixture_make(&registry_fixture, "a"));
	sbx_registry_teardown(registry_fixture.registry, "a", true, outcome_done, &first);
	sbx_registry_teardown(registry_fixture.registry, "a", true, outcome_done, &second);
	sbx_registry_teardown(registry_fixture.registry, "b", true, outcome_done, &third);
	assert_int_equal(outcome_wait(&first), 0);
	assert_int_equal(outcome_wait(&second), 0);
	assert_int_equal(outcome_wait(&third), 0);
	outcome_finish(&first);
	outcome_finish(&second);
	outcome_finish(&third);
}

static void failed_removal_is_told_and_tried_again(void **state)
{
	_cleanup_free_ char *stats = NULL;

	(void)state;
	faults_fail(&registry_fixture.backend, REMOVE, 1, 1, EBUSY);
	sbx_box_unref(registry_fixture_make(&registry_fixture, "a"));
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), -EBUSY);
	assert_error(EBUSY, "removing was refused");
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 1);
	await_event("removed");
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 0);
	stats = sbx_registry_stats_text(registry_fixture.registry);
	assert_non_null(strstr(stats, "sandboxfs_remove_failures_total 1\n"));
}

static void failed_removal_is_tried_again_at_the_end(void **state)
{
	(void)state;
	faults_fail(&registry_fixture.backend, REMOVE, 1, 1, EBUSY);
	sbx_box_unref(registry_fixture_make(&registry_fixture, "a"));
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), -EBUSY);
	sbx_registry_shutdown(registry_fixture.registry);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 0);
}

static void what_cannot_be_removed_holds_no_end_up(void **state)
{
	(void)state;
	faults_refuse(&registry_fixture.backend, REMOVE, EBUSY);
	sbx_box_unref(registry_fixture_make(&registry_fixture, "a"));
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), -EBUSY);
	sbx_registry_shutdown(registry_fixture.registry);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 1);
	/* Who comes now is not kept waiting for an attempt that there will not be. */
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), -EBUSY);
}

/* In rmdir(2) everybody waits who comes to the directory. */
static void who_waits_in_rmdir_and_the_end_are_in_a_hurry(void **state)
{
	(void)state;
	sbx_box_unref(registry_fixture_make(&registry_fixture, "a"));
	sbx_box_unref(registry_fixture_make(&registry_fixture, "b"));
	sbx_box_unref(registry_fixture_make(&registry_fixture, "c"));
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
	assert_int_equal(faults_calls(&registry_fixture.backend, HURRY), 0);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "b", false), 0);
	assert_int_equal(faults_calls(&registry_fixture.backend, HURRY), 1);
	sbx_registry_shutdown(registry_fixture.registry);
	assert_int_equal(faults_calls(&registry_fixture.backend, HURRY), 2);
}

static void who_was_told_of_a_failed_removal_can_discard(void **state)
{
	_cleanup_free_ char *pending = NULL, *id = NULL;
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a");

	(void)state;
	id = strdup(box->sandbox->id);
	sbx_box_unref(box);
	faults_refuse(&registry_fixture.backend, REMOVE, EROFS);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", false), 0);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), -EROFS);
	assert_int_equal(faults_calls(&registry_fixture.backend, DISCARD), 0);
	pending = sbx_registry_pending_text(registry_fixture.registry);
	assert_non_null(strstr(pending, id));
	assert_non_null(strstr(pending, "\tremoving was refused\n"));
	sbx_box_unref(registry_fixture_make(&registry_fixture, "a"));
	/* Another has the name by now. */
	assert_int_equal(registry_fixture_teardown(&registry_fixture, id, true), 0);
	assert_true(faults_calls(&registry_fixture.backend, DISCARD) > 0);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 1);
}

static void refused_retirement_leaves_the_sandbox_ready(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a");
	char *const argv[] = {"echo", "x", NULL};
	struct sbx_request req = {.argv = (char **)argv};
	struct sbx_jobrec *job;
	bool repeated;

	(void)state;
	faults_refuse(&registry_fixture.backend, RETIRE, EROFS);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), -EROFS);
	faults_mend(&registry_fixture.backend, RETIRE);
	assert_int_equal(box->state, SBX_BOX_READY);
	assert_int_equal(sbx_job_start(box->jobs, &req, SBX_JOB_EXEC, NULL, &job, &repeated, NULL),
	                 0);
	sbx_job_unref(job);
	sbx_box_unref(box);
}

static void teardown_kills_jobs_and_leaves_the_durable_log(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a");
	char *const argv[] = {"hang", NULL};
	struct sbx_request req = {.argv = (char **)argv};
	_cleanup_free_ char *path = NULL;
	struct sbx_jobrec *job;
	struct stat st;
	bool repeated;

	(void)state;
	assert_int_equal(sbx_job_start(box->jobs, &req, SBX_JOB_EXEC, NULL, &job, &repeated, NULL),
	                 0);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
	assert_true(sbx_job_ended(job));
	assert_true(asprintf(&path, "%s/log/%s.jsonl", registry_fixture.dir, box->sandbox->id) > 0);
	assert_int_equal(stat(path, &st), -1);
	sbx_job_unref(job);
	sbx_box_unref(box);
	await_event("job_end");
}

static void events_of_a_torn_down_sandbox_end(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a");
	struct sbx_events_reader cursor = {0};
	struct answer a, b;

	(void)state;
	answer_init(&a, 65536);
	answer_init(&b, 65536);
	sbx_events_read(box->events, &cursor, &a.p, 0);
	answer_wait(&a);
	assert_non_null(strstr(a.data, "\"event\":\"create\""));
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
	do {
		answer_finish(&b);
		answer_init(&b, 65536);
		sbx_events_read(box->events, &cursor, &b.p, 0);
		answer_wait(&b);
	} while (b.n > 0);
	assert_int_equal(b.n, 0);
	answer_finish(&a);
	answer_finish(&b);
	sbx_box_unref(box);
}

/* Rename */

static void rename_moves_the_name(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "b"), *found;
	char name[64];

	(void)state;
	assert_int_equal(make_named("a"), 0);
	assert_int_equal(make_named("c"), 0);
	assert_int_equal(rename_code("b", "z"), 0);
	assert_absent("b");
	found = sbx_registry_find(registry_fixture.registry, "z");
	assert_ptr_equal(found, box);
	sbx_box_name(box, name);
	assert_string_equal(name, "z");
	assert_int_equal(make_named("b"), 0);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "z", true), 0);
	sbx_box_unref(found);
	sbx_box_unref(box);
	await_event("rename");
}

static void rename_is_refused_with_the_right_errno(void **state)
{
	(void)state;
	assert_int_equal(make_named("a"), 0);
	assert_int_equal(make_named("b"), 0);
	assert_int_equal(rename_code("x", "y"), -ENOENT);
	assert_int_equal(rename_code("a", "b"), -EEXIST);
	assert_int_equal(rename_code("a", "ctl"), -EINVAL);
	assert_int_equal(rename_code("a", "a"), 0);
	faults_refuse(&registry_fixture.backend, RENAME, EIO);
	assert_int_equal(rename_code("a", "c"), -EIO);
	assert_error(EIO, "renaming was refused");
	faults_mend(&registry_fixture.backend, RENAME);
	assert_int_equal(rename_code("a", "c"), 0);
}

/* Whichever comes first: what has been torn down is under neither name. */
static void rename_and_teardown_at_once_leave_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < 500; i++) {
		struct outcome renamed, gone;
		int r;

		assert_int_equal(make_named("a"), 0);
		outcome_init(&renamed);
		outcome_init(&gone);
		sbx_registry_rename(registry_fixture.registry, "a", "b", outcome_done, &renamed);
		sbx_registry_teardown(registry_fixture.registry, "a", true, outcome_done, &gone);
		r = outcome_wait(&renamed);
		assert_true(r == 0 || r == -ENOENT);
		assert_int_equal(outcome_wait(&gone), 0);
		assert_int_equal(registry_fixture_teardown(&registry_fixture, "b", true), 0);
		assert_absent("a");
		assert_absent("b");
		outcome_finish(&renamed);
		outcome_finish(&gone);
	}
}

/* Texts */

static void remember_name(struct sbx_box *box, void *data)
{
	char *names = data;

	snprintf(names + strlen(names), 16 - strlen(names), "%s", box->name);
}

static void walk_is_in_order_of_names(void **state)
{
	char names[16] = "";

	(void)state;
	assert_int_equal(make_named("c"), 0);
	assert_int_equal(make_named("a"), 0);
	assert_int_equal(make_named("b"), 0);
	sbx_registry_walk(registry_fixture.registry, remember_name, names);
	assert_string_equal(names, "abc");
}

static const char *member(struct json_object *obj, const char *key)
{
	struct json_object *value;

	assert_true(json_object_object_get_ex(obj, key, &value));
	return json_object_get_string(value);
}

static void texts_describe_the_sandboxes(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a");
	_cleanup_free_ char *list = sbx_registry_list_text(registry_fixture.registry);
	_cleanup_free_ char *json = sbx_registry_list_json(registry_fixture.registry);
	_cleanup_free_ char *info = sbx_box_info_json(box), *policy = sbx_box_policy_json(box);
	_cleanup_free_ char *stats = sbx_registry_stats_text(registry_fixture.registry);
	struct json_object *obj;

	(void)state;
	assert_int_equal(strncmp(list, "NAME ", 5), 0);
	assert_non_null(strstr(list, "\na  "));
	obj = json_tokener_parse(json);
	assert_int_equal(json_object_array_length(obj), 1);
	json_object_put(obj);
	obj = json_tokener_parse(info);
	assert_string_equal(member(obj, "name"), "a");
	assert_string_equal(member(obj, "state"), "ready");
	assert_string_equal(member(obj, "backend"), "memory");
	assert_string_equal(member(obj, "path"), "/mnt/test/a");
	assert_string_equal(member(obj, "workdir"), box->sandbox->workdir);
	json_object_put(obj);
	obj = json_tokener_parse(policy);
	assert_string_equal(member(obj, "network"), "none");
	assert_null(member(obj, "allow"));
	json_object_put(obj);
	assert_non_null(strstr(stats, "\nsandboxfs_creates_total 1\n"));
	assert_non_null(strstr(stats, "\nsandboxfs_sandboxes 1\n"));
	sbx_box_unref(box);
}

/* Start and end */

static void recovery_takes_up_what_is_found(void **state)
{
	struct sbx_box *box;
	char names[16] = "";

	(void)state;
	faults_leave(&registry_fixture.backend, "b");
	faults_leave(&registry_fixture.backend, "a");
	assert_int_equal(sbx_registry_recover(registry_fixture.registry, NULL), 0);
	registry_fixture_start(&registry_fixture);
	sbx_registry_walk(registry_fixture.registry, remember_name, names);
	assert_string_equal(names, "ab");
	await_event("recovery");
	box = sbx_registry_find(registry_fixture.registry, "a");
	assert_int_equal(box->state, SBX_BOX_READY);
	sbx_box_unref(box);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), 0);
}

static void touch(const char *dir, const char *file)
{
	_cleanup_free_ char *path = NULL, *where = NULL;
	FILE *f;

	assert_true(asprintf(&where, "%s/%s", registry_fixture.dir, dir) > 0);
	assert_true(mkdir(where, 0700) == 0 || errno == EEXIST);
	if (!file)
		return;
	assert_true(asprintf(&path, "%s/%s", where, file) > 0);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
}

static bool exists(const char *name)
{
	_cleanup_free_ char *path = NULL;
	struct stat st;

	assert_true(asprintf(&path, "%s/%s", registry_fixture.dir, name) > 0);
	return lstat(path, &st) == 0;
}

static void recovery_sweeps_what_belongs_to_nobody(void **state)
{
	_cleanup_free_ char *log = NULL, *jobs = NULL;
	const char *id = faults_leave(&registry_fixture.backend, "a")->id;

	(void)state;
	assert_true(asprintf(&log, "log/%s.jsonl", id) > 0);
	assert_true(asprintf(&jobs, "jobs/%s", id) > 0);
	touch("log", strchr(log, '/') + 1);
	touch("log", "gone-7.jsonl");
	touch("jobs", NULL);
	touch(jobs, "3.1");
	touch("jobs/gone-7", "3.2");
	assert_int_equal(sbx_registry_recover(registry_fixture.registry, NULL), 0);
	registry_fixture_start(&registry_fixture);
	assert_true(exists(log));
	assert_false(exists("log/gone-7.jsonl"));
	assert_false(exists(jobs));
	assert_false(exists("jobs/gone-7"));
}

static void recovery_refuses_two_of_one_name(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	faults_leave(&registry_fixture.backend, "a");
	faults_leave(&registry_fixture.backend, "a");
	assert_int_equal(sbx_registry_recover(registry_fixture.registry, &err), -EEXIST);
	registry_fixture_start(&registry_fixture);
}

static void lifetime_ends_a_sandbox(void **state)
{
	(void)state;
	registry_fixture.settings.run_timeout_ms = 20;
	faults_leave(&registry_fixture.backend, "old");
	assert_int_equal(sbx_registry_recover(registry_fixture.registry, NULL), 0);
	registry_fixture_start(&registry_fixture);
	assert_int_equal(make_named("a"), 0);
	await_event("expired");
	await_event("removed");
	registry_fixture_teardown(&registry_fixture, "a", true);
	registry_fixture_teardown(&registry_fixture, "old", true);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 0);
}

static void ephemeral_mount_leaves_no_sandbox(void **state)
{
	(void)state;
	registry_fixture.settings.ephemeral = true;
	registry_fixture_start(&registry_fixture);
	assert_int_equal(make_named("a"), 0);
	assert_int_equal(make_named("b"), 0);
	sbx_registry_shutdown(registry_fixture.registry);
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 0);
}

static void sandboxes_outlive_the_mount_but_not_their_jobs(void **state)
{
	char *const argv[] = {"hang", NULL};
	struct sbx_request req = {.argv = (char **)argv};
	struct sbx_jobrec *job;
	struct sbx_box *box;
	bool repeated;

	(void)state;
	registry_fixture_start(&registry_fixture);
	box = registry_fixture_make(&registry_fixture, "a");
	assert_int_equal(sbx_job_start(box->jobs, &req, SBX_JOB_EXEC, NULL, &job, &repeated, NULL),
	                 0);
	sbx_registry_shutdown(registry_fixture.registry);
	assert_true(sbx_job_ended(job));
	assert_int_equal(atomic_load(&registry_fixture.backend.sandboxes), 1);
	assert_int_equal(make_named("b"), -EBUSY);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", true), -EBUSY);
	assert_int_equal(rename_code("a", "b"), -EBUSY);
	sbx_job_unref(job);
	sbx_box_unref(box);
}

static void what_cannot_be_saved_at_the_end_is_in_the_log(void **state)
{
	_cleanup_file_ FILE *log = NULL;
	_cleanup_free_ char *path = NULL;
	char text[4096] = "";
	struct sbx_box *box;

	(void)state;
	registry_fixture_start(&registry_fixture);
	box = registry_fixture_make(&registry_fixture, "a");
	box->sandbox->unsaved = true;
	assert_true(asprintf(&path, "%s/log/%s.jsonl", registry_fixture.dir, box->sandbox->id) > 0);
	faults_refuse(&registry_fixture.backend, BARRIER, ENOSPC);
	sbx_registry_shutdown(registry_fixture.registry);
	log = fopen(path, "re");
	assert_non_null(log);
	assert_true(fread(text, 1, sizeof(text) - 1, log) > 0);
	assert_non_null(strstr(text, "\"event\":\"save_failed\",\"error\":\"saving was refused\""));
	sbx_box_unref(box);
}

struct flush {
	sem_t done;
	int code;
};

static void flushed(int code, void *data)
{
	struct flush *f = data;

	f->code = code;
	sem_post(&f->done);
}

static void flush_begin(struct sbx_box *box, struct flush *f)
{
	sem_init(&f->done, 0, 0);
	f->code = 1;
	assert_true(sbx_box_flush(box, flushed, f));
}

static int flush_end(struct flush *f)
{
	wait_sem(&f->done);
	sem_destroy(&f->done);
	return f->code;
}

static void who_flushes_while_a_box_is_saved_shares_the_next_saving(void **state)
{
	struct flush first, second, third;
	struct sbx_box *box;

	(void)state;
	box = registry_fixture_make(&registry_fixture, "a");
	faults_hold(&registry_fixture.backend, BARRIER_NOW);
	flush_begin(box, &first);
	faults_await(&registry_fixture.backend, BARRIER_NOW);
	flush_begin(box, &second);
	flush_begin(box, &third);
	faults_let_go(&registry_fixture.backend, BARRIER_NOW);
	assert_int_equal(flush_end(&first), 0);
	assert_int_equal(flush_end(&second), 0);
	assert_int_equal(flush_end(&third), 0);
	assert_int_equal(faults_calls(&registry_fixture.backend, BARRIER_NOW), 2);
	sbx_box_unref(box);
}

static void a_flush_waits_for_that_of_no_other_box(void **state)
{
	struct flush held, other;
	struct sbx_box *a, *b;

	(void)state;
	a = registry_fixture_make(&registry_fixture, "a");
	b = registry_fixture_make(&registry_fixture, "b");
	faults_hold(&registry_fixture.backend, BARRIER_NOW);
	flush_begin(a, &held);
	faults_await(&registry_fixture.backend, BARRIER_NOW);
	flush_begin(b, &other);
	assert_int_equal(flush_end(&other), 0);
	assert_int_equal(held.code, 1);
	faults_let_go(&registry_fixture.backend, BARRIER_NOW);
	assert_int_equal(flush_end(&held), 0);
	sbx_box_unref(a);
	sbx_box_unref(b);
}

static void a_flush_that_fails_says_why(void **state)
{
	struct sbx_error err;
	struct flush f;
	struct sbx_box *box;

	(void)state;
	box = registry_fixture_make(&registry_fixture, "a");
	faults_refuse(&registry_fixture.backend, BARRIER_NOW, ENOSPC);
	flush_begin(box, &f);
	assert_int_equal(flush_end(&f), -ENOSPC);
	sbx_error_fetch(registry_fixture.registry, box, &err);
	assert_int_equal(err.code, ENOSPC);
	assert_string_equal(err.text, "saving was refused");
	await_event("save_failed");
	faults_mend(&registry_fixture.backend, BARRIER_NOW);
	sbx_box_unref(box);
}

/* Again and again while it is written to, and while a job runs. */
static void what_is_written_is_saved_by_itself(void **state)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	struct sbx_box *box;

	(void)state;
	box = registry_fixture_make(&registry_fixture, "a");
	box->sandbox->unsaved = true;
	atomic_store(&box->sandbox->busy, true);
	sbx_box_edited(box);
	for (int i = 0; i < 2000 && faults_calls(&registry_fixture.backend, BARRIER_NOW) < 1; i++)
		nanosleep(&pause, NULL);
	assert_true(faults_calls(&registry_fixture.backend, BARRIER_NOW) >= 1);
	sbx_box_unref(box);
}

static void nothing_is_flushed_of_what_is_anchored(void **state)
{
	struct flush f = {0};
	struct sbx_box *box;

	(void)state;
	box = registry_fixture_make(&registry_fixture, "a");
	atomic_store(&box->sandbox->anchored, true);
	assert_false(sbx_box_flush(box, flushed, &f));
	sbx_box_edited(box);
	assert_int_equal(faults_calls(&registry_fixture.backend, BARRIER_NOW), 0);
	sbx_box_unref(box);
}

static void shutdown_gives_up_what_is_being_made(void **state)
{
	struct outcome o;

	(void)state;
	registry_fixture_start(&registry_fixture);
	outcome_init(&o);
	faults_hold(&registry_fixture.backend, CREATE);
	sbx_registry_make(registry_fixture.registry, &(struct sbx_create_request){.name = "a"},
	                  outcome_done, &o);
	faults_await(&registry_fixture.backend, CREATE);
	faults_let_go(&registry_fixture.backend, CREATE);
	sbx_registry_shutdown(registry_fixture.registry);
	/* Whether it was noticed in time, it has been told. */
	assert_true(outcome_wait(&o) <= 0);
	outcome_finish(&o);
}

/* Elsewhere */

static struct sbx_box *make_away(const char *name)
{
	registry_fixture_play_away(&registry_fixture);
	return registry_fixture_make(&registry_fixture, name);
}

struct awaited {
	struct sbx_await await;
	sem_t come;
	int code;
	struct sbx_error err;
};

static void await_over(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct awaited *w = a->data;

	w->code = code;
	w->err = *err;
	sem_post(&w->come);
}

static void await_begin(struct awaited *w, struct sbx_box *box)
{
	*w = (struct awaited){.await = {.want = {.need = SBX_NEED_NAMES, .path = "d", .ino = 7},
	                                .done = await_over,
	                                .data = w}};
	sem_init(&w->come, 0, 0);
	sbx_box_await(box, &w->await);
}

static int await_end(struct awaited *w)
{
	wait_sem(&w->come);
	sem_destroy(&w->come);
	return w->code;
}

static void cancel_await(void *data)
{
	struct awaited *w = data;

	sbx_await_cancel(&w->await);
	sbx_await_cancel(&w->await);
}

static void what_is_wanted_elsewhere_is_told_of(void **state)
{
	struct sbx_box *box = make_away("a");
	struct awaited w, v;

	(void)state;
	await_begin(&w, box);
	played_away_await(&registry_fixture.away, 1);
	assert_string_equal(registry_fixture.away.wants->path, "d");
	played_away_answer(&registry_fixture.away, 0, "");
	assert_int_equal(await_end(&w), 0);
	await_begin(&w, box);
	await_begin(&v, box);
	played_away_await(&registry_fixture.away, 3);
	played_away_answer(&registry_fixture.away, ETIMEDOUT, "the machine is silent");
	assert_int_equal(await_end(&w), ETIMEDOUT);
	assert_string_equal(w.err.text, "the machine is silent");
	assert_int_equal(await_end(&v), ETIMEDOUT);
	sbx_box_unref(box);
}

static void who_gives_up_a_want_is_told_so(void **state)
{
	struct sbx_box *box = make_away("a");
	struct awaited w;

	(void)state;
	await_begin(&w, box);
	played_away_await(&registry_fixture.away, 1);
	sbx_loop_post(registry_fixture.loop, cancel_await, &w);
	assert_int_equal(await_end(&w), EINTR);
	assert_int_equal(registry_fixture.away.given_up, 1);
	/* Before the loop has begun it. */
	w = (struct awaited){.await = {.done = await_over, .data = &w}};
	sem_init(&w.come, 0, 0);
	sbx_loop_post(registry_fixture.loop, cancel_await, &w);
	sbx_box_await(box, &w.await);
	assert_int_equal(await_end(&w), EINTR);
	assert_int_equal(registry_fixture.away.given_up, 1);
	assert_int_equal(registry_fixture.away.asked, 1);
	sbx_box_unref(box);
}

static void a_want_may_have_a_time(void **state)
{
	struct sbx_box *box = make_away("a");
	struct awaited w = {.await = {.want = {.need = SBX_NEED_NAMES, .path = ""},
	                              .done = await_over,
	                              .data = &w,
	                              .most_ms = 20}};

	(void)state;
	sem_init(&w.come, 0, 0);
	sbx_box_await(box, &w.await);
	assert_int_equal(await_end(&w), ETIMEDOUT);
	assert_non_null(strstr(w.err.text, "what the sandbox holds has not come"));
	assert_int_equal(registry_fixture.away.given_up, 1);
	w.await.want.done = NULL;
	w.await.given_up = w.await.late = false;
	w.await.most_ms = 60000;
	sem_init(&w.come, 0, 0);
	sbx_box_await(box, &w.await);
	played_away_await(&registry_fixture.away, 2);
	played_away_answer(&registry_fixture.away, 0, "");
	assert_int_equal(await_end(&w), 0);
	sbx_box_unref(box);
}

static void the_end_of_a_sandbox_ends_its_wants(void **state)
{
	struct sbx_box *a = make_away("a"), *b = make_away("b");
	struct awaited w, v, other;

	(void)state;
	await_begin(&w, a);
	await_begin(&v, a);
	await_begin(&other, b);
	played_away_await(&registry_fixture.away, 3);
	assert_int_equal(registry_fixture_teardown(&registry_fixture, "a", false), 0);
	assert_int_equal(await_end(&w), ESTALE);
	assert_string_equal(w.err.text, "the sandbox is gone");
	assert_int_equal(await_end(&v), ESTALE);
	await_begin(&w, a);
	assert_int_equal(await_end(&w), ESTALE);
	assert_int_equal(registry_fixture.away.asked, 3);
	played_away_answer(&registry_fixture.away, 0, "");
	assert_int_equal(await_end(&other), 0);
	sbx_box_unref(a);
	sbx_box_unref(b);
}

static void the_end_of_the_mount_ends_all_wants(void **state)
{
	struct sbx_box *box = make_away("a");
	struct awaited w;

	(void)state;
	await_begin(&w, box);
	played_away_await(&registry_fixture.away, 1);
	sbx_box_unref(box);
	registry_fixture_stop(&registry_fixture);
	assert_int_equal(await_end(&w), ESTALE);
	registry_fixture_start(&registry_fixture);
	assert_int_equal(sbx_pool_create(2, &registry_fixture.pool), 0);
}

/* A work that takes as long as the test says. */
struct held_work {
	struct sbx_work work;
	sem_t begun, end, done;
};

static int held_run(struct sbx_work *w, struct sbx_error *err)
{
	struct held_work *held = sbx_container_of(w, struct held_work, work);

	(void)err;
	sem_post(&held->begun);
	wait_sem(&held->end);
	return 0;
}

static void held_done(struct sbx_work *w)
{
	sem_post(&sbx_container_of(w, struct held_work, work)->done);
}

static void held_begin(struct held_work *held, struct sbx_box *box)
{
	*held = (struct held_work){.work = {.run = held_run, .done = held_done}};
	sem_init(&held->begun, 0, 0);
	sem_init(&held->end, 0, 0);
	sem_init(&held->done, 0, 0);
	sbx_box_work(box, &held->work);
	wait_sem(&held->begun);
}

static void held_end(struct held_work *held)
{
	sem_post(&held->end);
	wait_sem(&held->done);
	assert_int_equal(held->work.code, 0);
	sem_destroy(&held->begun);
	sem_destroy(&held->end);
	sem_destroy(&held->done);
}

/* Who renames keeps everybody from the top of the mount. */
static void rename_waits_for_no_machine(void **state)
{
	struct sbx_box *box = make_away("a");
	struct held_work held;

	(void)state;
	held_begin(&held, box);
	assert_int_equal(rename_code("a", "b"), -EBUSY);
	assert_error(EBUSY, "another operation of a is under way");
	assert_absent("b");
	assert_int_equal(make_named("b"), 0);
	held_end(&held);
	assert_int_equal(rename_code("a", "c"), 0);
	sbx_box_unref(box);
}

static void what_a_backend_alters_is_heard(void **state)
{
	struct sbx_box *box = registry_fixture_make(&registry_fixture, "a");

	(void)state;
	sbx_sandbox_altered(box->sandbox);
	sbx_sandbox_replaced(box->sandbox, 3, 4);
	sbx_sandbox_told(box->sandbox, "expiring", "in ten minutes");
	assert_int_equal(atomic_load(&registry_fixture.altered), 1);
	assert_int_equal(atomic_load(&registry_fixture.replaced), 1);
	await_event("expiring");
	sbx_box_unref(box);
}

static void expect_state(struct sbx_box *box, const char *state)
{
	_cleanup_free_ char *list = sbx_registry_list_text(registry_fixture.registry);
	_cleanup_free_ char *info = sbx_box_info_json(box), *line = NULL;
	struct json_object *obj = json_tokener_parse(info);

	assert_string_equal(member(obj, "state"), state);
	json_object_put(obj);
	assert_true(asprintf(&line, "\na                    %s ", state) > 0);
	assert_non_null(strstr(list, line));
}

static void a_backend_elsewhere_has_a_word_for_the_state(void **state)
{
	struct sbx_box *box = make_away("a");

	(void)state;
	expect_state(box, "ready");
	registry_fixture.away.state = "creating";
	expect_state(box, "creating");
	registry_fixture.away.state = "failed";
	expect_state(box, "failed");
	sbx_box_unref(box);
}

#define CASE(fn)    cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
#define STOPPED(fn) cmocka_unit_test_setup_teardown(fn, set_up_stopped, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(made_sandbox_is_there_and_ready),
	        CASE(bad_names_are_einval),
	        CASE(who_flushes_while_a_box_is_saved_shares_the_next_saving),
	        CASE(a_flush_waits_for_that_of_no_other_box),
	        CASE(a_flush_that_fails_says_why),
	        CASE(what_is_written_is_saved_by_itself),
	        CASE(nothing_is_flushed_of_what_is_anchored),
	        CASE(what_the_backend_lacks_is_eopnotsupp),
	        CASE(existing_name_is_eexist),
	        CASE(name_being_made_is_hidden_and_taken),
	        CASE(failed_make_leaves_nothing_but_the_sentence),
	        CASE(make_without_a_place_for_its_log_leaves_nothing),
	        CASE(cancelled_make_is_eintr),
	        CASE(teardown_frees_the_name_before_everything_is_removed),
	        CASE(name_is_free_again_at_once),
	        CASE(teardown_of_what_is_not_there),
	        CASE(two_teardowns_at_once_both_succeed),
	        CASE(failed_removal_is_told_and_tried_again),
	        CASE(failed_removal_is_tried_again_at_the_end),
	        CASE(what_cannot_be_removed_holds_no_end_up),
	        CASE(who_waits_in_rmdir_and_the_end_are_in_a_hurry),
	        CASE(who_was_told_of_a_failed_removal_can_discard),
	        CASE(refused_retirement_leaves_the_sandbox_ready),
	        CASE(teardown_kills_jobs_and_leaves_the_durable_log),
	        CASE(events_of_a_torn_down_sandbox_end),
	        CASE(rename_moves_the_name),
	        CASE(rename_is_refused_with_the_right_errno),
	        CASE(rename_and_teardown_at_once_leave_nothing),
	        CASE(walk_is_in_order_of_names),
	        CASE(texts_describe_the_sandboxes),
	        CASE(what_is_wanted_elsewhere_is_told_of),
	        CASE(who_gives_up_a_want_is_told_so),
	        CASE(a_want_may_have_a_time),
	        CASE(the_end_of_a_sandbox_ends_its_wants),
	        CASE(the_end_of_the_mount_ends_all_wants),
	        CASE(rename_waits_for_no_machine),
	        CASE(what_a_backend_alters_is_heard),
	        CASE(a_backend_elsewhere_has_a_word_for_the_state),
	        STOPPED(recovery_takes_up_what_is_found),
	        STOPPED(recovery_sweeps_what_belongs_to_nobody),
	        STOPPED(recovery_refuses_two_of_one_name),
	        STOPPED(lifetime_ends_a_sandbox),
	        STOPPED(ephemeral_mount_leaves_no_sandbox),
	        STOPPED(sandboxes_outlive_the_mount_but_not_their_jobs),
	        STOPPED(what_cannot_be_saved_at_the_end_is_in_the_log),
	        STOPPED(shutdown_gives_up_what_is_being_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
