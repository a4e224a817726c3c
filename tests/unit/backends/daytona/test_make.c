#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "tests/lib/daytona_fixture.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

static struct json_object *asked_of(const char *name)
{
	struct json_object *obj = json_tokener_parse(daytona_control("box/%s", name));

	assert_non_null(obj);
	return obj;
}

static void check_member(struct json_object *obj, const char *key, const char *want)
{
	struct json_object *value = NULL;

	json_object_object_get_ex(obj, key, &value);
	assert_string_equal(
	        value ? json_object_to_json_string_ext(
	                        value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)
	              : "none",
	        want);
}

/* ---- what is made ---- */

static void a_sandbox_is_made_of_a_repository(void **state)
{
	struct sbx_machine *m = daytona_made(daytona_source());

	(void)state;
	assert_non_null(strstr(m->workdir, "/home/daytona/workspace/widgets"));
	assert_string_equal(strrchr(m->workdir, '/'), "/widgets");
	assert_string_equal(strrchr(m->room, '/'), "/.sandboxfs");
	daytona_runs(m, "cat ~/workspace/widgets/README.md", "hello\n");
	daytona_runs(m, "cd ~/workspace/widgets && git symbolic-ref --short HEAD", "work\n");
	daytona_runs(m,
	             "cd ~/workspace/widgets && git for-each-ref --format='%(refname)' refs/heads",
	             "refs/heads/trunk\nrefs/heads/work\n");
	daytona_runs(m, "cd ~/workspace/widgets && git config remote.origin.url | grep -c secret",
	             "0\n");
	daytona_drop(m);
}

static void it_takes_four_requests(void **state)
{
	struct sbx_machine *m = daytona_made(daytona_source());

	(void)state;
	assert_int_equal(daytona_count("create"), 1);
	assert_int_equal(daytona_count("home"), 1);
	assert_int_equal(daytona_count("clone"), 1);
	/* Nothing says that newer daemons check out the branch that they make; git does. */
	assert_int_equal(daytona_count(daytona_is_new() ? "execute" : "branch"), 1);
	assert_int_equal(daytona_count("all"), 4);
	daytona_drop(m);
}

/* The sandbox has none for the next make. */
static void have_no_git(void)
{
	daytona_tell("fault", "{\"op\": \"execute\", \"fault\": \"answer\", \"body\": "
	                      "\"{\\\"exitCode\\\": 127, \\\"result\\\": \\\"\\\"}\"}");
}

static void without_git_the_toolbox_makes_the_branch(void **state)
{
	struct sbx_machine *m;

	(void)state;
	have_no_git();
	m = daytona_made(daytona_source());
	assert_int_equal(daytona_count("branch"), 1);
	assert_int_equal(daytona_count("checkout"), daytona_is_new());
	daytona_forget();
	daytona_runs(m, "cd ~/workspace/widgets && git symbolic-ref --short HEAD", "work\n");
	daytona_drop(m);
}

static void it_is_ephemeral_and_has_its_name_and_label(void **state)
{
	const char *name = daytona_name();
	struct sbx_machine *m;
	struct json_object *asked;

	(void)state;
	assert_int_equal(daytona_try_make(name, NULL, &m), 0);
	asked = asked_of(name);
	check_member(asked, "snapshot", "\"daytona-medium\"");
	check_member(asked, "target", "\"us\"");
	check_member(asked, "autoStopInterval", "30");
	check_member(asked, "autoDeleteInterval", "0");
	check_member(asked, "labels", "{\"sandboxfs\":\"" DAYTONA_LABEL_OF_TESTS "\"}");
	check_member(asked, "networkBlockAll", "none");
	json_object_put(asked);
	assert_true(m->provider->impl->can & SBX_PROVIDER_EPHEMERAL);
	assert_false(m->provider->impl->can & SBX_PROVIDER_SLEEPS);
	daytona_drop(m);
}

