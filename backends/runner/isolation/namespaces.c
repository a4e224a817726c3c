/*
 * A view is made by a short-lived process that becomes alone in new namespaces, mounts, and sends
 * their descriptors over; no process has to stay in them. An ordinary user's spawner is
 * itself in a user namespace, which owns all of them: so it may join and leave them at will.
 */
#include "backends/runner/isolation/namespaces.h"
#include "backends/runner/isolation/kernel_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/landlock.h"
#include "backends/runner/isolation/mounter.h"
#include "backends/runner/isolation/rootfs.h"
#include "backends/runner/isolation/sockets.h"
#include "backends/runner/isolation/sysv_ipc.h"
#include "backends/runner/isolation/userns.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"
#include "sandboxfs/mitigations.h"

#define KEPT  128 /* views, at most */
#define MADE  (VIEW_NAMESPACES + 2)
#define FILES (MADE + 1) /* that one holds: what was made, and its user namespace */

static_assert(MADE == 6, "fill() has so many");
static_assert(MADE <= SBX_FDS_MAX, "they travel together");

struct views {
	const struct isolation_settings *settings;
	const struct spawn_features *features;
	int mounter;             /* the mount namespace of layered trees, or -1 */
	struct sockets *sockets; /* NULL: nobody has to cover them */
	int most;                /* of kept that are used: those of half of our descriptors */
	uint64_t clock;
	struct view kept[KEPT];
};

/*
 * The answer of the process that makes a view. On 0 N descriptors come along: the namespaces,
 * [the listener], [the ruleset].
 */
struct made {
	int error, n;
	bool listens, closed;
	char what[96];
};

static const struct {
	const char *file;
	int flag;
} namespaces[VIEW_NAMESPACES] = {
        [VIEW_IPC] = {"/proc/self/ns/ipc", CLONE_NEWIPC},
        [VIEW_UTS] = {"/proc/self/ns/uts", CLONE_NEWUTS},
        [VIEW_NET] = {"/proc/self/ns/net", CLONE_NEWNET},
        [VIEW_MNT] = {"/proc/self/ns/mnt", CLONE_NEWNS},
};

static pid_t fork_with(int flags)
{
	return (pid_t)syscall(SYS_clone, (unsigned long)(flags | SIGCHLD), NULL, NULL, NULL, 0UL);
}

static bool wants_net(const struct isolation_settings *settings)
{
	return !sbx_mitigation_off("net") && !isolation_net_is_host(settings);
}

/* --- making one --------------------------------------------------------------------------------
 */

static int raise_loopback(void)
{
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0 ? -errno : 0;
}

/* Everything else that leaves the namespace has nowhere to go. */
static int listen_inside(void)
{
	const struct sockaddr_in at = {.sin_family = AF_INET,
	                               .sin_port = htons(SBX_PROXY_PORT),
	                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
	    listen(fd, SOMAXCONN) < 0)
		return -errno;
	return sbx_steal_fd(&fd);
}

static int open_namespaces(int fds[VIEW_NAMESPACES])
{
	for (int i = 0; i < VIEW_NAMESPACES; i++) {
		fds[i] = open(namespaces[i].file, O_RDONLY | O_CLOEXEC);
		if (fds[i] < 0)
			return -errno;
	}
	return 0;
}

static int receive_made(int sock, struct made *made, int *fds)
{
	const ssize_t n = sbx_receive_fds(sock, made, sizeof(*made), fds, MADE, 0);

	if (n != (ssize_t)sizeof(*made))
		return n < 0 ? (int)n : -ESRCH;
	if (made->error)
		return -made->error;
	if (made->n > 0 && made->n <= MADE && fds[made->n - 1] >= 0)
		return 0;
	for (int i = 0; i < MADE; i++)
		sbx_cleanup_fd(&fds[i]);
	return -EMFILE;
}

/* The parameters of a view. */
struct options {
	const struct isolation_settings *settings;
	const struct spawn_features *features;
	const struct spawn_request *req; /* NULL: a trial */
	bool net;                        /* a network of its own */
	int mounter;
	char *const *sockets; /* to cover, or NULL */
};

static int make_ruleset(const struct options *w, bool own_view)
{
	const struct landlock_options options = {
	        .settings = w->settings,
	        .req = w->req,
	        .abi = w->features->landlock,
	        .own_view = own_view,
	        .no_abstract = !w->net,
	        .no_tcp = !w->net && wants_net(w->settings),
	};

	return landlock_make(&options);
}

