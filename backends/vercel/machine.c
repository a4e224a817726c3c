/*
 * A machine: what its handle says of it, so that a daemon that starts asks nobody, and the session
 * that it runs in by what was answered last.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define LEAST_MS 1000 /* by which a life can be made longer */

/* ---- what is kept ---- */

static void machine_free(struct vercel_machine *m)
{
	free(m->base.handle);
	free(m->base.workdir);
	free(m->base.room);
	free(m->name);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static char *handle_of(const char *name, const char *workdir)
{
	_cleanup_object_ struct json_object *obj = json_object_new_object();

	sbx_member_add(obj, "name", name);
	sbx_member_add(obj, "workdir", workdir);
	return strdup(sbx_object_text(obj, &(size_t){0}));
}

/*
 * The tree is the home of the user in there, so that the runner's files need another place: one
 * that is on the disk which a snapshot keeps, and where everybody may write.
 */
struct vercel_machine *vercel_machine_new(struct vercel *v, const char *name, const char *workdir)
{
	struct vercel_machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->base.provider = &v->base;
	pthread_mutex_init(&m->lock, NULL);
	m->base.handle = handle_of(name, workdir);
	m->base.workdir = strdup(workdir);
	m->base.room = sbx_format("/var/tmp/sandboxfs-%s", name);
	m->name = strdup(name);
	if (m->base.handle && m->base.workdir && m->base.room && m->name)
		return m;
	machine_free(m);
	return NULL;
}

void vercel_release(struct sbx_machine *m)
{
	machine_free(vercel_machine_of(m));
}

int vercel_adopt(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
                 struct sbx_error *err)
{
	_cleanup_object_ struct json_object *obj = sbx_object_read(handle, strlen(handle));
	const char *name = sbx_member_text(obj, "name"), *workdir = sbx_member_text(obj, "workdir");
	struct vercel_machine *m;

	*ret = NULL;
	if (!vercel_is_word(name, 128) || *workdir != '/')
		return sbx_fail(err, EPROTO, "the record names no sandbox of Vercel's");
	m = vercel_machine_new(vercel_of(p), name, workdir);
	if (!m)
		return sbx_no_memory(err);
	*ret = &m->base;
	return 0;
}

/* ---- its session ---- */

void vercel_machine_runs(struct vercel_machine *m, const struct vercel_box *box)
{
	pthread_mutex_lock(&m->lock);
	if (strcmp(m->session, box->session) != 0) {
		memcpy(m->session, box->session, sizeof(m->session));
		m->spent = false;
	}
	m->due_ms = sbx_now_ms() + box->left_ms;
	pthread_mutex_unlock(&m->lock);
}

void vercel_machine_stopped(struct vercel_machine *m, const char *session)
{
	pthread_mutex_lock(&m->lock);
	if (strcmp(m->session, session) == 0)
		*m->session = '\0';
	pthread_mutex_unlock(&m->lock);
}

uint64_t vercel_machine_short(struct vercel_machine *m, uint64_t need_ms)
{
	const uint64_t wanted_ms = sbx_now_ms() + need_ms;
	uint64_t ms = 0;

	pthread_mutex_lock(&m->lock);
	if (!m->spent && m->due_ms < wanted_ms)
		ms = wanted_ms - m->due_ms;
	pthread_mutex_unlock(&m->lock);
	return ms && ms < LEAST_MS ? LEAST_MS : ms;
}

void vercel_machine_extended(struct vercel_machine *m, uint64_t ms)
{
	pthread_mutex_lock(&m->lock);
	m->due_ms += ms;
	m->spent = !ms;
	pthread_mutex_unlock(&m->lock);
}

/* ---- looking at it ---- */

static int look(struct vercel_machine *m, struct vercel_box *box, atomic_bool *cancelled,
                struct sbx_error *err)
{
	char session[sizeof(m->session)];
	int r;

	pthread_mutex_lock(&m->lock);
	memcpy(session, m->session, sizeof(session));
	pthread_mutex_unlock(&m->lock);
	r = vercel_box_look(vercel_of(m->base.provider), m->name, box, cancelled, err);
	if (r)
		return r;
	/* A session that it was not known to have may be open: the next request looks after it. */
	if (box->look.state == SBX_MACHINE_UP && strcmp(session, box->session) == 0)
		vercel_machine_runs(m, box);
	else
		vercel_machine_stopped(m, session);
	return 0;
}

int vercel_look(struct sbx_machine *machine, struct sbx_machine_look *ret, atomic_bool *cancelled,
                struct sbx_error *err)
{
	struct vercel_box box;
	int r = look(vercel_machine_of(machine), &box, cancelled, err);

	if (!r)
		*ret = box.look;
	return r;
}

static int extend(struct vercel_machine *m, const char *session, uint64_t ms,
                  atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_object_ struct json_object *body = json_object_new_object();
	const struct vercel_ask ask = {
	        .op = "vercel_extend", .method = "POST", .body = body, .repeat = SBX_HTTP_UNSENT};
	struct vercel_said said;
	int r;

	json_object_object_add(body, "duration", json_object_new_int64((int64_t)ms));
	r = vercel_ask(vercel_of(m->base.provider), &ask, cancelled, &said, NULL, err,
	               "/v2/sandboxes/sessions/%s/extend-timeout", session);
	if (!r) {
		vercel_machine_extended(m, ms);
	} else if (said.status == 400) {
		vercel_machine_extended(m, 0);
		r = -EDQUOT;
		if (err)
			err->code = EDQUOT;
	} else if (said.status == 410 || said.status == 422) {
		vercel_machine_stopped(m, session);
		r = 0;
	}
	return r;
}

/* One that sleeps is not woken for it. */
int vercel_touch(struct sbx_machine *machine, atomic_bool *cancelled, struct sbx_error *err)
{
	struct vercel_machine *m = vercel_machine_of(machine);
	struct vercel *v = vercel_of(machine->provider);
	char session[sizeof(m->session)];
	struct vercel_box box;
	uint64_t ms;
	int r;

	pthread_mutex_lock(&m->lock);
	memcpy(session, m->session, sizeof(session));
	pthread_mutex_unlock(&m->lock);
	if (!*session) {
		r = vercel_box_look(v, m->name, &box, cancelled, err);
		if (r)
			return r;
		if (box.look.state == SBX_MACHINE_GONE)
			return sbx_fail(err, ESTALE, "the sandbox is no more at Vercel");
		if (box.look.state != SBX_MACHINE_UP)
			return 0;
		pthread_mutex_lock(&m->lock);
		m->due_ms = sbx_now_ms() + box.left_ms;
		pthread_mutex_unlock(&m->lock);
		memcpy(session, box.session, sizeof(session));
	}
	ms = vercel_machine_short(m, v->config.life_ms);
	return ms ? extend(m, session, ms, cancelled, err) : 0;
}
