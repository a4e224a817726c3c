/*
 * sandboxfs-runner, the spawner process. It does nothing but fork inits, pass signals to them and
 * reap them; what takes time happens in init. It never waits for the daemon in a way that could
 * make the daemon wait for it: reports are small and the daemon always reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/cgroup.h"
#include "backends/runner/isolation/mounter.h"
#include "backends/runner/isolation/namespaces.h"
#include "backends/runner/isolation/privileges.h"
#include "backends/runner/isolation/seccomp.h"
#include "backends/runner/spawner/init_pool.h"
#include "backends/runner/spawner/protocol.h"
#include "backends/runner/spawner/rlimits.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

#define WATCHED_MAX 64 /* inits that are beginning; more are seen to in time */

struct spawner {
	struct isolation_settings settings;
	struct spawn_features features;
	struct cgroup group;
	pid_t daemon;
	struct views *views;
	struct pool *pool;
	struct rlimit nofile; /* as it was at the start */
	struct filter filter;
	struct spawn_message message;
};

static void tell(const void *report, size_t len)
{
	/* The daemon is gone: we learn it from the next receive. */
	ssize_t n = send(INIT_REPORT_FD, report, len, MSG_NOSIGNAL);

	(void)n;
}

static void tell_failed(uint64_t job, enum spawn_stage stage, int err)
{
	struct spawn_report r = {.event = SPAWN_FAILED, .stage = stage, .job = job, .code = err};

	tell(&r, sizeof(r));
}

static void tell_gone(uint64_t job, bool oom, const struct usage *usage)
{
	struct spawn_report r = {.event = SPAWN_GONE, .job = job, .oom = oom};

	r.user_us = usage->user_us;
	r.sys_us = usage->sys_us;
	r.max_rss_kb = usage->max_rss_kb;
	tell(&r, sizeof(r));
}

static void serve_exec(struct spawner *sp, uint64_t job)
{
	struct spawn_request req = {0};
	enum spawn_stage stage = SPAWN_AT_FORK;
	int r = spawn_decode(&sp->message, &req);

	if (!r)
		r = init_pool_start(sp->pool, &sp->message, &req, &stage);
	if (r < 0)
		tell_failed(job, stage, -r);
	spawn_request_finish(&req);
}

static void forget(struct spawner *sp, const char *id)
{
	views_forget(sp->views, id);
	init_pool_drop_stale(sp->pool);
}

static void open_mounter(struct spawner *sp, const char *payload, size_t len)
{
	const char *nul = memchr(payload, 0, len);
	const int sock = sp->message.fds[0];
	int mounter;

	if (sock < 0 || !nul || nul + 1 >= payload + len || payload[len - 1])
		return;
	mounter = mounter_start(sock, payload, nul + 1);
	if (mounter >= 0)
		views_use_mounter(sp->views, mounter);
}

static void serve(struct spawner *sp)
{
	const char *payload = sp->message.bytes + sizeof(struct spawn_command);
	const size_t len = sp->message.len - sizeof(struct spawn_command);
	struct spawn_command cmd;

	memcpy(&cmd, sp->message.bytes, sizeof(cmd));
	if (cmd.verb == SPAWN_EXEC)
		serve_exec(sp, cmd.job);
	else if (cmd.verb == SPAWN_SIGNAL)
		init_pool_signal(sp->pool, cmd.job, cmd.sig);
	else if (cmd.verb == SPAWN_MOUNTER)
		open_mounter(sp, payload, len);
	else if (cmd.verb == SPAWN_FORGET && len > 0 && payload[len - 1] == 0)
		forget(sp, payload);
}

static void drop_descriptors(struct spawn_message *msg)
{
	for (int i = 0; i < SPAWN_FDS; i++)
		sbx_cleanup_fd(&msg->fds[i]);
}

/* Returns false when the daemon has closed its end. */
static bool receive(struct spawner *sp)
{
	int r = spawn_receive(INIT_REPORT_FD, MSG_DONTWAIT, &sp->message);

	if (!r)
		serve(sp);
	drop_descriptors(&sp->message);
	return !r || r == -EAGAIN || r == -EPROTO;
}

