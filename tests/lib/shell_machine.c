#include "tests/lib/shell_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

#define LOOK_MS 5

static char sh[] = "sh", dash[] = "dash", bash[] = "bash", posix[] = "--posix", box[] = "busybox";
static char *const with_dash[] = {dash, NULL};
static char *const with_bash[] = {bash, posix, NULL};
static char *const with_busybox[] = {box, sh, NULL};
static char *const with_sh[] = {sh, NULL};
char *const *const shell_machine_shells[] = {with_dash, with_bash, with_busybox, NULL};

struct under_way {
	struct shell_machine *m;
	struct sbx_machine_run *run;
	struct sbx_machine_put *put;
	atomic_bool cancelled;
	bool lose, cut, twice, fail, stall, ended;
	pid_t pid;
	int code;
	char *out;
	size_t len;
};

static bool take(atomic_int *n)
{
	int had = atomic_load(n);

	while (had > 0 && !atomic_compare_exchange_weak(n, &had, had - 1))
		;
	return had > 0;
}

static void append(struct under_way *u, const char *bytes, size_t n)
{
	u->out = realloc(u->out, u->len + n + 1);
	memcpy(u->out + u->len, bytes, n);
	u->len += n;
	u->out[u->len] = '\0';
}

static int spawn(struct under_way *u, int out)
{
	static char option[] = "-c";
	char *const *shell = u->m->shell ? u->m->shell : with_sh;
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char *argv[8];
	int n = 0, r;

	for (; shell[n]; n++)
		argv[n] = shell[n];
	argv[n++] = option;
	argv[n++] = (char *)(uintptr_t)u->run->script;
	argv[n] = NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	posix_spawnattr_init(&attr);
	/* As who runs it ends all that is in its group when the script has ended. */
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setpgroup(&attr, 0);
	r = posix_spawnp(&u->pid, argv[0], &actions, &attr, argv, u->m->env ? u->m->env : environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* Runs the script to the end of its output, or until it is cancelled. */
static void run_once(struct under_way *u)
{
	char buf[65536];
	int ends[2];
	ssize_t n = 1;

	if (pipe2(ends, O_CLOEXEC) < 0 || spawn(u, ends[1]))
		abort();
	close(ends[1]);
	while (n > 0 && !atomic_load(&u->cancelled)) {
		struct pollfd p = {.fd = ends[0], .events = POLLIN};

		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		n = read(ends[0], buf, sizeof(buf));
		if (n > 0)
			append(u, buf, (size_t)n);
	}
	close(ends[0]);
	if (!atomic_load(&u->cancelled)) {
		waitpid(u->pid, NULL, 0);
		kill(-u->pid, SIGKILL);
	}
}

static void told(void *data)
{
	struct under_way *u = data;
	struct shell_machine *m = u->m;
	struct sbx_error err = SBX_ERROR_INIT;
	const bool run = u->run != NULL;

	if (u->code)
		sbx_fail(&err, -u->code, "the test says so: %s", strerror(-u->code));
	if (run)
		u->run->not_run = sbx_machine_not_run(u->code);
	if (run)
		u->run->done(u->run, u->code, u->code ? NULL : u->out, u->len, &err);
	else
		u->put->done(u->put, u->code, &err);
	if (u->code)
		free(u->out);
	free(u);
	atomic_fetch_sub(&m->threads, 1);
}

static void run_script(struct under_way *u)
{
	const int n = atomic_fetch_add(&u->m->at_once, 1) + 1;
	int most = atomic_load(&u->m->most_at_once);

	while (n > most && !atomic_compare_exchange_weak(&u->m->most_at_once, &most, n))
		;
	append(u, "", 0);
	if (u->twice) {
		run_once(u);
		u->len = 0;
	}
	if (u->fail)
		u->code = -u->m->fail_code;
	else
		run_once(u);
	if (u->lose)
		u->code = -EREMOTEIO;
	if (u->cut)
		u->len /= 2;
	while (u->stall && !atomic_load(&u->cancelled))
		usleep(LOOK_MS * 1000);
	if (atomic_load(&u->cancelled))
		u->code = -EINTR;
	atomic_fetch_sub(&u->m->at_once, 1);
}

static void *run_thread(void *data)
{
	struct under_way *u = data;

	usleep((useconds_t)atomic_load(&u->m->delay_ms) * 1000);
	run_script(u);
	sbx_loop_post(u->m->loop, told, u);
	return NULL;
}

static void put_file(struct shell_machine *m, const struct sbx_machine_file *f)
{
	char path[4096], buf[65536];
	uint64_t done = 0;
	FILE *out;

	snprintf(path, sizeof(path), "%s/in", m->machine.room);
	mkdir(m->machine.room, 0700);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/in/%u", m->machine.room, f->number);
	out = fopen(path, "we");
	if (!out)
		abort();
	if (f->bytes.data)
		fwrite(f->bytes.data, 1, f->bytes.size, out);
	while (!f->bytes.data && done < f->bytes.size) {
		ssize_t n = pread(f->bytes.fd, buf, sizeof(buf), (off_t)(f->bytes.offset + done));

		if (n <= 0)
			abort();
		fwrite(buf, 1, (size_t)n, out);
		done += (uint64_t)n;
	}
	fclose(out);
}

static void *put_thread(void *data)
{
	struct under_way *u = data;

	usleep((useconds_t)atomic_load(&u->m->delay_ms) * 1000);
	if (u->fail)
		u->code = -u->m->fail_code;
	else
		for (size_t i = 0; i < u->put->n; i++)
			put_file(u->m, &u->put->files[i]);
	if (atomic_load(&u->cancelled))
		u->code = -EINTR;
	sbx_loop_post(u->m->loop, told, u);
	return NULL;
}

static struct under_way *begin(struct sbx_machine *machine)
{
	struct under_way *u = calloc(1, sizeof(*u));

	u->m = sbx_container_of(machine, struct shell_machine, machine);
	atomic_fetch_add(&u->m->threads, 1);
	return u;
}

static void start(struct under_way *u, void *(*fn)(void *data))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, fn, u))
		abort();
	pthread_detach(thread);
}

