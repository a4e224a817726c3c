/* Commands through the spawner as the daemon has them run: events, output, limits, isolation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <json-c/json.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/spawner.h"
#include "sandboxfs/strv.h"
#include "tests/lib/tmp.h"

/* On the loop thread an assertion of cmocka would jump into another thread's stack. */
#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* In place of the C library's: the kernel may have no watch left for the user. */
static atomic_bool no_watches;

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	if (op == EPOLL_CTL_ADD && atomic_load(&no_watches)) {
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

/* --- one spawner, one tree, and a way to run a command to its end ----------------------------- */

struct fixture {
	struct sbx_settings settings;
	struct sbx_spawner *sp;
	struct sbx_loop *loop;
	pthread_t thread;
	char dir[64], tree[80], rw[80];
	const char *rw_list[2];
	struct sbx_place place;
	pthread_mutex_t lock;
	pthread_cond_t some_ended;
	int running;
};

struct run {
	struct fixture *f;
	struct sbx_exec spec;
	struct sbx_job job;
	int signal_at_start, signal_at_output;
	bool started, ended;
	struct sbx_exit exit;
	char *out[2];
	size_t len[2];
	char denied[256]; /* "CLASS/CALL/PROGRAM " of each */
	uint64_t told, more;
};

static char *self; /* this program, which plays the command where no ordinary one will do */
static char *isolation;
static char *default_env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", NULL};

static struct run *run_of(struct sbx_job *job)
{
	return sbx_container_of(job, struct run, job);
}

static void on_started(struct sbx_job *job)
{
	struct run *run = run_of(job);

	MUST(!run->started && !run->ended);
	run->started = true;
	if (run->signal_at_start)
		sbx_spawner_signal(job, run->signal_at_start);
}

static void on_output(struct sbx_job *job, int stream, const void *buf, size_t len)
{
	struct run *run = run_of(job);
	int i = stream - 1;

	MUST(run->started && !run->ended && len > 0 && (i == 0 || i == 1));
	run->out[i] = realloc(run->out[i], run->len[i] + len + 1);
	memcpy(run->out[i] + run->len[i], buf, len);
	run->len[i] += len;
	run->out[i][run->len[i]] = 0;
	if (run->signal_at_output)
		sbx_spawner_signal(job, run->signal_at_output);
	if (run->signal_at_output == SIGSTOP)
		sbx_spawner_signal(job, SIGCONT);
	run->signal_at_output = 0;
}

/* The job is the caller's again: nobody else may use it from here on. */
static void on_ended(struct sbx_job *job, const struct sbx_exit *exit)
{
	struct run *run = run_of(job);

	sbx_spawner_signal(job, SIGKILL);
	memset(job, 0xa5, sizeof(*job));
	pthread_mutex_lock(&run->f->lock);
	MUST(!run->ended);
	run->ended = true;
	run->exit = *exit;
	run->f->running--;
	pthread_cond_signal(&run->f->some_ended);
	pthread_mutex_unlock(&run->f->lock);
}

static void on_denied(struct sbx_job *job, const struct sbx_denial *denial)
{
	struct run *run = run_of(job);
	size_t len = strlen(run->denied);

	MUST(run->started && !run->ended);
	run->more += denial->more;
	run->told += denial->call != NULL;
	if (denial->call)
		snprintf(run->denied + len, sizeof(run->denied) - len, "%s/%s/%s ", denial->class,
		         denial->call, denial->program);
}

static const struct sbx_job_events events = {
        .started = on_started, .output = on_output, .ended = on_ended, .denied = on_denied};

static int start(struct fixture *f, struct run *run, char **argv)
{
	int r;

	run->f = f;
	run->spec.argv = argv;
	if (!run->spec.env)
		run->spec.env = default_env;
	if (!run->spec.cwd)
		run->spec.cwd = "";
	if (!run->spec.stdin_fd)
		run->spec.stdin_fd = -1;
	pthread_mutex_lock(&f->lock);
	f->running++;
	pthread_mutex_unlock(&f->lock);
	run->job = (struct sbx_job){.events = &events};
	r = sbx_spawner_exec(f->sp, &f->place, &run->spec, &run->job, NULL);
	if (r < 0) {
		pthread_mutex_lock(&f->lock);
		f->running--;
		pthread_mutex_unlock(&f->lock);
	}
	return r;
}

static void await(struct fixture *f, int left)
{
	pthread_mutex_lock(&f->lock);
	while (f->running > left)
		pthread_cond_wait(&f->some_ended, &f->lock);
	pthread_mutex_unlock(&f->lock);
}

static void finish(struct run *run)
{
	free(run->out[0]);
	free(run->out[1]);
	*run = (struct run){0};
}

static void run_argv(struct fixture *f, struct run *run, char **argv)
{
	assert_int_equal(start(f, run, argv), 0);
	await(f, 0);
}

#define RUN(f, run, ...) run_argv(f, run, (char *[]){__VA_ARGS__, NULL})

static void *loop_thread(void *data)
{
	sbx_loop_run(((struct fixture *)data)->loop);
	return NULL;
}

static void start_loop(struct fixture *f)
{
	assert_int_equal(sbx_loop_create(&f->loop), 0);
	assert_int_equal(sbx_spawner_attach(f->sp, f->loop), 0);
	assert_int_equal(pthread_create(&f->thread, NULL, loop_thread, f), 0);
}

static void make_dir(struct fixture *f)
{
	assert_non_null(tmp_make(f->dir, sizeof(f->dir), "test-spawner"));
	snprintf(f->tree, sizeof(f->tree), "%s/tree", f->dir);
	snprintf(f->rw, sizeof(f->rw), "%s/home", f->dir);
	assert_int_equal(mkdir(f->tree, 0755), 0);
	assert_int_equal(mkdir(f->rw, 0755), 0);
	f->rw_list[0] = f->rw;
	f->place = (struct sbx_place){
	        .id = "one", .workdir = f->tree, .view = f->tree, .rw = f->rw_list};
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	static char *ro[2];
	struct sbx_error err = SBX_ERROR_INIT;

	make_dir(f);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->some_ended, NULL);
	ro[0] = self;
	f->settings.isolation = isolation;
	f->settings.net = "none";
	f->settings.path = "/usr/local/bin:/usr/bin:/bin";
	f->settings.mountpoint = "/nowhere/mnt";
	f->settings.state_dir = f->dir;
	f->settings.ro_paths = (struct sbx_strings){.items = ro, .n = 1};
	if (sbx_spawner_start(&f->settings, &f->sp, &err) < 0)
		fail_msg("%s", err.text);
	start_loop(f);
	*state = f;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void stop_loop(struct fixture *f)
{
	sbx_loop_stop(f->loop);
	pthread_join(f->thread, NULL);
	sbx_spawner_stop(f->sp);
	sbx_loop_destroy(f->loop);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	stop_loop(f);
	nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(f);
	return 0;
}

static void put_file(struct fixture *f, const char *name, const char *text, mode_t mode)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", f->tree, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(chmod(path, mode), 0);
}

/* --- output and results ------------------------------------------------------------------------
 */

static void a_command_runs_and_its_output_arrives(void **state)
{
	struct run run = {0};

	RUN(*state, &run, "echo", "a b", "c");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_int_equal(run.exit.code, 0);
	assert_string_equal(run.out[0], "a b c\n");
	assert_int_equal(run.len[1], 0);
	finish(&run);
}

static void the_exit_code_is_reported(void **state)
{
	struct run run = {0};

	RUN(*state, &run, "sh", "-c", "exit 17");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_int_equal(run.exit.code, 17);
	assert_true(run.exit.max_rss_kb > 0);
	finish(&run);
}

static void a_fatal_signal_is_reported(void **state)
{
	struct run run = {0};

	RUN(*state, &run, "sh", "-c", "kill -SEGV $$");
	assert_int_equal(run.exit.end, SBX_END_SIGNALED);
	assert_int_equal(run.exit.code, SIGSEGV);
	finish(&run);
}

/* The helper writes byte i as a function of i, alternating between the streams. */
static unsigned char pattern(size_t i)
{
	return (unsigned char)(i * 131 + (i >> 8) * 17 + (i >> 16));
}

