/*
 * Opening, reading and writing of control files, whatever their kind: modes are held to,
 * generated texts are kept from one read to the next, failures are stored.
 *
 * A generated text is made anew by a read at offset 0 and then kept for the open file,
 * as seq_file does, so that what is read in several pieces is of one moment.
 */
#include "fs/control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/request_file.h"
#include "fs/sandbox/await.h"
#include "sandboxfs/cleanup.h"

int sbx_control_text_take(char *string, struct text *ret)
{
	if (!string)
		return -ENOMEM;
	*ret = (struct text){.data = string, .len = strlen(string)};
	return 0;
}

void sbx_control_text_release(struct text *text)
{
	free(text->data);
	*text = (struct text){0};
}

void sbx_control_store(struct sbx_control_handle *h, const struct sbx_error *err)
{
	sbx_error_store(h->reg, h->node.box, err);
}

void sbx_control_set_text(struct sbx_control_handle *h, char *string)
{
	sbx_control_text_release(&h->text);
	h->filled = string && sbx_control_text_take(string, &h->text) >= 0;
	h->cursor = 0;
}

/* Copies the answer, so that it is given without the lock. */
static void serve(struct sbx_control_handle *h, uint64_t off, bool cursor, struct sbx_pending *p)
{
	_cleanup_free_ char *copy = NULL;
	size_t len;

	pthread_mutex_lock(&h->lock);
	if (cursor)
		off = h->cursor;
	len = off < h->text.len ? h->text.len - (size_t)off : 0;
	if (len > p->size)
		len = p->size;
	copy = malloc(len + 1);
	if (copy && len)
		memcpy(copy, h->text.data + off, len);
	if (copy && cursor)
		h->cursor += len;
	pthread_mutex_unlock(&h->lock);
	if (copy)
		sbx_pending_data(p, copy, len);
	else
		sbx_pending_error(p, ENOMEM);
}

static void serve_at(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	serve(h, off, false, p);
}

void sbx_control_serve_cursor(struct sbx_control_handle *h, struct sbx_pending *p)
{
	serve(h, 0, true, p);
}

/* Open */

static int check_mode(const struct sbx_control_row *row, int flags, struct sbx_error *err)
{
	int access = flags & O_ACCMODE;

	if (S_ISDIR(row->mode))
		return access == O_RDONLY ? 0
		                          : sbx_fail(err, EISDIR, "%s is a directory", row->name);
	if (access != O_WRONLY && !(row->mode & 0400))
		return sbx_fail(err, EACCES, "%s can only be written", row->name);
	if (access != O_RDONLY && !(row->mode & 0200))
		return sbx_fail(err, EACCES, "%s can only be read", row->name);
	return 0;
}

static void handle_free(struct sbx_control_handle *h)
{
	sbx_control_text_release(&h->text);
	sbx_control_node_release(&h->node);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

static int handle_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	const struct control_ops *ops = h->node.row->ops;
	int r = 0;

	if (!ops)
		return 0;
	if (ops->open)
		r = ops->open(h, err);
	if (r < 0 || !(h->flags & O_TRUNC) || !ops->truncate)
		return r;
	r = ops->truncate(h->reg, &h->node);
	if (r < 0 && ops->release)
		ops->release(h);
	return r;
}

