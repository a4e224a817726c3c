/* Listings of directories. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/fuse/listing.h"
#include "fs/workspace/kernel_cache.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

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

	for (int i = 0; w.r == 0 && i < SBX_TOP_FILES; i++)
		w.r = sbx_listing_add(l, sbx_top_files[i].name, S_IFREG, 1);
	if (w.r == 0)
		w.r = sbx_listing_add(l, "ctl", ws->inlined ? S_IFDIR : S_IFLNK, 1);
	if (w.r == 0)
		sbx_registry_walk(ws->registry, add_box, &w);
	return w.r;
}

/*
 * The .git that the host made in NODE; what a command made is not listed. The directory need not
 * change when one becomes the other: such a listing is good for one pass.
 */
static int list_nested(struct sbx_node *node, int fd, struct sbx_listing *l)
{
	struct sbx_nested n;
	struct stat st;
	int r = sbx_nested_find(sbx_node_box(node), fd, ".git", &n);

	l->once = true;
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

/* When the directory changed last; 0 where that cannot be told. */
static int64_t changed_ns(struct sbx_workspace *ws, struct sbx_node *node)
{
	struct stat st;

	if (!sbx_node_box(node) || sbx_node_stat(ws->inodes, node, &st) < 0)
		return 0;
	return ws_changed_ns(&st);
}

/* A listing of now, noted with when the directory had changed before it was taken. */
static int list_anew(struct sbx_workspace *ws, struct sbx_node *node, int64_t changed,
                     struct sbx_listing **ret)
{
	const struct sbx_box *box = sbx_node_box(node);
	struct sbx_listing *l = sbx_listing_create();
	int r = l ? listing_fill(ws, node, l) : -ENOMEM;

	if (r < 0) {
		sbx_listing_unref(l);
		return r;
	}
	sbx_listing_order(l, 2);
	sbx_listing_cache_note(ws->kept, sbx_node_id(node), box ? box->number : 0, l,
	                       l->once ? 0 : changed, sbx_now_ns());
	*ret = l;
	return 0;
}

/*
 * The listing for a read from OFF on: at the beginning that of now, else the one that was begun
 * with, if it is still there.
 */
static int listing_at(struct sbx_workspace *ws, struct sbx_node *node, off_t off,
                      struct sbx_listing **ret)
{
	const uint64_t id = sbx_node_id(node), now = sbx_now_ns();
	const int64_t changed = changed_ns(ws, node);

	ws_listing_handed(ws);
	*ret = off ? sbx_listing_cache_latest(ws->kept, id, now)
	           : sbx_listing_cache_current(ws->kept, id, changed, now);
	return *ret ? 0 : list_anew(ws, node, changed, ret);
}

/*
 * Where it is never heard of again (ENOSYS), directories are opened, listed from the kernel's cache
 * and closed without a request; what is in that cache ws_entry watches over. Older kernels look
 * names up anew at every step anyhow, and controls (inline) must not be kept: these ask.
 */
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_listing *listing;
	struct sbx_node *node;
	int64_t changed;

	if (!ws->opendirs) {
		ws_reply(req, -ENOSYS);
		return;
	}
	node = ws_node(req, ino);
	if (!node)
		return;
	changed = changed_ns(ws, node);
	listing = sbx_listing_cache_current(ws->kept, ino, changed, sbx_now_ns());
	sbx_node_put(ws->inodes, node);
	fi->cache_readdir = changed != 0;
	fi->keep_cache = listing != NULL;
	sbx_listing_unref(listing);
	fuse_reply_open(req, fi);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	ws_reply(req, 0);
}

/*
 * Whether the kernel, which asks for attributes with each listing that it begins, has just been
 * given those of D in DIR. What comes without stays in its cache as it is.
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
                       const char *name, char *buf, size_t size)
{
	struct sbx_workspace *ws = ws_of(req);
	struct fuse_entry_param e = {
	        .attr = {.st_ino = d->ino, .st_mode = d->type},
	};
	struct sbx_node *node;
	struct stat st;

	/* First, because what is handed out counts as told (sbx_node_told). */
	if (fuse_add_direntry_plus(req, NULL, 0, name, NULL, 0) > size)
		return 0;
	if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	    !(ws->inlined && ws_is_ctl(ws, dir, name)) && !is_known(ws, dir, d, name) &&
	    ws_lookup(ws, dir, name, &st, &node) == 0) {
		ws_entry(ws, node, &st, &e);
		sbx_node_put(ws->inodes, node);
	}
	return fuse_add_direntry_plus(req, buf, size, name, &e, (off_t)d->place);
}

static size_t add_plain(fuse_req_t req, const struct sbx_listed *d, const char *name, char *buf,
                        size_t size)
{
	struct stat st = {.st_ino = d->ino, .st_mode = d->type};
	size_t len = fuse_add_direntry(req, buf, size, name, &st, (off_t)d->place);

	return len <= size ? len : 0;
}

/*
 * The end of L, in BUF; how long it is. Less than an entry is the end for whoever reads, but not
 * for the kernel's copy, which is never whole then, and not used.
 */
static size_t add_end(const struct sbx_listing *l, char *buf, size_t size)
{
	const size_t part = sizeof(uint64_t);

	if (size < part || !sbx_listing_fills_pages(l, (size_t)sysconf(_SC_PAGESIZE)))
		return 0;
	memset(buf, 0, part);
	return part;
}

static void read_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	_cleanup_free_ char *buf = NULL;
	struct sbx_listing *l;
	size_t used = 0, i;
	int r;

	if (!node)
		return;
	buf = malloc(size);
	r = buf ? listing_at(ws, node, off, &l) : -ENOMEM;
	if (r < 0) {
		sbx_node_put(ws->inodes, node);
		ws_reply(req, r);
		return;
	}
	for (i = sbx_listing_behind(l, (uint64_t)off); i < l->n; i++) {
		const struct sbx_listed *e = &l->entries[i];
		const char *name = l->names + e->name;
		size_t len = plus ? add_plus(req, node, e, name, buf + used, size - used)
		                  : add_plain(req, e, name, buf + used, size - used);

		if (len == 0)
			break;
		used += len;
	}
	if (i == l->n && used == 0)
		used = add_end(l, buf, size);
	sbx_listing_unref(l);
	sbx_node_put(ws->inodes, node);
	fuse_reply_buf(req, buf, used);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	read_listing(req, ino, size, off, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
	(void)fi;
	read_listing(req, ino, size, off, true);
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
	if (r == 0 && sbx_node_box(node))
		ws_reply_synced(req, sbx_node_box(node));
	else
		ws_reply(req, r);
	sbx_node_put(ws->inodes, node);
}
