/* Listings of directories. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/listing.h"
#include "fs/nested.h"
#include "fs/open_dir.h"
#include "fs/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

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
static int list_anew(struct sbx_workspace *ws, struct sbx_node *node, struct sbx_open_dir *d)
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
	struct sbx_listing *listing;
	struct sbx_open_dir *d;
	int64_t changed;

	if (!node)
		return;
	changed = keepable(ws, node);
	listing = sbx_kept_current(ws->kept, ino, changed, sbx_now_ns());
	sbx_node_put(ws->inodes, node);
	fi->cache_readdir = changed != 0;
	fi->keep_cache = listing != NULL;
	d = sbx_open_dir_add(&ws->dirs, listing, fi);
	if (!d)
		ws_reply(req, -ENOMEM);
	else if (fuse_reply_open(req, fi) != 0)
		sbx_open_dir_close(&ws->dirs, d);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	sbx_open_dir_close(&ws_of(req)->dirs, sbx_open_dir_of(fi));
	ws_reply(req, 0);
}

/*
 * Whether the kernel, which asks for attributes with each listing that it begins, has just been given those of D in DIR. What comes
 * without stays in its cache as it is.
 */
static bool is_known(struct sbx_workspace *ws, struct sbx_node *dir, const struct sbx_listed *d,
                     const char *name)
{
	const struct sbx_box *box = sbx_node_box(dir);

	return ws->epochs && box && !__atomic_load_n(&box->busy, __ATOMIC_RELAXED) &&
	       sbx_node_fresh(ws->inodes, dir, name, d->ino);
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
	    !(ws->inlined && ws_is_ctl(ws, dir, name)) && !is_known(ws, dir, d, name) &&
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
	struct sbx_open_dir *d = sbx_open_dir_of(fi);
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
