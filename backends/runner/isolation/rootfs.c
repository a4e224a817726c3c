/*
 * The view is built on a fresh tmpfs that becomes the root; the host's root is then detached whole.
 * Hiding things in a copy of the host's mounts would not do: copies are locked in a
 * user namespace, and a copy of our own mount keeps its connection alive after umount.
 *
 * Host paths are resolved beneath the old root's descriptor (RESOLVE_IN_ROOT), so that their
 * symbolic links mean what they mean outside. Directories that lead to our own mount, state or
 * source are taken apart: their entries are bound one by one around it.
 */
#include "backends/runner/isolation/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/runner/isolation/userns.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/openat2.h"
#include "sandboxfs/system_dirs.h"

#define RO  (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define RW  (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define DEV (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)

struct build {
	const struct isolation_settings *settings;
	int host; /* the old root */
	const struct mounts_given *given;
	const char *avoid[5]; /* never to be bound, NULL-terminated */
	const struct sbx_identity *who;
	int groupless; /* a user namespace, or -1 */
	struct mounts_made *made;
};

static int step(struct build *b, const char *what, int r)
{
	if (r >= 0)
		return 0;
	b->made->what = what;
	return -errno;
}

static int host_open(const struct build *b, const char *path, int flags)
{
	return sbx_openat2(b->host, path, flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

/* mkdir -p. What exists may lie in a read-only mount: that is no error. */
static int make_dirs(const char *path, bool last_too)
{
	char buf[PATH_MAX];
	struct stat st;
	size_t len = strlen(path);

	if (len >= sizeof(buf))
		return -ENAMETOOLONG;
	memcpy(buf, path, len + 1);
	for (char *c = buf + 1; *c; c++) {
		if (*c != '/')
			continue;
		*c = 0;
		if (stat(buf, &st) < 0 && mkdir(buf, 0755) < 0)
			return -errno;
		*c = '/';
	}
	if (last_too && stat(buf, &st) < 0 && mkdir(buf, 0755) < 0)
		return -errno;
	return 0;
}

static int make_target(const char *path, bool dir)
{
	_cleanup_fd_ int fd = -1;
	int r = make_dirs(path, dir);

	if (r < 0 || dir || access(path, F_OK) == 0)
		return r;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	return fd < 0 ? -errno : 0;
}

/* The owner of what is mounted at TREE (as ST says) appears as WHO. */
static int map_owner(int tree, const struct stat *st, const struct sbx_identity *who)
{
	const struct sbx_identity owner = {.uid = st->st_uid, .gid = st->st_gid};
	_cleanup_fd_ int ns = -1;

	if (owner.uid == who->uid)
		return 0;
	ns = userns_make(owner, *who, false);
	if (ns < 0)
		return ns;
	return mount_setattr(tree, "", AT_EMPTY_PATH,
	                     &(struct mount_attr){.attr_set = MOUNT_ATTR_IDMAP,
	                                          .userns_fd = (uint64_t)ns},
	                     sizeof(struct mount_attr)) < 0
	               ? -errno
	               : 0;
}

static int open_nearest(const char *path)
{
	_cleanup_free_ char *at = strdup(path);
	int fd = -1;

	while (at && *at) {
		fd = open_tree(AT_FDCWD, at, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (fd >= 0 || errno != ENOENT || !strrchr(at, '/'))
			break;
		*strrchr(at, '/') = 0;
	}
	if (at && !*at)
		fd = open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int mounts_try_owner(const char *path, const struct sbx_identity *who)
{
	_cleanup_fd_ int tree = open_nearest(path);
	const struct stat ours = {.st_uid = geteuid(), .st_gid = getegid()};

	return tree < 0 ? tree : map_owner(tree, &ours, who);
}

/*
 * A socket in a mount that is read only can be connected to all the same. Where the number of its
 * group means nothing nobody has the right to, as the kernel could not write such a number back;
 * reading goes by the owner and by what others may. Of mounts within TREE each has to be of a kind
 * that can do so.
 */
static void close_sockets(struct build *b, int tree)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP,
	                          .userns_fd = (uint64_t)b->groupless};

	if (b->groupless >= 0 &&
	    mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) == 0)
		return;
	b->made->closed = false;
	if (b->groupless >= 0)
		mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr));
}

