/*
 * Layers. Each step in a container is one more of an overlay, and an engine mounts no more than
 * about 440 of them: a container with more can neither be run in nor be read. So before that the
 * files of a machine are copied, in the engine, to a directory that is mounted there, which has one
 * layer and becomes the root of its next container.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dagger/dagger_impl.h"
#include "sandboxfs/cleanup.h"

#define LATER      20 /* layers after which it is tried again where it failed */
#define COPY_MS    (UINT64_C(10) * 60 * 1000)
#define NEW_ROOT   "/.sandboxfs.root"
#define LAYERS_NEW 2 /* of the copy, and of the file that is the last step */

/*
 * All at once, so that hard links stay; what the engine mounts has no place in it. A cp that cannot
 * stay on a filesystem is told the names, of which one that is not there is a pattern of the
 * shell's. It runs as root, who can read everything, whoever the commands of the sandbox run as: so
 * no program of theirs is found first.
 */
#define COPY                                                                                       \
	"PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH; cd / || exit 1; case $(cp --help 2>&1) in "     \
	"*one-file-system*) cp -ax . " NEW_ROOT "/;; "                                             \
	"*) set --; for f in .[!.]* ..?* *; do case $f in "                                        \
	".sandboxfs.root|proc|sys|dev) continue;; esac; "                                          \
	"[ -e \"$f\" ] || [ -L \"$f\" ] || continue; set -- \"$@\" \"./$f\"; done; "               \
	"cp -a \"$@\" " NEW_ROOT "/;; esac && cd " NEW_ROOT " && rm -f .init && "                  \
	"rm -rf .sandboxfs.root && mkdir -p proc sys dev && chmod 555 proc sys && "                \
	"chmod 755 dev ."

bool dagger_flatten_due(const struct dagger_machine *m)
{
	const unsigned max = dagger_of(m->base.provider)->config.layers_max;

	return !m->first && m->layers >= (max ? max : SBX_DAGGER_LAYERS_MAX) + m->not_flat;
}

/* ---- the copy ---- */

static int write_copy(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct dagger_flatten *f = sbx_container_of(q, struct dagger_flatten, copy);

	free(f->of);
	f->of = dagger_machine_id(f->m, NULL, NULL);
	if (!f->of)
		return -ENOMEM;
	dagger_begin_machine(session, to, f->of);
	fputs("withUser(name:\"0\"){withMountedDirectory(path:\"" NEW_ROOT "\",source:", to);
	dagger_literal(to, session->empty);
	fputs("){withExec(args:[\"/bin/sh\",\"-c\",", to);
	dagger_literal(to, COPY);
	fputs("],expect:ANY){exitCode directory(path:\"" NEW_ROOT "\"){id}}}}", to);
	dagger_end_container(session, to);
	return 0;
}

static int read_copy(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct dagger_flatten *f = sbx_container_of(q, struct dagger_flatten, copy);
	struct json_object *code = dagger_find(data, "exitCode", json_type_int);
	int r = dagger_check_machine(f->m->name, data, err);

	if (r)
		return r;
	if (!code || json_object_get_int64(code))
		return sbx_fail(err, EREMOTEIO, "the files of the container cannot be copied");
	return dagger_steal_text(data, "id", &f->root, err);
}

/* ---- the root ---- */

/* Other queries may have had their turn since. */
static int write_root(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct dagger_flatten *f = sbx_container_of(q, struct dagger_flatten, change);
	bool same;

	pthread_mutex_lock(&q->d->lock);
	same = !f->m->first && strcmp(f->of, f->m->id) == 0;
	pthread_mutex_unlock(&q->d->lock);
	if (!same)
		return -ECANCELED;
	dagger_begin_machine(session, to, f->of);
	fputs("withRootfs(directory:", to);
	dagger_literal(to, f->root);
	fputs("){withNewFile(path:\"" DAGGER_ROOM "/renumbered\",contents:\"\",permissions:420",
	      to);
	if (*f->m->owner) {
		fputs(",owner:", to);
		dagger_literal(to, f->m->owner);
	}
	fputs("){id}}", to);
	dagger_end_container(session, to);
	return 0;
}

static int read_root(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct dagger_flatten *f = sbx_container_of(q, struct dagger_flatten, change);
	char *id = NULL;
	int r = dagger_check_machine(f->m->name, data, err);

	if (!r)
		r = dagger_steal_text(data, "id", &id, err);
	return r ? r : dagger_machine_flatten(f->m, id, LAYERS_NEW, err);
}

/* ---- the end ---- */

/* [loop] What could not be done now is tried again later: until then there is room. */
static void finish(struct dagger_flatten *f, int code)
{
	pthread_mutex_lock(&f->change.d->lock);
	if (code && !(*f->current)->given_up)
		f->m->not_flat += LATER;
	pthread_mutex_unlock(&f->change.d->lock);
	free(f->of);
	free(f->root);
	f->of = f->root = NULL;
	f->ended(f);
}

/* [loop] */
static void rooted(struct dagger_query *q, int code, const struct sbx_error *err)
{
	(void)err;
	finish(sbx_container_of(q, struct dagger_flatten, change), code);
}

/* [loop] */
static void copied(struct dagger_query *q, int code, const struct sbx_error *err)
{
	struct dagger_flatten *f = sbx_container_of(q, struct dagger_flatten, copy);

	(void)err;
	if (code) {
		finish(f, code);
		return;
	}
	pthread_mutex_lock(&q->d->lock);
	f->change.given_up = q->given_up;
	*f->current = &f->change;
	pthread_mutex_unlock(&q->d->lock);
	dagger_query_begin(&f->change);
}

void dagger_flatten_begin(struct dagger_flatten *f)
{
	f->copy = (struct dagger_query){.d = dagger_of(f->m->base.provider),
	                                .op = "dagger_flatten",
	                                .m = f->m,
	                                .deadline_ms = COPY_MS,
	                                .repeat = SBX_HTTP_SAFE,
	                                .write = write_copy,
	                                .read = read_copy,
	                                .ended = copied};
	f->change = (struct dagger_query){.d = f->copy.d,
	                                  .op = "dagger_flatten",
	                                  .m = f->m,
	                                  .repeat = SBX_HTTP_SAFE,
	                                  .write = write_root,
	                                  .read = read_root,
	                                  .ended = rooted};
	dagger_query_begin(&f->copy);
}
