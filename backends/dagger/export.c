/*
 * The ways out of the engine to this host: a directory, or all of a machine as an archive. The
 * process of the session writes it. An archive stands for the files of one container: a machine
 * whose files have changed since is not made anew from it. The record of the machine says which
 * (dagger_kept.saved).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define EXPORT_MS (UINT64_C(30) * 60 * 1000)
#define SAVE_MS   (UINT64_C(10) * 60 * 1000) /* an unmount waits for it */

struct exporting {
	struct dagger_query query;
	struct dagger_machine *m;
	char *id;              /* what is exported */
	const char *mark;      /* its label */
	const char *path, *to; /* PATH NULL: all of it */
	bool wipe;
	int dir; /* of TO, where it is an archive */
};

static int write_export(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct exporting *e = sbx_container_of(q, struct exporting, query);

	free(e->id);
	e->id = dagger_machine_id(e->m, &e->mark, NULL);
	if (!e->id)
		return -ENOMEM;
	dagger_begin_machine(session, to, e->id);
	if (e->path) {
		fputs("directory(path:", to);
		dagger_literal(to, e->path);
		fputs("){", to);
	}
	fputs("export(path:", to);
	dagger_literal(to, e->to);
	if (e->path)
		fprintf(to, ",wipe:%s)}", e->wipe ? "true" : "false");
	else
		fputs(")" DAGGER_DIGEST, to);
	dagger_end_container(session, to);
	return 0;
}

static int read_export(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	const struct exporting *e = sbx_container_of(q, struct exporting, query);
	_cleanup_free_ char *path = NULL;
	int r = dagger_check_machine(e->mark, data, err);

	return r ? r : dagger_steal_text(data, "export", &path, err);
}

int sbx_dagger_export(struct sbx_machine *machine, const char *path, const char *to, bool wipe,
                      atomic_bool *cancelled, struct sbx_error *err)
{
	struct exporting e = {.query = {.d = dagger_of(machine->provider),
	                                .op = "dagger_export",
	                                .deadline_ms = EXPORT_MS,
	                                .repeat = SBX_HTTP_SAFE,
	                                .write = write_export,
	                                .read = read_export},
	                      .m = dagger_machine_of(machine),
	                      .path = path,
	                      .to = to,
	                      .wipe = wipe};
	int r;

	if (*to != '/')
		return sbx_fail(err, EINVAL, "%s is no absolute path", to);
	if (!dagger_is_utf8(path, strlen(path)) || !dagger_is_utf8(to, strlen(to)))
		return sbx_fail(err, EILSEQ, "Dagger takes names in UTF-8 only");
	/* It is written while it is asked whose it is. */
	r = dagger_touch(machine, cancelled, err);
	if (!r)
		r = dagger_query_perform(&e.query, cancelled, err);
	free(e.id);
	return r;
}

/* ---- archives ---- */

/* The folder of M, open; *PATH (the caller's) is that of NAME in it. */
static int open_folder(struct dagger_machine *m, const char *name, char **path,
                       struct sbx_error *err)
{
	struct dagger *d = dagger_of(m->base.provider);
	_cleanup_free_ char *folder = NULL;
	int dir;

	*path = NULL;
	if (asprintf(&folder, "%s.d", m->name) < 0) {
		folder = NULL;
		return sbx_no_memory(err);
	}
	if (asprintf(path, "%s/%s/%s", d->path, folder, name) < 0) {
		*path = NULL;
		return sbx_no_memory(err);
	}
	dir = sbx_dir_make(d->dir, folder, 0700);
	return dir < 0 ? sbx_fail(err, -dir, "%s/%s cannot be made: %s", d->path, folder,
	                          strerror(-dir))
	               : dir;
}

/* Whether there is an archive of what M is by now. */
static bool is_saved(struct dagger_machine *m, int dir)
{
	struct dagger *d = dagger_of(m->base.provider);
	bool saved;

	pthread_mutex_lock(&d->lock);
	saved = m->saved;
	pthread_mutex_unlock(&d->lock);
	return saved && faccessat(dir, DAGGER_ARCHIVE, R_OK, 0) == 0;
}

