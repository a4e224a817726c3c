/*
 * Operations on directories and names. Translation only: the node of the directory, its
 * descriptor, one system call beneath it, the answer.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/confine.h"
#include "fs/listing.h"
#include "fs/move.h"
#include "fs/nested.h"
#include "fs/ops_root.h"
#include "fs/owner.h"
#include "fs/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/walls.h"

/* Its listing is taken at the first read and again after rewinddir. */
struct open_dir {
	pthread_mutex_t lock; /* the listing */
	struct sbx_listing *listing;
};

static void open_dir_free(struct open_dir *d)
{
	pthread_mutex_destroy(&d->lock);
	sbx_listing_unref(d->listing);
	free(d);
}

struct top_walk {
	struct sbx_listing *l;
	int r;
};

static void add_box(struct sbx_box *box, void *data)
{
	struct top_walk *w = data;

	if (w->r == 0)
		w->r = sbx_listing_add(w->l, box->name, S_IFDIR, box->number);
}

static int list_top(struct sbx_workspace *ws, struct sbx_listing *l)
{
	struct top_walk w = {.l = l};

	w.r = sbx_listing_add(l, "README", S_IFREG, 1);
	if (w.r == 0)
		w.r = sbx_listing_add(l, "ctl", ws->inlined ? S_IFDIR : S_IFLNK, 1);
	if (w.r == 0)
		sbx_registry_walk(ws->registry, add_box, &w);
	return w.r;
}

/* The .git that the host made in NODE; what a command made is not listed. */
static int list_nested(struct sbx_node *node, int fd, struct sbx_listing *l)
{
	struct sbx_nested n;
	struct stat st;
	int r = sbx_nested_find(sbx_node_box(node), fd, ".git", &n);

	if (r < 0)
		return 0;
	if (fstatat(n.dirfd, n.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		r = sbx_listing_add(l, ".git", st.st_mode & S_IFMT, st.st_ino);
	sbx_nested_release(&n);
	return r;
}

static int list_backing(struct sbx_workspace *ws, struct sbx_node *node, struct sbx_listing *l)
{
	_cleanup_dir_ DIR *dir = NULL;
	struct dirent *d;
	struct sbx_fd *f;
	int fd, r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, &f);

	if (r < 0)
		return r;
	fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = -errno;
	sbx_fd_put(ws->inodes, f);
	if (fd < 0)
		return r;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	for (r = 0; r == 0 && (errno = 0, d = readdir(dir));) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    ws_is_control(ws, node, d->d_name) || ws_is_gitfile(node, d->d_name))
			continue;
		/* As what a FIFO shows only its node knows. */
		r = sbx_nested_is(sbx_node_box(node), d->d_name)
		            ? list_nested(node, dirfd(dir), l)
		            : sbx_listing_add(l, d->d_name,
		                              d->d_type == DT_FIFO ? 0 : DTTOIF(d->d_type),
		                              d->d_ino);
	}
	if (r == 0 && !d && errno)
		r = -errno;
	if (r == 0 && sbx_node_kind(node) == SBX_NODE_BOX && ws->settings->ctl_listed)
		r = sbx_listing_add(l, ws->settings->ctl_name, ws->inlined ? S_IFDIR : S_IFLNK, 1);
	return r;
}

static int listing_fill(struct sbx_workspace *ws, struct sbx_node *node, struct sbx_listing *l)
{
	int r = sbx_listing_add(l, ".", S_IFDIR, 1);

	if (r == 0)
		r = sbx_listing_add(l, "..", S_IFDIR, 1);
	if (r < 0)
		return r;
	return sbx_node_kind(node) == SBX_NODE_ROOT ? list_top(ws, l) : list_backing(ws, node, l);
}

/*
 * When the directory changed last, if a listing of it may be kept: 0 where that cannot be told, and
 * while a job may change it.
 */
