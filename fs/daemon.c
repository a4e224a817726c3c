/*
 * Order matters here. What runs commands is started first, while nobody else is in our cgroup and
 * our limits are those that we were given; then the mourner is forked, which clears up if we are
 * killed. The backend then takes the lock of the state directory, so that whatever is stale below
 * it can be cleared away. The controls are mounted before the workspace, which points at them.
 * Only when both are there does what was recovered go on, because a mount may fail.
 *
 * At the end: unmount, so that nothing new comes; end the jobs; end the FUSE threads, so that
 * nothing runs; answer what is still owed; free.
 */
#include "fs/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "fs/config/toolchains.h"
#include "fs/control/ops.h"
#include "fs/fuse/invalidator.h"
#include "fs/fuse/listing.h"
#include "fs/fuse/mourner.h"
#include "fs/fuse/passthrough.h"
#include "fs/fuse/session.h"
#include "fs/inline.h"
#include "fs/log/events.h"
#include "fs/workspace/kernel_cache.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/github.h"
#include "sandboxfs/http.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/mitigations.h"
#include "sandboxfs/own_dir.h"
#include "sandboxfs/secret.h"
#include "sandboxfs/spawner.h"

#define POOL_THREADS  4
#define LANE_MOST     128 /* works of so many sandboxes at once, however long they take */
#define REMOVERS_MOST 64
#define ENDING_MS     5000 /* how long a daemon may take to end its jobs */
#define IDLE_BACKINGS                                                                              \
	1024 /* files kept for the kernel's passthrough while nobody has them open                 \
	      */
#define KEPT_BYTES (4u << 20) /* of listings of directories */

#define SECRETS_MOST 8

struct secret {
	const char *name;
	struct sbx_secret *value; /* NULL: it is not set */
};

struct daemon {
	struct sbx_options *opts;
	struct sbx_host host;
	struct secret secrets[SECRETS_MOST];
	size_t nsecrets;
	struct sbx_spawner *spawner; /* NULL: no command is run here */
	struct sbx_mourner *mourner; /* or NULL */
	struct sbx_loop *loop;
	pthread_t loop_thread;
	bool loop_started;
	struct sbx_watch mounts; /* of our namespace */
	dev_t device;            /* of MNT */
	struct sbx_http *http;
	struct sbx_pool *pool, *lane, *remover;
	struct sbx_backend *backend;
	struct sbx_registry *registry;
	struct sbx_deferred *deferred;
	struct sbx_workspace workspace;
	struct sbx_controls controls;
	struct sbx_connection connection;
	struct sbx_channel workspace_channel, control_channel;
	struct sbx_watch signals;
	sem_t ended;
	int logs;                /* logs_dir, held; or -1 */
	pthread_mutex_t telling; /* held to tell of something by registry, and for its end */
};

static void handle_ended(void *data)
{
	struct daemon *d = data;

	sem_post(&d->ended);
}

/*
 * A mount was made or taken away. A copy of ours in another namespace keeps the connection alive,
 * so the kernel would not say that MNT is gone. By device: a mount that was moved, covered or bound
 * elsewhere is still there.
 */
static void handle_mounts(struct sbx_watch *w, uint32_t events)
{
	struct daemon *d = w->data;

	(void)events;
	if (sbx_device_mounted(d->device) != 0)
		return;
	/* Whatever is mounted there by now is another's. */
	d->workspace_channel.unmounted = true;
	handle_ended(d);
}

static void handle_signal(struct sbx_watch *w, uint32_t events)
{
	struct signalfd_siginfo info;
	ssize_t n = read(w->fd, &info, sizeof(info));

	(void)events;
	if (n == sizeof(info))
		handle_ended(w->data);
}

/* The backend outlives the registry. */
static void handle_dropped(const char *name, const char *text, void *data)
{
	struct daemon *d = data;

	pthread_mutex_lock(&d->telling);
	if (d->registry)
		sbx_events_add(sbx_registry_events(d->registry), "dropped", name, text);
	pthread_mutex_unlock(&d->telling);
}

/* [any] As sbx_host.secret. */
static const struct sbx_secret *find_secret(const char *name, void *data)
{
	const struct daemon *d = data;

	for (size_t i = 0; i < d->nsecrets; i++)
		if (strcmp(d->secrets[i].name, name) == 0)
			return d->secrets[i].value;
	return NULL;
}

