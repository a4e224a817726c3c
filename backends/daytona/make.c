/*
 * The walk of a create: the sandbox is asked for by a name that is its own for ever, waited for,
 * and gets its repository and branch; then its network is closed. Whatever breaks off after the
 * first step removes the sandbox.
 *
 * An answer that was lost is looked for by the name. It is not asked for twice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "backends/support/escape.h"
#include "backends/support/pause.h"
#include "sandboxfs/cleanup.h"

#define LOOKS    5 /* for one whose create was not answered, with pauses that grow */
#define START_MS (UINT64_C(5) * 60 * 1000)
#define BUILD_MS (UINT64_C(30) * 60 * 1000) /* of an image */
#define FOLDER   "workspace"

struct making {
	struct daytona *d;
	const struct sbx_machine_request *req;
	atomic_bool *cancelled;
	struct daytona_source source;
	struct daytona_box box;
	bool was_there;
	bool closed; /* the network, when it was made */
	char home[512];
	struct daytona_machine *m;
};

static void tell(const struct making *k, const char *text)
{
	if (k->req->progress)
		k->req->progress(text, k->req->data);
}

/* ---- the sandbox ---- */

static void add_size(const struct sbx_daytona_config *c, struct json_object *body)
{
	char text[512];
	struct json_object *build;

	if (!c->image) {
		daytona_add(body, "snapshot", c->snapshot);
		return;
	}
	snprintf(text, sizeof(text), "FROM %s\n", c->image);
	build = json_object_new_object();
	daytona_add(build, "dockerfileContent", text);
	json_object_object_add(body, "buildInfo", build);
	if (c->cpus)
		json_object_object_add(body, "cpu", json_object_new_int64(c->cpus));
	if (c->memory_gb)
		json_object_object_add(body, "memory", json_object_new_int64(c->memory_gb));
	if (c->disk_gb)
		json_object_object_add(body, "disk", json_object_new_int64(c->disk_gb));
}

static void add_env(const struct sbx_daytona_config *c, struct json_object *body)
{
	struct json_object *env;

	if (!c->env || !*c->env)
		return;
	env = json_object_new_object();
	for (char *const *at = c->env; *at; at++) {
		const size_t n = strcspn(*at, "=");
		char key[DAYTONA_KEY_MAX + 1];

		snprintf(key, sizeof(key), "%.*s", (int)n, *at);
		daytona_add(env, key, *at + n + 1);
	}
	json_object_object_add(body, "env", env);
}

/* Without a source nothing has to come by the network, so that it is closed from the beginning. */
static struct json_object *create_body(struct making *k)
{
	const struct sbx_daytona_config *c = &k->d->config;
	struct json_object *body = json_object_new_object(), *labels = json_object_new_object();

	daytona_add(body, "name", k->req->name);
	daytona_add(labels, DAYTONA_LABEL, k->req->label);
	json_object_object_add(body, "labels", labels);
	daytona_add(body, "target", c->target);
	add_size(c, body);
	json_object_object_add(body, "autoStopInterval", json_object_new_int64(c->idle_min));
	if (!c->kept)
		json_object_object_add(body, "autoDeleteInterval", json_object_new_int(0));
	add_env(c, body);
	k->closed = !k->source.url;
	if (k->closed)
		daytona_net_add(&k->d->net, body);
	return body;
}

/* 0 when it is there. */
static int look_by_name(struct making *k, struct sbx_error *err)
{
	struct daytona_box box;
	int r = daytona_box_look(k->d, k->req->name, &box, k->cancelled, err);

	if (r)
		return r;
	if (box.look.state == SBX_MACHINE_GONE || strcmp(box.name, k->req->name) != 0)
		return sbx_fail(err, ENOENT, "Daytona has no sandbox %s", k->req->name);
	if (strcmp(box.label, k->req->label) != 0)
		return sbx_fail(err, EACCES, "Daytona has a sandbox %s that is another's",
		                k->req->name);
	k->box = box;
	return 0;
}

/* The create was not answered, or not in words: it may be there, or come to be. */
static int look_for_lost(struct making *k, struct sbx_error *err)
{
	const struct sbx_error lost = *err;
	int r = 0;

	for (unsigned i = 0; i < LOOKS; i++) {
		if (i)
			r = sbx_pause(5 * k->d->config.pause_ms << i, k->cancelled, err);
		if (!r)
			r = look_by_name(k, err);
		if (r != -ENOENT)
			return r;
		r = 0;
	}
	*err = lost;
	return -lost.code;
}

