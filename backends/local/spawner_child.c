/*
 * The spawner process. It does nothing but fork inits, pass signals to them and reap them;
 * what takes time happens in init. It never waits for the daemon in a way that could make
 * the daemon wait for it: reports are small and the daemon always reads.
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

#include "backends/local/descend.h"
#include "backends/local/filter.h"
#include "backends/local/init.h"
#include "backends/local/privileges.h"
#include "backends/local/spawn_proto.h"
#include "backends/local/view.h"
#include "sandboxfs/cleanup.h"

#define SIGNAL_FD 4

struct running {
	uint64_t job;
	pid_t pid;
};

struct spawner {
	struct spawn_powers powers;
	struct views *views;
	struct rlimit nofile; /* as it was at the start */
	struct sock_fprog filter;
	pid_t pid;
	struct running *running;
	size_t n, cap;
	char *message; /* of SPAWN_INLINE and a command */
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

static struct running *find_job(struct spawner *sp, uint64_t job)
{
	for (size_t i = 0; i < sp->n; i++)
		if (sp->running[i].job == job)
			return &sp->running[i];
	return NULL;
}

static bool is_init(pid_t pid, void *data)
{
	struct spawner *sp = data;

	for (size_t i = 0; i < sp->n; i++)
		if (sp->running[i].pid == pid)
			return true;
	return false;
}

/* Without pid namespaces: what a killed init left behind has become our child. */
static void kill_orphans(struct spawner *sp)
{
	if (sp->powers.pid_ns)
		return;
	while (descend_signal(sp->pid, is_init, sp, SIGKILL) > 0)
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
}

static void report_gone(const struct running *run, const struct rusage *ru)
{
	struct spawn_report r = {.event = SPAWN_GONE, .job = run->job};

	r.user_us = (uint64_t)ru->ru_utime.tv_sec * 1000000u + (uint64_t)ru->ru_utime.tv_usec;
	r.sys_us = (uint64_t)ru->ru_stime.tv_sec * 1000000u + (uint64_t)ru->ru_stime.tv_usec;
	r.max_rss_kb = (uint64_t)ru->ru_maxrss;
	tell(&r, sizeof(r));
}

static void reap(struct spawner *sp)
{
	struct rusage ru;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		struct running run;
		size_t i = 0;

		while (i < sp->n && sp->running[i].pid != pid)
			i++;
		if (i == sp->n)
			continue;
		run = sp->running[i];
		sp->running[i] = sp->running[--sp->n];
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue; /* init has told the end itself */
		kill_orphans(sp);
		report_gone(&run, &ru);
	}
}

static pid_t fork_init(struct spawner *sp)
{
	unsigned long flags = SIGCHLD | (sp->powers.pid_ns ? CLONE_NEWPID : 0);

	return (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, 0UL);
}

static int make_room(struct spawner *sp)
{
	size_t cap = sp->cap ? 2 * sp->cap : 64;
	struct running *running;

	if (sp->n < sp->cap)
		return 0;
	running = realloc(sp->running, cap * sizeof(*running));
	if (!running)
		return -ENOMEM;
	sp->running = running;
	sp->cap = cap;
	return 0;
}

static void start_job(struct spawner *sp, struct spawn_request *req)
{
	struct init_job job = {.req = req,
	                       .powers = &sp->powers,
	                       .filter = sp->powers.seccomp ? &sp->filter : NULL,
	                       .nofile = sp->nofile};
	pid_t pid;
	int r;

	r = make_room(sp);
	if (r < 0) {
		tell_failed(req->cmd.job, SPAWN_AT_FORK, -r);
		return;
	}
	r = sp->powers.mount_ns || sp->powers.landlock ? views_get(sp->views, req, &job.view) : 0;
	if (r < 0) {
		tell_failed(req->cmd.job, SPAWN_AT_VIEW, -r);
		return;
	}
	pid = fork_init(sp);
	if (pid == 0)
		init_main(&job);
	if (pid < 0)
		tell_failed(req->cmd.job, SPAWN_AT_FORK, errno);
	else
		sp->running[sp->n++] = (struct running){.job = req->cmd.job, .pid = pid};
}