static void one_may_be_kept_of_another_snapshot(void **state)
{
	const char *name = daytona_name();
	struct sbx_machine *m;
	struct json_object *asked;

	(void)state;
	daytona_config.snapshot = "daytona-small";
	daytona_config.kept = true;
	daytona_config.idle_min = 5;
	daytona_provide();
	assert_int_equal(daytona_try_make(name, NULL, &m), 0);
	asked = asked_of(name);
	check_member(asked, "snapshot", "\"daytona-small\"");
	check_member(asked, "autoStopInterval", "5");
	check_member(asked, "autoDeleteInterval", "none");
	json_object_put(asked);
	assert_true(m->provider->impl->can & SBX_PROVIDER_SLEEPS);
	assert_false(m->provider->impl->can & SBX_PROVIDER_EPHEMERAL);
	assert_int_equal(m->provider->impl->idle_ms, 300000);
	daytona_drop(m);
}

static void variables_are_there_for_all_that_runs(void **state)
{
	char one[] = "GREETING=hello=world", two[] = "EMPTY=", *env[] = {one, two, NULL};
	struct sbx_machine *m;

	(void)state;
	daytona_config.env = env;
	daytona_provide();
	m = daytona_made(NULL);
	daytona_runs(m, "echo $GREETING ${EMPTY-unset}", "hello=world\n");
	daytona_drop(m);
}

static void an_image_has_a_size(void **state)
{
	const char *name = daytona_name();
	struct sbx_machine *m;
	struct json_object *asked;

	(void)state;
	daytona_config.image = "debian:12";
	daytona_config.cpus = 2;
	daytona_config.disk_gb = 8;
	daytona_provide();
	assert_int_equal(daytona_try_make(name, NULL, &m), 0);
	asked = asked_of(name);
	check_member(asked, "buildInfo", "{\"dockerfileContent\":\"FROM debian:12\\n\"}");
	check_member(asked, "cpu", "2");
	check_member(asked, "memory", "none");
	check_member(asked, "disk", "8");
	check_member(asked, "snapshot", "none");
	json_object_put(asked);
	daytona_drop(m);
}

static void without_a_source_it_is_an_empty_directory(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	assert_int_equal(daytona_count("all"), 3);
	daytona_runs(m, "cd ~/workspace/* && pwd && ls -A && stat -c %a .",
	             scratch_path("boxes/%s\n755\n", m->workdir + strlen(scratch_path("boxes/"))));
	daytona_drop(m);
}

static void a_base_is_a_branch_or_a_commit(void **state)
{
	const char *commit = repo_branch(daytona_repository(), "trunk");
	struct sbx_machine_request req = {
	        .label = DAYTONA_LABEL_OF_TESTS, .source = daytona_source(), .branch = "work"};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_machine *m;

	(void)state;
	req.name = daytona_name();
	req.base = "other";
	assert_int_equal(daytona_provider->impl->make(daytona_provider, &req, &m, NULL, &err), 0);
	daytona_runs(m,
	             "cd ~/workspace/widgets && git for-each-ref --format='%(refname)' refs/heads",
	             "refs/heads/other\nrefs/heads/work\n");
	daytona_drop(m);
	req.name = daytona_name();
	req.base = commit;
	assert_int_equal(daytona_provider->impl->make(daytona_provider, &req, &m, NULL, &err), 0);
	daytona_runs(m, "cd ~/workspace/widgets && git symbolic-ref --short HEAD", "work\n");
	daytona_drop(m);
	req.name = daytona_name();
	req.base = "missing";
	assert_int_equal(daytona_provider->impl->make(daytona_provider, &req, &m, NULL, &err),
	                 -ENOENT);
	assert_non_null(strstr(err.text, "acme/widgets at missing"));
	req.base = "0123456789012345678901234567890123456789";
	req.name = daytona_name();
	assert_int_equal(daytona_provider->impl->make(daytona_provider, &req, &m, NULL, &err),
	                 -ENOENT);
}

static void a_branch_that_is_there_is_checked_out(void **state)
{
	const struct sbx_machine_request req = {.name = daytona_name(),
	                                        .label = DAYTONA_LABEL_OF_TESTS,
	                                        .source = daytona_source(),
	                                        .branch = "trunk"};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_machine *m;

	(void)state;
	assert_int_equal(daytona_provider->impl->make(daytona_provider, &req, &m, NULL, &err), 0);
	daytona_runs(m, "cd ~/workspace/widgets && git symbolic-ref --short HEAD", "trunk\n");
	daytona_drop(m);
}