static int take_secret(struct daemon *d, const char *name, struct sbx_error *err)
{
	struct secret *s = &d->secrets[d->nsecrets];
	int r = d->nsecrets < SECRETS_MOST ? sbx_secret_take(name, &s->value) : -E2BIG;

	if (r < 0)
		return sbx_fail(err, -r, "%s cannot be kept: %s", name, strerror(-r));
	s->name = name;
	d->nsecrets++;
	return 0;
}

/* Before there is another process, which is to have none. */
static int take_secrets(struct daemon *d, struct sbx_error *err)
{
	const char *const *names = sbx_backend_secrets(&d->opts->settings);
	int r = take_secret(d, "GITHUB_TOKEN", err);

	for (; r == 0 && *names; names++)
		r = take_secret(d, *names, err);
	return r;
}

/* Descriptors: as many as we may; half of them for files of the workspace. */
static unsigned raise_nofile(void)
{
	struct rlimit rl;
	rlim_t fds;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return 256;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
	getrlimit(RLIMIT_NOFILE, &rl);
	fds = rl.rlim_cur / 3;
	return fds > 16384 ? 16384 : fds < 64 ? 64 : (unsigned)fds;
}

static int entry_found(const char *name, unsigned char type, void *data)
{
	(void)name;
	(void)type;
	(void)data;
	return 1;
}

static bool is_empty(const char *path)
{
	_cleanup_fd_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 || sbx_dir_scan(dir, entry_found, NULL) == 0;
}

/*
 * A mount left by a daemon that died is taken away; a living one is not ours to take. NO_SOURCE:
 * who forgets one of two arguments does not have the other covered, so PATH has to be empty.
 */
static int heal_mountpoint(const char *path, bool no_source, struct sbx_error *err)
{
	int mounted = sbx_mounted(path);
	struct statfs fs;
	struct stat st;

	if (mounted == 1) {
		/* Not stat: the attributes of a dead mount's root may still be cached. */
		if (statfs(path, &fs) == 0 || errno != ENOTCONN)
			return sbx_fail(err, EBUSY, "%s is mounted by another sandboxfs already",
			                path);
		if (sbx_unmount(path) < 0)
			return sbx_fail(err, EBUSY,
			                "%s is a dead mount that cannot be taken away: "
			                "fusermount3 -u -z %s",
			                path, path);
	}
	if (stat(path, &st) < 0)
		return sbx_fail(err, errno, "the mountpoint %s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return sbx_fail(err, ENOTDIR, "the mountpoint %s is not a directory", path);
	if (no_source && !is_empty(path))
		return sbx_fail(
		        err, EINVAL,
		        "%s is not empty, and it is the only argument: name SOURCE and MOUNTPOINT; "
		        "SOURCE may be none",
		        path);
	return 0;
}

/* Made now, and held: nothing that clears temporary directories by age touches what is locked. */
static int prepare_logs(struct daemon *d, struct sbx_error *err)
{
	const char *path = d->opts->settings.logs_dir;

	if (!path)
		return 0;
	d->logs = sbx_dir_own(path, "log", err);
	if (d->logs < 0)
		return d->logs;
	flock(d->logs, LOCK_SH | LOCK_NB);
	return 0;
}

static int prepare_controls(struct daemon *d, struct sbx_error *err)
{
	struct sbx_workspace *ws = &d->workspace;
	_cleanup_fd_ int dir = -1;

	if (sbx_mounted(ws->controls) == 1)
		sbx_unmount(ws->controls);
	dir = sbx_dir_own(ws->controls, "control", err);
	if (dir < 0)
		return dir;
	return sbx_mourner_hold(d->mourner, dir, err);
}

/*
 * Opens the backend, which locks the state directory. The holder of the lock may be a daemon on its
 * way out, after an unmount: its controls are no longer mounted, and it is waited for.
 */
static int open_backend(struct daemon *d, struct sbx_error *err)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	uint64_t until = sbx_now_ns() + ENDING_MS * UINT64_C(1000000);

	for (;;) {
		int r = sbx_backend_open(&d->host, &d->backend, err);

		if (r != -EBUSY || sbx_mounted(d->workspace.controls) != 0 || sbx_now_ns() > until)
			return r;
		nanosleep(&pause, NULL);
	}
}