static bool was_lost(int r, long status)
{
	if (status)
		return r == -EPROTO || status >= 500;
	return r == -ETIMEDOUT || r == -EREMOTEIO || r == -EPROTO || r == -EMSGSIZE;
}

static int read_created(struct making *k, struct json_object *obj, struct sbx_error *err)
{
	int r = daytona_box_read(obj, &k->box, err);

	return !r && k->closed ? daytona_net_check(&k->d->net, obj, err) : r;
}

static int refused(struct making *k, int r, long status, struct sbx_error *err)
{
	if (was_lost(r, status))
		return look_for_lost(k, err);
	if (status == 409) {
		k->was_there = true;
		return look_by_name(k, err);
	}
	/* It may have failed to start within the request, whose refusal has no id. */
	if (status == 400)
		daytona_unmake(&k->d->base, k->req->name, NULL, k->cancelled, NULL);
	return r;
}

static int create(struct making *k, struct sbx_error *err)
{
	struct json_object *body = create_body(k), *obj = NULL;
	const struct daytona_ask ask = {.op = "daytona_create",
	                                .method = "POST",
	                                .base = k->d->config.api_url,
	                                .path = "/sandbox",
	                                .body = body,
	                                .deadline_ms = 3 * k->d->config.ask_ms, /* 30 s are held */
	                                .repeat = SBX_HTTP_UNSENT};
	long status;
	int r;

	tell(k, "asking Daytona for a sandbox");
	r = daytona_ask(k->d, &ask, k->cancelled, &status, &obj, err);
	if (!r)
		r = read_created(k, obj, err);
	json_object_put(obj);
	json_object_put(body);
	return r && !*k->box.id ? refused(k, r, status, err) : r;
}

/* ---- its toolbox ---- */

/* Older servers have no such member. */
static int ask_toolbox_url(struct making *k, struct sbx_error *err)
{
	const struct daytona_ask ask = {.op = "daytona_url",
	                                .method = "GET",
	                                .base = k->d->config.api_url,
	                                .repeat = SBX_HTTP_SAFE};
	struct json_object *obj = NULL;
	int r = daytona_askf(k->d, ask, k->cancelled, NULL, &obj, err,
	                     "/sandbox/%s/toolbox-proxy-url", k->box.id);

	if (!r)
		snprintf(k->box.toolbox, sizeof(k->box.toolbox), "%s", daytona_text(obj, "url"));
	json_object_put(obj);
	return r;
}

static int find_toolbox(struct making *k, struct sbx_error *err)
{
	char toolbox[sizeof(k->box.toolbox) + sizeof(k->box.id) + 1];
	int r = *k->box.toolbox ? 0 : ask_toolbox_url(k, err);
	size_t n;

	if (r)
		return r;
	n = strlen(k->box.toolbox);
	while (n && k->box.toolbox[n - 1] == '/')
		n--;
	if (!n || strpbrk(k->box.toolbox, "?# \r\n"))
		return sbx_fail(err, EPROTO, "Daytona does not say where the toolbox is");
	snprintf(toolbox, sizeof(toolbox), "%.*s/%s", (int)n, k->box.toolbox, k->box.id);
	k->m = daytona_machine_new(k->d, &k->box, toolbox);
	return k->m ? 0 : sbx_no_memory(err);
}

/* ---- its home ---- */

