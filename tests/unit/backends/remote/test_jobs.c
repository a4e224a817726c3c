#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#undef NDEBUG /* what the loop calls cannot fail a test but by this */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/jobs.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "tests/lib/scratch.h"
#include "tests/lib/shell_machine.h"

#define MANIFEST "what changed"

static struct sbx_loop *loop;
static struct sbx_pool *pool;
static pthread_t loop_thread;
static struct shell_machine machine;
static char job_prefix[40];
static char *const *the_shell; /* that the machine has */
static struct remote_link *the_link;
static struct remote_jobs *jobs;
static struct sbx_sandbox sandbox;
static atomic_int idle, altered;

/* ---- a tree, of which answers say that something changed ---- */

static atomic_int tree_busy, sync_busy, asked, taken;
static uint64_t seen_last;
static atomic_bool lists; /* by what the machine has for that */
static atomic_bool slow;  /* the next answer is, when it comes to the tree */

void remote_tree_busy(struct remote_tree *t, bool busy)
{
	assert(t == (void *)&tree_busy);
	atomic_store(&tree_busy, busy);
}

void remote_tree_ask(struct remote_tree *t, struct remote_text *body)
{
	(void)t;
	assert(sync_busy || strstr(body->at, "r_kill"));
	atomic_fetch_add(&asked, 1);
	remote_text_add(body, slow ? "sleep 1\n" : "");
	slow = false;
	remote_text_add(body, lists ? "r_changes '' now\n" : "r_say M - 0 0 0 '" MANIFEST "'\n");
}

int remote_tree_take(struct remote_tree *t, const struct remote_reply *reply, uint64_t seen,
                     bool asks, bool *changed, struct sbx_error *err)
{
	size_t at = 0;
	const struct remote_frame *f = remote_reply_next(reply, &at, REMOTE_MANIFEST, NULL);

	(void)t;
	(void)err;
	assert(asks);
	assert(lists || (f && strcmp(f->bytes, MANIFEST) == 0));
	seen_last = seen;
	*changed = true;
	usleep(20000);
	atomic_fetch_add(&taken, 1);
	return 0;
}

static atomic_int distrusts;

void remote_tree_distrust(struct remote_tree *t)
{
	(void)t;
	atomic_fetch_add(&distrusts, 1);
}

static atomic_int lags, flushes; /* answers that say so */

bool remote_tree_lags(struct remote_tree *t)
{
	(void)t;
	return lags && atomic_fetch_sub(&lags, 1) > 0;
}

static uint64_t seen_by_polls(void *data)
{
	(void)data;
	return 5;
}

/* ---- what the host has changed ---- */

static struct remote_ride *waiting; /* not ready yet, where HELD */
static atomic_bool held;
static int ride_code;
static const char *ride_lines;
static atomic_int boarded, landed, landed_well, sync_busy;

void remote_sync_busy(struct remote_sync *s, bool busy)
{
	atomic_store(&sync_busy, busy);
	(void)s;
	atomic_store(&sync_busy, busy);
}

static void ready(void *data)
{
	struct remote_ride *ride = data;
	struct sbx_error err = SBX_ERROR_INIT;

	if (ride_code)
		sbx_fail(&err, -ride_code, "it cannot be sent");
	else if (ride_lines)
		remote_text_add(&ride->body, ride_lines);
	ride->ready(ride, ride_code, &err);
}

void remote_sync_board(struct remote_sync *s, struct remote_ride *ride)
{
	(void)s;
	atomic_fetch_add(&boarded, 1);
	if (held)
		waiting = ride;
	else
		sbx_loop_post(loop, ready, ride);
}

void remote_sync_landed(struct remote_ride *ride, int code, const struct remote_reply *reply)
{
	assert((code == 0) == (reply != NULL));
	atomic_fetch_add(&landed, 1);
	atomic_fetch_add(&landed_well, code == 0);
	remote_text_release(&ride->body);
}

uint64_t remote_ride_seen(const struct remote_ride *ride)
{
	(void)ride;
	return 7;
}

bool remote_sync_leave(struct remote_ride *ride)
{
	const struct sbx_error err = {.code = EINTR, .text = "it was left"};

	if (waiting != ride)
		return false;
	waiting = NULL;
	ride->ready(ride, -EINTR, &err);
	return true;
}

static struct sbx_want *flushing; /* not done yet, where HELD_FLUSH */
static atomic_bool held_flush;

static void flush_done(void *data)
{
	struct sbx_want *w = data;
	struct sbx_error err = SBX_ERROR_INIT;

	w->done(w, 0, &err);
}

void remote_sync_flush(struct remote_sync *s, struct sbx_want *w)
{
	(void)s;
	if (held_flush)
		flushing = w;
	else
		sbx_loop_post(loop, flush_done, w);
	atomic_fetch_add(&flushes, 1);
}

void remote_sync_unwant(struct remote_sync *s, struct sbx_want *w)
{
	const struct sbx_error err = {.code = EINTR, .text = "given up"};

	(void)s;
	if (flushing != w)
		return;
	flushing = NULL;
	w->done(w, EINTR, &err);
}

/* ---- jobs ---- */

struct ran {
	struct sbx_job job;
	atomic_int started, ended, outputs;
	int taken; /* manifests taken over by its end */
	struct sbx_exit exit;
	char *out[2];
	size_t len[2];
	uint64_t discarded[2];
	uint64_t end_ns, first_ns;
};

/* What is written while it runs is read under it. */
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether it has written TEXT by now, to its standard output. */
static bool has_written(struct ran *r, const char *text)
{
	bool has;

	pthread_mutex_lock(&out_lock);
	has = r->out[0] && strstr(r->out[0], text);
	pthread_mutex_unlock(&out_lock);
	return has;
}

static uint64_t first_ns_of(struct ran *r)
{
	uint64_t ns;

	pthread_mutex_lock(&out_lock);
	ns = r->first_ns;
	pthread_mutex_unlock(&out_lock);
	return ns;
}

static struct ran *ran_of(struct sbx_job *job)
{
	return sbx_container_of(job, struct ran, job);
}

static void on_started(struct sbx_job *job)
{
	struct ran *r = ran_of(job);

	assert((atomic_fetch_add(&r->started, 1)) == (0));
	assert((r->outputs) == (0));
	assert((r->ended) == (0));
}

static void on_output(struct sbx_job *job, int stream, const void *buf, size_t len)
{
	struct ran *r = ran_of(job);
	const int i = stream - 1;

	assert((r->started) == (1));
	assert((r->ended) == (0));
	assert(!r->discarded[i]);
	assert(len > 0);
	pthread_mutex_lock(&out_lock);
	if (!r->first_ns)
		r->first_ns = sbx_now_ns();
	r->out[i] = realloc(r->out[i], r->len[i] + len + 1);
	memcpy(r->out[i] + r->len[i], buf, len);
	r->len[i] += len;
	r->out[i][r->len[i]] = '\0';
	pthread_mutex_unlock(&out_lock);
	atomic_fetch_add(&r->outputs, 1);
}

static void on_discarded(struct sbx_job *job, int stream, uint64_t n)
{
	struct ran *r = ran_of(job);

	assert(r->started == 1);
	assert(r->ended == 0);
	assert(n > 0);
	assert(!r->discarded[stream - 1]);
	r->discarded[stream - 1] = n;
}

static void on_ended(struct sbx_job *job, const struct sbx_exit *exit)
{
	struct ran *r = ran_of(job);

	assert(!job->part);
	r->exit = *exit;
	r->taken = taken;
	r->end_ns = sbx_now_ns();
	assert((atomic_fetch_add(&r->ended, 1)) == (0));
}

static const struct sbx_job_events events = {
        .started = on_started, .output = on_output, .ended = on_ended, .discarded = on_discarded};

static void on_altered(struct sbx_sandbox *sb, void *data)
{
	(void)sb;
	(void)data;
	atomic_fetch_add(&altered, 1);
}

static atomic_int told;
static char told_text[200];

static void on_told(struct sbx_sandbox *sb, const char *event, const char *text, void *data)
{
	(void)sb;
	(void)data;
	assert(strcmp(event, "recovery") == 0);
	snprintf(told_text, sizeof(told_text), "%s", text);
	atomic_fetch_add(&told, 1);
}

static const struct sbx_sandbox_events sandbox_events = {.altered = on_altered, .told = on_told};

static void await(atomic_int *n, int value)
{
	for (int i = 0; atomic_load(n) < value; i++) {
		if (i > 300000)
			fail_msg("nothing came for five minutes");
		usleep(1000);
	}
}

static int exec(struct ran *r, const struct sbx_exec *spec, struct sbx_error *err)
{
	*r = (struct ran){.job = {.events = &events, .sandbox = &sandbox}};
	return remote_jobs_exec(jobs, spec, &r->job, err);
}

struct to_send {
	struct ran *r;
	int sig;
};

static void send_posted(void *data)
{
	struct to_send *s = data;

	remote_jobs_signal(&s->r->job, s->sig);
	free(s);
}

static void send(struct ran *r, int sig)
{
	struct to_send *s = malloc(sizeof(*s));

	assert_non_null(s);
	*s = (struct to_send){.r = r, .sig = sig};
	sbx_loop_post(loop, send_posted, s);
}

static struct sbx_exec spec_of(char *const *argv)
{
	return (struct sbx_exec){.argv = argv, .cwd = "", .stdin_fd = -1};
}

