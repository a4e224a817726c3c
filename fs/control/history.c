/*
 * snapshot, restore, reset, fork: each write is one operation. It runs in the pool, and the write
 * is answered when it is done. If the client is killed, the operation is asked to stop and the
 * write is answered once it has. An operation is done whole or not at all.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/creation.h"
#include "fs/control/history_args.h"
#include "fs/control/request_file.h"
#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/track.h"
#include "fs/util/json.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"

#define ARGS_MAX (64 * 1024) /* bytes of a message */

/* One wish that is being carried out. */
struct op {
	struct sbx_work work; /* but of fork */
	struct sbx_control_handle *h;
	struct args args;
};

/* Under the file's lock. */
struct options_all {
	char *buf; /* not taken yet */
	size_t len;
	struct op *op;                    /* of the present write */
	struct control_creation creation; /* of a fork */
};

static void operation_free(struct op *op)
{
	sbx_history_args_release(&op->args);
	free(op);
}

static void cleanup_operation(struct op **op)
{
	if (*op)
		operation_free(*op);
}

/* What is done */

static int run_snapshot(struct sbx_work *w, struct sbx_error *err)
{
	struct op *op = sbx_container_of(w, struct op, work);
	const struct sbx_snapshot_options args = {
	        .message = op->args.text,
	        .author = op->args.author,
	        .ignored = op->args.ignored,
	        .cancelled = &w->cancelled,
	};

	return sbx_history_snapshot(w->box->sandbox, &args, w->detail, err);
}

static int run_restore(struct sbx_work *w, struct sbx_error *err)
{
	struct op *op = sbx_container_of(w, struct op, work);

	return sbx_history_restore(w->box->sandbox, op->args.text, &w->cancelled, err);
}

static int run_undo(struct sbx_work *w, struct sbx_error *err)
{
	struct op *op = sbx_container_of(w, struct op, work);

	return sbx_box_track_undo(w->box, op->args.text, &w->cancelled, err);
}

/* By the row's arg */
static const struct {
	const char *event;
	enum sbx_work_kind kind;
	int (*run)(struct sbx_work *w, struct sbx_error *err);
} ops[] = {
        [HISTORY_OP_SNAPSHOT] = {"snapshot", SBX_WORK_BESIDE, run_snapshot},
        [HISTORY_OP_RESTORE] = {"restore", SBX_WORK_WRITES, run_restore},
        [HISTORY_OP_RESET] = {"reset", SBX_WORK_WRITES, run_restore},
        [HISTORY_OP_UNDO] = {"undo", SBX_WORK_WRITES, run_undo},
};

/* The file */

static bool available(const struct sbx_control_handle *h)
{
	return sbx_has_history(h->node.box->sandbox);
}

static int keep_id(const struct sbx_snapshot *snapshot, void *data)
{
	snprintf(data, SBX_REV_MAX, "%s\n", snapshot->id);
	return 0;
}

/*
 * Recalls the id that a read gives before this file has made one of its own: the last that there
 * is, unless a later one was asked for in vain. Then the last would be taken for the id of that.
 */
static int recall(struct sbx_control_handle *h, struct sbx_error *err)
{
	struct sbx_box *box = h->node.box;
	char id[SBX_REV_MAX] = "";
	int r = 0;

	if (!__atomic_load_n(&box->snapshot_failed, __ATOMIC_SEQ_CST))
		r = sbx_history_list(box->sandbox, keep_id, id, err);
	if (r >= 0)
		sbx_control_set_text(h, strdup(id));
	return r < 0 ? r : 0;
}

static int history_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	struct options_all *s;

	if (!available(h))
		return sbx_control_absent_ops.open(h, err);
	if (h->node.row->arg == HISTORY_OP_UNDO && !sbx_registry_settings(h->reg)->track)
		return sbx_fail(
		        err, EOPNOTSUPP,
		        "what a command changes is recorded, and undone, with -o track only");
	if ((h->flags & O_ACCMODE) != O_WRONLY) {
		int r = recall(h, err);

		if (r < 0)
			return r;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return sbx_no_memory(err);
	s->creation.h = h;
	h->state = s;
	return 0;
}

static void history_release(struct sbx_control_handle *h)
{
	struct options_all *s = h->state;

	free(s->buf);
	free(s);
}

static int history_feed(struct sbx_control_handle *h, const void *buf, size_t len,
                        struct sbx_error *err)
{
	struct options_all *s = h->state;
	int r = sbx_text_append(&s->buf, &s->len, buf, len, ARGS_MAX);

	if (r == -E2BIG)
		return sbx_fail(err, E2BIG, "at most 64 KiB can be written to %s",
		                h->node.row->name);
	return r ? sbx_no_memory(err) : 0;
}

static bool history_unfinished(struct sbx_control_handle *h)
{
	struct options_all *s = h->state;

	return s->len > 0;
}

