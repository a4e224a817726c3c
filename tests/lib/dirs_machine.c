/*
 * Machines of the provider dirs as directories, and the processes that are in them: those that work
 * in its directory, have a file of it open, or have its path in their environment. No process that
 * a script starts gets out of all three by chance.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/tree.h"
#include "tests/lib/dirs_impl.h"

#define WORDS_MAX   8
#define ENVIRON_MAX ((size_t)256 * 1024)
#define KILL_ROUNDS 200

enum sbx_machine_state dirs_state(struct dirs *d, const char *name, char *reason, int *code)
{
	_cleanup_free_ char *path = sbx_format("%s/state", name), *text = NULL;
	int n = 0, number = 0;

	*reason = '\0';
	if (!path || sbx_file_read(d->machines, path, 4096, &text) < 0)
		return SBX_MACHINE_GONE;
	text[strcspn(text, "\n")] = '\0';
	if (strcmp(text, "up") == 0)
		return SBX_MACHINE_UP;
	if (strcmp(text, "asleep") == 0)
		return SBX_MACHINE_ASLEEP;
	if (sscanf(text, "failed %d %n", &number, &n) == 1) {
		snprintf(reason, 256, "%s", text + n);
		if (code)
			*code = number;
		return SBX_MACHINE_FAILED;
	}
	return SBX_MACHINE_CHANGING;
}

int dirs_set_state(struct dirs *d, const char *name, const char *text)
{
	_cleanup_fd_ int dir = sbx_dir_open(d->machines, name);

	return dir < 0 ? dir : sbx_file_replace_soon(dir, "state", "state.new", text);
}

/* ---- processes ---- */

/* Whether PATH is TOP, of N bytes, or below it; a file that was removed as well. */
static bool is_within(const char *path, const char *top, size_t n)
{
	return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0' || path[n] == ' ');
}

static bool leads_into(int proc, const char *link, const char *top)
{
	char path[4096];
	ssize_t n = readlinkat(proc, link, path, sizeof(path) - 1);

	if (n < 0)
		return false;
	path[n] = '\0';
	return is_within(path, top, strlen(top));
}

struct search {
	int fds;
	const char *top;
};

static int look_at_descriptor(const char *name, unsigned char type, void *data)
{
	const struct search *s = data;

	(void)type;
	return leads_into(s->fds, name, s->top);
}

static bool has_open(int proc, const char *top)
{
	_cleanup_fd_ int fds = sbx_dir_open(proc, "fd");

	return fds >= 0 && sbx_dir_scan(fds, look_at_descriptor, &(struct search){fds, top}) == 1;
}

static bool has_in_environment(int proc, const char *top)
{
	_cleanup_fd_ int fd = openat(proc, "environ", O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *text = malloc(ENVIRON_MAX);
	_cleanup_free_ char *want = sbx_format("%s/", top);
	ssize_t n = fd >= 0 && text && want ? sbx_read_all(fd, text, ENVIRON_MAX) : -1;

	return n > 0 && memmem(text, (size_t)n, want, strlen(want));
}

struct killing {
	int proc;
	const char *top;
	unsigned killed;
};

static int kill_one(const char *name, unsigned char type, void *data)
{
	struct killing *k = data;
	char *end;
	const long pid = strtol(name, &end, 10);
	_cleanup_fd_ int dir = -1;

	(void)type;
	if (*end || pid <= 1 || pid == getpid())
		return 0;
	dir = sbx_dir_open(k->proc, name);
	if (dir < 0 || (!leads_into(dir, "cwd", k->top) && !has_open(dir, k->top) &&
	                !has_in_environment(dir, k->top)))
		return 0;
	if (kill((pid_t)pid, SIGKILL) == 0)
		k->killed++;
	return 0;
}

/* What is killed may have started another just before, so it is looked until there is none. */
static void kill_within(const char *top)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct killing k = {.top = top};

	for (int i = 0; i < KILL_ROUNDS; i++) {
		_cleanup_fd_ int proc = sbx_dir_open(AT_FDCWD, "/proc");

		k.proc = proc;
		k.killed = 0;
		if (proc < 0 || sbx_dir_scan(proc, kill_one, &k) < 0 || !k.killed)
			return;
		nanosleep(&pause, NULL);
	}
}

void dirs_machine_kill(struct dirs *d, const char *name)
{
	_cleanup_free_ char *top = sbx_format("%s/machines/%s", d->path, name);

	if (top)
		kill_within(top);
}

