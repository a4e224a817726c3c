/*
 * Translation between FUSE and control files: names, attributes, directories, open files. What a
 * file does is said in fs/control/table.c. An answer that comes later is owed: the request is kept
 * with whoever interrupts it (fs/fuse/interrupt.h).
 */
#include "fs/control/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/control/nodes.h"
#include "fs/control/ops_save.h"
#include "fs/control/save_buffer.h"
#include "fs/util/holders.h"
#include "sandboxfs/cleanup.h"

#define SEARCHES_MAX 16 /* for who holds a file, while others write to theirs and close them */

static fuse_req_t answer_done(struct sbx_pending *p)
{
	fuse_req_t req = p->req;

	sbx_deferred_remove(controls_of(req)->deferred, p);
	free(p);
	return req;
}

static void answer_data(struct sbx_pending *p, const void *buf, size_t len)
{
	fuse_reply_buf(answer_done(p), buf, len);
}

static void answer_count(struct sbx_pending *p, size_t n)
{
	fuse_reply_write(answer_done(p), n);
}

static void answer_error(struct sbx_pending *p, int errnum)
{
	fuse_reply_err(answer_done(p), errnum);
}

/* Of a link: its target, which may have any bytes but NUL. */
static void answer_target(struct sbx_pending *p, const void *buf, size_t len)
{
	_cleanup_free_ char *target = strndup(buf, len);
	fuse_req_t req = answer_done(p);

	if (target)
		fuse_reply_readlink(req, target);
	else
		fuse_reply_err(req, ENOMEM);
}

static const struct sbx_pending_impl answer_impl = {
        .data = answer_data,
        .count = answer_count,
        .error = answer_error,
};

static const struct sbx_pending_impl link_impl = {
        .data = answer_target,
        .error = answer_error,
};

static struct sbx_pending *owe(fuse_req_t req, size_t size)
{
	struct sbx_pending *p = calloc(1, sizeof(*p));

	if (!p) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	p->impl = &answer_impl;
	p->size = size;
	sbx_deferred_add(controls_of(req)->deferred, req, p);
	return p;
}

static void ctl_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_control_node node;
	struct sbx_pending *p;

	if (!sbx_controls_node(req, ino, &node))
		return;
	p = owe(req, 0);
	if (p) {
		p->impl = &link_impl;
		sbx_control_readlink(controls_of(req)->registry, &node, p);
	}
	sbx_control_node_release(&node);
}

static struct sbx_open_file *file_of(struct fuse_file_info *fi)
{
	return (struct sbx_open_file *)(uintptr_t)fi->fh;
}

static struct sbx_control_handle *handle_of(struct fuse_file_info *fi)
{
	return file_of(fi)->handle;
}

static void fill_info(fuse_req_t req, struct fuse_file_info *fi, struct sbx_open_file *f,
                      bool constant)
{
	f->opener = fuse_req_ctx(req)->pid;
	fi->fh = (uintptr_t)f;
	fi->direct_io = !constant;
	fi->keep_cache = constant;
	fi->noflush =
	        (fi->flags & O_ACCMODE) == O_RDONLY; /* only what was written can be unfinished */
}

static void ctl_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_controls *controls = controls_of(req);
	struct sbx_control_handle *h;
	struct sbx_open_file *f = NULL;
	struct sbx_control_node node;
	bool constant;
	int r;

	sbx_save_withdraw(req);
	if (!sbx_controls_node(req, ino, &node))
		return;
	r = sbx_control_open(controls->registry, &node, fi->flags, &h);
	constant = sbx_control_constant(&node);
	sbx_control_node_release(&node);
	if (r >= 0)
		f = sbx_controls_opened(controls, ino, h);
	if (!f) {
		fuse_reply_err(req, r < 0 ? -r : ENOMEM);
		return;
	}
	fill_info(req, fi, f, constant);
	if (fuse_reply_open(req, fi) != 0)
		sbx_controls_closed(controls, ino, f);
}

/*
 * Finds or makes NAME in DIR: a buffer, old or new; or a control that the thread has removed, or
 * that came to be meanwhile.
 */
static int make(fuse_req_t req, const struct sbx_control_node *dir, const char *name, int flags,
                struct sbx_control_node *ret)
{
	struct sbx_controls *c = controls_of(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_control_lookup(c->registry, dir, name, ret);

	if (r == 0 && sbx_vacancy_find(c, ctx->pid, dir, name, true))
		return 0;
	if (r == -ENOENT)
		r = sbx_buffers_find(c->buffers, dir, name, ctx->uid, ret);
	if (r == 0 && flags & O_EXCL) {
		sbx_control_node_release(ret);
		return -EEXIST;
	}
	if (r != -ENOENT)
		return r;
	r = sbx_buffers_make(c->buffers, dir, name, ctx->uid, ctx->gid, ret, &err);
	if (r < 0)
		sbx_error_store(c->registry, dir->box, &err);
	else
		sbx_buffer_set_maker(ret->buffer, ctx->pid);
	return r;
}

/* Opens NODE, which is taken over, as the answer to a CREATE. */
static void reply_created(fuse_req_t req, struct sbx_control_node *node, struct fuse_file_info *fi)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_handle *h = NULL;
	struct sbx_open_file *f = NULL;
	struct fuse_entry_param e;
	int r = sbx_control_open(c->registry, node, fi->flags, &h);

