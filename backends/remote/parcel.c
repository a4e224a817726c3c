#include "backends/remote/parcel.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "backends/remote/deadline.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define CLEAR_MS 60000

static void load_begin(struct remote_parcel *p);

static void end(struct remote_parcel *p, int code)
{
	const struct sbx_error err = p->err;

	remote_load_release(&p->load);
	if (p->clears)
		remote_text_release(&p->clear.body);
	p->full = code == -ENOSPC || code == -EDQUOT;
	if (code < 0)
		remote_parcel_release(p);
	p->config.loaded(code, &err, p->config.data);
}

/* All contents are there: what is left is text. */
static void end_loaded(struct remote_parcel *p)
{
	p->err = SBX_ERROR_INIT;
	remote_batch_script(p->batch, &p->lines);
	p->apply_ms = p->batch->apply_ms;
	end(p, p->lines.failed ? sbx_no_memory(&p->err) : 0);
}

static void put(struct remote_parcel *p);

static void put_again(struct sbx_timer *t)
{
	put(t->data);
}

/* [loop] */
static void put_done(struct sbx_machine_put *done, int code, const struct sbx_error *err)
{
	struct remote_parcel *p = sbx_container_of(done, struct remote_parcel, put);
	const uint64_t pause = remote_pause_ms(p->config.link, p->repeats);

	p->putting = false;
	if (code == 0) {
		remote_load_release(&p->load);
		load_begin(p);
	} else if (!p->cancelled && !p->cleared && (code == -ENOSPC || code == -EDQUOT)) {
		/* The batch begins anew. */
		remote_load_release(&p->load);
		remote_parcel_release(p);
		p->clears = p->cleared = true;
		load_begin(p);
	} else if (!p->cancelled && remote_is_passing(code) &&
	           sbx_now_ns() + pause * 1000000 < p->due_ns) {
		p->repeats++;
		p->pausing = true;
		p->again = (struct sbx_timer){.fn = put_again, .data = p};
		sbx_loop_timer_set(p->config.loop, &p->again, pause);
	} else {
		p->err = *err;
		end(p, code);
	}
}

static uint64_t size_of(const struct remote_load *load)
{
	uint64_t size = 0;

	for (size_t i = 0; i < load->n; i++)
		size += load->files[i].bytes.size;
	return size;
}

static void put(struct remote_parcel *p)
{
	struct sbx_machine *m = remote_link_machine(p->config.link);
	const uint64_t size = size_of(&p->load);

	p->pausing = false;
	p->put = (struct sbx_machine_put){.op = "put",
	                                  .files = p->load.files,
	                                  .n = p->load.n,
	                                  .deadline_ms = remote_put_ms(size),
	                                  .done = put_done};
	p->putting = true;
	remote_link_count(p->config.link, size);
	m->provider->impl->put(m, &p->put);
}

/* Repeats take until twice the time that one has. */
static void put_begin(struct remote_parcel *p)
{
	p->repeats = 0;
	p->due_ns = sbx_now_ns() + 2 * remote_put_ms(size_of(&p->load)) * 1000000;
	put(p);
}

/* [loop] */
static void fetched(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct remote_parcel *p = w->data;

	if (code) {
		p->err = *err;
		end(p, -code);
		return;
	}
	remote_load_release(&p->load);
	load_begin(p);
}

/* A file that is to be sent is not wholly here: as after a restart, when its note is older. */
static void fetch_first(struct remote_parcel *p)
{
	p->want = (struct sbx_want){.need = SBX_NEED_DATA,
	                            .path = p->load.missing,
	                            .ino = p->load.ino,
	                            .done = fetched,
	                            .data = p};
	remote_tree_want(p->config.tree, &p->want);
}

/* [loop] What could not be removed is told by the put that follows. */
static void clear_called(struct remote_call *call, int code, struct remote_reply *reply,
                         const struct sbx_error *err)
{
	struct remote_parcel *p = call->data;

	(void)reply;
	if (code < 0) {
		p->err = *err;
		end(p, code);
	} else {
		load_begin(p);
	}
}

