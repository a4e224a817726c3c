/* Repositories in sandboxes, by the git of the toolbox. The token goes there in each request. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "backends/support/escape.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/secret.h"

#define CLONE_MS (UINT64_C(30) * 60 * 1000)
#define PUSH_MS  (UINT64_C(10) * 60 * 1000)

/* ---- sources ---- */

static bool is_local(const char *text)
{
	return strchr("/~.", *text) || !strchr(text, '/') ||
	       (isalpha((unsigned char)*text) && text[1] == ':');
}

int daytona_source_parse(const char *text, const char *github_api, struct daytona_source *ret,
                         struct sbx_error *err)
{
	int r;

	*ret = (struct daytona_source){0};
	if (!text)
		return 0;
	if (is_local(text))
		return sbx_fail(err, EINVAL,
		                "Daytona sandbox requires a GitHub repo URL (e.g. org/repo), not a "
		                "local path");
	r = sbx_github_parse(text, github_api, &ret->repo, err);
	return r ? r : sbx_github_clone_url(text, github_api, &ret->url, err);
}

void daytona_source_release(struct daytona_source *source)
{
	free(source->url);
	source->url = NULL;
}

static void add_token(struct daytona *d, struct json_object *body)
{
	const char *token = sbx_secret_text(d->config.git_token);

	if (!token)
		return;
	daytona_add(body, "username", "git");
	daytona_add(body, "password", token);
}

/* ---- cloning ---- */

static bool is_hash(const char *text)
{
	return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40;
}

/* What Daytona says of the remote, in words of ours. ERR has what it said. */
static int clone_failed(const struct daytona_source *source, const char *base, long status,
                        struct sbx_error *err)
{
	const struct sbx_error said = *err;
	int code = said.code;

	if (status == 401 || status == 403)
		code = EACCES;
	else if (status == 404 || (base && strstr(said.text, "remote ref")))
		code = ENOENT;
	else if (status == 409 || status >= 500)
		code = EREMOTEIO;
	return sbx_fail(err, code, "cloning %s/%s%s%s failed: %.600s", source->repo.owner,
	                source->repo.name, base ? " at " : "", base ? base : "", said.text);
}

int daytona_clone(struct daytona_machine *m, const struct daytona_source *source, const char *base,
                  atomic_bool *cancelled, struct sbx_error *err)
{
	struct json_object *body = json_object_new_object();
	const struct daytona_ask ask = {.op = "daytona_clone",
	                                .method = "POST",
	                                .path = "/git/clone",
	                                .body = body,
	                                .deadline_ms = CLONE_MS,
	                                .repeat = SBX_HTTP_UNSENT};
	long status;
	int r;

	daytona_add(body, "url", source->url);
	daytona_add(body, "path", m->base.workdir);
	if (base)
		daytona_add(body, is_hash(base) ? "commit_id" : "branch", base);
	add_token(daytona_of(m->base.provider), body);
	r = daytona_ask_toolbox(m, &ask, cancelled, &status, NULL, err);
	daytona_put_secret(body);
	return r && status ? clone_failed(source, base, status, err) : r;
}

/* ---- branches ---- */

static int ask_branch(struct daytona_machine *m, const char *op, const char *path, const char *key,
                      const char *branch, long *status, atomic_bool *cancelled,
                      struct sbx_error *err)
{
	struct json_object *body = json_object_new_object();
	const struct daytona_ask ask = {
	        .op = op, .method = "POST", .path = path, .body = body, .repeat = SBX_HTTP_UNSENT};
	int r;

	daytona_add(body, "path", m->base.workdir);
	daytona_add(body, key, branch);
	r = daytona_ask_toolbox(m, &ask, cancelled, status, NULL, err);
	json_object_put(body);
	return r;
}

/* It may be there: one that is there already is refused by 409, or by 500. */
static bool is_perhaps_there(int r, long status)
{
	return status == 409 || status == 500 || (!status && (r == -EREMOTEIO || r == -ETIMEDOUT));
}