static void a_mebibyte_on_each_stream_is_byte_exact(void **state)
{
	struct run run = {0};

	RUN(*state, &run, self, "flood");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	for (int s = 0; s < 2; s++) {
		assert_int_equal(run.len[s], 1024 * 1024);
		for (size_t i = 0; i < run.len[s]; i++)
			if ((unsigned char)run.out[s][i] != (unsigned char)(pattern(i) + s))
				fail_msg("stream %d differs at %zu", s + 1, i);
	}
	finish(&run);
}

static void output_that_cannot_be_watched_arrives(void **state)
{
	struct run run = {0}, flood = {0};

	atomic_store(&no_watches, true);
	RUN(*state, &run, "sh", "-c", "echo one; sleep 0.2; echo two; exit 5");
	RUN(*state, &flood, self, "flood");
	atomic_store(&no_watches, false);
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_int_equal(run.exit.code, 5);
	assert_string_equal(run.out[0], "one\ntwo\n");
	finish(&run);
	assert_int_equal(flood.exit.end, SBX_END_EXITED);
	assert_int_equal(flood.len[0], 1024 * 1024);
	assert_int_equal(flood.len[1], 1024 * 1024);
	finish(&flood);
}

static void output_of_a_child_that_outlives_the_leader_a_moment_is_kept(void **state)
{
	struct run run = {0};

	RUN(*state, &run, "sh", "-c", "(echo late) & exit 3");
	assert_int_equal(run.exit.code, 3);
	assert_string_equal(run.out[0], "late\n");
	finish(&run);
}

/* --- what cannot be started
 * ----------------------------------------------------------------------- */

static void assert_failed(struct run *run, int err, const char *part)
{
	assert_int_equal(run->exit.end, SBX_END_FAILED);
	assert_int_equal(run->exit.code, err);
	assert_int_equal(run->exit.error.code, err);
	if (!strstr(run->exit.error.text, part))
		fail_msg("\"%s\" does not say \"%s\"", run->exit.error.text, part);
	if (run->started)
		fail_msg("started: %s%s", run->out[0] ? run->out[0] : "",
		         run->out[1] ? run->out[1] : "");
	finish(run);
}

static void a_missing_program_is_enoent(void **state)
{
	struct run run = {0};

	RUN(*state, &run, "no-such-program");
	assert_failed(&run, ENOENT, "no-such-program: program not found");
	RUN(*state, &run, "/no/such/program");
	assert_failed(&run, ENOENT, "program not found");
	RUN(*state, &run, "");
	assert_failed(&run, ENOENT, "program not found");
}

static void a_file_that_is_not_executable_is_eacces(void **state)
{
	struct run run = {0};

	put_file(*state, "plain", "text", 0644);
	RUN(*state, &run, "./plain");
	assert_failed(&run, EACCES, "not executable");
}

static void eacces_along_path_is_remembered_but_does_not_end_the_search(void **state)
{
	struct fixture *f = *state;
	char path[256];
	char *env[] = {path, NULL};
	struct run run = {.spec.env = env};

	put_file(f, "true", "text", 0644);
	put_file(f, "only-here", "text", 0644);
	snprintf(path, sizeof(path), "PATH=%s:/usr/bin:/bin", f->tree);
	RUN(f, &run, "true");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	finish(&run);
	run.spec.env = env;
	RUN(f, &run, "only-here");
	assert_failed(&run, EACCES, "not executable");
}

static void a_script_without_first_line_is_enoexec_and_no_shell_runs(void **state)
{
	struct run run = {0};

	put_file(*state, "script", "echo no\n", 0755);
	RUN(*state, &run, "./script");
	assert_failed(&run, ENOEXEC, "#!");
}

static void a_missing_interpreter_is_named(void **state)
{
	struct run run = {0};

	put_file(*state, "script", "#!/no/such/interpreter\n", 0755);
	RUN(*state, &run, "./script");
	assert_failed(&run, ENOENT, "interpreter");
}

static void program_replaces_the_search(void **state)
{
	struct run run = {.spec.program = "/bin/sh"};

	RUN(*state, &run, "no-such-name", "-c", "echo $0");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	finish(&run);
	run.spec.program = "/no/such";
	RUN(*state, &run, "sh");
	assert_failed(&run, ENOENT, "/no/such");
}

static void arguments_beyond_the_kernels_limit_are_e2big(void **state)
{
	struct run run = {0};
	char *big = calloc(1, 9 * 1024 * 1024 + 1);
	char *argv[] = {"true", big, NULL};

	memset(big, 'x', 9 * 1024 * 1024);
	assert_int_equal(start(*state, &run, argv), -E2BIG);
	big[200 * 1024] = 0; /* more than MAX_ARG_STRLEN */
	run_argv(*state, &run, argv);
	assert_failed(&run, E2BIG, "cannot start true");
	free(big);
}

static void a_mebibyte_of_arguments_arrives(void **state)
{
	struct run run = {0};
	char *words[257];
	char *word = malloc(4096);

	memset(word, 'w', 4095);
	word[4095] = 0;
	words[0] = "echo";
	for (int i = 1; i < 256; i++)
		words[i] = word;
	words[256] = NULL;
	run_argv(*state, &run, words);
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_int_equal(run.len[0], 255 * 4096);
	finish(&run);
	free(word);
}

/* --- where it runs
 * --------------------------------------------------------------------------------- */

static void cwd_is_inside_the_tree(void **state)
{
	struct fixture *f = *state;
	struct run run = {.spec.cwd = "sub/dir"};
	char path[160], line[162];

	snprintf(path, sizeof(path), "%s/sub", f->tree);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/sub/dir", f->tree);
	mkdir(path, 0755);
	RUN(f, &run, "pwd");
	snprintf(line, sizeof(line), "%s\n", path);
	assert_string_equal(run.out[0], line);
	finish(&run);
}

static void a_missing_cwd_is_enoent_and_a_file_enotdir(void **state)
{
	struct run run = {.spec.cwd = "nowhere"};

	RUN(*state, &run, "true");
	assert_failed(&run, ENOENT, "cwd nowhere");
	put_file(*state, "file", "", 0644);
	run.spec.cwd = "file";
	RUN(*state, &run, "true");
	assert_failed(&run, ENOTDIR, "cwd file");
}

static void a_cwd_that_leads_out_is_eacces(void **state)
{
	static const char *const ways[] = {"..", "out", "/tmp", "sub/../../x", "/"};
	struct fixture *f = *state;
	char path[160];

	snprintf(path, sizeof(path), "%s/out", f->tree);
	assert_int_equal(symlink("/etc", path), 0);
	snprintf(path, sizeof(path), "%s/sub", f->tree);
	mkdir(path, 0755);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(ways); i++) {
		struct run run = {.spec.cwd = ways[i]};

		RUN(f, &run, "true");
		assert_failed(&run, EACCES, "path confinement violation");
	}
}

static void the_environment_is_exactly_what_was_given(void **state)
{
	char *env[] = {"PATH=/usr/bin:/bin", "B=2", "A=x y", NULL};
	struct run run = {.spec.env = env};

	setenv("FOREIGN", "1", 1);
	RUN(*state, &run, "env");
	assert_string_equal(run.out[0], "PATH=/usr/bin:/bin\nB=2\nA=x y\n");
	finish(&run);
}

static void no_descriptor_is_inherited(void **state)
{
	struct run run = {0};
	int leak = open("/dev/null", O_RDONLY);

	RUN(*state, &run, self, "fds");
	assert_string_equal(run.out[0], "0 1 2 ");
	finish(&run);
	close(leak);
}

static void stdin_is_null_unless_given(void **state)
{
	struct run run = {0};
	int p[2];

	RUN(*state, &run, "cat");
	assert_int_equal(run.exit.code, 0);
	assert_int_equal(run.len[0], 0);
	finish(&run);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(write(p[1], "given", 5), 5);
	close(p[1]);
	run.spec.stdin_fd = p[0];
	RUN(*state, &run, "cat");
	assert_string_equal(run.out[0], "given");
	finish(&run);
	close(p[0]);
}

static bool policy_is(struct fixture *f, const char *name, const char *value);

static void the_leader_has_a_session_and_default_signals(void **state)
{
	struct run run = {0};

	RUN(*state, &run, self, "state");
	assert_string_equal(run.out[0], "session group blocked=0 ignored=0 umask=22 nnp=1 core=0 ");
	finish(&run);
}

