/*
 * A create: the sandbox is asked for by a name that is its own for ever, with the repository that
 * it is to hold, and with its network closed; then a script makes its branch, and takes out of the
 * repository what the clone may have left of the token. Whatever breaks off after the first step
 * removes the sandbox.
 *
 * An answer that was lost is looked for by the name. It is not asked for twice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/pause.h"
#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/github.h"
#include "sandboxfs/secret.h"

#define CREATE_MS (UINT64_C(10) * 60 * 1000) /* with a clone in it */
#define LOOKS     6 /* for one whose create was not answered, with pauses that grow */
#define START_MS  120000
#define SETUP_MS  120000

struct making {
	struct vercel *v;
	const struct sbx_machine_request *req;
	atomic_bool *cancelled;
	struct vercel_source source;
	const char *snapshot;  /* of which it is made, instead; or NULL */
	const char *workdir;   /* of the machine that this was taken of */
	struct vercel_box box; /* no name: there is none that is ours */
	bool was_there;
	bool ajar; /* its network is open to the host of the source */
	struct vercel_machine *m;
};

static void tell(const struct making *k, const char *text)
{
	if (k->req->progress)
		k->req->progress(text, k->req->data);
}

/* ---- the request ---- */

static struct json_object *source_of(const struct making *k)
{
	struct json_object *source = json_object_new_object();
	const char *token = sbx_secret_text(k->v->config.git_token);

	sbx_member_add(source, "type", "git");
	sbx_member_add(source, "url", k->source.url);
	sbx_member_add(source, "revision", k->req->base);
	if (token && sbx_github_token_is_for(k->source.url, k->v->config.github_api)) {
		sbx_member_add(source, "username", "x-access-token");
		sbx_member_add(source, "password", token);
	}
	return source;
}

static void add_list(struct json_object *body, const char *key, const struct sbx_strings *ports)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < ports->n; i++)
		json_object_array_add(array, json_object_new_int(atoi(ports->items[i])));
	json_object_object_add(body, key, array);
}

static void add_env(struct json_object *body, const struct sbx_strings *env)
{
	struct json_object *obj = json_object_new_object();

	for (size_t i = 0; i < env->n; i++) {
		const char *value = strchr(env->items[i], '=');
		_cleanup_free_ char *name =
		        value ? strndup(env->items[i], (size_t)(value - env->items[i])) : NULL;

		if (name)
			sbx_member_add(obj, name, value + 1);
	}
	json_object_object_add(body, "env", obj);
}

static struct json_object *snapshot_of(const struct making *k)
{
	struct json_object *source = json_object_new_object();

	sbx_member_add(source, "type", "snapshot");
	sbx_member_add(source, "snapshotId", k->snapshot);
	return source;
}

static void add_machine(struct json_object *body, const struct sbx_vercel_config *c)
{
	struct json_object *resources;

	sbx_member_add(body, "region", c->region);
	json_object_object_add(body, "timeout", json_object_new_int64((int64_t)c->life_ms));
	json_object_object_add(body, "persistent", json_object_new_boolean(!c->ephemeral));
	if (!c->vcpus)
		return;
	resources = json_object_new_object();
	json_object_object_add(resources, "vcpus", json_object_new_int((int)c->vcpus));
	json_object_object_add(resources, "memory", json_object_new_int((int)c->vcpus * 2048));
	json_object_object_add(body, "resources", resources);
}

static struct json_object *create_body(const struct making *k)
{
	struct json_object *body = json_object_new_object(), *tags = json_object_new_object();

