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

struct pool {
	struct init_pool_config config;
	pid_t spawner;
	uint64_t made; /* numbers cgroups */
	bool reuse, ending;
	struct one *all;
	size_t n, cap;
};

/* Straight into its cgroup, unless a filter around us has no clone3: then init enters it. */
static pid_t fork_init(const struct pool *pool, struct init_config *config)
{
	const unsigned long flags = pool->config.features->pid_ns ? CLONE_NEWPID : 0;
	struct clone_args args = {.flags = flags | CLONE_INTO_CGROUP,
	                          .exit_signal = SIGCHLD,
	                          .cgroup = (uint64_t)config->group};
	const int group = config->group;
	pid_t pid = -1;

	config->group = -1;
	if (group >= 0)
		pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid >= 0)
		return pid;
	config->group = group;
	return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0UL);
}

static int make_group(struct pool *pool, const char *box, struct one *one)
{
	const struct init_pool_config *c = &pool->config;

	if (c->cgroup->dir < 0)
		return 0;
	one->box = strdup(box);
	if (!one->box)
		return -ENOMEM;
	one->number = ++pool->made;
	one->group = cgroup_job_make(c->cgroup, box, one->number, c->settings);
	one->events = one->group < 0 ? -1 : cgroup_job_events(one->group);
	return one->group < 0 ? one->group : 0;
}

/* ONE has ended, or was never begun. */
static void release(struct pool *pool, struct one *one)
{
	sbx_cleanup_fd(&one->work);
	sbx_cleanup_fd(&one->orders);
	sbx_cleanup_fd(&one->events);
	if (one->group >= 0)
		cgroup_job_remove(pool->config.cgroup, one->box, one->number);
	sbx_cleanup_fd(&one->group);
	free(one->box);
}

static int fork_one(struct pool *pool, const struct view *view, struct one *one)
{
	const struct init_pool_config *c = &pool->config;
	struct init_config config = {.features = c->features,
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
	config.work = pair[1];
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
		r = -errno;
		close(pair[1]);
		return r;
	}
	config.orders = ends[0];
	one->orders = ends[1];
	one->pid = fork_init(pool, &config);
	if (one->pid == 0)
		init_main(&config);
	r = one->pid < 0 ? -errno : 0;
	close(pair[1]);
	close(ends[0]);
	return r;
}

/*
 * An init may wait only in a mount namespace of its own, because the host could change another,
 * and only with a pid namespace, because it could not be ended as a whole without one.
 */
static bool may_wait(const struct pool *pool, const struct view *view)
{
	return pool->config.features->pid_ns && view_is_own(view);
}

/*
 * Forks an init for VIEW (NULL: the host) and the sandbox BOX; REUSE: for more than one command.
 * *RET is valid until the next call. Returns 0 or a negative errno.
 */
static int make(struct pool *pool, const struct view *view, const char *box, bool reuse,
                struct one **ret)
{
	struct one one = {.view = view ? view->serial : 0,
	                  .reuse = reuse,
	                  .orders = -1,
	                  .work = -1,
	                  .group = -1,
	                  .events = -1};
	int r = SBX_GROW(pool->all, pool->n, pool->cap, 64);

	if (!r)
		r = make_group(pool, box, &one);
	if (!r)
		r = fork_one(pool, view, &one);
	if (r < 0) {
		release(pool, &one);
		return r;
	}
	assert(one.pid > 0);
	*ret = &pool->all[pool->n++];
	**ret = one;
	return 0;
}

#define KEPT_MAX 32 /* inits that wait, or will again; two processes and some 200 KiB each */

int init_pool_create(const struct init_pool_config *config, struct pool **ret)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pool->config = *config;
	pool->spawner = getpid();
	pool->reuse = config->features->pid_ns && config->features->user_ns &&
	              config->cgroup->dir < 0 && reuse_is_possible();
	*ret = pool;
	return 0;
}

/* --- those that wait
 * ------------------------------------------------------------------------------ */