	if (r < 0) {
		sbx_control_node_release(node);
		fuse_reply_err(req, -r);
		return;
	}
	r = sbx_controls_fill(c, node, false, &e);
	if (r < 0)
		sbx_control_release(h);
	else
		f = sbx_controls_opened(c, e.ino, h);
	if (!f) {
		if (r == 0)
			sbx_controls_forget(c, e.ino, 1);
		fuse_reply_err(req, r < 0 ? -r : ENOMEM);
		return;
	}
	fill_info(req, fi, f, false);
	if (fuse_reply_create(req, &e, fi) != 0) {
		sbx_controls_closed(c, e.ino, f);
		sbx_controls_forget(c, e.ino, 1);
	}
}

static void ctl_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                       struct fuse_file_info *fi)
{
	struct sbx_control_node dir, node;
	int r;

	(void)mode;
	sbx_save_withdraw(req);
	if (!sbx_controls_node(req, parent, &dir))
		return;
	r = make(req, &dir, name, fi->flags, &node);
	sbx_control_node_release(&dir);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		reply_created(req, &node, fi);
}

static void ctl_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                     struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, size);

	(void)ino;
	if (p)
		sbx_control_read(handle_of(fi), (uint64_t)off, p);
}

static void ctl_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                      struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, size);
	struct sbx_open_file *f = file_of(fi);

	(void)ino;
	if (!p)
		return;
	/* Before the answer, because the file may be closed right after it. */
	f->writer = p->pid;
	f->owner = fi->lock_owner;
	f->pos = (uint64_t)off + size;
	f->closed = false;
	f->broken = false;
	sbx_controls_changed(controls_of(req));
	sbx_control_write(f->handle, buf, size, (uint64_t)off, p);
}

/*
 * Whether somebody may still complete what is unfinished in F. Where /proc does not tell, it is
 * the table of descriptors that was written from last: who else closes, ends nothing.
 */
static bool is_held(fuse_req_t req, struct sbx_open_file *f, uint64_t owner)
{
	struct sbx_controls *controls = controls_of(req);
	struct sbx_holders_query query = {
	        .ino = f->ino,
	        .pos = f->pos,
	        .closer = fuse_req_ctx(req)->pid,
	        .opener = f->opener,
	        .writer = f->writer,
	};
	enum sbx_held held = SBX_HELD_UNKNOWN;
	uint64_t before;

	for (int tries = 0; tries < SEARCHES_MAX; tries++) {
		before = sbx_controls_changes(controls);
		query.others = sbx_controls_others(controls, f);
		held = sbx_holders_find(&query);
		/*
		 * What was written or closed since they were counted may have been taken for a
		 * holder of F.
		 */
		if (held != SBX_HELD_YES || sbx_controls_changes(controls) == before)
			break;
		held = SBX_HELD_UNKNOWN;
	}
	switch (held) {
	case SBX_HELD_NO:
		return false;
	case SBX_HELD_YES:
		return true;
	default:
		return owner != f->owner;
	}
}

/* One of the descriptors was closed. The request ends with the last of them. */
static void ctl_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_open_file *f = file_of(fi);
	struct sbx_pending *p;
	bool killed;

	(void)ino;
	f->closed = true;
	sbx_controls_changed(controls_of(req));
	if (!sbx_control_unfinished(f->handle)) {
		fuse_reply_err(req, 0);
		return;
	}
	killed = sbx_holders_killed(fuse_req_ctx(req)->pid);
	if (fi->lock_owner == f->owner)
		f->broken = killed;
	if (is_held(req, f, fi->lock_owner)) {
		fuse_reply_err(req, 0);
		return;
	}
	p = owe(req, 0);
	if (p)
		sbx_control_flush(f->handle, killed || f->broken, p);
}

/* Whoever syncs says that what was written is whole. */
static void ctl_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, 0);

	(void)ino;
	(void)datasync;
	if (p)
		sbx_control_flush(handle_of(fi), false, p);
}

static void ctl_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	sbx_controls_closed(controls_of(req), ino, file_of(fi));
	fuse_reply_err(req, 0);
}

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

