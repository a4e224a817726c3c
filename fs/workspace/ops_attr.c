/* Attributes: of files, extended ones, and of the file system. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/workspace/changes.h"
#include "fs/workspace/kernel_cache.h"
#include "fs/workspace/owner.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

static bool is_backed(const struct sbx_node *node)
{
	return sbx_node_kind(node) == SBX_NODE_BOX || sbx_node_kind(node) == SBX_NODE_FILE;
}

static int node_attr(struct sbx_workspace *ws, struct sbx_node *node, struct stat *st)
{
	if (is_backed(node))
		return sbx_node_stat(ws->inodes, node, st);
	ws_special_stat(ws, node, st);
	return 0;
}

static void reply_attr(fuse_req_t req, struct sbx_node *node, enum sbx_answer answer)
{
	struct sbx_workspace *ws = ws_of(req);
	double entry, attr;
	struct stat st;
	int r = node_attr(ws, node, &st);

	if (r < 0) {
		ws_unreached(req, node, r, true);
		return;
	}
	ws_hand(ws, node, &st, answer, &entry, &attr);
	fuse_reply_attr(req, &st, attr);
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);

	if (!node)
		return;
	reply_attr(req, node, fi ? SBX_ANSWER_READ : SBX_ANSWER_STAT);
	sbx_node_put(ws->inodes, node);
}

/* Of a directory setgid gives rights to nobody: what is made in it has its group. */
static mode_t refused_bits(mode_t type)
{
	return S_ISDIR(type) ? S_ISUID : S_ISUID | S_ISGID;
}

static int set_mode(int path_fd, mode_t mode, struct sbx_error *err)
{
	struct stat st;
	char proc[32];

	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (mode & refused_bits(st.st_mode) & ~st.st_mode && !sbx_mitigation_off("special"))
		return sbx_fail(err, EPERM, "setuid and setgid are not available in a sandbox");
	if (S_ISLNK(st.st_mode))
		return -EOPNOTSUPP;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_fd);
	return chmod(proc, mode & 07777) < 0 ? -errno : 0;
}