struct maker {
	pthread_t thread;
	char name[32];
	const char *source;
	struct sbx_machine *m;
	struct sbx_error err;
};

static void *make_one(void *data)
{
	struct maker *k = data;
	const struct sbx_machine_request req = {.name = k->name,
	                                        .label = DAYTONA_LABEL_OF_TESTS,
	                                        .source = k->source,
	                                        .branch = "work"};

	daytona_provider->impl->make(daytona_provider, &req, &k->m, NULL, &k->err);
	return NULL;
}

static void several_are_made_at_once(void **state)
{
	struct maker makers[8] = {{.m = NULL}};
	const char *source = daytona_source();

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(makers); i++) {
		makers[i].source = source;
		snprintf(makers[i].name, sizeof(makers[i].name), "%s", daytona_name());
		assert_int_equal(pthread_create(&makers[i].thread, NULL, make_one, &makers[i]), 0);
	}
	for (size_t i = 0; i < SBX_ARRAY_SIZE(makers); i++)
		pthread_join(makers[i].thread, NULL);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(makers); i++) {
		if (!makers[i].m)
			fail_msg("%s", makers[i].err.text);
		daytona_drop(makers[i].m);
	}
}

/* ---- waiting ---- */

static void a_stale_answer_is_looked_into(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_tell("switch", "{\"create\": \"stale\"}");
	m = daytona_made(daytona_source());
	assert_int_equal(daytona_count("look"), 1);
	daytona_drop(m);
	daytona_tell("switch", "{\"create\": \"slow\", \"looks\": 3}");
	daytona_forget();
	daytona_tell("switch", "{\"create\": \"slow\", \"looks\": 3}");
	m = daytona_made(daytona_source());
	assert_int_equal(daytona_count("look"), 4);
	daytona_drop(m);
}

static void a_start_that_fails_says_why(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_tell("switch", "{\"create\": \"error\"}");
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -EREMOTEIO);
	assert_non_null(strstr(daytona_error()->text, "no runner has room"));
	assert_int_equal(daytona_count("delete"), 1);
}

/* The refusal has no id, but the sandbox is there. */
static void a_start_that_fails_within_the_request_leaves_nothing(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_tell("switch", "{\"create\": \"fails\"}");
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -EINVAL);
	assert_non_null(strstr(daytona_error()->text, "no runner has room"));
	assert_int_equal(daytona_count("delete"), 1);
}

static void the_toolbox_may_be_told_apart(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_tell("switch", "{\"proxy_url\": \"apart\"}");
	m = daytona_made(NULL);
	assert_int_equal(daytona_count("proxy_url"), 1);
	daytona_runs(m, "echo here", "here\n");
	daytona_drop(m);
}

/* ---- names ---- */

static void an_answer_that_is_lost_is_looked_for(void **state)
{
	static const char *const faults[] = {"lost", "cut", "html"};
	struct sbx_machine *m;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		daytona_forget();
		daytona_tell("fault", "{\"op\": \"create\", \"fault\": \"%s\"}", faults[i]);
		if (i == 2) /* it was not done */
			break;
		m = daytona_made(daytona_source());
		assert_int_equal(daytona_count("create"), 1);
		assert_int_equal(daytona_count("look"), 1);
		daytona_drop(m);
	}
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -EPROTO);
	assert_int_equal(daytona_count("create"), 1);
}

static void a_name_that_is_there_is_adopted(void **state)
{
	const char *name = daytona_name();
	struct sbx_machine *a, *b;

	(void)state;
	assert_int_equal(daytona_try_make(name, daytona_source(), &a), 0);
	assert_int_equal(daytona_try_make(name, daytona_source(), &b), -EEXIST);
	assert_non_null(b);
	assert_string_equal(a->handle, b->handle);
	assert_int_equal(daytona_count("clone"), 1);
	daytona_provider->impl->release(b);
	daytona_drop(a);
}

/* ---- refusals ---- */

