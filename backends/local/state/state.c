/*
 * Everything below is reached through the descriptor of the state directory, which is checked
 * once: who cannot write to that directory cannot redirect anything later.
 */
#include "backends/local/state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/state/record.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/own_dir.h"

#define HOLDER     "mount.json"
#define HOLDER_MAX 65536

void sbx_state_holder_release(struct sbx_state_holder *h)
{
	free(h->source);
	free(h->mountpoint);
	*h = (struct sbx_state_holder){0};
}

static char *member(json_object *obj, const char *key)
{
	json_object *value;

	return json_object_object_get_ex(obj, key, &value) &&
	                       json_object_is_type(value, json_type_string)
	               ? strdup(json_object_get_string(value))
	               : NULL;
}

void sbx_state_holder_read(int dir, struct sbx_state_holder *ret)
{
	_cleanup_free_ char *text = NULL;
	json_object *obj, *pid;

	*ret = (struct sbx_state_holder){0};
	if (sbx_file_read(dir, HOLDER, HOLDER_MAX, &text))
		return;
	obj = json_tokener_parse(text);
	ret->source = member(obj, "source");
	ret->mountpoint = member(obj, "mountpoint");
	if (json_object_object_get_ex(obj, "pid", &pid))
		ret->pid = (pid_t)json_object_get_int(pid);
	json_object_put(obj);
	/* It is what the last one wrote, which may have been killed. */
	if (ret->pid <= 0 || (kill(ret->pid, 0) < 0 && errno != EPERM))
		ret->pid = 0;
}

int sbx_state_sign(const struct sbx_state *st, const char *source, const char *mountpoint,
                   struct sbx_error *err)
{
	json_object *obj = json_object_new_object();
	int r;

	if (source)
		json_object_object_add(obj, "source", json_object_new_string(source));
	if (mountpoint)
		json_object_object_add(obj, "mountpoint", json_object_new_string(mountpoint));
	json_object_object_add(obj, "pid", json_object_new_int(getpid()));
	r = sbx_file_replace(st->dir, HOLDER, HOLDER ".tmp", json_object_to_json_string(obj));
	json_object_put(obj);
	return r ? sbx_fail(err, -r, "cannot write to the state directory %s: %s", st->path,
	                    strerror(-r))
	         : 0;
}

char *sbx_state_whose(const char *tree)
{
	_cleanup_(sbx_state_holder_release) struct sbx_state_holder h = {0};
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	const char *id = strrchr(tree, '/');
	_cleanup_free_ char *file = id ? sbx_format("%s.json", id + 1) : NULL;
	_cleanup_free_ char *top = id ? sbx_format("%.*s/..", (int)(id - tree), tree) : NULL;
	_cleanup_fd_ int dir = top ? open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	_cleanup_fd_ int meta = dir < 0 ? -1 : sbx_dir_open(dir, "meta");

	if (meta < 0 || !file || sbx_record_load(meta, file, &rec))
		return NULL;
	sbx_state_holder_read(dir, &h);
	return h.mountpoint ? sbx_format("sandbox %s of the mount at %s (%s)", rec.name,
	                                 h.mountpoint, tree)
	                    : NULL;
}

static int busy(const struct sbx_state *st, const char *path, struct sbx_error *err)
{
	_cleanup_(sbx_state_holder_release) struct sbx_state_holder h;

	sbx_state_holder_read(st->dir, &h);
	if (!h.pid || !h.mountpoint)
		return sbx_fail(err, EBUSY, "the state directory %s is in use by another mount",
		                path);
	return sbx_fail(err, EBUSY,
	                "the state directory %s is in use by the mount at %s (process %d)", path,
	                h.mountpoint, (int)h.pid);
}

static int cannot_lock(const char *path, int errnum, struct sbx_error *err)
{
	return sbx_fail(err, errnum, "cannot lock the state directory %s: %s", path,
	                strerror(errnum));
}

