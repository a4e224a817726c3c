/*
 * A script that runs in a machine: in the newest container, with all files that were put since, and
 * what comes out of it is the newest from then on. So a run that fails, or is given up, has changed
 * nothing; and one that is sent twice, as its answer was lost, goes on from the same container, and
 * is not run again where the engine has its end already.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/support/escape.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"

#define ANSWER_ROOM  ((size_t)1024 * 1024) /* of an answer, beside output and id */
#define WORD_MAX     ((size_t)128 * 1024)  /* of a command line */
#define TRIES        3                     /* with a session that ends meanwhile */
#define LAYERS_FIRST 4                     /* of a run that empties the room, and gives a mark */

/*
 * Nothing is done in a container that has another mark than the second word. The engine adds
 * variables that are its own, and there are two of ours; none is the script's business.
 * The script's exit status is not the engine's: it gives up what a command has done that ended by a
 * signal, and so would say 128 to 191.
 */
#define CLEAR                                                                                      \
	"[ \"$" DAGGER_ID_NAME "\" = \"$2\" ] || exit 0; "                                         \
	"unset " DAGGER_ID_NAME " SANDBOXFS_NONCE BAGGAGE TRACEPARENT TRACESTATE "                 \
	"$(env | sed -n 's/^\\(OTEL_[A-Z0-9_]*\\)=.*/\\1/p') 2>/dev/null; "
#define PLAIN  CLEAR "sh -c \"$1\"; exit 0"
#define FORMAT CLEAR "sh -c \"$(printf \"$1\")\"; exit 0"

struct part {
	struct dagger_query query, again;
	struct dagger_machine *m;
	struct sbx_machine_run *run;
	struct dagger_query *current; /* of all; lock of the provider */
	struct dagger_flatten flatten;
	char *script;
	bool format;
	char nonce[48];
	const char *mark; /* of the container that it starts from */
	bool first;       /* of a copy, or behind a way back: the room is another's */
	char *out;
	size_t len;
	size_t uploads;   /* how many of the machine's were sent along */
	uint64_t session; /* that knows uploads */
	struct dagger_upload *stale;
	unsigned tries;
	bool ran; /* a container has come of it */
};

char *dagger_script(const char *script, size_t len, bool *format)
{
	char *text = malloc(4 * len + 1), *to = text;

	*format = !dagger_is_utf8(script, len);
	for (size_t i = 0; text && i < len; i++) {
		const unsigned char c = (unsigned char)script[i];

		if (*format && (c >= 0x80 || c == '\\' || c == '%' || c == '\r'))
			to = sbx_put_octal(to, c);
		else
			*to++ = (char)c;
	}
	if (text)
		*to = '\0';
	return text;
}

/* ---- the query ---- */

static void write_owner(const struct part *p, FILE *to)
{
	if (*p->m->owner) {
		fputs(",owner:", to);
		dagger_literal(to, p->m->owner);
	}
	fputs("){", to);
}

/* The room of a copy is empty: what is in it speaks of what another's host has sent. */
static void write_room(const struct part *p, const struct dagger_session *session, FILE *to)
{
	fputs("withoutDirectory(path:\"" DAGGER_ROOM "\"){withDirectory(path:\"" DAGGER_ROOM
	      "\",source:",
	      to);
	dagger_literal(to, session->empty);
	write_owner(p, to);
}

/* What comes out of it has a mark of its own, behind which the command runs no more: the shell has
 * compared the one before. The last step is one whose result the engine keeps. */
static void write_mark(const struct part *p, FILE *to)
{
	fputs("withLabel(name:\"" DAGGER_LABEL_NAME "\",value:", to);
	dagger_literal(to, p->m->name);
	fputs("){withEnvVariable(name:\"" DAGGER_ID_NAME "\",value:", to);
	dagger_literal(to, p->m->name);
	fputs("){withNewFile(path:\"" DAGGER_ROOM "/copied\",contents:\"\",permissions:420", to);
	write_owner(p, to);
	fputs("sync}}}", to);
}

/* Under the lock. How many uploads of M there are; -EAGAIN: a session that is no more has some. */
static int write_uploads(struct part *p, const struct dagger_session *session, FILE *to)
{
	p->uploads = 0;
	p->session = session->number;
	for (struct dagger_upload *u = p->m->uploads; u; u = u->next) {
		if (u->session != session->number)
			return -EAGAIN;
		fputs("withDirectory(path:\"" DAGGER_ROOM "/in\",source:", to);
		dagger_literal(to, u->id);
		write_owner(p, to);
		p->uploads++;
	}
	return 0;
}

