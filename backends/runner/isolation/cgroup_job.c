/* The groups of sandboxes and jobs, in a mount's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/runner/isolation/cgroup_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/walls.h"

#define CPU_PERIOD_US UINT64_C(100000)

int cgroup_read(int dir, const char *file, char *ret, size_t size)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n = 1;

	if (fd < 0)
		return -errno;
	while (len < size && n > 0) {
		n = read(fd, ret + len, size - len);
		if (n < 0)
			return -errno;
		len += (size_t)n;
	}
	if (len == size)
		return -E2BIG;
	ret[len] = '\0';
	return (int)len;
}

void cgroup_each(int dir, void (*fn)(int dir, const char *name, void *data), void *data)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			fn(dir, e->d_name, data);
}

static void remove_one(int dir, const char *name, void *data)
{
	cgroup_remove_tree(data, dir, name);
}

void cgroup_remove_tree(const struct cgroup *g, int dir, const char *name)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	cgroup_each(fd, remove_one, (void *)g);
	g->kernel->remove(dir, name);
}

/* --- limits ------------------------------------------------------------------------------------------ */

static int write_number(const struct cgroup *g, int dir, const char *file, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	return g->kernel->write(dir, file, text);
}

/* Without swap, which would only make the end slower. Neither file is everywhere. */
static int limit_memory(const struct cgroup *g, int dir, uint64_t mb)
{
	if (!g->powers.memory || !mb)
		return 0;
	g->kernel->write(dir, "memory.swap.max", "0");
	return write_number(g, dir, "memory.max", mb << 20);
}

static int limit_cpu(const struct cgroup *g, int dir, uint64_t percent)
{
	char text[64];

	if (!g->powers.cpu || !percent)
		return 0;
	snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, percent * (CPU_PERIOD_US / 100),
	         CPU_PERIOD_US);
	return g->kernel->write(dir, "cpu.max", text);
}

/* One more than asked for: init is in the group too. */
int cgroup_job_limit(const struct cgroup *g, int leaf, const struct sbx_limits *limits)
{
	int r;

	if (sbx_without("limits"))
		return 0;
	r = limit_memory(g, leaf, limits->memory_mb);
	if (!r && g->powers.memory)
		g->kernel->write(leaf, "memory.oom.group", "1");
	if (!r && g->powers.pids && limits->procs)
		r = write_number(g, leaf, "pids.max", limits->procs + 1);
	return r;
}

/* --- the group of a sandbox ------------------------------------------------------------------------------ */

static void switch_on(const struct cgroup *g, int dir)
{
	if (g->powers.memory)
		g->kernel->write(dir, "cgroup.subtree_control", "+memory");
	if (g->powers.pids)
		g->kernel->write(dir, "cgroup.subtree_control", "+pids");
}

static int make_box(const struct cgroup *g, const char *name,
                    const struct isolation_settings *mount)
{
	_cleanup_fd_ int dir = -1;
	int r = g->kernel->make(g->dir, name);

	if (r < 0)
		return r == -EEXIST ? 0 : r;
	dir = openat(g->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	switch_on(g, dir);
	r = limit_memory(g, dir, mount->memory_mb);
	if (!r)
		r = limit_cpu(g, dir, mount->cpu_percent);
	if (r < 0)
		g->kernel->remove(g->dir, name);
	return r;
}

/* --- the group of a job -------------------------------------------------------------------------------- */

static int make_leaf(const struct cgroup *g, const char *path)
{
	int leaf, r = g->kernel->make(g->dir, path);

	if (r < 0)
		return r;
	leaf = openat(g->dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (leaf < 0) {
		r = -errno;
		g->kernel->remove(g->dir, path);
		return r;
	}
	return leaf;
}

static int name_groups(const char *box, uint64_t number, char **name, char **path)
{
	if (asprintf(name, "box-%s", box) < 0)
		*name = NULL;
	else if (asprintf(path, "%s/job-%" PRIu64, *name, number) < 0)
		*path = NULL;
	return *name && *path ? 0 : -ENOMEM;
}

int cgroup_job_make(const struct cgroup *g, const char *box, uint64_t number,
                    const struct isolation_settings *mount)
{
	_cleanup_free_ char *name = NULL, *path = NULL;
	int r = name_groups(box, number, &name, &path);

	if (!r)
		r = make_box(g, name, mount);
	return r < 0 ? r : make_leaf(g, path);
}

int cgroup_job_enter(const struct cgroup *g, int leaf, pid_t pid)
{
	return write_number(g, leaf, "cgroup.procs", (uint64_t)pid);
}

int cgroup_job_kill(const struct cgroup *g, int leaf)
{
	return g->kernel->write(leaf, "cgroup.kill", "1");
}

int cgroup_job_events(int leaf)
{
	int fd = openat(leaf, "memory.events", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -1 : fd;
}

bool cgroup_was_oom(int events)
{
	char text[512];
	ssize_t n = events < 0 ? -1 : pread(events, text, sizeof(text) - 1, 0);
	const char *at;

	if (n <= 0)
		return false;
	text[n] = '\0';
	at = strstr(text, "oom_kill ");
	return at && strtoull(at + strlen("oom_kill "), NULL, 10) > 0;
}

void cgroup_job_remove(const struct cgroup *g, const char *box, uint64_t number)
{
	_cleanup_free_ char *name = NULL, *path = NULL;

	if (name_groups(box, number, &name, &path) < 0)
		return;
	g->kernel->remove(g->dir, path);
	g->kernel->remove(g->dir, name);
}