/* A control, or a buffer of whoever asks. */
static int find(fuse_req_t req, const struct sbx_control_node *dir, const char *name,
                struct sbx_control_node *ret)
{
	struct sbx_controls *c = controls_of(req);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	int r = sbx_control_lookup(c->registry, dir, name, ret);

	if (r == 0 && sbx_vacancy_find(c, ctx->pid, dir, name, false)) {
		sbx_control_node_release(ret);
		return -ENOENT;
	}
	return r == -ENOENT ? sbx_buffers_find(c->buffers, dir, name, ctx->uid, ret) : r;
}

static void lookup_now(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node dir, node;
	bool keep;
	int r;

	if (!sbx_controls_node(req, parent, &dir))
		return;
	r = find(req, &dir, name, &node);
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

/* Whether this is of a rename's second walk, which waits. */
static bool repeats(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node dir, node;
	bool waits;
	int r;

	if (!sbx_save_announced(c, fuse_req_ctx(req)->pid) || !sbx_controls_find(c, parent, &dir))
		return false;
	r = sbx_control_lookup(c->registry, &dir, name, &node);
	sbx_control_node_release(&dir);
	if (r < 0)
		return false;
	waits = sbx_save_waits(req, &node, parent, name, lookup_now);
	sbx_control_node_release(&node);
	return waits;
}

static void ctl_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!repeats(req, parent, name))
		lookup_now(req, parent, name);
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

/*
 * Attributes that tools copy along with a request mean nothing here, so they are accepted. Nobody
 * else comes to own a control.
 */
static int set_control(struct sbx_controls *c, const struct sbx_control_node *node,
                       const struct stat *attr, int set)
{
	struct stat now;
	int r = sbx_controls_stat(c, node, &now);

	if (r < 0)
		return r;
	if ((set & FUSE_SET_ATTR_UID && attr->st_uid != now.st_uid) ||
	    (set & FUSE_SET_ATTR_GID && attr->st_gid != now.st_gid))
		return -EPERM;
	/* A snapshot's mode is part of it; a control's is not for anybody to set, but tools do. */
	if (set & FUSE_SET_ATTR_MODE && node->item &&
	    (attr->st_mode & 07777) != (now.st_mode & 07777))
		return -EPERM;
	return set & FUSE_SET_ATTR_SIZE ? sbx_control_truncate(c->registry, node) : 0;
}

static int set_buffer(struct sbx_controls *c, const struct sbx_control_node *node,
                      const struct stat *attr, int set)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (set & FUSE_SET_ATTR_SIZE &&
	    sbx_buffer_resize(node->buffer, (uint64_t)attr->st_size, &err) < 0) {
		sbx_error_store(c->registry, node->box, &err);
		return -err.code;
	}
	if (set & FUSE_SET_ATTR_MODE)
		sbx_buffer_chmod(node->buffer, attr->st_mode);
	if (set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		sbx_buffer_chown(node->buffer, set & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1,
		                 set & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1);
	if (set & FUSE_SET_ATTR_MTIME && !(set & FUSE_SET_ATTR_MTIME_NOW))
		sbx_buffer_set_mtime(node->buffer, attr->st_mtim);
	return 0;
}

static void ctl_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                        struct fuse_file_info *fi)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node node;
	struct stat st;
	int r;

	(void)fi;
	if (!sbx_controls_node(req, ino, &node))
		return;
	r = (node.buffer ? set_buffer : set_control)(c, &node, attr, set);
	if (r == 0)
		r = sbx_controls_stat(c, &node, &st);
	sbx_control_node_release(&node);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &st, 0);
}

/* An access list says no more than the mode, and is accepted as that is. */
static void ctl_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                         size_t size, int flags)
{
	(void)ino;
	(void)value;
	(void)size;
	(void)flags;
	fuse_reply_err(req, strcmp(name, "system.posix_acl_access") ? EOPNOTSUPP : 0);
}

static void ctl_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct sbx_control_node dir, node;
	int r;

	(void)mode;
	sbx_save_withdraw(req);
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

	sbx_save_withdraw(req);
	if (!sbx_controls_node(req, parent, &dir))
		return;
	r = sbx_control_rmdir(controls_of(req)->registry, &dir, name);
	sbx_control_node_release(&dir);
	fuse_reply_err(req, -r);
}

static int refuse(fuse_req_t req, const struct sbx_control_node *dir, const struct sbx_error *err)
{
	sbx_error_store(controls_of(req)->registry, dir->box, err);
	return err->code;
}

