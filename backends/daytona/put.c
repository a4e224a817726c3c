/* Files that are uploaded, all by one request: for each its path, and then its bytes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

#define NAME_MAX_BYTES 40 /* of "files[N].path" */
#define QUIET_MS       60000

struct part {
	struct daytona_send send;
	struct sbx_machine_put *put;
	struct sbx_http_part *parts; /* two of each file */
	char *names;                 /* NAME_MAX_BYTES each */
	char *paths;                 /* path_size each */
	size_t path_size;
};

static void part_free(struct part *p)
{
	free(p->parts);
	free(p->names);
	free(p->paths);
	free(p);
}

/* ---- answers ---- */

/* The upload's own refusal has a list of errors; that of a machine that is not up has none. */
static bool is_own_refusal(const struct sbx_http_answer *answer)
{
	struct json_object *obj = daytona_parse(answer->body, answer->len);
	const bool own = daytona_member(obj, "errors", json_type_array);

	json_object_put(obj);
	return own;
}

/* What was written is listed, in the order of what was sent. */
static int read_written(struct daytona_send *s, const struct sbx_http_answer *answer,
                        struct sbx_error *err)
{
	struct part *p = sbx_container_of(s, struct part, send);
	struct json_object *obj = daytona_parse(answer->body, answer->len);
	struct json_object *files = daytona_member(obj, "files", json_type_array);
	const size_t n = files ? json_object_array_length(files) : 0;
	bool same = n == p->put->n;

	for (size_t i = 0; same && i < n; i++) {
		struct json_object *bytes, *file = json_object_array_get_idx(files, i);

		same = file && json_object_is_type(file, json_type_object) &&
		       json_object_object_get_ex(file, "bytes", &bytes) &&
		       json_object_get_int64(bytes) == (int64_t)p->put->files[i].bytes.size;
	}
	json_object_put(obj);
	return same ? 0 : sbx_fail(err, EREMOTEIO, "Daytona has not kept all that was uploaded");
}

/* A full disk is the only reason that somebody can do something about. */
static void ended(struct daytona_send *s, int code, const struct sbx_error *err)
{
	struct part *p = sbx_container_of(s, struct part, send);
	struct sbx_machine_put *put = p->put;
	struct sbx_error own = *err;

	pthread_mutex_lock(&s->m->lock);
	put->part = NULL;
	pthread_mutex_unlock(&s->m->lock);
	part_free(p);
	if (code == -EINVAL) {
		own.code = strstr(own.text, "no space left") ? ENOSPC : EREMOTEIO;
		code = -own.code;
	}
	put->done(put, code, &own);
}

/* ---- requests ---- */

static int allocate(struct part *p)
{
	const size_t n = p->put->n;

	p->path_size = strlen(p->send.m->base.room) + sizeof("/in/4294967295");
	p->parts = calloc(2 * n, sizeof(*p->parts));
	p->names = malloc(2 * n * NAME_MAX_BYTES);
	p->paths = malloc(n * p->path_size);
	return p->parts && p->names && p->paths ? 0 : -ENOMEM;
}

static void set_file(struct part *p, size_t i)
{
	const struct sbx_machine_file *file = &p->put->files[i];
	char *name = p->names + 2 * i * NAME_MAX_BYTES, *path = p->paths + i * p->path_size;
	struct sbx_http_part *parts = p->parts + 2 * i;
	const int n = snprintf(path, p->path_size, "%s/in/%u", p->send.m->base.room, file->number);

	snprintf(name, NAME_MAX_BYTES, "files[%zu].path", i);
	parts[0] = (struct sbx_http_part){.name = name, .bytes = {.data = path, .size = (size_t)n}};
	name += NAME_MAX_BYTES;
	snprintf(name, NAME_MAX_BYTES, "files[%zu].file", i);
	parts[1] = (struct sbx_http_part){.name = name,
	                                  .filename = strrchr(path, '/') + 1,
	                                  .type = "application/octet-stream",
	                                  .bytes = file->bytes};
}

static void set_up(struct part *p)
{
	struct sbx_machine_put *put = p->put;
	struct sbx_http_request *http = &p->send.http;

	for (size_t i = 0; i < put->n; i++)
		set_file(p, i);
	p->send.path = "/files/bulk-upload";
	p->send.own_refusal = is_own_refusal;
	p->send.read = read_written;
	p->send.ended = ended;
	http->op = put->op;
	http->parts = p->parts;
	http->parts_n = 2 * put->n;
	http->deadline_ms = put->deadline_ms;
	http->quiet_ms = QUIET_MS;
	http->answer_max = (uint64_t)1 << 24;
	http->repeat = SBX_HTTP_SAFE;
	put->part = p;
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

void daytona_put(struct sbx_machine *machine, struct sbx_machine_put *put)
{
	struct sbx_loop *loop = daytona_of(machine->provider)->config.loop;
	struct part *p = put->n ? calloc(1, sizeof(*p)) : NULL;

	put->part = NULL;
	if (!put->n) {
		sbx_loop_post(loop, nothing, put);
		return;
	}
	if (p) {
		p->send.m = daytona_machine_of(machine);
		p->put = put;
	}
	if (!p || allocate(p) < 0) {
		if (p)
			part_free(p);
		sbx_loop_post(loop, no_memory, put);
		return;
	}
	set_up(p);
	daytona_send_begin(&p->send);
}

void daytona_cancel_put(struct sbx_machine *machine, struct sbx_machine_put *put)
{
	struct daytona_machine *m = daytona_machine_of(machine);

	pthread_mutex_lock(&m->lock);
	if (put->part)
		daytona_send_cancel(&((struct part *)put->part)->send);
	pthread_mutex_unlock(&m->lock);
}
