/*
 * [pool of its own] push and pull request; [loop] the outcome is kept, noted and told. The queue of
 * a sandbox is a list whose first member is under way.
 */
#include "fs/sandbox/push.h"

#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/github/api.h"
#include "fs/sandbox/registry_impl.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/secret.h"

/* Each may wait for a machine or a server for minutes, of whom the others know nothing. */
#define PUSHES_MOST 64

struct sbx_pusher {
	struct sbx_http *http;
	char *api;
	const struct sbx_secret *token;
	pthread_mutex_t lock; /* both are made when they are needed first */
	struct sbx_pool *pool;
	struct sbx_github *github;
};

struct sbx_push {
	struct sbx_push *next; /* in the queue; registry's lock */
	struct box *box;
	struct sbx_push_request req;
	atomic_bool cancelled;
	sbx_push_done done; /* loop thread; NULL: nobody waits */
	void *data;
	uint64_t begun_ns;
	/* The outcome, handed from the pool to the loop: */
	bool pushed;
	char *pr_url;
	char error[1280]; /* "" for none */
	int code;         /* of it, a positive errno */
};

int sbx_pusher_create(struct sbx_http *http, const struct sbx_secret *token, const char *api,
                      struct sbx_pusher **ret)
{
	struct sbx_pusher *p = calloc(1, sizeof(*p));

	if (p)
		p->api = strdup(api ? api : "");
	if (!p || !p->api) {
		free(p);
		return -ENOMEM;
	}
	p->http = http;
	p->token = token;
	pthread_mutex_init(&p->lock, NULL);
	*ret = p;
	return 0;
}

void sbx_pusher_destroy(struct sbx_pusher *p)
{
	if (!p)
		return;
	sbx_pool_destroy(p->pool);
	sbx_github_destroy(p->github);
	pthread_mutex_destroy(&p->lock);
	free(p->api);
	free(p);
}