static void sources_are_repositories_of_github(void **state)
{
	static const char *const local[] = {".",   "..",      "./x", "../x/y", "/Users/x/repo",
	                                    "~/x", "widgets", "C:/x"};
	struct sbx_machine *m;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(local); i++) {
		assert_int_equal(daytona_try_make(daytona_name(), local[i], &m), -EINVAL);
		assert_string_equal(daytona_error()->text,
		                    "Daytona sandbox requires a GitHub repo URL (e.g. org/repo), "
		                    "not a local path");
	}
	assert_int_equal(daytona_try_make(daytona_name(), "https://gitlab.com/a/b", &m), -EINVAL);
	assert_int_equal(daytona_count("all"), 0);
}

static void a_private_repository_needs_the_token(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_config.git_token = NULL;
	daytona_provide();
	assert_int_equal(daytona_try_make(daytona_name(), daytona_source(), &m), -EACCES);
	assert_non_null(strstr(daytona_error()->text, "cloning acme/widgets failed"));
	assert_int_equal(daytona_count("delete"), 1);
}

static void a_repository_may_be_missing(void **state)
{
	char url[128];
	struct sbx_machine *m;

	(void)state;
	snprintf(url, sizeof(url), "%.*s/gadgets", (int)(strlen(daytona_source()) - 8),
	         daytona_source());
	assert_int_equal(daytona_try_make(daytona_name(), url, &m), -ENOENT);
	assert_non_null(strstr(daytona_error()->text, "acme/gadgets"));
}

static void what_is_refused_is_told(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_config.snapshot = "none-such";
	daytona_provide();
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -EINVAL);
	assert_non_null(strstr(daytona_error()->text, "Snapshot none-such not found"));
	daytona_config.snapshot = NULL;
	daytona_config.target = "moon";
	daytona_provide();
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -ENOENT);
	assert_non_null(strstr(daytona_error()->text, "Region not found"));
}

static void who_asks_too_often_waits(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_tell("fault", "{\"op\": \"create\", \"fault\": \"later\", \"seconds\": 1}");
	m = daytona_made(NULL);
	assert_int_equal(daytona_count("create"), 2);
	daytona_drop(m);
	daytona_tell("fault", "{\"op\": \"create\", \"fault\": \"later\", \"seconds\": 500}");
	assert_int_equal(daytona_try_make(daytona_name(), NULL, &m), -EAGAIN);
	assert_non_null(strstr(daytona_error()->text, "Too Many Requests"));
}

/* ---- the network ---- */

static void a_network_is_closed_behind_the_clone(void **state)
{
	const char *name = daytona_name();
	struct sbx_machine *m;
	struct json_object *asked;

	(void)state;
	daytona_config.net = "none";
	daytona_provide();
	assert_int_equal(daytona_try_make(name, daytona_source(), &m), 0);
	assert_int_equal(daytona_count("network"), 1);
	asked = asked_of(name);
	check_member(asked, "networkBlockAll", "none");
	json_object_put(asked);
	daytona_drop(m);
}

static void without_a_source_it_is_closed_from_the_beginning(void **state)
{
	static const struct {
		const char *net, *block, *hosts, *addresses;
	} rows[] = {
	        {NULL, "true", "none", "none"},
	        {"none", "true", "none", "none"},
	        {"allow:example.org,*.example.com,10.1.2.3", "none",
	         "\"example.org,*.example.com\"", "\"10.1.2.3/32\""},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		const char *name = daytona_name();
		struct sbx_machine *m;
		struct json_object *asked;

		daytona_config.net = rows[i].net;
		daytona_provide();
		assert_int_equal(daytona_try_make(name, NULL, &m), 0);
		asked = asked_of(name);
		check_member(asked, "networkBlockAll", rows[i].block);
		check_member(asked, "domainAllowList", rows[i].hosts);
		check_member(asked, "networkAllowList", rows[i].addresses);
		json_object_put(asked);
		daytona_drop(m);
	}
	assert_int_equal(daytona_count("network"), 0);
}

