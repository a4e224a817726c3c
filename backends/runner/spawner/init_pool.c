/*
 * A pool of inits made before they are needed. Most of a command's cost is the making of its pid
 * namespace, the joining of the others, and the giving up of rights, and none of that depends on
 * the command. So an init that finds itself unchanged when its command has ended waits for the
 * next one. When an init did not come back, or cannot, its successor is made ahead.
 */
#include "backends/runner/spawner/init_pool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/cgroup.h"
#include "backends/runner/spawner/init_reuse.h"
#include "backends/runner/spawner/proc_tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"
#include "sandboxfs/grow.h"

struct one {
	uint64_t job;  /* 0: it waits */
	uint64_t view; /* serial number of what it waits in */
	pid_t pid;
	int orders;        /* our end of its pipe */
	int work;          /* our end of its socket, -1: it gets no request any more */
	bool reuse;        /* it waits again after JOB, and says so */
	struct usage used; /* before JOB */
	int group, events; /* its cgroup and what that tells, or -1 */
	uint64_t number;   /* of its cgroup */
	char *box;         /* the sandbox of its cgroup */
};

struct inits {
	struct inits_config config;
	pid_t spawner;
	uint64_t made; /* numbers cgroups */
	bool reuse, ending;
	struct one *all;
	size_t n, cap;
};

/* Straight into its cgroup, unless a filter around us has no clone3: then init enters it. */
static pid_t fork_init(const struct inits *inits, struct init_seat *seat)
{
	const unsigned long flags = inits->config.powers->pid_ns ? CLONE_NEWPID : 0;
	struct clone_args args = {.flags = flags | CLONE_INTO_CGROUP,
	                          .exit_signal = SIGCHLD,
	                          .cgroup = (uint64_t)seat->group};
	const int group = seat->group;
	pid_t pid = -1;

	seat->group = -1;
	if (group >= 0)
		pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid >= 0)
		return pid;
	seat->group = group;
	return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0UL);
}

static int make_group(struct inits *inits, const char *box, struct one *one)
{
	const struct inits_config *c = &inits->config;

	if (c->cgroup->dir < 0)
		return 0;
	one->box = strdup(box);
	if (!one->box)
		return -ENOMEM;
	one->number = ++inits->made;
	one->group = cgroup_job_make(c->cgroup, box, one->number, c->settings);
	one->events = one->group < 0 ? -1 : cgroup_job_events(one->group);
	return one->group < 0 ? one->group : 0;
}

/* ONE has ended, or was never begun. */
static void release(struct inits *inits, struct one *one)
{
	sbx_cleanup_fd(&one->work);
	sbx_cleanup_fd(&one->orders);
	sbx_cleanup_fd(&one->events);
	if (one->group >= 0)
		cgroup_job_remove(inits->config.cgroup, one->box, one->number);
	sbx_cleanup_fd(&one->group);
	free(one->box);
}

static int fork_one(struct inits *inits, const struct view *view, struct one *one)
{
	const struct inits_config *c = &inits->config;
	struct init_seat seat = {.powers = c->powers,
	                         .view = view,
	                         .filter = c->filter,
	                         .nofile = c->nofile,
	                         .cgroup = c->cgroup,
	                         .group = one->group,
	                         .events = one->events,
	                         .reuse = one->reuse,
	                         .message = c->message};
	int pair[2], ends[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	one->work = pair[0];
	seat.work = pair[1];
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
		r = -errno;
		close(pair[1]);
		return r;
	}
	seat.orders = ends[0];
	one->orders = ends[1];
	one->pid = fork_init(inits, &seat);
	if (one->pid == 0)
		init_main(&seat);
	r = one->pid < 0 ? -errno : 0;
	close(pair[1]);
	close(ends[0]);
	return r;
}

/*
 * An init may wait only in a mount namespace of its own, because the host could change another,
 * and only with a pid namespace, because it could not be ended as a whole without one.
 */
static bool may_wait(const struct inits *inits, const struct view *view)
{
	return inits->config.powers->pid_ns && view_is_own(view);
}

/*
 * Forks an init for VIEW (NULL: the host) and the sandbox BOX; REUSE: for more than one command. *RET is valid
 * until the next call. Returns 0 or a negative errno.
 */
static int make(struct inits *inits, const struct view *view, const char *box, bool reuse,
                struct one **ret)
{
	struct one one = {.view = view ? view->serial : 0,
	                  .reuse = reuse,
	                  .orders = -1,
	                  .work = -1,
	                  .group = -1,
	                  .events = -1};
	int r = SBX_GROW(inits->all, inits->n, inits->cap, 64);

	if (!r)
		r = make_group(inits, box, &one);
	if (!r)
		r = fork_one(inits, view, &one);
	if (r < 0) {
		release(inits, &one);
		return r;
	}
	assert(one.pid > 0);
	*ret = &inits->all[inits->n++];
	**ret = one;
	return 0;
}

#define KEPT_MAX 32 /* inits that wait, or will again; two processes and some 200 KiB each */