/* What TO has is on the disk, under its name. */
static int keep_archive(int dir)
{
	_cleanup_fd_ int fd = openat(dir, DAGGER_ARCHIVE ".new", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0 ||
	    renameat(dir, DAGGER_ARCHIVE ".new", dir, DAGGER_ARCHIVE) < 0 || fsync(dir) < 0)
		return -errno;
	return 0;
}

/* The record comes last: before, it says of no archive that it stands for these files, unless the
 * one that is replaced does as well. */
static int read_save(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct exporting *e = sbx_container_of(q, struct exporting, query);
	char *digest = NULL;
	int r = read_export(q, data, err);

	if (!r)
		r = dagger_steal_text(data, "digest", &digest, err);
	if (r)
		return r;
	r = keep_archive(e->dir);
	if (!r)
		return dagger_machine_set(e->m, sbx_steal_ptr(&e->id), digest, err);
	free(digest);
	return sbx_fail(err, -r, "%s cannot be kept: %s", e->to, strerror(-r));
}

/* It has its turn, so that no run goes on from the container meanwhile. */
int dagger_save(struct sbx_machine *machine, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger_machine *m = dagger_machine_of(machine);
	_cleanup_free_ char *path = NULL;
	_cleanup_fd_ int dir = open_folder(m, DAGGER_ARCHIVE ".new", &path, err);
	struct exporting e = {.query = {.d = dagger_of(machine->provider),
	                                .op = "dagger_save",
	                                .m = m,
	                                .deadline_ms = SAVE_MS,
	                                .repeat = SBX_HTTP_SAFE,
	                                .write = write_export,
	                                .read = read_save},
	                      .m = m,
	                      .to = path,
	                      .dir = dir};
	int r;

	if (dir < 0 || is_saved(m, dir))
		return dir < 0 ? dir : 0;
	r = dagger_query_perform(&e.query, cancelled, err);
	free(e.id);
	unlinkat(dir, DAGGER_ARCHIVE ".new", 0);
	return r;
}

/* ---- from an archive ---- */

struct reviving {
	struct dagger_query query;
	struct dagger_machine *m;
	char *file; /* the id of the archive */
};

/* The last step is one whose result the engine keeps. */
static int write_revive(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	const struct reviving *v = sbx_container_of(q, struct reviving, query);
	const char *mark;

	(void)session;
	pthread_mutex_lock(&q->d->lock);
	mark = dagger_machine_mark(v->m);
	pthread_mutex_unlock(&q->d->lock);
	fputs("{container{import(source:", to);
	dagger_literal(to, v->file);
	fputs("){withLabel(name:\"" DAGGER_LABEL_NAME "\",value:", to);
	dagger_literal(to, mark);
	fputs("){withEnvVariable(name:\"" DAGGER_ID_NAME "\",value:", to);
	dagger_literal(to, mark);
	fputs("){withWorkdir(path:\"" DAGGER_WORKDIR "\"){withNewFile(path:\"" DAGGER_ROOM
	      "/anew\",contents:\"\",permissions:420){sync}}}}}}}",
	      to);
	return 0;
}

static int read_revive(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct reviving *v = sbx_container_of(q, struct reviving, query);
	char *id = NULL, *saved;
	int r = dagger_steal_text(data, "sync", &id, err);

	if (r)
		return r;
	pthread_mutex_lock(&q->d->lock);
	saved = strdup(v->m->saved);
	pthread_mutex_unlock(&q->d->lock);
	return dagger_machine_set(v->m, id, saved, err);
}

int dagger_revive(struct dagger_machine *m, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger *d = dagger_of(m->base.provider);
	_cleanup_free_ char *path = NULL;
	_cleanup_fd_ int dir = open_folder(m, DAGGER_ARCHIVE, &path, NULL);
	struct reviving v = {.m = m};
	int r;

	if (dir < 0 || !is_saved(m, dir))
		return -ESTALE;
	r = dagger_bring(d, path, true, &v.file, cancelled, err);
	v.query = (struct dagger_query){.d = d,
	                                .op = "dagger_import",
	                                .m = m,
	                                .deadline_ms = EXPORT_MS,
	                                .repeat = SBX_HTTP_SAFE,
	                                .write = write_revive,
	                                .read = read_revive};
	if (!r)
		r = dagger_query_perform(&v.query, cancelled, err);
	free(v.file);
	return r;
}