static void history_drop(struct sbx_control_handle *h)
{
	struct options_all *s = h->state;

	s->len = 0;
}

/*
 * Whether what was written is a whole wish: a document in JSON, a message that ends a line, or a
 * word, however it ends: a failure that comes with close is lost on most clients.
 */
static bool is_whole(const struct options_all *s, bool final, bool word)
{
	const size_t blanks = strspn(s->buf, " \t\r\n");
	struct json_object *obj = NULL;
	size_t used;
	int r;

	if (final || s->buf[blanks] != '{')
		return final || word || s->buf[s->len - 1] == '\n';
	r = sbx_json_parse(s->buf + blanks, s->len - blanks, false, &obj, &used, NULL);
	json_object_put(obj);
	return r != 0;
}

/* All that was written, without the blanks around it; malloc'd. 1, 0: not whole yet, -errno. */
static int take_text(struct sbx_control_handle *h, bool final, char **ret, struct sbx_error *err)
{
	struct options_all *s = h->state;
	size_t from = 0, to = s->len;

	if (s->len == 0 || !is_whole(s, final, h->node.row->arg != HISTORY_OP_SNAPSHOT))
		return 0;
	s->len = 0;
	while (from < to && strchr(" \t\r\n", s->buf[from]) && s->buf[from])
		from++;
	while (to > from && strchr(" \t\r\n", s->buf[to - 1]) && s->buf[to - 1])
		to--;
	if (memchr(s->buf + from, '\0', to - from) ||
	    sbx_utf8_span(s->buf + from, to - from) != to - from)
		return sbx_fail(err, EINVAL, "what is written here is text in UTF-8");
	*ret = strndup(s->buf + from, to - from);
	return *ret ? 1 : sbx_no_memory(err);
}

/* [loop] */
static void operation_done(struct sbx_work *w)
{
	struct op *op = sbx_container_of(w, struct op, work);
	struct sbx_control_handle *h = op->h;
	struct options_all *s = h->state;
	struct sbx_error err = w->err;
	int code = w->code;
	char *line = NULL;

	if (code >= 0 && h->node.row->arg == HISTORY_OP_SNAPSHOT)
		__atomic_store_n(&h->node.box->snapshot_failed, false, __ATOMIC_SEQ_CST);
	if (code >= 0 && w->detail[0] && asprintf(&line, "%s\n", w->detail) < 0)
		line = NULL;
	pthread_mutex_lock(&h->lock);
	assert(s->op == op);
	s->op = NULL;
	if (line)
		sbx_control_set_text(h, line);
	pthread_mutex_unlock(&h->lock);
	operation_free(op);
	sbx_request_file_done(h, code, &err);
}

/* The lock is held. */
static void begin(struct sbx_control_handle *h, struct op *op)
{
	struct options_all *s = h->state;
	const int arg = h->node.row->arg;

	assert(!s->op);
	op->h = h;
	op->work.kind = ops[arg].kind;
	op->work.event = ops[arg].event;
	op->work.run = ops[arg].run;
	op->work.done = operation_done;
	s->op = op;
	sbx_box_work(h->node.box, &op->work);
}

static int history_start(struct sbx_control_handle *h, bool final, struct sbx_error *err)
{
	struct options_all *s = h->state;
	_cleanup_(cleanup_operation) struct op *op = calloc(1, sizeof(*op));
	_cleanup_free_ char *text = NULL;
	int r = op ? take_text(h, final, &text, err) : sbx_no_memory(err);

	if (r <= 0)
		return r;
	r = sbx_history_args_read(h->node.row->arg, text, &op->args, err);
	if (r < 0)
		return r;
	if (h->node.row->arg == HISTORY_OP_FORK)
		sbx_control_fork(&s->creation, &op->args.create, op->args.text);
	else
		begin(h, sbx_steal_ptr(&op));
	return 1;
}

static void history_cancel(struct sbx_control_handle *h)
{
	struct options_all *s = h->state;

	pthread_mutex_lock(&h->lock);
	if (s->op)
		sbx_work_cancel(&s->op->work);
	pthread_mutex_unlock(&h->lock);
	sbx_control_creation_cancel(&s->creation);
}

static void history_failed(struct sbx_control_handle *h, const struct sbx_error *err)
{
	(void)err;
	if (h->node.row->arg == HISTORY_OP_SNAPSHOT)
		__atomic_store_n(&h->node.box->snapshot_failed, true, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&h->lock);
	sbx_control_set_text(h, strdup(""));
	pthread_mutex_unlock(&h->lock);
}

static const struct request_file_impl history_requests = {
        .whole = true,
        .feed = history_feed,
        .start = history_start,
        .unfinished = history_unfinished,
        .drop = history_drop,
        .cancel = history_cancel,
        .failed = history_failed,
        .serve = sbx_control_serve_cursor,
};

const struct control_ops sbx_control_history_ops = {
        .open = history_open,
        .release = history_release,
        .requests = &history_requests,
};
