/* The making of an init. */
#include "backends/runner/spawner/init_pool_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/runner/isolation/cgroup.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

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

void inits_release(struct inits *inits, struct one *one)
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

bool inits_may_wait(const struct inits *inits, const struct view *view)
{
	return inits->config.powers->pid_ns && view_is_own(view);
}

int inits_make(struct inits *inits, const struct view *view, const char *box, bool reuse,
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
		inits_release(inits, &one);
		return r;
	}
	*ret = &inits->all[inits->n++];
	**ret = one;
	return 0;
}
