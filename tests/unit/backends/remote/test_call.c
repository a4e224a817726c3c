#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/call.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "tests/lib/scratch.h"
#include "tests/lib/shell_machine.h"

#define DEADLINE 30000

static struct sbx_loop *loop;
static struct sbx_pool *pool;
static pthread_t loop_thread;
static struct shell_machine machine;
static struct remote_link *the_link;
static atomic_int gone, idle;

static void on_gone(void *data)
{
	(void)data;
	atomic_fetch_add(&gone, 1);
}

static void on_idle(void *data)
{
	(void)data;
	atomic_fetch_add(&idle, 1);
}

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static void make_link(uint64_t backoff_ms)
{
	const struct remote_link_config config = {.machine = &machine.machine,
	                                          .loop = loop,
	                                          .pool = pool,
	                                          .backoff_ms = backoff_ms,
	                                          .gone = on_gone,
	                                          .idle = on_idle};

	assert_int_equal(remote_link_create(&config, &the_link), 0);
}

static int set_up(void **state)
{
	(void)state;
	gone = idle = 0;
	assert_int_equal(sbx_loop_create(&loop), 0);
	assert_int_equal(sbx_pool_create_wide(8, false, &pool), 0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
	shell_machine_init(&machine, scratch_make(), loop);
	make_link(1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	shell_machine_finish(&machine);
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	remote_link_destroy(the_link);
	sbx_pool_destroy(pool);
	sbx_loop_destroy(loop);
	scratch_remove();
	return 0;
}

static struct remote_call call_of(const char *body)
{
	struct remote_call call = {.op = "test", .safe = true, .deadline_ms = DEADLINE};

	remote_text_add(&call.body, body);
	return call;
}

/* Performs the call of BODY; the reply is to be released. */
static int perform(const char *body, struct remote_reply *reply, struct sbx_error *err)
{
	struct remote_call call = call_of(body);

	*err = SBX_ERROR_INIT;
	return remote_call_perform(the_link, &call, NULL, reply, err);
}

/* BODY says so. */
static void expect_said(const char *body, const char *said)
{
	struct remote_reply reply;
	struct sbx_error err;
	const int r = perform(body, &reply, &err);

	if (r)
		fail_msg("%d: %s", r, err.text);
	assert_int_equal(reply.n, 1);
	assert_int_equal(reply.frames[0].kind, REMOTE_DATA);
	assert_string_equal(reply.frames[0].bytes, said);
	remote_reply_release(&reply);
}

static void expect_failure(const char *body, int code, const char *text)
{
	struct remote_reply reply;
	struct sbx_error err;

	assert_int_equal(perform(body, &reply, &err), -code);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, text))
		fail_msg("%s", err.text);
	assert_null(reply.frames);
}

/* ---- the runner ---- */

static void expect_path(const char *script, const char *path)
{
	char *line = NULL;

	assert_true(asprintf(&line, "%s\n", path) > 0);
	expect_said(script, line);
	free(line);
}

static void speaks(void)
{
	expect_said("r_say D key 1 2 3 'two words'", "two words");
	expect_said("r_say D key 1 2 3 'two\nlines'", "two\nlines");
	expect_said("r_say D key 1 2 3 ''", "");
	expect_said("printf 'two words' | r_frame D key", "two words");
	expect_said("printf 'a\\nb\\n' | r_pack D key", "a\nb\n");
	expect_path("cd \"$R_TREE\"; pwd | r_frame D", machine.machine.workdir);
	expect_path("cd \"$R_ROOM\"; pwd | r_frame D", machine.machine.room);
}

static void the_runner_speaks_in_any_shell(void **state)
{
	(void)state;
	for (char *const *const *shell = shell_machine_shells; *shell; shell++) {
		machine.shell = *shell;
		speaks();
	}
}