static int64_t keepable(struct sbx_workspace *ws, struct sbx_node *node)
{
	struct sbx_box *box = sbx_node_box(node);
	struct stat st;

	if (!box || __atomic_load_n(&box->busy, __ATOMIC_SEQ_CST) ||
	    sbx_node_stat(ws->inodes, node, &st) < 0)
		return 0;
	return ws_changed_ns(&st);
}

/* A listing of now, noted when it can be told that the directory is what it was before. */
static int list_anew(struct sbx_workspace *ws, struct sbx_node *node, struct open_dir *d)
{
	struct sbx_listing *l = sbx_listing_create();
	int64_t changed = keepable(ws, node);
	int r = l ? listing_fill(ws, node, l) : -ENOMEM;

	if (r < 0) {
		sbx_listing_unref(l);
		return r;
	}
	sbx_kept_note(ws->kept, sbx_node_id(node), l, changed, sbx_now_ns());
	sbx_listing_unref(d->listing);
	d->listing = l;
	return 0;
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	struct open_dir *d;
	int64_t changed;

	if (!node)
		return;
	d = calloc(1, sizeof(*d));
	if (!d) {
		sbx_node_put(ws->inodes, node);
		ws_reply(req, -ENOMEM);
		return;
	}
	pthread_mutex_init(&d->lock, NULL);
	changed = keepable(ws, node);
	d->listing = sbx_kept_current(ws->kept, ino, changed, sbx_now_ns());
	sbx_node_put(ws->inodes, node);
	fi->cache_readdir = changed != 0;
	fi->keep_cache = d->listing != NULL;
	fi->fh = (uintptr_t)d;
	if (fuse_reply_open(req, fi) != 0)
		open_dir_free(d);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	open_dir_free((struct open_dir *)(uintptr_t)fi->fh);
	ws_reply(req, 0);
}

/* One entry with attributes into BUF; 0 when it does not fit, and then nothing was looked up. */
static size_t add_plus(fuse_req_t req, struct sbx_node *dir, const struct sbx_listed *d,
                       const char *name, char *buf, size_t size, off_t off)
{
	struct sbx_workspace *ws = ws_of(req);
	struct fuse_entry_param e = {
	        .attr = {.st_ino = d->ino, .st_mode = d->type},
	};
	struct sbx_node *node;
	struct stat st;
	size_t len;

	if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	    !(ws->inlined && ws_is_ctl(ws, dir, name)) &&
	    ws_lookup(ws, dir, name, &st, &node) == 0) {
		ws_entry(ws, node, &st, &e);
		sbx_node_put(ws->inodes, node);
	}
	len = fuse_add_direntry_plus(req, buf, size, name, &e, off);
	if (len <= size)
		return len;
	if (e.ino)
		sbx_node_forget(ws->inodes, e.ino, 1);
	return 0;
}

static size_t add_plain(fuse_req_t req, const struct sbx_listed *d, const char *name, char *buf,
                        size_t size, off_t off)
{
	struct stat st = {.st_ino = d->ino, .st_mode = d->type};
	size_t len = fuse_add_direntry(req, buf, size, name, &st, off);

	return len <= size ? len : 0;
}