int inits_create(const struct inits_config *config, struct inits **ret)
{
	struct inits *inits = calloc(1, sizeof(*inits));

	if (!inits)
		return -ENOMEM;
	inits->config = *config;
	inits->spawner = getpid();
	inits->reuse = config->powers->pid_ns && config->powers->user_ns &&
	               config->cgroup->dir < 0 && reuse_is_possible();
	*ret = inits;
	return 0;
}

/* --- those that wait ------------------------------------------------------------------------------ */

/* Waits, or has said that it does again. */
static bool is_waiting(struct one *one)
{
	if (one->reuse && one->job && one->work >= 0 &&
	    recv(one->work, &one->used, sizeof(one->used), MSG_DONTWAIT) ==
	            (ssize_t)sizeof(one->used))
		one->job = 0;
	return !one->job && one->work >= 0;
}

static struct one *find_waiting(const struct inits *inits, uint64_t view)
{
	for (size_t i = 0; view && i < inits->n; i++)
		if (inits->all[i].view == view && is_waiting(&inits->all[i]))
			return &inits->all[i];
	return NULL;
}

/* It ends, and is reaped in time. */
static void dismiss(struct one *one)
{
	assert(one->pid > 0);
	kill(one->pid, SIGKILL);
	sbx_cleanup_fd(&one->work);
}

/* Whether one more may be kept. The one that has been of no use for longest makes way. */
static bool find_room(struct inits *inits)
{
	struct one *oldest = NULL;
	size_t kept = 0;

	for (size_t i = 0; i < inits->n; i++) {
		struct one *one = &inits->all[i];
		const bool waits = is_waiting(one);

		kept += waits || (one->reuse && one->work >= 0);
		if (waits && (!oldest || views_last_use(inits->config.views, one->view) <
		                                 views_last_use(inits->config.views, oldest->view)))
			oldest = one;
	}
	if (kept < KEPT_MAX)
		return true;
	if (oldest)
		dismiss(oldest);
	return oldest;
}

void inits_drop_stale(struct inits *inits)
{
	for (size_t i = 0; i < inits->n; i++) {
		struct one *one = &inits->all[i];

		if (one->work < 0 || views_last_use(inits->config.views, one->view))
			continue;
		if (is_waiting(one))
			dismiss(one);
		else if (one->reuse)
			sbx_cleanup_fd(&one->work);
	}
}

/* Of those that serve once: who has a request and has not said yet, by closing its end, that it has begun. */
size_t inits_watch(const struct inits *inits, struct pollfd *fds, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < inits->n && n < max; i++)
		if (inits->all[i].job && inits->all[i].work >= 0 && !inits->all[i].reuse)
			fds[n++] = (struct pollfd){.fd = inits->all[i].work};
	return n;
}

static struct one *find_by_work(const struct inits *inits, int fd)
{
	for (size_t i = 0; i < inits->n; i++)
		if (inits->all[i].work == fd)
			return &inits->all[i];
	return NULL;
}

/* It is the place, not the job, that another is made for. */
static void make_successor(struct inits *inits, uint64_t serial)
{
	const struct view *view = views_find(inits->config.views, serial);
	struct one *one;

	if (view && may_wait(inits, view) && !find_waiting(inits, view->serial) && find_room(inits))
		make(inits, view, view->key, inits->reuse, &one);
}

void inits_begun(struct inits *inits, int fd)
{
	struct one *one = find_by_work(inits, fd);

	if (!one)
		return;
	sbx_cleanup_fd(&one->work);
	make_successor(inits, one->view);
}

/* --- starting --------------------------------------------------------------------------------------- */

/* Pipes are the daemon's, who would be refused a second opening of /dev/stdout by the name. */
static int own_streams(const struct inits *inits, const struct spawn_message *msg)
{
	const struct sbx_identity *who = &inits->config.powers->who;

	for (int i = 0; inits->config.powers->become && i < 3; i++) {
		int at = spawn_stream(msg, i);
		struct stat st;

		if (at >= 0 && fstat(msg->fds[at], &st) == 0 && S_ISFIFO(st.st_mode) &&
		    st.st_uid == geteuid() && fchown(msg->fds[at], who->uid, who->gid) < 0)
			return -errno;
	}
	return 0;
}

/* To the daemon, who serves it. */
static void give_listener(uint64_t job, int fd)
{
	const struct spawn_report report = {.event = SPAWN_LISTENING, .job = job};
	struct pollfd p = {.fd = INIT_REPORT_FD, .events = POLLOUT};

	while (sbx_send_fds(INIT_REPORT_FD, &report, sizeof(report), &fd, 1, MSG_DONTWAIT) ==
	       -EAGAIN)
		poll(&p, 1, -1);
	close(fd);
}

static int get_view(struct inits *inits, const struct spawn_request *req, const struct view **ret)
{
	int r = views_get(inits->config.views, req, ret);
	int listener = r < 0 ? -1 : views_take_listener(inits->config.views, *ret);

	if (listener >= 0)
		give_listener(req->cmd.job, listener);
	inits_drop_stale(inits);
	return r;
}

