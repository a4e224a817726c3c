/*
 * A namespace lives as long as a descriptor of it, so the process that it is made with only waits
 * until its maps are written. It says by which number /proc knows it: that may be another than
 * the one clone(2) returned.
 */
#include "backends/runner/isolation/userns.h"
#include "backends/runner/isolation/kernel_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/spawner.h"

/* The number in a file of /proc/sys, -1 when there is none. */
static long read_number(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32] = "";

	return fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ? -1 : strtol(text, NULL, 10);
}

static bool same_namespace(void)
{
	char ours[64] = "", theirs[64] = "";

	return readlink("/proc/self/ns/mnt", ours, sizeof(ours) - 1) > 0 &&
	       readlink("/proc/1/ns/mnt", theirs, sizeof(theirs) - 1) > 0 &&
	       strcmp(ours, theirs) == 0;
}

/* Whether PATH, a list as in /proc/PID/mountinfo, has a mount whose place is /. */
static bool has_root_mount(const char *path)
{
	_cleanup_file_ FILE *f = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	bool found = !f;
	size_t cap = 0;

	while (!found && getline(&line, &cap, f) > 0) {
		char place[3] = "";

		found = sscanf(line, "%*s %*s %*s %*s %2s", place) == 1 && strcmp(place, "/") == 0;
	}
	return found;
}

/*
 * The kernel makes no user namespace for who has changed its root by chroot(2)
 * (user_namespaces(7)). A directory that is no mount point is then the root, or another one than
 * that of the namespace's first process.
 */
bool sbx_in_chroot(void)
{
	struct stat ours, theirs;

	if (!has_root_mount("/proc/self/mountinfo"))
		return true;
	return same_namespace() && stat("/", &ours) == 0 && stat("/proc/1/root/", &theirs) == 0 &&
	       (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino);
}

const char *sbx_userns_mend(void)
{
	if (sbx_in_chroot())
		return "this is a chroot, in which the kernel makes no user namespace: enter it "
		       "by pivot_root, as systemd-nspawn, bwrap and containers do";
	if (read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") > 0)
		return "AppArmor forbids them: sysctl "
		       "kernel.apparmor_restrict_unprivileged_userns=0, or a profile for sandboxfs "
		       "and sandboxfs-runner";
	if (read_number("/proc/sys/user/max_user_namespaces") == 0)
		return "sysctl user.max_user_namespaces=10000";
	if (read_number("/proc/sys/kernel/unprivileged_userns_clone") == 0)
		return "sysctl kernel.unprivileged_userns_clone=1";
	return "in a container: its seccomp profile must allow unshare and mount";
}

/* Whoever makes a namespace owns it. We stay as able as we are, whoever that is. */
static int become_owner(uid_t owner)
{
	if (geteuid() == owner)
		return 0;
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_setresuid, owner, owner, owner);
}

/*
 * Shares of the owner's limits that a namespace gets. A resource is counted for its owner as
 * well, in each namespace around, so one namespace gets a part at most. A new namespace has no
 * limits of its own: ours may be such a one.
 */
static const struct share {
	const char *path, *host;
	long part;
} shares[] = {
        {"/proc/sys/user/max_inotify_instances", "/proc/sys/fs/inotify/max_user_instances", 8},
        {"/proc/sys/user/max_inotify_watches", "/proc/sys/fs/inotify/max_user_watches", 4},
};

static long read_most(const struct share *s)
{
	const long ours = read_number(s->path), host = read_number(s->host);

	return host >= 0 && host < ours ? host : ours;
}

/* Where the kernel knows no such limit there is nothing to share. */
static int limit_shares(const long had[])
{
	int r = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(shares) && !r; i++) {
		const long most = had[i] / shares[i].part;
		char text[32];

		if (had[i] < 0)
			continue;
		snprintf(text, sizeof(text), "%ld", most ? most : 1);
		r = kernel_file_write(AT_FDCWD, shares[i].path, text);
	}
	return r;
}

static _Noreturn void child_main(int sock, uid_t owner, bool closed)
{
	char number[16] = "";
	long had[SBX_ARRAY_SIZE(shares)];

	for (size_t i = 0; i < SBX_ARRAY_SIZE(shares); i++)
		had[i] = read_most(&shares[i]);
	if (become_owner(owner) < 0 || unshare(CLONE_NEWUSER) < 0)
		_exit(1);

	/* Else the maps belong to the host's root, whom an ordinary user is not. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	if ((closed &&
	     (kernel_file_write(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0") < 0 ||
	      limit_shares(had) < 0)) ||
	    readlink("/proc/self", number, sizeof(number) - 1) <= 0)
		_exit(1);
	if (write(sock, number, sizeof(number)) == sizeof(number) && read(sock, number, 1) < 0)
		_exit(1);
	_exit(0);
}

struct maps {
	char users[64], groups[64]; /* as user_namespaces(7) has them */
};

static int write_map(const char *number, const char *file, const char *map)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/%s", number, file);
	return kernel_file_write(AT_FDCWD, path, map);
}

static int finish_child(int sock, const struct maps *maps)
{
	char number[16], path[64];
	int fd, r;

	if (read(sock, number, sizeof(number)) != sizeof(number))
		return -EPERM;
	r = write_map(number, "uid_map", maps->users);
	if (!r)
		r = write_map(number, "gid_map", maps->groups);
	if (r)
		return r;
	snprintf(path, sizeof(path), "/proc/%s/ns/user", number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int make(const struct maps *maps, uid_t owner, bool closed)
{
	int pair[2], r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, 0UL);
	r = pid < 0 ? -errno : 0;
	if (pid == 0) {
		close(pair[0]);
		child_main(pair[1], owner, closed);
	}
	close(pair[1]);
	if (pid > 0)
		r = finish_child(pair[0], maps);
	close(pair[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return r;
}

int userns_make(struct sbx_identity inside, struct sbx_identity outside, bool closed)
{
	struct maps maps;

	snprintf(maps.users, sizeof(maps.users), "%u %u 1", inside.uid, outside.uid);
	snprintf(maps.groups, sizeof(maps.groups), "%u %u 1", inside.gid, outside.gid);
	return make(&maps, closed ? outside.uid : geteuid(), closed);
}

int userns_make_without_groups(void)
{
	struct maps maps;

	snprintf(maps.users, sizeof(maps.users), "0 0 %u", UINT32_MAX);
	/* A map has at least one line. This is the last number that there is, which no file has. */
	snprintf(maps.groups, sizeof(maps.groups), "%u %u 1", UINT32_MAX - 1, UINT32_MAX - 1);
	return make(&maps, geteuid(), false);
}
