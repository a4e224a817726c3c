/*
 * The ways out of the engine to this host: a directory, or all of a machine as an archive. The
 * process of the session writes it. An archive stands for one container: a machine that has gone
 * on since is not made anew from it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define EXPORT_MS (UINT64_C(30) * 60 * 1000)
#define ID_MAX    ((size_t)64 * 1024 * 1024)
#define ARCHIVE   "archive.tar"
#define OF        "archive.of" /* the id that it stands for */

struct exporting {
	struct dagger_query query;
	struct dagger_machine *m;
	const char *id, *path, *to; /* PATH NULL: all of it */
	bool wipe;
};

static int write_export(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	const struct exporting *e = sbx_container_of(q, struct exporting, query);

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
		putc(')', to);
	dagger_end_container(session, to);
	return 0;
}

static int read_export(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	const struct exporting *e = sbx_container_of(q, struct exporting, query);
	_cleanup_free_ char *path = NULL;
	int r = dagger_check_machine(e->m, data, err);

	return r ? r : dagger_steal_text(data, "export", &path, err);
}

static int export_to(struct exporting *e, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger *d = dagger_of(e->m->base.provider);

	e->query = (struct dagger_query){.d = d,
	                                 .op = "dagger_export",
	                                 .deadline_ms = EXPORT_MS,
	                                 .repeat = SBX_HTTP_SAFE,
	                                 .write = write_export,
	                                 .read = read_export};
	return dagger_query_perform(&e->query, cancelled, err);
}

int sbx_dagger_export(struct sbx_machine *machine, const char *path, const char *to, bool wipe,
                      atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger_machine *m = dagger_machine_of(machine);
	_cleanup_free_ char *id = dagger_machine_id(m);
	struct exporting e = {.m = m, .id = id, .path = path, .to = to, .wipe = wipe};
	int r;

	if (!id)
		return sbx_no_memory(err);
	if (*to != '/')
		return sbx_fail(err, EINVAL, "%s is no absolute path", to);
	if (!dagger_is_utf8(path, strlen(path)) || !dagger_is_utf8(to, strlen(to)))
		return sbx_fail(err, EILSEQ, "Dagger takes names in UTF-8 only");
	/* It is written while it is asked whose it is. */
	r = dagger_touch(machine, cancelled, err);
	return r ? r : export_to(&e, cancelled, err);
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

/* The id comes last: an archive without it stands for nothing. */
int sbx_dagger_save(struct sbx_machine *machine, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger_machine *m = dagger_machine_of(machine);
	_cleanup_free_ char *id = dagger_machine_id(m), *path = NULL;
	_cleanup_fd_ int dir = open_folder(m, ARCHIVE ".new", &path, err);
	struct exporting e = {.m = m, .id = id, .to = path};
	int r = dir < 0 ? dir : id ? 0 : sbx_no_memory(err);

	if (!r)
		r = export_to(&e, cancelled, err);
	if (r)
		return r;
	unlinkat(dir, OF, 0);
	r = renameat(dir, ARCHIVE ".new", dir, ARCHIVE) < 0 ? -errno : 0;
	if (!r)
		r = sbx_file_replace(dir, OF, OF ".new", id);
	return r ? sbx_fail(err, -r, "%s cannot be kept: %s", path, strerror(-r)) : 0;
}

/* ---- from an archive ---- */

struct reviving {
	struct dagger_query query;
	struct dagger_machine *m;
	char *file; /* the id of the archive */
};

static int write_revive(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct reviving *v = sbx_container_of(q, struct reviving, query);

	fputs("{container{import(source:", to);
	dagger_literal(to, v->file);
	fputs("){withLabel(name:\"" DAGGER_LABEL_NAME "\",value:", to);
	dagger_literal(to, v->m->name);
	fputs("){withEnvVariable(name:\"" DAGGER_ID_NAME "\",value:", to);
	dagger_literal(to, v->m->name);
	fputs("){withWorkdir(path:\"" DAGGER_WORKDIR "\"){withDirectory(path:\"" DAGGER_ROOM
	      "\",source:",
	      to);
	dagger_literal(to, session->empty);
	fputs("){sync}}}}}}}", to);
	return 0;
}

static int read_revive(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct reviving *v = sbx_container_of(q, struct reviving, query);
	char *id = NULL;
	int r = dagger_steal_text(data, "sync", &id, err);

	return r ? r : dagger_machine_advance(v->m, id, err);
}

/* Whether there is an archive of what M is by its id; *PATH is the caller's. */
static bool has_archive(struct dagger_machine *m, char **path)
{
	_cleanup_free_ char *id = dagger_machine_id(m), *of = NULL;
	_cleanup_fd_ int dir = open_folder(m, ARCHIVE, path, NULL);

	return dir >= 0 && id && sbx_file_read(dir, OF, ID_MAX, &of) == 0 && strcmp(of, id) == 0 &&
	       faccessat(dir, ARCHIVE, R_OK, 0) == 0;
}

int dagger_revive(struct dagger_machine *m, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger *d = dagger_of(m->base.provider);
	_cleanup_free_ char *path = NULL;
	struct reviving v = {.m = m};
	int r;

	if (!has_archive(m, &path))
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
