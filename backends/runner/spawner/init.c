/*
 * A separate process for each job, because pid 1 decides over the life of its namespace: when
 * the spawner kills it the kernel kills everything else, whatever it forked or ignored, and
 * when it finds no child left nothing is left. Without a pid namespace the same program does
 * by walking /proc what the kernel would have done.
 *
 * No handler is ever installed and every signal stays blocked: signals are read from a
 * signalfd, and the leader only has to unblock them.
 */
#include "backends/runner/spawner/init.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/cgroup.h"
#include "backends/runner/isolation/privileges.h"
#include "backends/runner/spawner/denials.h"
#include "backends/runner/spawner/exec.h"
#include "backends/runner/spawner/init_reuse.h"
#include "backends/runner/spawner/memory_limit.h"
#include "backends/runner/spawner/proc_tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

struct init {
	const struct init_config *config;
	struct spawn_message message;
	struct spawn_request req;
	struct leader leader;
	struct memory_watch memory;
	bool leader_ended, alone;
	bool over; /* it took more memory than it may, and was killed for that */
	int status;
	struct usage usage; /* of those that were reaped */
	struct refusals refusals;
	struct reuse as_made;
	bool reuse, listens;
	int pid;                /* as the daemon knows us */
	int error;              /* an errno: the preparation failed, */
	enum spawn_stage stage; /* there */
};

static_assert(sizeof(struct init_order) <= PIPE_BUF, "a pipe takes it whole");

static bool was_oom(const struct init_config *config)
{
	return config->events >= 0 && cgroup_was_oom(INIT_EVENTS_FD);
}

static bool report(const struct init *in, enum spawn_event event, int code)
{
	struct spawn_report r = {.event = event,
	                         .stage = in->stage,
	                         .job = in->req.cmd.job,
	                         .code = code,
	                         .remain = !in->alone,
	                         .oom = in->over || was_oom(in->config)};

	if (event == SPAWN_ENDED) {
		r.user_us = in->usage.user_us;
		r.sys_us = in->usage.sys_us;
		r.max_rss_kb = in->usage.max_rss_kb;
	}
	return send(INIT_REPORT_FD, &r, sizeof(r), MSG_NOSIGNAL) == (ssize_t)sizeof(r);
}

/* Where there is a pid namespace the kernel does this. */
static void abandon_leader(const struct init *in)
{
	if (in->leader.pid > 0)
		kill(in->leader.pid, SIGKILL);
}

static _Noreturn void fail(struct init *in, enum spawn_stage stage, int err)
{
	abandon_leader(in);
	in->stage = stage;
	in->alone = true;
	_exit(report(in, SPAWN_FAILED, err) ? 0 : 1);
}

/* Beneath the tree's root by the kernel's own walk, so no link and no ".." leads out. */
static int open_cwd(const struct init *in)
{
	const struct spawn_request *req = &in->req;
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
	                       .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
	const bool own = view_is_own(in->config->view) && !sbx_mitigation_off("view");
	int root = open(own ? req->view : req->workdir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (sbx_mitigation_off("cwd"))
		how.resolve = 0;
	if (root < 0 || !*req->cwd)
		return root;
	do
		fd = (int)filter_call(in->config->filter, SYS_openat2, root, (long)req->cwd,
		                      (long)&how, (long)sizeof(how));
	while (fd < 0 && errno == EAGAIN); /* a rename raced with ".." */
	close(root);
	return fd;
}

/* A child may ask to be traced by its parent, who then hears of each of its signals: it gets them.
 */
static void let_go(pid_t pid, int sig)
{
	ptrace(PTRACE_DETACH, pid, NULL, (void *)(uintptr_t)(sig == SIGTRAP ? 0 : sig));
}

static void note_end(struct init *in, pid_t pid, int status, const struct rusage *ru)
{
	usage_add(&in->usage, ru);
	if (pid != in->leader.pid || in->leader_ended)
		return;
	in->leader_ended = true;
	in->status = status;
}

static void reap(struct init *in)
{
	struct rusage ru;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		if (WIFSTOPPED(status))
			let_go(pid, WSTOPSIG(status));
		else
			note_end(in, pid, status, &ru);
	}
	in->alone = pid < 0;
}

/* Without a pid namespace: until the kernel says that we have no child. */
static void kill_descendants(struct init *in)
{
	siginfo_t info;

	for (reap(in); !in->alone; reap(in))
		if (descend_signal(getpid(), NULL, NULL, SIGKILL) > 0)
			waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
}

static void forward(struct init *in, int sig)
{
	if (in->config->features->pid_ns)
		kill(-1, sig);
	else if (sig == SIGKILL)
		kill_descendants(in);
	else
		descend_signal(getpid(), NULL, NULL, sig);
}

static void handle_signal(struct init *in, const struct signalfd_siginfo *info)
{
	if (info->ssi_signo != SIGTERM || in->config->features->pid_ns)
		return;
	/* The spawner is dead: the daemon counts us among the lost. */
	kill_descendants(in);
	_exit(1);
}

