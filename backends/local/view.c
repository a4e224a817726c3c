/*
 * A view is made by a short-lived process that becomes alone in new namespaces, mounts, and sends
 * their descriptors over; no process has to stay in them. An ordinary user's spawner is
 * itself in a user namespace, which owns all of them: so it may join and leave them at will.
 */
#include "backends/local/view.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/local/mounts.h"
#include "sandboxfs/cleanup.h"

#define KEPT 128 /* views; four descriptors each */

struct views {
	const struct sbx_settings *settings;
	const struct spawn_powers *powers;
	uint64_t clock;
	struct view kept[KEPT];
};

/* What the making process says. On 0 the descriptors come along. */
struct made {
	int error;
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

/* --- making one -------------------------------------------------------------------------------- */

static int raise_loopback(void)
{
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0 ? -errno : 0;
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

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(VIEW_NAMESPACES * sizeof(int))];
};

static void send_made(int sock, const struct made *made, const int *fds)
{
	union control control = {0};
	struct iovec iov = {.iov_base = (void *)made, .iov_len = sizeof(*made)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (!made->error) {
		struct cmsghdr *c;

		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(VIEW_NAMESPACES * sizeof(int));
		memcpy(CMSG_DATA(c), fds, VIEW_NAMESPACES * sizeof(int));
	}
	sendmsg(sock, &msg, MSG_NOSIGNAL);
}

static int receive_made(int sock, struct made *made, int *fds)
{
	union control control = {0};
	struct iovec iov = {.iov_base = made, .iov_len = sizeof(*made)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*made))
		return -EIO;
	if (made->error)
		return -made->error;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_len != CMSG_LEN(VIEW_NAMESPACES * sizeof(int)))
		return -EMFILE;
	memcpy(fds, CMSG_DATA(c), VIEW_NAMESPACES * sizeof(int));
	return 0;
}

static _Noreturn void make_main(int sock, const struct sbx_settings *settings,
                                const struct spawn_request *req, bool net)
{
	int fds[VIEW_NAMESPACES];
	struct made made = {0};
	const char *what = "namespaces";
	int r = open_namespaces(fds);

	if (!r && net) {
		what = "loopback";
		r = raise_loopback();
	}
	if (!r)
		r = mounts_build(settings, req, &what);
	made.error = -r;
	if (r < 0)
		snprintf(made.what, sizeof(made.what), "%s", what);
	send_made(sock, &made, fds);
	_exit(0);
}

static int make(const struct sbx_settings *settings, const struct spawn_request *req, bool net,
                struct made *made, int *fds)
{
	int flags = CLONE_NEWPID | (net ? CLONE_NEWNET : 0), pair[2], r;
	pid_t pid;

	for (int i = 0; i < VIEW_NAMESPACES; i++)
		if (i != VIEW_NET)
			flags |= namespaces[i].flag;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork_with(flags);
	r = pid < 0 ? -errno : 0;
	if (pid == 0)
		make_main(pair[1], settings, req, net);
	close(pair[1]);
	if (pid > 0) {
		r = receive_made(pair[0], made, fds);
		waitpid(pid, NULL, 0);
	}
	close(pair[0]);
	return r;
}

/* --- what can be had ---------------------------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* One identity for all: names and git's index agree inside and outside. */
static int map_identity(uid_t uid, gid_t gid)
{
	char text[64];
	int r;

	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	r = write_file("/proc/self/uid_map", text);
	if (!r)
		r = write_file("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	return r ? r : write_file("/proc/self/gid_map", text);
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

static int explain(struct spawn_powers *powers, const char *what, const char *detail, int r)
{
	if (r < 0)
		snprintf(powers->reason, sizeof(powers->reason), "%s%s%s: %s", what,
		         *detail ? ": " : "", detail, strerror(-r));
	return r;
}

static bool wants_net(const struct sbx_settings *settings)
{
	return !settings->net || strcmp(settings->net, "host") != 0;
}

static int try_view(const struct sbx_settings *settings, bool net, struct made *made)
{
	int fds[VIEW_NAMESPACES];
	int r;

	*made = (struct made){0};
	r = make(settings, NULL, net, made, fds);
	for (int i = 0; !r && i < VIEW_NAMESPACES; i++)
		close(fds[i]);
	return r;
}

void views_probe(const struct sbx_settings *settings, struct spawn_powers *ret)
{
	struct made made;
	int r = try_pid_namespace();

	if (r == -EPERM) {
		r = enter_user_namespace();
		if (explain(ret, "user namespaces cannot be made", "", r) < 0)
			return;
		ret->user_ns = true;
		r = try_pid_namespace();
	}
	if (explain(ret, "pid namespaces cannot be made", "", r) < 0)
		return;
	ret->pid_ns = true;
	if (wants_net(settings) && try_view(settings, true, &made) == 0) {
		ret->mount_ns = ret->net_ns = true;
		return;
	}
	r = try_view(settings, false, &made);
	if (explain(ret, "the view cannot be made", made.what, r) < 0)
		return;
	ret->mount_ns = true;
	if (wants_net(settings))
		snprintf(ret->reason, sizeof(ret->reason), "network namespaces cannot be made");
}

/* --- keeping them ------------------------------------------------------------------------------- */

int views_create(const struct sbx_settings *settings, const struct spawn_powers *powers,
                 struct views **ret)
{
	struct views *views = calloc(1, sizeof(*views));

	if (!views)
		return -ENOMEM;
	views->settings = settings;
	views->powers = powers;
	*ret = views;
	return 0;
}

static void drop(struct view *view)
{
	if (!view->used)
		return;
	for (int i = 0; i < VIEW_NAMESPACES; i++)
		sbx_cleanup_fd(&view->fds[i]);
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

static struct view *least_recently_used(struct views *views)
{
	struct view *oldest = &views->kept[0];

	for (int i = 1; i < KEPT; i++)
		if (views->kept[i].used < oldest->used)
			oldest = &views->kept[i];
	return oldest;
}

static int make_kept(struct views *views, const struct spawn_request *req, struct view **ret)
{
	bool net = views->powers->net_ns;
	struct view *view;
	struct made made;
	int r;

	/* The sandbox may have been renamed: its old view is of no more use. */
	views_forget(views, req->id);
	view = least_recently_used(views);
	drop(view);
	view->key = malloc(req->place_len);
	if (!view->key)
		return -ENOMEM;
	r = make(views->settings, req, net, &made, view->fds);
	if (r < 0) {
		free(view->key);
		*view = (struct view){0};
		return r;
	}
	memcpy(view->key, req->buf, req->place_len);
	view->key_len = req->place_len;
	if (!net)
		sbx_cleanup_fd(&view->fds[VIEW_NET]);
	*ret = view;
	return 0;
}

int views_get(struct views *views, const struct spawn_request *req, const struct view **ret)
{
	struct view *view = find_kept(views, req);
	int r = view ? 0 : make_kept(views, req, &view);

	if (r < 0)
		return r;
	view->used = ++views->clock;
	*ret = view;
	return 0;
}

int view_enter(const struct view *view)
{
	for (int i = 0; i < VIEW_NAMESPACES; i++)
		if (view->fds[i] >= 0 && setns(view->fds[i], namespaces[i].flag) < 0)
			return -errno;
	if (unshare(CLONE_NEWNS) < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") < 0)
		return -errno;
	return 0;
}
