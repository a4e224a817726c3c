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
	struct sbx_pending step; /* of the write, then of the flush */
	struct sbx_pending *p;
	struct sbx_control_handle *h;
	char *data;
};

static void end(struct saving *s, int errnum)
{
	struct sbx_pending *p = s->p;

	sbx_control_release(s->h);
	free(s->data);
	free(s);
	sbx_pending_error(p, errnum);
}

/* A step that was parked is answered on the loop thread, where cancels come from: nothing is
 * cancelled in between. */
static void flush(struct saving *s)
{
	s->step.cancel = NULL;
	s->step.size = 0;
	sbx_control_flush(s->h, false, &s->step);
}

static void step_count(struct sbx_pending *p, size_t n)
{
	(void)n;
	flush(sbx_container_of(p, struct saving, step));
}

static void step_error(struct sbx_pending *p, int errnum)
{
	end(sbx_container_of(p, struct saving, step), errnum);
}

static const struct sbx_pending_impl step_impl = {.count = step_count, .error = step_error};

static void cancel(struct sbx_pending *p, bool fatal)
{
	struct saving *s = p->owner;

	sbx_pending_cancel(&s->step, fatal);
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
	s->step.impl = &step_impl;
	s->step.pid = p->pid;
	s->p = p;
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
	s->step.size = len;
	sbx_control_write(s->h, s->data, len, 0, &s->step);
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
	sbx_pending_defer(p, cancel, s);
	if (ops && ops->set) {
		write_setting(s, len);
	} else if (len) {
		s->step.size = len;
		sbx_control_write(s->h, data, len, 0, &s->step);
	} else {
		flush(s);
	}
}
