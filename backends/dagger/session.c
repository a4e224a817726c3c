/*
 * The session by which the engine is asked: that of whoever started us (`dagger run`), or one of
 * our own, which is started when it is needed first and lives as long as the provider. Before it is
 * used it is asked which of the two kinds of ids it has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dagger/dagger_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/secret.h"

struct dagger_session *dagger_session_ref(struct dagger_session *session)
{
	if (session)
		session->refs++;
	return session;
}

void dagger_session_unref(struct dagger_session *session)
{
	if (!session || --session->refs)
		return;
	sbx_secret_free(session->own);
	free(session->version);
	free(session->empty);
	free(session);
}

/* ---- those who wait ---- */

/* [loop] */
static struct dagger_query *take_waiting(struct dagger *d)
{
	struct dagger_query *q;

	pthread_mutex_lock(&d->lock);
	q = dagger_queue_take(&d->waiting);
	if (q) {
		q->stage = DAGGER_READY;
		q->session = dagger_session_ref(d->session);
	}
	pthread_mutex_unlock(&d->lock);
	return q;
}

void dagger_session_failed(struct dagger *d, int code, const struct sbx_error *err)
{
	struct dagger_query *q;

	pthread_mutex_lock(&d->lock);
	d->starting = false;
	pthread_mutex_unlock(&d->lock);
	while ((q = take_waiting(d)))
		dagger_query_fail(q, code, err);
}

/* ---- the first question ---- */

static int write_probe(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	(void)q;
	(void)session;
	fputs("{version __schema{queryType{fields{name}}} directory{id}}", to);
	return 0;
}

/* Whether FIELDS, of the schema's root, has one of the name NODE. */
static bool has_node(struct json_object *fields)
{
	const size_t n = json_object_array_length(fields);

	for (size_t i = 0; i < n; i++) {
		struct json_object *item = json_object_array_get_idx(fields, i);
		const char *name = json_object_is_type(item, json_type_object)
		                           ? dagger_find_text(item, "name")
		                           : NULL;

		if (name && strcmp(name, "node") == 0)
			return true;
	}
	return false;
}

static int read_probe(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct json_object *fields = dagger_find(data, "fields", json_type_array);
	struct dagger_session *session = q->session;
	int r = dagger_steal_text(data, "version", &session->version, err);

	if (!r && !fields)
		r = sbx_fail(err, EPROTO, "Dagger does not say what it can");
	if (r)
		return r;
	session->nodes = has_node(fields);
	return dagger_steal_text(data, "id", &session->empty, err);
}

/* [loop] */
static void probed(struct dagger_query *q, int code, const struct sbx_error *err)
{
	struct dagger *d = q->d;
	struct dagger_session *session = d->probing;
	struct dagger_cli *cli = session->cli;

	pthread_mutex_lock(&d->lock);
	d->probe = NULL;
	d->probing = NULL;
	d->starting = false;
	if (code || d->leaving) {
		dagger_session_unref(session);
		session = NULL;
	} else {
		session->number = ++d->sessions;
		d->session = session;
	}
	pthread_mutex_unlock(&d->lock);
	free(q);
	if (!session) {
		if (cli)
			dagger_cli_end(cli);
		dagger_session_failed(d, code, err);
		return;
	}
	while ((q = take_waiting(d)))
		dagger_query_resume(q);
}

static struct dagger_session *session_new(unsigned port, const struct sbx_secret *token,
                                          struct sbx_secret *own, struct dagger_cli *cli)
{
	struct dagger_session *session = calloc(1, sizeof(*session));

	if (!session) {
		sbx_secret_free(own);
		return NULL;
	}
	snprintf(session->url, sizeof(session->url), "http://127.0.0.1:%u/query", port);
	session->refs = 1;
	session->token = token;
	session->own = own;
	session->cli = cli;
	return session;
}

void dagger_session_found(struct dagger *d, unsigned port, const struct sbx_secret *token,
                          struct sbx_secret *own, struct dagger_cli *cli)
{
	struct dagger_session *session = session_new(port, token, own, cli);
	struct dagger_query *q = session ? calloc(1, sizeof(*q)) : NULL;
	struct sbx_error err = SBX_ERROR_INIT;

	if (!q) {
		pthread_mutex_lock(&d->lock);
		dagger_session_unref(session);
		pthread_mutex_unlock(&d->lock);
		dagger_session_failed(d, sbx_no_memory(&err), &err);
		return;
	}
	*q = (struct dagger_query){.d = d,
	                           .op = "dagger_probe",
	                           .repeat = SBX_HTTP_SAFE,
	                           .write = write_probe,
	                           .read = read_probe,
	                           .ended = probed,
	                           .is_probe = true};
	pthread_mutex_lock(&d->lock);
	q->session = dagger_session_ref(session);
	d->probe = q;
	d->probing = session;
	pthread_mutex_unlock(&d->lock);
	dagger_query_begin(q);
}

/* ---- beginning, losing ---- */

/* [loop] Begun outside of the lock. */
static void start(void *data)
{
	struct dagger *d = data;
	const struct sbx_dagger_config *c = &d->config;
	struct sbx_error err = SBX_ERROR_INIT;
	bool leaving;

	pthread_mutex_lock(&d->lock);
	leaving = d->leaving;
	pthread_mutex_unlock(&d->lock);
	if (leaving)
		dagger_session_failed(d, sbx_fail(&err, EINTR, "it is being unmounted"), &err);
	else if (c->port)
		dagger_session_found(d, (unsigned)atoi(c->port), c->token, NULL, NULL);
	else
		dagger_cli_start(d);
	dagger_unref(d);
}

void dagger_session_start(struct dagger *d)
{
	if (d->starting)
		return;
	d->starting = true;
	d->refs++;
	sbx_loop_post(d->config.loop, start, d);
}

void dagger_session_lost(struct dagger *d, struct dagger_session *session)
{
	struct dagger_cli *cli = NULL;

	pthread_mutex_lock(&d->lock);
	if (session->cli && d->session == session) {
		cli = session->cli;
		d->session = NULL;
		dagger_session_unref(session);
	}
	pthread_mutex_unlock(&d->lock);
	if (cli)
		dagger_cli_end(cli);
}