/* One of another job came when that had ended. */
static void take_order(struct init *in)
{
	struct init_order order;

	if (read(INIT_ORDERS_FD, &order, sizeof(order)) == (ssize_t)sizeof(order) &&
	    order.job == in->req.cmd.job)
		forward(in, order.sig);
}

static void check_memory(struct init *in)
{
	if (!memory_watch_over(&in->memory))
		return;
	in->over = true;
	forward(in, SIGKILL);
}

/* The sooner of two; negative: never. */
static int sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Waits for the next thing to do and does it. */
static void attend(struct init *in)
{
	struct pollfd p[3] = {{.fd = INIT_SIGNAL_FD, .events = POLLIN},
	                      {.fd = in->refusals.fd, .events = POLLIN},
	                      {.fd = INIT_ORDERS_FD, .events = POLLIN}};
	struct signalfd_siginfo info;

	if (poll(p, 3, sooner(refusals_due_ms(&in->refusals), memory_watch_due_ms(&in->memory))) <
	    0)
		return;
	check_memory(in);
	refusals_serve(&in->refusals, p[1].revents);
	refusals_flush(&in->refusals, false);
	if (p[0].revents && read(INIT_SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info))
		handle_signal(in, &info);
	if (p[2].revents)
		take_order(in);
}

static void look_after(struct init *in)
{
	bool told = false;

	for (reap(in); !in->alone; reap(in)) {
		if (in->leader_ended && !told) {
			told = true;
			if (!report(in, SPAWN_ENDED, in->status))
				forward(in, SIGKILL);
			continue;
		}
		attend(in);
	}
	refusals_flush(&in->refusals, true);
}

/* As the daemon knows us: /proc is still the host's. */
static int outer_pid(const struct init_config *config)
{
	char text[16] = "";

	if (!config->features->pid_ns)
		return getpid();
	return readlink("/proc/self", text, sizeof(text) - 1) > 0 ? atoi(text) : 0;
}

