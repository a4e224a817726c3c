/* Files are plain; what writing to some of them does is done here. */
#include "fake_cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "scratch.h"

static char root[PATH_MAX];
static int root_fd = -1;

static const char *const always[] = {"cgroup.procs", "cgroup.controllers", "cgroup.subtree_control",
                                     "cgroup.type",  "cgroup.events",      "cgroup.kill"};
static const struct {
	const char *controller, *file, *text;
} limits[] = {
        {"memory", "memory.max", "max"},
        {"memory", "memory.swap.max", "max"},
        {"memory", "memory.oom.group", "0"},
        {"memory", "memory.events", "low 0\noom 0\noom_kill 0"},
        {"pids", "pids.max", "max"},
        {"cpu", "cpu.max", "max 100000"},
};

static void set(int dir, const char *file, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_true(dprintf(fd, "%s%s", text, *text ? "\n" : "") >= 0);
}

static bool get(int dir, const char *file, char *ret, size_t size)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	if (n < 0)
		return false;
	ret[n] = '\0';
	if (n > 0 && ret[n - 1] == '\n')
		ret[n - 1] = '\0';
	return true;
}

/* Words or lines: NULL when WORD is not one of them. */
static char *find_word(char *text, const char *word)
{
	size_t len = strlen(word);

	for (char *at = text; (at = strstr(at, word)); at++)
		if ((at == text || strchr(" \n", at[-1])) && strchr(" \n", at[len]))
			return at;
	return NULL;
}

static void remove_word(char *text, const char *word)
{
	char *at = find_word(text, word);
	size_t len = strlen(word);

	if (at)
		memmove(at, at + len + (at[len] != '\0'), strlen(at + len + (at[len] != '\0')) + 1);
}

static void add_word(int dir, const char *file, const char *word, char separator)
{
	char text[512], more[600];

	assert_true(get(dir, file, text, sizeof(text)));
	snprintf(more, sizeof(more), "%s%.*s%s", text, *text != '\0', &separator, word);
	set(dir, file, more);
}

static bool empty(int dir, const char *file)
{
	char text[512];

	return !get(dir, file, text, sizeof(text)) || !*text;
}

static bool is_root(int dir)
{
	return faccessat(dir, "cgroup.type", F_OK, 0) < 0;
}

/* DIR, whose parent has switched on what ON says. */
static void inherit(int dir, char *on)
{
	set(dir, "cgroup.controllers", on);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(limits); i++) {
		bool wanted = find_word(on, limits[i].controller);

		if (!wanted)
			unlinkat(dir, limits[i].file, 0);
		else if (faccessat(dir, limits[i].file, F_OK, 0) < 0)
			set(dir, limits[i].file, limits[i].text);
	}
}

static void inherit_all(int dir, char *on)
{
	_cleanup_dir_ DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	for (struct dirent *e; d && (e = readdir(d));) {
		_cleanup_fd_ int child = -1;

		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			child = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (child >= 0)
			inherit(child, on);
	}
}

static int make(int dirfd, const char *path)
{
	_cleanup_fd_ int dir = -1, parent = -1;
	char on[512];

	if (mkdirat(dirfd, path, 0755) < 0)
		return -errno;
	dir = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	parent = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(parent >= 0 && get(parent, "cgroup.subtree_control", on, sizeof(on)));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(always); i++)
		set(dir, always[i], "");
	set(dir, "cgroup.type", "domain");
	set(dir, "cgroup.events", "populated 0\nfrozen 0");
	inherit(dir, on);
	return 0;
}

static int take_away(int dirfd, const char *path)
{
	_cleanup_fd_ int dir = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (dir < 0)
		return -errno;
	/* Its own link, its name, and ".." of each child. */
	if (!empty(dir, "cgroup.procs") || (fstat(dir, &st) == 0 && st.st_nlink > 2))
		return -EBUSY;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(always); i++)
		unlinkat(dir, always[i], 0);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(limits); i++)
		unlinkat(dir, limits[i].file, 0);
	return unlinkat(dirfd, path, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int switch_controller(int dir, const char *word)
{
	char have[512], on[512];

	assert_true(get(dir, "cgroup.controllers", have, sizeof(have)));
	assert_true(get(dir, "cgroup.subtree_control", on, sizeof(on)));
	if (!find_word(have, word + 1))
		return -ENOENT;
	if (word[0] == '+' && !is_root(dir) && !empty(dir, "cgroup.procs"))
		return -EBUSY;
	if (word[0] == '+' && !find_word(on, word + 1))
		add_word(dir, "cgroup.subtree_control", word + 1, ' ');
	if (word[0] == '-') {
		remove_word(on, word + 1);
		set(dir, "cgroup.subtree_control", on);
	}
	assert_true(get(dir, "cgroup.subtree_control", on, sizeof(on)));
	inherit_all(dir, on);
	return 0;
}

static void leave(const char *path, const char *pid)
{
	_cleanup_fd_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[512];

	if (dir < 0 || !get(dir, "cgroup.procs", text, sizeof(text)) || !find_word(text, pid))
		return;
	remove_word(text, pid);
	set(dir, "cgroup.procs", text);
}

/* The few places where a test may have put one. */
static char places[32][PATH_MAX];
static int n_places;

static int move(int dir, const char *pid)
{
	char self[16], link[64], path[PATH_MAX] = "";

	if (!is_root(dir) && !empty(dir, "cgroup.subtree_control"))
		return -EBUSY;
	snprintf(self, sizeof(self), "%d", getpid());
	if (strcmp(pid, "0") == 0)
		pid = self;
	for (int i = 0; i < n_places; i++)
		leave(places[i], pid);
	add_word(dir, "cgroup.procs", pid, '\n');
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
	assert_true(n_places < 32 && readlink(link, path, sizeof(path) - 1) > 0);
	memcpy(places[n_places++], path, sizeof(path));
	return 0;
}

static int put(int dirfd, const char *file, const char *text)
{
	if (faccessat(dirfd, file, W_OK, 0) < 0)
		return -errno;
	if (strcmp(file, "cgroup.subtree_control") == 0)
		return switch_controller(dirfd, text);
	if (strcmp(file, "cgroup.procs") == 0)
		return move(dirfd, text);
	set(dirfd, file, text);
	return 0;
}

const struct cgroup_kernel fake_cgroup_kernel = {.make = make, .remove = take_away, .write = put};

const char *fake_cgroup_start(const char *controllers)
{
	snprintf(root, sizeof(root), "%s", scratch_path("cgroup"));
	assert_int_equal(mkdir(root, 0755), 0);
	sbx_cleanup_fd(&root_fd);
	root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(root_fd >= 0);
	set(root_fd, "cgroup.procs", "");
	set(root_fd, "cgroup.controllers", controllers);
	set(root_fd, "cgroup.subtree_control", "");
	n_places = 0;
	return root;
}

static int open_group(const char *path)
{
	int dir = openat(root_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(dir >= 0);
	return dir;
}

void fake_cgroup_add(const char *path)
{
	assert_int_equal(make(root_fd, path), 0);
}

void fake_cgroup_put(const char *path, pid_t pid)
{
	_cleanup_fd_ int dir = open_group(path);
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	assert_int_equal(move(dir, text), 0);
}

void fake_cgroup_write(const char *path, const char *file, const char *text)
{
	_cleanup_fd_ int dir = open_group(path);

	assert_int_equal(put(dir, file, text), 0);
}

const char *fake_cgroup_read(const char *path, const char *file)
{
	_cleanup_fd_ int dir =
	        openat(root_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static char text[512];

	return dir >= 0 && get(dir, file, text, sizeof(text)) ? text : NULL;
}