/* Waits, or has said that it does again. */
static bool is_waiting(struct one *one)
{
	if (one->reuse && one->job && one->work >= 0 &&
	    recv(one->work, &one->used, sizeof(one->used), MSG_DONTWAIT) ==
	            (ssize_t)sizeof(one->used))
		one->job = 0;
	return !one->job && one->work >= 0;
}

static struct one *find_waiting(const struct pool *pool, uint64_t view)
{
	for (size_t i = 0; view && i < pool->n; i++)
		if (pool->all[i].view == view && is_waiting(&pool->all[i]))
			return &pool->all[i];
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
static bool find_room(struct pool *pool)
{
	struct one *oldest = NULL;
	size_t kept = 0;

	for (size_t i = 0; i < pool->n; i++) {
		struct one *one = &pool->all[i];
		const bool waits = is_waiting(one);

		kept += waits || (one->reuse && one->work >= 0);
		if (waits && (!oldest || views_last_use(pool->config.views, one->view) <
		                                 views_last_use(pool->config.views, oldest->view)))
			oldest = one;
	}
	if (kept < KEPT_MAX)
		return true;
	if (oldest)
		dismiss(oldest);
	return oldest;
}

void init_pool_drop_stale(struct pool *pool)
{
	for (size_t i = 0; i < pool->n; i++) {
		struct one *one = &pool->all[i];

		if (one->work < 0 || views_last_use(pool->config.views, one->view))
			continue;
		if (is_waiting(one))
			dismiss(one);
		else if (one->reuse)
			sbx_cleanup_fd(&one->work);
	}
}

/* Of those that serve once: who has a request and has not said yet, by closing its end, that it has
 * begun. */
size_t init_pool_watch(const struct pool *pool, struct pollfd *fds, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < pool->n && n < max; i++)
		if (pool->all[i].job && pool->all[i].work >= 0 && !pool->all[i].reuse)
			fds[n++] = (struct pollfd){.fd = pool->all[i].work};
	return n;
}

static struct one *find_by_work(const struct pool *pool, int fd)
{
	for (size_t i = 0; i < pool->n; i++)
		if (pool->all[i].work == fd)
			return &pool->all[i];
	return NULL;
}

/* It is the place, not the job, that another is made for. */
static void make_successor(struct pool *pool, uint64_t serial)
{
	const struct view *view = views_find(pool->config.views, serial);
	struct one *one;

	if (view && may_wait(pool, view) && !find_waiting(pool, view->serial) && find_room(pool))
		make(pool, view, view->key, pool->reuse, &one);
}

void init_pool_begun(struct pool *pool, int fd)
{
	struct one *one = find_by_work(pool, fd);

	if (!one)
		return;
	sbx_cleanup_fd(&one->work);
	make_successor(pool, one->view);
}

/* --- starting
 * --------------------------------------------------------------------------------------- */