static void read_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                         struct fuse_file_info *fi, bool plus)
{
	struct sbx_workspace *ws = ws_of(req);
	struct open_dir *d = (struct open_dir *)(uintptr_t)fi->fh;
	struct sbx_node *node = ws_node(req, ino);
	_cleanup_free_ char *buf = NULL;
	size_t used = 0;
	int r = 0;

	if (!node)
		return;
	buf = malloc(size);
	pthread_mutex_lock(&d->lock);
	if (!buf)
		r = -ENOMEM;
	else if (off == 0 || !d->listing)
		r = list_anew(ws, node, d);
	for (size_t i = (size_t)off; r == 0 && i < d->listing->n; i++) {
		const struct sbx_listed *e = &d->listing->entries[i];
		const char *name = d->listing->names + e->name;
		size_t len =
		        plus ? add_plus(req, node, e, name, buf + used, size - used, (off_t)i + 1)
		             : add_plain(req, e, name, buf + used, size - used, (off_t)i + 1);

		if (len == 0)
			break;
		used += len;
	}
	pthread_mutex_unlock(&d->lock);
	sbx_node_put(ws->inodes, node);
	if (r < 0)
		ws_reply(req, r);
	else
		fuse_reply_buf(req, buf, used);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_listing(req, ino, size, off, fi, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
	read_listing(req, ino, size, off, fi, true);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	struct sbx_fd *f;
	int r = 0;

	(void)fi;
	if (!node)
		return;
	if (sbx_node_kind(node) == SBX_NODE_BOX || sbx_node_kind(node) == SBX_NODE_FILE) {
		r = sbx_node_fd(ws->inodes, node, SBX_FD_READ, &f);
		if (r == 0) {
			r = (datasync ? fdatasync(f->fd) : fsync(f->fd)) < 0 ? -errno : 0;
			sbx_fd_put(ws->inodes, f);
		}
	}
	sbx_node_put(ws->inodes, node);
	ws_reply(req, r);
}

/* Whose it is to be, now that it was made in DIR (R: 0 or -errno). What stands in the store is the daemon's. */
static int give(struct sbx_node *dir, const struct sbx_nested *n, int r)
{
	return r < 0 || n->store >= 0 ? r : sbx_owner_give(sbx_node_box(dir), n->dirfd, n->name);
}

/* Answers after NAME was made in DIR (R: 0 or -errno, with ERR where there is more to say). */
static void made_in(fuse_req_t req, struct sbx_node *dir, const char *name, int r,
                    const struct sbx_error *err)
{
	if (r < 0 && err->code)
		ws_refuse(req, sbx_node_box(dir), err);
	else if (r < 0)
		ws_reply(req, r);
	else
		ws_reply_lookup(req, dir, name);
}

/* The same, where NAME may be a .git that is kept apart. DIRFD is DIR's. */
static void made_nested_in(fuse_req_t req, struct sbx_node *dir, int dirfd, const char *name, int r,
                           const struct sbx_error *err)
{
	if (r == 0)
		ws_note_nested(ws_of(req), dir, dirfd, name);
	made_in(req, dir, name, r, err);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;

	if (parent == SBX_NODE_ROOT_ID) {
		root_mkdir(req, name);
		return;
	}
	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	r = sbx_nested_make(sbx_node_box(dir), f->fd, name, true, &n, &err);
	if (r == 0)
		r = sbx_nested_made(
		        &n, f->fd,
		        give(dir, &n, mkdirat(n.dirfd, n.name, mode & 01777) < 0 ? -errno : 0));
	made_nested_in(req, dir, f->fd, name, r, &err);
	ws_put(ws, dir, f);
}

static int mknod_refused(mode_t mode, const char *name, struct sbx_error *err)
{
	if (sbx_without("special"))
		return 0;
	if (!S_ISREG(mode) && !S_ISFIFO(mode))
		return sbx_fail(err, EPERM, "%s: only files and FIFOs can be made in a sandbox",
		                name);
	if (mode & (S_ISUID | S_ISGID))
		return sbx_fail(err, EPERM, "%s: setuid and setgid are not available in a sandbox",
		                name);
	return 0;
}

static void made_fifo(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct fuse_entry_param e;
	struct sbx_node *node;
	struct stat st;
	int r = sbx_node_lookup(ws->inodes, dir, name, &st, &node);

	if (r < 0) {
		ws_reply(req, r);
		return;
	}
	sbx_node_own_fifo(ws->inodes, node, &st);
	ws_entry(ws, node, &st, &e);
	sbx_node_put(ws->inodes, node);
	if (fuse_reply_entry(req, &e) != 0)
		sbx_node_forget(ws->inodes, e.ino, 1);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;

	(void)rdev;
	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	r = mknod_refused(mode, name, &err);
	if (r == 0)
		r = sbx_nested_make(sbx_node_box(dir), f->fd, name, false, &n, &err);
	if (r == 0)
		r = sbx_nested_made(
		        &n, f->fd,
		        give(dir, &n, mknodat(n.dirfd, n.name, mode, 0) < 0 ? -errno : 0));
	if (r == 0 && S_ISFIFO(mode))
		made_fifo(req, dir, name);
	else
		made_nested_in(req, dir, f->fd, name, r, &err);
	ws_put(ws, dir, f);
}

/* Whether a link with TARGET in DIR is fit to be made or followed. */
static int check_link(struct sbx_workspace *ws, struct sbx_node *dir, const char *target,
                      struct sbx_error *err)
{
	struct sbx_box *box = sbx_node_box(dir);
	char path[PATH_MAX], view[PATH_MAX], name[64];
	_cleanup_fd_ int root = -1;
	int r = sbx_node_path(ws->inodes, dir, path, sizeof(path));

	if (r < 0)
		return sbx_fail(err, -r, "the directory of the link cannot be found");
	sbx_box_name(box, name);
	if (snprintf(view, sizeof(view), "%s/%s", ws->settings->mountpoint, name) >=
	    (int)sizeof(view))
		return sbx_fail(err, ENAMETOOLONG, "the path of the mount is too long");
	root = sbx_box_root(box);
	return root < 0 ? sbx_fail(err, -root, "the sandbox is gone")
	                : sbx_confine_link(root, path, target, view, err);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;

	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	r = check_link(ws, dir, target, &err);
	if (r == 0)
		r = sbx_nested_make(sbx_node_box(dir), f->fd, name, false, &n, &err);
	if (r == 0)
		r = sbx_nested_made(
		        &n, f->fd,
		        give(dir, &n, symlinkat(target, n.dirfd, n.name) < 0 ? -errno : 0));
	made_nested_in(req, dir, f->fd, name, r, &err);
	ws_put(ws, dir, f);
}

/* The link's text, when following it stays inside. The link's own directory is its parent as last seen. */
static int read_link(struct sbx_workspace *ws, struct sbx_node *node, char buf[PATH_MAX],
                     struct sbx_error *err)
{
	struct sbx_node *dir;
	struct sbx_fd *f;
	ssize_t n;
	int r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, &f);

	if (r < 0)
		return r;
	n = readlinkat(f->fd, "", buf, PATH_MAX - 1);
	r = -errno;
	sbx_fd_put(ws->inodes, f);
	if (n < 0)
		return r;
	buf[n] = '\0';
	dir = sbx_node_parent(ws->inodes, node);
	if (!dir)
		return -ESTALE;
	r = check_link(ws, dir, buf, err);
	sbx_node_put(ws->inodes, dir);
	return r;
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	struct sbx_error err = SBX_ERROR_INIT;
	char buf[PATH_MAX];
	int r;

	if (!node)
		return;
	if (sbx_node_kind(node) != SBX_NODE_FILE) {
		_cleanup_free_ char *target = ws_special_target(ws, node);

		sbx_node_put(ws->inodes, node);
		if (target)
			fuse_reply_readlink(req, target);
		else
			ws_reply(req, -ENOMEM);
		return;
	}
	r = read_link(ws, node, buf, &err);
	if (err.code)
		ws_refuse(req, sbx_node_box(node), &err);
	else if (r < 0)
		ws_reply(req, r);
	else
		fuse_reply_readlink(req, buf);
	sbx_node_put(ws->inodes, node);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino), *dir;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_nested n;
	struct sbx_fd *f = NULL, *dfd;
	char proc[32];
	int r;

	if (!node)
		return;
	dir = ws_dir(req, newparent, newname, &dfd);
	if (!dir) {
		sbx_node_put(ws->inodes, node);
		return;
	}
	if (sbx_node_kind(node) != SBX_NODE_FILE)
		r = -EPERM;
	else if (sbx_node_box(node) != sbx_node_box(dir))
		r = -EXDEV;
	else
		r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, &f);
	if (r == 0)
		r = sbx_nested_make(sbx_node_box(dir), dfd->fd, newname, false, &n, &err);
	if (r == 0) {
		/* By descriptor, so it is this file and no other that gets the name. */
		snprintf(proc, sizeof(proc), "/proc/self/fd/%d", f->fd);
		r = linkat(AT_FDCWD, proc, n.dirfd, n.name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
		r = sbx_nested_made(&n, dfd->fd, r);
	}
	made_nested_in(req, dir, dfd->fd, newname, r, &err);
	ws_put(ws, dir, dfd);
	ws_put(ws, node, f);
}