/* A PATH of these programs only, in a list that ends with NULL. */
static char **path_of(const char *const *programs)
{
	static char path[4200], *env[] = {path, NULL};

	scratch_mkdir(scratch_path("bin"));
	for (; *programs; programs++) {
		char command[8192];

		snprintf(command, sizeof(command), "ln -s \"$(command -v %s)\" '%s/'", *programs,
		         scratch_path("bin"));
		assert_int_equal(system(command), 0);
	}
	snprintf(path, sizeof(path), "PATH=%s", scratch_path("bin"));
	return env;
}

static void it_needs_no_base64_and_no_gzip(void **state)
{
	const char *const programs[] = {"od", "tr", "mkdir", "sh", NULL};

	(void)state;
	machine.env = path_of(programs);
	speaks();
	expect_said("command -v base64 || command -v gzip || r_say D key 0 0 0 neither", "neither");
}

static void every_byte_comes_as_it_is(void **state)
{
	struct remote_reply reply;
	struct sbx_error err;

	(void)state;
	assert_int_equal(perform("r_all() {\n"
	                         "\tfor i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7; do\n"
	                         "\t\tfor k in 0 1 2 3 4 5 6 7; do printf \"\\\\$i$j$k\"\n"
	                         "\tdone; done; done\n"
	                         "}\n"
	                         "r_all | r_frame D\nr_all | r_pack D",
	                         &reply, &err),
	                 0);
	assert_int_equal(reply.n, 2);
	for (size_t f = 0; f < 2; f++) {
		assert_int_equal(reply.frames[f].len, 256);
		for (int i = 0; i < 256; i++)
			assert_int_equal((unsigned char)reply.frames[f].bytes[i], i);
	}
	remote_reply_release(&reply);
}

static void a_raw_script_tells_all_of_it(void **state)
{
	struct remote_reply reply;
	struct sbx_error err;

	(void)state;
	assert_int_equal(perform("r_raw key 'pwd; echo \"it'\\''s\" >&2; exit 3'", &reply, &err),
	                 0);
	assert_int_equal(reply.n, 2);
	assert_int_equal(reply.frames[0].kind, REMOTE_DATA);
	assert_string_equal(reply.frames[0].word, "key");
	assert_int_equal(reply.frames[0].a, 3);
	assert_memory_equal(reply.frames[0].bytes, machine.machine.workdir,
	                    strlen(machine.machine.workdir));
	assert_int_equal(reply.frames[1].kind, REMOTE_ERR);
	assert_string_equal(reply.frames[1].bytes, "it's\n");
	remote_reply_release(&reply);
	/* The note of batches alone, which each request sees to. */
	assert_int_equal(scratch_count(scratch_path("ro'om")), 1);
}

static void what_fails_there_fails_the_call(void **state)
{
	(void)state;
	expect_failure("r_say D key 0 0 0 x\nr_fail 13 'no way in'", EACCES, "no way in");
	expect_failure("r_fail 99999 'odd'", EREMOTEIO, "odd");
	expect_failure("r_fail 13 'two\nlines'", EACCES, "two?lines");
	assert_int_equal(machine.runs, 3);
}

static void a_room_that_cannot_be_made_is_told(void **state)
{
	(void)state;
	scratch_write(scratch_path("ro'om"), "in the way");
	expect_failure("r_say D key 0 0 0 x", EREMOTEIO, "cannot be made");
}

/* ---- repeats ---- */

static void a_lost_answer_is_asked_for_again(void **state)
{
	(void)state;
	machine.lose = 2;
	machine.cut = 1;
	expect_said("echo x >>\"$R_TREE/ran\"; r_say D key 0 0 0 x", "x");
	assert_int_equal(machine.runs, 4);
	scratch_expect(scratch_path("the tree/ran"), "x\nx\nx\nx\n");
}

static void what_passes_is_waited_for(void **state)
{
	const int codes[] = {ETIMEDOUT, ECONNREFUSED, ENETUNREACH, EBUSY, EAGAIN, EREMOTEIO};

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		machine.fail = 2;
		machine.fail_code = codes[i];
		expect_said("r_say D key 0 0 0 x", "x");
		assert_int_equal(machine.runs, 3 * (i + 1));
	}
}