int sbx_control_open(struct sbx_registry *reg, const struct sbx_control_node *node, int flags,
                     struct sbx_control_handle **ret)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_control_handle *h;
	int r;

	if (node->box && !sbx_box_alive(node->box))
		return -ESTALE;
	r = check_mode(node->row, flags, &err);
	if (r < 0) {
		sbx_error_store(reg, node->box, &err);
		return r;
	}
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->reg = reg;
	h->flags = flags;
	pthread_mutex_init(&h->lock, NULL);
	sbx_control_node_copy(node, &h->node);
	r = handle_open(h, &err);
	if (r < 0) {
		sbx_control_store(h, &err);
		handle_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

void sbx_control_release(struct sbx_control_handle *h)
{
	const struct control_ops *ops = h->node.row->ops;

	if (ops && ops->release)
		ops->release(h);
	handle_free(h);
}

int sbx_control_truncate(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	const struct control_ops *ops = node->row->ops;

	return ops && ops->truncate ? ops->truncate(reg, node) : 0;
}

/* Read */

static void read_text_now(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	struct text fresh = {0};
	int r = 0;

	pthread_mutex_lock(&h->lock);
	if (off == 0 || !h->filled) {
		r = h->node.row->text(h->reg, &h->node, &fresh);
		if (r >= 0) {
			sbx_control_text_release(&h->text);
			h->text = fresh;
			h->filled = true;
		}
	}
	pthread_mutex_unlock(&h->lock);
	if (r < 0)
		sbx_pending_error(p, -r);
	else
		serve_at(h, off, p);
}

/* A read of what is known only when the sandbox has been made. */
struct coming {
	struct sbx_await up;
	struct sbx_control_handle *h;
	uint64_t off;
	struct sbx_pending *p; /* loop thread; NULL: nobody waits any more */
};

/* [loop] */
static void came_up(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct coming *c = sbx_container_of(a, struct coming, up);

	if (c->p && code) {
		sbx_error_store(c->h->reg, a->box, err);
		sbx_pending_error(c->p, code);
	} else if (c->p) {
		read_text_now(c->h, c->off, c->p);
	}
	free(c);
}

/* [loop] */
static void coming_cancel(struct sbx_pending *p, bool fatal)
{
	struct coming *c = p->owner;

	(void)fatal;
	c->p = NULL;
	sbx_await_cancel(&c->up);
	sbx_pending_error(p, EINTR);
}

static bool is_up(const struct sbx_control_node *node)
{
	return !(node->row->flags & ROW_UP) ||
	       sbx_away_here(node->box->sandbox, 0, SBX_NEED_UP, 0, 0);
}

static void read_text(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	struct coming *c;

	if (is_up(&h->node)) {
		read_text_now(h, off, p);
		return;
	}
	c = h->flags & O_NONBLOCK ? NULL : calloc(1, sizeof(*c));
	if (!c) {
		sbx_pending_error(p, h->flags & O_NONBLOCK ? EAGAIN : ENOMEM);
		return;
	}
	*c = (struct coming){
	        .up = {.want = {.need = SBX_NEED_UP, .path = ""}, .done = came_up},
	        .h = h,
	        .off = off,
	        .p = p,
	};
	sbx_pending_defer(p, coming_cancel, c);
	sbx_box_await(h->node.box, &c->up);
}

void sbx_control_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	const struct sbx_control_row *row = h->node.row;

	if (S_ISDIR(row->mode))
		sbx_pending_error(p, EISDIR);
	else if ((h->flags & O_ACCMODE) == O_WRONLY)
		sbx_pending_error(p, EBADF);
	else if (row->text)
		read_text(h, off, p);
	else if (row->ops->requests)
		sbx_request_file_read(h, p);
	else
		row->ops->read(h, off, p);
}

/* Write */

void sbx_control_write(struct sbx_control_handle *h, const void *buf, size_t len, uint64_t off,
                       struct sbx_pending *p)
{
	const struct control_ops *ops = h->node.row->ops;
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if ((h->flags & O_ACCMODE) == O_RDONLY) {
		sbx_pending_error(p, EBADF);
	} else if (ops->requests) {
		sbx_request_file_write(h, buf, len, p);
	} else if (ops->write) {
		ops->write(h, buf, len, p);
	} else {
		r = ops->put ? ops->put(h, buf, len, off, &err) : ops->set(h, buf, len, &err);
		sbx_control_store(h, &err);
		if (r < 0)
			sbx_pending_error(p, -r);
		else
			sbx_pending_count(p, len);
	}
}

bool sbx_control_unfinished(struct sbx_control_handle *h)
{
	const struct control_ops *ops = h->node.row->ops;
	bool unfinished = false;

	if (!ops || !(ops->requests || ops->unfinished))
		return false;
	pthread_mutex_lock(&h->lock);
	if (!h->active)
		unfinished = ops->requests ? ops->requests->unfinished(h) : ops->unfinished(h);
	pthread_mutex_unlock(&h->lock);
	return unfinished;
}

void sbx_control_flush(struct sbx_control_handle *h, bool broken, struct sbx_pending *p)
{
	const struct control_ops *ops = h->node.row->ops;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = 0;

	if (ops && ops->requests) {
		sbx_request_file_flush(h, broken, p);
		return;
	}
	if (ops && ops->flush)
		r = ops->flush(h, broken, &err);
	sbx_control_store(h, &err);
	sbx_pending_error(p, -r);
}

/* Close */

static void closed(struct sbx_pending *p, int errnum)
{
	(void)errnum;
	sbx_control_release(sbx_container_of(p, struct sbx_control_handle, nobody));
}

void sbx_control_close(struct sbx_control_handle *h, bool broken)
{
	static const struct sbx_pending_impl impl = {.error = closed};

	if ((h->node.box && !sbx_box_alive(h->node.box)) || !sbx_control_unfinished(h)) {
		sbx_control_release(h);
		return;
	}
	h->nobody = (struct sbx_pending){.impl = &impl};
	sbx_control_flush(h, broken, &h->nobody);
}

uint64_t sbx_control_handle_ino(const struct sbx_control_handle *h)
{
	return sbx_control_ino(&h->node);
}
