#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "tests/lib/dirs.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

#define DEADLINE 60000

static struct sbx_loop *loop;
static pthread_t loop_thread;
static struct sbx_provider *provider;
static struct sbx_error err;

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static int set_up(void **state)
{
	(void)state;
	scratch_make();
	assert_int_equal(sbx_loop_create(&loop), 0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
	assert_int_equal(dirs_create(scratch_path("base"), loop, &provider, &err), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	provider->impl->destroy(provider);
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	sbx_loop_destroy(loop);
	scratch_remove();
	unsetenv("SBX_DIRS_CAN");
	unsetenv("SBX_DIRS_SHELL");
	unsetenv("SBX_DIRS_PATH");
	return 0;
}

/* Another provider of the same base, as the environment now says. */
static void open_again(void)
{
	provider->impl->destroy(provider);
	assert_int_equal(dirs_create(scratch_path("base"), loop, &provider, &err), 0);
}

static void set_faults(const char *text)
{
	scratch_write(scratch_path("base/faults.new"), text);
	assert_int_equal(rename(scratch_path("base/faults.new"), scratch_path("base/faults")), 0);
}

/* How many lines of the requests have TEXT. */
static int requests(const char *text)
{
	char *log, *save, *line;
	int n = 0;

	if (sbx_file_read(AT_FDCWD, scratch_path("base/requests"), 1 << 20, &log) < 0)
		return 0;
	for (line = strtok_r(log, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		n += strstr(line, text) != NULL;
	free(log);
	return n;
}

static int try_make(const char *name, const struct sbx_machine_request *more,
                    struct sbx_machine **ret)
{
	struct sbx_machine_request req = more ? *more : (struct sbx_machine_request){0};

	req.name = name;
	req.label = "ours";
	err = SBX_ERROR_INIT;
	return provider->impl->make(provider, &req, ret, NULL, &err);
}

static struct sbx_machine *make(const char *name)
{
	struct sbx_machine *m = NULL;

	if (try_make(name, NULL, &m))
		fail_msg("make %s: %s", name, err.text);
	return m;
}

static void unmake(const char *name)
{
	assert_int_equal(provider->impl->unmake(provider, name, NULL, NULL, &err), 0);
}

static void drop(struct sbx_machine *m)
{
	unmake(m->handle);
	provider->impl->release(m);
}

/* ---- runs and puts ---- */

struct running {
	struct sbx_machine_run run;
	struct sbx_machine_put put;
	sem_t ended;
	int code;
	char *out;
	size_t len;
};

static void on_run(struct sbx_machine_run *run, int code, char *out, size_t len,
                   const struct sbx_error *e)
{
	struct running *r = run->data;

	assert_int_equal(e->code, -code);
	assert_true(code == 0 || *e->text);
	r->code = code;
	r->out = out;
	r->len = len;
	sem_post(&r->ended);
}

static void on_put(struct sbx_machine_put *put, int code, const struct sbx_error *e)
{
	struct running *r = put->data;

	assert_int_equal(e->code, -code);
	r->code = code;
	sem_post(&r->ended);
}

static void begin(struct sbx_machine *m, struct running *r, const char *script, uint64_t deadline)
{
	*r = (struct running){0};
	sem_init(&r->ended, 0, 0);
	r->run = (struct sbx_machine_run){.op = "test",
	                                  .script = script,
	                                  .script_len = strlen(script),
	                                  .deadline_ms = deadline,
	                                  .answer_max = 1000000,
	                                  .done = on_run,
	                                  .data = r};
	m->provider->impl->run(m, &r->run);
}

static int await_end(struct running *r)
{
	while (sem_wait(&r->ended) < 0)
		;
	sem_destroy(&r->ended);
	return r->code;
}

/* Runs SCRIPT, which ends by CODE and, unless NULL, with that output. */
static void check(struct sbx_machine *m, const char *script, int code, const char *out)
{
	struct running r;

	begin(m, &r, script, code == -ETIMEDOUT ? 200 : DEADLINE);
	assert_int_equal(await_end(&r), code);
	if (out) {
		assert_int_equal(r.len, strlen(out));
		assert_memory_equal(r.out ? r.out : "", out, r.len);
	}
	free(r.out);
}

static void begin_put(struct sbx_machine *m, struct running *r,
                      const struct sbx_machine_file *files, size_t n)
{
	*r = (struct running){0};
	sem_init(&r->ended, 0, 0);
	r->put = (struct sbx_machine_put){.op = "test",
	                                  .files = files,
	                                  .n = n,
	                                  .deadline_ms = DEADLINE,
	                                  .done = on_put,
	                                  .data = r};
	m->provider->impl->put(m, &r->put);
}

static void check_put(struct sbx_machine *m, const struct sbx_machine_file *files, size_t n,
                      int code)
{
	struct running r;

	begin_put(m, &r, files, n);
	assert_int_equal(await_end(&r), code);
}

static const char *inside(struct sbx_machine *m, const char *path)
{
	return scratch_path("base/machines/%s/%s", m->handle, path);
}

static void await_file(const char *path)
{
	for (int i = 0; !scratch_exists(path); i++) {
		assert_true(i < 6000);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
}

/* Starts a process in the machine that lives until the machine does not; its number. */
static pid_t start_sleeper(struct sbx_machine *m)
{
	char *text;
	pid_t pid;

	check(m,
	      "cd /; setsid env -i /bin/sh -c 'echo $$ >\"$1\".new; mv \"$1\".new \"$1\"; "
	      "exec sleep 98765 3>\"$1\".held' sh \"$HOME/pid\" </dev/null >/dev/null 2>&1 &",
	      0, "");
	/* By which alone it is the machine's; it is opened last. */
	await_file(inside(m, "home/pid.held"));
	assert_int_equal(sbx_file_read(AT_FDCWD, inside(m, "home/pid"), 100, &text), 0);
	pid = atoi(text);
	free(text);
	unlink(inside(m, "home/pid"));
	unlink(inside(m, "home/pid.held"));
	assert_int_equal(kill(pid, 0), 0);
	return pid;
}

static void expect_dead(pid_t pid)
{
	char path[64];
	char *text, state = 'Z';

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	for (int i = 0; i < 6000; i++) {
		if (sbx_file_read(AT_FDCWD, path, 4096, &text) < 0)
			return;
		sscanf(strrchr(text, ')'), ") %c", &state);
		free(text);
		if (state == 'Z')
			return;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	fail_msg("process %d lives", (int)pid);
}

/* ---- machines ---- */

static void make_source(void)
{
	repo_setup();
	repo_init(scratch_path("source"), false);
	scratch_write(scratch_path("source/file"), "first\n");
	repo_commit(scratch_path("source"), "first");
	scratch_write(scratch_path("source/file"), "second\n");
	repo_commit(scratch_path("source"), "second");
}

static void a_machine_has_the_source_at_the_base_on_the_branch(void **state)
{
	struct sbx_machine_request req = {.base = "HEAD~1", .branch = "work/a"};
	struct sbx_machine *m = NULL;

	(void)state;
	make_source();
	req.source = scratch_path("source");
	if (try_make("a", &req, &m))
		fail_msg("%s", err.text);
	scratch_expect(scratch_path("base/machines/a/tree/file"), "first\n");
	assert_string_equal(m->workdir, scratch_path("base/machines/a/tree"));
	check(m, "cd ../tree && git branch --show-current", 0, "work/a\n");
	drop(m);
	req.base = NULL;
	req.branch = "main";
	assert_int_equal(try_make("b", &req, &m), 0);
	check(m, "cd ../tree && cat file && git branch --show-current", 0, "second\nmain\n");
	drop(m);
	repo_teardown();
}

static void what_cannot_be_made_leaves_nothing(void **state)
{
	struct sbx_machine_request req = {.base = "no-such-commit"};
	struct sbx_machine *m = NULL;

	(void)state;
	make_source();
	req.source = scratch_path("source");
	assert_int_equal(try_make("a", &req, &m), -ENOENT);
	assert_non_null(strstr(err.text, "no-such-commit"));
	req = (struct sbx_machine_request){.source = req.source, .branch = "bad..branch"};
	assert_int_equal(try_make("a", &req, &m), -EINVAL);
	assert_null(m);
	assert_int_equal(scratch_count(scratch_path("base/machines")), 0);
	repo_teardown();
}

static void a_plain_directory_is_copied(void **state)
{
	struct sbx_machine_request req = {0};
	struct sbx_machine *m = NULL;

	(void)state;
	scratch_mkdir(scratch_path("plain"));
	scratch_write(scratch_path("plain/.hidden"), "x");
	req.source = scratch_path("plain");
	assert_int_equal(try_make("a", &req, &m), 0);
	scratch_expect(scratch_path("base/machines/a/tree/.hidden"), "x");
	drop(m);
}

static void a_name_is_made_once(void **state)
{
	struct sbx_machine *m = make("a"), *again = NULL;

	(void)state;
	scratch_write(inside(m, "tree/mine"), "");
	assert_int_equal(try_make("a", NULL, &again), -EEXIST);
	assert_non_null(again);
	assert_true(scratch_exists(inside(again, "tree/mine")));
	provider->impl->release(again);
	drop(m);
}

static int count_one(const char *name, const char *handle, int64_t made_ms, void *data)
{
	struct sbx_machine *m;

	assert_int_equal(provider->impl->adopt(provider, handle, &m, &err), 0);
	provider->impl->release(m);
	assert_true(made_ms > 1500000000000 && *name);
	++*(int *)data;
	return 0;
}

static int count(const char *label)
{
	int n = 0;

	assert_int_equal(provider->impl->find(provider, label, count_one, &n, &err), 0);
	return n;
}

static void machines_are_found_by_label(void **state)
{
	struct sbx_machine *a = make("a"), *b = make("b");

	(void)state;
	assert_int_equal(count("ours"), 2);
	assert_int_equal(count("another's"), 0);
	drop(a);
	drop(b);
	assert_int_equal(count("ours"), 0);
}

static enum sbx_machine_state look(struct sbx_machine *m)
{
	struct sbx_machine_look l;

	if (provider->impl->look(m, &l, NULL, &err))
		fail_msg("look: %s", err.text);
	return l.state;
}

static void removing_ends_all_that_runs_and_may_be_repeated(void **state)
{
	struct sbx_machine *m = make("a");
	pid_t pid = start_sleeper(m);

	(void)state;
	assert_int_equal(look(m), SBX_MACHINE_UP);
	assert_int_equal(provider->impl->touch(m, NULL, &err), 0);
	unmake("a");
	expect_dead(pid);
	assert_int_equal(look(m), SBX_MACHINE_GONE);
	assert_int_equal(provider->impl->touch(m, NULL, &err), -ESTALE);
	check(m, "echo", -ESTALE, NULL);
	drop(m);
	assert_int_equal(scratch_count(scratch_path("base")), 2);
}

static void a_name_that_leads_out_is_none(void **state)
{
	struct sbx_machine *m;

	(void)state;
	assert_int_equal(provider->impl->adopt(provider, "../a", &m, &err), -EINVAL);
	assert_int_equal(provider->impl->unmake(provider, "..", NULL, NULL, &err), -EINVAL);
}

/* ---- scripts ---- */

static void a_script_has_its_output_and_a_clean_environment(void **state)
{
	struct sbx_machine *m = make("a");

	(void)state;
	check(m, "printf out; echo err >&2; exit 3", 0, "out");
	check(m, "[ \"$PWD\" = \"$HOME\" ] && [ -z \"$CMOCKA_MESSAGE_OUTPUT\" ] && echo clean", 0,
	      "clean\n");
	scratch_expect(inside(m, "log"), "err\n");
	drop(m);
}

static void what_a_script_detaches_goes_on(void **state)
{
	struct sbx_machine *m = make("a");
	pid_t pid = start_sleeper(m);

	(void)state;
	check(m, "echo", 0, "\n");
	assert_int_equal(kill(pid, 0), 0);
	drop(m);
	expect_dead(pid);
}

static void without_detaching_nothing_outlives_a_script(void **state)
{
	struct sbx_machine *m;
	char *text;

	(void)state;
	setenv("SBX_DIRS_CAN", "parallel", 1);
	open_again();
	assert_int_equal(provider->impl->can, SBX_PROVIDER_PARALLEL);
	m = make("a");
	check(m, "sleep 98765 </dev/null >/dev/null 2>&1 & echo $! >pid", 0, "");
	assert_int_equal(sbx_file_read(AT_FDCWD, inside(m, "home/pid"), 100, &text), 0);
	expect_dead(atoi(text));
	free(text);
	drop(m);
}

static void one_at_a_time_where_it_is_not_parallel(void **state)
{
	struct sbx_machine *m;
	struct running r;

	(void)state;
	setenv("SBX_DIRS_CAN", "detaches", 1);
	open_again();
	m = make("a");
	begin(m, &r, "echo >here; until [ -e go ]; do sleep 0.01; done", DEADLINE);
	await_file(inside(m, "home/here"));
	check(m, "echo", -EBUSY, NULL);
	scratch_write(inside(m, "home/go"), "");
	assert_int_equal(await_end(&r), 0);
	free(r.out);
	drop(m);
}

static void scripts_run_at_once(void **state)
{
	static struct running r[50];
	struct sbx_machine *m = make("a");

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(r); i++)
		begin(m, &r[i], "echo >>here; until [ $(wc -l <here) = 50 ]; do sleep 0.05; done",
		      DEADLINE);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(r); i++) {
		assert_int_equal(await_end(&r[i]), 0);
		free(r[i].out);
	}
	drop(m);
}

static void a_cancelled_script_ends_at_once_but_not_what_it_detached(void **state)
{
	struct sbx_machine *m = make("a");
	struct running r;
	pid_t pid = start_sleeper(m);

	(void)state;
	begin(m, &r, "echo $$ >here.new; mv here.new here; while :; do sleep 0.05; done", DEADLINE);
	await_file(inside(m, "home/here"));
	provider->impl->cancel_run(m, &r.run);
	assert_int_equal(await_end(&r), -EINTR);
	assert_int_equal(kill(pid, 0), 0);
	drop(m);
}

static void cancels_meet_every_moment_of_a_script(void **state)
{
	struct sbx_machine *m = make("a");
	unsigned origin = 1;

	(void)state;
	for (int i = 0; i < 100; i++) {
		const long us = rand_r(&origin) % 6000;
		struct running r;

		begin(m, &r, "read x </dev/tty; sleep 98765", DEADLINE);
		nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
		provider->impl->cancel_run(m, &r.run);
		assert_int_equal(await_end(&r), -EINTR);
	}
	drop(m);
}

static void a_script_has_a_deadline_and_an_answer_a_limit(void **state)
{
	struct sbx_machine *m = make("a");

	(void)state;
	check(m, "sleep 98765", -ETIMEDOUT, NULL);
	check(m, "yes", -EMSGSIZE, NULL);
	drop(m);
}

static void the_shell_is_the_environments(void **state)
{
	static const char *const shells[] = {"dash", "bash --posix", "busybox sh"};
	struct sbx_machine *m;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(shells); i++) {
		setenv("SBX_DIRS_SHELL", shells[i], 1);
		open_again();
		m = make("a");
		check(m,
		      "echo ${BASH_VERSION:+bash} $(tr '\\0' ' ' </proc/$$/cmdline | cut -c 1-4)",
		      0,
		      i == 0   ? "dash\n"
		      : i == 1 ? "bash bash\n"
		               : "busy\n");
		drop(m);
	}
}

/* ---- puts ---- */

static void files_are_put_by_number(void **state)
{
	struct sbx_machine *m = make("a");
	struct sbx_machine_file files[2] = {{.number = 7, .bytes = {"seven", -1, 0, 5}},
	                                    {.number = 12}};
	int fd;

	(void)state;
	scratch_write(scratch_path("from"), "a file of bytes");
	fd = open(scratch_path("from"), O_RDONLY | O_CLOEXEC);
	files[1].bytes = (struct sbx_http_bytes){NULL, fd, 2, 4};
	check_put(m, files, 2, 0);
	scratch_expect(inside(m, "room/in/7"), "seven");
	scratch_expect(inside(m, "room/in/12"), "file");
	check_put(m, files, 1, 0);
	assert_int_equal(requests("a put test 9 -"), 1);
	close(fd);
	drop(m);
}

static void a_cancelled_put_ends(void **state)
{
	struct sbx_machine *m = make("a");
	struct sbx_machine_file file = {.number = 1, .bytes = {"x", -1, 0, 1}};
	struct running r;

	(void)state;
	set_faults("put latency all 60000\n");
	begin_put(m, &r, &file, 1);
	provider->impl->cancel_put(m, &r.put);
	assert_int_equal(await_end(&r), -EINTR);
	set_faults("");
	drop(m);
}

/* ---- faults ---- */

static void each_fault_of_a_run(void **state)
{
	struct sbx_machine *m = make("a");

	(void)state;
	set_faults("run lost 1\nrun cut 1\nrun 429 1\nrun 5xx 1\nrun stall 1\nrun blackhole 1\n");
	check(m, "echo >>done; echo 123", -EREMOTEIO, NULL);
	check(m, "echo >>done; echo 123", 0, "12");
	check(m, "echo >>done; echo 123", -EAGAIN, NULL);
	check(m, "echo >>done; echo 123", -EREMOTEIO, NULL);
	check(m, "echo >>done; echo 123", -ETIMEDOUT, NULL);
	scratch_expect(inside(m, "home/done"), "\n\n\n");
	check(m, "echo >>done; echo 123", -ETIMEDOUT, NULL);
	scratch_expect(inside(m, "home/done"), "\n\n\n");
	check(m, "echo 123", 0, "123\n");
	assert_int_equal(requests("a run test"), 7);
	assert_int_equal(requests("lost"), 1);
	drop(m);
}

static void a_fault_is_chosen_by_verb_op_machine_and_count(void **state)
{
	struct sbx_machine *m = make("a");

	(void)state;
	set_faults("put 5xx\nrun:other 5xx\nrun:test 429 every 3\n");
	for (int i = 1; i <= 6; i++)
		check(m, "echo", i % 3 ? 0 : -EAGAIN, NULL);
	set_faults("* 5xx\n");
	check(m, "echo", -EREMOTEIO, NULL);
	assert_int_equal(provider->impl->touch(m, NULL, &err), -EREMOTEIO);
	set_faults("run:test@b 5xx\n*@a 429 1\n");
	check(m, "echo", -EAGAIN, NULL);
	check(m, "echo", 0, "\n");
	set_faults("run 5xx many\n");
	check(m, "echo", -EINVAL, NULL);
	set_faults("");
	drop(m);
}

static void latency_is_added_up(void **state)
{
	struct sbx_machine *m = make("a");
	uint64_t then = sbx_now_ms();

	(void)state;
	set_faults("* latency all 100\nrun latency 1 200\n");
	check(m, "echo", 0, "\n");
	assert_true(sbx_now_ms() - then >= 300);
	then = sbx_now_ms();
	assert_int_equal(look(m), SBX_MACHINE_UP);
	assert_true(sbx_now_ms() - then >= 100);
	set_faults("");
	drop(m);
}

static void a_machine_that_vanishes_is_gone(void **state)
{
	struct sbx_machine *m = make("a");

	(void)state;
	set_faults("run vanish 1\n");
	check(m, "echo", -ESTALE, NULL);
	check(m, "echo", -ESTALE, NULL);
	assert_int_equal(look(m), SBX_MACHINE_GONE);
	drop(m);
}

static void a_machine_that_slept_wakes_without_its_processes(void **state)
{
	struct sbx_machine *m = make("a");
	pid_t pid = start_sleeper(m);

	(void)state;
	set_faults("look asleep 1\n");
	assert_int_equal(look(m), SBX_MACHINE_ASLEEP);
	expect_dead(pid);
	pid = start_sleeper(m);
	assert_int_equal(look(m), SBX_MACHINE_UP);
	set_faults("run asleep 1 10\n");
	check(m, "echo", 0, "\n");
	expect_dead(pid);
	assert_int_equal(look(m), SBX_MACHINE_UP);
	drop(m);
}

static void a_hostile_answer_is_what_its_program_prints(void **state)
{
	struct sbx_machine *m = make("a");

	(void)state;
	scratch_write(scratch_path("base/hostile"), "read x; echo \"<$x>\"");
	set_faults("run hostile 1 hostile\n");
	check(m, "echo true", 0, "<true>\n");
	check(m, "echo true", 0, "true\n");
	drop(m);
}

static void faults_of_puts(void **state)
{
	struct sbx_machine *m = make("a");
	struct sbx_machine_file files[2] = {{.number = 1, .bytes = {"1", -1, 0, 1}},
	                                    {.number = 2, .bytes = {"2", -1, 0, 1}}};

	(void)state;
	set_faults("put cut 1\nput lost 1\n");
	check_put(m, files, 2, -EREMOTEIO);
	assert_true(scratch_exists(inside(m, "room/in/1")));
	assert_false(scratch_exists(inside(m, "room/in/2")));
	check_put(m, files, 2, -EREMOTEIO);
	assert_true(scratch_exists(inside(m, "room/in/2")));
	drop(m);
}

static void a_machine_whose_making_is_not_answered_is_there(void **state)
{
	struct sbx_machine *m = NULL;

	(void)state;
	set_faults("make lost 2\nfind 5xx 1\nmake 5xx 1\nmake blackhole 1 50\n");
	assert_int_equal(try_make("a", NULL, &m), -EREMOTEIO);
	assert_int_equal(count("ours"), 1);
	/* Then it is looked for by its name. */
	assert_int_equal(try_make("c", NULL, &m), 0);
	drop(m);
	assert_int_equal(try_make("b", NULL, &m), -EREMOTEIO);
	assert_int_equal(try_make("b", NULL, &m), -ETIMEDOUT);
	assert_int_equal(count("ours"), 1);
	assert_int_equal(try_make("a", NULL, &m), -EEXIST);
	drop(m);
}

static void a_cancelled_make_goes_on_there(void **state)
{
	struct sbx_machine_request req = {.name = "a", .label = "ours"};
	struct sbx_machine *m = NULL;
	atomic_bool cancelled = true;

	(void)state;
	assert_int_equal(provider->impl->make(provider, &req, &m, &cancelled, &err), -EINTR);
	assert_null(m);
	assert_int_equal(try_make("a", NULL, &m), -EEXIST);
	check(m, "echo", 0, "\n");
	drop(m);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        CASE(a_machine_has_the_source_at_the_base_on_the_branch),
	        CASE(what_cannot_be_made_leaves_nothing),
	        CASE(a_plain_directory_is_copied),
	        CASE(a_name_is_made_once),
	        CASE(machines_are_found_by_label),
	        CASE(removing_ends_all_that_runs_and_may_be_repeated),
	        CASE(a_name_that_leads_out_is_none),
	        CASE(a_script_has_its_output_and_a_clean_environment),
	        CASE(what_a_script_detaches_goes_on),
	        CASE(without_detaching_nothing_outlives_a_script),
	        CASE(one_at_a_time_where_it_is_not_parallel),
	        CASE(scripts_run_at_once),
	        CASE(a_cancelled_script_ends_at_once_but_not_what_it_detached),
	        CASE(cancels_meet_every_moment_of_a_script),
	        CASE(a_script_has_a_deadline_and_an_answer_a_limit),
	        CASE(the_shell_is_the_environments),
	        CASE(files_are_put_by_number),
	        CASE(a_cancelled_put_ends),
	        CASE(each_fault_of_a_run),
	        CASE(a_fault_is_chosen_by_verb_op_machine_and_count),
	        CASE(latency_is_added_up),
	        CASE(a_machine_that_vanishes_is_gone),
	        CASE(a_machine_that_slept_wakes_without_its_processes),
	        CASE(a_hostile_answer_is_what_its_program_prints),
	        CASE(faults_of_puts),
	        CASE(a_machine_whose_making_is_not_answered_is_there),
	        CASE(a_cancelled_make_goes_on_there),
	};

	return cmocka_run_group_tests_name("dirs", tests, NULL, NULL);
}