/* SIGKILL takes the namespace down; all else, and all without one, is init's to carry out. */
static void signal_job(struct spawner *sp, const struct spawn_command *cmd)
{
	const struct running *run = find_job(sp, cmd->job);
	union sigval value = {.sival_int = cmd->sig};

	if (!run)
		return;
	if (cmd->sig == SIGKILL && sp->powers.pid_ns) {
		kill(run->pid, SIGKILL);
		return;
	}
	sigqueue(run->pid, SIGRTMIN, value);
	if (!sp->powers.pid_ns)
		kill(run->pid, SIGCONT);
}

static int read_memfd(int fd, char *buf, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = pread(fd, buf + at, len - at, (off_t)at);

		if (n <= 0)
			return n < 0 ? -errno : -EPROTO;
		at += (size_t)n;
	}
	return 0;
}

static int load_payload(struct spawn_request *req, const char *inlined, size_t len, int memfd)
{
	size_t need = req->cmd.payload;

	if (need > SPAWN_MAX || (memfd < 0 && need != len))
		return -EPROTO;
	req->buf = malloc(need + 1);
	if (!req->buf)
		return -ENOMEM;
	if (memfd >= 0)
		return read_memfd(memfd, req->buf, need);
	memcpy(req->buf, inlined, need);
	return 0;
}

/* FDS: as struct spawn_command says. All of them are closed or handed to REQ. */
static void serve_exec(struct spawner *sp, struct spawn_request *req, int *fds, const char *inlined,
                       size_t len)
{
	int at = 0, memfd, r;

	if (req->cmd.flags & SPAWN_HAS_STDIN)
		req->fds[0] = sbx_steal_fd(&fds[at++]);
	req->fds[1] = sbx_steal_fd(&fds[at++]);
	req->fds[2] = sbx_steal_fd(&fds[at++]);
	memfd = req->cmd.flags & SPAWN_IN_MEMFD ? fds[at] : -1;
	r = req->fds[2] < 0 ? -EMFILE : load_payload(req, inlined, len, memfd);
	if (!r)
		r = spawn_decode(req);
	if (r < 0)
		tell_failed(req->cmd.job, SPAWN_AT_FORK, -r);
	else
		start_job(sp, req);
}

static void serve(struct spawner *sp, char *message, size_t len, int *fds)
{
	struct spawn_request req = {.fds = {-1, -1, -1}};
	char *payload = message + sizeof(req.cmd);

	if (len < sizeof(req.cmd))
		return;
	memcpy(&req.cmd, message, sizeof(req.cmd));
	len -= sizeof(req.cmd);
	if (req.cmd.verb == SPAWN_EXEC)
		serve_exec(sp, &req, fds, payload, len);
	else if (req.cmd.verb == SPAWN_SIGNAL)
		signal_job(sp, &req.cmd);
	else if (req.cmd.verb == SPAWN_FORGET && len > 0 && payload[len - 1] == 0)
		views_forget(sp->views, payload);
	spawn_request_finish(&req);
}

static void take_fds(struct msghdr *msg, int *fds)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && n <= SPAWN_FDS)
			memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	}
}

/* Returns false when the daemon has closed its end. */
static bool receive(struct spawner *sp)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(SPAWN_FDS * sizeof(int))];
	} control;
	int fds[SPAWN_FDS] = {-1, -1, -1, -1};
	struct iovec iov = {.iov_base = sp->message,
	                    .iov_len = SPAWN_INLINE + sizeof(struct spawn_command)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	ssize_t n = recvmsg(INIT_REPORT_FD, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	take_fds(&msg, fds);
	serve(sp, sp->message, (size_t)n, fds);
	for (int i = 0; i < SPAWN_FDS; i++)
		sbx_cleanup_fd(&fds[i]);
	return true;
}

/* An init without a pid namespace must not be killed before it has killed the rest: our own death
 * may be next, since the daemon's sockets close before its death signal comes. */
static _Noreturn void end_everything(struct spawner *sp)
{
	for (size_t i = 0; i < sp->n; i++) {
		kill(sp->running[i].pid, sp->powers.pid_ns ? SIGKILL : SIGTERM);
		kill(sp->running[i].pid, SIGCONT);
	}
	while (sp->n > 0) {
		siginfo_t info;

		waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
		reap(sp);
	}
	kill_orphans(sp);
	_exit(0);
}

static _Noreturn void loop(struct spawner *sp)
{
	struct pollfd p[2] = {{.fd = INIT_REPORT_FD, .events = POLLIN},
	                      {.fd = SIGNAL_FD, .events = POLLIN}};
	struct signalfd_siginfo info;

	for (;;) {
		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].revents && read(SIGNAL_FD, &info, sizeof(info)) > 0)
			reap(sp);
		if (p[0].revents && !receive(sp))
			end_everything(sp);
	}
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

