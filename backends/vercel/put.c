/* Files that are put, all by one request: a compressed tar, which a thread of the pool makes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define QUIET_MS 60000

struct part {
	struct vercel_send send;
	struct sbx_machine_put *put;
	char *dir;
	int fd; /* of the tar; -1: none yet */
	uint64_t size;
};

static struct part *part_of(struct vercel_send *s)
{
	return sbx_container_of(s, struct part, send);
}

static void part_free(struct part *p)
{
	if (p->fd >= 0)
		close(p->fd);
	free(p->dir);
	free(p);
}

/* What is unpacked twice is the same as once. */
static void prepare(struct vercel_send *s)
{
	struct part *p = part_of(s);

	s->http = (struct sbx_http_request){
	        .op = p->put->op,
	        .method = "POST",
	        .body = {.fd = p->fd, .size = p->size},
	        .deadline_ms = vercel_send_left(s) + 1,
	        .quiet_ms = QUIET_MS,
	        .repeat = SBX_HTTP_SAFE,
	        .json = true,
	};
	snprintf(s->path, sizeof(s->path), "/fs/write");
	s->wakes = true;
}

/* A full disk is the only reason that somebody can do something about. */
static enum vercel_next answered(struct vercel_send *s)
{
	if (s->code == -EINVAL) {
		s->err.code = strcasestr(s->err.text, "no space left") ? ENOSPC : EREMOTEIO;
		s->code = -s->err.code;
	}
	return VERCEL_END;
}

static void ended(struct vercel_send *s)
{
	struct part *p = part_of(s);
	struct sbx_machine_put *put = p->put;
	const struct sbx_error err = s->err;
	const int code = s->code;

	pthread_mutex_lock(&s->m->lock);
	put->part = NULL;
	pthread_mutex_unlock(&s->m->lock);
	part_free(p);
	put->done(put, code, &err);
}

/* [pool] */
static void make_tar(void *data)
{
	struct part *p = data;
	struct vercel *v = vercel_of(p->send.m->base.provider);
	struct sbx_error err = SBX_ERROR_INIT;
	int r = vercel_tar(p->put->files, p->put->n, p->dir, v->config.spool, &p->send.given_up,
	                   &p->fd, &p->size, &err);

	if (r)
		vercel_send_fail(&p->send, r, &err);
	else
		vercel_send_begin(&p->send);
}

/* [loop] */
static void no_memory(void *data)
{
	struct sbx_machine_put *put = data;
	struct sbx_error err = SBX_ERROR_INIT;
	const int r = sbx_no_memory(&err);

	put->done(put, r, &err);
}

/* [loop] */
static void nothing(void *data)
{
	struct sbx_machine_put *put = data;

	put->done(put, 0, &SBX_ERROR_INIT);
}

static struct part *part_new(struct vercel_machine *m, struct sbx_machine_put *put)
{
	struct part *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->fd = -1;
	p->put = put;
	p->dir = sbx_format("%s/in", m->base.room);
	if (!p->dir) {
		part_free(p);
		return NULL;
	}
	p->send.m = m;
	p->send.type = "Content-Type: application/gzip";
	p->send.header = "x-cwd: /";
	p->send.budget_ms = put->deadline_ms;
	p->send.prepare = prepare;
	p->send.answered = answered;
	p->send.ended = ended;
	return p;
}

void vercel_put(struct sbx_machine *machine, struct sbx_machine_put *put)
{
	struct vercel *v = vercel_of(machine->provider);
	struct part *p = put->n ? part_new(vercel_machine_of(machine), put) : NULL;

	put->part = p;
	if (!put->n)
		sbx_loop_post(v->config.loop, nothing, put);
	else if (!p)
		sbx_loop_post(v->config.loop, no_memory, put);
	else
		sbx_pool_submit(v->pool, make_tar, p);
}

void vercel_cancel_put(struct sbx_machine *machine, struct sbx_machine_put *put)
{
	struct vercel_machine *m = vercel_machine_of(machine);

	pthread_mutex_lock(&m->lock);
	if (put->part)
		vercel_send_cancel(&((struct part *)put->part)->send);
	pthread_mutex_unlock(&m->lock);
}
