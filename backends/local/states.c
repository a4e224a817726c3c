/*
 * State directories from outside. The lock is taken for the moment of a look, and for all of a
 * removal: a mount that begins meanwhile waits for it, and makes the directory anew.
 */
#include "sandboxfs/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/local/state/record.h"
#include "backends/local/state/state.h"
#include "backends/local/trash/save.h"
#include "backends/local/trash/trash.h"
#include "backends/remote/record.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define NAMES_MAX 20 /* of sandboxes that are told */

/* --- whether it lasts
 * ----------------------------------------------------------------------------- */

/* Of PATH, or what of it there is. */
static bool in_memory(const char *path)
{
	_cleanup_free_ char *at = strdup(path);
	struct statfs fs;

	while (at && *at) {
		char *slash = strrchr(at, '/');

		if (statfs(at, &fs) == 0)
			return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
		if (!slash)
			break;
		*slash = '\0';
	}
	return false;
}

const char *sbx_state_fleeting(const char *path)
{
	static const char *const emptied[] = {"/tmp", "/run", "/dev/shm"};

	if (in_memory(path))
		return "it is in memory (tmpfs) and gone after a reboot";
	for (size_t i = 0; i < SBX_ARRAY_SIZE(emptied); i++)
		if (sbx_path_within(path, emptied[i]))
			return "it is in a directory that many systems empty when they start";
	return NULL;
}

/* --- a look
 * ---------------------------------------------------------------------------------------- */

void sbx_state_info_release(struct sbx_state_info *info)
{
	free(info->source);
	free(info->mountpoint);
	free(info->names);
	*info = (struct sbx_state_info){0};
}

