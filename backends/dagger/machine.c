/*
 * A machine: which container it is by now. Its handle is its name, since the rest is kept by
 * store.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dagger/dagger_impl.h"
#include "sandboxfs/cleanup.h"

void dagger_upload_free(struct dagger_upload *upload)
{
	free(upload->stage);
	free(upload->id);
	free(upload);
}

static void machine_free(struct dagger_machine *m)
{
	while (m->uploads) {
		struct dagger_upload *next = m->uploads->next;

		dagger_upload_free(m->uploads);
		m->uploads = next;
	}
	free(m->base.handle);
	free(m->base.workdir);
	free(m->base.room);
	free(m->name);
	free(m->label);
	free(m->owner);
	free(m->mark);
	free(m->needs);
	free(m->id);
	free(m->saved);
	free(m);
}

struct dagger_machine *dagger_machine_new(struct dagger *d, const char *name,
                                          struct dagger_kept *kept)
{
	struct dagger_machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->base.provider = &d->base;
	m->base.handle = strdup(name);
	m->base.workdir = strdup(DAGGER_WORKDIR);
	m->base.room = strdup(DAGGER_ROOM);
	m->name = strdup(name);
	m->label = strdup(kept->label);
	m->owner = strdup(kept->owner);
	m->made_ms = kept->made_ms;
	m->layers = kept->layers;
	m->id = sbx_steal_ptr(&kept->id);
	m->saved = sbx_steal_ptr(&kept->saved);
	m->mark = sbx_steal_ptr(&kept->mark);
	m->needs = sbx_steal_ptr(&kept->needs);
	m->first = m->mark;
	if (m->base.handle && m->base.workdir && m->base.room && m->name && m->label && m->owner)
		return m;
	machine_free(m);
	return NULL;
}

void dagger_release(struct sbx_machine *m)
{
	machine_free(dagger_machine_of(m));
}

int dagger_adopt(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
                 struct sbx_error *err)
{
	struct dagger *d = dagger_of(p);
	struct dagger_kept kept;
	struct dagger_machine *m;
	int r = dagger_load(d, handle, &kept, err);

	if (r == -ENOENT)
		return sbx_fail(err, ESTALE, "the container of the sandbox is not known any more");
	if (r)
		return r;
	m = dagger_machine_new(d, handle, &kept);
	dagger_kept_release(&kept);
	if (!m)
		return sbx_no_memory(err);
	*ret = &m->base;
	return 0;
}

/* What was at AT before. */
static char *swap(char **at, char *text)
{
	char *old = *at;

	*at = text;
	return old;
}

static int set(struct dagger_machine *m, char *id, char *saved, const char *first, unsigned layers,
               struct sbx_error *err)
{
	struct dagger *d = dagger_of(m->base.provider);
	const struct dagger_kept kept = {.id = id,
	                                 .label = m->label,
	                                 .owner = m->owner,
	                                 .saved = saved,
	                                 .mark = (char *)(uintptr_t)first,
	                                 .needs = m->needs,
	                                 .layers = layers,
	                                 .made_ms = m->made_ms};
	int r = dagger_store(d, m->name, &kept, err);

	if (!r) {
		pthread_mutex_lock(&d->lock);
		id = swap(&m->id, id);
		saved = swap(&m->saved, saved);
		m->first = first;
		m->layers = layers;
		pthread_mutex_unlock(&d->lock);
	}
	free(id);
	free(saved);
	return r;
}

/* Its turn is held, so that none but it changes what the container is. */
int dagger_machine_set(struct dagger_machine *m, char *id, char *saved, struct sbx_error *err)
{
	struct dagger *d = dagger_of(m->base.provider);
	const char *first;
	unsigned layers;

	pthread_mutex_lock(&d->lock);
	first = m->first;
	layers = m->layers;
	pthread_mutex_unlock(&d->lock);
	return set(m, id, saved, first, layers, err);
}

int dagger_machine_advance(struct dagger_machine *m, char *id, char *digest, unsigned layers,
                           struct sbx_error *err)
{
	struct dagger *d = dagger_of(m->base.provider);
	bool same;

	pthread_mutex_lock(&d->lock);
	layers += m->layers;
	same = m->saved && digest && strcmp(m->saved, digest) == 0;
	pthread_mutex_unlock(&d->lock);
	if (!same)
		free(sbx_steal_ptr(&digest));
	return set(m, id, digest, NULL, layers, err);
}

int dagger_machine_flatten(struct dagger_machine *m, char *id, unsigned layers,
                           struct sbx_error *err)
{
	struct dagger *d = dagger_of(m->base.provider);
	char *saved = NULL;
	bool no_memory;

	pthread_mutex_lock(&d->lock);
	m->not_flat = 0;
	if (m->saved)
		saved = strdup(m->saved);
	no_memory = m->saved && !saved;
	pthread_mutex_unlock(&d->lock);
	if (!no_memory)
		return set(m, id, saved, NULL, layers, err);
	free(id);
	return sbx_no_memory(err);
}

int dagger_machine_return(struct dagger_machine *m, char *id, unsigned layers,
                          struct sbx_error *err)
{
	return set(m, id, NULL, m->name, layers, err);
}

const char *dagger_machine_mark(const struct dagger_machine *m)
{
	return m->first ? m->first : m->name;
}

char *dagger_machine_id(struct dagger_machine *m, const char **mark, unsigned *layers)
{
	struct dagger *d = dagger_of(m->base.provider);
	char *id;

	pthread_mutex_lock(&d->lock);
	id = strdup(m->id);
	if (layers)
		*layers = m->layers;
	if (mark)
		*mark = dagger_machine_mark(m);
	pthread_mutex_unlock(&d->lock);
	return id;
}

/* ---- looking ---- */

struct looking {
	struct dagger_query query;
	struct dagger_machine *m;
	const char *mark; /* of the container that is asked for */
};

static int write_look(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct looking *l = sbx_container_of(q, struct looking, query);
	_cleanup_free_ char *id = dagger_machine_id(l->m, &l->mark, NULL);

	if (!id)
		return -ENOMEM;
	dagger_begin_machine(session, to, id);
	dagger_end_container(session, to);
	return 0;
}

static int read_look(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	return dagger_check_machine(sbx_container_of(q, struct looking, query)->mark, data, err);
}

int dagger_look(struct sbx_machine *machine, struct sbx_machine_look *ret, atomic_bool *cancelled,
                struct sbx_error *err)
{
	struct looking l = {.query = {.d = dagger_of(machine->provider),
	                              .op = "dagger_look",
	                              .repeat = SBX_HTTP_SAFE,
	                              .write = write_look,
	                              .read = read_look},
	                    .m = dagger_machine_of(machine)};
	int r = dagger_query_perform(&l.query, cancelled, err);

	*ret = (struct sbx_machine_look){.state = SBX_MACHINE_UP};
	if (r == -ESTALE)
		r = dagger_revive(l.m, cancelled, err);
	if (r != -ESTALE)
		return r;
	ret->state = SBX_MACHINE_GONE;
	return 0;
}

int dagger_touch(struct sbx_machine *machine, atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_machine_look look;
	int r = dagger_look(machine, &look, cancelled, err);

	if (!r && look.state == SBX_MACHINE_GONE)
		return sbx_fail(err, ESTALE, "the engine of Dagger has forgotten the sandbox");
	return r;
}