/* unlink of a control name is accepted and does nothing; of an alias, it goes out of the way. */
static bool unlink_control(struct sbx_workspace *ws, struct sbx_node *dir, const char *name)
{
	struct sbx_box *box = sbx_node_box(dir);

	if (ws_is_control(ws, dir, name))
		return true;
	if (sbx_node_kind(dir) != SBX_NODE_BOX || ws_alias(name) < 0)
		return false;
	__atomic_fetch_or(&box->hidden_aliases, 1u << ws_alias(name), __ATOMIC_RELAXED);
	return true;
}

static int remove_name(fuse_req_t req, struct sbx_node *dir, int dirfd, const char *name, int flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_box *box = sbx_node_box(dir);
	struct sbx_nested n;
	struct sbx_hold hold;
	int r = sbx_nested_find(box, dirfd, name, &n);

	if (r < 0)
		return r;
	sbx_hold_name(ws->inodes, dir, name, &hold);
	/* After that: it may make one link more. */
	if (!flags && n.store < 0)
		sbx_sandbox_changing(box->sandbox, dirfd, name, fuse_req_ctx(req)->pid);
	r = unlinkat(n.dirfd, n.name, flags) < 0 ? -errno : 0;
	sbx_hold_release(ws->inodes, &hold, r == 0);
	if (r == 0)
		sbx_nested_drop(&n, dirfd, name);
	sbx_nested_release(&n);
	return r;
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir = ws_node(req, parent);
	struct sbx_fd *f;
	int r;

	if (!dir)
		return;
	if (ws_is_control(ws, dir, name)) {
		ws_reply(req, 0);
		sbx_node_put(ws->inodes, dir);
		return;
	}
	sbx_node_put(ws->inodes, dir);
	dir = ws_parent(req, parent, name, &f);
	if (!dir)
		return;
	r = remove_name(req, dir, f->fd, name, 0);
	if (r == -ENOENT && unlink_control(ws, dir, name))
		r = 0;
	ws_reply(req, r);
	ws_put(ws, dir, f);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir;
	struct sbx_fd *f;
	int r;

	if (parent == SBX_NODE_ROOT_ID) {
		root_rmdir(req, name);
		return;
	}
	dir = ws_parent(req, parent, name, &f);
	if (!dir)
		return;
	r = ws_is_control(ws, dir, name) ? 0 : remove_name(req, dir, f->fd, name, AT_REMOVEDIR);
	if (r == -ENOTEMPTY && ws_rmdir_hidden(req, dir, f, name))
		return;
	ws_reply(req, r);
	ws_put(ws, dir, f);
}

