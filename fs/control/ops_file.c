/* Open control files. An answer that comes later is owed: the request is kept with whoever interrupts it (fs/fuse/interrupt.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/ops_impl.h"
#include "fs/util/holders.h"
#include "sandboxfs/cleanup.h"

#define SEARCHES_MAX 16 /* for who holds a file, while others write to theirs and close them */

struct answer {
	struct sbx_pending pending;
	struct sbx_parked parked;
	struct sbx_park *park;
};

static struct answer *answer_of(struct sbx_pending *p)
{
	return sbx_container_of(p, struct answer, pending);
}

static fuse_req_t answer_done(struct sbx_pending *p)
{
	struct answer *a = answer_of(p);
	fuse_req_t req = a->parked.req;

	sbx_park_remove(a->park, &a->parked);
	free(a);
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

static void cancel_answer(struct sbx_parked *parked, bool fatal)
{
	struct answer *a = sbx_container_of(parked, struct answer, parked);

	sbx_pending_cancel(&a->pending, fatal);
}

static struct sbx_pending *owe(fuse_req_t req, size_t size)
{
	struct answer *a = calloc(1, sizeof(*a));

	if (!a) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	a->pending.impl = &answer_impl;
	a->pending.size = size;
	a->pending.pid = fuse_req_ctx(req)->pid;
	a->park = controls_of(req)->park;
	a->parked.req = req;
	a->parked.cancel = cancel_answer;
	sbx_park_add(a->park, &a->parked);
	return &a->pending;
}

void sbx_ctl_readlink(fuse_req_t req, fuse_ino_t ino)
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

void sbx_ctl_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
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

/* What NAME is in DIR: a buffer, old or new; or a control that the thread has removed, or that came to be meanwhile. */
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

void sbx_ctl_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
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

void sbx_ctl_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, size);

	(void)ino;
	if (p)
		sbx_control_read(handle_of(fi), (uint64_t)off, p);
}

void sbx_ctl_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
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
void sbx_ctl_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
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
void sbx_ctl_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, 0);

	(void)ino;
	(void)datasync;
	if (p)
		sbx_control_flush(handle_of(fi), false, p);
}

void sbx_ctl_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	sbx_controls_closed(controls_of(req), ino, file_of(fi));
	fuse_reply_err(req, 0);
}