/* Pipes are the daemon's, who would be refused a second opening of /dev/stdout by the name. */
static int own_streams(const struct pool *pool, const struct spawn_message *msg)
{
	const struct sbx_identity *who = &pool->config.features->who;

	for (int i = 0; pool->config.features->become && i < 3; i++) {
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

static int get_view(struct pool *pool, const struct spawn_request *req, const struct view **ret)
{
	int r = views_get(pool->config.views, req, ret);
	int listener = r < 0 ? -1 : views_take_listener(pool->config.views, *ret);

	if (listener >= 0)
		give_listener(req->cmd.job, listener);
	init_pool_drop_stale(pool);
	return r;
}

static int hand_over(const struct pool *pool, struct one *one, const struct spawn_message *msg,
                     const struct spawn_request *req)
{
	int n = 0, r = 0;

	while (n < SPAWN_FDS && msg->fds[n] >= 0)
		n++;
	if (one->group >= 0)
		r = cgroup_job_limit(pool->config.cgroup, one->group, &req->cmd.limits);
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

int init_pool_start(struct pool *pool, const struct spawn_message *msg,
                    const struct spawn_request *req, enum spawn_stage *stage)
{
	const struct view *view = NULL;
	struct one *one;
	int r;

	*stage = SPAWN_AT_VIEW;
	if (pool->config.features->mount_ns || pool->config.features->landlock) {
		r = get_view(pool, req, &view);
		if (r < 0)
			return r;
	}
	*stage = SPAWN_AT_FORK;
	r = own_streams(pool, msg);
	if (r < 0)
		return r;
	one = find_waiting(pool, view ? view->serial : 0);
	if (!one || hand_over(pool, one, msg, req) < 0) {
		const bool kept = may_wait(pool, view) && find_room(pool);

		r = make(pool, view, req->id, kept && pool->reuse, &one);
		if (!r)
			r = hand_over(pool, one, msg, req);
	}
	return r;
}

/* --- ending
 * ------------------------------------------------------------------------------------------ */

/*
 * SIGKILL takes the cgroup down, or the namespace; all else, and all where there is neither, is
 * init's to carry out.
 */
void init_pool_signal(struct pool *pool, uint64_t job, int sig)
{
	const struct init_order order = {.job = job, .sig = sig};
	size_t i = 0;
	ssize_t n;

	while (i < pool->n && pool->all[i].job != job)
		i++;
	if (i == pool->n)
		return;
	if (sig == SIGKILL && pool->all[i].group >= 0 &&
	    cgroup_job_kill(pool->config.cgroup, pool->all[i].group) == 0)
		return;
	if (sig == SIGKILL && pool->config.features->pid_ns) {
		kill(pool->all[i].pid, SIGKILL);
		if (pool->all[i].reuse)
			sbx_cleanup_fd(&pool->all[i].work);
		return;
	}
	n = write(pool->all[i].orders, &order, sizeof(order));
	(void)n; /* it has ended, or hundreds are before it */
	if (!pool->config.features->pid_ns)
		kill(pool->all[i].pid, SIGCONT);
}

static bool is_init(pid_t pid, void *data)
{
	const struct pool *pool = data;

	for (size_t i = 0; i < pool->n; i++)
		if (pool->all[i].pid == pid)
			return true;
	return false;
}

/* Without pid namespaces: what a killed init left behind has become our child. */
static void kill_orphans(struct pool *pool)
{
	if (pool->config.features->pid_ns)
		return;
	while (descend_signal(pool->spawner, is_init, pool, SIGKILL) > 0)
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
}

/* What it has run before counts as nobody's. The most memory of all its commands may be an earlier
 * one's. */
static void tell_gone(const struct one *one, const struct rusage *ru, init_pool_gone_fn gone)
{
	struct usage usage = {0};

	usage_add(&usage, ru);
	usage.user_us -= one->used.user_us < usage.user_us ? one->used.user_us : usage.user_us;
	usage.sys_us -= one->used.sys_us < usage.sys_us ? one->used.sys_us : usage.sys_us;
	if (usage.max_rss_kb <= one->used.max_rss_kb)
		usage.max_rss_kb = 0;
	gone(one->job, cgroup_was_oom(one->events), &usage);
}

void init_pool_reap(struct pool *pool, init_pool_gone_fn gone)
{
	struct rusage ru;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		struct one one;
		size_t i = 0;

		while (i < pool->n && pool->all[i].pid != pid)
			i++;
		if (i == pool->n)
			continue;
		one = pool->all[i];
		pool->all[i] = pool->all[--pool->n];
		/* 0: init has told the end itself */
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			kill_orphans(pool);
			if (one.job)
				tell_gone(&one, &ru, gone);
		}
		release(pool, &one);
		if (one.reuse && one.job && !pool->ending)
			make_successor(pool, one.view);
	}
}

/*
 * An init without a pid namespace must not be killed before it has killed the rest: our own death
 * may be next, since the daemon's sockets close before its death signal comes.
 */
void init_pool_end(struct pool *pool, init_pool_gone_fn gone)
{
	pool->ending = true;
	for (size_t i = 0; i < pool->n; i++) {
		kill(pool->all[i].pid, pool->config.features->pid_ns ? SIGKILL : SIGTERM);
		kill(pool->all[i].pid, SIGCONT);
	}
	while (pool->n > 0) {
		siginfo_t info;

		waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
		init_pool_reap(pool, gone);
	}
	kill_orphans(pool);
}