static _Noreturn void make_main(int sock, const struct options *w)
{
	int fds[MADE];
	struct made made = {.n = VIEW_NAMESPACES};
	struct mounts_given given = MOUNTS_GIVEN_NONE;
	const char *what = "namespaces";
	int r = open_namespaces(fds);

	if (!r && w->req)
		ipcns_drop_unused(fds[VIEW_IPC], w->features->who);
	if (!r && w->req && w->req->cmd.flags & SPAWN_OVERLAID) {
		what = "the layered tree";
		given.tree = mounter_take(w->mounter, fds[VIEW_MNT], w->req->id);
		r = given.tree < 0 ? given.tree : 0;
		if (!r && w->req->cmd.flags & SPAWN_ON_DISK)
			r = mounter_take_disk(w->mounter, fds[VIEW_MNT], w->req->id, given.disk);
	}
	if (!r && w->net) {
		what = "loopback";
		r = raise_loopback();
	}
	if (!r && w->net && isolation_net_is_allow(w->settings)) {
		what = "listener";
		r = fds[made.n] = listen_inside();
		made.n += r >= 0;
		made.listens = r >= 0;
	}
	if (r >= 0 && !sbx_mitigation_off("view")) {
		const struct mounts_options options = {.settings = w->settings,
		                                       .req = w->req,
		                                       .given = given,
		                                       .who = &w->features->who,
		                                       .groupless = w->features->groupless,
		                                       .sockets = w->sockets};
		struct mounts_made mounts;

		r = mounts_build(&options, &mounts);
		what = mounts.what;
		made.closed = mounts.closed;
	}
	if (!r && w->req && w->features->landlock) {
		what = "landlock";
		r = fds[made.n] = make_ruleset(w, true);
		made.n += r >= 0;
	}
	made.error = r < 0 ? -r : 0;
	if (r < 0)
		snprintf(made.what, sizeof(made.what), "%s", what);
	sbx_send_fds(sock, &made, sizeof(made), fds, r < 0 ? 0 : made.n, 0);
	_exit(0);
}

static int make(const struct options *w, struct made *made, int *fds)
{
	int flags = CLONE_NEWPID | (w->net ? CLONE_NEWNET : 0), pair[2], r;
	pid_t pid;

	for (int i = 0; i < VIEW_NAMESPACES; i++)
		if (i != VIEW_NET)
			flags |= namespaces[i].flag;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork_with(flags);
	r = pid < 0 ? -errno : 0;
	if (pid == 0)
		make_main(pair[1], w);
	close(pair[1]);
	if (pid > 0) {
		r = receive_made(pair[0], made, fds);
		waitpid(pid, NULL, 0);
	}
	close(pair[0]);
	return r;
}

/* --- what can be had ----------------------------------------------------------------------------
 */

