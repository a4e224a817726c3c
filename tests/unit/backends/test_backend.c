#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/spawner.h"

static void expect_name(const char *name, int r)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_name_check(name, &err), r);
	assert_int_equal(err.code, -r);
	assert_int_equal(err.text[0] != '\0', r != 0);
}

static void good_names_are_accepted(void **state)
{
	char longest[64];

	(void)state;
	memset(longest, 'a', 63);
	longest[63] = '\0';
	expect_name("a", 0);
	expect_name("0", 0);
	expect_name("Fix-1_b.c", 0);
	expect_name("ctl2", 0);
	expect_name("a..b", 0);
	expect_name(longest, 0);
}

static void bad_names_are_refused(void **state)
{
	static const char *const names[] = {"",   ".",   "..",     "-x",    "_x",       ".git",
	                                    "a/", "a b", "a\n",    "a\x7f", "\xc3\xa9", "a\xff",
	                                    "*",  "ctl", "README", "a:b",   "a@b",      "SKILL.md"};
	char too_long[65];

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++)
		expect_name(names[i], -EINVAL);
	memset(too_long, 'a', 64);
	too_long[64] = '\0';
	expect_name(too_long, -EINVAL);
}

static void expect_open(const char *backend, int r, const char *words)
{
	struct sbx_settings settings = {.backend = (char *)(uintptr_t)backend};
	struct sbx_host host = {.settings = &settings};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_backend *b = NULL;

	assert_int_equal(sbx_backend_open(&host, &b, &err), r);
	assert_non_null(strstr(err.text, words));
	assert_null(b);
}

static void unknown_backends_are_refused(void **state)
{
	(void)state;
	expect_open("nonsense", -EINVAL, "nonsense");
	expect_open("", -EINVAL, "unknown backend");
}

static void daytona_needs_a_key(void **state)
{
	(void)state;
	expect_open("daytona", -EACCES,
	            "Daytona API key required (set DAYTONA_API_KEY or pass opts.daytona.apiKey)");
}

/* Commands of one that is elsewhere need nothing of this host, which may not even be able to
 * isolate. */
static void only_who_runs_commands_here_starts_a_process(void **state)
{
	static const struct {
		const char *name;
		int r;
		bool starts;
	} rows[] = {{"local", 0, true},   {"memory", 0, true},  {"daytona", 0, false},
	            {"vercel", 0, false}, {"dagger", 0, false}, {"nonsense", -EINVAL, false}};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		struct sbx_settings settings = {.backend = (char *)(uintptr_t)rows[i].name,
		                                .isolation = "none"};
		struct sbx_error err = SBX_ERROR_INIT;
		struct sbx_spawner *sp = NULL;

		assert_int_equal(sbx_backend_start_early(&settings, &sp, &err), rows[i].r);
		assert_int_equal(sp != NULL, rows[i].starts);
		if (sp)
			assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
		sbx_spawner_stop(sp);
		assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
		assert_int_equal(errno, ECHILD);
	}
}

static void local_needs_a_state_directory(void **state)
{
	(void)state;
	expect_open("local", -EINVAL, "state directory");
	expect_open(NULL, -EINVAL, "state directory");
}

static int nothing_root(struct sbx_sandbox *sb)
{
	(void)sb;
	return 7;
}

static void absent_members_have_an_answer(void **state)
{
	static const struct sbx_sandbox_impl impl = {.root = nothing_root};
	struct sbx_sandbox sb = {.impl = &impl};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_sandbox_root(&sb), 7);
	assert_int_equal(sbx_sandbox_rename(&sb, "x", &err), -EOPNOTSUPP);
	assert_int_equal(sbx_sandbox_rename(&sb, "ctl", &err), -EINVAL);
	assert_int_equal(sbx_sandbox_exec(&sb, NULL, NULL, &err), -EOPNOTSUPP);
	assert_int_equal(sbx_sandbox_barrier(&sb, true, &err), 0);
	sbx_sandbox_info(&sb, NULL);
	sbx_sandbox_policy(&sb, NULL);
	sbx_sandbox_close(NULL);
	sbx_backend_destroy(NULL);
}

/* --- handing over: each table whole or absent ----------------------------------------------- */

/* A backend that hands over the one sandbox it is given. */
struct giver {
	struct sbx_backend base;
	struct sbx_sandbox *sb;
};

static int give(struct sbx_backend *b, const struct sbx_create *req, struct sbx_sandbox **ret,
                struct sbx_error *err)
{
	(void)req;
	(void)err;
	*ret = ((struct giver *)b)->sb;
	return 0;
}

static int give_back(struct sbx_backend *b, const struct sbx_recover *r, struct sbx_error *err)
{
	(void)err;
	r->found(((struct giver *)b)->sb, r->data);
	return 0;
}

static void take(struct sbx_sandbox *sb, void *data)
{
	*(struct sbx_sandbox **)data = sb;
}