static void run(struct sbx_machine *machine, struct sbx_machine_run *r)
{
	struct under_way *u = begin(machine);
	struct shell_machine *m = u->m;

	atomic_fetch_add(&m->runs, 1);
	atomic_fetch_add(&m->held, r->held);
	if (r->script_len > atomic_load(&m->longest))
		atomic_store(&m->longest, r->script_len);
	u->run = r;
	r->part = u;
	u->fail = take(&m->fail);
	if (!u->fail) {
		u->lose = take(&m->lose);
		u->cut = !u->lose && take(&m->cut);
		u->twice = take(&m->twice);
		u->stall = take(&m->stall);
	}
	start(u, run_thread);
}

static void cancel_run(struct sbx_machine *machine, struct sbx_machine_run *r)
{
	(void)machine;
	atomic_store(&((struct under_way *)r->part)->cancelled, true);
}

static void put(struct sbx_machine *machine, struct sbx_machine_put *p)
{
	struct under_way *u = begin(machine);

	atomic_fetch_add(&u->m->puts, 1);
	u->put = p;
	p->part = u;
	u->fail = take(&u->m->fail_puts);
	start(u, put_thread);
}

static void cancel_put(struct sbx_machine *machine, struct sbx_machine_put *p)
{
	(void)machine;
	atomic_store(&((struct under_way *)p->part)->cancelled, true);
}

void shell_machine_init(struct shell_machine *m, const char *dir, struct sbx_loop *loop)
{
	*m = (struct shell_machine){
	        .impl = {.name = "shell",
	                 .can = SBX_PROVIDER_DETACHES | SBX_PROVIDER_PARALLEL,
	                 .run = run,
	                 .cancel_run = cancel_run,
	                 .put = put,
	                 .cancel_put = cancel_put},
	        .loop = loop,
	};
	m->provider.impl = &m->impl;
	m->machine.provider = &m->provider;
	if (asprintf(&m->machine.room, "%s/ro'om", dir) < 0 ||
	    asprintf(&m->machine.workdir, "%s/the tree", dir) < 0)
		abort();
	mkdir(m->machine.workdir, 0755);
}

void shell_machine_finish(struct shell_machine *m)
{
	while (atomic_load(&m->threads))
		usleep(LOOK_MS * 1000);
	free(m->machine.room);
	free(m->machine.workdir);
}
