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

/* Copies FROM, which may be NULL; false: no memory. */
static bool copy(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return !from || *to;
}

char *daytona_handle(const struct daytona_box *box, const char *toolbox, const char *workdir,
                     const char *room)
{
	struct json_object *obj = json_object_new_object();
	char *handle;

	daytona_add(obj, "id", box->id);
	daytona_add(obj, "name", box->name);
	daytona_add(obj, "toolbox", toolbox);
	daytona_add(obj, "workdir", workdir);
	daytona_add(obj, "room", room);
	handle = strdup(daytona_json(obj, &(size_t){0}));
	json_object_put(obj);
	return handle;
}

struct daytona_machine *daytona_machine_new(struct daytona *d, const struct daytona_box *box,
                                            const char *toolbox, const char *workdir,
                                            const char *room)
{
	struct daytona_machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->base.provider = &d->base;
	pthread_mutex_init(&m->lock, NULL);
	m->base.handle = daytona_handle(box, toolbox, workdir, room);
	if (m->base.handle && copy(&m->base.workdir, workdir) && copy(&m->base.room, room) &&
	    copy(&m->id, box->id) && copy(&m->name, box->name) && copy(&m->toolbox, toolbox))
		return m;
	machine_free(m);
	return NULL;
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
		m = daytona_machine_new(daytona_of(p), &box, toolbox, workdir, room);
		r = m ? 0 : sbx_no_memory(err);
	}
	json_object_put(obj);
	*ret = m ? &m->base : NULL;
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

int daytona_touch(struct sbx_machine *machine, struct sbx_error *err)
{
	struct daytona *d = daytona_of(machine->provider);
	const struct daytona_ask ask = {.op = "daytona_touch",
	                                .method = "POST",
	                                .base = d->config.api_url,
	                                .repeat = SBX_HTTP_SAFE};
	long status;
	int r = daytona_askf(d, ask, NULL, &status, NULL, err, "/sandbox/%s/last-activity",
	                     daytona_machine_of(machine)->id);

	return status == 404 ? sbx_fail(err, ESTALE, "the sandbox is no more at Daytona") : r;
}