static int take_lock(struct sbx_state *st, const char *path, struct sbx_error *err)
{
	struct stat at, dir;

	st->lock = openat(st->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* ENOENT: the directory was removed just now. */
	if (st->lock < 0)
		return cannot_lock(path, errno == ENOENT ? EBUSY : errno, err);
	if (flock(st->lock, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? busy(st, path, err) : cannot_lock(path, errno, err);
	if (sbx_dir_hold(st->dir) < 0)
		return sbx_fail(
		        err, EBUSY,
		        "the state directory %s is locked: temporary files are being cleared",
		        path);
	if (fstat(st->lock, &at) < 0 || fstat(st->dir, &dir) < 0 || futimens(st->lock, NULL) < 0)
		return cannot_lock(path, errno, err);
	if (!at.st_nlink || !dir.st_nlink)
		return cannot_lock(path, EBUSY, err);
	st->since = at.st_mtim;
	return 0;
}

/* The path as the kernel knows it: what git is told must compare equal to what it finds. */
static int canonical_path(int fd, char **ret)
{
	char link[40], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	*ret = strdup(path);
	return *ret ? 0 : -ENOMEM;
}

static int open_mounters(struct sbx_state *st)
{
	const struct {
		const char *name;
		int *fd;
	} rooms[] = {
	        {"meta", &st->meta}, {"trees", &st->trees},     {"trash", &st->trash},
	        {"home", &st->home}, {"git", &st->git},         {"nested", &st->nested},
	        {"kept", &st->kept}, {"removed", &st->removed},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++) {
		*rooms[i].fd = sbx_dir_make(st->dir, rooms[i].name, 0700);
		if (*rooms[i].fd < 0)
			return *rooms[i].fd;
	}
	return canonical_path(st->dir, &st->path);
}

int sbx_state_open(const char *path, struct sbx_state *ret, struct sbx_error *err)
{
	struct sbx_state st = SBX_STATE_CLOSED;
	int r = st.dir = sbx_dir_own(path, "state", err);

	if (r >= 0)
		r = take_lock(&st, path, err);
	if (!r) {
		r = open_mounters(&st);
		if (r)
			sbx_fail(err, -r, "cannot use the state directory %s: %s", path,
			         strerror(-r));
	}
	if (r) {
		sbx_state_close(&st);
		return r;
	}
	*ret = st;
	return 0;
}

void sbx_state_close(struct sbx_state *st)
{
	sbx_cleanup_fd(&st->meta);
	sbx_cleanup_fd(&st->trees);
	sbx_cleanup_fd(&st->trash);
	sbx_cleanup_fd(&st->home);
	sbx_cleanup_fd(&st->git);
	sbx_cleanup_fd(&st->nested);
	sbx_cleanup_fd(&st->kept);
	sbx_cleanup_fd(&st->removed);
	sbx_cleanup_fd(&st->lock);
	sbx_cleanup_fd(&st->dir);
	free(st->path);
	st->path = NULL;
}

static bool in_use(const struct sbx_state *st, const char *id)
{
	const int rooms[] = {st->trees,  st->trash, st->home,   st->git,
	                     st->nested, st->kept,  st->removed};
	_cleanup_free_ char *record = sbx_format("%s.json", id);

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++)
		if (faccessat(rooms[i], id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	return record && faccessat(st->meta, record, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int sbx_state_new_id(const struct sbx_state *st, const char *name, char **ret)
{
	for (;;) {
		_cleanup_free_ char *id = NULL;
		uint32_t random;

		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -errno;
		id = sbx_format("%s-%08x", name, random);
		if (!id)
			return -ENOMEM;
		if (!in_use(st, id)) {
			*ret = sbx_steal_ptr(&id);
			return 0;
		}
	}
}

/* Moving a directory elsewhere changes its "..", so it must be writable itself. */
static int rename_tree(const struct sbx_state *st, const char *id)
{
	_cleanup_fd_ int fd = -1;
	char link[40];

	if (renameat(st->trees, id, st->trash, id) == 0 || errno == ENOENT)
		return 0;
	if (errno != EACCES)
		return -errno;
	fd = openat(st->trees, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	chmod(link, 0700);
	return renameat(st->trees, id, st->trash, id) < 0 ? -errno : 0;
}

int sbx_state_trash(const struct sbx_state *st, const char *id, struct sbx_error *err)
{
	int r = rename_tree(st, id);

	/* A tree of this id is in the trash already: this one was put back by somebody. Erased
	 * later. */
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	if (r)
		return sbx_fail(err, -r, "cannot move the working tree of %s away: %s", id,
		                strerror(-r));
	return 0;
}

/*
 * Without half of what it goes with a repository tells another story: what it has from the source
 * would pass for made inside.
 */
static void spoil_repository(const struct sbx_state *st, const char *id)
{
	_cleanup_fd_ int dir = sbx_dir_open(st->git, id);

	if (dir >= 0) {
		renameat(dir, "repo", dir, "erased");
		renameat(dir, "saved", dir, "erased.saved");
	}
}

int sbx_state_erase(const struct sbx_state *st, const char *id, struct sbx_error *err)
{
	const int rooms[] = {st->trash, st->trees, st->home, st->git, st->nested, st->kept};

	spoil_repository(st, id);

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++) {
		int r = sbx_tree_remove(rooms[i], id, err);

		if (r)
			return r;
	}
	return 0;
}

bool sbx_state_has_tree(const struct sbx_state *st, const char *id)
{
	struct stat sb;

	return fstatat(st->trees, id, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(sb.st_mode);
}

void sbx_state_set_clean(const struct sbx_state *st)
{
	int fd = openat(st->dir, "clean", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
}

bool sbx_state_take_clean(const struct sbx_state *st)
{
	return unlinkat(st->dir, "clean", 0) == 0;
}