static void begin_spec(struct ran *r, const struct sbx_exec *spec)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (exec(r, spec, &err))
		fail_msg("%s", err.text);
}

static char sh[] = "sh", dash_c[] = "-c";

static void begin(struct ran *r, const char *script)
{
	char *const argv[] = {sh, dash_c, (char *)(uintptr_t)script, NULL};
	const struct sbx_exec spec = spec_of(argv);

	begin_spec(r, &spec);
}

static void forget(struct ran *r)
{
	free(r->out[0]);
	free(r->out[1]);
	*r = (struct ran){0};
}

static void expect_end(struct ran *r, enum sbx_end end, int code)
{
	await(&r->ended, 1);
	if (r->exit.end != end || r->exit.code != code)
		fail_msg("ended by %d with %d instead of %d with %d: %s", r->exit.end, r->exit.code,
		         end, code, r->exit.error.text);
}

/* It has written OUT and ERR, and exits by CODE. */
static void expect_ran(struct ran *r, const char *out, const char *err, int code)
{
	expect_end(r, SBX_END_EXITED, code);
	assert_string_equal(r->out[0] ? r->out[0] : "", out);
	assert_string_equal(r->out[1] ? r->out[1] : "", err);
	assert_int_equal(r->started, 1);
	assert_true(r->taken > 0);
	forget(r);
}

static void expect_script(const char *script, const char *out, const char *err, int code)
{
	struct ran r;

	begin(&r, script);
	expect_ran(&r, out, err, code);
}

static void expect_refused(const struct sbx_exec *spec, int code, const char *text)
{
	struct ran r;

	begin_spec(&r, spec);
	expect_end(&r, SBX_END_FAILED, code);
	assert_int_equal(r.exit.error.code, code);
	if (!strstr(r.exit.error.text, text))
		fail_msg("%s", r.exit.error.text);
	assert_int_equal(r.started, 0);
	forget(&r);
}

/* ---- a machine for each case ---- */

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

static void make_jobs(unsigned lease_s)
{
	static int n;
	const struct remote_jobs_config config = {.sandbox = &sandbox,
	                                          .loop = loop,
	                                          .pool = pool,
	                                          .tree = (struct remote_tree *)&tree_busy,
	                                          .prefix = job_prefix,
	                                          .lease_s = lease_s,
	                                          .seen = seen_by_polls,
	                                          .idle = on_idle};

	/* Who watches over one of an earlier case ends it by its name. */
	snprintf(job_prefix, sizeof(job_prefix), "d%dx%d", getpid(), ++n);
	assert_int_equal(remote_jobs_create(&config, &jobs), 0);
}

static void connect_posted(void *data)
{
	(void)data;
	remote_jobs_connect(jobs, the_link, machine.impl.can);
}

static void make_link(void)
{
	const struct remote_link_config config = {
	        .machine = &machine.machine, .loop = loop, .pool = pool, .backoff_ms = 1};

	assert_int_equal(remote_link_create(&config, &the_link), 0);
}

static void connect_jobs(void)
{
	make_link();
	sbx_loop_post(loop, connect_posted, NULL);
}

static int set_up_apart(void **state)
{
	(void)state;
	idle = altered = tree_busy = sync_busy = asked = taken = boarded = landed = landed_well = 0;
	lags = flushes = distrusts = told = 0;
	held = held_flush = lists = slow = false;
	flushing = NULL;
	ride_code = 0;
	ride_lines = NULL;
	waiting = NULL;
	sandbox = (struct sbx_sandbox){.events = &sandbox_events};
	assert_int_equal(sbx_loop_create(&loop), 0);
	assert_int_equal(sbx_pool_create_wide(8, false, &pool), 0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
	shell_machine_init(&machine, scratch_make(), loop);
	machine.shell = the_shell;
	return 0;
}

/* At a machine of a provider that CAN. */
static int set_up_at(void **state, unsigned can)
{
	set_up_apart(state);
	machine.impl.can = can;
	make_jobs(0);
	connect_jobs();
	return 0;
}

static int set_up(void **state)
{
	return set_up_at(state, SBX_PROVIDER_DETACHES | SBX_PROVIDER_PARALLEL);
}

static void fail_jobs(void *data)
{
	(void)data;
	remote_jobs_fail(jobs, EHOSTDOWN, "the machine is off");
}

static int tear_down(void **state)
{
	(void)state;
	sbx_loop_post(loop, fail_jobs, NULL);
	await(&idle, 1);
	assert_int_equal(landed + (waiting ? 1 : 0), boarded - (ride_code ? 1 : 0));
	shell_machine_finish(&machine);
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	remote_jobs_destroy(jobs);
	remote_link_destroy(the_link);
	the_link = NULL;
	sbx_pool_destroy(pool);
	sbx_loop_destroy(loop);
	assert_int_equal(tree_busy, 0);
	assert_int_equal(sync_busy, 0);
	scratch_remove();
	return 0;
}

static bool is_dead(int pid)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	/* It may wait for whoever is to be told of its end. */
	assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
	fclose(f);
	return state == 'Z' || state == 'X';
}

static void wait_until_dead(int pid)
{
	for (int i = 0; !is_dead(pid); i++) {
		if (i > 20000)
			fail_msg("%d lives", pid);
		usleep(1000);
	}
}

static void ask(const char *line, struct remote_reply *reply)
{
	struct remote_call call = {.op = "test", .safe = true, .deadline_ms = 10000};

	remote_text_add(&call.body, line);
	assert_int_equal(remote_call_perform(the_link, &call, NULL, reply, NULL), 0);
}

/* ---- what a command writes, and how it ends ---- */

static void a_short_command_is_one_request(void **state)
{
	(void)state;
	const int before = machine.runs;

	expect_script("echo out; echo err >&2; exit 3", "out\n", "err\n", 3);
	assert_int_equal(machine.runs, before + 1);
	assert_int_equal(machine.puts, 0);
	assert_int_equal(machine.held, 0);
	assert_true(seen_last == 7);
	assert_true(altered > 0);
	print_message("# a script of %zu bytes\n", atomic_load(&machine.longest));
}

static void every_byte_is_exact(void **state)
{
	static const char script[] =
	        "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i + 1)); "
	        "done;"
	        "printf 'no newline' >&2; printf x >/dev/stdout; printf y >/dev/stderr";

	(void)state;
	struct ran r;

	begin(&r, script);
	expect_end(&r, SBX_END_EXITED, 0);
	assert_int_equal(r.len[0], 257);
	for (int i = 0; i < 256; i++)
		assert_int_equal((unsigned char)r.out[0][i], i);
	assert_int_equal(r.out[0][256], 'x');
	assert_string_equal(r.out[1], "no newliney");
	forget(&r);
}

#define LARGE ((size_t)5 * 1024 * 1024)

/* Each line has its number, and noise that does not compress. */
static void much_output_comes_by_polls(void **state)
{
	char command[256];

	(void)state;
	snprintf(command, sizeof(command), "head -c %zu /dev/urandom >'%s'", LARGE,
	         scratch_path("the tree/noise"));
	assert_int_equal(system(command), 0);
	const int fd = open(scratch_path("the tree/noise"), O_RDONLY | O_CLOEXEC);
	char *noise = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE, fd, 0);
	struct ran r;

	begin(&r, "cat noise; cat noise >&2");
	expect_end(&r, SBX_END_EXITED, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(r.len[i], LARGE);
		assert_memory_equal(r.out[i], noise, LARGE);
	}
	forget(&r);
	munmap(noise, LARGE);
	close(fd);
}

#define KEPT 100000

/* SCRIPT writes OUT and ERR bytes; all but about KEPT of each is counted instead. */
static void expect_cut(const char *script, uint64_t out, uint64_t err, int code)
{
	char *const argv[] = {sh, dash_c, (char *)(uintptr_t)script, NULL};
	struct sbx_exec spec = spec_of(argv);
	const uint64_t n[2] = {out, err};
	struct ran r;

	spec.limits.output_bytes = KEPT;
	begin_spec(&r, &spec);
	expect_end(&r, SBX_END_EXITED, code);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(r.len[i] + r.discarded[i], n[i]);
		assert_in_range(r.len[i], n[i] < KEPT ? n[i] : KEPT, KEPT + 512);
	}
	forget(&r);
}

static void what_is_kept_of_the_output_is_limited_there(void **state)
{
	(void)state;
	expect_cut("head -c 4000000 /dev/zero; head -c 100001 /dev/zero >&2; exit 3", 4000000,
	           100001, 3);
	expect_cut("head -c 100600 /dev/zero; head -c 100000 /dev/zero >&2", 100600, 100000, 0);
}

/* Who writes in pieces is not slower than its pieces are. */
static void many_small_pieces_are_read_as_they_come(void **state)
{
	(void)state;
	expect_cut("dd if=/dev/zero bs=5 count=200000 2>/dev/null; "
	           "dd if=/dev/zero bs=1 count=99999 >&2 2>/dev/null; exit 4",
	           1000000, 99999, 4);
}

/* At once, and by polls. */
static void what_was_done_is_told_though_the_tree_is_gone(void **state)
{
	(void)state;
	lists = true;
	expect_script("mv \"$PWD\" \"$PWD.away\"; echo out; exit 3", "out\n", "", 3);
	assert_int_equal(rename(scratch_path("the tree.away"), scratch_path("the tree")), 0);
	expect_script("mv \"$PWD\" \"$PWD.away\"; echo out; sleep 1.2; exit 3", "out\n", "", 3);
	assert_int_equal(landed_well, 2);
}