int mounts_try_memory(const struct sbx_identity *who)
{
	_cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), tree = -1;
	const struct stat ours = {.st_uid = geteuid(), .st_gid = getegid()};

	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	tree = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	return tree < 0 ? -errno : map_owner(tree, &ours, who);
}

/* A mount of what is at SRC, not attached yet. WHO may be NULL: owners appear as they are.
 * Descriptor or -errno. */
static int clone_tree(int src, const struct stat *st, uint64_t attrs,
                      const struct sbx_identity *who)
{
	struct mount_attr attr = {.attr_set = attrs};
	_cleanup_fd_ int tree = open_tree(
	        src, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH);
	int r;

	if (tree < 0 ||
	    mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		return -errno;
	r = who ? map_owner(tree, st, who) : 0;
	return r < 0 ? r : sbx_steal_fd(&tree);
}

static int attach(struct build *b, int src, const char *target, uint64_t attrs,
                  const struct sbx_identity *who)
{
	_cleanup_fd_ int tree = -1;
	struct stat st;
	int r;

	if (fstat(src, &st) < 0)
		return -errno;
	tree = clone_tree(src, &st, attrs, who);
	if (tree >= 0 && attrs == RO && !who && !S_ISREG(st.st_mode))
		close_sockets(b, tree);
	r = tree < 0 ? tree : make_target(target, S_ISDIR(st.st_mode));
	if (r < 0)
		return r;
	return move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int bind_path(struct build *b, const char *src, const char *target, uint64_t attrs)
{
	_cleanup_fd_ int fd = host_open(b, src, O_PATH);

	return fd < 0 ? fd : attach(b, fd, target, attrs, NULL);
}

static int bind_place(struct build *b, const char *src, const char *target, uint64_t attrs)
{
	_cleanup_fd_ int fd = host_open(b, src, O_PATH);

	return fd < 0 ? fd : attach(b, fd, target, attrs, b->who);
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static bool is_avoided(const struct build *b, const char *path)
{
	for (const char *const *a = b->avoid; *a; a++)
		if (strcmp(*a, path) == 0 || is_below(path, *a))
			return true;
	return false;
}

static bool leads_to_avoided(const struct build *b, const char *path)
{
	for (const char *const *a = b->avoid; *a; a++)
		if (is_below(*a, path))
			return true;
	return false;
}

static int copy_link(const struct build *b, const char *path)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(b->host, path + 1, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = 0;
	return symlink(target, path) < 0 && errno != EEXIST ? -errno : 0;
}

static int show(struct build *b, const char *path);

static int show_entries(struct build *b, const char *path)
{
	int fd = host_open(b, path, O_RDONLY | O_DIRECTORY);
	_cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int r = dir ? 0 : -errno;

	if (r == 0)
		r = make_dirs(path, true);
	while (r >= 0 && (e = readdir(dir))) {
		char child[PATH_MAX];

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (snprintf(child, sizeof(child), "%s/%s", path, e->d_name) < (int)sizeof(child))
			r = show(b, child);
	}
	return r;
}

/* PATH as the host has it, read only, without what is to be avoided. What is missing is no error.
 */
static int show(struct build *b, const char *path)
{
	struct stat st;

	if (is_avoided(b, path) || fstatat(b->host, path + 1, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISLNK(st.st_mode))
		return copy_link(b, path);
	if (leads_to_avoided(b, path))
		return show_entries(b, path);
	return bind_path(b, path, path, RO);
}

static int show_system(struct build *b)
{
	for (const char *const *dir = sbx_system_dirs; *dir; dir++) {
		int r = show(b, *dir);

		if (r < 0) {
			b->made->what = *dir;
			return r;
		}
	}
	return 0;
}

/* With the host's network, its resolver's file is often a link out of /etc. */
static void show_resolver(struct build *b)
{
	char target[PATH_MAX], path[PATH_MAX + 8];
	ssize_t n = readlinkat(b->host, "etc/resolv.conf", target, sizeof(target) - 1);

	if (n <= 0 || !isolation_net_is_host(b->settings))
		return;
	target[n] = 0;
	snprintf(path, sizeof(path), "%s%s", target[0] == '/' ? "" : "/etc/", target);
	bind_path(b, path, path, RO);
}

/* The detached mount TREE, whose owner appears as WHO, unless that is NULL. */
static int place(int tree, const char *target, uint64_t attrs, const struct sbx_identity *who)
{
	struct mount_attr attr = {.attr_set = attrs};
	struct stat st;
	int r = make_target(target, true);

	if (!r && (fstat(tree, &st) < 0 ||
	           mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0))
		r = -errno;
	if (!r && who)
		r = map_owner(tree, &st, who);
	if (r < 0)
		return r;
	return move_mount(tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/*
 * Mounts a tmpfs. Its files are memory, which no limit of a process counts; the disk of the
 * sandbox has a limit of its own.
 */
static int mount_memory(const struct build *b, enum disk_place which, const char *path,
                        unsigned long flags)
{
	const uint64_t mb = b->settings->memory_mb;
	const int disk = b->given->disk[which];
	char options[64] = "mode=1777";

	if (disk >= 0)
		return place(disk, path, RW | (flags & MS_NOEXEC ? MOUNT_ATTR_NOEXEC : 0), NULL);
	if (mb)
		snprintf(options, sizeof(options), "mode=1777,size=%" PRIu64 "m", mb);
	return mount("memory", path, "tmpfs", MS_NOSUID | MS_NODEV | flags, options);
}

static int make_dev(struct build *b)
{
	static const char *const nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};
	static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
	                                       {"/proc/self/fd/0", "/dev/stdin"},
	                                       {"/proc/self/fd/1", "/dev/stdout"},
	                                       {"/proc/self/fd/2", "/dev/stderr"},
	                                       {"pts/ptmx", "/dev/ptmx"}};
	char path[32];
	int r = 0;

	b->made->what = "/dev";
	for (size_t i = 0; i < SBX_ARRAY_SIZE(nodes) && r >= 0; i++) {
		snprintf(path, sizeof(path), "/dev/%s", nodes[i]);
		r = bind_path(b, path, path, DEV);
	}
	for (size_t i = 0; i < SBX_ARRAY_SIZE(links) && r >= 0; i++)
		r = symlink(links[i][0], links[i][1]);
	if (r < 0)
		return r;
	if (mkdir("/dev/pts", 0755) < 0 || mkdir("/dev/shm", 0755) < 0)
		return -errno;
	r = step(b, "devpts",
	         mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
	               "newinstance,ptmxmode=0666,mode=0620"));
	return r ? r : step(b, "/dev/shm", mount_memory(b, DISK_SHM, "/dev/shm", MS_NOEXEC));
}

/* The old root's /proc is still in sight: without it the kernel refuses a new one to a user
 * namespace. This one is never looked at; each job mounts its own over it. */
static int make_proc_and_tmp(struct build *b)
{
	int r;

	if (mkdir("/proc", 0555) < 0 || mkdir("/tmp", 0755) < 0 || mkdir("/var", 0755) < 0 ||
	    mkdir("/run", 0755) < 0 || symlink("/tmp", "/var/tmp") < 0 ||
	    symlink("/run", "/var/run") < 0)
		return step(b, "directories", -1);
	r = step(b, "/proc",
	         mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
	return r ? r : step(b, "/tmp", mount_memory(b, DISK_TMP, "/tmp", 0));
}

/* An empty directory or file in place of PATH. What is not there is no error. */
static int cover(struct build *b, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return 0;
	if (!S_ISDIR(st.st_mode))
		return bind_path(b, "/dev/null", path, DEV | MOUNT_ATTR_RDONLY);
	return mount("hidden", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=0555") < 0
	               ? -errno
	               : 0;
}

int mounts_cover_sockets(char *const *sockets)
{
	struct mount_attr attr = {.attr_set = DEV | MOUNT_ATTR_RDONLY};

	for (; *sockets; sockets++) {
		_cleanup_fd_ int tree = -1;
		struct stat st;

		if (stat(*sockets, &st) < 0 || !S_ISSOCK(st.st_mode))
			continue;
		tree = open_tree(AT_FDCWD, "/dev/null", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
			return -errno;
		if (move_mount(tree, "", AT_FDCWD, *sockets, MOVE_MOUNT_F_EMPTY_PATH) < 0 &&
		    errno != ENOENT)
			return -errno;
	}
	return 0;
}

/* Of tools in a home: what is not there any more is no error. */
static int show_tools(struct build *b)
{
	const struct sbx_strings *shown = &b->settings->shown, *covered = &b->settings->covered;

	for (size_t i = 0; i < shown->n; i++)
		if (!is_avoided(b, shown->items[i]) && !leads_to_avoided(b, shown->items[i]))
			bind_path(b, shown->items[i], shown->items[i], RO);
	for (size_t i = 0; i < covered->n; i++) {
		int r = cover(b, covered->items[i]);

		if (r < 0) {
			b->made->what = covered->items[i];
			return r;
		}
	}
	return 0;
}

/* Paths of the settings. What is missing is no error. */
static int bind_list(struct build *b, char *const *list, size_t n, uint64_t attrs)
{
	for (size_t i = 0; list && i < n; i++) {
		int r = bind_path(b, list[i], list[i], attrs);

		if (r < 0 && r != -ENOENT) {
			b->made->what = list[i];
			return r;
		}
	}
	return 0;
}

static int hide(struct build *b)
{
	const struct sbx_strings *paths = &b->settings->hide_paths;
	int r = 0;

	b->made->what = "hide_paths";
	for (size_t i = 0; i < paths->n && !r; i++)
		r = cover(b, paths->items[i]);
	return r;
}

static int show_places(struct build *b, char *const *list, uint64_t attrs)
{
	for (; *list; list++) {
		int r = bind_place(b, *list, *list, attrs);

		if (r < 0) {
			b->made->what = *list;
			return r;
		}
	}
	return 0;
}

/* Those to write to: home and repository, which may be on the disk, and others. */
static int show_own(struct build *b, char *const *list)
{
	for (int i = DISK_HOME; i <= DISK_REPO && *list; i++, list++) {
		const int disk = b->given->disk[i];
		int r = disk < 0 ? bind_place(b, *list, *list, RW) : place(disk, *list, RW, b->who);

		if (r < 0) {
			b->made->what = *list;
			return r;
		}
	}
	return show_places(b, list, RW);
}

/* Mounts SRC at PATH beneath DIR, read only; *RET is the mount. -ENOENT: there is no such PATH. */
static int place_over(const struct build *b, int dir, const char *src_path, const char *path,
                      int *ret)
{
	_cleanup_fd_ int src = host_open(b, src_path, O_PATH | O_NOFOLLOW);
	_cleanup_fd_ int target =
	        sbx_openat2(dir, path, O_PATH | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	_cleanup_fd_ int tree = -1;
	struct stat st;

	if (target < 0)
		return target;
	if (src < 0 || fstat(src, &st) < 0 || S_ISLNK(st.st_mode))
		return -EIO;
	tree = clone_tree(src, &st, RO, b->who);
	if (tree < 0)
		return tree;
	if (move_mount(tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return -errno;
	*ret = sbx_steal_fd(&tree);
	return 0;
}

/*
 * Commands may be changing the tree: what is not there any more, or is of another kind, stays as it
 * is. What lies within the one before is placed in that mount, wherever a command has moved it;
 * where it cannot be, what it is to cover would be seen.
 */
static int show_over(const struct build *b, const char *top, char *const *pairs)
{
	_cleanup_fd_ int dir = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC), over = -1;
	const char *at = NULL;

	for (; pairs[0]; pairs += 2) {
		const size_t n = at ? strlen(at) : 0;
		const bool within = at && strncmp(pairs[1], at, n) == 0 && pairs[1][n] == '/';
		_cleanup_fd_ int tree = -1;
		int r;

		if (within && over < 0)
			continue;
		r = place_over(b, within ? over : dir, pairs[0],
		               within ? pairs[1] + n + 1 : pairs[1], &tree);
		if (within && r && r != -ENOENT)
			return r;
		if (within)
			continue;
		sbx_cleanup_fd(&over);
		over = sbx_steal_fd(&tree);
		at = pairs[1];
	}
	return 0;
}

/*
 * Where the source's objects name the store as an alternate, git finds an empty one, and does not
 * complain at each command. Not in a directory of the host's that is shown: what is there when
 * nothing of the source has been placed yet is one.
 */
static void place_stores(char *const *objects)
{
	char path[PATH_MAX];
	struct stat st;

	for (; *objects; objects++) {
		const char *slash = strrchr(*objects, '/');
		const int n = slash ? (int)(slash - *objects) : 0;

		if (snprintf(path, sizeof(path), "%.*s", n, *objects) < (int)sizeof(path) &&
		    stat(path, &st) < 0 &&
		    snprintf(path, sizeof(path), "%.*s/sandboxfs/objects", n, *objects) <
		            (int)sizeof(path))
			make_dirs(path, true);
	}
}

static int show_place(struct build *b, const struct spawn_request *req)
{
	const int tree = b->given->tree;
	int r;

	b->made->what = "the tree";
	r = tree >= 0 ? place(tree, req->view, RW, NULL)
	              : bind_place(b, req->workdir, req->view, RW);
	if (!r && strcmp(req->workdir, req->view) != 0)
		r = tree >= 0 ? attach(b, tree, req->workdir, RW, NULL)
		              : bind_place(b, req->workdir, req->workdir, RW);
	if (!r)
		r = show_over(b, req->view, req->over);
	if (!r && strcmp(req->workdir, req->view) != 0)
		r = show_over(b, req->workdir, req->over);
	if (!r)
		place_stores(req->ro);
	if (!r)
		r = show_places(b, req->ro, RO);
	return r ? r : show_own(b, req->rw);
}

/*
 * Paths that name the source mean the tree, because worktrees, alternates and remotes of
 * repositories in it have such. Where something else has to be seen below the source's path, its
 * entries lead to those of the tree. What cannot be made is no error.
 */
static void link_source(const char *source, const char *view)
{
	char from[PATH_MAX], to[PATH_MAX];
	_cleanup_dir_ DIR *dir = NULL;
	struct dirent *e;

	if (make_dirs(source, false) < 0 || symlink(view, source) == 0 || errno != EEXIST)
		return;
	dir = opendir(view);
	while (dir && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    snprintf(from, sizeof(from), "%s/%s", source, e->d_name) < (int)sizeof(from) &&
		    snprintf(to, sizeof(to), "%s/%s", view, e->d_name) < (int)sizeof(to) &&
		    symlink(to, from) < 0 && errno != EEXIST)
			break;
}

/* The new root is "/" from here on, the old one at /.old. */
static int change_root(struct build *b)
{
	int r = step(b, "private mounts", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));

	if (!r)
		r = step(b, "root",
		         mount("sandbox", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"));
	if (!r)
		r = step(b, "root", chdir("/tmp"));
	if (!r)
		r = step(b, "root", mkdir(".old", 0700));
	if (!r)
		r = step(b, "pivot_root", (int)syscall(SYS_pivot_root, ".", ".old"));
	if (!r)
		r = step(b, "root", chdir("/"));
	if (!r)
		r = step(b, "root", b->host = open("/.old", O_PATH | O_DIRECTORY | O_CLOEXEC));
	return r;
}

static int seal_root(struct build *b)
{
	struct mount_attr attr = {.attr_set = RO};
	int r = step(b, "detaching the host", umount2("/.old", MNT_DETACH));

	sbx_cleanup_fd(&b->host);
	if (!r)
		r = step(b, "root", rmdir("/.old"));
	return r ? r : step(b, "root", mount_setattr(AT_FDCWD, "/", 0, &attr, sizeof(attr)));
}

static void choose_avoided(struct build *b)
{
	const struct isolation_settings *s = b->settings;
	const char *all[] = {s->mountpoint, s->state_dir, s->source_abs, s->cache_dir};
	size_t n = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(all); i++)
		if (all[i])
			b->avoid[n++] = all[i];
}

int mounts_build(const struct mounts_options *options, struct mounts_made *ret)
{
	const struct isolation_settings *settings = options->settings;
	const struct spawn_request *req = options->req;
	struct build b = {.settings = settings,
	                  .host = -1,
	                  .given = &options->given,
	                  .who = options->who,
	                  .groupless = options->groupless,
	                  .made = ret};
	int r;

	*ret = (struct mounts_made){.what = "", .closed = true};
	umask(0);
	choose_avoided(&b);
	r = change_root(&b);
	if (!r)
		r = show_system(&b);
	if (!r)
		r = make_dev(&b);
	if (!r)
		r = make_proc_and_tmp(&b);
	if (r < 0)
		return r;
	show_resolver(&b);
	r = show_tools(&b);
	if (!r)
		r = bind_list(&b, settings->ro_paths.items, settings->ro_paths.n, RO);
	if (!r)
		r = bind_list(&b, settings->rw_paths.items, settings->rw_paths.n, RW);
	if (!r && req)
		r = show_place(&b, req);
	if (!r && options->sockets) {
		ret->what = "sockets";
		r = mounts_cover_sockets(options->sockets);
	}
	if (!r)
		r = hide(&b);
	if (!r && req && req->cmd.flags & SPAWN_AS_SOURCE && settings->source_abs)
		link_source(settings->source_abs, req->view);
	return r ? r : seal_root(&b);
}