static int write_run(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct part *p = sbx_container_of(q, struct part, query);
	bool saved;
	int r;

	pthread_mutex_lock(&q->d->lock);
	saved = p->m->saved;
	p->mark = dagger_machine_mark(p->m);
	p->first = p->m->first;
	q->answer_max = 2 * p->run->answer_max + 2 * strlen(p->m->id) + ANSWER_ROOM;
	dagger_begin_machine(session, to, p->m->id);
	if (p->first)
		write_room(p, session, to);
	r = write_uploads(p, session, to);
	pthread_mutex_unlock(&q->d->lock);
	fprintf(to,
	        "withEnvVariable(name:\"SANDBOXFS_NONCE\",value:\"%s\"){"
	        "withExec(args:[\"sh\",\"-c\",",
	        p->nonce);
	dagger_literal(to, p->format ? FORMAT : PLAIN);
	fputs(",\"sh\",", to);
	dagger_literal(to, p->script);
	fprintf(to, ",\"%s\"", p->mark);
	fputs("],expect:ANY){exitCode stdout stderr ", to);
	if (saved)
		fputs(DAGGER_DIGEST " ", to);
	if (p->first)
		write_mark(p, to);
	else
		fputs("id", to);
	fputs(p->first ? "}}}}" : "}}", to);
	for (size_t i = 0; i < p->uploads; i++)
		putc('}', to);
	dagger_end_container(session, to);
	return r;
}

static int read_output(struct part *p, struct json_object *data, struct sbx_error *err)
{
	struct json_object *code = dagger_find(data, "exitCode", json_type_int);
	struct json_object *out = dagger_find(data, "stdout", json_type_string);
	const char *complaint = dagger_find_text(data, "stderr");

	if (!code || !out)
		return sbx_fail(err, EPROTO, "an answer of Dagger has no output");
	if (json_object_get_int64(code))
		return sbx_fail(err, ENOEXEC, "no shell runs in the container: %.300s",
		                complaint && *complaint ? complaint : "it says nothing");
	p->len = (size_t)json_object_get_string_len(out);
	if (p->len > p->run->answer_max)
		return sbx_fail(err, EMSGSIZE, "the output is too long");
	p->out = malloc(p->len + 1);
	if (!p->out)
		return sbx_no_memory(err);
	memcpy(p->out, json_object_get_string(out), p->len + 1);
	return 0;
}

/* What was sent along is in the container. As long as an id says how to make it again, the files
 * have to stay. */
static void drop_uploads(struct part *p)
{
	struct dagger *d = p->query.d;

	for (size_t i = 0; i < p->uploads; i++) {
		struct dagger_upload *upload;

		pthread_mutex_lock(&d->lock);
		upload = p->m->uploads;
		p->m->uploads = upload->next;
		pthread_mutex_unlock(&d->lock);
		if (p->query.session->nodes)
			dagger_stage_remove(d, upload->stage);
		dagger_upload_free(upload);
	}
}

static int read_run(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct part *p = sbx_container_of(q, struct part, query);
	const char *digest = dagger_find_text(data, "digest");
	char *id = NULL;
	int r = dagger_check_machine(p->mark, data, err);

	p->ran = !r;
	if (!r)
		r = read_output(p, data, err);
	if (!r)
		r = dagger_steal_text(data, p->first ? "sync" : "id", &id, err);
	if (!r)
		r = dagger_machine_advance(p->m, id, digest ? strdup(digest) : NULL,
		                           (unsigned)p->uploads + (p->first ? LAYERS_FIRST : 1),
		                           err);
	if (!r)
		drop_uploads(p);
	return r;
}

/* ---- files whose session has ended are brought again ---- */

static int write_again(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct part *p = sbx_container_of(q, struct part, again);

	p->session = session->number;
	dagger_write_upload(to, p->stale->stage, false);
	return 0;
}

static int read_again(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct part *p = sbx_container_of(q, struct part, again);
	char *id = NULL;
	int r = dagger_steal_text(data, "id", &id, err);

	if (r)
		return r;
	pthread_mutex_lock(&q->d->lock);
	free(p->stale->id);
	p->stale->id = id;
	p->stale->session = q->session->number;
	pthread_mutex_unlock(&q->d->lock);
	return 0;
}

/* [loop] */
static void go_on(struct part *p)
{
	struct dagger *d = p->query.d;
	struct dagger_query *next;

	pthread_mutex_lock(&d->lock);
	p->stale = p->m->uploads;
	while (p->stale && p->stale->session == p->session)
		p->stale = p->stale->next;
	next = p->stale ? &p->again : &p->query;
	next->given_up = p->current->given_up;
	p->current = next;
	pthread_mutex_unlock(&d->lock);
	dagger_query_begin(next);
}

/* ---- a container with many layers gets one before ---- */

