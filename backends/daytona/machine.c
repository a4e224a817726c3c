/* A machine: what its handle says of it, so that a daemon that starts asks nobody. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"

static void machine_free(struct daytona_machine *m)
{
	free(m->base.handle);
	free(m->base.workdir);
	free(m->base.room);
	free(m->id);
	free(m->name);
	free(m->toolbox);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

char *daytona_handle(const char *id, const char *name, const char *toolbox, const char *workdir,
                     const char *room)
{
	struct json_object *obj = json_object_new_object();
	char *handle;

	daytona_add(obj, "id", id);
	daytona_add(obj, "name", name);
	daytona_add(obj, "toolbox", toolbox);
	daytona_add(obj, "workdir", workdir);
	daytona_add(obj, "room", room);
	handle = strdup(daytona_json(obj, &(size_t){0}));
	json_object_put(obj);
	return handle;
}

struct daytona_machine *daytona_machine_new(struct daytona *d, const struct daytona_box *box,
                                            const char *toolbox)
{
	struct daytona_machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->base.provider = &d->base;
	pthread_mutex_init(&m->lock, NULL);
	m->id = strdup(box->id);
	m->name = strdup(box->name);
	m->toolbox = strdup(toolbox);
	if (m->id && m->name && m->toolbox)
		return m;
	machine_free(m);
	return NULL;
}

int daytona_machine_place(struct daytona_machine *m, const char *workdir, const char *room)
{
	m->base.workdir = strdup(workdir);
	m->base.room = strdup(room);
	m->base.handle = daytona_handle(m->id, m->name, m->toolbox, workdir, room);
	return m->base.workdir && m->base.room && m->base.handle ? 0 : -ENOMEM;
}

void daytona_release(struct sbx_machine *m)
{
	machine_free(daytona_machine_of(m));
}

int daytona_adopt(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
                  struct sbx_error *err)
{
	struct json_object *obj = daytona_parse(handle, strlen(handle));
	const char *toolbox = daytona_text(obj, "toolbox"), *room = daytona_text(obj, "room");
	const char *workdir = daytona_text(obj, "workdir");
	struct daytona_machine *m = NULL;
	struct daytona_box box;
	int r = daytona_box_read(obj, &box, NULL);

	if (r || !*toolbox || *workdir != '/' || *room != '/') {
		r = sbx_fail(err, EPROTO, "the record names no sandbox of Daytona's");
	} else {
		m = daytona_machine_new(daytona_of(p), &box, toolbox);
		r = m && daytona_machine_place(m, workdir, room) == 0 ? 0 : sbx_no_memory(err);
		if (!r)
			atomic_store(&m->net_unsure, true);
	}
	json_object_put(obj);
	if (!r)
		*ret = &m->base;
	else if (m)
		machine_free(m);
	return r;
}

int daytona_look(struct sbx_machine *machine, struct sbx_machine_look *ret, atomic_bool *cancelled,
                 struct sbx_error *err)
{
	struct daytona_machine *m = daytona_machine_of(machine);
	struct daytona_box box;
	int r = daytona_box_look(daytona_of(machine->provider), m->id, &box, cancelled, err);

	if (!r)
		*ret = box.look;
	return r;
}

int daytona_touch(struct sbx_machine *machine, atomic_bool *cancelled, struct sbx_error *err)
{
	struct daytona *d = daytona_of(machine->provider);
	const struct daytona_ask ask = {.op = "daytona_touch",
	                                .method = "POST",
	                                .base = d->config.api_url,
	                                .repeat = SBX_HTTP_SAFE};
	long status;
	int r = daytona_askf(d, ask, cancelled, &status, NULL, err, "/sandbox/%s/last-activity",
	                     daytona_machine_of(machine)->id);

	return status == 404 ? sbx_fail(err, ESTALE, "the sandbox is no more at Daytona") : r;
}