static void output_comes_while_it_runs(void **state)
{
	(void)state;
	struct ran r;

	begin(&r, "echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over; rm go");
	await(&r.outputs, 1);
	pthread_mutex_lock(&out_lock);
	assert_string_equal(r.out[0], "begun\n");
	pthread_mutex_unlock(&out_lock);
	assert_int_equal(r.ended, 0);
	scratch_write(scratch_path("the tree/go"), "");
	expect_ran(&r, "begun\nover\n", "", 0);
	assert_true(seen_last == 5);
	assert_int_equal(machine.held, machine.runs - 1);
}

/* One that says nothing is polled for when another comes. */
static void a_new_job_is_not_behind_the_poll_for_another(void **state)
{
	(void)state;
	struct ran silent, other;

	begin(&silent, "while [ ! -e stop ]; do sleep 0.1; done; rm stop");
	await(&silent.started, 1);
	usleep(300000);
	begin(&other, "sleep 1.5; echo x; exec sleep 600");
	await(&other.outputs, 1);
	assert_true(first_ns_of(&other) < sbx_now_ns() + 1);
	send(&other, SIGKILL);
	expect_end(&other, SBX_END_SIGNALED, SIGKILL);
	scratch_write(scratch_path("the tree/stop"), "");
	expect_ran(&silent, "", "", 0);
	forget(&other);
}

/* The poll that a start has ended answers before the start does: the next one is short. */
static void a_poll_that_begins_beside_a_start_holds_nothing_up(void **state)
{
	(void)state;
	const uint64_t begun_ns = sbx_now_ns();
	struct ran silent, other;

	begin(&silent, "while [ ! -e stop ]; do sleep 0.1; done; rm stop");
	await(&silent.started, 1);
	usleep(300000);
	slow = true;
	begin(&other, "sleep 1.5; echo x; exec sleep 600");
	await(&other.outputs, 1);
	assert_true(first_ns_of(&other) - begun_ns < UINT64_C(15000000000));
	send(&other, SIGKILL);
	expect_end(&other, SBX_END_SIGNALED, SIGKILL);
	scratch_write(scratch_path("the tree/stop"), "");
	expect_ran(&silent, "", "", 0);
	forget(&other);
}

static void exits_are_told(void **state)
{
	const int codes[] = {0, 1, 2, 100, 126, 127, 128, 129, 137, 143, 254, 255};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(codes); i++) {
		char script[32];

		snprintf(script, sizeof(script), "exit %d", codes[i]);
		expect_script(script, "", "", codes[i]);
	}
	expect_script("kill -9 $$", "", "", 128 + SIGKILL);
}

static void every_exit_is_exact(void **state)
{
	struct ran r[256];

	(void)state;
	for (int i = 0; i < 256; i++) {
		char script[32];

		snprintf(script, sizeof(script), "exit %d", i);
		begin(&r[i], script);
		if (i % 32 == 31)
			await(&r[i].ended, 1);
	}
	for (int i = 0; i < 256; i++)
		expect_ran(&r[i], "", "", i);
}

static void processor_time_is_told(void **state)
{
	(void)state;
	struct ran r;

	begin(&r, "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done");
	expect_end(&r, SBX_END_EXITED, 0);
	assert_in_range(r.exit.user_us + r.exit.sys_us, 20000, 20000000);
	forget(&r);
}

/* ---- where it runs ---- */

static void it_runs_where_it_is_to(void **state)
{
	static char pwd[] = "pwd", option[] = "-P";
	char *const argv[] = {pwd, option, NULL};
	char root[4300], below[4400];

	(void)state;
	snprintf(root, sizeof(root), "%s\n", machine.machine.workdir);
	snprintf(below, sizeof(below), "%s/it's a 'dir'\n", machine.machine.workdir);
	scratch_mkdir(scratch_path("the tree/it's a 'dir'"));
	scratch_mkdir(scratch_path("outside"));
	scratch_write(scratch_path("the tree/file"), "");
	assert_int_equal(symlink("it's a 'dir'", scratch_path("the tree/in")), 0);
	assert_int_equal(symlink("../outside", scratch_path("the tree/out")), 0);
	struct sbx_exec spec = spec_of(argv);
	struct ran r;

	begin_spec(&r, &spec);
	expect_ran(&r, root, "", 0);
	spec.cwd = "it's a 'dir'";
	begin_spec(&r, &spec);
	expect_ran(&r, below, "", 0);
	spec.cwd = "in";
	begin_spec(&r, &spec);
	expect_ran(&r, below, "", 0);
	spec.cwd = "not/there";
	expect_refused(&spec, ENOENT, "working directory not/there does not exist");
	spec.cwd = "file";
	expect_refused(&spec, ENOTDIR, "file is not a directory");
	spec.cwd = "out";
	expect_refused(&spec, EACCES, "path confinement violation: cwd out leads out");
	spec.cwd = "..";
	expect_refused(&spec, EACCES, "path confinement violation: cwd ..");
	spec.cwd = "../the tree";
	begin_spec(&r, &spec);
	expect_ran(&r, root, "", 0);
}

static void it_has_its_environment_and_the_machine_s(void **state)
{
	static char odd[] = "an.odd-name=1", lines[] = "LINES=a\n'b'\t$c\\", empty[] = "EMPTY=";
	char *const env[] = {odd, lines, empty, NULL};
	static char path[] = "PATH=/usr/bin:/bin", own[] = "MACHINE=its own",
	            locale[] = "LC_ALL=C.UTF-8";
	static char *const host[] = {path, own, locale, NULL};
	static char script[] =
	        "printf '%s|' \"$LINES\" \"${EMPTY-unset}\" \"$MACHINE\" \"$LC_ALL\" "
	        "\"${HOME:+home}\" \"$TMPDIR\" \"$(umask)\"; "
	        "tr '\\0' '\\n' </proc/$$/environ | grep odd; "
	        "[ \"$PWD\" = \"$(pwd)\" ]";
	char *const argv[] = {sh, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);
	const mode_t mask = umask(027);

	(void)state;
	spec.env = env;
	machine.env = host;
	struct ran r;

	begin_spec(&r, &spec);
	expect_ran(&r, "a\n'b'\t$c\\||its own|C.UTF-8|home|/tmp|0027|an.odd-name=1\n", "", 0);
	umask(mask);
}

/* A command has those ignored that this program was started with; above these the C library that
 * spawns has two for itself. */
static void signals_are_as_they_were(void **state)
{
	uint64_t ignored = 0;

	(void)state;
	for (int number = 1; number < 32; number++) {
		struct sigaction was;

		assert_int_equal(sigaction(number, NULL, &was), 0);
		if (was.sa_handler == SIG_IGN && number != SIGPIPE)
			ignored |= UINT64_C(1) << (number - 1);
	}
	struct ran r;

	begin(&r, "sed -n 's/^SigIgn://p' /proc/self/status");
	expect_end(&r, SBX_END_EXITED, 0);
	assert_int_equal(strtoull(r.out[0], NULL, 16) & INT32_MAX, ignored);
	forget(&r);
	expect_script("ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ", "", 0);
}

/* ---- what runs ---- */

static void write_program(const char *name, const char *text, mode_t mode)
{
	scratch_write(scratch_path("the tree/%s", name), text);
	assert_int_equal(chmod(scratch_path("the tree/%s", name), mode), 0);
}

static void a_program_is_found_as_by_execve(void **state)
{
	static char name[512], first[] = "a", path[4200], relative[] = "PATH=bin";
	char *const argv[] = {name, first, NULL}, *const env[] = {path, NULL},
	            *const relative_env[] = {relative, NULL};

	(void)state;
	scratch_mkdir(scratch_path("the tree/bin"));
	snprintf(path, sizeof(path), "PATH=/nowhere:%s", scratch_path("the tree/bin"));
	write_program("bin/tool", "#!/bin/sh\necho tool $# $1 ${0##*/}\n", 0755);
	write_program("bin/k=v", "#!/bin/sh\necho k=v $# $1 ${0##*/}\n", 0755);
	write_program("bin/-x", "#!/bin/sh\necho -x $# $1 ${0##*/}\n", 0755);
	write_program("bin/plain", "#!/bin/sh\n", 0644);
	write_program("bin/lost", "#!/not/there -x\n", 0755);
	const char *const good[][2] = {{"bin/tool", NULL}, {"./bin/k=v", NULL}, {"bin/-x", NULL},
	                               {"tool", path},     {"k=v", path},       {"-x", path},
	                               {"tool", relative}};
	struct sbx_exec spec = spec_of(argv);

	for (size_t i = 0; i < SBX_ARRAY_SIZE(good); i++) {
		const char *slash = strrchr(good[i][0], '/');
		char out[1100];
		struct ran r;

		spec.env = !good[i][1] ? NULL : good[i][1] == path ? env : relative_env;
		snprintf(name, sizeof(name), "%s", good[i][0]);
		snprintf(out, sizeof(out), "%s 1 a %s\n", slash ? slash + 1 : name,
		         slash ? slash + 1 : name);
		begin_spec(&r, &spec);
		expect_ran(&r, out, "", 0);
	}
	spec.env = env;
	snprintf(name, sizeof(name), "no such");
	expect_refused(&spec, ENOENT, "no such: program not found");
	snprintf(name, sizeof(name), "bin/no such");
	expect_refused(&spec, ENOENT, "bin/no such: program not found");
	name[0] = '\0';
	expect_refused(&spec, ENOENT, "program not found");
	snprintf(name, sizeof(name), "plain");
	expect_refused(&spec, EACCES, "plain: not executable");
	snprintf(name, sizeof(name), "./bin");
	expect_refused(&spec, EACCES, "./bin: not executable");
	snprintf(name, sizeof(name), "lost");
	expect_refused(&spec, ENOENT, "lost: the interpreter it names was not found");
	snprintf(name, sizeof(name), "cd");
	expect_refused(&spec, ENOENT, "cd: program not found");
}

