/* Translation between FUSE and control files: names, attributes, directories. What a file does is in fs/control*.c. */
#include "fs/ops_control.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fs/ops_control_impl.h"
#include "sandboxfs/cleanup.h"

static void reply_node(fuse_req_t req, struct sbx_control_node *node, bool keep)
{
	struct sbx_controls *c = controls_of(req);
	struct fuse_entry_param e;
	int r = sbx_controls_fill(c, node, keep, &e);

	if (r < 0)
		fuse_reply_err(req, -r);
	else if (fuse_reply_entry(req, &e) != 0)
		sbx_controls_forget(c, e.ino, 1);
}

static void ctl_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node dir, node;
	bool keep;
	int r;

	if (!sbx_controls_node(req, parent, &dir))
		return;
	r = sbx_control_lookup(c->registry, &dir, name, &node);
	if (r < 0) {
		fuse_reply_err(req, -r);
	} else {
		/* ".7" is that sandbox for ever, and so are the fixed files below it. */
		keep = (parent & ~c->id_bit) == FUSE_ROOT_ID ? *name == '.'
		                                             : sbx_control_kept(&node);
		reply_node(req, &node, keep);
	}
	sbx_control_node_release(&dir);
}

static void ctl_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	sbx_controls_forget(controls_of(req), ino, n);
	fuse_reply_none(req);
}

static void ctl_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		sbx_controls_forget(controls_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void ctl_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_control_node node;
	struct stat st;
	bool steady;
	int r;

	(void)fi;
	if (!sbx_controls_node(req, ino, &node))
		return;
	r = sbx_controls_stat(controls_of(req), &node, &st);
	steady = sbx_control_steady(&node);
	sbx_control_node_release(&node);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &st, steady ? 3600 : 0);
}

static void ctl_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                        struct fuse_file_info *fi)
{
	struct sbx_control_node node;
	struct stat st;
	int r = 0;

	(void)attr;
	(void)fi;
	if (!sbx_controls_node(req, ino, &node))
		return;
	if (set & FUSE_SET_ATTR_SIZE)
		r = sbx_control_truncate(controls_of(req)->registry, &node);
	else if (set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		r = -EPERM;
	if (r == 0)
		r = sbx_controls_stat(controls_of(req), &node, &st);
	sbx_control_node_release(&node);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &st, 0);
}

static void ctl_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct sbx_control_node dir, node;
	int r;

	(void)mode;
	if (!sbx_controls_node(req, parent, &dir))
		return;
	r = sbx_control_mkdir(controls_of(req)->registry, &dir, name, &node);
	sbx_control_node_release(&dir);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		reply_node(req, &node, false);
}

static void ctl_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_control_node dir;
	int r;

	if (!sbx_controls_node(req, parent, &dir))
		return;
	r = sbx_control_rmdir(controls_of(req)->registry, &dir, name);
	sbx_control_node_release(&dir);
	fuse_reply_err(req, -r);
}

/* Accepted and nothing happens, so that rm -rf of a tree with listed controls goes through. */
static void ctl_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent;
	(void)name;
	fuse_reply_err(req, 0);
}

/* Nothing can be made here by other means, whoever asks. */
static void ctl_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)parent;
	(void)name;
	(void)mode;
	(void)rdev;
	fuse_reply_err(req, EACCES);
}

static void ctl_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                       const char *newname, unsigned flags)
{
	(void)parent;
	(void)name;
	(void)newparent;
	(void)newname;
	(void)flags;
	fuse_reply_err(req, EPERM);
}

/* ---- directories ---- */

static void add_listed(const char *name, mode_t mode, void *data)
{
	struct sbx_listing **l = data;

	if (*l && sbx_listing_add(*l, name, mode, 0) < 0) {
		sbx_listing_unref(*l);
		*l = NULL;
	}
}

static int take_listing(struct sbx_controls *c, const struct sbx_control_node *dir,
                        struct sbx_listing **ret)
{
	struct sbx_listing *l = sbx_listing_create();
	int r;

	add_listed(".", S_IFDIR, &l);
	add_listed("..", S_IFDIR, &l);
	r = sbx_control_list(c->registry, dir, add_listed, &l);
	if (r >= 0 && !l)
		r = -ENOMEM;
	if (r < 0) {
		sbx_listing_unref(l);
		return r;
	}
	*ret = l;
	return 0;
}