/* One rename within a sandbox, and what it needs. */
struct renaming {
	fuse_req_t req;
	struct sbx_workspace *ws;
	struct sbx_node *dir, *newdir;
	struct sbx_fd *fd, *newfd;
	char *name, *newname;
	unsigned flags;
};

static int rename_names(struct renaming *rn, bool by_moving)
{
	return by_moving ? sbx_move_dir(rn->ws->inodes, sbx_node_box(rn->dir), rn->fd->fd, rn->name,
	                                rn->newfd->fd, rn->newname, rn->flags)
	       : renameat2(rn->fd->fd, rn->name, rn->newfd->fd, rn->newname, rn->flags) < 0 ? -errno
	                                                                                    : 0;
}

static int rename_between(struct renaming *rn, bool by_moving)
{
	struct sbx_inodes *inodes = rn->ws->inodes;
	struct sbx_hold hold = {0};
	bool links;
	int r;

	if (sbx_node_box(rn->dir) != sbx_node_box(rn->newdir))
		return -EXDEV;
	if (ws_is_control(rn->ws, rn->dir, rn->name) ||
	    ws_is_control(rn->ws, rn->newdir, rn->newname))
		return -EPERM;
	if (!(rn->flags & RENAME_EXCHANGE))
		sbx_hold_name(inodes, rn->newdir, rn->newname, &hold);
	r = rename_names(rn, by_moving);
	sbx_hold_release(inodes, &hold, r == 0);
	if (r < 0)
		return r;
	ws_moved_nested(rn->ws, rn->dir, rn->name, rn->newdir, rn->newname);
	ws_note_nested(rn->ws, rn->newdir, rn->newfd->fd, rn->newname);
	links = sbx_node_moved(inodes, rn->dir, rn->name, rn->newdir, rn->newname);
	if (rn->flags & RENAME_EXCHANGE)
		links |= sbx_node_moved(inodes, rn->newdir, rn->newname, rn->dir, rn->name);
	if (links)
		ws_look_again(rn->ws);
	return 0;
}