static void limits_are_in_force(void **state)
{
	struct run run = {.spec.limits = {.file_mb = 1, .cpu_s = 5, .memory_mb = 512, .procs = 77}};

	RUN(*state, &run, "sh", "-c",
	    "ulimit -t; ulimit -v; ulimit -c; exec head -c 2000000 /dev/zero > big");
	/* A cgroup limits what is used, not what is reserved. */
	assert_string_equal(run.out[0], policy_is(*state, "memory", "cgroup") ? "5\nunlimited\n0\n"
	                                                                      : "5\n524288\n0\n");
	assert_int_equal(run.exit.end, SBX_END_SIGNALED);
	assert_int_equal(run.exit.code, SIGXFSZ);
	finish(&run);
}

/* Where nothing but the user is counted, it would count against all that he runs. */
static void the_default_of_procs_holds_where_it_can_be_counted(void **state)
{
	struct run run = {.spec.limits.procs = SBX_PROCS_DEFAULT};
	const bool counted = policy_is(*state, "user_ns", "true");

	RUN(*state, &run, "sh", "-c", "ulimit -p");
	assert_int_equal(strcmp(run.out[0], "4096\n") == 0, counted);
	finish(&run);
}

static void the_cpu_limit_ends_a_busy_command(void **state)
{
	struct run run = {.spec.limits.cpu_s = 1};

	RUN(*state, &run, "sh", "-c", "while :; do :; done");
	assert_int_equal(run.exit.end, SBX_END_SIGNALED);
	assert_int_equal(run.exit.code, SIGXCPU);
	finish(&run);
}

/* --- nothing survives
 * ------------------------------------------------------------------------------- */

/* The job holds the write end as its stdin; end-of-file means that no process has it. */
static void assert_nobody_holds(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c;

	assert_int_equal(poll(&p, 1, 0), 1);
	assert_int_equal(read(fd, &c, 1), 0);
}

static void a_daemonised_child_that_ignores_sigterm_is_dead_at_the_end(void **state)
{
	struct run run = {0};
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	run.spec.stdin_fd = p[1];
	assert_int_equal(start(*state, &run, (char *[]){self, "daemonise", NULL}), 0);
	close(p[1]);
	await(*state, 0);
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_int_equal(run.exit.code, 5);
	assert_string_equal(run.out[0], "daemon is there\n");
	assert_nobody_holds(p[0]);
	finish(&run);
	close(p[0]);
}

static void a_grandchild_that_holds_the_pipes_delays_nothing(void **state)
{
	struct run run = {0};

	RUN(*state, &run, "sh", "-c", "sleep 1000 & echo done");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_string_equal(run.out[0], "done\n");
	finish(&run);
}

static void sigkill_ends_everything_and_keeps_the_output(void **state)
{
	struct run run = {.signal_at_output = SIGKILL};
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	run.spec.stdin_fd = p[1];
	assert_int_equal(start(*state, &run, (char *[]){self, "linger", NULL}), 0);
	close(p[1]);
	await(*state, 0);
	assert_int_equal(run.exit.end, SBX_END_SIGNALED);
	assert_int_equal(run.exit.code, SIGKILL);
	assert_string_equal(run.out[0], "here\n");
	assert_nobody_holds(p[0]);
	finish(&run);
	close(p[0]);
}

static void sigterm_reaches_the_leader_and_its_children(void **state)
{
	struct run run = {.signal_at_output = SIGTERM};

	RUN(*state, &run, "sh", "-c",
	    "trap 'wait; echo bye; exit 9' TERM;"
	    "sh -c 'trap \"echo child; exit\" TERM; echo up; while :; do sleep 1000 & wait; done' &"
	    "wait; wait");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_int_equal(run.exit.code, 9);
	assert_string_equal(run.out[0], "up\nchild\nbye\n");
	finish(&run);
}

static void a_signal_right_after_the_start_is_not_lost(void **state)
{
	for (int i = 0; i < 20; i++) {
		struct run run = {.signal_at_start = i % 2 ? SIGTERM : SIGKILL};

		RUN(*state, &run, "sleep", "1000");
		assert_int_equal(run.exit.end, SBX_END_SIGNALED);
		assert_int_equal(run.exit.code, i % 2 ? SIGTERM : SIGKILL);
		finish(&run);
	}
}

static void stop_and_continue_reach_the_job(void **state)
{
	struct run run = {.signal_at_output = SIGSTOP};

	RUN(*state, &run, "sh", "-c",
	    "trap 'exit 4' CONT; echo up; while :; do sleep 1000 & wait; done");
	assert_int_equal(run.exit.code, 4);
	finish(&run);
}

/* --- many
 * ---------------------------------------------------------------------------------------------- */

static void two_hundred_at_once_are_kept_apart(void **state)
{
	static struct run runs[200];
	char words[200][16];

	for (int i = 0; i < 200; i++) {
		snprintf(words[i], sizeof(words[i]), "%d", i);
		assert_int_equal(
		        start(*state, &runs[i],
		              (char *[]){"sh", "-c",
		                         "echo out $0; echo err $0 >&2; exit $(($0 % 100))",
		                         words[i], NULL}),
		        0);
	}
	await(*state, 0);
	for (int i = 0; i < 200; i++) {
		char expected[32];

		snprintf(expected, sizeof(expected), "out %d\n", i);
		assert_string_equal(runs[i].out[0], expected);
		snprintf(expected, sizeof(expected), "err %d\n", i);
		assert_string_equal(runs[i].out[1], expected);
		assert_int_equal(runs[i].exit.code, i % 100);
		finish(&runs[i]);
	}
}

static int count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* What the first command opens for all that come after it is open. */
static void before_end(struct fixture *f)
{
	struct run run = {0};

	RUN(f, &run, "true");
	finish(&run);
}

static void five_hundred_commands_leave_no_descriptor(void **state)
{
	int before;

	before_end(*state);
	before = count_descriptors();
	for (int i = 0; i < 50; i++) {
		struct run runs[10] = {0};

		for (int k = 0; k < 10; k++)
			assert_int_equal(start(*state, &runs[k],
			                       (char *[]){k == 9 ? "no-such" : "true", NULL}),
			                 0);
		await(*state, 0);
		for (int k = 0; k < 10; k++)
			finish(&runs[k]);
	}
	before_end(*state);
	assert_int_equal(count_descriptors(), before);
}

/* --- deaths
 * -----------------------------------------------------------------------------------------------
 */

static pid_t spawner_pid(void)
{
	pid_t found = -1;
	DIR *dir = opendir("/proc");
	struct dirent *e;

	while ((e = readdir(dir))) {
		char path[300], comm[32] = "", *end;
		int pid = atoi(e->d_name), parent = 0;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		file = pid > 0 ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		if (fgets(path, sizeof(path), file) && (end = strrchr(path, ')'))) {
			sscanf(path, "%*d (%31[^)]", comm);
			sscanf(end + 1, " %*c %d", &parent);
		}
		fclose(file);
		/* The kernel keeps 15 bytes of a name. */
		if (parent == getpid() && strcmp(comm, "sandboxfs-runne") == 0)
			found = pid;
	}
	closedir(dir);
	MUST(found > 0); /* what is sent to -1 is sent to everybody */
	return found;
}

struct rights {
	struct __user_cap_header_struct head;
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
};

/* Nothing in force of what is allowed: a limit holds for root too. */
static void lay_down_rights(void *data)
{
	struct rights *r = data, none;

	r->head.version = _LINUX_CAPABILITY_VERSION_3;
	MUST(syscall(SYS_capget, &r->head, r->sets) == 0);
	none = *r;
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		none.sets[i].effective = 0;
	MUST(syscall(SYS_capset, &none.head, none.sets) == 0);
}

static void take_up_rights(void *data)
{
	struct rights *r = data;

	MUST(syscall(SYS_capset, &r->head, r->sets) == 0);
}

/* So many descriptors under way that their limit for the user is reached, below what is open. */
static void fill_with_descriptors(int sock, rlim_t limit)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(250 * sizeof(int))];
	} control = {0};
	char byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(250 * sizeof(int));
	for (int i = 0; i < 250; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &sock, sizeof(int));
	for (rlim_t n = 0; n <= limit; n += 250)
		assert_int_equal(sendmsg(sock, &msg, MSG_DONTWAIT), 1);
}