int daytona_branch(struct daytona_machine *m, const char *branch, bool checks_out,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_error made = SBX_ERROR_INIT, out = SBX_ERROR_INIT;
	long status;
	int r = ask_branch(m, "daytona_branch", "/git/branches", "name", branch, &status, cancelled,
	                   &made);

	if (!r && checks_out)
		return 0;
	if (r && !is_perhaps_there(r, status)) {
		*err = made;
		return r;
	}
	if (ask_branch(m, "daytona_checkout", "/git/checkout", "branch", branch, &status, cancelled,
	               &out) == 0)
		return 0;
	*err = made.code ? made : out;
	return -err->code;
}

/* ---- pushing ---- */

static int current_branch(struct daytona_machine *m, char **ret, atomic_bool *cancelled,
                          struct sbx_error *err)
{
	_cleanup_free_ char *path = NULL, *workdir = sbx_escape_percent(m->base.workdir, "/");
	struct daytona_ask ask = {.op = "daytona_status", .method = "GET", .repeat = SBX_HTTP_SAFE};
	struct json_object *obj = NULL;
	long status;
	int r;

	if (!workdir || asprintf(&path, "/git/status?path=%s", workdir) < 0) {
		path = NULL;
		return sbx_no_memory(err);
	}
	ask.path = path;
	r = daytona_ask_toolbox(m, &ask, cancelled, &status, &obj, err);
	if (!r) {
		*ret = strdup(daytona_text(obj, "currentBranch"));
		r = *ret ? 0 : sbx_no_memory(err);
	}
	json_object_put(obj);
	return r;
}

/* Only the branch that is checked out is pushed, whichever is meant. */
static int check_branch(struct daytona_machine *m, const char *branch, atomic_bool *cancelled,
                        struct sbx_error *err)
{
	_cleanup_free_ char *current = NULL;
	int r = current_branch(m, &current, cancelled, err);

	if (!r && strcmp(current, branch) != 0)
		r = sbx_fail(err, EINVAL, "the sandbox is on the branch %.200s, not on %.200s",
		             current, branch);
	return r;
}

static int push_failed(long status, struct sbx_error *err)
{
	int code = err->code;

	if (status == 401 || status == 403)
		code = EACCES;
	else if (strstr(err->text, "non-fast-forward") || status == 409)
		code = EEXIST;
	else if (strstr(err->text, "declined") || status == 422)
		code = EPERM;
	err->code = code;
	return -code;
}

static int push(struct daytona_machine *m, atomic_bool *cancelled, struct sbx_error *err)
{
	struct json_object *body = json_object_new_object();
	const struct daytona_ask ask = {.op = "daytona_push",
	                                .method = "POST",
	                                .path = "/git/push",
	                                .body = body,
	                                .deadline_ms = PUSH_MS,
	                                .repeat = SBX_HTTP_UNSENT};
	long status;
	int r;

	daytona_add(body, "path", m->base.workdir);
	add_token(daytona_of(m->base.provider), body);
	r = daytona_ask_toolbox(m, &ask, cancelled, &status, NULL, err);
	daytona_put_secret(body);
	return r && status ? push_failed(status, err) : r;
}

int daytona_push(struct sbx_machine *machine, const char *branch, atomic_bool *cancelled,
                 struct sbx_error *err)
{
	struct daytona_machine *m = daytona_machine_of(machine);
	struct daytona *d = daytona_of(machine->provider);
	struct sbx_error own = SBX_ERROR_INIT;
	int r;

	if (!d->config.git_token)
		return sbx_fail(err, EACCES, "GITHUB_TOKEN required for push");
	if (!d->net.open)
		return sbx_fail(err, EOPNOTSUPP,
		                "the network of the sandbox is closed, so that it cannot push");
	r = check_branch(m, branch, cancelled, &own);
	if (!r)
		r = push(m, cancelled, &own);
	if (r && err)
		*err = own;
	return r;
}