	sbx_member_add(body, "projectId", k->v->token.project);
	sbx_member_add(body, "name", k->req->name);
	add_list(body, "ports", &k->v->ports);
	if (k->v->env.n)
		add_env(body, &k->v->env);
	/* A snapshot has its system in it. */
	if (!k->snapshot) {
		sbx_member_add(body, "runtime", k->v->config.runtime);
		sbx_member_add(body, "image", k->v->config.image);
	}
	add_machine(body, &k->v->config);
	if (k->snapshot)
		json_object_object_add(body, "source", snapshot_of(k));
	else if (k->source.url)
		json_object_object_add(body, "source", source_of(k));
	if (!k->v->net.open)
		json_object_object_add(
		        body, "networkPolicy",
		        vercel_net_body(&k->v->net, k->ajar ? k->source.host : NULL));
	sbx_member_add(tags, VERCEL_TAG, k->req->label);
	json_object_object_add(body, "tags", tags);
	return body;
}

static int ask_create(struct making *k, struct vercel_said *said, struct sbx_error *err)
{
	_cleanup_object_ struct json_object *body = create_body(k), *obj = NULL;
	const struct vercel_ask ask = {.op = "vercel_create",
	                               .method = "POST",
	                               .body = body,
	                               .hidden = k->v->config.git_token,
	                               .deadline_ms = CREATE_MS,
	                               .repeat = SBX_HTTP_UNSENT};
	const char *version = k->v->config.runtime && !k->snapshot ? "v2" : "v3";
	int r = vercel_ask(k->v, &ask, k->cancelled, said, &obj, err, "/%s/sandboxes", version);

	if (!r)
		r = vercel_box_read(k->v, obj, &k->box, err);
	if (!r && strcmp(k->box.name, k->req->name) != 0)
		r = sbx_fail(err, EPROTO, "Vercel has made a sandbox of another name");
	return r;
}

/* ---- what became of it ---- */