static void a_command_that_cannot_be_handed_over_fails(void **state)
{
	enum { N = 40 };
	static struct run runs[N];
	static char word[12 * 1024];
	const pid_t spawner = spawner_pid();
	struct fixture *f = *state;
	struct rights rights = {0};
	struct rlimit was, few = {.rlim_cur = 240};
	int pair[2], failed = 0;
	siginfo_t info;

	assert_int_equal(kill(spawner, SIGSTOP), 0);
	assert_int_equal(waitid(P_PID, (id_t)spawner, &info, WSTOPPED), 0);
	memset(word, 'x', sizeof(word) - 1);
	for (int i = 0; i < N; i++)
		assert_int_equal(start(f, &runs[i], (char *[]){"echo", word, NULL}), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few.rlim_max = was.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	fill_with_descriptors(pair[0], few.rlim_cur);
	sbx_loop_post(f->loop, lay_down_rights, &rights);
	assert_int_equal(kill(spawner, SIGCONT), 0);
	await(f, 0);
	setrlimit(RLIMIT_NOFILE, &was);
	sbx_loop_post(f->loop, take_up_rights, &rights);
	close(pair[0]);
	close(pair[1]);
	for (int i = 0; i < N; i++) {
		failed += runs[i].exit.end == SBX_END_FAILED;
		if (runs[i].exit.end == SBX_END_FAILED)
			assert_failed(&runs[i], EAGAIN, "cannot start echo");
		else
			finish(&runs[i]);
	}
	assert_true(failed > 0 && failed < N);
	before_end(f);
}

static void when_the_spawner_dies_jobs_are_lost_and_exec_says_so(void **state)
{
	struct fixture *f = *state;
	struct run run = {0}, more = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int p[2];
	char c;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	run.spec.stdin_fd = p[1];
	assert_int_equal(start(f, &run, (char *[]){"sleep", "1000", NULL}), 0);
	close(p[1]);
	assert_int_equal(kill(spawner_pid(), SIGKILL), 0);
	await(f, 0);
	assert_int_equal(run.exit.end, SBX_END_LOST);
	/* Of a job that was just being started the end may come a moment later. */
	assert_int_equal(read(p[0], &c, 1), 0);
	finish(&run);
	close(p[0]);
	more.spec.env = default_env;
	more.spec.argv = default_env;
	assert_int_equal(sbx_spawner_exec(f->sp, &f->place, &more.spec, &more.job, &err), -ESRCH);
	assert_string_equal(err.text, "the process that runs commands has died");
	assert_null(more.job.part);
}

/* Plays a daemon that will be killed: a spawner with a job that holds fd 0 open. */
static int play_daemon(void)
{
	struct fixture f = {0};
	struct run run = {.f = &f,
	                  .job.events = &events,
	                  .spec = {.stdin_fd = 0, .cwd = "", .env = default_env}};
	char *argv[] = {self, "daemonise-and-stay", NULL};
	char *ro[] = {self, NULL};

	make_dir(&f);
	f.settings.isolation = isolation;
	f.settings.net = "none";
	f.settings.ro_paths = (struct sbx_strings){.items = ro, .n = 1};
	MUST(sbx_spawner_start(&f.settings, &f.sp, NULL) == 0);
	MUST(sbx_loop_create(&f.loop) == 0);
	MUST(sbx_spawner_attach(f.sp, f.loop) == 0);
	run.spec.argv = argv;
	pthread_mutex_init(&f.lock, NULL);
	MUST(dprintf(1, "%s\n", f.dir) > 0);
	MUST(sbx_spawner_exec(f.sp, &f.place, &run.spec, &run.job, NULL) == 0);
	sbx_loop_run(f.loop);
	return 0;
}

static void killing_the_daemon_leaves_no_process(void **state)
{
	char dir[64] = "", up[32] = "";
	int hold[2], out[2];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		dup2(hold[1], 0);
		dup2(out[1], 1);
		execl(self, self, "daemon", isolation, NULL);
		_exit(127);
	}
	close(hold[1]);
	close(out[1]);
	/* The job writes into the pipe it holds when all its processes are there. */
	assert_true(read(hold[0], up, sizeof(up)) > 0);
	assert_true(read(out[0], dir, sizeof(dir) - 1) > 0);
	dir[strcspn(dir, "\n")] = 0;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(read(hold[0], up, sizeof(up)), 0); /* waits for the last holder */
	close(hold[0]);
	close(out[0]);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void stop_ends_running_jobs(void **state)
{
	struct fixture *f = *state;
	struct run run = {0};
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	run.spec.stdin_fd = p[1];
	assert_int_equal(start(f, &run, (char *[]){"sleep", "1000", NULL}), 0);
	close(p[1]);
	stop_loop(f);
	assert_true(run.ended);
	assert_nobody_holds(p[0]);
	close(p[0]);
	assert_int_equal(sbx_spawner_start(&f->settings, &f->sp, NULL), 0);
	start_loop(f);
}

static char *policy_member(struct fixture *f, const char *name)
{
	struct json_object *obj = json_object_new_object(), *iso, *value;
	char *text;

	sbx_spawner_policy(f->sp, obj);
	assert_true(json_object_object_get_ex(obj, "isolation", &iso));
	if (!json_object_object_get_ex(iso, name, &value))
		assert_true(json_object_object_get_ex(obj, name, &value));
	text = strdup(json_object_get_string(value));
	json_object_put(obj);
	return text;
}

static bool policy_is(struct fixture *f, const char *name, const char *value)
{
	char *text = policy_member(f, name);
	bool same = strcmp(text, value) == 0;

	free(text);
	return same;
}

static void policy_tells_what_is_in_force(void **state)
{
	struct fixture *f = *state;

	if (strcmp(isolation, "none") == 0) {
		assert_true(policy_is(f, "mode", "none"));
		assert_true(policy_is(f, "pid_ns", "false"));
		assert_true(policy_is(f, "network", "host"));
		assert_true(policy_is(f, "reason", "isolation=none"));
		assert_true(policy_is(f, "memory", "address space") ||
		            policy_is(f, "memory", "cgroup"));
	} else if (policy_is(f, "mode", "namespaces")) {
		assert_true(policy_is(f, "user_ns", "true"));
		assert_true(policy_is(f, "pid_ns", "true"));
		assert_true(policy_is(f, "mount_ns", "true"));
		assert_true(policy_is(f, "no_capabilities", "true"));
		assert_false(policy_is(f, "run_as", "0"));
		assert_true(policy_is(f, "memory", "watched") || policy_is(f, "memory", "cgroup"));
	}
	assert_false(policy_is(f, "cgroup", ""));
}

/* --- the view
 * ------------------------------------------------------------------------------------------- */

/* cmocka's own skip() is a failure in the TAP that meson reads. */
static bool has_view(struct fixture *f)
{
	if (policy_is(f, "mode", "namespaces"))
		return true;
	print_message("# skipped, no view: %s\n", policy_member(f, "reason"));
	return false;
}

/* The shadow of a sanitizer takes more memory, and its threads more processes, than such a limit
 * leaves. */
static bool has_room_for_limits(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	const bool watched = true;
#else
	const bool watched = false;
#endif

	if (watched)
		print_message("# skipped: a sanitizer needs the room itself\n");
	return !watched && has_view(*state);
}

static void assert_script(struct fixture *f, const char *script, const char *expected)
{
	struct run run = {0};

	RUN(f, &run, "sh", "-c", (char *)script);
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	if (run.len[1])
		print_message("%s", run.out[1]);
	assert_string_equal(run.out[0] ? run.out[0] : "", expected);
	finish(&run);
}

static void the_view_shows_the_tree_and_not_what_lies_beside_it(void **state)
{
	struct fixture *f = *state;
	char script[1024];

	if (!has_view(f))
		return;
	put_file(f, "file", "content", 0644);
	put_file(f, "../secret", "secret", 0644);
	snprintf(script, sizeof(script),
	         "cat file; echo; ls -A %s | tr '\\n' ' '; echo written > new; cat %s/new;"
	         "echo x > %s/homefile && echo home; ls /root /home 2>/dev/null; ls -A "
	         "/proc/1/root 2>/dev/null;"
	         "ls / | tr '\\n' ' '",
	         f->dir, f->tree, f->rw);
	assert_script(f, "cat file", "content");
	{
		struct run run = {0};

		RUN(f, &run, "sh", "-c", script);
		assert_non_null(strstr(run.out[0], "content\nhome tree written\nhome\n"));
		assert_null(strstr(run.out[0], "secret"));
		assert_null(strstr(run.out[0], "root"));
		finish(&run);
	}
}

static void the_tree_is_seen_at_the_path_of_the_mount(void **state)
{
	struct fixture *f = *state;
	struct run run = {.spec.cwd = "sub"};
	char sub[128];

	if (!has_view(f))
		return;
	snprintf(sub, sizeof(sub), "%s/sub", f->tree);
	mkdir(sub, 0755);
	f->place.view = "/nowhere/mnt/one";
	RUN(f, &run, "sh", "-c", "pwd; echo a > f; cat /nowhere/mnt/one/sub/f");
	assert_string_equal(run.out[0], "/nowhere/mnt/one/sub\na\n");
	finish(&run);
	/* The sandbox is renamed. */
	f->place.view = "/nowhere/mnt/two";
	assert_script(f, "pwd; ls /nowhere/mnt", "/nowhere/mnt/two\ntwo\n");
}

static void the_system_is_read_only(void **state)
{
	if (!has_view(*state))
		return;
	assert_script(*state,
	              "for d in / /usr /etc /usr/bin /dev /proc/sys/kernel; do"
	              " touch $d/.probe 2>/dev/null && echo $d; done; echo none",
	              "none\n");
	assert_script(*state,
	              "while read -r _ _ _ _ at opts _; do case $at in /usr|/etc|/opt)"
	              " case $opts in ro,nosuid,nodev*) ;; *) echo $at $opts;; esac; esac; done"
	              " < /proc/self/mountinfo",
	              "");
}

static void the_host_and_the_mount_are_not_among_the_mounts(void **state)
{
	const struct fixture *f = *state;
	char script[PATH_MAX + 512];

	if (!has_view(*state))
		return;
	/* The only things shown from elsewhere are the sandbox's own and this program. */
	snprintf(script, sizeof(script),
	         "while read -r _ _ _ _ at _; do case $at in"
	         " /|/usr*|/bin|/sbin|/lib*|/etc*|/opt*|/nix|/dev*|/proc|/tmp) ;;"
	         " '%s'|'%s'|'%s') ;;"
	         " *) echo $at;; esac; done < /proc/self/mountinfo",
	         f->tree, f->rw, self);
	assert_script(*state, script, "");
}

static void processes_of_the_host_are_not_seen(void **state)
{
	if (!has_view(*state))
		return;
	assert_script(*state,
	              "set -- /proc/[0-9]*; [ $# -le 2 ] && echo few; echo $$; kill -0 -1 "
	              "2>/dev/null || echo alone",
	              "few\n2\nalone\n");
}

static void tmp_and_shm_are_the_sandboxs_own(void **state)
{
	struct fixture *f = *state;

	if (!has_view(f))
		return;
	assert_script(f, "echo 1 > /tmp/mine; echo 2 > /dev/shm/mine", "");
	assert_script(f, "cat /tmp/mine /dev/shm/mine /var/tmp/mine", "1\n2\n1\n");
	assert_int_equal(access("/tmp/mine", F_OK), -1);
	f->place.id = "two";
	assert_script(f, "ls /tmp/mine /dev/shm/mine 2>/dev/null", "");
	f->place.id = "one";
	assert_script(f, "cat /tmp/mine", "1\n");
	sbx_spawner_forget(f->sp, "one");
	assert_script(f, "ls /tmp/mine 2>/dev/null", "");
}

static void files_in_memory_are_limited_as_memory_is(void **state)
{
	struct fixture *f = *state;

	/* A cgroup counts them too, and would end the command. */
	if (!has_view(f) || policy_is(f, "memory", "cgroup"))
		return;
	stop_loop(f);
	f->settings.limits.memory_mb = 1;
	assert_int_equal(sbx_spawner_start(&f->settings, &f->sp, NULL), 0);
	start_loop(f);
	assert_script(f,
	              "for d in /tmp /dev/shm; do head -c 3000000 /dev/zero 2>/dev/null >$d/big || "
	              "wc -c <$d/big; done",
	              "1048576\n1048576\n");
}

static void devices_work(void **state)
{
	if (!has_view(*state))
		return;
	assert_script(*state,
	              "echo x > /dev/null; head -c 3 /dev/zero | od -An -tx1; head -c 8 "
	              "/dev/urandom | wc -c;"
	              "echo out > /dev/stdout; echo in | cat /dev/stdin; echo a > /dev/full "
	              "2>/dev/null || echo full;"
	              "ls /dev | tr '\\n' ' '",
	              " 00 00 00\n8\nout\nin\nfull\n"
	              "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ");
}

static void there_is_no_network_but_loopback(void **state)
{
	if (!has_view(*state))
		return;
	if (!policy_is(*state, "network", "none"))
		return;
	assert_script(*state,
	              "tail -n +3 /proc/net/dev | while read -r name _; do echo $name; done |"
	              " grep -v -e tunl0 -e sit0 -e ip6tnl0 -e gre -e erspan -e ip_vti -e ip6_vti "
	              "-e teql",
	              "lo:\n");
	assert_script(*state, "cat /proc/net/route | wc -l", "1\n");
}

static void ro_paths_are_read_only_and_hidden_paths_empty(void **state)
{
	struct fixture *f = *state;
	char ro[160], hidden[160], script[512];
	char *items[] = {ro, "/no/such/path", NULL}, *hide[] = {hidden, "/etc/passwd", NULL};
	const char *place_ro[] = {ro, NULL};

	if (!has_view(f))
		return;
	snprintf(ro, sizeof(ro), "%s/given", f->dir);
	snprintf(hidden, sizeof(hidden), "%s/hidden", f->tree);
	mkdir(ro, 0777);
	mkdir(hidden, 0755);
	put_file(f, "../given/file", "given", 0666);
	put_file(f, "hidden/file", "hidden", 0644);
	stop_loop(f);
	f->settings.ro_paths = (struct sbx_strings){.items = items, .n = 2};
	f->settings.hide_paths = (struct sbx_strings){.items = hide, .n = 2};
	assert_int_equal(sbx_spawner_start(&f->settings, &f->sp, NULL), 0);
	start_loop(f);
	snprintf(script, sizeof(script),
	         "cat %s/file; (echo x > %s/file) 2>/dev/null || echo -ro; ls hidden; cat "
	         "/etc/passwd",
	         ro, ro);
	assert_script(f, script, "given-ro\n");
	f->place.ro = place_ro;
	assert_script(f, script, "given-ro\n");
}

static void what_is_shown_is_visible_without_its_neighbours(void **state)
{
	struct fixture *f = *state;
	char script[512], dir[160];
	static const char *const tools[] = {"user/tool/bin", "user/tool/lib", "user/.local/bin",
	                                    "user/.cloud/bin"};
	static const char *const dirs[] = {
	        "user",           "user/tool",       "user/tool/bin",     "user/tool/lib",
	        "user/.local",    "user/.local/bin", "user/.local/share", "user/.cloud",
	        "user/.cloud/bin"};

	if (!has_view(f))
		return;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(dirs); i++) {
		snprintf(dir, sizeof(dir), "%s/%s", f->dir, dirs[i]);
		assert_int_equal(mkdir(dir, 0755), 0);
	}
	put_file(f, "../user/tool/bin/a-tool", "#!/bin/sh\ncat ${0%/*}/../lib/data\n", 0755);
	put_file(f, "../user/tool/lib/data", "data\n", 0644);
	put_file(f, "../user/.local/bin/b-tool", "#!/bin/sh\necho b\n", 0755);
	put_file(f, "../user/.local/share/keyring", "secret\n", 0644);
	put_file(f, "../user/.cloud/bin/c-tool", "#!/bin/sh\necho c\n", 0755);
	put_file(f, "../user/.cloud/token", "secret\n", 0644);
	stop_loop(f);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(tools); i++) {
		snprintf(dir, sizeof(dir), "%s/%s", f->dir, tools[i]);
		assert_int_equal(sbx_strings_add(&f->settings.shown, dir), 0);
	}
	f->settings.state_dir = NULL;
	assert_int_equal(sbx_spawner_start(&f->settings, &f->sp, NULL), 0);
	start_loop(f);
	snprintf(script, sizeof(script),
	         "cd %s/user; PATH=$PATH:$PWD/tool/bin:$PWD/.local/bin:$PWD/.cloud/bin; a-tool; "
	         "b-tool; c-tool;"
	         "ls .local .cloud",
	         f->dir);
	assert_script(f, script, "data\nb\nc\n.cloud:\nbin\n\n.local:\nbin\n");
	sbx_strings_release(&f->settings.shown);
}

