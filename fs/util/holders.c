/*
 * A descriptor is inherited or handed on, so whoever has one mostly descends from a process that is
 * known here.
 */
#include "fs/util/holders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

#define PROCESSES_MAX   128
#define THREADS_MAX     512
#define DESCRIPTORS_MAX 4096
#define FLAG_EXITING    0x4u   /* PF_EXITING of the kernel */
#define FLAG_SIGNALED   0x400u /* PF_SIGNALED */

struct search {
	const struct sbx_holders_query *q;
	/* One thread of each process, and the process: threads share their descriptors. */
	pid_t pids[PROCESSES_MAX], leaders[PROCESSES_MAX];
	unsigned n;     /* in pids */
	unsigned same;  /* descriptors found, with the offset */
	unsigned close; /* ... with another */
	bool unsure;
};

/* The beginning of a file of /proc, as a string. */
static int read_text(int dir, const char *name, char *buf, size_t size)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

static int open_process(pid_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The number after NAME in the text of /proc/PID/status, -1: there is none. */
static pid_t number_of(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? (pid_t)atoi(at + strlen(name)) : -1;
}

static int read_status(pid_t pid, char *text, size_t size)
{
	_cleanup_fd_ int process = open_process(pid);

	return process < 0 ? process : read_text(process, "status", text, size);
}

/*
 * /proc/PID/stat is not to be read while a process executes a program: that waits for the kernel to
 * close descriptors, which waits for us. A process without memory of its own is past that.
 */
bool sbx_holders_killed(pid_t pid)
{
	const unsigned both = FLAG_EXITING | FLAG_SIGNALED;
	_cleanup_fd_ int process = pid > 0 ? open_process(pid) : -1;
	char text[4096];
	const char *rest;
	unsigned flags;

	if (process < 0 || read_text(process, "status", text, sizeof(text)) < 0 ||
	    strstr(text, "\nVmSize:") || read_text(process, "stat", text, sizeof(text)) < 0)
		return false;
	/* The name may have blanks and brackets of its own. */
	rest = strrchr(text, ')');
	return rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       (flags & both) == both;
}

bool sbx_holders_kernel(pid_t pid)
{
	char text[4096];

	return pid > 0 && read_status(pid, text, sizeof(text)) == 0 && !strstr(text, "\nVmSize:");
}

bool sbx_holders_name(pid_t pid, char *ret, size_t size)
{
	_cleanup_fd_ int process = pid > 0 ? open_process(pid) : -1;

	if (process < 0 || read_text(process, "comm", ret, size) < 0)
		return false;
	ret[strcspn(ret, "\n")] = '\0';
	return true;
}

static bool is_gone(int code)
{
	return code == -ENOENT || code == -ESRCH;
}

/* Whether there is such a process, though /proc may not show it (hidepid). */
static bool exists(pid_t pid)
{
	return kill(pid, 0) == 0 || errno != ESRCH;
}

static pid_t leader_of(pid_t pid)
{
	char text[4096];
	pid_t leader = read_status(pid, text, sizeof(text)) < 0 ? -1 : number_of(text, "\nTgid:");

	return leader > 0 ? leader : pid;
}

/* PID is a thread, LEADER its process. */
static void add(struct search *s, pid_t pid, pid_t leader)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->leaders[i] == leader)
			return;
	if (s->n == PROCESSES_MAX) {
		s->unsure = true;
		return;
	}
	s->pids[s->n] = pid;
	s->leaders[s->n++] = leader;
}

static void add_thread(struct search *s, pid_t pid)
{
	if (pid > 0)
		add(s, pid, leader_of(pid));
}

static void look_at(struct search *s, int fdinfo, const char *number)
{
	char text[256];
	const char *at;
	int r = read_text(fdinfo, number, text, sizeof(text));
	uint64_t pos, ino;

	if (r < 0) {
		s->unsure |= !is_gone(r);
		return;
	}
	at = strstr(text, "\nino:");
	if (!at || strncmp(text, "pos:", 4) != 0) {
		s->unsure = true;
		return;
	}
	pos = strtoull(text + 4, NULL, 10);
	ino = strtoull(at + 5, NULL, 10);
	if (ino == s->q->ino)
		*(pos == s->q->pos ? &s->same : &s->close) += 1;
}

static void look_at_all(struct search *s, int process)
{
	_cleanup_fd_ int fdinfo = openat(process, "fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	unsigned n = 0;

	if (!dir || fdinfo < 0) {
		s->unsure |= !is_gone(-errno);
		return;
	}
	errno = 0;
	while (s->same <= s->q->others && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		if (++n > DESCRIPTORS_MAX) {
			s->unsure = true;
			return;
		}
		look_at(s, fdinfo, e->d_name);
		errno = 0;
	}
	s->unsure |= errno && !is_gone(-errno);
}

/* The children of one thread. */
static void add_children(struct search *s, int task, const char *thread)
{
	char path[64], text[4096], *save = NULL;
	int r;

	snprintf(path, sizeof(path), "%.20s/children", thread);
	r = read_text(task, path, text, sizeof(text));
	if (r < 0 || strlen(text) == sizeof(text) - 1)
		s->unsure |= !is_gone(r) || exists((pid_t)atoi(thread));
	for (char *word = r < 0 ? NULL : strtok_r(text, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		add(s, (pid_t)atoi(word), (pid_t)atoi(word));
}

static void add_all_children(struct search *s, int process)
{
	int fd = openat(process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *task = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	unsigned n = 0;

	while (task && (e = readdir(task))) {
		if (e->d_name[0] == '.')
			continue;
		if (++n > THREADS_MAX) {
			s->unsure = true;
			return;
		}
		add_children(s, dirfd(task), e->d_name);
	}
}

static void visit(struct search *s, pid_t pid)
{
	_cleanup_fd_ int process = open_process(pid);

	if (process < 0) {
		s->unsure |= exists(pid);
		return;
	}
	look_at_all(s, process);
	add_all_children(s, process);
}

/* The process that started PID: it was given the file where the one that opened it has ended. */
static void add_parent(struct search *s, pid_t pid)
{
	char text[4096];
	pid_t parent = read_status(pid, text, sizeof(text)) < 0 ? -1 : number_of(text, "\nPPid:");

	if (parent > 1)
		add(s, parent, parent);
}

enum sbx_held sbx_holders_find(const struct sbx_holders_query *q)
{
	struct search s = {.q = q, .unsure = q->closer <= 0};

	add_thread(&s, q->closer);
	add_thread(&s, q->opener);
	add_thread(&s, q->writer);
	if (q->closer > 0 && (q->opener <= 0 || !exists(q->opener)))
		add_parent(&s, q->closer);
	for (unsigned i = 0; i < s.n && s.same <= q->others; i++)
		visit(&s, s.pids[i]);
	if (s.same > q->others)
		return SBX_HELD_YES;
	return s.unsure || s.same || s.close ? SBX_HELD_UNKNOWN : SBX_HELD_NO;
}