static bool is_plain_path(const char *path)
{
	for (const char *c = path; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	return *path == '/' && path[1] && !strstr(path, "/../") &&
	       strlen(path) < sizeof(((struct making *)NULL)->home);
}

static int ask_home(struct making *k, struct sbx_error *err)
{
	const struct daytona_ask ask = {.op = "daytona_home",
	                                .method = "GET",
	                                .path = "/user-home-dir",
	                                .repeat = SBX_HTTP_SAFE};
	struct json_object *obj = NULL;
	long status;
	int r = daytona_ask_toolbox(k->m, &ask, k->cancelled, &status, &obj, err);

	if (!r && !is_plain_path(daytona_text(obj, "dir")))
		r = sbx_fail(err, EPROTO, "Daytona does not say where the home directory is");
	if (!r)
		snprintf(k->home, sizeof(k->home), "%s", daytona_text(obj, "dir"));
	json_object_put(obj);
	return r;
}

static int find_home(struct making *k, struct sbx_error *err)
{
	char workdir[sizeof(k->home) + sizeof(k->source.repo.name) + sizeof(FOLDER) + 2];
	char room[sizeof(k->home) + sizeof("/.sandboxfs")];
	int r = ask_home(k, err);

	if (r)
		return r;
	snprintf(workdir, sizeof(workdir), "%s/" FOLDER "/%s", k->home,
	         k->source.url ? k->source.repo.name : "sandbox");
	snprintf(room, sizeof(room), "%s/.sandboxfs", k->home);
	return daytona_machine_place(k->m, workdir, room) == 0 ? 0 : sbx_no_memory(err);
}

/* ---- what is in it ---- */

static int make_folder(struct making *k, struct sbx_error *err)
{
	_cleanup_free_ char *escaped = sbx_escape_percent(k->m->base.workdir, "/"), *path = NULL;
	struct daytona_ask ask = {
	        .op = "daytona_folder", .method = "POST", .repeat = SBX_HTTP_SAFE};
	long status;

	if (!escaped || asprintf(&path, "/files/folder?path=%s&mode=755", escaped) < 0) {
		path = NULL;
		return sbx_no_memory(err);
	}
	ask.path = path;
	return daytona_ask_toolbox(k->m, &ask, k->cancelled, &status, NULL, err);
}

static int fill(struct making *k, struct sbx_error *err)
{
	char text[320];
	int r;

	if (!k->source.url)
		return make_folder(k, err);
	snprintf(text, sizeof(text), "cloning %s/%s", k->source.repo.owner, k->source.repo.name);
	tell(k, text);
	r = daytona_clone(k->m, &k->source, k->req->base, k->cancelled, err);
	if (r || !k->req->branch)
		return r;
	return daytona_branch(k->m, k->req->branch, k->box.checks_out, k->cancelled, err);
}

static int close_network(struct making *k, struct sbx_error *err)
{
	if (k->closed || k->d->net.open)
		return 0;
	return daytona_net_set(k->d, k->box.id, k->cancelled, err);
}

/* ---- all of it ---- */

static int await_up(struct making *k, struct sbx_error *err)
{
	const uint64_t most_ms = k->d->config.image ? BUILD_MS : START_MS;

	if (k->box.look.state != SBX_MACHINE_UP)
		tell(k, k->d->config.image ? "building the image" : "starting the sandbox");
	return daytona_box_await(k->d, &k->box, most_ms, k->cancelled, err);
}

static int set_up(struct making *k, struct sbx_error *err)
{
	int r = await_up(k, err);

	if (!r)
		r = find_toolbox(k, err);
	if (!r)
		r = find_home(k, err);
	if (r)
		return r;
	if (k->was_there) {
		atomic_store(&k->m->net_unsure, true);
		return 0;
	}
	r = fill(k, err);
	return r ? r : close_network(k, err);
}

static int make(struct making *k, struct sbx_error *err)
{
	char id[sizeof(k->box.id)];
	int r = create(k, err);

	if (!*k->box.id)
		return r;
	memcpy(id, k->box.id, sizeof(id));
	if (!r)
		r = set_up(k, err);
	if (r && r != -EINTR && !k->was_there)
		daytona_remove(k->d, id, k->cancelled, NULL);
	return r;
}

int daytona_make(struct sbx_provider *p, const struct sbx_machine_request *req,
                 struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err)
{
	struct making k = {.d = daytona_of(p), .req = req, .cancelled = cancelled};
	struct sbx_error own = SBX_ERROR_INIT;
	int r = daytona_source_parse(req->source, k.d->config.github_api, &k.source, &own);

	*ret = NULL;
	if (!r)
		r = make(&k, &own);
	daytona_source_release(&k.source);
	if (r && k.m) {
		daytona_release(&k.m->base);
		k.m = NULL;
	}
	if (!r)
		*ret = &k.m->base;
	if (!r && k.was_there)
		r = sbx_fail(&own, EEXIST, "Daytona has the sandbox %s already", req->name);
	if (r && err)
		*err = own;
	return r;
}
