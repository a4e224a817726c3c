#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/trace.h"
#include "tests/lib/fake_backend.h"
#include "tests/lib/tmp.h"

static struct fake_backend fake;
static struct sbx_backend *traced;
static char dir[256];
static atomic_bool cancelled;

static int set_up(void **state)
{
	(void)state;
	assert_non_null(tmp_make(dir, sizeof(dir), "sandboxfs-test"));
	fake_backend_init(&fake, NULL, dir);
	assert_int_equal(sbx_trace_wrap(&fake.base, &traced), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_backend_destroy(traced);
	fake_backend_finish(&fake);
	assert_int_equal(rmdir(dir), 0);
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
	fake.history = true;
	sb = make("a", NULL);
	assert_int_equal(
	        sbx_history_snapshot(sb, &(struct sbx_snapshot_wish){.message = "m"}, id, NULL), 0);
	assert_string_equal(id, "abcd0001");
	assert_string_equal(fake.told, "m|-|0");
	assert_int_equal(sbx_history_tree(sb, id, &object, NULL), 0);
	assert_int_equal(sbx_history_entry(sb, object.id, "none", &object), -ENOENT);
	assert_int_equal(sbx_history_restore(sb, id, NULL, NULL), 0);
	assert_int_equal(atomic_load(&fake.restores), 1);
	drop(sb);
}

static void what_is_absent_stays_absent(void **state)
{
	struct sbx_sandbox *sb = make("a", NULL);

	(void)state;
	assert_null(sb->impl->history);
	drop(sb);
	fake.history = true;
	sb = make("a", NULL);
	assert_non_null(sb->impl->history);
	assert_null(sb->impl->remote);
	assert_int_equal(sbx_remote_push(sb, &(struct sbx_push_wish){0}, NULL), -EOPNOTSUPP);
	drop(sb);
}

static void backend_knows_what_is_forked(void **state)
{
	struct sbx_sandbox *a, *b;

	(void)state;
	fake.history = true;
	a = make("a", NULL);
	b = make("b", a);
	assert_string_equal(fake.made_from, "a|-|-|-");
	drop(b);
	drop(a);
}

static int count(const struct sbx_trash *t, void *data)
{
	assert_string_equal(t->sandbox, "x");
	++*(int *)data;
	return 0;
}

static void trash_shows_through(void **state)
{
	static const struct sbx_trash one = {"x-1", "x", NULL, 1};
	static const struct sbx_trash *const all[] = {&one, NULL};
	int n = 0;

	(void)state;
	fake.trashes = all;
	assert_int_equal(sbx_backend_trash(traced, count, &n, NULL), 0);
	assert_int_equal(n, 1);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(history_shows_through),
	        CASE(what_is_absent_stays_absent),
	        CASE(backend_knows_what_is_forked),
	        CASE(trash_shows_through),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
