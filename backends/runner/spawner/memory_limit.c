/*
 * A cheap count first, which counts shared pages for each who has them; only when that is too much
 * an exact one, for which the kernel walks page tables. Looks are spaced so that they take a tenth
 * of the time at most, however many processes there are.
 */
#include "backends/runner/spawner/memory_limit.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define LOOK_NS UINT64_C(100000000)
#define SHARE   10

/* The text of /proc/PID/FILE. */
static bool read_file(int proc, const char *pid, const char *file, char *ret, size_t size)
{
	char path[300];
	_cleanup_fd_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", pid, file);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, ret, size - 1);
	if (n <= 0)
		return false;
	ret[n] = '\0';
	return true;
}

/* All that is mapped and there, files too. */
static uint64_t resident(int proc, const char *pid)
{
	unsigned long long pages = 0;
	char text[256];

	if (!read_file(proc, pid, "statm", text, sizeof(text)) ||
	    sscanf(text, "%*u %llu", &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t field(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

/* The memory of a process that would have to be swapped out. Files can be read again. */
static uint64_t own(int proc, const char *pid)
{
	char text[4096];

	if (read_file(proc, pid, "smaps_rollup", text, sizeof(text)))
		return field(text, "\nPss_Anon:") + field(text, "\nPss_Shmem:");
	if (read_file(proc, pid, "status", text, sizeof(text)))
		return field(text, "\nRssAnon:") + field(text, "\nRssShmem:");
	return 0;
}

static bool is_number(const char *name)
{
	return isdigit((unsigned char)name[0]);
}

/* A process whose first thread has ended shows what it has in any other's. */
static uint64_t of_threads(int proc, const char *pid,
                           uint64_t (*measure)(int proc, const char *pid))
{
	char path[300];
	int fd;
	_cleanup_dir_ DIR *dir = NULL;
	struct dirent *e;
	uint64_t bytes = 0;

	snprintf(path, sizeof(path), "%s/task", pid);
	fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	while (dir && !bytes && (e = readdir(dir)))
		if (is_number(e->d_name) && strcmp(e->d_name, pid) != 0)
			bytes = measure(proc, e->d_name);
	return bytes;
}

/* A child of vfork has its parent's until it executes. */
static bool is_lent(int proc, const char *pid)
{
	char text[1024], *end;
	int parent;

	if (!read_file(proc, pid, "stat", text, sizeof(text)))
		return false;
	end = strrchr(text, ')');
	return end && sscanf(end + 1, " %*c %d", &parent) == 1 && parent != getpid() &&
	       syscall(SYS_kcmp, atoi(pid), parent, KCMP_VM, 0, 0) == 0;
}

static bool exceeds(uint64_t limit, uint64_t (*measure)(int proc, const char *pid), bool exact)
{
	_cleanup_dir_ DIR *proc = opendir("/proc");
	const pid_t self = getpid();
	uint64_t sum = 0;
	struct dirent *e;

	while (proc && sum <= limit && (e = readdir(proc))) {
		uint64_t bytes;

		if (!is_number(e->d_name) || atoi(e->d_name) == self)
			continue;
		bytes = measure(dirfd(proc), e->d_name);
		if (!bytes)
			bytes = of_threads(dirfd(proc), e->d_name, measure);
		if (bytes && !(exact && is_lent(dirfd(proc), e->d_name)))
			sum += bytes;
	}
	return sum > limit;
}

void memory_watch_start(struct memory_watch *w, uint64_t mb)
{
	*w = (struct memory_watch){.limit = mb > UINT64_MAX >> 20 ? 0 : mb << 20};
	w->next = sbx_now_ns() + LOOK_NS;
}

int memory_watch_due_ms(const struct memory_watch *w)
{
	const uint64_t now = sbx_now_ns(), left = w->next > now ? w->next - now : 0;

	return w->limit ? (int)(left / UINT64_C(1000000)) + 1 : -1;
}

bool memory_watch_over(struct memory_watch *w)
{
	const uint64_t began = sbx_now_ns();
	uint64_t took;
	bool over;

	if (!w->limit || began < w->next)
		return false;
	over = exceeds(w->limit, resident, false) && exceeds(w->limit, own, true);
	took = sbx_now_ns() - began;
	w->next = began + took + (SHARE * took > LOOK_NS ? SHARE * took : LOOK_NS);
	return over;
}