/* --- where namespaces are forbidden
 * ---------------------------------------------------------------------- */

static bool landlock_works(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0;
}

static int write_number(const char *path, const char *number)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, number, strlen(number)) < 0 ? -1 : 0;
}

/*
 * A user namespace without another below it. In it we keep our number, which is not root's, and the
 * right to make namespaces over an execve. False: that is not to be had here.
 */
static bool enter_last_namespace(void)
{
	const unsigned uid = geteuid(), gid = getegid(), not_root = uid ? uid : 65534;
	struct rights r = {.head.version = _LINUX_CAPABILITY_VERSION_3};
	char map[64];

	if (unshare(CLONE_NEWUSER) < 0)
		return false;
	snprintf(map, sizeof(map), "%u %u 1", not_root, uid);
	if (write_number("/proc/self/uid_map", map) < 0 ||
	    write_number("/proc/self/setgroups", "deny") < 0)
		return false;
	snprintf(map, sizeof(map), "%u %u 1", gid ? gid : 65534, gid);
	if (write_number("/proc/self/gid_map", map) < 0 ||
	    write_number("/proc/sys/user/max_pid_namespaces", "0") < 0)
		return false;
	MUST(syscall(SYS_capget, &r.head, r.sets) == 0);
	r.sets[0].inheritable |= 1u << CAP_SYS_ADMIN;
	MUST(syscall(SYS_capset, &r.head, r.sets) == 0);
	MUST(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0) == 0);
	return true;
}