static int pool_of(struct sbx_pusher *p, struct sbx_pool **ret)
{
	int r = 0;

	pthread_mutex_lock(&p->lock);
	if (!p->pool)
		r = sbx_pool_create_wide(PUSHES_MOST, false, &p->pool);
	*ret = p->pool;
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int github_of(struct sbx_pusher *p, struct sbx_github **ret, struct sbx_error *err)
{
	int r = 0;

	pthread_mutex_lock(&p->lock);
	if (!p->github)
		r = sbx_github_create(p->http, p->api, p->token, &p->github, err);
	*ret = p->github;
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* ---- the work ---- */

static char *branch_of(struct box *box)
{
	struct json_object *info = json_object_new_object(), *value;
	char *branch = NULL;

	sbx_sandbox_info(box->pub.sandbox, info);
	if (json_object_object_get_ex(info, "branch", &value))
		branch = strdup(json_object_get_string(value));
	json_object_put(info);
	return branch;
}

static void fail(struct sbx_push *push, const char *what, const struct sbx_error *err)
{
	push->code = err->code;
	snprintf(push->error, sizeof(push->error), "%s failed: %s", what, err->text);
}

/* A push may go to a mirror, or to an alias of GitHub's host: then the remote's own URL says which
 * repository it is. */
static int find_repo(struct sbx_push *push, const char *url, const char *api,
                     struct sbx_github_repo *ret, struct sbx_error *err)
{
	_cleanup_free_ char *written = NULL;
	int r = sbx_github_parse(url, api, ret, err);

	if (!r ||
	    sbx_remote_url(push->box->pub.sandbox, push->req.remote, true, &written, NULL) < 0)
		return r;
	return sbx_github_parse(written, api, ret, NULL) ? r : 0;
}

/* Opens a pull request. The sandbox tells what the request leaves out. */
static int pull(struct sbx_push *push, const char *url, struct sbx_error *err)
{
	const struct sbx_push_request *req = &push->req;
	struct sbx_pusher *pusher = push->box->pub.registry->pusher;
	_cleanup_free_ char *branch = branch_of(push->box), *title = NULL, *body = NULL;
	struct sbx_github_repo repo;
	struct sbx_github *github;
	int r = github_of(pusher, &github, err);

	if (!r)
		r = find_repo(push, url, sbx_github_api(github), &repo, err);
	if (r)
		return r;
	if (!branch)
		return sbx_fail(err, EOPNOTSUPP, "the sandbox has no branch");
	title = req->title ? sbx_github_title("", req->title)
	                   : sbx_github_title("[harness]", req->intent ? req->intent : branch);
	if (!title || asprintf(&body, "Blueprint: %s\nBranch: %s\nRun: %s",
	                       req->blueprint ? req->blueprint : "sandboxfs", branch,
	                       req->run ? req->run : push->box->pub.sandbox->id) < 0) {
		body = NULL;
		return sbx_no_memory(err);
	}
	return sbx_github_pull(github, &repo, &(struct sbx_github_pull){title, body, branch},
	                       &push->cancelled, &push->pr_url, err);
}

static bool is_web(const char *url)
{
	return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

static void run(struct sbx_push *push)
{
	struct sbx_sandbox *sandbox = push->box->pub.sandbox;
	struct sbx_registry *reg = push->box->pub.registry;
	const struct sbx_push_options options = {
	        .remote = push->req.remote,
	        .token = sbx_secret_text(reg->pusher->token),
	        .api = reg->pusher->api,
	        .timeout_ms = reg->config.settings->operation_timeout_ms,
	        .cancelled = &push->cancelled,
	};
	_cleanup_free_ char *url = NULL;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = 0;

	if (!push->req.pr || options.token)
		r = sbx_remote_url(sandbox, options.remote, false, &url, &err);
	if (!r && !options.token && (push->req.pr || is_web(url))) {
		push->code = EACCES;
		snprintf(push->error, sizeof(push->error), "GITHUB_TOKEN required for push");
		return;
	}
	if (!r)
		r = sbx_remote_push(sandbox, &options, &err);
	push->pushed = !r;
	if (r) {
		sbx_error_complete(&err, r, "pushing", sandbox->id);
		fail(push, "git push", &err);
		return;
	}
	r = push->req.pr ? pull(push, url, &err) : 0;
	if (r < 0) {
		sbx_error_complete(&err, r, "asking for the merge of", sandbox->id);
		fail(push, "PR creation", &err);
	}
}

static void done(void *data);

/* [pool] */
static void work(void *data)
{
	struct sbx_push *push = data;

	struct sbx_error err = SBX_ERROR_INIT;

	if (!atomic_load(&push->cancelled)) {
		run(push);
	} else {
		sbx_fail(&err, EINTR, "it was given up");
		fail(push, "git push", &err);
	}
	sbx_loop_post(push->box->pub.registry->config.loop, done, push);
}

/* ---- the outcome ---- */

/* The outcome is data to whoever wrote, so who looks at error alone is told as well. */
static void tell_error(struct sbx_push *push)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (!*push->error)
		return;
	sbx_fail(&err, push->code ? push->code : EREMOTEIO, "%s", push->error);
	sbx_error_store(push->box->pub.registry, &push->box->pub, &err);
}

static struct json_object *outcome(const struct sbx_push *push)
{
	struct json_object *obj = json_object_new_object();

	json_object_object_add(obj, "pushed", json_object_new_boolean(push->pushed));
	if (push->pr_url)
		json_object_object_add(obj, "prUrl",
		                       sbx_text_json(push->pr_url, strlen(push->pr_url)));
	if (*push->error)
		json_object_object_add(obj, "error",
		                       sbx_text_json(push->error, strlen(push->error)));
	return obj;
}

static char *result_line(const struct sbx_push *push)
{
	struct json_object *obj = outcome(push);
	char *line = NULL;

	if (asprintf(&line, "%s\n",
	             json_object_to_json_string_ext(
	                     obj, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)) < 0)
		line = NULL;
	json_object_put(obj);
	return line;
}

static void note(struct sbx_push *push)
{
	struct box *box = push->box;
	const double seconds = (double)(sbx_now_ns() - push->begun_ns) / 1e9;
	struct json_object *extra = outcome(push);
	char number[32], text[1400];

	snprintf(number, sizeof(number), "%.3f", seconds);
	json_object_object_add(extra, "duration_sec", json_object_new_double_s(seconds, number));
	sbx_log_record(box->pub.log, "push", extra);
	snprintf(text, sizeof(text), "%s%s%s%s%s", push->pushed ? "pushed" : "",
	         push->pr_url ? ": " : "", push->pr_url ? push->pr_url : "",
	         push->pushed && *push->error ? "; " : "", push->error);
	sbx_box_event(box->pub.registry, box, "push", text);
}

/* Takes PUSH off the queue and keeps LINE; *gone: the sandbox or the mount is being taken down.
 * What is next? */
static struct sbx_push *take_off(struct sbx_push *push, const char *line, bool *gone)
{
	struct box *box = push->box;
	struct sbx_registry *reg = box->pub.registry;
	struct sbx_push *next;
	char *kept = line ? strdup(line) : NULL;

	pthread_mutex_lock(&reg->lock);
	assert(box->pushes == push);
	free(box->push_result);
	box->push_result = kept;
	next = box->pushes = push->next;
	*gone = !push->pushed && (reg->closing || box->pub.state != SBX_BOX_READY);
	pthread_mutex_unlock(&reg->lock);
	return next;
}

static void push_free(struct sbx_push *push)
{
	sbx_push_request_release(&push->req);
	free(push->pr_url);
	free(push);
}

/* [loop] */
static void done(void *data)
{
	struct sbx_push *push = data, *next;
	struct box *box = push->box;
	_cleanup_free_ char *line = result_line(push);
	struct sbx_error err = SBX_ERROR_INIT;
	bool gone;
	int r = line ? 0 : sbx_no_memory(&err);

	note(push);
	tell_error(push);
	next = take_off(push, line, &gone);
	if (next)
		sbx_pool_submit(box->pub.registry->pusher->pool, work, next);
	if (gone)
		r = sbx_fail(&err, ESTALE, "the sandbox was taken down meanwhile");
	if (push->done)
		push->done(r, line, &err, push->data);
	push_free(push);
	sbx_box_left(box);
}

/* ---- the queue ---- */

int sbx_push_check(struct sbx_box *box, struct sbx_error *err)
{
	if (sbx_has_remote(box->sandbox))
		return 0;
	return sbx_fail(err, EOPNOTSUPP, "push is not available with the %s backend",
	                box->registry->config.settings->backend);
}

/* The lock is held. *first: nothing else is under way. */
static int enqueue(struct sbx_push *push, bool *first, struct sbx_error *err)
{
	struct box *box = push->box;
	struct sbx_registry *reg = box->pub.registry;
	struct sbx_push **end = &box->pushes;

	if (box->pub.state == SBX_BOX_RETIRED)
		return sbx_fail(err, ESTALE, "the sandbox is gone");
	if (reg->closing || box->pub.state != SBX_BOX_READY)
		return sbx_fail(err, EBUSY, "%s is being taken down", box->pub.name);
	*first = !*end;
	while (*end)
		end = &(*end)->next;
	*end = push;
	sbx_box_ref(&box->pub);
	sbx_registry_begin(reg);
	return 0;
}

int sbx_push_begin(struct sbx_box *pub, struct sbx_push_request *req, sbx_push_done fn, void *data,
                   struct sbx_push **ret, struct sbx_error *err)
{
	struct sbx_registry *reg = pub->registry;
	struct sbx_push *push = calloc(1, sizeof(*push));
	struct sbx_pool *pool;
	bool first = false;
	int r = push ? pool_of(reg->pusher, &pool) : -ENOMEM;

	if (r) {
		free(push);
		return sbx_fail(err, -r, "a push cannot be begun: %s", strerror(-r));
	}
	push->box = sbx_container_of(pub, struct box, pub);
	push->req = *req;
	push->done = fn;
	push->data = data;
	push->begun_ns = sbx_now_ns();
	pthread_mutex_lock(&reg->lock);
	r = enqueue(push, &first, err);
	pthread_mutex_unlock(&reg->lock);
	if (r) {
		free(push);
		return r;
	}
	*req = (struct sbx_push_request){0};
	*ret = push;
	if (first)
		sbx_pool_submit(pool, work, push);
	return 0;
}

void sbx_push_refused(struct sbx_box *pub, const struct sbx_error *err)
{
	struct sbx_push push = {.box = sbx_container_of(pub, struct box, pub)};
	char *line;

	snprintf(push.error, sizeof(push.error), "%s", err->text);
	line = result_line(&push);
	pthread_mutex_lock(&pub->registry->lock);
	free(push.box->push_result);
	push.box->push_result = line;
	pthread_mutex_unlock(&pub->registry->lock);
}

void sbx_push_abandon(struct sbx_push *push)
{
	assert(push->done);
	push->done = NULL;
	atomic_store(&push->cancelled, true);
}

void sbx_box_cancel_pushes(struct box *box)
{
	for (struct sbx_push *push = box->pushes; push; push = push->next)
		atomic_store(&push->cancelled, true);
}

char *sbx_push_last(struct sbx_box *pub)
{
	struct box *box = sbx_container_of(pub, struct box, pub);
	char *copy;

	pthread_mutex_lock(&pub->registry->lock);
	copy = strdup(box->push_result ? box->push_result : "");
	pthread_mutex_unlock(&pub->registry->lock);
	return copy;
}
