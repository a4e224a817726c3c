/*
 * The walk of a create: the source is brought to the engine, then one query makes the container
 * from its image and puts everything in its place. A branch is made by writing what git would: the
 * image need not have git.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/git/repository.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define MAKE_MS (UINT64_C(30) * 60 * 1000) /* of an image that is pulled or built */

struct making {
	struct dagger_query query;
	const struct sbx_machine_request *req;
	atomic_bool *cancelled;
	struct dagger_source source;
	char *base;        /* the id of the directory or archive that is the image; or NULL */
	char *id, *user;   /* of the container; its image's */
	const char *owner; /* of what is put in its place, "" for root */
	bool handles;      /* the engine's ids do not say how to make it again */
};

static void tell(const struct making *k, const char *what, const char *of)
{
	char text[300];

	snprintf(text, sizeof(text), "%s %.200s", what, of);
	if (k->req->progress)
		k->req->progress(text, k->req->data);
}

/* What stands behind KIND in IMAGE; NULL: it is of another. */
static const char *path_of(const char *image, const char *kind)
{
	const size_t n = strlen(kind);

	return strncmp(image, kind, n) == 0 ? image + n : NULL;
}

/* ---- the query ---- */

/* Begins a container; returns how many braces end it. */
static unsigned write_base(const struct making *k, FILE *to)
{
	const char *image = k->query.d->config.image;
	const char *path = path_of(image, "dockerfile:");

	if (path) {
		fputs("{host{directory(path:", to);
		dagger_literal(to, path);
		fputs(",noCache:true){dockerBuild{", to);
		return 4;
	}
	if (path_of(image, "rootfs:"))
		fputs("{container{withRootfs(directory:", to);
	else if (path_of(image, "archive:"))
		fputs("{container{import(source:", to);
	else
		fputs("{container{from(address:", to);
	dagger_literal(to, k->base ? k->base : image);
	fputs("){", to);
	return 3;
}

static void write_label(FILE *to, const char *name, const char *value)
{
	fprintf(to, "withLabel(name:\"%s\",value:", name);
	dagger_literal(to, value);
	fputs("){", to);
}

static void write_owner(const struct making *k, FILE *to)
{
	if (*k->owner) {
		fputs(",owner:", to);
		dagger_literal(to, k->owner);
	}
	fputs("){", to);
}

static void write_directory(const struct making *k, FILE *to, const char *path, const char *id)
{
	fprintf(to, "withDirectory(path:\"%s\",source:", path);
	dagger_literal(to, id);
	write_owner(k, to);
}

static void write_file(const struct making *k, FILE *to, const char *path, const char *text)
{
	fputs("withNewFile(path:", to);
	dagger_literal(to, path);
	fputs(",contents:", to);
	dagger_literal(to, text);
	fputs(",permissions:420", to);
	write_owner(k, to);
}

/* Whatever branch the tree has come with. */
static int write_branch(const struct making *k, FILE *to)
{
	_cleanup_free_ char *head = NULL, *path = NULL, *line = NULL;

	if (asprintf(&head, "ref: refs/heads/%s\n", k->req->branch) < 0 ||
	    asprintf(&path, DAGGER_WORKDIR "/.git/refs/heads/%s", k->req->branch) < 0 ||
	    asprintf(&line, "%s\n", k->source.commit) < 0)
		return -ENOMEM;
	write_file(k, to, DAGGER_WORKDIR "/.git/HEAD", head);
	write_file(k, to, path, line);
	return 0;
}

/* The last step is one whose result the engine keeps over the end of a session. */
static int write_make(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct making *k = sbx_container_of(q, struct making, query);
	unsigned braces = write_base(k, to);
	int r = 0;

	k->handles = session->nodes;
	fputs("user ", to);
	write_label(to, DAGGER_LABEL_NAME, k->req->name);
	write_label(to, "sandboxfs", k->req->label);
	fputs("withEnvVariable(name:\"" DAGGER_ID_NAME "\",value:", to);
	dagger_literal(to, k->req->name);
	fputs("){withWorkdir(path:\"" DAGGER_WORKDIR "\"){", to);
	write_directory(k, to, DAGGER_ROOM, session->empty);
	write_directory(k, to, DAGGER_WORKDIR, k->source.id ? k->source.id : session->empty);
	braces += 6;
	if (k->req->branch && k->source.commit) {
		r = write_branch(k, to);
		braces += 2;
	}
	fputs("sync", to);
	while (braces--)
		putc('}', to);
	return r;
}

static int read_make(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct making *k = sbx_container_of(q, struct making, query);
	const char *user = dagger_find_text(data, "user");
	int r = dagger_steal_text(data, "sync", &k->id, err);

	if (r)
		return r;
	k->user = strdup(user ? user : "");
	return k->user ? 0 : sbx_no_memory(err);
}

