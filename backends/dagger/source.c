/*
 * The files that a tree begins with. A repository of this host is cloned, so that the engine gets
 * what is committed there and none of its settings; one of a server the engine fetches itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/git/clone.h"
#include "backends/git/repository.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/github.h"
#include "sandboxfs/secret.h"

#define BRING_MS (UINT64_C(30) * 60 * 1000)
#define TRIES    3

void dagger_source_release(struct dagger_source *source)
{
	free(source->id);
	free(source->commit);
	*source = (struct dagger_source){0};
}

/* ---- directories and files of this host ---- */

struct bringing {
	struct dagger_query query;
	const char *path;
	bool file;
	char *id;
};

static int write_bring(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct bringing *b = sbx_container_of(q, struct bringing, query);

	(void)session;
	dagger_write_upload(to, b->path, b->file);
	return 0;
}

static int read_bring(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	return dagger_steal_text(data, "id", &sbx_container_of(q, struct bringing, query)->id, err);
}

int dagger_bring(struct dagger *d, const char *path, bool file, char **ret, atomic_bool *cancelled,
                 struct sbx_error *err)
{
	struct bringing b = {.query = {.d = d,
	                               .op = "dagger_upload",
	                               .deadline_ms = BRING_MS,
	                               .repeat = SBX_HTTP_SAFE,
	                               .write = write_bring,
	                               .read = read_bring},
	                     .path = path,
	                     .file = file};
	int r;

	if (!dagger_is_utf8(path, strlen(path)))
		return sbx_fail(err, EILSEQ,
		                "the path %s is not UTF-8, and Dagger takes nothing else", path);
	r = dagger_query_perform(&b.query, cancelled, err);
	*ret = b.id;
	return r;
}

/* ---- repositories of this host ---- */

static int bring_clone(struct dagger *d, const struct sbx_machine_request *req,
                       struct dagger_source *ret, atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_free_ char *stage = NULL;
	int r = dagger_stage_make(d, req->name, "source", &stage, err);

	if (!r)
		r = sbx_git_clone(req->source, req->base, req->branch, stage, cancelled, err);
	return r ? r : dagger_bring(d, stage, false, &ret->id, cancelled, err);
}

static int bring_local(struct dagger *d, const struct sbx_machine_request *req,
                       struct dagger_source *ret, atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_free_ char *common = NULL;
	int r = sbx_git_probe(req->source, req->base, &common, err);

	if (r < 0)
		return r;
	if (r > 0)
		return bring_clone(d, req, ret, cancelled, err);
	if (req->base)
		return sbx_fail(err, EINVAL, "%s is no repository, so that it has no commit %s",
		                req->source, req->base);
	return dagger_bring(d, req->source, false, &ret->id, cancelled, err);
}

/* ---- repositories of a server ---- */

struct fetching {
	struct dagger_query query;
	const char *url, *ref;
	bool with_token;
	struct json_object *branches;
	char *commit, *id;
};

static int write_secret(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	(void)session;
	fputs("{setSecret(name:\"sandboxfs-git\",plaintext:", to);
	dagger_literal(to, sbx_secret_text(q->d->config.git_token));
	fputs("){id}}", to);
	return 0;
}

