/*
 * A whole content for a control at once: what the rename of a private buffer onto it means. It is a
 * write and a flush on an open file of its own, so that every control means the same by both ways.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "sandboxfs/cleanup.h"

struct saving {
	struct sbx_pending_impl step;         /* of the write, then of the flush; P's meanwhile */
	const struct sbx_pending_impl *whole; /* P's own */
	struct sbx_pending *p;
	struct sbx_control_handle *h;
	char *data;
};

static void end(struct saving *s, int errnum)
{
	struct sbx_pending *p = s->p;

	p->impl = s->whole;
	sbx_control_release(s->h);
	free(s->data);
	free(s);
	sbx_pending_error(p, errnum);
}

static struct saving *saving_of(const struct sbx_pending *p)
{
	return sbx_container_of(p->impl, struct saving, step);
}

/*
 * A write that was parked is answered on the loop thread, where cancels come from. One that was not
 * has left nothing to cancel: P is cancellable only while a step of it is parked.
 */
static void flush(struct saving *s)
{
	__atomic_store_n(&s->p->cancel, NULL, __ATOMIC_RELEASE);
	s->p->size = 0;
	sbx_control_flush(s->h, false, s->p);
}

static void step_count(struct sbx_pending *p, size_t n)
{
	(void)n;
	flush(saving_of(p));
}

static void step_error(struct sbx_pending *p, int errnum)
{
	end(saving_of(p), errnum);
}

static int refuse(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (node->row->ops != &sbx_control_exec_ops || node->row->arg != SBX_JOB_RUN)
		return 0;
	sbx_fail(
	        &err, EOPNOTSUPP,
	        "what run answers is read on the open file that the request is written to; save to "
	        "exec instead");
	sbx_error_store(reg, node->box, &err);
	return -err.code;
}

static int begin(struct sbx_registry *reg, const struct sbx_control_node *node,
                 struct sbx_pending *p, struct saving **ret)
{
	struct saving *s;
	int r = refuse(reg, node);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	r = sbx_control_open(reg, node, O_WRONLY, &s->h);
	if (r < 0) {
		free(s);
		return r;
	}
	s->step = (struct sbx_pending_impl){.count = step_count, .error = step_error};
	s->whole = p->impl;
	s->p = p;
	p->impl = &s->step;
	*ret = s;
	return 0;
}

/* A setting takes complete lines, and none at all as well. DATA has room for a byte more. */
static void write_setting(struct saving *s, size_t len)
{
	const struct control_ops *ops = s->h->node.row->ops;
	int r;

	if (len == 0 && ops->truncate) {
		r = ops->truncate(s->h->reg, &s->h->node);
		end(s, -r);
		return;
	}
	if (len && s->data[len - 1] != '\n')
		s->data[len++] = '\n';
	s->p->size = len;
	sbx_control_write(s->h, s->data, len, 0, s->p);
}

void sbx_control_save(struct sbx_registry *reg, const struct sbx_control_node *node, char *data,
                      size_t len, struct sbx_pending *p)
{
	const struct control_ops *ops = node->row->ops;
	struct saving *s = NULL;
	int r = begin(reg, node, p, &s);

	if (r < 0) {
		free(data);
		sbx_pending_error(p, -r);
		return;
	}
	s->data = data;
	if (ops && ops->set) {
		write_setting(s, len);
	} else if (len) {
		s->p->size = len;
		sbx_control_write(s->h, data, len, 0, s->p);
	} else {
		flush(s);
	}
}
