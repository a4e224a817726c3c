/* Finding a place and making ours there; the groups of sandboxes and jobs in it. */
#include "backends/runner/isolation/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/runner/isolation/kernel_file.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

#define CPU_PERIOD_US UINT64_C(100000)

/* The text of FILE, NUL-terminated. Returns its length, or a negative errno: -E2BIG past SIZE. */
static int read_file(int dir, const char *file, char *ret, size_t size)
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

/* Calls fn for each directory in DIR. */
static void each(int dir, void (*fn)(int dir, const char *name, void *data), void *data)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_dir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			fn(dir, e->d_name, data);
}

static void remove_tree(const struct cgroup *g, int dir, const char *name);

static void remove_one(int dir, const char *name, void *data)
{
	remove_tree(data, dir, name);
}

/* Removes NAME in DIR and all that is in it, as far as no process is. */
static void remove_tree(const struct cgroup *g, int dir, const char *name)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	each(fd, remove_one, (void *)g);
	g->kernel->remove(dir, name);
}

/* --- limits
 * ------------------------------------------------------------------------------------------ */

static int write_number(const struct cgroup *g, int dir, const char *file, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	return g->kernel->write(dir, file, text);
}

/* Without swap, which would only make the end slower. Neither file is everywhere. */
static int limit_memory(const struct cgroup *g, int dir, uint64_t mb)
{
	if (!g->features.memory || !mb)
		return 0;
	g->kernel->write(dir, "memory.swap.max", "0");
	return write_number(g, dir, "memory.max", mb << 20);
}

static int limit_cpu(const struct cgroup *g, int dir, uint64_t percent)
{
	char text[64];

	if (!g->features.cpu || !percent)
		return 0;
	snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, percent * (CPU_PERIOD_US / 100),
	         CPU_PERIOD_US);
	return g->kernel->write(dir, "cpu.max", text);
}

/* One more than asked for: init is in the group too. */
int cgroup_job_limit(const struct cgroup *g, int leaf, const struct sbx_limits *limits)
{
	int r;

	if (sbx_mitigation_off("limits"))
		return 0;
	r = limit_memory(g, leaf, limits->memory_mb);
	if (!r && g->features.memory)
		g->kernel->write(leaf, "memory.oom.group", "1");
	if (!r && g->features.pids && limits->procs)
		r = write_number(g, leaf, "pids.max", limits->procs + 1);
	return r;
}

/* --- the group of a sandbox
 * ------------------------------------------------------------------------------ */

static void switch_on(const struct cgroup *g, int dir)
{
	if (g->features.memory)
		g->kernel->write(dir, "cgroup.subtree_control", "+memory");
	if (g->features.pids)
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

/* --- the group of a job
 * -------------------------------------------------------------------------------- */

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

#define PREFIX "sandboxfs."
#define SELF   "self"
#define MOST   4 /* processes of ours that there can be */

static int make(int dirfd, const char *path)
{
	return mkdirat(dirfd, path, 0755) < 0 ? -errno : 0;
}

static int take_away(int dirfd, const char *path)
{
	return unlinkat(dirfd, path, AT_REMOVEDIR) < 0 ? -errno : 0;
}

const struct cgroup_kernel cgroup_kernel = {
        .make = make, .remove = take_away, .write = kernel_file_write};

/* --- where we are --------------------------------------------------------------------------------
 */

/* Line for line: ID PARENT DEV ROOT TARGET OPTIONS... - TYPE SOURCE SUPER */
static bool is_hierarchy(const char *line, char *target)
{
	const char *type = strstr(line, " - ");
	char root[PATH_MAX];

	return type && strncmp(type + 3, "cgroup2 ", 8) == 0 &&
	       sscanf(line, "%*s %*s %*s %4095s %4095s", root, target) == 2 &&
	       strcmp(root, "/") == 0;
}

int cgroup_find(const char *mountinfo, const char *self, struct cgroup_where *ret)
{
	_cleanup_file_ FILE *mounts = fopen(mountinfo, "re"), *own = fopen(self, "re");
	_cleanup_free_ char *line = NULL;
	bool found = false;
	size_t size = 0;

	while (mounts && !found && getline(&line, &size, mounts) > 0)
		found = is_hierarchy(line, ret->root);
	if (!found)
		return -ENOENT;
	while (own && getline(&line, &size, own) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		if (strncmp(line, "0::/..", 6) == 0 || strlen(line + 3) >= sizeof(ret->own))
			return -EXDEV;
		memcpy(ret->own, line + 3, strlen(line + 3) + 1);
		return 0;
	}
	return -ENOENT;
}

/* --- what a cgroup has
 * ---------------------------------------------------------------------------- */

enum { MEMORY = 1, PIDS = 2, CPU = 4 };

static const struct {
	unsigned bit;
	const char *name;
} controllers[] = {{MEMORY, "memory"}, {PIDS, "pids"}, {CPU, "cpu"}};

static unsigned read_controllers(int dir, const char *file)
{
	char text[512], *rest = text, *word;
	unsigned ret = 0;

	if (read_file(dir, file, text, sizeof(text)) < 0)
		return 0;
	while ((word = strsep(&rest, " \n")))
		for (size_t i = 0; i < SBX_ARRAY_SIZE(controllers); i++)
			if (strcmp(word, controllers[i].name) == 0)
				ret |= controllers[i].bit;
	return ret & (MEMORY | PIDS) ? ret : 0;
}

/* One by one: what cannot be switched must not keep the others. */
static void turn(const struct cgroup *g, int dir, char sign, unsigned which)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(controllers); i++) {
		char word[16];

		snprintf(word, sizeof(word), "%c%s", sign, controllers[i].name);
		if (which & controllers[i].bit)
			g->kernel->write(dir, "cgroup.subtree_control", word);
	}
}