/* Not libfuse's auto_unmount, which an ordinary user has only with allow_other. */
static int start_mourner(struct daemon *d, struct sbx_error *err)
{
	const struct sbx_settings *s = &d->opts->settings;
	const struct sbx_mourned what = {
	        .mountpoint = d->opts->auto_unmount ? s->mountpoint : NULL,
	        .controls = strcmp(s->controls, "inline") != 0 ? d->workspace.controls : NULL,
	};

	if (!what.mountpoint && !what.controls)
		return 0;
	return sbx_mourner_start(&what, &d->mourner, err);
}

static int start_parts(struct daemon *d, struct sbx_error *err)
{
	struct sbx_settings *s = &d->opts->settings;
	struct sbx_registry_config config = {
	        .settings = s, .observer = &ws_observer, .observer_data = &d->workspace};
	int r = sbx_toolchains_find(s);

	if (r < 0)
		return sbx_fail(err, -r, "out of memory");
	d->workspace.nodes = &d->controls;
	if (asprintf(&d->workspace.controls, "%s/ctl", s->state_dir) < 0) {
		d->workspace.controls = NULL;
		return sbx_no_memory(err);
	}
	r = sbx_backend_start_early(s, &d->spawner, err);
	if (r == 0)
		r = start_mourner(d, err);
	if (r < 0)
		return r;
	/* Nobody traces us or reads our environment and memory. */
	prctl(PR_SET_DUMPABLE, sbx_mitigation_off("undumpable"), 0, 0, 0);
	if (sbx_loop_create(&d->loop) < 0 ||
	    sbx_http_create(&(struct sbx_http_config){.loop = d->loop}, &d->http) < 0 ||
	    sbx_pool_create(POOL_THREADS, &d->pool) < 0 ||
	    sbx_pool_create_wide(LANE_MOST, false, &d->lane) < 0 ||
	    sbx_pool_create_wide(REMOVERS_MOST, true, &d->remover) < 0 ||
	    sbx_deferred_create(d->loop, &d->deferred) < 0 ||
	    sbx_controls_init(&d->controls, d->loop) < 0 ||
	    sbx_listing_cache_create(KEPT_BYTES, ws_listing_dropped, &d->workspace,
	                             &d->workspace.kept) < 0 ||
	    sbx_inodes_create(raise_nofile(), &d->workspace.inodes) < 0)
		return sbx_fail(err, ENOMEM, "not enough memory or descriptors to start");
	r = d->spawner ? sbx_spawner_attach(d->spawner, d->loop) : 0;
	if (r < 0)
		return sbx_fail(err, -r, "the spawner cannot be attached: %s", strerror(-r));
	d->host = (struct sbx_host){.settings = s,
	                            .loop = d->loop,
	                            .spawner = d->spawner,
	                            .http = d->http,
	                            .pool = d->lane,
	                            .secret = find_secret,
	                            .dropped = handle_dropped,
	                            .data = d};
	r = open_backend(d, err);
	if (r < 0)
		return r;
	config.backend = d->backend;
	config.loop = d->loop;
	config.pool = d->pool;
	config.lane = d->lane;
	config.remover = d->remover;
	config.http = d->http;
	config.github_token = find_secret("GITHUB_TOKEN", d);
	config.github_api = sbx_github_api_url();
	r = sbx_registry_create(&config, &d->registry);
	if (r < 0)
		return sbx_fail(err, -r, "the registry cannot be made: %s", strerror(-r));
	return sbx_registry_recover(d->registry, err);
}

static int mount_controls(struct daemon *d, struct sbx_error *err)
{
	struct sbx_channel_config config = {
	        .mountpoint = d->workspace.controls,
	        .fsname = "sandboxfs-controls",
	        .allow_other = d->opts->settings.allow_other,
	        .own_checks = true,
	        .ops = &sbx_control_ops,
	        .ops_size = sizeof(sbx_control_ops),
	        .userdata = &d->connection,
	};

	d->connection = (struct sbx_connection){&d->workspace, &d->controls};
	d->controls.registry = d->registry;
	d->controls.deferred = d->deferred;
	if (!strcmp(d->opts->settings.controls, "inline")) {
		d->controls.id_bit = SBX_INLINE_CONTROL;
		d->workspace.inlined = true;
		return 0;
	}
	return sbx_channel_open(&d->control_channel, &config, err);
}

static int back(void *data, int fd)
{
	return sbx_channel_back(data, fd);
}

static void unback(void *data, int id)
{
	sbx_channel_unback(data, id);
}

static void node_gone(uint64_t id, void *data)
{
	sbx_passthrough_forget(data, id);
}