/* One identity for all: names and git's index agree inside and outside. */
static int map_identity(uid_t uid, gid_t gid)
{
	char text[64];
	int r;

	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	r = kernel_file_write(AT_FDCWD, "/proc/self/uid_map", text);
	if (!r)
		r = kernel_file_write(AT_FDCWD, "/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	return r ? r : kernel_file_write(AT_FDCWD, "/proc/self/gid_map", text);
}

static int enter_user_namespace(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	return unshare(CLONE_NEWUSER) < 0 ? -errno : map_identity(uid, gid);
}

static int try_pid_namespace(void)
{
	pid_t pid = fork_with(CLONE_NEWPID);

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return -errno;
	waitpid(pid, NULL, 0);
	return 0;
}

static int explain(struct spawn_features *features, const char *what, const char *detail, int r)
{
	if (r < 0)
		snprintf(features->reason, sizeof(features->reason), "%s%s%s: %s", what,
		         *detail ? ": " : "", detail, strerror(-r));
	return r;
}

static int try_view(const struct isolation_settings *settings,
                    const struct spawn_features *features, bool net, struct made *made)
{
	const struct options w = {
	        .settings = settings, .features = features, .net = net, .mounter = -1};
	int fds[MADE];
	int r;

	*made = (struct made){0};
	r = make(&w, made, fds);
	for (int i = 0; !r && i < made->n; i++)
		close(fds[i]);
	return r;
}

static int probe_namespaces(struct spawn_features *ret)
{
	int r = try_pid_namespace();

	if (r == -EPERM) {
		r = enter_user_namespace();
		if (explain(ret, "user namespaces cannot be made", sbx_userns_mend(), r) < 0)
			return r;
		r = try_pid_namespace();
	}
	if (explain(ret, "pid namespaces cannot be made", "", r) < 0)
		return r;
	ret->pid_ns = !sbx_mitigation_off("pid_ns");
	return 0;
}

static void note_sockets(const struct isolation_settings *settings, bool closed,
                         struct spawn_features *ret)
{
	struct sockets *table =
	        closed || sbx_mitigation_off("sockets") ? NULL : sockets_open(settings);

	ret->sockets = closed  ? SPAWN_SOCKETS_CLOSED
	               : table ? SPAWN_SOCKETS_COVERED
	                       : SPAWN_SOCKETS_OPEN;
	sockets_close(table);
}

static int probe_view(const struct isolation_settings *settings, struct spawn_features *ret)
{
	struct made made;
	int r;

	if (ret->become && !sbx_mitigation_off("sockets"))
		ret->groupless = userns_make_without_groups();
	if (wants_net(settings) && try_view(settings, ret, true, &made) == 0) {
		ret->mount_ns = ret->net_ns = true;
		note_sockets(settings, made.closed, ret);
		return 0;
	}
	r = try_view(settings, ret, false, &made);
	if (explain(ret, "the view cannot be made", made.what, r) < 0)
		return r;
	ret->mount_ns = true;
	note_sockets(settings, made.closed, ret);
	if (wants_net(settings))
		snprintf(ret->reason, sizeof(ret->reason), "network namespaces cannot be made");
	return 0;
}

static void probe_users(struct spawn_features *ret)
{
	int fd = sbx_mitigation_off("user_ns") ? -EPERM : userns_make(ret->who, ret->who, true);

	ret->user_ns = fd >= 0;
	if (fd < 0 && !*ret->reason)
		explain(ret, "user namespaces cannot be made", sbx_userns_mend(), fd);
	sbx_cleanup_fd(&fd);
}

static void probe_owners(const struct isolation_settings *settings, struct spawn_features *ret)
{
	int r = !ret->become || !settings->state_dir
	                ? 0
	                : mounts_try_owner(settings->state_dir, &ret->who);

	ret->owners = !r;
	ret->memory_owners = !ret->become || mounts_try_memory(&ret->who) == 0;
	/* It takes a user namespace; why there is none is told already. */
	if (r < 0 && (ret->user_ns || !*ret->reason))
		snprintf(ret->reason, sizeof(ret->reason),
		         "files of root's cannot appear as those of run_as (%s): choose a "
		         "state_dir on ext4, xfs, btrfs or tmpfs (in a container a volume, or one "
		         "by --tmpfs), or isolation=none",
		         strerror(-r));
}

void views_probe(const struct isolation_settings *settings, struct spawn_features *ret)
{
	ret->landlock = sbx_mitigation_off("landlock") ? 0 : landlock_abi();
	ret->groupless = -1;
	if (probe_namespaces(ret) == 0 && probe_view(settings, ret) == 0)
		probe_users(ret);
	if (landlock_closes_sockets(ret->landlock))
		ret->sockets = SPAWN_SOCKETS_CLOSED;
	probe_owners(settings, ret);
	/* What failed first is only what this leads to. */
	if (*ret->reason && sbx_in_chroot())
		snprintf(ret->reason, sizeof(ret->reason), "%s", sbx_userns_mend());
	if (!ret->landlock && !*ret->reason)
		snprintf(ret->reason, sizeof(ret->reason), "the kernel has no Landlock");
}

/* --- keeping them -------------------------------------------------------------------------------
 */

/* Others are for inits, and for what daemon and commands send. */
static int most_kept(void)
{
	struct rlimit files;
	const bool known = getrlimit(RLIMIT_NOFILE, &files) == 0;

	if (known && files.rlim_cur < (rlim_t)2 * KEPT * FILES)
		return files.rlim_cur < 2 * FILES ? 1 : (int)(files.rlim_cur / (2 * FILES));
	return KEPT;
}

int views_create(const struct isolation_settings *settings, const struct spawn_features *features,
                 struct views **ret)
{
	struct views *views = calloc(1, sizeof(*views));

	if (!views)
		return -ENOMEM;
	views->settings = settings;
	views->features = features;
	views->mounter = -1;
	views->most = most_kept();
	if (features->sockets == SPAWN_SOCKETS_COVERED &&
	    !(views->sockets = sockets_open(settings))) {
		free(views);
		return -ENOMEM;
	}
	*ret = views;
	return 0;
}

void views_use_mounter(struct views *views, int mounter)
{
	sbx_cleanup_fd(&views->mounter);
	views->mounter = mounter;
}

static void drop(struct view *view)
{
	if (!view->used)
		return;
	for (int i = 0; i < VIEW_NAMESPACES; i++)
		sbx_cleanup_fd(&view->fds[i]);
	sbx_cleanup_fd(&view->user);
	sbx_cleanup_fd(&view->landlock);
	sbx_cleanup_fd(&view->listener);
	free(view->key);
	*view = (struct view){0};
}

void views_forget(struct views *views, const char *id)
{
	for (int i = 0; i < KEPT; i++)
		if (views->kept[i].used && strcmp(views->kept[i].key, id) == 0)
			drop(&views->kept[i]);
}

static struct view *find_kept(struct views *views, const struct spawn_request *req)
{
	for (int i = 0; i < KEPT; i++) {
		struct view *view = &views->kept[i];

		if (view->used && view->key_len == req->place_len &&
		    memcmp(view->key, req->buf, req->place_len) == 0)
			return view;
	}
	return NULL;
}

const struct view *views_find(const struct views *views, uint64_t serial)
{
	for (int i = 0; serial && i < KEPT; i++)
		if (views->kept[i].used && views->kept[i].serial == serial)
			return &views->kept[i];
	return NULL;
}

uint64_t views_last_use(const struct views *views, uint64_t serial)
{
	const struct view *view = views_find(views, serial);

	return view ? view->used : 0;
}

static struct view *least_recently_used(struct views *views)
{
	struct view *oldest = &views->kept[0];

	assert(views->most >= 1 && views->most <= KEPT);
	for (int i = 1; i < views->most; i++)
		if (views->kept[i].used < oldest->used)
			oldest = &views->kept[i];
	return oldest;
}

/* With mounts of its own, made by another process; else only the ruleset, for what we see. */
static int fill(struct views *views, const struct spawn_request *req, char *const *sockets,
                struct view *view)
{
	const struct spawn_features *features = views->features;
	const struct options w = {.settings = views->settings,
	                          .features = features,
	                          .req = req,
	                          .net = features->net_ns,
	                          .mounter = views->mounter,
	                          .sockets = sockets};
	int fds[MADE] = {-1, -1, -1, -1, -1, -1}, *rest = fds + VIEW_NAMESPACES;
	struct made made = {0};
	int r = 0;

	if (features->mount_ns)
		r = make(&w, &made, fds);
	else
		*rest = r = make_ruleset(&w, false);
	memcpy(view->fds, fds, sizeof(view->fds));
	if (made.listens)
		view->listener = *rest++;
	view->landlock = *rest;
	if (!features->net_ns)
		sbx_cleanup_fd(&view->fds[VIEW_NET]);
	if (r >= 0 && features->user_ns)
		r = view->user = userns_make(features->who, features->who, true);
	return r < 0 ? r : 0;
}

static int make_kept(struct views *views, const struct spawn_request *req, char *const *sockets,
                     struct view **ret)
{
	struct view *view;
	int r;

	/* The sandbox may have been renamed: its old view is of no more use. */
	views_forget(views, req->id);
	view = least_recently_used(views);
	drop(view);
	*view = (struct view){.fds = {-1, -1, -1, -1}, .user = -1, .landlock = -1, .listener = -1};
	view->key = malloc(req->place_len);
	if (!view->key)
		return -ENOMEM;
	memcpy(view->key, req->buf, req->place_len);
	view->key_len = req->place_len;
	view->serial = view->used = ++views->clock;
	r = fill(views, req, sockets, view);
	if (r < 0)
		drop(view);
	else
		*ret = view;
	return r;
}

static _Noreturn void cover_main(const struct view *view, char *const *sockets)
{
	int r = setns(view->fds[VIEW_MNT], CLONE_NEWNS) < 0 ? -errno
	                                                    : mounts_cover_sockets(sockets);

	_exit(r < 0);
}

/*
 * Covers sockets that have come since VIEW was made. An init that waits in it for a command has
 * mounts of its own, so it is of no more use.
 */
static int cover_more(struct views *views, struct view *view, char *const *sockets)
{
	int status = 1;
	pid_t pid = fork_with(0);

	if (pid == 0)
		cover_main(view, sockets);
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
		return pid < 0 ? -errno : -EACCES;
	view->serial = ++views->clock;
	return 0;
}

int views_get(struct views *views, const struct spawn_request *req, const struct view **ret)
{
	struct view *view = find_kept(views, req);
	char *const *sockets = NULL;
	uint64_t mark = 0;
	int r = views->sockets ? sockets_look(views->sockets, &sockets, &mark) : 0;

	if (!r && !view)
		r = make_kept(views, req, sockets, &view);
	else if (!r && view->sockets != mark)
		r = cover_more(views, view, sockets);
	if (r < 0)
		return r;
	view->sockets = mark;
	view->used = ++views->clock;
	*ret = view;
	return 0;
}

int views_take_listener(struct views *views, const struct view *view)
{
	assert(view >= views->kept && view < views->kept + KEPT);
	return sbx_steal_fd(&views->kept[view - views->kept].listener);
}

int view_enter(const struct view *view)
{
	for (int i = 0; i < VIEW_NAMESPACES; i++)
		if (view->fds[i] >= 0 && !(i == VIEW_IPC && sbx_mitigation_off("ipc_ns")) &&
		    setns(view->fds[i], namespaces[i].flag) < 0)
			return -errno;
	if (!view_is_own(view) || sbx_mitigation_off("view"))
		return 0;
	if (unshare(CLONE_NEWNS) < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") < 0)
		return -errno;
	return 0;
}