/* [loop] */
static void clear_begin(struct remote_parcel *p)
{
	p->clears = false;
	p->clear.op = "sync";
	p->clear.safe = true;
	p->clear.deadline_ms = remote_deadline(CLEAR_MS);
	p->clear.done = clear_called;
	p->clear.data = p;
	remote_call_begin(p->config.link, &p->clear);
}

/* [loop] */
static void opened(void *data)
{
	struct remote_parcel *p = data;

	if (p->cancelled && p->code >= 0)
		p->code = sbx_fail(&p->err, EINTR, "given up");
	if (p->code == -EAGAIN && p->load.missing)
		fetch_first(p);
	else if (p->code < 0)
		end(p, p->code);
	else if (!p->batch)
		end(p, 0);
	else if (p->clears)
		clear_begin(p);
	else if (!p->load.n)
		end_loaded(p);
	else
		put_begin(p);
}

static int open_file(const char *path, uint64_t ino, void *data)
{
	return remote_tree_open_file(data, path, ino);
}

/* [pool] With the turn held alone no operation stands between its note and its write. */
static int cut(struct remote_parcel *p)
{
	int r;

	pthread_rwlock_wrlock(p->config.sandbox->turn);
	r = remote_journal_cut(p->config.journal, &p->batch, &p->err);
	pthread_rwlock_unlock(p->config.sandbox->turn);
	if (r == 0 && p->batch)
		p->number = p->batch->number;
	return r;
}

/* As remote_source.text. */
static char *text_there(const char *target, void *data)
{
	return remote_tree_text_there(data, target);
}

/* [pool] */
static void load_work(void *data)
{
	struct remote_parcel *p = data;
	const struct remote_source from = {.root = remote_tree_root(p->config.tree),
	                                   .turn = p->config.sandbox->turn,
	                                   .open = open_file,
	                                   .text = text_there,
	                                   .data = p->config.tree};

	p->err = SBX_ERROR_INIT;
	p->code = p->batch ? 0 : cut(p);
	if (p->code == 0 && p->batch && p->clears) {
		p->clear = (struct remote_call){0};
		remote_journal_clear(p->config.journal, from.root, &p->clear.body);
		p->clears = p->clear.body.n && !p->clear.body.failed;
		if (!p->clears)
			remote_text_release(&p->clear.body);
	}
	if (p->code == 0 && p->batch && !p->clears)
		p->code = remote_batch_load(p->config.journal, p->batch, &from, &p->load, &p->err);
	sbx_loop_post(p->config.loop, opened, p);
}

static void load_begin(struct remote_parcel *p)
{
	sbx_pool_submit(p->config.pool, load_work, p);
}

void remote_parcel_load(struct remote_parcel *p)
{
	assert(!p->number && !p->lines.n);
	p->cancelled = false;
	p->clears = p->cleared = p->full;
	load_begin(p);
}

void remote_parcel_cancel(struct remote_parcel *p)
{
	struct sbx_machine *m = remote_link_machine(p->config.link);

	p->cancelled = true;
	if (p->putting) {
		m->provider->impl->cancel_put(m, &p->put);
	} else if (p->pausing) {
		sbx_loop_timer_cancel(p->config.loop, &p->again);
		p->pausing = false;
		sbx_loop_post(p->config.loop, opened, p);
	}
}

void remote_parcel_delivered(struct remote_parcel *p)
{
	const uint64_t number = p->number;

	for (size_t i = 0; i < p->batch->n; i++)
		remote_tree_sent(p->config.tree, p->batch->places[i].ino);
	remote_parcel_release(p);
	remote_journal_sent(p->config.journal, number);
}

void remote_parcel_release(struct remote_parcel *p)
{
	remote_text_release(&p->lines);
	p->batch = NULL;
	p->number = 0;
}