/* Descriptors 0, 1, 2: /dev/null; 3: the socket; 4: SIGCHLD; 5: the lock; those kept for init. */
static int arrange_descriptors(int fd)
{
	sigset_t chld;
	int null, sigfd, r;

	r = place_fd(fd, INIT_REPORT_FD);
	if (r < 0)
		return r;
	close_range(INIT_REPORT_FD + 1, ~0U, 0);
	close_range(0, INIT_REPORT_FD - 1, 0);
	null = open("/dev/null", O_RDWR);
	if (null != 0 || dup2(0, 1) < 0 || dup2(0, 2) < 0)
		return -EBADF;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	r = sigfd < 0 ? -errno : place_fd(sigfd, SIGNAL_FD);
	if (!r)
		r = hold_life_lock();
	for (int i = INIT_FREE_FD; !r && i < INIT_FREE_FD + 3; i++)
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

static void give_name(void)
{
	setsid();
	umask(022);
	prctl(PR_SET_NAME, "sandboxfs-spawn", 0, 0, 0);
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
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != daemon)
		_exit(1);
}

/* Refused calls are a wall more; where no other keeps sockets of the host away they are the wall. */
static void build_filter(struct spawner *sp, const struct sbx_settings *settings)
{
	struct spawn_powers *powers = &sp->powers;
	const bool host_net = settings->net && strcmp(settings->net, "host") == 0;
	const struct filter_wish wish = {.no_inet = !powers->net_ns && !host_net,
	                                 .no_unix = !powers->mount_ns};
	int r = filter_build(&wish, &sp->filter);

	powers->seccomp = !r;
	if (r && !*powers->reason)
		snprintf(powers->reason, sizeof(powers->reason), "no system call filter: %s",
		         r == -EOPNOTSUPP ? "built without libseccomp" : strerror(-r));
}

/* Nobody gets a stronger word than what is there; and nothing is a reason to run as root. */
static int find_powers(struct spawner *sp, const struct sbx_settings *settings)
{
	const char *isolation = settings->isolation ? settings->isolation : "auto";
	struct spawn_powers *powers = &sp->powers;
	const bool root = geteuid() == 0;
	struct sbx_error err;
	int r = sbx_identity_find(settings, &powers->who, &err);

	if (r < 0) {
		snprintf(powers->reason, sizeof(powers->reason), "%.*s",
		         (int)sizeof(powers->reason) - 1, err.text);
		return r;
	}
	if (strcmp(isolation, "none") == 0) {
		snprintf(powers->reason, sizeof(powers->reason), "isolation=none");
		return 0;
	}
	powers->isolated = true;
	powers->become = root;
	views_probe(settings, powers);
	build_filter(sp, settings);
	if (strcmp(isolation, "require") == 0 && *powers->reason)
		return -EPERM;
	return root && !(powers->mount_ns && powers->owners) ? -EPERM : 0;
}

static int set_up(struct spawner *sp, int fd, const struct sbx_settings *settings, pid_t daemon)
{
	int r;

	reset_signals();
	r = arrange_descriptors(fd);
	if (r < 0)
		return r;
	give_name();
	r = raise_files(&sp->nofile);
	if (r < 0)
		return r;
	sp->pid = getpid();
	sp->message = malloc(SPAWN_INLINE + sizeof(struct spawn_command));
	if (!sp->message || chdir("/") < 0)
		return sp->message ? -errno : -ENOMEM;
	r = find_powers(sp, settings);
	if (r < 0)
		return r;
	bind_life(daemon);
	if (sp->powers.isolated && privileges_bound() < 0)
		return -errno;
	return views_create(settings, &sp->powers, &sp->views);
}

void spawner_main(int fd, const struct sbx_settings *settings, pid_t daemon)
{
	struct spawner sp = {0};
	struct spawn_hello hello = {.report.event = SPAWN_HELLO};

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	hello.report.code = -set_up(&sp, fd, settings, daemon);
	hello.powers = sp.powers;
	tell(&hello, sizeof(hello));
	if (hello.report.code)
		_exit(1);
	loop(&sp);
}