static void what_does_not_pass_is_told_at_once(void **state)
{
	(void)state;
	machine.fail = 1;
	machine.fail_code = EKEYREJECTED;
	expect_failure("r_say D key 0 0 0 x", EKEYREJECTED, "the test says so");
	expect_failure("echo rubbish >&3", EPROTO, "cannot be understood");
	assert_int_equal(machine.runs, 2);
}

static void what_is_not_safe_is_sent_once(void **state)
{
	struct remote_call call = call_of("r_say D key 0 0 0 x");
	struct remote_reply reply;

	(void)state;
	call.safe = false;
	machine.lose = 1;
	assert_int_equal(remote_call_perform(the_link, &call, NULL, &reply, NULL), -EREMOTEIO);
	assert_true(call.maybe);
	call = call_of("r_say D key 0 0 0 x");
	call.safe = false;
	machine.fail = 1;
	machine.fail_code = ECONNREFUSED;
	assert_int_equal(remote_call_perform(the_link, &call, NULL, &reply, NULL), -ECONNREFUSED);
	assert_false(call.maybe);
	assert_int_equal(machine.runs, 2);
}

static void repeats_end_with_twice_the_deadline(void **state)
{
	struct remote_call call = call_of("r_say D key 0 0 0 x");
	struct remote_reply reply;

	(void)state;
	call.deadline_ms = 100;
	machine.fail = 1000000;
	machine.fail_code = EBUSY;
	assert_int_equal(remote_call_perform(the_link, &call, NULL, &reply, NULL), -EBUSY);
	assert_in_range(machine.runs, 3, 30);
}

static void a_machine_that_is_gone_is_told_of_once(void **state)
{
	(void)state;
	machine.fail = 2;
	machine.fail_code = ESTALE;
	expect_failure("r_say D key 0 0 0 x", ESTALE, "the test says so");
	expect_failure("r_say D key 0 0 0 x", ESTALE, "the test says so");
	assert_int_equal(gone, 1);
	assert_int_equal(machine.runs, 2);
}

static void expect_unsure(const char *body, int code, bool maybe)
{
	struct remote_call call = call_of(body);
	struct remote_reply reply;
	struct sbx_error err;

	assert_int_equal(remote_call_perform(the_link, &call, NULL, &reply, &err), -code);
	assert_int_equal(call.maybe, maybe);
}

static void a_tree_that_is_gone_is_no_machine_that_is_gone(void **state)
{
	struct remote_call call = call_of("r_say D key 0 0 0 x\nrm -r \"$R_TREE\"\nr_changes '' n");
	struct remote_reply reply;
	struct sbx_error err;

	(void)state;
	call.does = true;
	assert_int_equal(remote_call_perform(the_link, &call, NULL, &reply, &err), 0);
	assert_string_equal(reply.frames[0].bytes, "x");
	remote_reply_release(&reply);
	expect_unsure("r_changes '' n", ESTALE, true);
	assert_int_equal(gone, 0);
}

static void an_answer_says_whether_its_script_has_run(void **state)
{
	(void)state;
	expect_unsure("r_fail 13 'no way in'", EACCES, false);
	expect_unsure("echo rubbish >&3", EPROTO, true);
}

/* ---- sizes ---- */

static void a_large_answer_comes_whole(void **state)
{
	struct remote_reply reply;
	struct sbx_error err;

	(void)state;
	assert_int_equal(
	        perform("head -c 5000000 /dev/zero | tr '\\0' x | r_frame D", &reply, &err), 0);
	assert_int_equal(reply.frames[0].len, 5000000);
	for (size_t i = 0; i < reply.frames[0].len; i++)
		assert_int_equal(reply.frames[0].bytes[i], 'x');
	remote_reply_release(&reply);
}

/* A body of LEN bytes and more that says MARK. */
static char *long_body(size_t len, const char *mark)
{
	struct remote_text t = {0};

	while (t.n < len)
		remote_text_add(&t, ": a line that does nothing but to be long\n");
	remote_text_printf(&t, "r_say D key 0 0 0 %s", mark);
	return t.at;
}