/* Of the hierarchy: cannot be limited, and may hold processes beside children that are. */
static bool is_root(int dir)
{
	return faccessat(dir, "cgroup.type", F_OK, 0) < 0;
}

struct processes {
	const pid_t *ids;
	size_t n;
};

static bool is_one_of(pid_t pid, const struct processes *ours)
{
	for (size_t i = 0; i < ours->n; i++)
		if (ours->ids[i] == pid)
			return true;
	return false;
}

/* The processes in DIR, at most as many as we can be; -1: more. */
static int list_processes(int dir, pid_t ret[MOST])
{
	char text[256], *rest = text, *line;
	int n = 0;

	if (read_file(dir, "cgroup.procs", text, sizeof(text)) < 0)
		return -1;
	while ((line = strsep(&rest, "\n")) && *line) {
		if (n == MOST)
			return -1;
		ret[n++] = atoi(line);
	}
	return n;
}

static bool all_ours(int dir, const struct processes *ours)
{
	pid_t found[MOST];
	int n = list_processes(dir, found);

	for (int i = 0; i < n; i++)
		if (!is_one_of(found[i], ours))
			return false;
	return n >= 0;
}

static void move_all(const struct cgroup *g, int from, int to)
{
	pid_t found[MOST];
	int n = list_processes(from, found);

	for (int i = 0; i < n; i++)
		cgroup_job_enter(g, to, found[i]);
}

/* Our own cgroup: the controllers are ours to switch on once no process is in it. */
static unsigned offered_at_home(int host, const struct processes *ours)
{
	if (faccessat(host, "cgroup.subtree_control", W_OK, 0) < 0 ||
	    !(is_root(host) || all_ours(host, ours)))
		return 0;
	return read_controllers(host, "cgroup.controllers");
}

/* Somebody else's, who lets us make a group beside his. */
static unsigned offered_abroad(int host)
{
	if (faccessat(host, ".", W_OK, 0) < 0 || faccessat(host, "cgroup.procs", W_OK, 0) < 0)
		return 0;
	return read_controllers(host, "cgroup.subtree_control");
}

/* --- removing
 * --------------------------------------------------------------------------------------- */

static bool populated(int dir, const char *name)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char text[256];

	return fd < 0 || read_file(fd, "cgroup.events", text, sizeof(text)) < 0 ||
	       !strstr(text, "populated 0");
}

static void remove_stale(int dir, const char *name, void *data)
{
	struct cgroup *g = data;

	if (strncmp(name, PREFIX, strlen(PREFIX)) == 0 && strcmp(name, g->name) != 0 &&
	    !populated(dir, name))
		remove_tree(g, dir, name);
}

/* --- making
 * ------------------------------------------------------------------------------------------- */