static int refuse_removal(fuse_req_t req, const struct sbx_control_node *node, const char *name)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (node->item)
		sbx_fail(&err, EPERM, "%s can only be read: it cannot be removed", name);
	else if (node->job)
		sbx_fail(&err, EPERM,
		         "%s is a control file: it cannot be removed; rmdir takes the whole job",
		         name);
	else
		sbx_fail(&err, EPERM, "%s is a control file: it cannot be removed", name);
	return refuse(req, node, &err);
}

/*
 * Programs that remove a control in order to make it anew, or to rename what they have written
 * beside it (Java), do not see it until they have. Where controls are listed, rm -rf of a sandbox
 * removes them first and must go on.
 */
static int remove_control(fuse_req_t req, const struct sbx_control_node *dir,
                          const struct sbx_control_node *node, const char *name)
{
	struct sbx_controls *c = controls_of(req);
	pid_t pid = fuse_req_ctx(req)->pid;
	struct stat st;
	int r = sbx_controls_stat(c, node, &st);

	if (r < 0)
		return -r;
	if (S_ISREG(st.st_mode) && st.st_mode & 0222 &&
	    (sbx_vacancy_needed(pid) || sbx_buffers_made_by(c->buffers, dir, pid)))
		sbx_vacancy_add(c, pid, dir, name);
	else if (!sbx_registry_settings(c->registry)->ctl_listed)
		return refuse_removal(req, node, name);
	return 0;
}

static void ctl_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node dir, node;
	int errnum;

	sbx_save_withdraw(req);
	if (!sbx_controls_node(req, parent, &dir))
		return;
	errnum = -find(req, &dir, name, &node);
	if (errnum == 0) {
		if (node.buffer)
			sbx_buffers_remove(c->buffers, node.buffer);
		else
			errnum = remove_control(req, &dir, &node, name);
		sbx_control_node_release(&node);
	}
	sbx_control_node_release(&dir);
	fuse_reply_err(req, errnum);
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

static void ctl_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target;
	(void)parent;
	(void)name;
	fuse_reply_err(req, EACCES);
}

static void ctl_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	(void)ino;
	(void)newparent;
	(void)newname;
	fuse_reply_err(req, EPERM);
}

/* Onto no control: another name for the buffer. */
static int move_buffer(fuse_req_t req, const struct sbx_control_node *dir, struct sbx_buffer *b,
                       const char *newname)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_buffers_rename(controls_of(req)->buffers, b, dir, newname, &err);

	return r < 0 ? refuse(req, dir, &err) : 0;
}

/* The errno, or -1 when the request is answered otherwise. */
static int rename_in(fuse_req_t req, fuse_ino_t parent, const struct sbx_control_node *dir,
                     const char *name, const char *newname)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node node, target;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = find(req, dir, name, &node);

	if (r < 0)
		return -r;
	if (!node.buffer) {
		sbx_control_node_release(&node);
		sbx_fail(&err, EPERM, "%s is a control and keeps its name", name);
		return refuse(req, dir, &err);
	}
	r = sbx_control_lookup(c->registry, dir, newname, &target);
	if (r == -ENOENT) {
		r = move_buffer(req, dir, node.buffer, newname);
	} else if (r < 0) {
		r = -r;
	} else {
		r = sbx_control_is_dir(&target) ? EISDIR : -1;
		if (r < 0) {
			sbx_vacancy_find(c, fuse_req_ctx(req)->pid, dir, newname, true);
			sbx_save_rename(req, parent, node.buffer, &target, newname);
		}
		sbx_control_node_release(&target);
	}
	sbx_control_node_release(&node);
	return r;
}

static void ctl_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                       const char *newname, unsigned flags)
{
	struct sbx_control_node dir;
	int errnum;

	if (flags & ~(unsigned)RENAME_NOREPLACE || parent != newparent) {
		fuse_reply_err(req, parent != newparent ? EXDEV : EINVAL);
		return;
	}
	if (!sbx_controls_node(req, parent, &dir))
		return;
	errnum = rename_in(req, parent, &dir, name, newname);
	sbx_control_node_release(&dir);
	if (errnum >= 0)
		fuse_reply_err(req, errnum);
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
	sbx_save_withdraw(req);
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
        .readlink = ctl_readlink,
        .mknod = ctl_mknod,
        .mkdir = ctl_mkdir,
        .unlink = ctl_unlink,
        .rmdir = ctl_rmdir,
        .symlink = ctl_symlink,
        .rename = ctl_rename,
        .link = ctl_link,
        .setxattr = ctl_setxattr,
        .create = ctl_create,
        .access = ctl_access,
        .open = ctl_open,
        .read = ctl_read,
        .write = ctl_write,
        .flush = ctl_flush,
        .fsync = ctl_fsync,
        .release = ctl_release,
        .opendir = ctl_opendir,
        .releasedir = ctl_releasedir,
        .readdir = ctl_readdir,
        .readdirplus = ctl_readdirplus,
};