static void rename_end(struct renaming *rn, int r)
{
	ws_reply(rn->req, r);
	ws_put(rn->ws, rn->newdir, rn->newfd);
	ws_put(rn->ws, rn->dir, rn->fd);
}

/* [pool] */
static void move_work(void *data)
{
	struct renaming *rn = data;

	rename_end(rn, rename_between(rn, true));
	free(rn->name);
	free(rn->newname);
	free(rn);
}

/* Moving what is in a directory may take long, and no worker of the connection is to be held up by it. */
static bool move_later(const struct renaming *rn)
{
	struct renaming *copy = malloc(sizeof(*copy));
	char *name = strdup(rn->name), *newname = strdup(rn->newname);

	if (!copy || !name || !newname) {
		free(copy);
		free(name);
		free(newname);
		return false;
	}
	*copy = *rn;
	copy->name = name;
	copy->newname = newname;
	sbx_pool_submit(rn->ws->pool, move_work, copy);
	return true;
}

static void rename_in_box(struct renaming *rn)
{
	const struct sbx_box *box = sbx_node_box(rn->dir);
	int r = rename_between(rn, false);

	if (r == -EXDEV && box == sbx_node_box(rn->newdir) && box->sandbox->layered &&
	    move_later(rn))
		return;
	rename_end(rn, r);
}

/* Renames at the top, or between the top and a sandbox. Returns whether it answered. */
static bool rename_top(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                       const char *newname, unsigned flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_box *box;

	if (parent != SBX_NODE_ROOT_ID && newparent != SBX_NODE_ROOT_ID)
		return false;
	if (parent != newparent) {
		ws_reply(req, -EXDEV); /* mv then copies, which makes or empties a sandbox */
		return true;
	}
	box = flags & RENAME_NOREPLACE ? sbx_registry_find(ws->registry, newname) : NULL;
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		ws_reply(req, -EINVAL);
	else if (box)
		ws_reply(req, -EEXIST);
	else
		root_rename(req, name, newname);
	sbx_box_unref(box);
	return true;
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
               const char *newname, unsigned flags)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir, *newdir;
	struct sbx_fd *f, *newf;

	/* A whiteout is a device node; what else may come is unknown. */
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
		ws_reply(req, -EINVAL);
		return;
	}
	if (rename_top(req, parent, name, newparent, newname, flags))
		return;
	dir = ws_dir(req, parent, name, &f);
	if (!dir)
		return;
	newdir = ws_dir(req, newparent, newname, &newf);
	if (newdir)
		rename_in_box(&(struct renaming){.req = req,
		                                 .ws = ws,
		                                 .dir = dir,
		                                 .newdir = newdir,
		                                 .fd = f,
		                                 .newfd = newf,
		                                 .name = (char *)(uintptr_t)name,
		                                 .newname = (char *)(uintptr_t)newname,
		                                 .flags = flags});
	else
		ws_put(ws, dir, f);
}