static int forbidden_namespaces(void)
{
	struct sbx_settings settings = {.isolation = "require", .net = "none"};
	struct sbx_error err = SBX_ERROR_INIT;
	struct fixture f = {0};

	if (!enter_last_namespace())
		return 77;
	if (sbx_spawner_start(&settings, &f.sp, &err) != -EPERM ||
	    !strstr(err.text, "pid namespaces cannot be made"))
		return 1;
	settings.isolation = "auto";
	settings.net = "allow:example.org";
	if (sbx_spawner_start(&settings, &f.sp, &err) != -EPERM ||
	    !strstr(err.text, "net=allow needs a network namespace"))
		return 4;
	settings.net = "none";
	if (sbx_spawner_start(&settings, &f.sp, &err) != 0)
		return 2;
	if (!policy_is(&f, "mode", landlock_works() ? "landlock" : "subreaper"))
		return 3;
	sbx_spawner_stop(f.sp);
	return 0;
}

/* 0, or the number of the first check that failed. */
static int try_landlock_alone(struct fixture *f, const char *script)
{
	struct run run = {0};
	int r = 0;

	if (start(f, &run, (char *[]){"sh", "-c", (char *)script, NULL}) < 0)
		return 10;
	await(f, 0);
	if (run.exit.end != SBX_END_EXITED || run.exit.code != 0)
		r = 11 + run.exit.code;
	else if (!strstr(run.denied, "namespaces/unshare/unshare "))
		r = 9;
	if (r)
		fprintf(stderr, "%s %s\n", run.exit.error.text, run.out[1] ? run.out[1] : "");
	finish(&run);
	return r;
}

static int landlock_alone(struct fixture *f)
{
	char script[1024];

	if (!landlock_works() || !enter_last_namespace())
		return 77;
	if (sbx_spawner_start(&f->settings, &f->sp, NULL) < 0)
		return 1;
	start_loop(f);
	snprintf(script, sizeof(script),
	         "echo x > mine || exit 1; cat mine > /dev/null || exit 2;"
	         "exec 2>/dev/null; (echo x > /tmp/not-mine-%d) && exit 3; ls %s && exit 4;"
	         "kill -0 %d && exit 5; cat /proc/%d/environ && exit 6;"
	         "(echo x > %s/mine) || exit 7; ls /tmp && exit 8; unshare -U true && exit 9;"
	         "exit 0",
	         getpid(), f->dir, getpid(), getpid(), f->rw);
	return try_landlock_alone(f, script);
}

static void landlock_alone_keeps_a_command_in_its_tree(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid;

	stop_loop(f);
	pid = fork();
	if (pid == 0)
		_exit(landlock_alone(f));
	waitpid(pid, &status, 0);
	assert_int_equal(sbx_spawner_start(&f->settings, &f->sp, NULL), 0);
	start_loop(f);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("# skipped: namespaces cannot be forbidden here\n");
		return;
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_refused_call_is_told(void **state)
{
	struct run run = {0};

	if (!has_view(*state))
		return;
	/* The shell is named where init may not look at its child. */
	RUN(*state, &run, "sh", "-c", "unshare -U true; exit 3");
	assert_int_equal(run.exit.code, 3);
	if (strcmp(run.denied, "namespaces/unshare/sh ") != 0)
		assert_string_equal(run.denied, "namespaces/unshare/unshare ");
	finish(&run);
}

static void many_refused_calls_are_told_by_their_number(void **state)
{
	struct run run = {0};

	if (!has_view(*state))
		return;
	RUN(*state, &run, self, "refused");
	assert_int_equal(run.exit.code, 0);
	assert_true(run.told > 0 && run.told < 500);
	assert_int_equal(run.told + run.more, 1000);
	finish(&run);
}

static void a_command_has_no_right(void **state)
{
	struct run run = {0};

	if (!has_view(*state))
		return;
	RUN(*state, &run, "sh", "-c",
	    "while read -r key rest; do case $key in Cap*|NoNewPrivs:|Seccomp:) echo $rest;; esac;"
	    " done < /proc/self/status | tr '\\n' ' '");
	assert_string_equal(run.out[0], "0000000000000000 0000000000000000 0000000000000000 "
	                                "0000000000000000 0000000000000000 1 2 ");
	finish(&run);
	put_file(*state, "owned", "", 0600);
	assert_script(*state, "test -O owned && echo x >> owned && echo mine", "mine\n");
	assert_script(*state, "cat /etc/shadow 2>/dev/null; echo none", "none\n");
	assert_script(*state,
	              "(echo x > /proc/sys/kernel/core_pattern) 2>/dev/null || echo refused",
	              "refused\n");
}

/* Four processes of 24 MiB each: none of them alone has too much. */
static void memory_is_limited_for_the_job_as_a_whole(void **state)
{
	static const char *const kinds[] = {"own", "hidden", "headless", "unwatched",
	                                    "shared-memory"};

	if (!has_room_for_limits(state))
		return;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(kinds); i++) {
		struct run run = {.spec.limits.memory_mb = 64};

		RUN(*state, &run, self, "hoard", (char *)kinds[i]);
		assert_int_equal(run.exit.end, SBX_END_OOM);
		assert_int_equal(run.exit.code, SIGKILL);
		finish(&run);
	}
}

static void pages_shared_after_a_fork_count_once(void **state)
{
	struct run run = {.spec.limits.memory_mb = 64};

	if (!has_room_for_limits(state))
		return;
	RUN(*state, &run, self, "hoard", "inherited");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_string_equal(run.out[0], "kept\n");
	finish(&run);
}

/* A kernel before 6.9 lets only root say so. */
static void shared_memory_that_nobody_uses_is_gone(void **state)
{
	struct run run = {0};

	if (!has_view(*state))
		return;
	RUN(*state, &run, "sh", "-c",
	    "read forced </proc/sys/kernel/shm_rmid_forced; exit $forced");
	if (geteuid() != 0 && run.exit.code == 0) {
		finish(&run);
		return;
	}
	assert_int_equal(run.exit.code, 1);
	finish(&run);
	RUN(*state, &run, self, "leave");
	assert_string_equal(run.out[0], "left\n");
	finish(&run);
	assert_script(*state, "wc -l </proc/sysvipc/shm", "1\n");
}

static void memory_lent_to_a_child_counts_once(void **state)
{
	struct run run = {.spec.limits.memory_mb = 64};

	if (!has_room_for_limits(state))
		return;
	RUN(*state, &run, self, "lend");
	assert_int_equal(run.exit.end, SBX_END_EXITED);
	assert_string_equal(run.out[0], "kept\n");
	finish(&run);
}

/* The leader that waits for the next command may count as one. */
static void there_are_never_more_than_procs(void **state)
{
	struct run run = {.spec.limits.procs = 10};

	if (!has_room_for_limits(state))
		return;
	RUN(*state, &run, self, "breed");
	if (strcmp(run.out[0], "8 EAGAIN\n") != 0)
		assert_string_equal(run.out[0], "9 EAGAIN\n");
	finish(&run);
}

