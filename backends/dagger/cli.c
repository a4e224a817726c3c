/*
 * A process `dagger session`. It says in a line where it is to be asked, and by which token; it
 * lives until the pipe that is its standard input is closed, which happens also when this process
 * is killed. What it says of its progress is read, or it would wait for that; the end of it is kept
 * for the case that it fails.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "sandboxfs/scrub.h"
#include "sandboxfs/secret.h"

struct dagger_cli {
	struct dagger_cli *next;
	struct dagger *d;
	pid_t pid;
	int in;                          /* its standard input */
	struct sbx_watch out, log, exit; /* its other streams; its pidfd */
	struct sbx_timer timer;          /* until the line is there */
	char line[4096], tail[2048];     /* of out; the end of log */
	size_t line_n, tail_n;
	bool awaited; /* for its line */
	int code;     /* it could not be started */
	struct sbx_error err;
};

/* ---- starting ---- */

static bool begins(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

/* Ours, without the session that we may be in: it would become a part of that one. NULL: no memory.
 */
static char **environment(void)
{
	size_t n = 0, at = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 2, sizeof(*env));
	for (size_t i = 0; env && i < n; i++)
		if (!begins(environ[i], "DAGGER_SESSION_") && !begins(environ[i], "DAGGER_NO_NAG="))
			env[at++] = environ[i];
	if (env)
		env[at] = (char *)"DAGGER_NO_NAG=1";
	return env;
}

/* FDS: those that become 0, 1 and 2. */
static int describe(const int fds[3], posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int r = 0;

	sigemptyset(&none);
	sigfillset(&all);
	for (int i = 0; i < 3 && !r; i++)
		r = posix_spawn_file_actions_adddup2(actions, fds[i], i);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(actions, 3);
	if (!r)
		r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
		                                           POSIX_SPAWN_SETSID);
	if (!r)
		r = posix_spawnattr_setsigmask(attr, &none);
	return r ? r : posix_spawnattr_setsigdefault(attr, &all);
}