void dirs_machine_sleep(struct dirs *d, const char *name)
{
	dirs_set_state(d, name, "asleep\n");
	dirs_machine_kill(d, name);
}

int dirs_machine_remove(struct dirs *d, const char *name, struct sbx_error *err)
{
	_cleanup_free_ char *gone =
	        sbx_format("gone-%s-%llu", name, (unsigned long long)sbx_now_ns());
	_cleanup_free_ char *top = gone ? sbx_format("%s/%s", d->path, gone) : NULL;

	if (!top)
		return sbx_no_memory(err);
	dirs_machine_kill(d, name);
	if (renameat(d->machines, name, d->dir, gone) < 0)
		return errno == ENOENT ? 0 : sbx_fail(err, errno, "%s: %s", name, strerror(errno));
	/* What was started until it had another name. */
	kill_within(top);
	return sbx_tree_remove(d->dir, gone, err);
}

/* ---- scripts ---- */

/* Sends the answer through a program that reads it and prints another. */
static char filtered[] = "f=$1 s=$2; shift 2; \"$@\" \"$s\" | sh \"$f\"";

/* The shell's words, then its arguments, in ARGV; WORDS is cut up. */
static void fill_argv(char *words, char *script, char *filter, char **argv)
{
	static char sh[] = "sh", option[] = "-c";
	char *save, *word = strtok_r(words, " ", &save);
	size_t n = 0;

	if (filter) {
		argv[n++] = sh;
		argv[n++] = option;
		argv[n++] = filtered;
		argv[n++] = sh;
		argv[n++] = filter;
		argv[n++] = script;
	}
	for (size_t i = 0; word && i < WORDS_MAX; i++, word = strtok_r(NULL, " ", &save))
		argv[n++] = word;
	argv[n++] = option;
	if (!filter)
		argv[n++] = script;
	argv[n] = NULL;
}

static int describe(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr,
                    const struct dirs_machine *m, const char *log, int out)
{
	sigset_t none, all;
	int r = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);

	sigemptyset(&none);
	sigfillset(&all);
	if (!r)
		r = posix_spawn_file_actions_adddup2(actions, out, 1);
	if (!r)
		r = posix_spawn_file_actions_addopen(actions, 2, log, O_WRONLY | O_CREAT | O_APPEND,
		                                     0600);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(actions, 3);
	if (!r)
		r = posix_spawn_file_actions_addchdir_np(actions, m->home);
	if (!r)
		r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
		                                           POSIX_SPAWN_SETSID);
	if (!r)
		r = posix_spawnattr_setsigmask(attr, &none);
	return r ? r : posix_spawnattr_setsigdefault(attr, &all);
}

static int spawn(const struct dirs_machine *m, char **argv, char **env, int out, pid_t *pid)
{
	_cleanup_free_ char *log = sbx_format("%s/log", m->path);
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int r;

	if (!log)
		return -ENOMEM;
	r = posix_spawn_file_actions_init(&actions);
	if (r)
		return -r;
	r = posix_spawnattr_init(&attr);
	if (!r) {
		r = describe(&actions, &attr, m, log, out);
		if (!r)
			r = posix_spawnp(pid, argv[0], &actions, &attr, argv, env);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

pid_t dirs_machine_spawn(struct dirs_machine *m, const char *script, size_t len, const char *filter,
                         int *out)
{
	struct dirs *d = m->dirs;
	_cleanup_free_ char *words = strdup(d->shell), *text = strndup(script, len);
	_cleanup_free_ char *file = filter ? sbx_format("%s/%s", d->path, filter) : NULL;
	_cleanup_free_ char *home = sbx_format("HOME=%s", m->home);
	_cleanup_free_ char *search = sbx_format("PATH=%s", d->search);
	char *env[] = {home, search, NULL}, *argv[WORDS_MAX + 8];
	_cleanup_fd_ int in = -1, end = -1;
	int fds[2], r;
	pid_t pid = -1;

	if (!words || !text || (filter && !file) || !home || !search)
		return -ENOMEM;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	in = fds[0];
	end = fds[1];
	if (fcntl(in, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	fill_argv(words, text, file, argv);
	r = spawn(m, argv, env, end, &pid);
	if (r < 0)
		return r;
	*out = sbx_steal_fd(&in);
	return pid;
}