static struct timespec time_to_set(int set, int bit, int now_bit, struct timespec t)
{
	if (set & now_bit)
		return (struct timespec){.tv_nsec = UTIME_NOW};
	return set & bit ? t : (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(int path_fd, const struct stat *attr, int set)
{
	struct timespec t[2] = {
	        time_to_set(set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, attr->st_atim),
	        time_to_set(set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, attr->st_mtim),
	};

	return utimensat(path_fd, "", t, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

static int set_owner(const struct sbx_box *box, int path_fd, const struct stat *attr, int set)
{
	uid_t uid = set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
	gid_t gid = set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;

	sbx_owner_hide(box, &uid, &gid);
	return fchownat(path_fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0 ? -errno
	                                                                                : 0;
}

/* All that is emptied is here by that; what is cut elsewhere is other contents. */
static int cut(struct sbx_workspace *ws, struct sbx_node *node, int fd, off_t size,
               struct sbx_error *err)
{
	struct ws_change change;
	int r;

	if (size > 0) {
		r = ws_change_data(ws, node, fd, err);
		return r < 0 ? r : ftruncate(fd, size) < 0 ? -errno : 0;
	}
	r = ws_change_begin_node(&change, ws, node, fd, err);
	if (r < 0)
		return r;
	r = ftruncate(fd, size) < 0 ? -errno : 0;
	ws_change_end(&change, SBX_CHANGE_EMPTIED, r);
	return r;
}

static int set_size(struct sbx_workspace *ws, struct sbx_node *node, off_t size,
                    struct sbx_error *err)
{
	struct sbx_fd *f;
	int r = sbx_node_fd(ws->inodes, node, SBX_FD_WRITE, &f);

	if (r < 0)
		return r;
	r = cut(ws, node, f->fd, size, err);
	sbx_fd_put(ws->inodes, f);
	return r;
}

#define SET_TIMES                                                                                  \
	(FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |                     \
	 FUSE_SET_ATTR_MTIME_NOW)

static int set_mode_and_times(struct sbx_workspace *ws, struct sbx_node *node, int path_fd,
                              const struct stat *attr, int set, struct sbx_error *err)
{
	struct ws_change change;
	int r;

	if (!(set & (FUSE_SET_ATTR_MODE | SET_TIMES)))
		return 0;
	r = ws_change_begin_node(&change, ws, node, path_fd, err);
	if (r < 0)
		return r;
	if (set & FUSE_SET_ATTR_MODE)
		r = set_mode(path_fd, attr->st_mode, err);
	if (r == 0 && set & SET_TIMES)
		r = set_times(path_fd, attr, set);
	ws_change_end(&change, SBX_CHANGE_STATUS, r);
	return r;
}

static int set_status(struct sbx_workspace *ws, struct sbx_node *node, const struct stat *attr,
                      int set, struct sbx_error *err)
{
	struct sbx_fd *f;
	int r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, &f);

	if (r < 0)
		return r;
	if (set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		r = set_owner(sbx_node_box(node), f->fd, attr, set);
	if (r == 0)
		r = set_mode_and_times(ws, node, f->fd, attr, set, err);
	sbx_fd_put(ws->inodes, f);
	return r;
}

/* In the order that lets each succeed: size before the mode may forbid it, times last. */
static int set_attr(struct sbx_workspace *ws, struct sbx_node *node, const struct stat *attr,
                    int set, struct sbx_error *err)
{
	struct sbx_fd *f;
	int r = 0;

	if (set & FUSE_SET_ATTR_SIZE)
		r = set_size(ws, node, attr->st_size, err);
	if (r == 0)
		r = set_status(ws, node, attr, set, err);
	if (r != -EEXIST)
		return r;
	/* A file of the base whose name another has by now: what is written to has a copy of its
	 * own. */
	r = sbx_node_fd(ws->inodes, node, SBX_FD_WRITE, &f);
	if (r < 0)
		return r;
	sbx_fd_put(ws->inodes, f);
	return set_status(ws, node, attr, set, err);
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	struct sbx_error err = SBX_ERROR_INIT;
	int r;
	bool last = false;

	(void)fi;
	if (!node)
		return;
	if (is_backed(node) && set & (FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_MODE))
		ws_edited(node);
	/* A file of the base is copied before it can have other attributes. */
	do {
		r = is_backed(node) ? set_attr(ws, node, attr, set, &err) : -EPERM;
	} while (ws_make_room(ws, sbx_node_box(node), r, &last));
	if (err.code)
		ws_refuse(req, sbx_node_box(node), &err);
	else if (r < 0)
		ws_reply(req, r);
	else
		reply_attr(req, node, SBX_ANSWER_SETATTR);
	sbx_node_put(ws->inodes, node);
}

/*
 * Of access(2) and chdir(2) where the kernel does not check permissions: on a mount of root's that
 * nobody else may enter. Root may do all but execute what is executable for nobody. (Of execve(2)
 * the kernel sees to that.)
 */
void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	struct stat st;
	int r;

	if (!node)
		return;
	r = node_attr(ws, node, &st);
	if (r == 0 && mask & X_OK && S_ISREG(st.st_mode) && !(st.st_mode & 0111))
		r = -EACCES;
	sbx_node_put(ws->inodes, node);
	ws_reply(req, r);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino ? ino : SBX_NODE_ROOT_ID);
	struct statvfs v;
	struct sbx_fd *f;
	int r;

	if (!node)
		return;
	if (is_backed(node)) {
		r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, &f);
		if (r == 0) {
			r = fstatvfs(f->fd, &v) < 0 ? -errno : 0;
			sbx_fd_put(ws->inodes, f);
		}
	} else {
		r = statvfs(ws->settings->state_dir, &v) < 0 ? -errno : 0;
	}
	if (r < 0)
		ws_reply(req, r);
	else
		fuse_reply_statfs(req, &v);
	sbx_node_put(ws->inodes, node);
}

static bool is_user(const char *name)
{
	return !strncmp(name, "user.", 5);
}

/* A path for the xattr calls, which take no O_PATH descriptor; or answers and returns false. */
static bool xattr_open(fuse_req_t req, fuse_ino_t ino, struct sbx_node **node, struct sbx_fd **f,
                       char proc[32])
{
	struct sbx_workspace *ws = ws_of(req);
	int r;

	/*
	 * Then the kernel does not ask again. Else it does so for security.capability before it
	 * writes to a file whose attributes it got anew, and ls -l and cp ask for each file.
	 */
	if (!ws->settings->user_xattr) {
		ws_reply(req, -ENOSYS);
		return false;
	}
	*node = ws_node(req, ino);
	if (!*node)
		return false;
	/* Nobody brings them to where a sandbox really is, and those of its copy are the backend's.
	 */
	r = is_backed(*node) && !sbx_is_away(sbx_node_box(*node)->sandbox)
	            ? sbx_node_fd(ws->inodes, *node, SBX_FD_PATH, f)
	            : -EOPNOTSUPP;
	if (r < 0) {
		sbx_node_put(ws->inodes, *node);
		ws_reply(req, r);
		return false;
	}
	snprintf(proc, 32, "/proc/self/fd/%d", (*f)->fd);
	return true;
}

static void reply_value(fuse_req_t req, const char *buf, ssize_t n, size_t size)
{
	if (n < 0)
		ws_reply(req, -errno);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)n);
	else if ((size_t)n > size)
		ws_reply(req, -ERANGE);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct sbx_workspace *ws = ws_of(req);
	_cleanup_free_ char *buf = NULL;
	struct sbx_node *node;
	struct sbx_fd *f;
	char proc[32];