/* A dying process loses its locks before its children get the death signal. */
static bool spawner_lives(void)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(INIT_LIFE_FD, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

/* The spawner's end is ours. In a pid namespace getppid() would not tell that it has come. */
static void bind_life(const struct init *in)
{
	const bool pid_ns = in->config->features->pid_ns;

	prctl(PR_SET_DUMPABLE, sbx_mitigation_off("undumpable"), 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, pid_ns ? SIGKILL : SIGTERM, 0, 0, 0);
	if (!spawner_lives())
		_exit(1);
}

/* --- before the request -------------------------------------------------------------------------
 */

static int place_descriptors(const struct init_config *config)
{
	const struct view *view = config->view;

	if (dup2(config->work, INIT_WORK_FD) < 0 || dup2(config->orders, INIT_ORDERS_FD) < 0 ||
	    (view && view->user >= 0 && dup2(view->user, INIT_USER_FD) < 0) ||
	    (view && view->landlock >= 0 && dup2(view->landlock, INIT_RULES_FD) < 0) ||
	    (config->events >= 0 && dup2(config->events, INIT_EVENTS_FD) < 0))
		return -errno;
	return close_range(INIT_END_FD, ~0U, 0) < 0 ? -errno : 0;
}

/*
 * Applies the restrictions that hold for init itself and that commands inherit. From here on init
 * must use filter_call: a system call that the filter refuses would block until init, its own
 * listener, answered it.
 */
static int confine(struct init *in)
{
	const struct init_config *config = in->config;
	int listener;

	in->stage = SPAWN_AT_RIGHTS;
	if (!sbx_mitigation_off("no_new_privs") && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (!config->filter)
		return 0;
	if (filter_load(config->filter, &listener) < 0 ||
	    (listener >= 0 && dup2(listener, INIT_LISTENER_FD) < 0))
		return -errno;
	in->listens = listener >= 0;
	return close_range(INIT_END_FD, ~0U, 0) < 0 ? -errno : 0;
}

/*
 * With the leader made, we can do without any right but to signal what it starts; to count its
 * memory it is enough that who we become owns the user namespace of commands. Not asking who we
 * are: in a namespace that lacks our number the answer would be nobody's.
 */
static int become_plain(const struct init *in)
{
	const struct spawn_features *features = in->config->features;
	const struct sbx_identity *who = features->become ? &features->who : NULL;
	int r;

	if (!features->isolated)
		return 0;
	r = in->reuse ? privileges_give_up_but(who, REUSE_RIGHT) : privileges_give_up(who);
	if (r < 0)
		return -errno;
	bind_life(in); /* the kernel has undone it */
	return 0;
}

static int prepare_leader(struct init *in)
{
	int err = leader_prepare(&in->leader, in->config);

	if (err) {
		in->stage = in->leader.stage;
		return -err;
	}
	in->stage = SPAWN_AT_RIGHTS;
	return 0;
}

/*
 * Unblocks all signals but SIGCHLD. A blocked signal is queued for us and charged to the user; of
 * the others the kernel throws away those that are sent to pid 1.
 */
static void let_signals_go(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_SETMASK, &set, NULL);
}

/* All that can be done without knowing the command. */
static void prepare(struct init *in)
{
	const struct init_config *config = in->config;
	int r;

	in->pid = outer_pid(config);
	prctl(PR_SET_NAME, "sandboxfs-init", 0, 0, 0);
	if (!config->features->pid_ns)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	in->stage = SPAWN_AT_VIEW;
	r = config->view ? view_enter(config->view) : 0;
	bind_life(in);
	if (config->features->pid_ns)
		let_signals_go();
	if (!r && config->group >= 0) {
		in->stage = SPAWN_AT_LIMITS;
		r = cgroup_job_enter(config->cgroup, config->group, 0);
	}
	if (!r) {
		in->stage = SPAWN_AT_FORK;
		r = place_descriptors(config);
	}
	if (!r)
		r = confine(in);
	if (!r)
		r = prepare_leader(in);
	if (!r)
		r = become_plain(in);
	if (in->reuse)
		reuse_note(&in->as_made);
	in->error = -r;
}

/* --- the request --------------------------------------------------------------------------------
 */

/* No request will come when the spawner has closed its end. */
static void await_request(struct init *in)
{
	struct spawn_message *msg = &in->message;
	int r;

	msg->bytes = in->config->message;
	r = spawn_receive(INIT_WORK_FD, 0, msg);
	if (r == -EPIPE) {
		abandon_leader(in);
		_exit(0);
	}
	if (!r)
		r = spawn_decode(msg, &in->req);
	if (r < 0)
		fail(in, SPAWN_AT_FORK, -r);
}

static int place_streams(const struct init *in)
{
	for (int i = 0; i < 3; i++) {
		int at = spawn_stream(&in->message, i);

		if (at >= 0 && dup2(in->message.fds[at], i) < 0)
			return -1;
	}
	return 0;
}

static void place_cwd(struct init *in)
{
	int fd = open_cwd(in);

	if (fd < 0)
		fail(in, SPAWN_AT_CWD, errno);
	if (dup2(fd, INIT_CWD_FD) < 0)
		fail(in, SPAWN_AT_FORK, errno);
	close(fd);
}

/*
 * Closes all descriptors that are not for init. Those for another leader close only when there
 * will be none.
 */
static void close_rest(struct init *in)
{
	close_range(INIT_END_FD, ~0U, 0);
	for (int i = 0; in->reuse && i < 3; i++)
		dup2(INIT_NULL_FD, i);
	if (in->reuse) {
		dup2(INIT_NULL_FD, INIT_CWD_FD);
		return;
	}
	close_range(0, 2, 0);
	close_range(INIT_LISTENER_FD + 1, INIT_EVENTS_FD - 1, 0);
	close_range(INIT_ORDERS_FD + 1, ~0U, 0);
}

static void start_leader(struct init *in)
{
	int err = place_streams(in) < 0 ? errno : 0;

	if (err)
		fail(in, SPAWN_AT_FORK, err);
	place_cwd(in);
	err = leader_release(&in->leader, &in->req);
	if (err)
		fail(in, in->leader.stage, err);
	close_rest(in);
	in->refusals = (struct refusals){.fd = in->listens ? INIT_LISTENER_FD : -1,
	                                 .job = in->req.cmd.job};
}

static void serve(struct init *in)
{
	await_request(in);
	if (in->error)
		fail(in, in->stage, in->error);
	start_leader(in);
	if (spawn_watches(in->config->features) && !sbx_mitigation_off("limits"))
		memory_watch_start(&in->memory, in->req.cmd.limits.memory_mb);
	if (!report(in, SPAWN_STARTED, in->pid))
		forward(in, SIGKILL);
	look_after(in);
}

/* --- another one ---------------------------------------------------------------------------------
 */

/* Before the daemon hears of the end: the next request may be here at once. */
static bool offer_again(const struct init *in)
{
	struct usage usage = {0};
	struct rusage ru;

	if (!in->reuse || !reuse_ready(&in->as_made))
		return false;
	if (getrusage(RUSAGE_SELF, &ru) == 0)
		usage_add(&usage, &ru);
	if (getrusage(RUSAGE_CHILDREN, &ru) == 0)
		usage_add(&usage, &ru);
	return send(INIT_WORK_FD, &usage, sizeof(usage), MSG_NOSIGNAL) == (ssize_t)sizeof(usage);
}

static void renew(struct init *in)
{
	spawn_request_finish(&in->req);
	*in = (struct init){.config = in->config,
	                    .pid = in->pid,
	                    .as_made = in->as_made,
	                    .reuse = in->reuse,
	                    .listens = in->listens};
	in->error = -prepare_leader(in);
}

void init_main(const struct init_config *config)
{
	/* Without that a process needs a right to restrict itself, which we have only once. */
	struct init in = {.config = config,
	                  .reuse = config->reuse && !sbx_mitigation_off("no_new_privs")};
	bool told, again;

	for (prepare(&in);; renew(&in)) {
		serve(&in);
		again = offer_again(&in);
		told = report(&in, SPAWN_ENDED, in.status);
		sched_yield(); /* somebody waits for that; nobody for what comes now */
		if (!told || !again)
			_exit(told ? 0 : 1);
	}
}
