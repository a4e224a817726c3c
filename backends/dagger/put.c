/*
 * Files that are put into a machine. They are copied to a directory of this host, from where the
 * process of the session brings them to the engine as they are, whatever bytes they have. The next
 * run finds them in its container.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define PIECE 65536

struct part {
	struct dagger_query query;
	struct dagger_machine *m;
	struct sbx_machine_put *put;
	struct dagger_upload *upload;
	bool given_up, begun; /* lock of the provider */
	int code;
	struct sbx_error err;
};

void dagger_write_upload(FILE *to, const char *stage, bool file)
{
	fprintf(to, "{host{%s(path:", file ? "file" : "directory");
	dagger_literal(to, stage);
	fputs(",noCache:true){id}}}", to);
}

/* ---- copying ---- */

static int copy_file(const struct sbx_http_bytes *bytes, int to)
{
	char piece[PIECE];
	uint64_t at = 0;

	while (at < bytes->size) {
		const uint64_t left = bytes->size - at;
		const size_t want = left < PIECE ? (size_t)left : PIECE;
		const ssize_t n = pread(bytes->fd, piece, want, (off_t)(bytes->offset + at));
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO; /* it has become shorter */
		r = sbx_write_all(to, piece, (size_t)n);
		if (r)
			return r;
		at += (uint64_t)n;
	}
	return 0;
}

static int copy_one(const struct sbx_machine_file *file, int dir)
{
	_cleanup_fd_ int to = -1;
	char name[32];

	snprintf(name, sizeof(name), "%llu", (unsigned long long)file->number);
	to = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (to < 0)
		return -errno;
	return file->bytes.data ? sbx_write_all(to, file->bytes.data, file->bytes.size)
	                        : copy_file(&file->bytes, to);
}

static bool is_given_up(struct part *p)
{
	bool given_up;

	pthread_mutex_lock(&p->query.d->lock);
	given_up = p->given_up;
	pthread_mutex_unlock(&p->query.d->lock);
	return given_up;
}

static int copy_all(struct part *p, struct sbx_error *err)
{
	_cleanup_fd_ int dir =
	        open(p->upload->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = dir < 0 ? -errno : 0;

	for (size_t i = 0; i < p->put->n && !r; i++)
		r = is_given_up(p) ? -EINTR : copy_one(&p->put->files[i], dir);
	if (r == -EINTR)
		return sbx_fail(err, EINTR, "it was given up");
	return r ? sbx_fail(err, -r, "files for the sandbox cannot be copied to %s: %s",
	                    p->upload->stage, strerror(-r))
	         : 0;
}

/* ---- the query ---- */

static int write_put(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct part *p = sbx_container_of(q, struct part, query);

	(void)session;
	dagger_write_upload(to, p->upload->stage, false);
	return 0;
}

static int read_put(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct part *p = sbx_container_of(q, struct part, query);
	struct dagger_upload **at = &p->m->uploads;
	int r = dagger_steal_text(data, "id", &p->upload->id, err);

	if (r)
		return r;
	p->upload->session = q->session->number;
	pthread_mutex_lock(&q->d->lock);
	while (*at)
		at = &(*at)->next;
	*at = sbx_steal_ptr(&p->upload);
	pthread_mutex_unlock(&q->d->lock);
	return 0;
}

/* ---- the end ---- */

/* [loop] */
static void finish(struct part *p, int code, const struct sbx_error *err)
{
	struct sbx_machine_put *put = p->put;

	pthread_mutex_lock(&p->query.d->lock);
	put->part = NULL;
	pthread_mutex_unlock(&p->query.d->lock);
	free(p);
	put->done(put, code, err);
}

/* [pool] What was not brought is of no use. */
static void clear_away(struct part *p)
{
	if (p->upload && p->upload->stage)
		dagger_stage_remove(p->query.d, p->upload->stage);
	if (p->upload)
		dagger_upload_free(p->upload);
	p->upload = NULL;
}

/* [loop] */
static void failed(void *data)
{
	struct part *p = data;
	struct dagger *d = p->query.d;
	const struct sbx_error err = p->err;

	finish(p, p->code, &err);
	dagger_unref(d);
}

/* [pool] */
static void give_up_in_pool(void *data)
{
	struct part *p = data;

	clear_away(p);
	sbx_loop_post(p->query.d->config.loop, failed, p);
}

/* [loop] */
static void ended(struct dagger_query *q, int code, const struct sbx_error *err)
{
	struct part *p = sbx_container_of(q, struct part, query);

	if (!code) {
		finish(p, 0, err);
		return;
	}
	p->code = code;
	p->err = *err;
	dagger_ref(q->d);
	sbx_pool_submit(q->d->pool, give_up_in_pool, p);
}

/* ---- beginning ---- */

/* [pool] */
static void begin(void *data)
{
	struct part *p = data;
	struct dagger *d = p->query.d;
	char word[32];

	snprintf(word, sizeof(word), "%s-%llu", d->nonce + 8, atomic_fetch_add(&d->count, 1));
	p->upload = calloc(1, sizeof(*p->upload));
	if (!p->upload)
		p->code = sbx_no_memory(&p->err);
	else
		p->code = dagger_stage_make(d, p->m->name, word, &p->upload->stage, &p->err);
	if (!p->code)
		p->code = copy_all(p, &p->err);
	if (p->code) {
		give_up_in_pool(p);
		return;
	}
	pthread_mutex_lock(&d->lock);
	p->begun = true;
	p->query.given_up = p->given_up;
	pthread_mutex_unlock(&d->lock);
	dagger_query_begin(&p->query);
	dagger_unref(d);
}

/* [loop] */
static void no_memory(void *data)
{
	struct sbx_machine_put *put = data;
	struct sbx_error err = SBX_ERROR_INIT;
	const int r = sbx_no_memory(&err);

	put->done(put, r, &err);
}

void dagger_put(struct sbx_machine *machine, struct sbx_machine_put *put)
{
	struct dagger *d = dagger_of(machine->provider);
	struct part *p = calloc(1, sizeof(*p));

	put->part = p;
	if (!p) {
		sbx_loop_post(d->config.loop, no_memory, put);
		return;
	}
	p->m = dagger_machine_of(machine);
	p->put = put;
	p->query = (struct dagger_query){.d = d,
	                                 .op = put->op,
	                                 .deadline_ms = put->deadline_ms,
	                                 .repeat = SBX_HTTP_SAFE,
	                                 .write = write_put,
	                                 .read = read_put,
	                                 .ended = ended};
	dagger_ref(d);
	sbx_pool_submit(d->pool, begin, p);
}

void dagger_cancel_put(struct sbx_machine *machine, struct sbx_machine_put *put)
{
	struct dagger *d = dagger_of(machine->provider);
	struct part *p;

	pthread_mutex_lock(&d->lock);
	p = put->part;
	if (p) {
		p->given_up = true;
		if (p->begun)
			dagger_query_cancel(&p->query);
	}
	pthread_mutex_unlock(&d->lock);
}