/* Making an init for a request to come is done when no request is there. */
static _Noreturn void loop(struct spawner *sp)
{
	struct pollfd p[2 + WATCHED_MAX] = {{.fd = INIT_REPORT_FD, .events = POLLIN},
	                                    {.fd = INIT_SIGNAL_FD, .events = POLLIN}};
	struct signalfd_siginfo info;

	for (;;) {
		size_t n = 2 + init_pool_watch(sp->pool, p + 2, WATCHED_MAX), i = 2;

		if (poll(p, n, -1) < 0)
			continue;
		if (p[1].revents && read(INIT_SIGNAL_FD, &info, sizeof(info)) > 0)
			init_pool_reap(sp->pool, tell_gone);
		if (p[0].revents && !receive(sp))
			break;
		while (i < n && !p[i].revents)
			i++;
		if (!p[0].revents && i < n)
			init_pool_begun(sp->pool, p[i].fd);
	}
	init_pool_end(sp->pool, tell_gone);
	_exit(0);
}

static int place_fd(int fd, int at)
{
	int r = fd == at ? 0 : dup3(fd, at, O_CLOEXEC);

	return r < 0 ? -errno : 0;
}

/* Record locks are not inherited, so this one says exactly as long as we live that we do. */
static int hold_life_lock(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = memfd_create("life", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : place_fd(fd, INIT_LIFE_FD);

	if (r < 0)
		return r;
	return fcntl(INIT_LIFE_FD, F_SETLK, &lock) < 0 ? -errno : 0;
}

/* Descriptors 0, 1, 2: /dev/null; 3: the socket; 4: signals; 5: the lock; those kept for init. */
static int arrange_descriptors(void)
{
	sigset_t set;
	int null, sigfd, r;

	close_range(INIT_REPORT_FD + 1, ~0U, 0);
	close_range(0, INIT_REPORT_FD - 1, 0);
	null = open("/dev/null", O_RDWR);
	if (fcntl(INIT_REPORT_FD, F_SETFD, FD_CLOEXEC) < 0 || null != 0 || dup2(0, 1) < 0 ||
	    dup2(0, 2) < 0)
		return -EBADF;
	/* Only inits are sent the last. */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	r = sigfd < 0 ? -errno : place_fd(sigfd, INIT_SIGNAL_FD);
	if (!r)
		r = hold_life_lock();
	for (int i = INIT_LISTENER_FD; !r && i < INIT_END_FD; i++)
		r = dup3(0, i, O_CLOEXEC) < 0 ? -errno : 0;
	return r;
}

static void reset_signals(void)
{
	sigset_t all;

	for (int sig = 1; sig <= SIGRTMAX; sig++)
		signal(sig, SIG_DFL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

static int raise_files(struct rlimit *was)
{
	struct rlimit raised;

	if (getrlimit(RLIMIT_NOFILE, was) < 0)
		return -errno;
	raised = *was;
	raised.rlim_cur = raised.rlim_max;
	setrlimit(RLIMIT_NOFILE, &raised);
	return 0;
}

/* After all changes of credentials, which undo both. */
static void bind_life(pid_t daemon)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, sbx_mitigation_off("undumpable"), 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != daemon)
		_exit(1);
}

/* Refused calls are a wall more; where no other keeps sockets of the host away they are the wall.
 */
static void build_filter(struct spawner *sp)
{
	struct spawn_features *features = &sp->features;
	const bool host_net = isolation_net_is_host(&sp->settings);
	const struct filter_options options = {.no_inet = !features->net_ns && !host_net,
	                                       .no_unix = !features->mount_ns,
	                                       .no_ipc = !features->mount_ns,
	                                       .no_pids = !features->pid_ns,
	                                       .hear_net = features->net_ns};
	int r = sbx_mitigation_off("seccomp") ? -EOPNOTSUPP : filter_build(&options, &sp->filter);

	features->seccomp = !r;
	if (r && !*features->reason)
		snprintf(features->reason, sizeof(features->reason), "no system call filter: %s",
		         r == -EOPNOTSUPP ? "built without libseccomp" : strerror(-r));
}

/* Without a namespace there is no way to hold a command to the proxy. */
static int lacks_network(struct spawn_features *features)
{
	char why[sizeof(features->reason)];

	memcpy(why, features->reason, sizeof(why));
	snprintf(features->reason, sizeof(features->reason),
	         "net=allow needs a network namespace, which cannot be made here%s%.150s",
	         *why ? ": " : "", why);
	return -EPERM;
}

/* Nobody gets a stronger word than what is there; and nothing is a reason to run as root. */
static int find_features(struct spawner *sp)
{
	const struct isolation_settings *settings = &sp->settings;
	struct spawn_features *features = &sp->features;
	const bool root = geteuid() == 0;

	if (isolation_is(settings, "none") && isolation_net_is_allow(settings)) {
		snprintf(features->reason, sizeof(features->reason),
		         "net=allow needs a network namespace, which isolation=none does not make");
		return -EINVAL;
	}
	if (isolation_is(settings, "none")) {
		snprintf(features->reason, sizeof(features->reason), "isolation=none");
		return 0;
	}
	features->isolated = true;
	features->become = root && !sbx_mitigation_off("run_as");
	if (root && !features->become)
		features->who = (struct sbx_identity){0};
	views_probe(settings, features);
	if (isolation_net_is_allow(settings) && !features->net_ns)
		return lacks_network(features);
	build_filter(sp);
	if (isolation_is(settings, "require") && *features->reason)
		return -EPERM;
	return root && !(features->mount_ns && features->owners) ? -EPERM : 0;
}

/* Who cannot join has been taken for dead; or may not leave where we are. */
static void join_group(struct spawner *sp)
{
	struct sbx_cgroup_features *features = &sp->features.cgroup;
	int r = sp->group.dir < 0 ? 0 : cgroup_join(&sp->group);

	*features = sp->group.features;
	if (r == 0)
		return;
	sbx_cleanup_fd(&sp->group.dir);
	*features = (struct sbx_cgroup_features){0};
	snprintf(features->reason, sizeof(features->reason), "the cgroup cannot be entered: %s",
	         strerror(-r));
}

/* The first message. */
static int receive_start(struct spawner *sp)
{
	struct spawn_message *msg = &sp->message;
	struct spawn_start start;
	int r = spawn_receive(INIT_REPORT_FD, 0, msg);

	if (!r && !spawn_is_our_build(msg->bytes, msg->len))
		r = -EPROTO;
	if (!r) {
		memcpy(&start, msg->bytes, sizeof(start));
		sp->daemon = start.daemon;
		sp->features.who = start.who;
		sp->group.features = start.cgroup;
		sp->group.dir = sbx_steal_fd(&msg->fds[1]);
		r = spawn_decode_settings(&start, msg->fds[0], &sp->settings);
	}
	drop_descriptors(msg);
	return r;
}

static int set_up(struct spawner *sp)
{
	int r;

	reset_signals();
	r = arrange_descriptors();
	if (r < 0)
		return r;
	setsid();
	umask(022);
	r = raise_files(&sp->nofile);
	if (!r && limits_no_core() < 0)
		r = -errno;
	if (r < 0)
		return r;
	sp->message.bytes = malloc(SPAWN_MESSAGE);
	if (!sp->message.bytes || chdir("/") < 0)
		return sp->message.bytes ? -errno : -ENOMEM;
	r = receive_start(sp);
	if (r < 0)
		return r;
	join_group(sp);
	r = find_features(sp);
	if (r < 0)
		return r;
	bind_life(sp->daemon);
	if (sp->features.isolated && privileges_bound() < 0)
		return -errno;
	r = views_create(&sp->settings, &sp->features, &sp->views);
	return r < 0 ? r
	             : init_pool_create(
	                       &(struct init_pool_config){
	                               .features = &sp->features,
	                               .settings = &sp->settings,
	                               .views = sp->views,
	                               .cgroup = &sp->group,
	                               .filter = sp->features.seccomp ? &sp->filter : NULL,
	                               .nofile = sp->nofile,
	                               .message = sp->message.bytes,
	                       },
	                       &sp->pool);
}

/* By hand there is nothing that it could be used for. */
static bool is_started_by_daemon(void)
{
	socklen_t len = sizeof(int);
	int type;

	return getsockopt(INIT_REPORT_FD, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       type == SOCK_SEQPACKET;
}

int main(void)
{
	struct spawner sp = {.group = CGROUP_NONE};
	struct spawn_hello hello = {.build = spawn_build, .report.event = SPAWN_HELLO};

	if (!is_started_by_daemon()) {
		fputs("sandboxfs-runner is started by sandboxfs\n", stderr);
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	hello.report.code = -set_up(&sp);
	hello.features = sp.features;
	tell(&hello, sizeof(hello));
	if (hello.report.code)
		_exit(1);
	loop(&sp);
}