/* 0 when it is there. */
static int look_by_name(struct making *k, struct sbx_error *err)
{
	struct vercel_box box;
	int r = vercel_box_look(k->v, k->req->name, &box, k->cancelled, err);

	if (r)
		return r;
	if (!*box.name)
		return sbx_fail(err, ENOENT, "Vercel has no sandbox %s", k->req->name);
	if (strcmp(box.label, k->req->label) != 0)
		return sbx_fail(err, EACCES, "Vercel has a sandbox %s that is another's",
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
			r = sbx_pause(k->v->config.pause_ms << i, k->cancelled, err);
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

/* What git says of a clone that failed, which is all that there is to know why. */
static const struct {
	const char *words;
	int code;
} git_says[] = {
        {"authentication", EACCES},    {"could not read username", EACCES},
        {"not found", ENOENT},         {"did not match", ENOENT},
        {"invalid reference", ENOENT}, {"unknown revision", ENOENT},
};

static int clone_failed(const struct making *k, struct sbx_error *err)
{
	const struct sbx_error said = *err;
	int code = said.code;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(git_says); i++)
		if (strcasestr(said.text, git_says[i].words))
			code = git_says[i].code;
	return sbx_fail(err, code, "a sandbox with %s%s%s was refused: %.600s", k->source.shown,
	                k->req->base ? " at " : "", k->req->base ? k->req->base : "", said.text);
}

static int refused(struct making *k, int r, const struct vercel_said *said, struct sbx_error *err)
{
	if (was_lost(r, said->status))
		return look_for_lost(k, err);
	if (said->status == 409) {
		k->was_there = true;
		return look_by_name(k, err);
	}
	return r;
}

/*
 * Vercel clones outside of the sandbox, as far as is known. Where it is refused with the network
 * closed, it is tried once with the host of the source let through.
 */
static int create(struct making *k, struct sbx_error *err)
{
	struct vercel_said said;
	int r;

	k->ajar = k->source.url && !k->v->net.open && atomic_load(&k->v->clones_inside);
	tell(k, "asking Vercel for a sandbox");
	r = ask_create(k, &said, err);
	if (r && said.status == 400 && k->source.url && !k->v->net.open && !k->ajar) {
		vercel_unmake(&k->v->base, k->req->name, NULL, k->cancelled, NULL);
		k->ajar = true;
		r = ask_create(k, &said, err);
		if (!r)
			atomic_store(&k->v->clones_inside, true);
	}
	if (r && said.status == 400 && k->source.url)
		return clone_failed(k, err);
	return r && !*k->box.name ? refused(k, r, &said, err) : r;
}

/* ---- its session ---- */

static int look_again(struct making *k, struct sbx_error *err)
{
	const struct vercel_ask ask = {
	        .op = "vercel_session", .method = "GET", .repeat = SBX_HTTP_SAFE};
	_cleanup_object_ struct json_object *obj = NULL, *sandbox = json_object_new_object();
	struct vercel_box box;
	int r = vercel_ask(k->v, &ask, k->cancelled, NULL, &obj, err, "/v2/sandboxes/sessions/%s",
	                   k->box.session);

	if (r)
		return r;
	sbx_member_add(sandbox, "name", k->box.name);
	json_object_object_add(obj, "sandbox", json_object_get(sandbox));
	r = vercel_box_read(k->v, obj, &box, err);
	if (r)
		return r;
	k->box.look.state = box.look.state;
	k->box.left_ms = box.left_ms;
	return 0;
}

static int await_up(struct making *k, struct sbx_error *err)
{
	const uint64_t until_ms = sbx_now_ms() + START_MS;
	int r = 0;

	if (!*k->box.session)
		return sbx_fail(err, EPROTO, "an answer of Vercel shows no session");
	if (k->box.look.state == SBX_MACHINE_CHANGING)
		tell(k, "starting the sandbox");
	while (!r && k->box.look.state == SBX_MACHINE_CHANGING) {
		if (sbx_now_ms() > until_ms)
			return sbx_fail(err, ETIMEDOUT,
			                "Vercel has not started the sandbox within two minutes");
		r = sbx_pause(k->v->config.pause_ms, k->cancelled, err);
		if (!r)
			r = look_again(k, err);
	}
	/* What sleeps is woken by the first that is sent to it. */
	if (r || k->box.look.state == SBX_MACHINE_UP || k->was_there)
		return r;
	return sbx_fail(err, EREMOTEIO, "the sandbox has stopped while it was made");
}

/* Where nothing was said of the network, closing it again does no harm. */
static int close_network(struct making *k, struct sbx_error *err)
{
	const bool later = k->ajar || k->box.net_later != VERCEL_NET_RIGHT;

	if (k->v->net.open || (!later && k->box.net == VERCEL_NET_RIGHT))
		return 0;
	return vercel_net_set(k->v, k->box.name, k->box.session, later, k->cancelled, err);
}

/* ---- what is in it ---- */

/*
 * $1 the tree, $2 the URL, $3 the branch or "". Answers "ok", or what is wrong. Where the answer
 * was lost it is sent again, and may still be running: the second waits for the first.
 */
static const char setup[] =
        "cd \"$1\" && exec 2>&1 || exit\n"
        "command -v git >/dev/null || { echo 'the image has no git'; exit; }\n"
        "git() { command git -c safe.directory='*' -c core.hooksPath=/dev/null \"$@\"; }\n"
        "git rev-parse -q --verify HEAD >/dev/null || { echo 'nothing was cloned'; exit; }\n"
        "lock=.git/sandboxfs.lock; n=0\n"
        "while ! mkdir $lock 2>/dev/null && [ $n -lt 20 ]; do n=$((n + 1)); sleep 1; done\n"
        "trap 'rmdir $lock' EXIT\n"
        "git remote set-url origin \"$2\" || exit\n"
        "git config --unset-all http.extraheader\n"
        "git config --unset-all \"http.$2.extraheader\"\n"
        "if [ -z \"$3\" ]; then :\n"
        "elif git show-ref -q --verify \"refs/heads/$3\"; then\n"
        "git checkout -q \"$3\" -- || exit\n"
        "elif git show-ref -q --verify \"refs/remotes/origin/$3\"; then\n"
        "git checkout -q -b \"$3\" --track \"origin/$3\" || exit\n"
        "else\n"
        "git checkout -q -b \"$3\" || exit\n"
        "fi\n"
        "echo ok\n";

static int set_up(struct making *k, struct sbx_error *err)
{
	const char *branch = k->req->branch ? k->req->branch : "";
	const char *const args[] = {k->box.cwd, k->source.url, branch, NULL};
	_cleanup_free_ char *out = NULL;
	char text[320];
	size_t len;
	int r;

	if (!k->source.url)
		return 0;
	snprintf(text, sizeof(text), "checking out %.200s in %.100s", *branch ? branch : "HEAD",
	         k->source.shown);
	tell(k, text);
	r = vercel_run_wait(k->m, "vercel_branch", setup, args, SETUP_MS, &out, k->cancelled, err);
	if (r)
		return r;
	len = strlen(out);
	if (strcmp(out, "ok\n") == 0 || (len > 4 && strcmp(out + len - 4, "\nok\n") == 0))
		return 0;
	out[strcspn(out, "\n")] = '\0';
	return sbx_fail(err, EREMOTEIO, "%.200s cannot be checked out: %.400s",
	                *branch ? branch : "the source", *out ? out : "the script was broken off");
}

/* ---- all of it ---- */

/* A snapshot has its tree where it was, though commands may start above that: nothing says which
 * system is in it. */
static const char *tree_of(const struct making *k)
{
	const size_t n = strlen(k->box.cwd);

	return k->workdir && strncmp(k->workdir, k->box.cwd, n) == 0 && k->workdir[n] == '/'
	               ? k->workdir
	               : k->box.cwd;
}

static int finish(struct making *k, struct sbx_error *err)
{
	int r = await_up(k, err);

	if (r)
		return r;
	k->m = vercel_machine_new(k->v, k->box.name, tree_of(k));
	if (!k->m)
		return sbx_no_memory(err);
	/* One that was there before is looked after by what is sent to it first. */
	if (k->was_there)
		return 0;
	r = close_network(k, err);
	if (r)
		return r;
	vercel_machine_runs(k->m, &k->box);
	return set_up(k, err);
}

static int make(struct making *k, struct sbx_error *err)
{
	int r;

	if (!vercel_is_word(k->req->name, 128))
		return sbx_fail(err, EINVAL, "%.100s is no name of a sandbox of Vercel's",
		                k->req->name);
	r = create(k, err);
	if (!*k->box.name)
		return r;
	if (!r)
		r = finish(k, err);
	/* Its session has ended, or is about to: there is nothing to wait for. */
	if (r == -EBUSY && !k->was_there)
		r = sbx_fail(err, ESTALE, "the sandbox has stopped while it was made");
	if (r && r != -EINTR && !k->was_there)
		vercel_unmake(&k->v->base, k->req->name, NULL, k->cancelled, NULL);
	return r;
}

static int make_whole(struct making *k, struct sbx_machine **ret, struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	int r = vercel_source_parse(k->req->source, k->v->config.github_api, &k->source, &own);

	*ret = NULL;
	if (!r)
		r = make(k, &own);
	vercel_source_release(&k->source);
	if (r && k->m) {
		vercel_release(&k->m->base);
		k->m = NULL;
	}
	if (!r)
		*ret = &k->m->base;
	if (!r && k->was_there)
		r = sbx_fail(&own, EEXIST, "Vercel has the sandbox %s already", k->req->name);
	if (r && err)
		*err = own;
	return r;
}

int vercel_make(struct sbx_provider *p, const struct sbx_machine_request *req,
                struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err)
{
	struct making k = {.v = vercel_of(p), .req = req, .cancelled = cancelled};

	return make_whole(&k, ret, err);
}

int vercel_make_of(struct vercel *v, const struct sbx_machine_request *req, const char *snapshot,
                   const char *workdir, struct sbx_machine **ret, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	struct making k = {.v = v,
	                   .req = req,
	                   .cancelled = cancelled,
	                   .snapshot = snapshot,
	                   .workdir = workdir};

	return make_whole(&k, ret, err);
}