static void root_is_refused_as_run_as(void **state)
{
	struct sbx_settings settings = {.isolation = "auto", .run_as = "root"};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_spawner *sp = NULL;

	(void)state;
	assert_int_equal(sbx_spawner_start(&settings, &sp, &err), -EINVAL);
	assert_non_null(strstr(err.text, "commands never run as root"));
	settings.run_as = "no-such-user";
	assert_int_equal(sbx_spawner_start(&settings, &sp, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no such user"));
	settings.run_as = "1:1";
	if (geteuid()) {
		assert_int_equal(sbx_spawner_start(&settings, &sp, &err), -EPERM);
		assert_non_null(strstr(err.text, "made by root"));
	}
}

static void without_namespaces_require_refuses_and_auto_says_why(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(forbidden_namespaces());
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("# skipped: namespaces cannot be forbidden here\n");
		return;
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_place_that_cannot_be_shown_fails_the_command(void **state)
{
	struct fixture *f = *state;
	struct run run = {0};

	if (!has_view(f))
		return;
	f->place.workdir = "/no/such/tree";
	RUN(f, &run, "true");
	assert_failed(&run, ENOENT, "namespaces");
}

/* --- one after another in the same init
 * ------------------------------------------------------------ */

static void assert_same_output(struct fixture *f, char *script, char *between)
{
	struct run first = {0}, again = {0}, other = {0};

	RUN(f, &first, "sh", "-c", script);
	RUN(f, &other, self, between);
	RUN(f, &again, "sh", "-c", script);
	assert_int_equal(first.exit.end, SBX_END_EXITED);
	assert_int_equal(other.exit.end, SBX_END_EXITED);
	assert_int_equal(other.exit.code, 0);
	assert_int_equal(again.exit.end, SBX_END_EXITED);
	assert_true(first.out[0] && again.out[0]);
	assert_string_equal(first.out[0], again.out[0]);
	finish(&first);
	finish(&other);
	finish(&again);
}

static void an_init_serves_again_and_nothing_shows_it_but_the_namespace(void **state)
{
	struct fixture *f = *state;

	if (!has_view(f) || policy_is(f, "memory", "cgroup"))
		return;
	assert_same_output(f, "readlink /proc/self/ns/pid", "fork");
	assert_same_output(f, "echo $$; sh -c 'echo $$'; ls /proc/self/fd", "fork");
	assert_same_output(f, "cut -d' ' -f1,2,4-6 /proc/[0-9]*/stat", "fork");
	assert_same_output(f,
	                   "grep -E '^(.id|Groups|NS|Cap|NoNew|Seccomp|SigBlk|SigIgn|Cpus.*list):' "
	                   "/proc/self/status",
	                   "fork");
}

/* The children of a process of one thread. */
static size_t children(pid_t pid, pid_t *last)
{
	char path[64];
	FILE *f;
	size_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fscanf(f, "%d", last) == 1)
		n++;
	fclose(f);
	return n;
}

static void not_all_inits_of_a_rush_are_kept(void **state)
{
	const uint64_t until = sbx_now_ns() + UINT64_C(20000000000);
	static struct run runs[60];
	struct fixture *f = *state;
	pid_t spawner = 0, last;
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	for (int i = 0; i < 60; i++) {
		runs[i].spec.stdin_fd = p[0];
		assert_int_equal(start(f, &runs[i], (char *[]){"cat", NULL}), 0);
	}
	close(p[0]);
	close(p[1]); /* all of them end */
	await(f, 0);
	for (int i = 0; i < 60; i++)
		finish(&runs[i]);
	assert_int_equal(children(getpid(), &spawner), 1);
	while (children(spawner, &last) > 32 && sbx_now_ns() < until)
		sched_yield();
	assert_true(children(spawner, &last) <= 32);
	assert_script(f, "echo $$", "2\n");
}

static void what_a_command_did_to_init_is_not_the_next_ones(void **state)
{
	if (!has_view(*state))
		return;
	assert_same_output(*state, "ulimit -n; nice; grep allowed_list /proc/self/status",
	                   "meddle");
	assert_same_output(*state, "ulimit -a", "meddle");
}

static void after_a_kill_and_a_failed_start_the_next_one_runs(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 20; i++) {
		struct run killed = {.signal_at_output = SIGKILL}, none = {0};

		RUN(f, &killed, self, "linger");
		assert_int_equal(killed.exit.end, SBX_END_SIGNALED);
		RUN(f, &none, "no-such-program");
		assert_failed(&none, ENOENT, "not found");
		assert_script(f, "echo $(echo well)", "well\n");
		finish(&killed);
	}
}

static void a_killed_command_is_not_charged_for_those_before_it(void **state)
{
	struct run busy = {0}, killed = {.signal_at_output = SIGKILL};

	RUN(*state, &busy, "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done");
	RUN(*state, &killed, self, "linger");
	assert_true(killed.exit.user_us + killed.exit.sys_us <
	            busy.exit.user_us + busy.exit.sys_us);
	finish(&busy);
	finish(&killed);
}

/* --- the commands this program plays
 * -------------------------------------------------------------------- */

static int play_flood(void)
{
	static unsigned char buf[2][4096];

	for (size_t at = 0; at < 1024 * 1024; at += sizeof(buf[0])) {
		for (size_t i = 0; i < sizeof(buf[0]); i++) {
			buf[0][i] = pattern(at + i);
			buf[1][i] = (unsigned char)(buf[0][i] + 1);
		}
		for (int s = 0; s < 2; s++)
			if (write(s + 1, buf[s], sizeof(buf[s])) != sizeof(buf[s]))
				return 1;
	}
	return 0;
}

static int play_fds(void)
{
	for (int fd = 0; fd < 1000; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("%d ", fd);
	return 0;
}

static int play_state(void)
{
	sigset_t set;
	int blocked = 0, ignored = 0;
	struct sigaction sa;

	if (getsid(0) == getpid())
		printf("session ");
	if (getpgid(0) == getpid())
		printf("group ");
	sigprocmask(SIG_SETMASK, NULL, &set);
	for (int sig = 1; sig <= SIGRTMAX; sig++) {
		blocked += sigismember(&set, sig) == 1;
		ignored += sigaction(sig, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN;
	}
	printf("blocked=%d ignored=%d umask=%o nnp=%d core=%d ", blocked, ignored, umask(0),
	       prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_PDEATHSIG, &ignored) < 0);
	return 0;
}

/* A double-forked, setsid-ed process that ignores what can be ignored, and holds fd 0. */
static int play_daemonise(bool stay)
{
	int ready[2];
	char c;

	if (pipe(ready) < 0)
		return 1;
	if (fork() == 0) {
		setsid();
		if (fork() == 0) {
			for (int sig = 1; sig <= SIGRTMAX; sig++)
				signal(sig, SIG_IGN);
			close(1);
			close(2);
			if (write(ready[1], "r", 1) != 1 || (stay && write(0, "up", 2) != 2))
				_exit(1);
			for (;;)
				pause();
		}
		_exit(0);
	}
	if (read(ready[0], &c, 1) != 1)
		return 1;
	if (stay)
		for (;;)
			pause();
	printf("daemon is there\n");
	return 5;
}

static int play_linger(void)
{
	if (fork() == 0) {
		setsid();
		signal(SIGTERM, SIG_IGN);
		if (fork() == 0)
			for (;;)
				pause();
		for (;;)
			pause();
	}
	if (write(1, "here\n", 5) != 5)
		return 1;
	for (;;)
		pause();
}

static void *take(size_t size, int flags)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

	if (at == MAP_FAILED)
		_exit(9);
	return memset(at, 'x', size);
}

/* A parent and its children have MIBs; says that it may keep them when nobody has minded for a
 * while. */
static void *hold(void *data)
{
	take(*(const size_t *)data, MAP_PRIVATE);
	for (;;)
		pause();
	return NULL;
}

/* The first of a process's threads ends, another has its memory. */
static void hold_headless(size_t size)
{
	static size_t of_thread;
	pthread_t thread;

	of_thread = size;
	MUST(pthread_create(&thread, NULL, hold, &of_thread) == 0);
	syscall(SYS_exit, 0);
}

/* Init, without a descriptor to look by, and seldom in turn. */
static void hinder_init(void)
{
	const struct rlimit none = {0};
	const struct sched_param idle = {0};

	prlimit(1, RLIMIT_NOFILE, &none, NULL);
	sched_setscheduler(1, SCHED_IDLE, &idle);
}

/* A child runs in the memory of its parent until it executes. */
static int play_lend(void)
{
	const struct timespec looks = {.tv_nsec = 450000000};
	pid_t pid;

	take((size_t)40 << 20, MAP_PRIVATE);
	pid = vfork();
	if (pid == 0) {
		nanosleep(&looks, NULL);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	printf("kept\n");
	return 0;
}

static int play_leave(void)
{
	const int kept = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	const int used = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	void *at = used < 0 ? NULL : shmat(used, NULL, 0);

	if (kept < 0 || !at || at == (void *)-1 || shmdt(at) < 0)
		return 1;
	printf("left\n");
	return 0;
}

static int play_hoard(const char *kind)
{
	const struct timespec looks = {.tv_nsec = 450000000};
	const bool inherited = !strcmp(kind, "inherited");
	const size_t size = (size_t)24 << 20;

	if (!strcmp(kind, "hidden"))
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (!strcmp(kind, "unwatched"))
		hinder_init();
	if (inherited)
		take(size, MAP_PRIVATE);
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			if (!strcmp(kind, "headless"))
				hold_headless(size);
			if (!inherited)
				take(size,
				     strcmp(kind, "shared-memory") ? MAP_PRIVATE : MAP_SHARED);
			for (;;)
				pause();
		}
	}
	if (!inherited)
		pause();
	nanosleep(&looks, NULL);
	printf("kept\n");
	return 0;
}