/* A state directory of ours that is there already: its descriptor, -ENOENT, -EACCES. */
static int open_state(int parent, const char *name, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_dir_open(parent, name);
	struct stat st;

	if (dir < 0)
		return sbx_fail(err, -dir, "it cannot be opened: %s", strerror(-dir));
	if (fstat(dir, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022))
		return sbx_fail(err, EACCES,
		                "it belongs to another user, or others may write there");
	if (faccessat(dir, "lock", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return sbx_fail(err, ENOENT, "it is no state directory");
	return sbx_steal_fd(&dir);
}

/* The locked file; -EBUSY a daemon has it. */
static int lock_state(int dir)
{
	_cleanup_fd_ int lock = openat(dir, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (lock < 0)
		return -errno;
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return sbx_steal_fd(&lock);
}

struct count {
	int meta, remote;
	struct sbx_state_info *info;
};

/* One that cannot be read may describe somebody's work, and is told by the name of its file. */
static int count_sandbox(struct sbx_state_info *info, const char *name)
{
	_cleanup_free_ char *before = info->names;

	info->names = NULL;
	if (++info->sandboxes > NAMES_MAX)
		info->names = sbx_steal_ptr(&before);
	else
		info->names = sbx_format("%s%s%s", before ? before : "", before ? " " : "", name);
	return info->names ? 0 : -ENOMEM;
}

static int count_record(const char *file, unsigned char type, void *data)
{
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	struct count *c = data;
	const char *end = strrchr(file, '.');

	(void)type;
	if (!end || strcmp(end, ".json") != 0)
		return 0;
	sbx_record_load(c->meta, file, &rec);
	return count_sandbox(c->info, rec.name ? rec.name : file);
}

/* Sandboxes elsewhere: what is unsent of them is here only. */
static int count_remote(const char *id, unsigned char type, void *data)
{
	_cleanup_(remote_record_release) struct remote_record rec = {0};
	struct count *c = data;
	_cleanup_fd_ int dir = sbx_dir_open(c->remote, id);

	(void)type;
	if (dir >= 0)
		remote_record_load(dir, &rec);
	return count_sandbox(c->info, rec.name ? rec.name : id);
}

static int64_t changed_ms(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}

static int count_removed(const char *id, unsigned char type, void *data)
{
	struct sbx_state_info *info = data;

	(void)type;
	info->removed += id[0] != '.';
	return 0;
}

static int look(int dir, struct sbx_state_info *ret)
{
	_cleanup_fd_ int meta = sbx_dir_open(dir, "meta");
	_cleanup_fd_ int removed = sbx_dir_open(dir, "removed");
	_cleanup_fd_ int remote = sbx_dir_open(dir, "remote");
	struct sbx_state_holder holder;
	struct count c = {.meta = meta, .remote = remote, .info = ret};
	int64_t meta_ms = changed_ms(dir, "meta");
	int r;

	sbx_state_holder_read(dir, &holder);
	ret->source = holder.source;
	ret->mountpoint = holder.mountpoint;
	ret->pid = holder.pid;
	ret->used_ms = changed_ms(dir, "lock");
	if (meta_ms > ret->used_ms)
		ret->used_ms = meta_ms;
	if (removed >= 0)
		sbx_dir_scan(removed, count_removed, ret);
	r = remote >= 0 ? sbx_dir_scan(remote, count_remote, &c) : remote == -ENOENT ? 0 : remote;
	if (r || meta == -ENOENT)
		return r;
	return meta < 0 ? meta : sbx_dir_scan(meta, count_record, &c);
}

int sbx_state_inspect(int parent, const char *name, struct sbx_state_info *ret,
                      struct sbx_error *err)
{
	_cleanup_(sbx_state_info_release) struct sbx_state_info info = {0};
	_cleanup_fd_ int dir = open_state(parent, name, err);
	_cleanup_fd_ int lock = dir < 0 ? dir : lock_state(dir);
	int r;

	if (dir < 0)
		return dir;
	if (lock < 0 && lock != -EBUSY)
		return sbx_fail(err, -lock, "it cannot be locked: %s", strerror(-lock));
	r = look(dir, &info);
	if (r)
		return sbx_fail(err, -r, "it cannot be read: %s", strerror(-r));
	info.busy = lock == -EBUSY;
	if (!info.busy)
		info.pid = 0;
	*ret = info;
	info = (struct sbx_state_info){0};
	return 0;
}

/* --- removal
 * --------------------------------------------------------------------------------------- */

static int count_entry(const struct sbx_trash_entry *e, void *data)
{
	(void)e;
	++*(size_t *)data;
	return 0;
}

static int check_trash(int dir, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	char path[64];
	size_t n = 0;
	int r;

	if (faccessat(dir, SBX_TRASHED, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/" SBX_TRASHED, dir);
	r = sbx_git_init();
	if (r)
		return sbx_fail(err, -r, "libgit2 cannot be started");
	r = sbx_git_open(path, &repo);
	if (!r)
		r = sbx_trash_each(repo, count_entry, &n);
	git_repository_free(sbx_steal_ptr(&repo));
	sbx_git_shutdown();
	if (r)
		return sbx_fail(err, ENOTEMPTY, "its trash cannot be read");
	return n ? sbx_fail(err, ENOTEMPTY, "its trash holds work of %zu removed sandbox%s", n,
	                    n == 1 ? "" : "es")
	         : 0;
}

static int find_any(const char *name, unsigned char type, void *data)
{
	(void)name;
	(void)type;
	(void)data;
	return 1;
}

/* Where a sandbox's work may be. */
static int check_mounters(int dir, struct sbx_error *err)
{
	static const char *const rooms[] = {"trees", "trash", "git", "nested", "kept"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++) {
		_cleanup_fd_ int room = sbx_dir_open(dir, rooms[i]);

		if (room == -ENOENT)
			continue;
		if (room < 0 || sbx_dir_scan(room, find_any, NULL))
			return sbx_fail(err, ENOTEMPTY,
			                "what is in %s belongs to no sandbox; the next mount "
			                "looks after it",
			                rooms[i]);
	}
	return 0;
}

static int check_mounts(int dir, struct sbx_error *err)
{
	struct stat st, ctl;

	if (fstat(dir, &st) < 0 ||
	    (fstatat(dir, "ctl", &ctl, AT_SYMLINK_NOFOLLOW) < 0 ? errno != ENOENT
	                                                        : ctl.st_dev != st.st_dev))
		return sbx_fail(err, EBUSY,
		                "a mount of a daemon that died lies below it (fusermount3 -u -z "
		                "on its ctl mends it)");
	return 0;
}

static int check_work(int dir, struct sbx_error *err)
{
	_cleanup_(sbx_state_info_release) struct sbx_state_info info = {0};
	int r = look(dir, &info);

	if (r)
		return sbx_fail(err, ENOTEMPTY, "it cannot be read: %s", strerror(-r));
	if (info.sandboxes)
		return sbx_fail(err, ENOTEMPTY, "it holds %zu sandbox%s (%s%s)", info.sandboxes,
		                info.sandboxes == 1 ? "" : "es", info.names,
		                info.sandboxes > NAMES_MAX ? " ..." : "");
	r = check_mounters(dir, err);
	if (!r)
		r = check_trash(dir, err);
	if (!r && info.removed)
		r = sbx_fail(
		        err, ENOTEMPTY,
		        "it holds the files of %zu removed sandbox%s, as long as the trash has an "
		        "entry for them; the next mount looks after it",
		        info.removed, info.removed == 1 ? "" : "es");
	return r ? r : check_mounts(dir, err);
}

int sbx_state_prune(int parent, const char *name, struct sbx_error *err)
{
	_cleanup_fd_ int dir = open_state(parent, name, err);
	_cleanup_fd_ int lock = dir < 0 ? dir : lock_state(dir);
	int r;

	if (dir < 0)
		return dir;
	if (lock == -EBUSY)
		return sbx_fail(err, EBUSY, "it is mounted");
	if (lock < 0)
		return sbx_fail(err, -lock, "it cannot be locked: %s", strerror(-lock));
	r = check_work(dir, err);
	return r ? r : sbx_tree_remove(parent, name, err);
}