static int spawn(struct dagger_cli *cli, const int fds[3])
{
	const struct sbx_dagger_config *c = &cli->d->config;
	char *argv[] = {(char *)c->program,
	                (char *)"session",
	                (char *)"--workdir",
	                cli->d->path,
	                (char *)"--label",
	                (char *)"dagger.io/sdk.name:sandboxfs",
	                (char *)"--label",
	                (char *)"dagger.io/sdk.version:" SBX_VERSION,
	                NULL};
	_cleanup_free_ char **env = environment();
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int r;

	if (!env || posix_spawn_file_actions_init(&actions))
		return ENOMEM;
	posix_spawnattr_init(&attr);
	r = describe(fds, &actions, &attr);
	if (!r)
		r = posix_spawnp(&cli->pid, c->program, &actions, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* Our ends go to CLI. */
static int start(struct dagger_cli *cli)
{
	_cleanup_fd_ int in = -1, out = -1, log = -1;
	int pipes[3][2];
	int r;

	for (int i = 0; i < 3; i++) {
		if (pipe2(pipes[i], O_CLOEXEC) < 0) {
			r = -errno;
			while (i--) {
				close(pipes[i][0]);
				close(pipes[i][1]);
			}
			return r;
		}
	}
	in = pipes[0][0];
	cli->in = pipes[0][1];
	cli->out.fd = pipes[1][0];
	out = pipes[1][1];
	cli->log.fd = pipes[2][0];
	log = pipes[2][1];
	if (fcntl(cli->out.fd, F_SETFL, O_NONBLOCK) < 0 ||
	    fcntl(cli->log.fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	r = spawn(cli, (int[]){in, out, log});
	if (r)
		return -r;
	cli->exit.fd = (int)syscall(SYS_pidfd_open, cli->pid, 0);
	return cli->exit.fd < 0 ? -errno : 0;
}

/* [loop] */
static void started(void *data);

/* [pool] A large program takes a while to be started. */
static void start_in_pool(void *data)
{
	struct dagger_cli *cli = data;
	const char *program = cli->d->config.program;

	cli->code = start(cli);
	if (cli->code == -ENOENT)
		sbx_fail(&cli->err, ENOENT,
		         "there is no program %s, which starts the engine of Dagger", program);
	else if (cli->code)
		sbx_fail(&cli->err, -cli->code, "%s cannot be started: %s", program,
		         strerror(-cli->code));
	sbx_loop_post(cli->d->config.loop, started, cli);
}

void dagger_cli_start(struct dagger *d)
{
	struct dagger_cli *cli = calloc(1, sizeof(*cli));
	struct sbx_error err = SBX_ERROR_INIT;

	if (!cli) {
		dagger_session_failed(d, sbx_no_memory(&err), &err);
		return;
	}
	cli->d = d;
	cli->in = cli->out.fd = cli->log.fd = cli->exit.fd = -1;
	dagger_ref(d);
	sbx_pool_submit(d->pool, start_in_pool, cli);
}

/* ---- its end ---- */

static void close_watch(struct dagger *d, struct sbx_watch *w, bool watched)
{
	int fd = watched ? sbx_loop_unwatch(d->config.loop, w) : w->fd;

	if (fd >= 0)
		close(fd);
	w->fd = -1;
}

/* [loop] */
static void cli_free(struct dagger_cli *cli, bool watched)
{
	struct dagger *d = cli->d;

	for (struct dagger_cli **at = &d->clis; *at; at = &(*at)->next) {
		if (*at == cli) {
			*at = cli->next;
			break;
		}
	}
	sbx_loop_timer_cancel(d->config.loop, &cli->timer);
	close_watch(d, &cli->out, watched);
	close_watch(d, &cli->log, watched);
	close_watch(d, &cli->exit, watched);
	sbx_cleanup_fd(&cli->in);
	explicit_bzero(cli->line, sizeof(cli->line));
	free(cli);
}

void dagger_cli_end(struct dagger_cli *cli)
{
	sbx_cleanup_fd(&cli->in);
}

void dagger_cli_end_all(struct dagger *d)
{
	while (d->clis) {
		struct dagger_cli *cli = d->clis;

		sbx_cleanup_fd(&cli->in);
		waitpid(cli->pid, NULL, WNOHANG);
		cli_free(cli, true);
	}
}

/* [loop] It is not waited for any more. */
static void fail(struct dagger_cli *cli, int code, const char *why)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct dagger *d = cli->d;
	int r;

	if (*why)
		r = sbx_fail(&err, code, "the session of Dagger has not begun: %s", why);
	else
		r = sbx_fail(&err, code, "the session of Dagger has not begun");
	cli->awaited = false;
	sbx_loop_timer_cancel(d->config.loop, &cli->timer);
	dagger_cli_end(cli);
	dagger_session_failed(d, r, &err);
}

/* The last line of what it has said of itself that has a letter, without colours. */
static void last_words(struct dagger_cli *cli, char ret[512])
{
	char *text = cli->tail, *best = cli->tail, *to = ret;
	bool has_letter = false;

	text[cli->tail_n] = '\0';
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (strpbrk(line, "abcdefghijklmnopqrstuvwxyz")) {
			best = line;
			has_letter = true;
		}
	}
	for (; has_letter && *best && to < ret + 511; best++) {
		if (*best == '\033' && best[1] == '[') {
			while (*best && !isalpha((unsigned char)*best))
				best++;
			if (!*best)
				break;
		} else {
			*to++ = *best;
		}
	}
	*to = '\0';
}

/* [loop] */
static void exited(struct sbx_watch *w, uint32_t events)
{
	struct dagger_cli *cli = w->data;
	struct dagger *d = cli->d;
	char why[512] = "";

	(void)events;
	if (cli->log.fd >= 0)
		cli->log.fn(&cli->log, EPOLLIN);
	waitpid(cli->pid, NULL, WNOHANG);
	pthread_mutex_lock(&d->lock);
	if (d->probing && d->probing->cli == cli)
		d->probing->cli = NULL;
	if (d->session && d->session->cli == cli) {
		dagger_session_unref(d->session);
		d->session = NULL;
	}
	pthread_mutex_unlock(&d->lock);
	if (cli->awaited) {
		last_words(cli, why);
		fail(cli, EREMOTEIO, why);
	}
	cli_free(cli, true);
}

/* [loop] */
static void late(struct sbx_timer *t)
{
	fail(t->data, ETIMEDOUT, "it takes too long");
}

/* ---- what it says ---- */

static void keep_end(struct dagger_cli *cli, const char *data, size_t n)
{
	const size_t room = sizeof(cli->tail) - 1;
	const size_t kept = cli->tail_n + n > room ? room - n : cli->tail_n;

	memmove(cli->tail, cli->tail + cli->tail_n - kept, kept);
	memcpy(cli->tail + kept, data, n);
	cli->tail_n = kept + n;
}

/* [loop] */
static void log_readable(struct sbx_watch *w, uint32_t events)
{
	struct dagger_cli *cli = w->data;
	char data[1024];
	ssize_t n;

	(void)events;
	do {
		n = read(w->fd, data, sizeof(data));
		if (n > 0)
			keep_end(cli, data, (size_t)n);
	} while (n > 0);
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_watch(cli->d, w, true);
}

/* [loop] */
static void read_line(struct dagger_cli *cli)
{
	struct json_object *obj = json_tokener_parse(cli->line), *port = NULL, *token = NULL;
	struct sbx_secret *own = NULL;
	int64_t number = 0;

	if (json_object_is_type(obj, json_type_object) &&
	    json_object_object_get_ex(obj, "port", &port) &&
	    json_object_object_get_ex(obj, "session_token", &token) &&
	    json_object_is_type(token, json_type_string))
		number = json_object_get_int64(port);
	explicit_bzero(cli->line, sizeof(cli->line));
	if (number > 0 && number < 65536 &&
	    sbx_secret_make(json_object_get_string(token), &own) == 0) {
		cli->awaited = false;
		sbx_loop_timer_cancel(cli->d->config.loop, &cli->timer);
		dagger_session_found(cli->d, (unsigned)number, own, own, cli);
	} else {
		fail(cli, EPROTO, "it says something else than its port and token");
	}
	if (number)
		explicit_bzero((char *)json_object_get_string(token),
		               (size_t)json_object_get_string_len(token));
	json_object_put(obj);
}

/* [loop] */
static void out_readable(struct sbx_watch *w, uint32_t events)
{
	struct dagger_cli *cli = w->data;
	char *end;
	ssize_t n;

	(void)events;
	if (cli->line_n == sizeof(cli->line) - 1)
		cli->line_n = 0;
	n = read(w->fd, cli->line + cli->line_n, sizeof(cli->line) - 1 - cli->line_n);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		close_watch(cli->d, w, true);
		return;
	}
	cli->line_n += (size_t)n;
	cli->line[cli->line_n] = '\0';
	end = strchr(cli->line, '\n');
	if (!end)
		return;
	*end = '\0';
	cli->line_n = 0;
	if (cli->awaited)
		read_line(cli);
}

static int watch(struct dagger_cli *cli)
{
	struct sbx_loop *loop = cli->d->config.loop;
	int r;

	cli->out.fn = out_readable;
	cli->log.fn = log_readable;
	cli->exit.fn = exited;
	cli->out.data = cli->log.data = cli->exit.data = cli->timer.data = cli;
	cli->timer.fn = late;
	r = sbx_loop_watch(loop, &cli->exit, EPOLLIN);
	if (!r)
		r = sbx_loop_watch(loop, &cli->log, EPOLLIN);
	if (!r)
		r = sbx_loop_watch(loop, &cli->out, EPOLLIN);
	return r;
}

/* [loop] */
static void started(void *data)
{
	struct dagger_cli *cli = data;
	struct dagger *d = cli->d;
	struct sbx_error err = cli->err;
	int r = cli->code;

	if (!r && !d->leaving)
		r = watch(cli);
	if (r || d->leaving) {
		if (!r || !err.code)
			r = sbx_fail(&err, r ? -r : EINTR, "the session of Dagger is not watched");
		cli_free(cli, false);
		dagger_session_failed(d, r, &err);
	} else {
		cli->next = d->clis;
		d->clis = cli;
		cli->awaited = true;
		sbx_loop_timer_set(d->config.loop, &cli->timer, d->config.start_ms);
	}
	dagger_unref(d);
}