static void a_body_that_is_too_long_is_put(void **state)
{
	char *body = long_body(300000, "long");
	char *small = long_body(SBX_SCRIPT_MAX / 2, "half");

	(void)state;
	expect_said(small, "half");
	assert_int_equal(machine.puts, 0);
	machine.lose = 1;
	machine.fail_puts = 1;
	machine.fail_code = ETIMEDOUT;
	expect_said(body, "long");
	assert_int_equal(machine.puts, 2);
	assert_int_equal(machine.runs, 3);
	assert_in_range(machine.longest, SBX_SCRIPT_MAX / 2, SBX_SCRIPT_MAX);
	assert_int_equal(scratch_count(scratch_path("ro'om/in")), 1);
	expect_said("r_say D key 0 0 0 short", "short");
	assert_int_equal(scratch_count(scratch_path("ro'om/in")), 0);
	free(body);
	free(small);
}

static void files_are_put_before(void **state)
{
	const struct sbx_machine_file files[] = {
	        {.number = 7, .bytes = {.data = "seven", .fd = -1, .size = 5}},
	        {.number = 8, .bytes = {.data = "eight", .fd = -1, .size = 5}}};
	struct remote_call call = call_of("cat \"$R_IN/7\" \"$R_IN/8\" | r_frame D");
	struct remote_reply reply;

	(void)state;
	call.files = files;
	call.files_n = 2;
	assert_int_equal(remote_call_perform(the_link, &call, NULL, &reply, NULL), 0);
	assert_string_equal(reply.frames[0].bytes, "seveneight");
	assert_int_equal(machine.puts, 1);
	remote_reply_release(&reply);
}

/* ---- many ---- */

#define MANY 8

struct asked {
	struct remote_call call;
	atomic_int *left;
	int code;
};

static void note_end(struct remote_call *call, int code, struct remote_reply *reply,
                     const struct sbx_error *err)
{
	struct asked *a = call->data;

	(void)err;
	assert_int_equal(code == 0, reply != NULL);
	a->code = code;
	atomic_fetch_sub(a->left, 1);
}

static void begin_many(struct asked *asked, atomic_int *left, const char *body)
{
	atomic_init(left, MANY);
	for (int i = 0; i < MANY; i++) {
		asked[i] = (struct asked){.call = call_of(body), .left = left, .code = 1};
		asked[i].call.done = note_end;
		asked[i].call.data = &asked[i];
		remote_call_begin(the_link, &asked[i].call);
	}
}

static void await(atomic_int *n, int value)
{
	while (atomic_load(n) != value)
		usleep(1000);
}

/* One that took too long is repeated. */
static void await_runs(int n)
{
	while (atomic_load(&machine.runs) < n)
		usleep(1000);
}

static void run_many(void)
{
	struct asked asked[MANY];
	atomic_int left;

	machine.delay_ms = 50;
	begin_many(asked, &left, "r_say D key 0 0 0 x");
	await(&left, 0);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(asked[i].code, 0);
}

static void calls_run_at_once(void **state)
{
	(void)state;
	run_many();
	assert_true(machine.most_at_once > 1);
}

static void or_one_after_the_other(void **state)
{
	(void)state;
	remote_link_destroy(the_link);
	machine.impl.can &= ~SBX_PROVIDER_PARALLEL;
	make_link(1);
	machine.lose = 2;
	run_many();
	assert_int_equal(machine.most_at_once, 1);
	assert_int_equal(machine.runs, MANY + 2);
}

/* ---- ends ---- */

static void given_up_calls_end(void **state)
{
	struct asked asked[MANY];
	atomic_int left;

	(void)state;
	remote_link_destroy(the_link);
	machine.impl.can &= ~SBX_PROVIDER_PARALLEL;
	make_link(1);
	machine.stall = 1;
	begin_many(asked, &left, "r_say D key 0 0 0 x");
	await_runs(1);
	/* The first runs, the others wait. */
	remote_call_cancel(&asked[3].call);
	await(&left, MANY - 1);
	assert_int_equal(asked[3].code, -EINTR);
	remote_call_cancel(&asked[0].call);
	remote_call_cancel(&asked[0].call);
	await(&left, 0);
	assert_int_equal(asked[0].code, -EINTR);
	assert_true(asked[0].call.maybe);
	for (int i = 1; i < MANY; i++)
		assert_int_equal(asked[i].code, i == 3 ? -EINTR : 0);
}