static void a_program_may_have_another_name(void **state)
{
	static char other[] = "another name",
	            script[] = "tr '\\0' '\\n' </proc/$$/cmdline | head -n 1";
	char *const argv[] = {other, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);

	(void)state;
	spec.program = "/bin/bash";
	struct ran r;

	begin_spec(&r, &spec);
	expect_end(&r, SBX_END_EXITED, 0);
	if (strcmp(r.out[0], "another name\n") != 0)
		assert_string_equal(r.out[0], "/bin/bash\n");
	forget(&r);
}

static void many_and_long_words_are_put(void **state)
{
	enum { WORDS = 40, LEN = 20000 };
	static char *argv[WORDS + 4], script[] = "printf '%s' \"$*\" | wc -c; echo $#";
	struct sbx_exec spec = spec_of(argv);

	(void)state;
	argv[0] = sh;
	argv[1] = dash_c;
	argv[2] = script;
	for (int i = 0; i < WORDS; i++) {
		argv[3 + i] = malloc(LEN + 1);
		memset(argv[3 + i], 'a' + i % 26, LEN);
		argv[3 + i][LEN] = '\0';
	}
	struct ran r;

	begin_spec(&r, &spec);
	/* The first of them is $0. */
	expect_ran(&r, "780038\n39\n", "", 0);
	assert_int_equal(machine.puts, 1);
	for (int i = 0; i < WORDS; i++)
		free(argv[3 + i]);
}

static void words_that_no_command_can_have_are_refused(void **state)
{
	static char word[200000];
	char *const argv[] = {sh, word, NULL};
	const struct sbx_exec spec = spec_of(argv);
	struct sbx_error err = SBX_ERROR_INIT;
	struct ran r;

	(void)state;
	memset(word, 'x', sizeof(word) - 1);
	assert_int_equal(exec(&r, &spec, &err), -E2BIG);
	assert_int_equal(err.code, E2BIG);
	assert_null(r.job.part);
}

/* ---- standard input ---- */

static int memory_file(const char *data, size_t len)
{
	const int fd = memfd_create("stdin", MFD_CLOEXEC);

	assert_int_equal(write(fd, data, len), len);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void it_reads_what_was_kept_for_it(void **state)
{
	static char cat[] = "cat";
	char *const argv[] = {cat, NULL};
	static char data[300000];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 256);
	data[0] = '-';
	const size_t sizes[] = {0, 1, 1000, 16384, 16385, sizeof(data)};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(sizes); i++) {
		struct sbx_exec spec = spec_of(argv);
		struct ran r;

		spec.stdin_fd = memory_file(data, sizes[i]);
		machine.lose = 1;
		begin_spec(&r, &spec);
		close(spec.stdin_fd);
		expect_end(&r, SBX_END_EXITED, 0);
		assert_int_equal(r.len[0], sizes[i]);
		if (sizes[i])
			assert_memory_equal(r.out[0], data, sizes[i]);
		forget(&r);
	}
	expect_script("readlink /proc/self/fd/0", "/dev/null\n", "", 0);
	assert_int_equal(machine.puts, 2);
	assert_int_equal(scratch_count(scratch_path("ro'om/in")), 0);
}

static void live_input_is_refused(void **state)
{
	static char cat[] = "cat";
	char *const argv[] = {cat, NULL};
	struct sbx_exec spec = spec_of(argv);
	struct sbx_error err = SBX_ERROR_INIT;
	struct ran r;
	int ends[2];

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	spec.stdin_fd = ends[0];
	assert_int_equal(exec(&r, &spec, &err), -EOPNOTSUPP);
	close(ends[0]);
	close(ends[1]);
}

/* ---- limits ---- */

static void limits_are_set(void **state)
{
	static char script[] = "ulimit -t; ulimit -H -t; ulimit -v; ulimit -f";
	char *const argv[] = {sh, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);

	(void)state;
	spec.limits =
	        (struct sbx_limits){.cpu_s = 77, .memory_mb = 1000, .procs = 5000, .file_mb = 3};
	struct ran r;

	begin_spec(&r, &spec);
	expect_ran(&r, "77\n78\n1024000\n6144\n", "", 0);
	expect_script("ulimit -t; ulimit -v; ulimit -f", "unlimited\nunlimited\nunlimited\n", "",
	              0);
}

static void who_used_up_its_processor_time_is_told_so(void **state)
{
	static char script[] = "while :; do :; done";
	char *const argv[] = {sh, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);
	struct ran r;

	(void)state;
	spec.limits.cpu_s = 1;
	begin_spec(&r, &spec);
	expect_ran(&r, "", "", 128 + SIGXCPU);
}

static void processes_are_limited(void **state)
{
	static char script[] = "sed -n 's/^Max processes *\\([0-9]*\\) .*/\\1/p' /proc/self/limits";
	char *const argv[] = {sh, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);

	(void)state;
	spec.limits.procs = 4321;
	struct ran r;

	begin_spec(&r, &spec);
	expect_ran(&r, "4321\n", "", 0);
}

static void what_takes_too_long_is_killed_there(void **state)
{
	static char script[] = "setsid sleep 300 & echo $!; wait";
	char *const argv[] = {sh, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);
	struct ran r;

	(void)state;
	spec.timeout_ms = 200;
	begin_spec(&r, &spec);
	expect_end(&r, SBX_END_EXITED, 128 + SIGKILL);
	assert_true(is_dead(atoi(r.out[0])));
	forget(&r);
}

/* The machine has, as NAME, SCRIPT. */
static void have_program(const char *name, const char *script)
{
	static char path[4400], *env[] = {path, NULL};
	char text[8192];

	snprintf(path, sizeof(path), "PATH=%s:/usr/bin:/bin", scratch_path("own"));
	snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);
	if (!scratch_exists(scratch_path("own")))
		scratch_mkdir(scratch_path("own"));
	scratch_write(scratch_path("own/%s", name), text);
	assert_int_equal(chmod(scratch_path("own/%s", name), 0755), 0);
	machine.env = env;
}

/* The machine has a sleep that runs SCRIPT before it sleeps, and no usleep. */
static void have_naps_begin_by(const char *script)
{
	char text[6000];

	snprintf(text, sizeof(text), "%s\nexec /bin/sleep \"$1\"", script);
	have_program("sleep", text);
	have_program("usleep", "exit 1");
}

/* Its sleep notes what it is asked for, and knows fractions of a second or not. */
static void note_naps(bool fractions)
{
	char script[4500];

	snprintf(script, sizeof(script), "echo \"$1\" >>'%s'\n%s", scratch_path("naps"),
	         fractions ? "" : "case $1 in *.*) exit 1 ;; esac");
	scratch_write(scratch_path("naps"), "");
	have_naps_begin_by(script);
}

static void expect_nap(const char *nap)
{
	char command[8192];

	snprintf(command, sizeof(command), "grep -qx '%s' '%s'", nap, scratch_path("naps"));
	assert_int_equal(system(command), 0);
}

/* Behind the time at which the caller signals. */
static void a_timeout_is_as_exact_there_as_naps_are(void **state)
{
	static char script[] = "exec /bin/sleep 300";
	char *const argv[] = {sh, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);
	struct ran r;

	(void)state;
	for (int fractions = 0; fractions < 2; fractions++) {
		note_naps(fractions);
		spec.timeout_ms = fractions ? 50 : 1;
		begin_spec(&r, &spec);
		expect_end(&r, SBX_END_EXITED, 128 + SIGKILL);
		expect_nap(fractions ? "2\\.050" : "3");
		forget(&r);
	}
}

static void what_runs_out_of_memory_is_told(void **state)
{
	struct ran r;

	(void)state;
	scratch_write(scratch_path("the tree/events"), "low 0\noom 3\noom_kill 3\n");
	ride_lines = "R_EVENTS=$R_TREE/events";
	begin(&r, "exit 137");
	expect_end(&r, SBX_END_EXITED, 137);
	forget(&r);
	begin(&r, "printf 'oom_kill 4\n' >events; kill -9 $$");
	expect_end(&r, SBX_END_OOM, SIGKILL);
	forget(&r);
}

/* ---- once ---- */

static void it_starts_once_whatever_becomes_of_answers(void **state)
{
	(void)state;
	machine.lose = 2;
	expect_script("echo ran >>ran; cat ran; rm ran", "ran\n", "", 0);
	machine.cut = 2;
	expect_script("echo ran >>ran; cat ran; rm ran", "ran\n", "", 0);
	machine.twice = 1;
	expect_script("echo ran >>ran; cat ran; rm ran", "ran\n", "", 0);
	machine.fail = 2;
	machine.fail_code = ENETUNREACH;
	expect_script("echo ran >>ran; cat ran; rm ran", "ran\n", "", 0);
}