/* HOST/name and HOST/name/self; g->dir is open. */
static int make_ours(struct cgroup *g)
{
	int r = g->kernel->make(g->host, g->name);

	if (r < 0)
		return r;
	g->dir = openat(g->host, g->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = g->dir < 0 ? -errno : g->kernel->make(g->dir, SELF);
	if (r < 0) {
		sbx_cleanup_fd(&g->dir);
		g->kernel->remove(g->host, g->name);
	}
	return r;
}

static void undo(struct cgroup *g)
{
	turn(g, g->dir, '-', MEMORY | PIDS | CPU);
	if (g->moved) {
		_cleanup_fd_ int self = openat(g->dir, SELF, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		turn(g, g->host, '-', MEMORY | PIDS | CPU);
		move_all(g, self, g->host);
	}
	remove_tree(g, g->host, g->name);
	sbx_cleanup_fd(&g->dir);
	g->moved = false;
}

static bool use_own_group(struct cgroup *g, const struct processes *ours)
{
	const unsigned offered = offered_at_home(g->host, ours);
	_cleanup_fd_ int self = -1;

	if (!offered || make_ours(g) < 0)
		return false;
	self = openat(g->dir, SELF, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	g->moved = !is_root(g->host);
	if (g->moved)
		move_all(g, g->host, self);
	turn(g, g->host, '+', offered);
	if (read_controllers(g->host, "cgroup.subtree_control"))
		return true;
	undo(g);
	return false;
}

static bool use_new_group(struct cgroup *g)
{
	return offered_abroad(g->host) && make_ours(g) == 0;
}

static void set_features(struct sbx_cgroup_features *ret, unsigned which, const char *own)
{
	*ret = (struct sbx_cgroup_features){
	        .memory = which & MEMORY, .pids = which & PIDS, .cpu = which & CPU};
	if (!which)
		snprintf(ret->reason, sizeof(ret->reason),
		         "no cgroup that is ours to divide has memory or pids (ours is %.100s)",
		         own);
}

/* PATH becomes that of the cgroup around it; false at the root. */
static bool go_up(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || !path[1])
		return false;
	slash[slash == path] = '\0';
	return true;
}

static int open_below(int root, const char *own)
{
	return openat(root, own[1] ? own + 1 : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void cgroup_open(struct cgroup *g, const struct cgroup_where *where, const pid_t *ours, size_t n)
{
	_cleanup_fd_ int root = open(where->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct processes processes = {ours, n};
	char path[PATH_MAX];
	bool found = false;

	snprintf(path, sizeof(path), "%s", where->own);
	snprintf(g->name, sizeof(g->name), PREFIX "%d", (int)getpid());
	g->moved = false;
	do {
		const bool home = strcmp(path, where->own) == 0;

		g->host = open_below(root, path);
		if (g->host < 0)
			continue;
		each(g->host, remove_stale, g);
		found = (home && use_own_group(g, &processes)) || use_new_group(g);
		if (!found)
			sbx_cleanup_fd(&g->host);
	} while (!found && go_up(path));
	set_features(&g->features, found ? read_controllers(g->host, "cgroup.subtree_control") : 0,
	             where->own);
	if (found)
		turn(g, g->dir, '+', read_controllers(g->host, "cgroup.subtree_control"));
}

void cgroup_probe(const struct cgroup_where *where, const pid_t *ours, size_t n,
                  struct sbx_cgroup_features *ret)
{
	_cleanup_fd_ int root = open(where->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct processes processes = {ours, n};
	unsigned offered = 0;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", where->own);
	do {
		_cleanup_fd_ int host = open_below(root, path);

		if (host >= 0 && strcmp(path, where->own) == 0)
			offered = offered_at_home(host, &processes);
		if (host >= 0 && !offered)
			offered = offered_abroad(host);
	} while (!offered && go_up(path));
	set_features(ret, offered, where->own);
}

void sbx_cgroup_probe(struct sbx_cgroup_features *ret)
{
	struct cgroup_where where;

	if (cgroup_find("/proc/self/mountinfo", "/proc/self/cgroup", &where) < 0) {
		*ret = (struct sbx_cgroup_features){.reason = "cgroup v2 is not mounted"};
		return;
	}
	cgroup_probe(&where, (pid_t[]){getpid()}, 1, ret);
}

int cgroup_join(const struct cgroup *g)
{
	_cleanup_fd_ int self = openat(g->dir, SELF, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return self < 0 ? -errno : cgroup_job_enter(g, self, 0);
}

void cgroup_close(struct cgroup *g)
{
	if (g->dir >= 0)
		undo(g);
	sbx_cleanup_fd(&g->host);
}