static int read_secret(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct dagger *d = q->d;
	char *id = NULL;
	int r = dagger_steal_text(data, "id", &id, err);

	if (r)
		return r;
	pthread_mutex_lock(&d->lock);
	free(d->git_secret);
	d->git_secret = id;
	d->git_session = q->session->number;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* The token is told once in a session. */
static int tell_secret(struct dagger *d, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dagger_query q = {.d = d,
	                         .op = "dagger_secret",
	                         .repeat = SBX_HTTP_SAFE,
	                         .hidden = d->config.git_token,
	                         .write = write_secret,
	                         .read = read_secret};

	return dagger_query_perform(&q, cancelled, err);
}

static int write_fetch(struct dagger_query *q, const struct dagger_session *session, FILE *to)
{
	struct fetching *f = sbx_container_of(q, struct fetching, query);
	int r = 0;

	fputs("{git(url:", to);
	dagger_literal(to, f->url);
	if (f->with_token) {
		pthread_mutex_lock(&q->d->lock);
		if (q->d->git_session == session->number) {
			fputs(",httpAuthUsername:\"x-access-token\",httpAuthToken:", to);
			dagger_literal(to, q->d->git_secret);
		} else {
			r = -EAGAIN;
		}
		pthread_mutex_unlock(&q->d->lock);
	}
	fputs("){branches start:", to);
	if (f->ref) {
		fputs("ref(name:", to);
		dagger_literal(to, f->ref);
		putc(')', to);
	} else {
		fputs("head", to);
	}
	fputs("{commit tree(depth:0){id}}}}", to);
	return r;
}

static int read_fetch(struct dagger_query *q, struct json_object *data, struct sbx_error *err)
{
	struct fetching *f = sbx_container_of(q, struct fetching, query);
	int r = dagger_steal_text(data, "commit", &f->commit, err);

	if (!r && (strlen(f->commit) != 40 || strspn(f->commit, "0123456789abcdef") != 40))
		r = sbx_fail(err, EPROTO, "Dagger does not say which commit it is");
	if (!r)
		r = dagger_steal_text(data, "id", &f->id, err);
	if (!r)
		f->branches = json_object_get(dagger_find(data, "branches", json_type_array));
	return r;
}

/* *ONCE_MORE: BRANCH is one already. EEXIST: git could not have it beside another. */
static int look_at_branches(struct json_object *branches, const char *branch, bool *once_more,
                            struct sbx_error *err)
{
	const size_t n = branches ? json_object_array_length(branches) : 0, len = strlen(branch);

	for (size_t i = 0; i < n; i++) {
		const char *other = json_object_get_string(json_object_array_get_idx(branches, i));
		const size_t other_len = other ? strlen(other) : 0;
		const size_t common = len < other_len ? len : other_len;

		if (!other || strncmp(other, branch, common) != 0)
			continue;
		if (len == other_len)
			*once_more = true;
		else if ((len < other_len ? other : branch)[common] == '/')
			return sbx_fail(err, EEXIST,
			                "there is a branch %s, beside which none can be called %s",
			                other, branch);
	}
	return 0;
}

static void fetching_reset(struct fetching *f)
{
	json_object_put(f->branches);
	free(f->commit);
	free(f->id);
	f->branches = NULL;
	f->commit = f->id = NULL;
}

static int fetch(struct fetching *f, atomic_bool *cancelled, struct sbx_error *err)
{
	int r = -EAGAIN;

	for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
		f->query = (struct dagger_query){.d = f->query.d,
		                                 .op = "dagger_git",
		                                 .deadline_ms = BRING_MS,
		                                 .repeat = SBX_HTTP_SAFE,
		                                 .write = write_fetch,
		                                 .read = read_fetch};
		fetching_reset(f);
		r = dagger_query_perform(&f->query, cancelled, err);
		if (r == -EAGAIN) {
			r = tell_secret(f->query.d, cancelled, err);
			r = r ? r : -EAGAIN;
		}
	}
	return r;
}

static int bring_fetched(struct dagger *d, const struct sbx_machine_request *req, char *url,
                         bool with_token, struct dagger_source *ret, atomic_bool *cancelled,
                         struct sbx_error *err)
{
	struct fetching f = {.query.d = d, .url = url, .ref = req->base, .with_token = with_token};
	_cleanup_free_ char *full = NULL;
	bool once_more = false;
	int r = fetch(&f, cancelled, err);

	if (!r && req->branch)
		r = look_at_branches(f.branches, req->branch, &once_more, err);
	if (!r && once_more) {
		if (asprintf(&full, "refs/heads/%s", req->branch) < 0) {
			full = NULL;
			r = sbx_no_memory(err);
		} else {
			f.ref = full;
			r = fetch(&f, cancelled, err);
		}
	}
	if (!r) {
		ret->id = sbx_steal_ptr(&f.id);
		ret->commit = sbx_steal_ptr(&f.commit);
	}
	fetching_reset(&f);
	return r;
}

/* *URL (the caller's) is where SOURCE is fetched from. */
static int find_url(const char *source, const char *github_api, char **url, struct sbx_error *err)
{
	int r;

	*url = NULL;
	if (strncasecmp(source, "file:", 5) == 0)
		return sbx_fail(
		        err, EINVAL,
		        "%s would be a path of the engine's: write the path itself, for one "
		        "of this host",
		        source);
	if (!dagger_is_utf8(source, strlen(source)))
		return sbx_fail(err, EILSEQ, "%s is not UTF-8, and Dagger takes nothing else",
		                source);
	r = sbx_github_clone_url(source, github_api, url, err);
	if (r != -EINVAL || !strchr(source, ':'))
		return r;
	*err = SBX_ERROR_INIT;
	*url = strdup(source);
	return *url ? 0 : sbx_no_memory(err);
}

static int bring_remote(struct dagger *d, const struct sbx_machine_request *req,
                        struct dagger_source *ret, atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_free_ char *url = NULL;
	int r = find_url(req->source, d->config.github_api, &url, err);

	if (r)
		return r;
	if (req->base && !dagger_is_utf8(req->base, strlen(req->base)))
		return sbx_fail(err, EILSEQ, "Dagger takes names in UTF-8 only");
	return bring_fetched(d, req, url,
	                     d->config.git_token &&
	                             sbx_github_token_is_for(url, d->config.github_api),
	                     ret, cancelled, err);
}

int sbx_dagger_check_source(const char *source, const char *github_api, struct sbx_error *err)
{
	_cleanup_free_ char *url = NULL;

	if (!source || (*source == '/' && dagger_is_utf8(source, strlen(source))))
		return 0;
	return find_url(source, github_api ? github_api : SBX_GITHUB_API, &url, err);
}

int dagger_source_bring(struct dagger *d, const struct sbx_machine_request *req,
                        struct dagger_source *ret, atomic_bool *cancelled, struct sbx_error *err)
{
	*ret = (struct dagger_source){0};
	if (!req->source)
		return 0;
	return *req->source == '/' ? bring_local(d, req, ret, cancelled, err)
	                           : bring_remote(d, req, ret, cancelled, err);
}
