/*
 * States of a machine that are kept under a name. A container never changes, so that one is its id
 * and its label: NAME.d/states/KEY has a line of each, and one of its layers. To go back to it
 * takes one query, which asks whether the engine has it still. The next run then does what the
 * first one of a copy does: it empties the room, whose files speak of what came since, and gives
 * what comes out its label.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define STATE_MAX ((size_t)64 * 1024 * 1024) /* as of a record */
#define KEY_MAX   100

static int check_key(const char *key, struct sbx_error *err)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                              "0123456789._-:";
	const size_t n = strlen(key);

	return n && n <= KEY_MAX && *key != '.' && strspn(key, letters) == n
	               ? 0
	               : sbx_fail(err, EINVAL, "%s is no name of a state", key);
}

/* The directory of states of M, made where MAKE; negative: -errno. */
static int open_states(struct dagger_machine *m, bool make)
{
	struct dagger *d = dagger_of(m->base.provider);
	_cleanup_fd_ int folder = -1;
	char name[DAGGER_NAME_MAX + 8];

	snprintf(name, sizeof(name), "%s.d", m->name);
	folder = make ? sbx_dir_make(d->dir, name, 0700) : sbx_dir_open(d->dir, name);
	if (folder < 0)
		return folder;
	return make ? sbx_dir_make(folder, DAGGER_STATES, 0700)
	            : sbx_dir_open(folder, DAGGER_STATES);
}

/* Keeps the container ID, whose label is MARK, as KEY. */
static int keep(struct dagger_machine *m, const char *key, const char *mark, const char *id,
                unsigned layers, struct sbx_error *err)
{
	_cleanup_fd_ int dir = open_states(m, true);
	_cleanup_free_ char *text = sbx_format("%s\n%s\n%u\n", mark, id, layers);
	_cleanup_free_ char *temp = sbx_format(".%s", key);
	int r = dir < 0 ? dir : text && temp ? 0 : -ENOMEM;

	if (!r)
		r = sbx_file_replace(dir, key, temp, text);
	return r ? sbx_fail(err, -r, "the state %s of %s cannot be kept: %s", key, m->name,
	                    strerror(-r))
	         : 0;
}

int dagger_keep(struct sbx_machine *machine, const char *key, struct sbx_error *err)
{
	struct dagger_machine *m = dagger_machine_of(machine);
	const char *mark;
	unsigned layers;
	_cleanup_free_ char *id = dagger_machine_id(m, &mark, &layers);
	int r = check_key(key, err);

	if (r)
		return r;
	return id ? keep(m, key, mark, id, layers, err) : sbx_no_memory(err);
}

int dagger_drop(struct sbx_machine *machine, const char *key, struct sbx_error *err)
{
	struct dagger_machine *m = dagger_machine_of(machine);
	_cleanup_fd_ int dir = -1;
	int r = check_key(key, err);

	if (r)
		return r;
	dir = open_states(m, false);
	r = dir < 0 ? dir : unlinkat(dir, key, 0) < 0 ? -errno : 0;
	return r && r != -ENOENT ? sbx_fail(err, -r, "the state %s of %s cannot be removed: %s",
	                                    key, m->name, strerror(-r))
	                         : 0;
}

/* ---- the way back ---- */

struct going {
	struct dagger_query query;
	struct dagger_machine *m;
	const char *was; /* the name that what it is now is kept as */
	char *text;      /* of the state: its label, and behind it */
	char *id;
	unsigned layers;
};

static int load(struct going *g, const char *key, struct sbx_error *err)
{
	_cleanup_fd_ int dir = open_states(g->m, false);
	int r = dir < 0 ? dir : sbx_file_read(dir, key, STATE_MAX, &g->text);
	char *end;

	if (r)
		return sbx_fail(err, -r, "the state %s of %s cannot be read: %s", key, g->m->name,
		                strerror(-r));
	g->id = strchr(g->text, '\n');
	end = g->id ? strchr(g->id + 1, '\n') : NULL;
	if (!end || (end[1] && sscanf(end + 1, "%u", &g->layers) != 1))
		return sbx_fail(err, EUCLEAN, "the state %s of %s is damaged", key, g->m->name);
	*g->id++ = *end = '\0';
	return 0;
}

static int write_going(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	dagger_begin_machine(session, to, sbx_container_of(q, struct going, query)->id);
	dagger_end_container(session, to);
	return 0;
}

/* It has its turn, so that no run goes on from what it was. */
static int read_going(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct going *g = sbx_container_of(q, struct going, query);
	char *id = strdup(g->id);
	int r = dagger_check_machine(g->text, data, err);

	if (!r && !id)
		r = sbx_no_memory(err);
	if (!r)
		r = dagger_keep(&g->m->base, g->was, err);
	if (!r)
		return dagger_machine_return(g->m, id, g->layers, err);
	free(id);
	return r;
}

int dagger_back(struct sbx_machine *machine, const char *key, const char *was,
                atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger_machine *m = dagger_machine_of(machine);
	struct going g = {.query = {.d = dagger_of(machine->provider),
	                            .op = "dagger_back",
	                            .m = m,
	                            .repeat = SBX_HTTP_SAFE,
	                            .write = write_going,
	                            .read = read_going},
	                  .m = m,
	                  .was = was};
	int r = check_key(key, err);

	if (!r)
		r = check_key(was, err);
	if (!r)
		r = load(&g, key, err);
	/* Before the first run of a copy there is no state of its own. */
	if (!r && strcmp(g.text, m->name) != 0)
		r = sbx_fail(err, ESTALE, "the state %s is not one of %s", key, m->name);
	if (!r) {
		r = dagger_query_perform(&g.query, cancelled, err);
		if (r == -ESTALE)
			sbx_fail(err, ESTALE, "the engine of Dagger has forgotten that state");
	}
	free(g.text);
	return r;
}