static int play_breed(void)
{
	int n = 0;

	for (; n < 100; n++) {
		pid_t pid = fork();

		if (pid == 0)
			pause();
		if (pid < 0)
			break;
	}
	printf("%d %s\n", n, errno == EAGAIN ? "EAGAIN" : "?");
	return 0;
}

static int play_refused(void)
{
	for (int i = 0; i < 1000; i++)
		if (syscall(SYS_keyctl, 0L, 0L, 0L, 0L, 0L) != -1 || errno != EPERM)
			return 1;
	return 0;
}

/* Leaves some process numbers behind. */
static int play_fork(void)
{
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			return 1;
	}
	return 0;
}

/* What a user may change of a process of his, unless it is kept from him; the one only where that
 * has no right more. */
static int play_meddle(void)
{
	const struct rlimit files = {.rlim_cur = 33, .rlim_max = 44};

	setpriority(PRIO_PROCESS, 1, 9);
	return prlimit(1, RLIMIT_NOFILE, &files, NULL) < 0 && errno != EPERM;
}

static int play(char **argv)
{
	if (strcmp(argv[1], "fork") == 0)
		return play_fork();
	if (strcmp(argv[1], "meddle") == 0)
		return play_meddle();
	if (strcmp(argv[1], "refused") == 0)
		return play_refused();
	if (strcmp(argv[1], "flood") == 0)
		_exit(play_flood()); /* what a build for coverage writes at exit is none of it */
	if (strcmp(argv[1], "fds") == 0)
		return play_fds();
	if (strcmp(argv[1], "state") == 0)
		return play_state();
	if (strcmp(argv[1], "daemonise") == 0)
		return play_daemonise(false);
	if (strcmp(argv[1], "daemonise-and-stay") == 0)
		return play_daemonise(true);
	if (strcmp(argv[1], "linger") == 0)
		return play_linger();
	if (strcmp(argv[1], "hoard") == 0)
		return play_hoard(argv[2]);
	if (strcmp(argv[1], "leave") == 0)
		return play_leave();
	if (strcmp(argv[1], "lend") == 0)
		return play_lend();
	if (strcmp(argv[1], "breed") == 0)
		return play_breed();
	isolation = argv[2];
	return play_daemon();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
        CASE(a_command_runs_and_its_output_arrives),
        CASE(the_exit_code_is_reported),
        CASE(a_fatal_signal_is_reported),
        CASE(a_mebibyte_on_each_stream_is_byte_exact),
        CASE(output_that_cannot_be_watched_arrives),
        CASE(output_of_a_child_that_outlives_the_leader_a_moment_is_kept),
        CASE(a_missing_program_is_enoent),
        CASE(a_file_that_is_not_executable_is_eacces),
        CASE(eacces_along_path_is_remembered_but_does_not_end_the_search),
        CASE(a_script_without_first_line_is_enoexec_and_no_shell_runs),
        CASE(a_missing_interpreter_is_named),
        CASE(program_replaces_the_search),
        CASE(arguments_beyond_the_kernels_limit_are_e2big),
        CASE(a_mebibyte_of_arguments_arrives),
        CASE(cwd_is_inside_the_tree),
        CASE(a_missing_cwd_is_enoent_and_a_file_enotdir),
        CASE(a_cwd_that_leads_out_is_eacces),
        CASE(the_environment_is_exactly_what_was_given),
        CASE(no_descriptor_is_inherited),
        CASE(stdin_is_null_unless_given),
        CASE(the_leader_has_a_session_and_default_signals),
        CASE(limits_are_in_force),
        CASE(the_default_of_procs_holds_where_it_can_be_counted),
        CASE(the_cpu_limit_ends_a_busy_command),
        CASE(a_daemonised_child_that_ignores_sigterm_is_dead_at_the_end),
        CASE(a_grandchild_that_holds_the_pipes_delays_nothing),
        CASE(sigkill_ends_everything_and_keeps_the_output),
        CASE(sigterm_reaches_the_leader_and_its_children),
        CASE(a_signal_right_after_the_start_is_not_lost),
        CASE(stop_and_continue_reach_the_job),
        CASE(two_hundred_at_once_are_kept_apart),
        CASE(five_hundred_commands_leave_no_descriptor),
        CASE(a_command_that_cannot_be_handed_over_fails),
        CASE(when_the_spawner_dies_jobs_are_lost_and_exec_says_so),
        CASE(killing_the_daemon_leaves_no_process),
        CASE(stop_ends_running_jobs),
        CASE(policy_tells_what_is_in_force),
};

static const struct CMUnitTest view_tests[] = {
        CASE(a_refused_call_is_told),
        CASE(many_refused_calls_are_told_by_their_number),
        CASE(the_view_shows_the_tree_and_not_what_lies_beside_it),
        CASE(the_tree_is_seen_at_the_path_of_the_mount),
        CASE(the_system_is_read_only),
        CASE(the_host_and_the_mount_are_not_among_the_mounts),
        CASE(processes_of_the_host_are_not_seen),
        CASE(tmp_and_shm_are_the_sandboxs_own),
        CASE(files_in_memory_are_limited_as_memory_is),
        CASE(devices_work),
        CASE(there_is_no_network_but_loopback),
        CASE(ro_paths_are_read_only_and_hidden_paths_empty),
        CASE(what_is_shown_is_visible_without_its_neighbours),
        CASE(a_place_that_cannot_be_shown_fails_the_command),
        CASE(a_command_has_no_right),
        CASE(an_init_serves_again_and_nothing_shows_it_but_the_namespace),
        CASE(not_all_inits_of_a_rush_are_kept),
        CASE(what_a_command_did_to_init_is_not_the_next_ones),
        CASE(after_a_kill_and_a_failed_start_the_next_one_runs),
        CASE(a_killed_command_is_not_charged_for_those_before_it),
        CASE(memory_is_limited_for_the_job_as_a_whole),
        CASE(pages_shared_after_a_fork_count_once),
        CASE(shared_memory_that_nobody_uses_is_gone),
        CASE(memory_lent_to_a_child_counts_once),
        CASE(there_are_never_more_than_procs),
        CASE(landlock_alone_keeps_a_command_in_its_tree),
        cmocka_unit_test(root_is_refused_as_run_as),
        cmocka_unit_test(without_namespaces_require_refuses_and_auto_says_why),
};

int main(int argc, char **argv)
{
	const char *group = getenv("SPAWNER_GROUP");
	int failed;

	self = realpath("/proc/self/exe", NULL);
	if (argc > 1)
		return play(argv);
	/* One group a run: what meson reads has one plan. */
	isolation = group && !strcmp(group, "none") ? "none" : "auto";
	if (group && !strcmp(group, "view"))
		failed = cmocka_run_group_tests_name("the view", view_tests, NULL, NULL);
	else
		failed = cmocka_run_group_tests_name(isolation, tests, NULL, NULL);
	free(self);
	return failed;
}