/* As much as fits; where it goes on is its place in the listing. */
static size_t fill(fuse_req_t req, const struct sbx_listing *l, size_t from, char *buf, size_t size,
                   bool plus)
{
	size_t used = 0;

	for (size_t i = from; i < l->n; i++) {
		const char *name = l->names + l->entries[i].name;
		struct stat st = {.st_mode = l->entries[i].type, .st_ino = (ino_t)-1};
		struct fuse_entry_param e = {.attr = st}; /* ino 0: to be looked up when needed */
		size_t len = plus ? fuse_add_direntry_plus(req, buf + used, size - used, name, &e,
		                                           (off_t)i + 1)
		                  : fuse_add_direntry(req, buf + used, size - used, name, &st,
		                                      (off_t)i + 1);

		if (len > size - used)
			break;
		used += len;
	}
	return used;
}

static void list_names(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus,
                       struct fuse_file_info *fi)
{
	struct sbx_open_dir *d = sbx_open_dir_of(fi);
	_cleanup_free_ char *buf = malloc(size);
	struct sbx_listing *l = NULL;
	struct sbx_control_node dir;
	int r = 0;

	if (!sbx_controls_node(req, ino, &dir))
		return;
	pthread_mutex_lock(&d->lock);
	if (off == 0 || !d->listing)
		r = take_listing(controls_of(req), &dir, &l);
	if (r == 0 && l) {
		sbx_listing_unref(d->listing);
		d->listing = l;
	}
	l = sbx_listing_ref(d->listing);
	pthread_mutex_unlock(&d->lock);
	sbx_control_node_release(&dir);
	if (r == 0 && !buf)
		r = -ENOMEM;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, buf, fill(req, l, (size_t)off, buf, size, plus));
	sbx_listing_unref(l);
}

static void ctl_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                        struct fuse_file_info *fi)
{
	list_names(req, ino, size, off, false, fi);
}

static void ctl_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                            struct fuse_file_info *fi)
{
	list_names(req, ino, size, off, true, fi);
}

static void ctl_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_open_dir *d = sbx_open_dir_add(&c->dirs, NULL, fi);

	(void)ino;
	if (!d)
		fuse_reply_err(req, ENOMEM);
	else if (fuse_reply_open(req, fi) != 0)
		sbx_open_dir_close(&c->dirs, d);
}

static void ctl_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	sbx_open_dir_close(&controls_of(req)->dirs, sbx_open_dir_of(fi));
	fuse_reply_err(req, 0);
}

/* Of access(2): the kernel leaves it to us where nobody but the owner comes this far. */
static void ctl_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct sbx_control_node node;
	struct stat st;
	int r;

	if (!sbx_controls_node(req, ino, &node))
		return;
	r = sbx_controls_stat(controls_of(req), &node, &st);
	if (r == 0 && (mask & ~(int)(st.st_mode >> 6 & 7) || (mask & W_OK && node.item)))
		r = -EACCES;
	sbx_control_node_release(&node);
	fuse_reply_err(req, -r);
}

static void ctl_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
	                          FUSE_CAP_SPLICE_MOVE | FUSE_CAP_AUTO_INVAL_DATA);
}

const struct fuse_lowlevel_ops sbx_control_ops = {
        .init = ctl_init,
        .lookup = ctl_lookup,
        .forget = ctl_forget,
        .forget_multi = ctl_forget_multi,
        .getattr = ctl_getattr,
        .setattr = ctl_setattr,
        .readlink = sbx_ctl_readlink,
        .mknod = ctl_mknod,
        .mkdir = ctl_mkdir,
        .unlink = ctl_unlink,
        .rmdir = ctl_rmdir,
        .rename = ctl_rename,
        .access = ctl_access,
        .open = sbx_ctl_open,
        .read = sbx_ctl_read,
        .write = sbx_ctl_write,
        .flush = sbx_ctl_flush,
        .fsync = sbx_ctl_fsync,
        .release = sbx_ctl_release,
        .opendir = ctl_opendir,
        .releasedir = ctl_releasedir,
        .readdir = ctl_readdir,
        .readdirplus = ctl_readdirplus,
};