static int prepare_passthrough(struct daemon *d, struct sbx_error *err)
{
	struct sbx_workspace *ws = &d->workspace;
	const struct sbx_backing_calls calls = {back, unback, &d->workspace_channel};
	int r;

	if (strcmp(d->opts->settings.io, "passthrough") != 0)
		return 0;
	if (d->backend->impl->away)
		return sbx_fail(err, EOPNOTSUPP,
		                "io=passthrough is not available with the %s backend: the kernel "
		                "would read files by itself that are not here yet",
		                d->backend->impl->name);
	r = sbx_passthrough_create(&calls, IDLE_BACKINGS, &ws->passthrough);
	if (r < 0)
		return sbx_fail(err, -r, "out of memory");
	sbx_inodes_on_gone(ws->inodes, node_gone, ws->passthrough);
	return 0;
}

static int mount_workspace(struct daemon *d, struct sbx_error *err)
{
	struct sbx_settings *s = &d->opts->settings;
	struct sbx_channel_config config = {
	        .mountpoint = s->mountpoint,
	        .fsname = s->source ? s->source : "none",
	        .options = &d->opts->fuse,
	        .allow_other = s->allow_other,
	        .own_checks = geteuid() == 0,
	        .agree = true,
	        .ops = d->workspace.inlined ? &sbx_inline_ops : &sbx_workspace_ops,
	        .ops_size = sizeof(struct fuse_lowlevel_ops),
	        .userdata = &d->connection,
	};
	struct sbx_workspace *ws = &d->workspace;
	int r;

	ws->mounted_ns = sbx_real_ns();
	ws->settings = s;
	ws->registry = d->registry;
	ws->deferred = d->deferred;
	ws->channel = &d->workspace_channel;
	ws->away = d->backend->impl->away;
	ws->opens = ws->inlined || ws->passthrough;
	d->workspace_channel.ended = handle_ended;
	d->workspace_channel.data = d;
	r = sbx_channel_open(&d->workspace_channel, &config, err);
	if (r < 0)
		return r;
	ws->epochs = sbx_channel_epoch(&d->workspace_channel) == 0;
	ws->opendirs = ws->inlined || !ws->epochs;
	return 0;
}

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static int watch_signals(struct daemon *d, struct sbx_error *err)
{
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	d->signals = (struct sbx_watch){
	        .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
	        .fn = handle_signal,
	        .data = d,
	};
	r = d->signals.fd < 0 ? -errno : sbx_loop_watch(d->loop, &d->signals, EPOLLIN);
	return r < 0 ? sbx_fail(err, -r, "signals cannot be watched: %s", strerror(-r)) : 0;
}

/* Where it cannot be done (no /proc) the end of the connection is all there is. */
static void watch_mounts(struct daemon *d)
{
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

	d->device = fd < 0 ? 0 : sbx_mount_device(d->opts->settings.mountpoint);
	d->mounts = (struct sbx_watch){.fd = fd, .fn = handle_mounts, .data = d};
	if (fd >= 0 && (!d->device || sbx_loop_watch(d->loop, &d->mounts, EPOLLPRI) < 0)) {
		close(fd);
		d->mounts.fd = -1;
	}
}

static int start_serving(struct daemon *d, struct sbx_error *err)
{
	int r = sbx_forgetter_create(ws_listing_forget, &d->workspace, &d->workspace.forgetter);

	if (r == 0)
		ws_serve(&d->workspace, true);
	if (r == 0)
		r = -pthread_create(&d->loop_thread, NULL, run_loop, d->loop);
	d->loop_started = r == 0;
	if (r == 0)
		sbx_registry_resume(d->registry);
	if (r == 0 && d->control_channel.session)
		r = sbx_channel_start(&d->control_channel);
	if (r == 0)
		r = sbx_channel_start(&d->workspace_channel);
	return r < 0 ? sbx_fail(err, -r, "a thread cannot be started: %s", strerror(-r)) : 0;
}

