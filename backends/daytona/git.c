/* Repositories in sandboxes, by the git of the toolbox. The token goes there in each request. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/daytona/daytona_impl.h"
#include "backends/remote/text.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/github.h"
#include "sandboxfs/secret.h"

#define CLONE_MS (UINT64_C(30) * 60 * 1000)

/* ---- sources ---- */

static bool is_local(const char *text)
{
	return strchr("/~.", *text) || !strchr(text, '/') || strncasecmp(text, "file:", 5) == 0 ||
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

static void add_token(struct daytona *d, const char *url, struct json_object *body)
{
	const char *token = sbx_secret_text(d->config.git_token);

	if (!token || !sbx_github_token_is_for(url, d->config.github_api))
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
	add_token(daytona_of(m->base.provider), source->url, body);
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

static bool has_succeeded(struct json_object *execution)
{
	struct json_object *code = daytona_member(execution, "exitCode", json_type_int);

	return code && json_object_get_int64(code) == 0;
}

/*
 * Makes BRANCH and checks it out by the sandbox's own git program, in one request. False where that
 * could not be done, because there is no such program, or the branch is there already.
 */
static bool check_out_by_program(struct daytona_machine *m, const char *branch,
                                 atomic_bool *cancelled)
{
	struct json_object *body = json_object_new_object(), *obj = NULL;
	const struct daytona_ask ask = {.op = "daytona_branch",
	                                .method = "POST",
	                                .path = "/process/execute",
	                                .body = body,
	                                .repeat = SBX_HTTP_UNSENT};
	struct remote_text script = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *command = NULL;
	bool done = false;
	long status;

	remote_text_add(&script, "git -C");
	remote_text_word(&script, m->base.workdir);
	remote_text_add(&script, " checkout -q -b");
	remote_text_word(&script, branch);
	if (!script.failed)
		command = daytona_command(script.at, script.n);
	remote_text_release(&script);
	if (command) {
		daytona_add(body, "command", command);
		done = daytona_ask_toolbox(m, &ask, cancelled, &status, &obj, &err) == 0 &&
		       has_succeeded(obj);
	}
	json_object_put(obj);
	json_object_put(body);
	return done;
}

int daytona_branch(struct daytona_machine *m, const char *branch, bool checks_out,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_error made = SBX_ERROR_INIT, out = SBX_ERROR_INIT;
	long status;
	int r;

	if (!checks_out && check_out_by_program(m, branch, cancelled))
		return 0;
	r = ask_branch(m, "daytona_branch", "/git/branches", "name", branch, &status, cancelled,
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