/* ---- the walk ---- */

static bool is_root(const char *user)
{
	const size_t n = strcspn(user, ":");

	return !*user || strncmp(user, "0", n) == 0 || strncmp(user, "root", n) == 0;
}

static int ask(struct making *k, struct sbx_error *err)
{
	k->query = (struct dagger_query){.d = k->query.d,
	                                 .op = "dagger_create",
	                                 .deadline_ms = MAKE_MS,
	                                 .repeat = SBX_HTTP_SAFE,
	                                 .write = write_make,
	                                 .read = read_make};
	free(k->id);
	k->id = NULL;
	return dagger_query_perform(&k->query, k->cancelled, err);
}

static int bring_base(struct making *k, struct sbx_error *err)
{
	struct dagger *d = k->query.d;
	const char *rootfs = path_of(d->config.image, "rootfs:");
	const char *archive = path_of(d->config.image, "archive:");

	if (rootfs)
		return dagger_bring(d, rootfs, false, &k->base, k->cancelled, err);
	return archive ? dagger_bring(d, archive, true, &k->base, k->cancelled, err) : 0;
}

/* An image whose processes are not root's is found out by the first container of it. */
static int make_container(struct making *k, struct sbx_error *err)
{
	_cleanup_free_ char *user = NULL;
	int r;

	tell(k, "making a container of", k->query.d->config.image);
	r = ask(k, err);
	if (r || is_root(k->user))
		return r;
	user = sbx_steal_ptr(&k->user);
	k->owner = user;
	r = ask(k, err);
	free(k->user);
	k->user = sbx_steal_ptr(&user);
	k->owner = k->user;
	return r;
}

static int keep(struct making *k, struct sbx_machine **ret, struct sbx_error *err)
{
	struct dagger *d = k->query.d;
	const struct sbx_machine_request *req = k->req;
	const int64_t now = sbx_real_ms();
	struct dagger_kept kept = {.id = k->id,
	                           .label = (char *)req->label,
	                           .owner = (char *)k->owner,
	                           .made_ms = now};
	int r = dagger_store(d, req->name, &kept, err);
	struct dagger_machine *m;

	if (r)
		return r;
	k->id = NULL;
	m = dagger_machine_new(d, req->name, &kept);
	if (!m)
		return sbx_no_memory(err);
	*ret = &m->base;
	return 0;
}

/* What was cloned here is at the engine. */
static void drop_clone(struct making *k)
{
	struct dagger *d = k->query.d;
	char stage[4096];

	if (!k->handles)
		return;
	snprintf(stage, sizeof(stage), "%s/%s.d/source", d->path, k->req->name);
	dagger_stage_remove(d, stage);
}

static int check(const struct sbx_machine_request *req, struct sbx_error *err)
{
	if (!dagger_name_ok(req->name) || !dagger_is_utf8(req->label, strlen(req->label)))
		return sbx_fail(err, EINVAL, "the name of the sandbox is none");
	if (req->branch &&
	    (!sbx_git_branch_ok(req->branch) || !dagger_is_utf8(req->branch, strlen(req->branch))))
		return sbx_fail(err, EINVAL, "%s cannot be the name of a branch", req->branch);
	return 0;
}

/* It was made, and the daemon killed before it could be told. */
static int was_there(struct dagger *d, const char *name, struct sbx_machine **ret,
                     struct sbx_error *err)
{
	int r = dagger_adopt(&d->base, name, ret, err);

	if (r == -ESTALE) {
		*err = SBX_ERROR_INIT;
		return 0;
	}
	return r ? r : sbx_fail(err, EEXIST, "the sandbox %s is there already", name);
}

int dagger_make(struct sbx_provider *p, const struct sbx_machine_request *req,
                struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err)
{
	struct making k = {
	        .query.d = dagger_of(p), .req = req, .cancelled = cancelled, .owner = ""};
	int r = check(req, err);

	if (!r)
		r = was_there(k.query.d, req->name, ret, err);
	if (r)
		return r;
	tell(&k, "bringing", req->source ? req->source : "nothing");
	r = dagger_source_bring(k.query.d, req, &k.source, cancelled, err);
	if (!r)
		r = bring_base(&k, err);
	if (!r)
		r = make_container(&k, err);
	if (!r)
		r = keep(&k, ret, err);
	if (r)
		dagger_unmake(p, req->name, NULL, NULL, NULL);
	else
		drop_clone(&k);
	dagger_source_release(&k.source);
	free(k.base);
	free(k.id);
	free(k.user);
	return r;
}