static void stop(struct daemon *d)
{
	sbx_channel_unmount(&d->workspace_channel);
	sbx_channel_unmount(&d->control_channel);
	if (d->loop_started && d->registry)
		sbx_registry_shutdown(d->registry);
	sbx_channel_stop(&d->workspace_channel);
	sbx_channel_stop(&d->control_channel);
	sbx_pool_destroy(d->remover);
	sbx_pool_destroy(d->lane);
	sbx_pool_destroy(d->pool);
	if (d->loop_started) {
		sbx_loop_stop(d->loop);
		pthread_join(d->loop_thread, NULL);
	}
	ws_serve(&d->workspace, false);
	/* The backend's own threads may still wait for an answer, until it is destroyed. */
	sbx_http_stop(d->http);
	sbx_forgetter_destroy(d->workspace.forgetter);
	if (d->mounts.fd > 0)
		close(sbx_loop_unwatch(d->loop, &d->mounts));
	if (d->signals.fd > 0)
		close(sbx_loop_unwatch(d->loop, &d->signals));
	sbx_inodes_destroy(d->workspace.inodes);
	sbx_passthrough_destroy(d->workspace.passthrough);
	sbx_listing_cache_destroy(d->workspace.kept);
	sbx_controls_finish(&d->controls);
	pthread_mutex_lock(&d->telling);
	sbx_registry_destroy(d->registry);
	d->registry = NULL;
	pthread_mutex_unlock(&d->telling);
	sbx_mourner_dismiss(d->mourner);
	/* While the state directory is ours. */
	if (d->backend && d->workspace.controls)
		rmdir(d->workspace.controls);
	sbx_backend_destroy(d->backend);
	sbx_spawner_stop(d->spawner);
	sbx_loop_destroy(d->loop);
	sbx_http_destroy(d->http);
	sbx_deferred_destroy(d->deferred);
	sbx_channel_close(&d->workspace_channel);
	sbx_channel_close(&d->control_channel);
	free(d->workspace.controls);
	sbx_cleanup_fd(&d->logs);
	while (d->nsecrets)
		sbx_secret_free(d->secrets[--d->nsecrets].value);
	pthread_rwlock_destroy(&d->workspace.serving_lock);
	sem_destroy(&d->ended);
}

/* In the background: standard streams lead nowhere, and no directory is kept busy. */
static void leave_terminal(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; fd >= 0 && i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
}

static int serve(struct sbx_options *opts, int ready, struct sbx_error *err)
{
	struct daemon d = {.opts = opts, .logs = -1, .telling = PTHREAD_MUTEX_INITIALIZER};
	int r;

	/* A name server that is silent is not to hold up an unmount for long. */
	setenv("RES_OPTIONS", "timeout:2 attempts:2", 0);
	umask(0);
	signal(SIGPIPE, SIG_IGN);
	sem_init(&d.ended, 0, 0);
	pthread_rwlock_init(&d.workspace.serving_lock, NULL);
	r = take_secrets(&d, err);
	if (r == 0)
		r = start_parts(&d, err);
	if (r == 0)
		r = prepare_logs(&d, err);
	if (r == 0)
		r = prepare_controls(&d, err);
	/* Before anything is mounted: a signal that ends us now is seen when the loop runs. */
	if (r == 0)
		r = watch_signals(&d, err);
	if (r == 0)
		r = mount_controls(&d, err);
	if (r == 0)
		r = prepare_passthrough(&d, err);
	if (r == 0)
		r = mount_workspace(&d, err);
	if (r == 0) {
		watch_mounts(&d);
		r = start_serving(&d, err);
	}
	if (r == 0) {
		if (ready >= 0) {
			leave_terminal();
			r = write(ready, "", 1) == 1 ? 0 : -EPIPE;
			close(ready);
		}
		while (r == 0 && sem_wait(&d.ended) < 0)
			;
	}
	stop(&d);
	return r;
}

/* Waits for the word of the daemon; its own exit status tells what went wrong. */
static int await_ready(int fd, pid_t pid)
{
	char c;
	int status;

	if (read(fd, &c, 1) == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int sbx_daemon_run(struct sbx_options *opts, struct sbx_error *err)
{
	int ready[2], r = heal_mountpoint(opts->settings.mountpoint, opts->no_source, err);
	pid_t pid;

	if (r == 0 && !strcmp(opts->settings.io, "passthrough"))
		r = sbx_passthrough_probe(err);
	if (r < 0)
		return r;
	if (opts->settings.foreground)
		return serve(opts, -1, err);
	if (pipe2(ready, O_CLOEXEC) < 0)
		return sbx_fail(err, errno, "a pipe cannot be made: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		return sbx_fail(err, errno, "the daemon cannot be forked: %s", strerror(errno));
	if (pid > 0) {
		close(ready[1]);
		return await_ready(ready[0], pid);
	}
	close(ready[0]);
	setsid();
	if (chdir("/") < 0)
		return sbx_fail(err, errno, "/: %s", strerror(errno));
	return serve(opts, ready[1], err);
}