/* [loop] */
static void flattened(struct dagger_flatten *f)
{
	struct part *p = sbx_container_of(f, struct part, flatten);
	struct dagger *d = p->query.d;

	pthread_mutex_lock(&d->lock);
	p->query.given_up = p->current->given_up;
	p->current = &p->query;
	pthread_mutex_unlock(&d->lock);
	dagger_query_begin(&p->query);
}

static void begin(struct part *p)
{
	struct dagger *d = p->query.d;
	bool due;

	pthread_mutex_lock(&d->lock);
	due = dagger_flatten_due(p->m);
	if (due)
		p->current = &p->flatten.copy;
	pthread_mutex_unlock(&d->lock);
	if (due)
		dagger_flatten_begin(&p->flatten);
	else
		dagger_query_begin(&p->query);
}

/* ---- the end ---- */

static void finish(struct part *p, int code, const struct sbx_error *err)
{
	struct sbx_machine_run *run = p->run;
	char *out = code ? NULL : sbx_steal_ptr(&p->out);
	const size_t len = code ? 0 : p->len;

	run->not_run = !p->ran && !p->query.unsure && sbx_machine_not_run(code);
	pthread_mutex_lock(&p->query.d->lock);
	run->part = NULL;
	pthread_mutex_unlock(&p->query.d->lock);
	free(p->script);
	free(p->out);
	free(p);
	run->done(run, code, out, len, err);
}

/* [loop] */
static void ended(struct dagger_query *q, int code, const struct sbx_error *err)
{
	struct part *p = sbx_container_of(q, struct part, query);

	if (code == -EAGAIN && !q->given_up && p->tries++ < TRIES)
		go_on(p);
	else
		finish(p, code, err);
}

/* [loop] */
static void brought_again(struct dagger_query *q, int code, const struct sbx_error *err)
{
	struct part *p = sbx_container_of(q, struct part, again);

	if (code)
		finish(p, code, err);
	else
		go_on(p);
}

/* ---- beginning ---- */

/* [loop] */
static void too_long(void *data)
{
	struct sbx_machine_run *run = data;
	struct sbx_error err = SBX_ERROR_INIT;
	const int r = sbx_fail(&err, E2BIG, "the script is too long for a command line");

	run->not_run = sbx_machine_not_run(r);
	run->done(run, r, NULL, 0, &err);
}

/* [loop] */
static void no_memory(void *data)
{
	struct sbx_machine_run *run = data;
	struct sbx_error err = SBX_ERROR_INIT;
	const int r = sbx_no_memory(&err);

	run->not_run = sbx_machine_not_run(r);
	run->done(run, r, NULL, 0, &err);
}

static void set_up(struct part *p, struct dagger *d)
{
	struct sbx_machine_run *run = p->run;
	const enum sbx_http_repeat repeat = run->safe ? SBX_HTTP_SAFE : SBX_HTTP_UNSENT;

	p->query = (struct dagger_query){.d = d,
	                                 .op = run->op,
	                                 .m = p->m,
	                                 .deadline_ms = run->deadline_ms,
	                                 .repeat = repeat,
	                                 .held = run->held,
	                                 .write = write_run,
	                                 .read = read_run,
	                                 .ended = ended};
	p->again = (struct dagger_query){.d = d,
	                                 .op = "dagger_upload",
	                                 .deadline_ms = run->deadline_ms,
	                                 .repeat = SBX_HTTP_SAFE,
	                                 .write = write_again,
	                                 .read = read_again,
	                                 .ended = brought_again};
	snprintf(p->nonce, sizeof(p->nonce), "%s-%llu", d->nonce, atomic_fetch_add(&d->count, 1));
	p->flatten = (struct dagger_flatten){.m = p->m, .current = &p->current, .ended = flattened};
	p->current = &p->query;
	run->part = p;
}

void dagger_run(struct sbx_machine *machine, struct sbx_machine_run *run)
{
	struct dagger *d = dagger_of(machine->provider);
	struct part *p = calloc(1, sizeof(*p));

	run->part = NULL;
	if (p)
		p->script = dagger_script(run->script, run->script_len, &p->format);
	if (!p || !p->script || strlen(p->script) >= WORD_MAX) {
		sbx_loop_post(d->config.loop, p && p->script ? too_long : no_memory, run);
		if (p)
			free(p->script);
		free(p);
		return;
	}
	p->m = dagger_machine_of(machine);
	p->run = run;
	set_up(p, d);
	begin(p);
}

void dagger_cancel_run(struct sbx_machine *machine, struct sbx_machine_run *run)
{
	struct dagger *d = dagger_of(machine->provider);
	struct part *p;

	pthread_mutex_lock(&d->lock);
	p = run->part;
	if (p)
		dagger_query_cancel(p->current);
	pthread_mutex_unlock(&d->lock);
}