	if (!xattr_open(req, ino, &node, &f, proc))
		return;
	if (!is_user(name)) {
		ws_reply(req, -EOPNOTSUPP);
	} else if (size && !(buf = malloc(size))) {
		ws_reply(req, -ENOMEM);
	} else {
		reply_value(req, buf, getxattr(proc, name, buf, size), size);
	}
	ws_put(ws, node, f);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
                 int flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node;
	struct sbx_fd *f;
	struct sbx_error err;
	char proc[32];
	int r;
	bool last = false;

	if (!xattr_open(req, ino, &node, &f, proc))
		return;
	if (!strncmp(name, "system.", 7)) {
		ws_reply(req, -EOPNOTSUPP); /* POSIX ACLs: cp -p goes on with the mode */
	} else if (!is_user(name) && !sbx_mitigation_off("special")) {
		sbx_fail(&err, EPERM, "%s: only user.* attributes can be set in a sandbox", name);
		ws_refuse(req, sbx_node_box(node), &err);
	} else {
		do {
			r = setxattr(proc, name, value, size, flags) < 0 ? -errno : 0;
		} while (ws_make_room(ws, sbx_node_box(node), r, &last));
		ws_reply(req, r);
	}
	ws_put(ws, node, f);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node;
	struct sbx_fd *f;
	struct sbx_error err;
	char proc[32];

	if (!xattr_open(req, ino, &node, &f, proc))
		return;
	if (!is_user(name)) {
		sbx_fail(&err, EPERM, "%s: only user.* attributes can be removed in a sandbox",
		         name);
		ws_refuse(req, sbx_node_box(node), &err);
	} else {
		ws_reply(req, removexattr(proc, name) < 0 ? -errno : 0);
	}
	ws_put(ws, node, f);
}

/* Leaves only the user.* names in the list; returns its new length. */
static ssize_t keep_user(char *list, ssize_t len)
{
	ssize_t kept = 0;

	for (char *name = list; name < list + len; name += strlen(name) + 1) {
		size_t n = strlen(name) + 1;

		if (is_user(name)) {
			memmove(list + kept, name, n);
			kept += (ssize_t)n;
		}
	}
	return kept;
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct sbx_workspace *ws = ws_of(req);
	char list[XATTR_LIST_MAX];
	struct sbx_node *node;
	struct sbx_fd *f;
	char proc[32];
	ssize_t n;

	if (!xattr_open(req, ino, &node, &f, proc))
		return;
	n = listxattr(proc, list, sizeof(list));
	if (n > 0)
		n = keep_user(list, n);
	else if (n < 0 && errno == EOPNOTSUPP)
		n = 0;
	reply_value(req, list, n, size);
	ws_put(ws, node, f);
}