/* A server that does not know the member leaves the network open. */
static void a_network_that_stays_open_is_refused(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_config.net = "none";
	daytona_provide();
	daytona_tell("fault", "{\"op\": \"network\", \"fault\": \"answer\", \"body\": "
	                      "\"{\\\"id\\\": \\\"x\\\", \\\"networkBlockAll\\\": false}\"}");
	assert_int_equal(daytona_try_make(daytona_name(), daytona_source(), &m), -EOPNOTSUPP);
	assert_non_null(strstr(daytona_error()->text, "net=host"));
	assert_int_equal(daytona_count("delete"), 1);
}

/* ---- faults ---- */

static const struct fault {
	const char *name, *more;
	int code; /* expected, unless it succeeds; 0: any */
} faults[] = {
        {"lost", "", EREMOTEIO},
        {"reset", "", EREMOTEIO},
        {"cut", "", EREMOTEIO},
        {"html", "", EPROTO},
        {"answer", ", \"body\": \"{}\"", EPROTO},
        {"answer", ", \"body\": \"{\\\"id\\\": \\\"../x\\\", \\\"dir\\\": 7}\"", EPROTO},
        {"answer", ", \"body\": \"[[[[[\"", EPROTO},
        {"status", ", \"status\": 500", EREMOTEIO},
        {"status", ", \"status\": 502", EREMOTEIO},
        {"status", ", \"status\": 503", EREMOTEIO},
        {"status", ", \"status\": 401", EKEYREJECTED},
        {"later", ", \"seconds\": 5000", EAGAIN},
        {"echo", "", EINVAL},
};

/* OP, or what newer daemons are asked instead. */
static const char *asked_for(const char *op)
{
	return daytona_is_new() && strcmp(op, "branch") == 0 ? "execute" : op;
}

/* What said that it was done, and was not, is met by what comes behind it. */
static bool may_be(const char *op, const struct fault *f, int r)
{
	if (strcmp(f->name, "answer") == 0 && (r == -ENOENT || r == -EOPNOTSUPP))
		return true;
	return r == -f->code || (strcmp(op, "clone") == 0 && r == -EACCES);
}

/* OP meets FAULT as often as it is tried. Whether it is made, or not for that reason, nothing is
 * left of it. */
static void meet(const char *op, const struct fault *f)
{
	struct sbx_machine *m;
	int r;

	daytona_forget();
	daytona_tell("switch", "{\"create\": \"stale\"}");
	daytona_tell("fault", "{\"op\": \"%s\", \"fault\": \"%s\", \"times\": 3%s}", op, f->name,
	             f->more);
	if (strcmp(op, "branch") == 0 || strcmp(op, "checkout") == 0)
		have_no_git();
	r = daytona_try_make(daytona_name(), daytona_source(), &m);
	if (!r)
		daytona_drop(m);
	else if (!may_be(op, f, r))
		fail_msg("%s %s%s: %d, %s", op, f->name, f->more, r, daytona_error()->text);
	if (*daytona_control("living"))
		fail_msg("%s %s%s: %s is left", op, f->name, f->more, daytona_control("living"));
	assert_true(daytona_count("create") <= 1 || strcmp(f->name, "later") == 0);
}

static void whatever_fails_leaves_no_sandbox(void **state)
{
	static const char *const ops[] = {"create",  "look",   "home",     "clone",
	                                  "execute", "branch", "checkout", "network"};

	(void)state;
	daytona_config.net = "none";
	daytona_config.ask_ms = 2000;
	daytona_provide();
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++)
		for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++)
			meet(ops[o], &faults[i]);
}

static void one_that_vanishes_is_told(void **state)
{
	static const char *const ops[] = {"home", "clone", "branch"};
	static const int statuses[] = {401, 400, 404, 502};
	struct sbx_machine *m;

	(void)state;
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++)
		for (size_t i = 0; i < SBX_ARRAY_SIZE(statuses); i++) {
			daytona_provide();
			daytona_tell("switch", "{\"gone\": %d}", statuses[i]);
			daytona_tell("fault", "{\"op\": \"%s\", \"fault\": \"gone\"}",
			             asked_for(ops[o]));
			if (daytona_try_make(daytona_name(), daytona_source(), &m) != -ESTALE)
				fail_msg("%s %d: %s", ops[o], statuses[i], daytona_error()->text);
		}
}