static int hand_over(const struct inits *inits, struct one *one, const struct spawn_message *msg,
                     const struct spawn_request *req)
{
	int n = 0, r = 0;

	while (n < SPAWN_FDS && msg->fds[n] >= 0)
		n++;
	if (one->group >= 0)
		r = cgroup_job_limit(inits->config.cgroup, one->group, &req->cmd.limits);
	if (!r)
		r = sbx_send_fds(one->work, msg->bytes, msg->len, msg->fds, (size_t)n,
		                 MSG_DONTWAIT);
	if (r < 0) {
		dismiss(one);
		return r;
	}
	assert(!one->job);
	one->job = req->cmd.job;
	return 0;
}

int inits_start(struct inits *inits, const struct spawn_message *msg,
                const struct spawn_request *req, enum spawn_stage *stage)
{
	const struct view *view = NULL;
	struct one *one;
	int r;

	*stage = SPAWN_AT_VIEW;
	if (inits->config.powers->mount_ns || inits->config.powers->landlock) {
		r = get_view(inits, req, &view);
		if (r < 0)
			return r;
	}
	*stage = SPAWN_AT_FORK;
	r = own_streams(inits, msg);
	if (r < 0)
		return r;
	one = find_waiting(inits, view ? view->serial : 0);
	if (!one || hand_over(inits, one, msg, req) < 0) {
		const bool kept = may_wait(inits, view) && find_room(inits);

		r = make(inits, view, req->id, kept && inits->reuse, &one);
		if (!r)
			r = hand_over(inits, one, msg, req);
	}
	return r;
}

/* --- ending ------------------------------------------------------------------------------------------ */

/*
 * SIGKILL takes the cgroup down, or the namespace; all else, and all where there is neither, is init's to
 * carry out.
 */
void inits_signal(struct inits *inits, uint64_t job, int sig)
{
	const struct init_order order = {.job = job, .sig = sig};
	size_t i = 0;
	ssize_t n;

	while (i < inits->n && inits->all[i].job != job)
		i++;
	if (i == inits->n)
		return;
	if (sig == SIGKILL && inits->all[i].group >= 0 &&
	    cgroup_job_kill(inits->config.cgroup, inits->all[i].group) == 0)
		return;
	if (sig == SIGKILL && inits->config.powers->pid_ns) {
		kill(inits->all[i].pid, SIGKILL);
		if (inits->all[i].reuse)
			sbx_cleanup_fd(&inits->all[i].work);
		return;
	}
	n = write(inits->all[i].orders, &order, sizeof(order));
	(void)n; /* it has ended, or hundreds are before it */
	if (!inits->config.powers->pid_ns)
		kill(inits->all[i].pid, SIGCONT);
}

static bool is_init(pid_t pid, void *data)
{
	const struct inits *inits = data;

	for (size_t i = 0; i < inits->n; i++)
		if (inits->all[i].pid == pid)
			return true;
	return false;
}

/* Without pid namespaces: what a killed init left behind has become our child. */
static void kill_orphans(struct inits *inits)
{
	if (inits->config.powers->pid_ns)
		return;
	while (descend_signal(inits->spawner, is_init, inits, SIGKILL) > 0)
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
}

/* What it has run before counts as nobody's. The most memory of all its commands may be an earlier one's. */
static void tell_gone(const struct one *one, const struct rusage *ru, inits_gone_fn gone)
{
	struct usage usage = {0};

	usage_add(&usage, ru);
	usage.user_us -= one->used.user_us < usage.user_us ? one->used.user_us : usage.user_us;
	usage.sys_us -= one->used.sys_us < usage.sys_us ? one->used.sys_us : usage.sys_us;
	if (usage.max_rss_kb <= one->used.max_rss_kb)
		usage.max_rss_kb = 0;
	gone(one->job, cgroup_was_oom(one->events), &usage);
}

void inits_reap(struct inits *inits, inits_gone_fn gone)
{
	struct rusage ru;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		struct one one;
		size_t i = 0;

		while (i < inits->n && inits->all[i].pid != pid)
			i++;
		if (i == inits->n)
			continue;
		one = inits->all[i];
		inits->all[i] = inits->all[--inits->n];
		/* 0: init has told the end itself */
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			kill_orphans(inits);
			if (one.job)
				tell_gone(&one, &ru, gone);
		}
		release(inits, &one);
		if (one.reuse && one.job && !inits->ending)
			make_successor(inits, one.view);
	}
}

/*
 * An init without a pid namespace must not be killed before it has killed the rest: our own death may be
 * next, since the daemon's sockets close before its death signal comes.
 */
void inits_end(struct inits *inits, inits_gone_fn gone)
{
	inits->ending = true;
	for (size_t i = 0; i < inits->n; i++) {
		kill(inits->all[i].pid, inits->config.powers->pid_ns ? SIGKILL : SIGTERM);
		kill(inits->all[i].pid, SIGCONT);
	}
	while (inits->n > 0) {
		siginfo_t info;

		waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
		inits_reap(inits, gone);
	}
	kill_orphans(inits);
}
