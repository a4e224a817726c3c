#include "backends/local/view.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

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

static int probe(unsigned long flags)
{
	pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0UL);
	int status = -1;

	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return -errno;
	waitpid(pid, &status, 0);
	return status == 0 ? 0 : -ECHILD;
}

void views_probe(const struct sbx_settings *settings, struct spawn_powers *ret)
{
	int r = probe(CLONE_NEWPID);

	(void)settings;
	if (r == -EPERM) {
		r = enter_user_namespace();
		ret->user_ns = r == 0;
		if (r < 0) {
			snprintf(ret->reason, sizeof(ret->reason),
			         "user namespaces are not available: %s", strerror(-r));
			return;
		}
		r = probe(CLONE_NEWPID);
	}
	ret->pid_ns = r == 0;
	if (r < 0)
		snprintf(ret->reason, sizeof(ret->reason), "pid namespaces are not available: %s",
		         strerror(-r));
}

int views_create(const struct sbx_settings *settings, struct views **ret)
{
	(void)settings;
	*ret = NULL;
	return 0;
}

int views_get(struct views *views, const struct spawn_request *req, const struct view **ret)
{
	(void)views;
	(void)req;
	*ret = NULL;
	return 0;
}

void views_forget(struct views *views, const char *id)
{
	(void)views;
	(void)id;
}

int view_enter(const struct view *view)
{
	(void)view;
	return 0;
}