static void silence_has_an_end(void **state)
{
	static const char *const ops[] = {"create", "look", "home", "branch", "network"};
	struct sbx_machine *m;

	(void)state;
	daytona_config.net = "none";
	daytona_config.ask_ms = 200;
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++) {
		daytona_provide();
		daytona_forget();
		daytona_tell("switch", "{\"create\": \"stale\"}");
		daytona_tell("fault", "{\"op\": \"%s\", \"fault\": \"stall\"}", asked_for(ops[o]));
		if (daytona_try_make(daytona_name(), daytona_source(), &m) == 0)
			daytona_drop(m);
		else
			assert_int_equal(daytona_error()->code, ETIMEDOUT);
	}
}

static void *cancel_soon(void *cancelled)
{
	const struct timespec pause = {.tv_nsec = 300000000};

	nanosleep(&pause, NULL);
	atomic_store((atomic_bool *)cancelled, true);
	return NULL;
}

static void a_create_is_given_up(void **state)
{
	static const char *const ops[] = {"create", "look", "home", "clone", "branch"};

	(void)state;
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++) {
		const struct sbx_machine_request req = {.name = daytona_name(),
		                                        .label = DAYTONA_LABEL_OF_TESTS,
		                                        .source = daytona_source(),
		                                        .branch = "work"};
		atomic_bool cancelled = false;
		struct sbx_machine *m = NULL;
		struct sbx_error err;
		uint64_t begun = sbx_now_ms();
		pthread_t thread;

		daytona_provide();
		daytona_forget();
		daytona_tell("switch", "{\"create\": \"stale\"}");
		daytona_tell("fault", "{\"op\": \"%s\", \"fault\": \"stall_after\"}",
		             asked_for(ops[o]));
		pthread_create(&thread, NULL, cancel_soon, &cancelled);
		assert_int_equal(
		        daytona_provider->impl->make(daytona_provider, &req, &m, &cancelled, &err),
		        -EINTR);
		pthread_join(thread, NULL);
		assert_null(m);
		assert_true(sbx_now_ms() - begun < 30000);
		assert_int_equal(daytona_provider->impl->unmake(daytona_provider, req.name, NULL,
		                                                NULL, &err),
		                 0);
		assert_string_equal(daytona_control("living"), "");
	}
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, daytona_set_up, daytona_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_sandbox_is_made_of_a_repository),
	        CASE(it_takes_four_requests),
	        CASE(without_git_the_toolbox_makes_the_branch),
	        CASE(it_is_ephemeral_and_has_its_name_and_label),
	        CASE(one_may_be_kept_of_another_snapshot),
	        CASE(variables_are_there_for_all_that_runs),
	        CASE(an_image_has_a_size),
	        CASE(without_a_source_it_is_an_empty_directory),
	        CASE(a_base_is_a_branch_or_a_commit),
	        CASE(a_branch_that_is_there_is_checked_out),
	        CASE(several_are_made_at_once),
	        CASE(a_stale_answer_is_looked_into),
	        CASE(a_start_that_fails_says_why),
	        CASE(a_start_that_fails_within_the_request_leaves_nothing),
	        CASE(the_toolbox_may_be_told_apart),
	        CASE(an_answer_that_is_lost_is_looked_for),
	        CASE(a_name_that_is_there_is_adopted),
	        CASE(sources_are_repositories_of_github),
	        CASE(a_private_repository_needs_the_token),
	        CASE(a_repository_may_be_missing),
	        CASE(what_is_refused_is_told),
	        CASE(who_asks_too_often_waits),
	        CASE(a_network_is_closed_behind_the_clone),
	        CASE(without_a_source_it_is_closed_from_the_beginning),
	        CASE(a_network_that_stays_open_is_refused),
	        CASE(whatever_fails_leaves_no_sandbox),
	        CASE(one_that_vanishes_is_told),
	        CASE(silence_has_an_end),
	        CASE(a_create_is_given_up),
	};

	return cmocka_run_group_tests(tests, daytona_servers_start, daytona_servers_stop);
}
