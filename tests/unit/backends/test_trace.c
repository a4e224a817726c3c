#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/trace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/tree.h"
#include "tests/lib/faults.h"
#include "tests/lib/spawner_stub.h"
#include "tests/lib/tmp.h"

static struct sbx_settings settings = {.mountpoint = (char *)"/view", .state_dir = (char[256]){0}};
static struct sbx_spawner spawner;
static const struct sbx_host host = {.settings = &settings, .spawner = &spawner};
static struct faults faults;
static struct sbx_backend *traced;
static atomic_bool cancelled;

static struct sbx_backend *open_backend(const char *name)
{
	struct sbx_backend *b = NULL;

	settings.backend = (char *)name;
	assert_int_equal(sbx_backend_open(&host, &b, NULL), 0);
	assert_int_equal(sbx_backend_recover(b, &(struct sbx_recover){0}, NULL), 0);
	return b;
}

static int set_up(void **state)
{
	(void)state;
	assert_non_null(tmp_make(settings.state_dir, 256, "sandboxfs-test"));
	faults_wrap(&faults, open_backend("local"));
	assert_int_equal(sbx_trace_wrap(&faults.base, &traced), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_backend_destroy(traced);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, settings.state_dir, NULL), 0);
	return 0;
}

static struct sbx_sandbox *make(const char *name, struct sbx_sandbox *from)
{
	const struct sbx_create req = {
	        .name = name,
	        .origin = {.kind = from ? SBX_ORIGIN_SANDBOX : SBX_ORIGIN_SOURCE, .sandbox = from},
	        .cancelled = &cancelled};
	struct sbx_sandbox *sb = NULL;

	assert_int_equal(sbx_backend_create(traced, &req, &sb, NULL), 0);
	return sb;
}

static void drop(struct sbx_sandbox *sb)
{
	assert_int_equal(sbx_sandbox_remove(sb, NULL), 0);
	sbx_sandbox_close(sb);
}

static void history_shows_through(void **state)
{
	struct sbx_sandbox *sb;
	struct sbx_object object;
	char id[SBX_REV_MAX];

	(void)state;
	sb = make("a", NULL);
	assert_int_equal(
	        sbx_history_snapshot(sb, &(struct sbx_snapshot_options){.message = "m"}, id, NULL),
	        0);
	assert_string_equal(id, "abcd0001");
	assert_string_equal(faults_asked(&faults, SNAPSHOT), "m|-|0");
	assert_int_equal(sbx_history_tree(sb, id, &object, NULL), 0);
	assert_int_equal(sbx_history_entry(sb, object.id, "none", &object), -ENOENT);
	assert_int_equal(sbx_history_restore(sb, id, NULL, NULL), 0);
	assert_int_equal(faults_calls(&faults, RESTORE), 1);
	drop(sb);
}

static void expect_only_commands(bool only)
{
	struct sbx_sandbox *sb = make("a", NULL);

	assert_non_null(sb->impl->commands);
	assert_int_equal(!sb->impl->storage, only);
	assert_int_equal(!sb->impl->git, only);
	assert_int_equal(!sb->impl->history, only);
	assert_int_equal(!sb->impl->remote, only);
	if (only)
		assert_int_equal(sbx_remote_push(sb, &(struct sbx_push_options){0}, NULL),
		                 -EOPNOTSUPP);
	drop(sb);
}

static void what_is_absent_stays_absent(void **state)
{
	struct sbx_backend *before = traced;

	(void)state;
	assert_int_equal(sbx_trace_wrap(open_backend("memory"), &traced), 0);
	expect_only_commands(true);
	sbx_backend_destroy(traced);
	assert_int_equal(sbx_trace_wrap(faults.inner, &traced), 0);
	expect_only_commands(false);
	free(traced);
	traced = before;
}

static void backend_knows_what_is_forked(void **state)
{
	struct sbx_sandbox *a, *b;

	(void)state;
	a = make("a", NULL);
	b = make("b", a);
	assert_string_equal(faults_asked(&faults, CREATE), "a|-|-|-");
	drop(b);
	drop(a);
}

static int count(const struct sbx_trash *t, void *data)
{
	assert_string_equal(t->sandbox, "x");
	++*(int *)data;
	return 0;
}

static int one_of_the_trash(struct sbx_backend *b, int (*fn)(const struct sbx_trash *t, void *data),
                            void *data, struct sbx_error *err)
{
	(void)b;
	(void)err;
	return fn(&(struct sbx_trash){"x-1", "x", NULL, 1}, data);
}

static void trash_shows_through(void **state)
{
	int n = 0;

	(void)state;
	faults.impl.trash = one_of_the_trash;
	assert_int_equal(sbx_backend_trash(traced, count, &n, NULL), 0);
	assert_int_equal(n, 1);
}

static void a_barrier_knows_whether_jobs_run(void **state)
{
	struct sbx_sandbox *sb = make("a", NULL);

	(void)state;
	atomic_store(&sb->busy, true);
	assert_int_equal(sbx_sandbox_barrier(sb, true, NULL), 0);
	assert_string_equal(faults_asked(&faults, BARRIER), "busy");
	atomic_store(&sb->busy, false);
	assert_int_equal(sbx_sandbox_barrier(sb, true, NULL), 0);
	assert_string_equal(faults_asked(&faults, BARRIER), "idle");
	drop(sb);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(history_shows_through),
	        CASE(what_is_absent_stays_absent),
	        CASE(backend_knows_what_is_forked),
	        CASE(trash_shows_through),
	        CASE(a_barrier_knows_whether_jobs_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
