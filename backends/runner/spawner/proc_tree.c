/*
 * One pass over /proc/N/stat, since /proc/N/task/N/children is a kernel option. Who is
 * a descendant is decided on that snapshot; the caller repeats until none is left.
 */
#include "backends/runner/spawner/proc_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

struct process {
	pid_t pid, parent;
	uint64_t start;
	bool mine;
};

struct snapshot {
	struct process *at;
	size_t n, cap;
};

/* The name, in parentheses, may hold anything; field 3 follows the last of them. */
static bool read_stat(int proc, pid_t pid, struct process *ret)
{
	char path[32], buf[1024];
	unsigned long long start;
	_cleanup_fd_ int fd = -1;
	ssize_t n;
	char *end;
	int parent;

	snprintf(path, sizeof(path), "%d/stat", (int)pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);
	if (n <= 0)
		return false;
	buf[n] = 0;
	end = strrchr(buf, ')');
	if (!end || sscanf(end + 1,
	                   " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
	                   "%*d %*d %llu",
	                   &parent, &start) != 2)
		return false;
	*ret = (struct process){.pid = pid, .parent = parent, .start = start};
	return true;
}

static bool take_snapshot(int proc, struct snapshot *snap)
{
	int copy = dup(proc);
	_cleanup_dir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!dir)
		return false;
	while ((e = readdir(dir))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (SBX_GROW(snap->at, snap->n, snap->cap, 256))
			return false;
		if (read_stat(proc, atoi(e->d_name), &snap->at[snap->n]))
			snap->n++;
	}
	return true;
}

static bool is_mine(const struct snapshot *snap, pid_t pid)
{
	for (size_t i = 0; i < snap->n; i++)
		if (snap->at[i].pid == pid)
			return snap->at[i].mine;
	return false;
}

static void send_to(int proc, const struct process *p, int sig)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	struct process now;

	if (fd >= 0 && read_stat(proc, p->pid, &now) && now.start == p->start)
		syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
}

int descend_signal(pid_t root, bool (*spare)(pid_t pid, void *data), void *data, int sig)
{
	_cleanup_fd_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct snapshot snap = {0};
	int children = 0;
	bool more;

	if (proc < 0 || !take_snapshot(proc, &snap)) {
		free(snap.at);
		return 0;
	}
	for (size_t i = 0; i < snap.n; i++) {
		struct process *p = &snap.at[i];

		p->mine = p->parent == root && !(spare && spare(p->pid, data));
		children += p->mine;
	}
	do {
		more = false;
		for (size_t i = 0; i < snap.n; i++) {
			struct process *p = &snap.at[i];

			if (!p->mine && p->parent != root && is_mine(&snap, p->parent))
				more = p->mine = true;
		}
	} while (more);
	for (size_t i = 0; i < snap.n; i++)
		if (snap.at[i].mine)
			send_to(proc, &snap.at[i], sig);
	free(snap.at);
	return children;
}