static void a_call_between_repeats_can_be_given_up(void **state)
{
	struct asked asked[MANY];
	atomic_int left;

	(void)state;
	remote_link_destroy(the_link);
	make_link(2000);
	machine.fail = 1000000;
	machine.fail_code = ENETUNREACH;
	begin_many(asked, &left, "r_say D key 0 0 0 x");
	/* None is repeated for two seconds. */
	while (machine.runs < MANY || machine.threads)
		usleep(1000);
	for (int i = 0; i < MANY; i++)
		remote_call_cancel(&asked[i].call);
	await(&left, 0);
	assert_int_equal(machine.runs, MANY);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(asked[i].code, -EINTR);
		assert_false(asked[i].call.maybe);
	}
}

static void *set_soon(void *data)
{
	await_runs(1);
	atomic_store((atomic_bool *)data, true);
	return NULL;
}

static void a_thread_that_waits_can_give_up(void **state)
{
	struct remote_call call = call_of("r_say D key 0 0 0 x");
	struct remote_reply reply;
	atomic_bool cancelled = false;
	pthread_t thread;

	(void)state;
	machine.stall = 1;
	assert_int_equal(pthread_create(&thread, NULL, set_soon, &cancelled), 0);
	assert_int_equal(remote_call_perform(the_link, &call, &cancelled, &reply, NULL), -EINTR);
	pthread_join(thread, NULL);
}

static void fail_link(void *data)
{
	const int code = *(int *)data;

	remote_link_fail(the_link, code, "it is off");
}

static void a_link_that_fails_ends_all(void **state)
{
	struct asked asked[MANY];
	int code = EHOSTDOWN, none = 0;
	atomic_int left;

	(void)state;
	machine.stall = MANY;
	begin_many(asked, &left, "r_say D key 0 0 0 x");
	await_runs(MANY);
	assert_int_equal(idle, 0);
	sbx_loop_post(loop, fail_link, &code);
	await(&left, 0);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(asked[i].code, -EHOSTDOWN);
	await(&idle, 1);
	expect_failure("r_say D key 0 0 0 x", EHOSTDOWN, "it is off");
	assert_int_equal(machine.runs, MANY);
	assert_int_equal(idle, 1);
	sbx_loop_post(loop, fail_link, &none);
	expect_said("r_say D key 0 0 0 x", "x");
}

static void a_link_without_calls_is_idle_at_once(void **state)
{
	int code = EHOSTDOWN;

	(void)state;
	sbx_loop_post(loop, fail_link, &code);
	await(&idle, 1);
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        test(the_runner_speaks_in_any_shell),
	        test(it_needs_no_base64_and_no_gzip),
	        test(every_byte_comes_as_it_is),
	        test(a_raw_script_tells_all_of_it),
	        test(what_fails_there_fails_the_call),
	        test(a_room_that_cannot_be_made_is_told),
	        test(a_lost_answer_is_asked_for_again),
	        test(what_passes_is_waited_for),
	        test(what_does_not_pass_is_told_at_once),
	        test(what_is_not_safe_is_sent_once),
	        test(repeats_end_with_twice_the_deadline),
	        test(a_machine_that_is_gone_is_told_of_once),
	        test(a_tree_that_is_gone_is_no_machine_that_is_gone),
	        test(an_answer_says_whether_its_script_has_run),
	        test(a_large_answer_comes_whole),
	        test(a_body_that_is_too_long_is_put),
	        test(files_are_put_before),
	        test(calls_run_at_once),
	        test(or_one_after_the_other),
	        test(given_up_calls_end),
	        test(a_call_between_repeats_can_be_given_up),
	        test(a_thread_that_waits_can_give_up),
	        test(a_link_that_fails_ends_all),
	        test(a_link_without_calls_is_idle_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
