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
#include "sandboxfs/loop.h"
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

struct heard {
	char words[256];
};

static void hear(void *data, const char *word)
{
	struct heard *h = data;
	const size_t n = strlen(h->words), room = sizeof(h->words) - n;

	assert_true(snprintf(h->words + n, room, "%s ", word) < (int)room);
}

static void on_replaced(struct sbx_sandbox *sb, int old, int new, void *data)
{
	assert_int_equal(old + 1, new);
	assert_non_null(sb->impl->away);
	hear(data, "replaced");
}

static void on_altered(struct sbx_sandbox *sb, void *data)
{
	(void)sb;
	hear(data, "altered");
}

static void on_told(struct sbx_sandbox *sb, const char *event, const char *text, void *data)
{
	(void)sb;
	hear(data, event);
	hear(data, text);
}

static const struct sbx_sandbox_events heard_events = {
        .replaced = on_replaced, .altered = on_altered, .told = on_told};

static void done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	(void)err;
	*(int *)w->data = code;
}

static void what_is_elsewhere_shows_through(void **state)
{
	struct played_away away;
	struct sbx_loop *loop;
	struct heard heard = {""};
	struct sbx_sandbox *sb;
	int code = -1;
	struct sbx_want w = {.path = "p", .done = done, .data = &code};

	(void)state;
	assert_int_equal(sbx_loop_create(&loop), 0);
	played_away_init(&away, loop);
	faults.away = &away;
	sb = make("a", NULL);
	sb->events = &heard_events;
	sb->events_data = &heard;
	assert_true(sbx_is_away(sb));
	assert_false(sbx_away_here(sb, 1, SBX_NEED_NAMES, 0, 0));
	away.here = true;
	assert_true(sbx_away_here(sb, 1, SBX_NEED_NAMES, 0, 0));
	sb->impl->away->want(sb, &w);
	sb->impl->away->unwant(sb, &w);
	assert_int_equal(away.asked + away.given_up, 2);
	sbx_loop_stop(loop);
	sbx_loop_run(loop);
	assert_int_equal(code, EINTR);
	w.need = SBX_NEED_SENT;
	sb->impl->away->flush(sb, &w);
	assert_int_equal(away.flushed, 1);
	played_away_answer(&away, 0, "");
	sbx_loop_stop(loop);
	sbx_loop_run(loop);
	assert_int_equal(code, 0);
	assert_int_equal(sb->impl->away->admit(sb, NULL, NULL), 0);
	sb->impl->away->changed(sb, &(struct sbx_change){.kind = SBX_CHANGE_GONE, .path = "x"});
	assert_int_equal(sb->impl->away->admit(sb, NULL, NULL), 0);
	sb->impl->away->dropped(sb, NULL);
	assert_string_equal(away.log, "3 x;");
	sbx_sandbox_replaced(faults.made, 3, 4);
	sbx_sandbox_altered(faults.made);
	sbx_sandbox_told(faults.made, "expiring", "soon");
	assert_string_equal(heard.words, "replaced altered expiring soon ");
	drop(sb);
	played_away_finish(&away);
	sbx_loop_destroy(loop);
}

static void whether_files_may_be_elsewhere_shows_through(void **state)
{
	struct sbx_backend *b = NULL;

	(void)state;
	assert_false(traced->impl->away);
	faults.impl.away = true;
	assert_int_equal(sbx_trace_wrap(&faults.base, &b), 0);
	assert_true(b->impl->away);
	faults.impl.away = false;
	free(b);
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
	        CASE(what_is_elsewhere_shows_through),
	        CASE(whether_files_may_be_elsewhere_shows_through),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