/* What is in the group of a script ends with it, until it has a session of its own. */
static void a_start_may_be_slow(void **state)
{
	static char script[] = "echo x";
	char *const argv[] = {sh, dash_c, script, NULL};
	struct sbx_exec spec = spec_of(argv);
	struct ran r;

	(void)state;
	spec.background = true;
	have_program("mkfifo", "/bin/sleep 1; exec /usr/bin/mkfifo \"$@\"");
	begin_spec(&r, &spec);
	expect_ran(&r, "x\n", "", 0);
}

/* It has its turn only when the command is long over, as on a machine under load. */
static void a_reader_may_be_slow(void **state)
{
	(void)state;
	have_program("tee",
	             "read -r now rest </proc/uptime; end=$((${now%.*} + 3))\n"
	             "until [ ${now%.*} -ge $end ]; do read -r now rest </proc/uptime; done\n"
	             "exec /usr/bin/tee \"$@\"");
	expect_script("echo x; echo y >&2; exit 5", "x\n", "y\n", 5);
}

static void polls_may_be_lost_or_doubled(void **state)
{
	(void)state;
	struct ran r;

	begin(&r, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.3; done");
	await(&r.outputs, 1);
	machine.lose = 2;
	machine.twice = 2;
	await(&r.outputs, 3);
	machine.cut = 2;
	expect_ran(&r, "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "", 0);
}

/* As a network may have one come late. */
static void start_again(const char *id)
{
	struct remote_reply reply;
	char line[200];

	snprintf(line, sizeof(line),
	         "r_exec 1000 1000 %s-%s 0 0 '' '' 0 0 0 0 0 touch '' touch ran", job_prefix, id);
	ask(line, &reply);
	assert_int_equal(reply.n, 1);
	assert_int_equal(reply.frames[0].kind, REMOTE_FAILED);
	assert_int_equal(reply.frames[0].a, ESTALE);
	remote_reply_release(&reply);
}

static void leave_over(const char *name, time_t age_s)
{
	const time_t then = (time_t)(sbx_real_ms() / 1000) - age_s;
	const struct timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};
	const char *path = scratch_path("ro'om/jobs/over/%s", name);

	scratch_write(path, "");
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A name is needed for as long as a start may be repeated. */
static void who_is_over_is_forgotten(void)
{
	struct remote_reply reply;

	for (int i = 0; i < 2; i++) {
		leave_over("x-1", 7200);
		leave_over("x-2", 1200);
		ask(i == 0 ? "r_reap x-0000000099" : "true", &reply);
		remote_reply_release(&reply);
		assert_true(scratch_exists(scratch_path("ro'om/jobs/over/x-1")));
		ask(i == 0 ? "r_reap x-0000000100" : "r_sweep x", &reply);
		remote_reply_release(&reply);
		assert_false(scratch_exists(scratch_path("ro'om/jobs/over/x-1")));
		assert_true(scratch_exists(scratch_path("ro'om/jobs/over/x-2")));
	}
}

static void what_was_read_is_dropped_there(void **state)
{
	(void)state;
	expect_script("echo x", "x\n", "", 0);
	expect_script("echo x", "x\n", "", 0);
	assert_int_equal(scratch_count(scratch_path("ro'om/jobs")), 2);
	assert_int_equal(scratch_count(scratch_path("ro'om/jobs/over")), 1);
	start_again("0000000001");
	assert_false(scratch_exists(scratch_path("the tree/ran")));
	who_is_over_is_forgotten();
}

/* The next command, after which nothing is there of all before it. */
static void expect_dropped_with_the_next(void)
{
	expect_script("echo x", "x\n", "", 0);
	assert_int_equal(scratch_count(scratch_path("ro'om/jobs")), 2);
}

static void what_was_read_is_dropped_after_a_failed_call(void **state)
{
	struct ran r;

	(void)state;
	expect_script("echo x", "x\n", "", 0);
	machine.fail_code = EKEYREJECTED;
	machine.fail = 1;
	begin(&r, "echo y");
	expect_end(&r, SBX_END_FAILED, EKEYREJECTED);
	forget(&r);
	expect_dropped_with_the_next();
}

static void many_run_at_once(void **state)
{
	enum { MANY = 100 };
	struct ran r[MANY];

	(void)state;
	for (int i = 0; i < MANY; i++)
		begin(&r[i], "sleep 1.5; echo x");
	for (int i = 0; i < MANY; i++)
		expect_ran(&r[i], "x\n", "", 0);
	print_message("# %d requests for 100 commands\n", machine.runs);
}

/* ---- the tree ---- */

static void changes_of_the_host_come_before(void **state)
{
	(void)state;
	ride_lines = "echo new >\"$R_TREE/changed\"";
	expect_script("cat changed", "new\n", "", 0);
	assert_int_equal(machine.runs, 1);
	assert_int_equal(landed_well, 1);
	assert_int_equal(asked, 1);
	assert_int_equal(taken, 1);
}

static void who_brings_no_changes_holds_up_nobody(void **state)
{
	struct ran r;

	(void)state;
	machine.delay_ms = 300;
	begin(&r, "echo x");
	await(&landed, 1);
	assert_int_equal(r.ended, 0);
	assert_int_equal(atomic_load(&r.started), 0);
	expect_ran(&r, "x\n", "", 0);
	assert_int_equal(landed, 1);
}

static void changes_that_cannot_be_sent_fail_it(void **state)
{
	struct ran r;

	(void)state;
	ride_code = -EDQUOT;
	begin(&r, "echo x");
	expect_end(&r, SBX_END_FAILED, EDQUOT);
	assert_string_equal(r.exit.error.text, "it cannot be sent");
	assert_int_equal(machine.runs, 0);
	forget(&r);
}

static void lines_that_fail_there_keep_it_from_starting(void **state)
{
	struct ran r;

	(void)state;
	ride_lines = "r_fail 28 'the disk there is full'";
	begin(&r, "echo x >ran");
	expect_end(&r, SBX_END_FAILED, ENOSPC);
	assert_string_equal(r.exit.error.text, "the disk there is full; the command has not run");
	assert_false(scratch_exists(scratch_path("the tree/ran")));
	assert_int_equal(landed, 1);
	assert_int_equal(landed_well, 0);
	forget(&r);
}

/* Has the poll that waits there answer. */
static void end_poll(void)
{
	char command[4400];

	snprintf(command, sizeof(command), "rm -f \"%s\"/jobs/poll-*", machine.machine.room);
	assert_int_equal(system(command), 0);
}

/* ---- signals ---- */

static void signals_reach_all_of_it(void **state)
{
	(void)state;
	struct ran r;

	begin(&r, "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.1; done");
	await(&r.outputs, 1);
	send(&r, SIGTERM);
	expect_end(&r, SBX_END_EXITED, 9);
	assert_string_equal(r.out[0], "ready\ngot it\n");
	forget(&r);
	begin(&r, "trap '' TERM; echo ready; while :; do sleep 0.1; done");
	await(&r.outputs, 1);
	send(&r, SIGTERM);
	usleep(300000);
	assert_int_equal(r.ended, 0);
	send(&r, SIGKILL);
	expect_end(&r, SBX_END_SIGNALED, SIGKILL);
	forget(&r);
	begin(&r, "echo ready; exec sleep 300");
	await(&r.outputs, 1);
	send(&r, SIGINT);
	expect_end(&r, SBX_END_SIGNALED, SIGINT);
	forget(&r);
}

/* One that left session, group and parent, and one that has another environment besides. */
#define ESCAPES                                                                                    \
	"(setsid sh -c 'sleep 300 & echo $!') ; "                                                  \
	"env -i PATH=\"$PATH\" sleep 300 & echo $!; echo ready; "

static void nothing_that_it_left_lives_on(void **state)
{
	(void)state;
	for (int killed = 0; killed < 2; killed++) {
		struct ran r;
		int away, bare;

		begin(&r, killed ? ESCAPES "exec sleep 300" : ESCAPES);
		while (!r.ended && !has_written(&r, "ready"))
			usleep(1000);
		if (killed)
			send(&r, SIGKILL);
		await(&r.ended, 1);
		assert_int_equal(r.exit.end, killed ? SBX_END_SIGNALED : SBX_END_EXITED);
		assert_int_equal(sscanf(r.out[0], "%d %d", &away, &bare), 2);
		wait_until_dead(away);
		wait_until_dead(bare);
		forget(&r);
	}
}

static void what_has_not_begun_is_not_started(void **state)
{
	struct ran r;

	(void)state;
	held = true;
	begin(&r, "echo x >ran");
	await(&boarded, 1);
	send(&r, SIGTERM);
	expect_end(&r, SBX_END_SIGNALED, SIGTERM);
	forget(&r);
	assert_int_equal(machine.runs, 0);
	boarded = 0; /* it was left */
	held = false;
	machine.delay_ms = 300;
	begin(&r, "echo x >ran");
	await(&machine.runs, 1);
	machine.delay_ms = 0;
	send(&r, SIGKILL);
	expect_end(&r, SBX_END_SIGNALED, SIGKILL);
	forget(&r);
	assert_false(scratch_exists(scratch_path("the tree/ran")));
}

static void a_signal_that_is_lost_is_sent_again(void **state)
{
	struct ran r;

	(void)state;
	begin(&r, "echo ready; exec sleep 300");
	await(&r.outputs, 1);
	machine.fail_code = EKEYREJECTED;
	usleep(300000); /* a poll waits there now */
	machine.fail = 1;
	send(&r, SIGKILL);
	while (machine.fail)
		usleep(1000);
	end_poll();
	expect_end(&r, SBX_END_SIGNALED, SIGKILL);
	forget(&r);
}

/* The kill fails, and so do the polls that bring it again. */
static void a_signal_survives_polls_that_fail(void **state)
{
	static const int signals[] = {SIGTERM, SIGKILL};

	(void)state;
	machine.fail_code = EKEYREJECTED;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(signals); i++) {
		struct ran r;

		begin(&r, "echo ready; exec sleep 300");
		await(&r.outputs, 1);
		usleep(300000); /* a poll waits there now */
		machine.fail = 3;
		send(&r, signals[i]);
		while (machine.fail == 3)
			usleep(1000);
		end_poll();
		expect_end(&r, SBX_END_SIGNALED, signals[i]);
		assert_int_equal(machine.fail, 0);
		forget(&r);
	}
}

/* Both, where two are lost. */
static void no_signal_takes_the_place_of_another(void **state)
{
	struct ran r;

	(void)state;
	begin(&r, "trap 'echo usr1' USR1; trap 'echo usr2' USR2; echo ready; "
	          "while :; do sleep 0.1; done");
	await(&r.outputs, 1);
	usleep(300000);
	machine.fail_code = EKEYREJECTED;
	machine.fail = 2;
	send(&r, SIGUSR1);
	while (machine.fail == 2)
		usleep(1000);
	send(&r, SIGUSR2);
	while (machine.fail)
		usleep(1000);
	end_poll();
	while (!has_written(&r, "usr1") || !has_written(&r, "usr2"))
		await(&r.outputs, r.outputs + 1);
	send(&r, SIGKILL);
	expect_end(&r, SBX_END_SIGNALED, SIGKILL);
	forget(&r);
}

/* Whatever becomes of the first one: it is slow, or fails and would come with a poll. */
static void who_is_continued_does_not_stop_after_that(void **state)
{
	(void)state;

	machine.fail_code = EKEYREJECTED;
	for (int i = 0; i < 2; i++) {
		struct ran r;
		int runs;

		begin(&r, "echo ready; while [ ! -e go ]; do sleep 0.1; done; rm go");
		await(&r.outputs, 1);
		usleep(300000); /* a poll waits there now */
		runs = machine.runs;
		machine.delay_ms = 500;
		machine.fail = i;
		send(&r, SIGSTOP);
		await(&machine.runs, runs + 1);
		usleep(100000);
		machine.delay_ms = 0;
		send(&r, SIGCONT);
		sleep(2);
		scratch_write(scratch_path("the tree/go"), "");
		expect_ran(&r, "ready\n", "", 0);
	}
}

/* ---- what is lost ---- */

static int pid_of(struct ran *r)
{
	await(&r->outputs, 1);
	return atoi(r->out[0]);
}

static void who_is_not_asked_for_is_killed_and_lost(void **state)
{
	struct ran r;
	int pid;

	(void)state;
	make_jobs(2);
	connect_jobs();
	begin(&r, "echo $$; exec sleep 300");
	pid = pid_of(&r);
	/* Asked for, it lives for longer than that. */
	usleep(4000000);
	assert_int_equal(r.ended, 0);
	assert_false(is_dead(pid));
	machine.fail_code = EKEYREJECTED;
	machine.fail = 1000000;
	expect_end(&r, SBX_END_LOST, 0);
	/* Nobody has told what it has done until then. */
	assert_true(distrusts > 0);
	assert_true(r.len[0] > 0);
	wait_until_dead(pid);
	machine.fail = 0;
	forget(&r);
	expect_dropped_with_the_next();
}

static void a_machine_that_is_gone_loses_all_at_once(void **state)
{
	struct ran r;
	int pid;

	(void)state;
	begin(&r, "echo $$; exec sleep 300");
	pid = pid_of(&r);
	usleep(200000);
	machine.fail_code = ESTALE;
	machine.fail = 1000000;
	end_poll();
	expect_end(&r, SBX_END_LOST, 0);
	assert_true(distrusts > 0);
	machine.fail = 0;
	kill(pid, SIGKILL);
	forget(&r);
	machine.fail_code = ESTALE;
	machine.fail = 1;
	begin(&r, "echo x");
	expect_end(&r, SBX_END_FAILED, ESTALE);
	forget(&r);
}

static void who_watches_may_die(void **state)
{
	(void)state;
	struct ran r;
	int pid;

	begin(&r, "echo $$; sleep 1.2; ps -o ppid= -p $$ | xargs kill -9; exec sleep 300");
	pid = pid_of(&r);
	expect_end(&r, SBX_END_LOST, 0);
	assert_string_equal(r.exit.error.text, "the machine has lost the job");
	wait_until_dead(pid);
	forget(&r);
}

/* What a command has written to the file "pid". */
static int noted_pid(void)
{
	int pid = 0;

	while (!pid) {
		FILE *f = fopen(scratch_path("the tree/pid"), "re");

		if (f && fscanf(f, "%d", &pid) != 1)
			pid = 0;
		if (f)
			fclose(f);
		usleep(1000);
	}
	return pid;
}

static void an_unsure_start_is_lost_and_taken_away(void **state)
{
	struct ran r;
	int runs;

	(void)state;
	machine.cut = 1;
	machine.lose = 0;
	/* It has run; then the machine refuses. */
	machine.delay_ms = 0;
	begin(&r, "echo $$ >pid; exec sleep 300");
	await(&machine.runs, 1);
	machine.fail_code = EKEYREJECTED;
	machine.fail = 1;
	expect_end(&r, SBX_END_LOST, 0);
	assert_true(distrusts > 0);
	/* What it has done until it was killed is told with that. */
	await(&taken, 1);
	runs = machine.runs;
	assert_true(runs >= 2);
	wait_until_dead(noted_pid());
	forget(&r);
	expect_dropped_with_the_next();
}

static void abandon_posted(void *data)
{
	(void)data;
	remote_jobs_abandon(jobs, true);
}

static void who_waits_no_more_loses_what_is_killed(void **state)
{
	struct ran killed, other, late;
	int pid[3];

	(void)state;
	begin(&killed, "echo $$; exec sleep 300");
	begin(&other, "echo $$; exec sleep 300");
	begin(&late, "echo $$; exec sleep 300");
	pid[0] = pid_of(&killed);
	pid[1] = pid_of(&other);
	pid[2] = pid_of(&late);
	machine.delay_ms = 1000;
	send(&killed, SIGKILL);
	sbx_loop_post(loop, abandon_posted, NULL);
	expect_end(&killed, SBX_END_LOST, 0);
	assert_int_equal(other.ended, 0);
	send(&late, SIGKILL);
	expect_end(&late, SBX_END_LOST, 0);
	machine.delay_ms = 0;
	send(&other, SIGTERM);
	expect_end(&other, SBX_END_SIGNALED, SIGTERM);
	for (int i = 0; i < 3; i++)
		wait_until_dead(pid[i]);
	forget(&killed);
	forget(&other);
	forget(&late);
}

/* ---- before, and at the end ---- */

static void it_waits_for_the_machine(void **state)
{
	struct ran r;

	(void)state;
	make_jobs(0);
	begin(&r, "echo x");
	usleep(100000);
	assert_int_equal(machine.runs, 0);
	connect_jobs();
	expect_ran(&r, "x\n", "", 0);
}

static void a_machine_that_cannot_be_made_fails_all(void **state)
{
	struct ran r, late;

	(void)state;
	make_jobs(0);
	begin(&r, "echo x");
	usleep(50000);
	sbx_loop_post(loop, fail_jobs, NULL);
	expect_end(&r, SBX_END_FAILED, EHOSTDOWN);
	begin(&late, "echo x");
	expect_end(&late, SBX_END_FAILED, EHOSTDOWN);
	assert_string_equal(late.exit.error.text, "the machine is off");
	await(&idle, 1);
	forget(&r);
	forget(&late);
}

static void all_end_when_it_is_off(void **state)
{
	struct ran running, starting, boarding;
	int pid;

	(void)state;
	begin(&running, "echo $$; exec sleep 300");
	pid = pid_of(&running);
	machine.stall = 1;
	begin(&starting, "echo x");
	while (machine.stall)
		usleep(1000);
	held = true;
	begin(&boarding, "echo x");
	await(&boarded, 3);
	sbx_loop_post(loop, fail_jobs, NULL);
	expect_end(&running, SBX_END_LOST, 0);
	expect_end(&starting, SBX_END_LOST, 0);
	expect_end(&boarding, SBX_END_FAILED, EHOSTDOWN);
	boarded = 2; /* the last was left */
	kill(pid, SIGKILL);
	forget(&running);
	forget(&starting);
	forget(&boarding);
}

/* ---- other machines ---- */

static void without_base64_it_is_the_same(void **state)
{
	static const char *const programs[] = {"od",  "tr",   "mkdir", "sh",     "cat", "dd",
	                                       "env", "grep", "ls",    "sed",    "mv",  "rm",
	                                       "id",  "head", "sleep", "mkfifo", "wc",  NULL};
	static char path[4300];
	char *env[] = {path, NULL};

	(void)state;
	scratch_mkdir(scratch_path("bin"));
	for (int i = 0; programs[i]; i++) {
		char command[8192];

		snprintf(command, sizeof(command), "ln -s \"$(command -v %s)\" '%s/'", programs[i],
		         scratch_path("bin"));
		assert_int_equal(system(command), 0);
	}
	snprintf(path, sizeof(path), "PATH=%s", scratch_path("bin"));
	machine.env = env;
	machine.shell = shell_machine_shells[0];
	expect_script("printf 'a\\000b' | od -An -c; echo x >&2; exit 4", "   a  \\0   b\n", "x\n",
	              4);
	expect_script("head -c 20000 /dev/zero | tr '\\0' x | wc -c", "20000\n", "", 0);
}

static void use_busybox(void)
{
	static char path[4300], *env[] = {path, NULL};
	char command[8192];

	snprintf(path, sizeof(path), "PATH=%s", scratch_path("box"));
	scratch_mkdir(scratch_path("box"));
	snprintf(command, sizeof(command),
	         "cd '%s' && for i in $(busybox --list); do ln -s \"$(command -v busybox)\" $i; "
	         "done",
	         scratch_path("box"));
	assert_int_equal(system(command), 0);
	machine.env = env;
	machine.shell = shell_machine_shells[2];
}

static void busybox_alone_is_enough(void **state)
{
	struct ran r;

	(void)state;
	use_busybox();
	expect_script("readlink -f $(command -v sh) | grep -c busybox; echo err >&2; exit 3", "1\n",
	              "err\n", 3);
	who_is_over_is_forgotten();
	begin(&r, ESCAPES "exec sleep 300");
	while (!has_written(&r, "ready"))
		usleep(1000);
	send(&r, SIGKILL);
	expect_end(&r, SBX_END_SIGNALED, SIGKILL);
	wait_until_dead(atoi(r.out[0]));
	forget(&r);
	machine.lose = 1;
	expect_script("head -c 3000000 /dev/zero | tr '\\0' x | wc -c", "3000000\n", "", 0);
	expect_cut("head -c 1000000 /dev/zero; head -c 100001 /dev/zero >&2", 1000000, 100001, 0);
}

static void expect_info(const struct remote_reply *reply, const char *key, const char *value)
{
	size_t at = 0;
	const struct remote_frame *f = remote_reply_next(reply, &at, REMOTE_INFO, key);

	assert_non_null(f);
	assert_string_equal(f->bytes, value);
}

static void it_says_what_it_has(void **state)
{
	struct remote_reply reply;

	(void)state;
	ask("r_info", &reply);
	expect_info(&reply, "sh", *machine.shell);
	expect_info(&reply, "mkfifo", "/usr/bin/mkfifo");
	expect_info(&reply, "ulimit", "tvuf");
	remote_reply_release(&reply);
}

static void jobs_of_another_daemon_are_swept(void **state)
{
	struct remote_reply reply;
	char line[80];
	struct ran r;
	int pid;

	(void)state;
	begin(&r, "echo $$; exec sleep 300");
	pid = pid_of(&r);
	snprintf(line, sizeof(line), "r_sweep %s", job_prefix);
	ask(line, &reply);
	assert_int_equal(reply.n, 0);
	remote_reply_release(&reply);
	assert_false(is_dead(pid));
	ask("r_sweep another", &reply);
	assert_int_equal(reply.n, 1);
	snprintf(line, sizeof(line), "%s-0000000001", job_prefix);
	expect_info(&reply, "killed", line);
	remote_reply_release(&reply);
	wait_until_dead(pid);
	await(&r.ended, 1);
	forget(&r);
}

/* The first command comes to the machine before anybody else. */
static void no_command_runs_beside_those_of_another_daemon(void **state)
{
	struct remote_reply reply;
	char line[200], script[120];
	int left[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		snprintf(line, sizeof(line),
		         "r_exec 50 1000 another%d-%d 900 0 '' '' 0 0 0 0 0 sh '' "
		         "sh -c 'echo $$ >pid; exec sleep 300'",
		         getpid(), i);
		ask(line, &reply);
		remote_reply_release(&reply);
		left[i] = noted_pid();
		assert_int_equal(unlink(scratch_path("the tree/pid")), 0);
		snprintf(script, sizeof(script),
		         "if grep -qs ') [^ZX] ' /proc/%d/stat; then echo beside; fi", left[i]);
		/* It was answered then, and is not looked for again. */
		expect_script(script, i == 0 ? "" : "beside\n", "", 0);
	}
	assert_int_equal(told, 1);
	assert_string_equal(told_text, "1 commands of an earlier mount were ended");
	kill(left[1], SIGKILL);
}

static int set_up_undetached(void **state)
{
	return set_up_at(state, 0);
}

static void without_detaching_a_job_is_its_call(void **state)
{
	struct ran r;

	(void)state;
	const int before = machine.runs;

	expect_script("sleep 2; echo x; echo y >&2; exit 5", "x\n", "y\n", 5);
	assert_int_equal(machine.runs, before + 1);
	assert_int_equal(machine.held, 1);
	begin(&r, "echo $$ >pid; exec sleep 300");
	while (!scratch_exists(scratch_path("the tree/pid")))
		usleep(1000);
	send(&r, SIGTERM);
	expect_end(&r, SBX_END_SIGNALED, SIGTERM);
	assert_int_equal(machine.most_at_once, 1);
	kill(noted_pid(), SIGKILL);
	forget(&r);
}

/* The one answer has all that is kept and a little more, by which it is seen that there was more.
 */
static void without_detaching_output_is_cut(void **state)
{
	const size_t most = remote_jobs_output(0);
	struct ran r;

	(void)state;
	begin(&r, "head -c 9000000 /dev/urandom | tee /dev/stderr; exit 7");
	expect_end(&r, SBX_END_EXITED, 7);
	for (int i = 0; i < 2; i++)
		assert_in_range(r.len[i], most + 1, most + 4096);
	forget(&r);
}

/* As the caller does, for a timeout. */
static void time_out(void *data)
{
	struct ran *r = data;

	remote_jobs_signal(&r->job, SIGTERM);
	remote_jobs_signal(&r->job, SIGKILL);
}

/* Its caller signals as well, which would be its end and that of all that it has done. */
static void without_detaching_a_timeout_is_the_machine_s(void **state)
{
	static char script[] = "echo so far; echo $$ >pid; exec /bin/sleep 300";
	/* The shell says of a nap that was killed before it. */
	static char deaf[] = "exec 2>/dev/null; trap '' TERM; echo so far; echo $$ >pid; "
	                     "while :; do /bin/sleep 0.1; done";
	char *argv[] = {sh, dash_c, script, NULL}, naps[4500];
	struct sbx_exec spec = spec_of(argv);
	struct ran r;

	(void)state;
	const int before = machine.runs;

	/* Nothing is over before it has begun. */
	snprintf(naps, sizeof(naps), "until [ -s '%s' ]; do /bin/sleep 0.02; done",
	         scratch_path("the tree/pid"));
	have_naps_begin_by(naps);
	spec.timeout_ms = 200;
	begin_spec(&r, &spec);
	await(&machine.runs, before + 1);
	send(&r, SIGTERM);
	expect_end(&r, SBX_END_SIGNALED, SIGTERM);
	assert_int_equal(r.outputs, 1);
	assert_string_equal(r.out[0], "so far\n");
	wait_until_dead(noted_pid());
	forget(&r);
	assert_int_equal(unlink(scratch_path("the tree/pid")), 0);
	argv[2] = deaf;
	begin_spec(&r, &spec);
	while (!scratch_exists(scratch_path("the tree/pid")))
		usleep(1000);
	sbx_loop_post(loop, time_out, &r);
	expect_end(&r, SBX_END_SIGNALED, SIGKILL);
	assert_int_equal(r.outputs, 1);
	assert_string_equal(r.out[0], "so far\n");
	forget(&r);
	assert_int_equal(machine.runs, before + 2);
}

static int set_up_merged(void **state)
{
	return set_up_at(state, SBX_PROVIDER_PARALLEL | SBX_PROVIDER_MERGES);
}

static void merged_streams_come_as_one(void **state)
{
	struct ran r;

	(void)state;
	const int before = machine.runs;

	expect_script("echo x; echo y >&2; echo z", "x\ny\nz\n", "", 0);
	expect_script("echo x; echo y >&2; exit 5", "x\ny\n", "x\ny\n", 5);
	expect_script("exit 5", "", "", 5);
	expect_script("printf '\\377\\0' >&2; exit 1", "\377", "\377", 1);
	expect_script("echo ${R_MERGE-unset}", "unset\n", "", 0);
	expect_cut("head -c 200000 /dev/zero; exit 5", 200000, 200000, 5);
	assert_int_equal(machine.runs, before + 6);
	begin(&r, "echo $$ >pid; exec sleep 300");
	while (!scratch_exists(scratch_path("the tree/pid")))
		usleep(1000);
	send(&r, SIGTERM);
	expect_end(&r, SBX_END_SIGNALED, SIGTERM);
	wait_until_dead(noted_pid());
	forget(&r);
}

static int set_up_merged_for_2_s(void **state)
{
	set_up_apart(state);
	machine.impl.can = SBX_PROVIDER_PARALLEL | SBX_PROVIDER_MERGES;
	make_jobs(2);
	connect_jobs();
	return 0;
}

/* Nobody has asked the machine for long, as there is no poll for such a command. */
static void without_detaching_a_signal_that_is_lost_is_sent_again(void **state)
{
	struct ran r;

	(void)state;
	begin(&r, "echo $$ >pid; exec sleep 300");
	while (!scratch_exists(scratch_path("the tree/pid")))
		usleep(1000);
	sleep(3);
	machine.fail_code = EKEYREJECTED;
	machine.fail = 3;
	send(&r, SIGKILL);
	expect_end(&r, SBX_END_SIGNALED, SIGKILL);
	assert_int_equal(machine.fail, 0);
	wait_until_dead(noted_pid());
	forget(&r);
}

static int set_up_serial(void **state)
{
	return set_up_at(state, SBX_PROVIDER_DETACHES);
}

static void one_script_at_a_time_is_enough(void **state)
{
	struct ran silent, other[3];

	(void)state;
	begin(&silent, "sleep 4; echo over");
	await(&silent.started, 1);
	for (int i = 0; i < 3; i++)
		begin(&other[i], "sleep 0.2; echo x");
	for (int i = 0; i < 3; i++) {
		expect_ran(&other[i], "x\n", "", 0);
		assert_int_equal(silent.ended, 0);
	}
	expect_ran(&silent, "over\n", "", 0);
	assert_int_equal(machine.most_at_once, 1);
}

/* ---- ends, and what lags behind them ---- */

static void an_end_waits_for_what_lags(void **state)
{
	struct ran r;

	(void)state;
	lags = 1;
	held_flush = true;
	begin(&r, "echo x");
	await(&flushes, 1);
	assert_int_equal(r.ended, 0);
	sbx_loop_post(loop, flush_done, flushing);
	expect_ran(&r, "x\n", "", 0);
	assert_int_equal(flushes, 1);
}

static void what_lags_all_the_time_is_not_waited_for(void **state)
{
	(void)state;
	lags = 1000;
	expect_script("echo x", "x\n", "", 0);
	assert_int_equal(flushes, 2);
}

static void who_is_abandoned_waits_for_nothing_that_lags(void **state)
{
	struct ran r;

	(void)state;
	lags = 1000;
	held_flush = true;
	begin(&r, "echo x");
	await(&flushes, 1);
	remote_jobs_abandon(jobs, true);
	expect_ran(&r, "x\n", "", 0);
	expect_script("echo y", "y\n", "", 0);
	assert_int_equal(flushes, 1);
}

/* ---- on a full disk ---- */

static bool may_mount;

/* Who mounts has to do so before there are threads. */
static int set_up_to_mount(void **state)
{
	const int flags = geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS;

	may_mount = may_mount ||
	            (unshare(flags) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	return set_up(state);
}

static int tear_down_mounted(void **state)
{
	umount2(machine.machine.room, MNT_DETACH);
	return tear_down(state);
}

/* The room of the machine is on a disk that has no block left. False: there is no such. */
static bool fill_room(void)
{
	static const char block[4096];
	struct remote_reply reply;
	char path[4200];
	int fd;

	scratch_mkdir(machine.machine.room);
	if (!may_mount || mount("none", machine.machine.room, "tmpfs", 0, "size=1m") < 0)
		return false;
	ask("r_job_room", &reply);
	remote_reply_release(&reply);
	snprintf(path, sizeof(path), "%s/hog", machine.machine.room);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		continue;
	close(fd);
	return true;
}

/* The runner counts its naps, and so that of ten seconds is soon reached. */
static void a_long_command_is_not_lost_on_a_full_disk(void **state)
{
	struct ran r;
	int runs;

	(void)state;
	if (!fill_room())
		skip_because("no file system can be mounted");
	have_program("sleep", "case $1 in 0.*) exit 0 ;; esac\nexec /bin/sleep \"$1\"");
	begin(&r, "until [ -e go ]; do /bin/sleep 0.05; done; exit 3");
	await(&machine.runs, 1);
	runs = machine.runs;
	while (machine.runs < runs + 3 && !r.ended)
		usleep(1000);
	if (r.ended)
		fail_msg("%s", r.exit.error.text);
	scratch_write(scratch_path("the tree/go"), "");
	expect_end(&r, SBX_END_EXITED, 3);
	forget(&r);
}

static void why_it_did_not_start_is_known_on_a_full_disk(void **state)
{
	char none[] = "none-such", *const argv[] = {none, NULL};
	const struct sbx_exec spec = spec_of(argv);

	(void)state;
	if (!fill_room())
		skip_because("no file system can be mounted");
	expect_refused(&spec, ENOENT, "no room to say why");
}

#define test(name)       cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define test_apart(name) cmocka_unit_test_setup_teardown(name, set_up_apart, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        test(a_short_command_is_one_request),
	        test(an_end_waits_for_what_lags),
	        test(what_lags_all_the_time_is_not_waited_for),
	        test(who_is_abandoned_waits_for_nothing_that_lags),
	        test(every_byte_is_exact),
	        test(much_output_comes_by_polls),
	        test(what_is_kept_of_the_output_is_limited_there),
	        test(many_small_pieces_are_read_as_they_come),
	        test(what_was_done_is_told_though_the_tree_is_gone),
	        test(output_comes_while_it_runs),
	        test(a_new_job_is_not_behind_the_poll_for_another),
	        test(a_poll_that_begins_beside_a_start_holds_nothing_up),
	        test(exits_are_told),
	        test(every_exit_is_exact),
	        test(processor_time_is_told),
	        test(it_runs_where_it_is_to),
	        test(it_has_its_environment_and_the_machine_s),
	        test(signals_are_as_they_were),
	        test(a_program_is_found_as_by_execve),
	        test(a_program_may_have_another_name),
	        test(many_and_long_words_are_put),
	        test(words_that_no_command_can_have_are_refused),
	        test(it_reads_what_was_kept_for_it),
	        test(live_input_is_refused),
	        test(limits_are_set),
	        test(who_used_up_its_processor_time_is_told_so),
	        test(processes_are_limited),
	        test(what_takes_too_long_is_killed_there),
	        test(a_timeout_is_as_exact_there_as_naps_are),
	        test(what_runs_out_of_memory_is_told),
	        test(it_starts_once_whatever_becomes_of_answers),
	        test(a_start_may_be_slow),
	        test(a_reader_may_be_slow),
	        test(polls_may_be_lost_or_doubled),
	        test(what_was_read_is_dropped_there),
	        test(what_was_read_is_dropped_after_a_failed_call),
	        test(many_run_at_once),
	        test(changes_of_the_host_come_before),
	        test(who_brings_no_changes_holds_up_nobody),
	        test(changes_that_cannot_be_sent_fail_it),
	        test(lines_that_fail_there_keep_it_from_starting),
	        test(signals_reach_all_of_it),
	        test(nothing_that_it_left_lives_on),
	        test(what_has_not_begun_is_not_started),
	        test(a_signal_that_is_lost_is_sent_again),
	        test(a_signal_survives_polls_that_fail),
	        test(no_signal_takes_the_place_of_another),
	        test(who_is_continued_does_not_stop_after_that),
	        test_apart(who_is_not_asked_for_is_killed_and_lost),
	        test(a_machine_that_is_gone_loses_all_at_once),
	        test(who_watches_may_die),
	        test(an_unsure_start_is_lost_and_taken_away),
	        test(who_waits_no_more_loses_what_is_killed),
	        test_apart(it_waits_for_the_machine),
	        test_apart(a_machine_that_cannot_be_made_fails_all),
	        test(all_end_when_it_is_off),
	        test(without_base64_it_is_the_same),
	        test(busybox_alone_is_enough),
	        test(it_says_what_it_has),
	        test(jobs_of_another_daemon_are_swept),
	        test(no_command_runs_beside_those_of_another_daemon),
	        cmocka_unit_test_setup_teardown(a_long_command_is_not_lost_on_a_full_disk,
	                                        set_up_to_mount, tear_down_mounted),
	        cmocka_unit_test_setup_teardown(why_it_did_not_start_is_known_on_a_full_disk,
	                                        set_up_to_mount, tear_down_mounted),
	        cmocka_unit_test_setup_teardown(without_detaching_a_job_is_its_call,
	                                        set_up_undetached, tear_down),
	        cmocka_unit_test_setup_teardown(without_detaching_output_is_cut, set_up_undetached,
	                                        tear_down),
	        cmocka_unit_test_setup_teardown(without_detaching_a_timeout_is_the_machine_s,
	                                        set_up_undetached, tear_down),
	        cmocka_unit_test_setup_teardown(merged_streams_come_as_one, set_up_merged,
	                                        tear_down),
	        cmocka_unit_test_setup_teardown(
	                without_detaching_a_signal_that_is_lost_is_sent_again,
	                set_up_merged_for_2_s, tear_down),
	        cmocka_unit_test_setup_teardown(one_script_at_a_time_is_enough, set_up_serial,
	                                        tear_down),
	};

	const char *shell = getenv("REMOTE_SHELL");

	the_shell = shell_machine_shells[0];
	for (char *const *const *at = shell_machine_shells; *at; at++)
		if (shell && strcmp(shell, **at) == 0)
			the_shell = *at;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