/* All that a sandbox can have. */
struct tables {
	struct sbx_sandbox_impl impl;
	struct sbx_command_impl commands;
	struct sbx_storage_impl storage;
	struct sbx_git_impl git;
	struct sbx_history_impl history;
	struct sbx_remote_impl remote;
	struct sbx_away_impl away;
};

static void nothing(void)
{
}

/* Puts a function into each of the LEN / sizeof(a pointer) members of TABLE. */
static void fill(void *table, size_t len)
{
	void (*const fn)(void) = nothing;

	for (size_t at = 0; at < len; at += sizeof(fn))
		memcpy((char *)table + at, &fn, sizeof(fn));
}

static void fill_all(struct tables *t)
{
	fill(t, sizeof(*t));
	t->impl.commands = &t->commands;
	t->impl.storage = &t->storage;
	t->impl.git = &t->git;
	t->impl.history = &t->history;
	t->impl.remote = &t->remote;
	t->impl.away = &t->away;
}

static void hand_over(const struct tables *t, bool recovered)
{
	static pthread_rwlock_t turn = PTHREAD_RWLOCK_INITIALIZER;
	struct sbx_sandbox sb = {.impl = &t->impl,
	                         .name = (char *)"a",
	                         .id = (char *)"a-1",
	                         .workdir = (char *)"/",
	                         .turn = t->impl.away ? &turn : NULL};
	const struct sbx_backend_impl impl = {.recover = give_back, .create = give};
	struct giver b = {.base.impl = &impl, .sb = &sb};
	struct sbx_sandbox *ret = NULL;

	if (recovered)
		sbx_backend_recover(&b.base, &(struct sbx_recover){.found = take, .data = &ret},
		                    NULL);
	else
		sbx_backend_create(&b.base, &(struct sbx_create){.name = "a"}, &ret, NULL);
	assert_ptr_equal(ret, &sb);
}

static void expect_abort(const struct tables *t, bool recovered)
{
	int status, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(null, STDERR_FILENO);
		setrlimit(RLIMIT_CORE, &(struct rlimit){0});
		signal(SIGABRT, SIG_DFL);
		hand_over(t, recovered);
		_exit(0);
	}
	close(null);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void whole_tables_and_absent_ones_are_taken(void **state)
{
	struct tables t;

	(void)state;
	fill_all(&t);
	hand_over(&t, false);
	hand_over(&t, true);
	t.commands.stale = NULL;
	t.commands.sync = NULL;
	t.commands.hurry = NULL;
	t.impl.info = t.impl.policy = NULL;
	t.impl.rename = NULL;
	hand_over(&t, false);
	t.impl.commands = NULL;
	t.impl.storage = NULL;
	t.impl.git = NULL;
	t.impl.history = NULL;
	t.impl.remote = NULL;
	t.impl.away = NULL;
	hand_over(&t, false);
}

static void a_table_with_a_gap_is_refused(void **state)
{
#ifdef NDEBUG
	(void)state;
	skip();
#else
#define ALL(table)                                                                                 \
	{                                                                                          \
		offsetof(struct tables, table), sizeof(((struct tables *)NULL)->table)             \
	}
#define ONE(member)                                                                                \
	{                                                                                          \
		offsetof(struct tables, member), sizeof(void (*)(void))                            \
	}
	static const struct {
		size_t at, len;
	} mandatory[] = {
	        ONE(impl.root),     ONE(impl.retire),     ONE(impl.remove),
	        ONE(impl.close),    ONE(commands.exec),   ONE(commands.stale),
	        ONE(commands.sync), ONE(commands.signal), ALL(storage),
	        ALL(git),           ALL(history),         ALL(remote),
	        ALL(away),
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(mandatory); i++)
		for (size_t at = 0; at < mandatory[i].len; at += sizeof(void (*)(void))) {
			struct tables t;

			fill_all(&t);
			memset((char *)&t + mandatory[i].at + at, 0, sizeof(void (*)(void)));
			expect_abort(&t, false);
			expect_abort(&t, true);
		}
#endif
}

static void who_wants_no_socket_leaves_none_open(void **state)
{
	struct sbx_sandbox sb = {0};
	const struct sbx_sandbox_events silent = {0};
	int fd = dup(STDERR_FILENO);

	(void)state;
	sbx_sandbox_listening(&sb, fd);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	sb.events = &silent;
	assert_int_equal(dup2(STDERR_FILENO, fd), fd);
	sbx_sandbox_listening(&sb, fd);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(good_names_are_accepted),
	        cmocka_unit_test(bad_names_are_refused),
	        cmocka_unit_test(unknown_backends_are_refused),
	        cmocka_unit_test(daytona_needs_a_key),
	        cmocka_unit_test(only_who_runs_commands_here_starts_a_process),
	        cmocka_unit_test(local_needs_a_state_directory),
	        cmocka_unit_test(absent_members_have_an_answer),
	        cmocka_unit_test(whole_tables_and_absent_ones_are_taken),
	        cmocka_unit_test(a_table_with_a_gap_is_refused),
	        cmocka_unit_test(who_wants_no_socket_leaves_none_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
