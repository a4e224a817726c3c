#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/github.h"
#include "tests/lib/scratch.h"
#include "tests/lib/vercel_fixture.h"

static struct sbx_machine *m;

/* Makes one on the branch "work", which fails by CODE with TEXT in its sentence; none is left. */
static void is_refused(const char *source, int code, const char *text)
{
	assert_int_equal(vercel_try_make(vercel_name(), source, &m), -code);
	assert_null(m);
	vercel_said_to(code, text);
	assert_string_equal(vercel_control("living"), "");
}

/* What was asked for when M was made has TEXT. */
static void asked_for(const char *text)
{
	const char *box = vercel_control("box/%s", vercel_name_of(m));

	if (!strstr(box, text))
		fail_msg("%s has no %s", box, text);
}

static void did_not_ask_for(const char *text)
{
	assert_null(strstr(vercel_control("box/%s", vercel_name_of(m)), text));
}

/* ---- a sandbox ---- */

static void create_takes_one_request(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(vercel_count("create_runtime"), 1);
	assert_int_equal(vercel_count("all"), 1);
	vercel_drop(m);
}

/* Seed 003: runtime python3.13, timeout 300000, workDir /vercel/sandbox. */
static void create_has_the_defaults_of_the_executor(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	asked_for("\"runtime\": \"python3.13\"");
	asked_for("\"timeout\": 300000");
	assert_string_equal(strstr(m->workdir, "/vercel/sandbox"), "/vercel/sandbox");
	vercel_drop(m);
}

static void create_has_a_name_and_a_tag(void **state)
{
	char want[128];

	(void)state;
	m = vercel_made(NULL);
	snprintf(want, sizeof(want), "\"name\": \"%s\"", vercel_name_of(m));
	asked_for(want);
	asked_for("\"tags\": {\"sandboxfs\": \"" VERCEL_LABEL_OF_TESTS "\"}");
	asked_for("\"persistent\": true");
	did_not_ask_for("networkPolicy");
	vercel_drop(m);
}

static void a_name_with_a_dot_is_refused(void **state)
{
	(void)state;
	assert_int_equal(vercel_try_make("sbx.1", NULL, &m), -EINVAL);
	vercel_said_to(EINVAL, "sbx.1 is no name of a sandbox of Vercel's");
	assert_int_equal(vercel_count("all"), 0);
}

static void create_has_what_is_set(void **state)
{
	char port[] = "3000", other[] = "8080", pair[] = "A=b=c";
	char *ports[] = {port, other, NULL}, *env[] = {pair, NULL};
	const struct sbx_strings port_list = {ports, 2}, env_list = {env, 1};

	(void)state;
	vercel_config.image = "vercel/sandbox/node:24";
	vercel_config.vcpus = 4;
	vercel_config.region = "fra1";
	vercel_config.life_ms = 5000;
	vercel_config.ephemeral = true;
	vercel_config.ports = &port_list;
	vercel_config.env = &env_list;
	vercel_provide();
	m = vercel_made(NULL);
	assert_int_equal(vercel_count("create"), 1);
	asked_for("\"image\": \"vercel/sandbox/node:24\"");
	asked_for("\"resources\": {\"memory\": 8192, \"vcpus\": 4}");
	asked_for("\"region\": \"fra1\"");
	asked_for("\"timeout\": 5000");
	asked_for("\"persistent\": false");
	asked_for("\"ports\": [3000, 8080]");
	asked_for("\"env\": {\"A\": \"b=c\"}");
	did_not_ask_for("runtime");
	vercel_runs(m, "echo $A", "b=c\n");
	vercel_drop(m);
}

static void one_that_is_on_its_way_is_awaited(void **state)
{
	(void)state;
	vercel_tell("switch", "{\"pending\": 3}");
	m = vercel_made(NULL);
	assert_int_equal(vercel_count("session"), 3);
	vercel_runs(m, "echo up", "up\n");
	vercel_drop(m);
}

/* ---- what it holds ---- */

static void create_and_clone_take_two_requests(void **state)
{
	(void)state;
	m = vercel_made(vercel_source());
	assert_int_equal(vercel_count("create_runtime"), 1);
	assert_int_equal(vercel_count("run"), 1);
	assert_int_equal(vercel_count("all"), 2);
	scratch_expect(vercel_file(m, "README.md"), "hello\n");
	vercel_runs(m, "cd \"$HOME\" && git symbolic-ref HEAD", "refs/heads/work\n");
	vercel_drop(m);
}

/* The server leaves it in the URL of the remote. */
static void the_token_is_not_left_in_the_repository(void **state)
{
	(void)state;
	m = vercel_made(vercel_source());
	asked_for("\"password\": \"" VERCEL_GIT_TOKEN "\"");
	asked_for("\"username\": \"x-access-token\"");
	vercel_runs(m,
	            "cd \"$HOME\" && grep -r verysecret . ; git remote get-url origin | tr -d 0-9",
	            "http://...:/acme/widgets.git\n");
	vercel_drop(m);
}

static void the_token_is_on_no_command_line(void **state)
{
	(void)state;
	m = vercel_made(vercel_source());
	assert_null(strstr(vercel_control("commands/%s", vercel_name_of(m)), "secret"));
	vercel_drop(m);
}

/* Makes one of the source at BASE, on BRANCH. */
static int make_at(const char *base, const char *branch)
{
	const struct sbx_machine_request req = {.name = vercel_name(),
	                                        .label = VERCEL_LABEL_OF_TESTS,
	                                        .source = vercel_source(),
	                                        .base = base,
	                                        .branch = branch};

	return vercel_provider->impl->make(vercel_provider, &req, &m, NULL, vercel_error());
}

static void a_branch_that_is_there_is_checked_out(void **state)
{
	(void)state;
	assert_int_equal(make_at(NULL, "other"), 0);
	vercel_runs(m,
	            "cd \"$HOME\" && git symbolic-ref HEAD && git rev-parse --symbolic-full-name "
	            "'@{u}'",
	            "refs/heads/other\nrefs/remotes/origin/other\n");
	vercel_drop(m);
}

static void without_a_branch_it_is_the_base(void **state)
{
	(void)state;
	assert_int_equal(make_at("other", NULL), 0);
	asked_for("\"revision\": \"other\"");
	vercel_runs(m, "cd \"$HOME\" && git symbolic-ref HEAD", "refs/heads/other\n");
	vercel_drop(m);
}

static void a_base_that_is_not_there_is_refused(void **state)
{
	(void)state;
	assert_int_equal(make_at("nothing", "work"), -ENOENT);
	vercel_said_to(ENOENT, "a sandbox with acme/widgets at nothing was refused: Vercel: ");
	assert_string_equal(vercel_control("living"), "");
}

static void a_branch_that_cannot_be_is_refused(void **state)
{
	(void)state;
	assert_int_equal(make_at(NULL, "a..b"), -EREMOTEIO);
	vercel_said_to(EREMOTEIO, "a..b cannot be checked out: ");
	assert_string_equal(vercel_control("living"), "");
}

static void a_private_repository_needs_the_token(void **state)
{
	(void)state;
	vercel_config.git_token = NULL;
	vercel_provide();
	is_refused(vercel_source(), EACCES, "a sandbox with acme/widgets was refused");
}

static void a_local_source_is_refused(void **state)
{
	static const char *const sources[] = {"/tmp/x", "./x", "~/x", "x", "C:/x", NULL};

	(void)state;
	for (size_t i = 0; sources[i]; i++)
		is_refused(sources[i], EINVAL,
		           "Vercel sandbox requires a GitHub repo URL (e.g. org/repo), or an https "
		           "URL, not a local path");
	assert_int_equal(vercel_count("all"), 0);
}

static void a_source_with_a_password_is_refused(void **state)
{
	(void)state;
	is_refused("https://me:hush@gitlab.com/a/b.git", EINVAL, "has a name or a password in it");
	is_refused("ftp://example.org/a/b", EINVAL, "is no repository");
	assert_null(strstr(vercel_error()->text, "hush"));
}

/* Only GitHub is shown the token for it. */
static void another_server_gets_no_token(void **state)
{
	struct vercel_source s;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(vercel_source_parse("https://gitlab.com/a/b.git", "https://api.github.com",
	                                     &s, &err),
	                 0);
	assert_string_equal(s.url, "https://gitlab.com/a/b.git");
	assert_string_equal(s.host, "gitlab.com");
	assert_false(sbx_github_token_is_for(s.url, SBX_GITHUB_API));
	vercel_source_release(&s);
	assert_int_equal(vercel_source_parse("org/repo", "https://api.github.com", &s, &err), 0);
	assert_string_equal(s.url, "https://github.com/org/repo.git");
	assert_string_equal(s.host, "github.com");
	assert_true(sbx_github_token_is_for(s.url, SBX_GITHUB_API));
	vercel_source_release(&s);
}

/* ---- the network ---- */

static void provide_net(const char *net)
{
	vercel_config.net = net;
	vercel_provide();
}

static void it_is_closed_from_the_beginning(void **state)
{
	(void)state;
	provide_net("none");
	m = vercel_made(vercel_source());
	asked_for("\"networkPolicy\": {\"mode\": \"deny-all\"}");
	assert_int_equal(vercel_count("all"), 2);
	vercel_drop(m);
}

static void hosts_are_let_through(void **state)
{
	(void)state;
	provide_net("allow:a.org,*.b.org,10.1.2.3");
	m = vercel_made(NULL);
	asked_for("\"networkPolicy\": {\"allow\": [\"a.org\", \"*.b.org\"], \"subnets\": "
	          "{\"allow\": [\"10.1.2.3/32\"]}}");
	assert_int_equal(vercel_count("all"), 1);
	vercel_drop(m);
}

static void a_rule_without_a_word_for_it_is_refused(void **state)
{
	static const char *const rules[] = {"allow:a.org:22", "allow:[::1]", "allow:a.org/private"};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_provider *p;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rules); i++) {
		vercel_config.net = rules[i];
		assert_int_equal(sbx_vercel_provider(&vercel_config, &p, &err), -EOPNOTSUPP);
		assert_non_null(strstr(err.text, rules[i] + strlen("allow:")));
	}
}

static bool compared(const char *net, const char *shown,
                     bool (*with)(const struct vercel_net *net, struct json_object *shown))
{
	struct json_object *obj = json_tokener_parse(shown);
	struct vercel_net n;
	bool does;

	assert_int_equal(vercel_net_parse(net, &n, NULL), 0);
	does = with(&n, obj);
	vercel_net_release(&n);
	json_object_put(obj);
	return does;
}

static bool holds(const char *net, const char *shown)
{
	return compared(net, shown, vercel_net_holds);
}

static bool is(const char *net, const char *shown)
{
	return compared(net, shown, vercel_net_is);
}

static void what_is_shown_of_it_is_compared(void **state)
{
	static const char custom[] = "{\"mode\": \"custom\", \"allowedDomains\": [\"a.org\"]}";

	(void)state;
	assert_true(holds("none", "{\"mode\": \"deny-all\"}"));
	assert_false(holds("none", "{\"mode\": \"allow-all\"}"));
	assert_false(holds("none", "{\"mode\": 7}"));
	assert_false(holds("none", custom));
	assert_true(holds("host", "{\"mode\": \"allow-all\"}"));
	assert_true(holds("allow:A.org,b.org", custom));
	assert_false(is("allow:A.org,b.org", custom));
	assert_true(is("allow:A.org", custom));
	assert_true(is("host", "{\"mode\": \"allow-all\"}"));
	assert_false(is("host", custom));
	assert_false(is("host", "{\"mode\": \"deny-all\"}"));
	assert_true(is("none", "{\"mode\": \"deny-all\"}"));
	assert_false(holds("allow:b.org", custom));
	assert_false(holds("allow:a.org", "{\"mode\": \"deny-all\"}"));
	assert_false(holds("allow:a.org", "{\"mode\": \"custom\", \"allowedDomains\": [7]}"));
	assert_false(
	        holds("allow:a.org", "{\"mode\": \"custom\", \"allowedCIDRs\": [\"0.0.0.0/0\"]}"));
}

/* Where the clone is held up by the firewall, the host is let through until it has come. */
static void a_clone_that_is_held_up_gets_its_host(void **state)
{
	(void)state;
	provide_net("none");
	vercel_tell("switch", "{\"clones\": \"inside\"}");
	m = vercel_made(vercel_source());
	assert_int_equal(vercel_count("create_runtime"), 2);
	assert_int_equal(vercel_count("update"), 1);
	assert_int_equal(vercel_count("policy"), 1);
	asked_for("\"networkPolicy\": {\"allow\": [\"127.0.0.1\"]}");
	asked_for("\"policyNow\": {\"mode\": \"deny-all\"}");
	vercel_drop(m);
	/* The next knows. */
	vercel_tell("reset", "{}");
	vercel_tell("switch", "{\"clones\": \"inside\"}");
	m = vercel_made(vercel_source());
	assert_int_equal(vercel_count("create_runtime"), 1);
	asked_for("\"policyNow\": {\"mode\": \"deny-all\"}");
	vercel_drop(m);
}

static void one_that_says_nothing_of_it_is_closed_again(void **state)
{
	(void)state;
	provide_net("none");
	vercel_tell("switch", "{\"echoes_policy\": false}");
	m = vercel_made(NULL);
	assert_int_equal(vercel_count("policy"), 1);
	assert_int_equal(vercel_count("update"), 1);
	vercel_drop(m);
}

static void one_that_stays_open_is_refused(void **state)
{
	(void)state;
	provide_net("none");
	vercel_tell("switch", "{\"echoes_policy\": false}");
	vercel_fault("update", "answer",
	             ", \"body\": \"{\\\"sandbox\\\": {\\\"networkPolicy\\\": {\\\"mode\\\": "
	             "\\\"allow-all\\\"}}}\"");
	is_refused(NULL, EOPNOTSUPP,
	           "Vercel does not close the network of the sandbox as net= asks for; with "
	           "net=host it is open");
}

/* ---- lost answers ---- */

static void a_create_without_an_answer_is_looked_up(void **state)
{
	(void)state;
	vercel_fault("create_runtime", "lost", "");
	m = vercel_made(vercel_source());
	assert_int_equal(vercel_count("create_runtime"), 1);
	assert_int_equal(vercel_count("look"), 1);
	vercel_runs(m, "cd \"$HOME\" && git symbolic-ref HEAD", "refs/heads/work\n");
	vercel_drop(m);
}

static void it_may_come_to_be_later(void **state)
{
	(void)state;
	vercel_tell("switch", "{\"vanish\": 3}");
	vercel_fault("create_runtime", "cut", "");
	m = vercel_made(NULL);
	assert_int_equal(vercel_count("create_runtime"), 1);
	assert_int_equal(vercel_count("look"), 4);
	vercel_drop(m);
}

static void one_that_never_came_is_told(void **state)
{
	(void)state;
	vercel_fault("create_runtime", "reset", "");
	is_refused(NULL, EREMOTEIO, "Vercel has closed the connection without an answer");
	assert_int_equal(vercel_count("create_runtime"), 1);
}

static void a_failure_of_the_server_is_not_repeated(void **state)
{
	(void)state;
	vercel_fault("create_runtime", "status", ", \"status\": 503");
	is_refused(NULL, EREMOTEIO, "Vercel failed (HTTP 503)");
	assert_int_equal(vercel_count("create_runtime"), 1);
}

static void an_answer_that_makes_no_sense_is_looked_up(void **state)
{
	(void)state;
	vercel_fault("create_runtime", "answer_after", ", \"body\": \"{\\\"sandbox\\\": 7}\"");
	m = vercel_made(NULL);
	assert_int_equal(vercel_count("create_runtime"), 1);
	vercel_drop(m);
}

static void one_of_that_name_is_adopted(void **state)
{
	char name[64];
	struct sbx_machine *other;

	(void)state;
	m = vercel_made(NULL);
	vercel_runs(m, "echo mine >mark", "");
	snprintf(name, sizeof(name), "%s", vercel_name_of(m));
	assert_int_equal(vercel_try_make(name, NULL, &other), -EEXIST);
	assert_non_null(other);
	vercel_runs(other, "cat \"$HOME/mark\"", "mine\n");
	vercel_provider->impl->release(other);
	vercel_drop(m);
}

static void one_that_is_anothers_is_not(void **state)
{
	char name[64];
	struct sbx_machine_request req = {.name = name, .label = "other"};
	struct sbx_machine *other;

	(void)state;
	m = vercel_made(NULL);
	snprintf(name, sizeof(name), "%s", vercel_name_of(m));
	assert_int_equal(
	        vercel_provider->impl->make(vercel_provider, &req, &other, NULL, vercel_error()),
	        -EACCES);
	assert_null(other);
	vercel_said_to(EACCES, "that is another's");
	assert_int_equal(vercel_count("delete"), 0);
	vercel_drop(m);
}

/* ---- refusals ---- */

static void a_refusal_says_why(void **state)
{
	static const struct {
		int status, code;
		const char *body, *text;
	} rows[] = {
	        {400, EINVAL, "bad", "Vercel: the words (HTTP 400)"},
	        {401, EKEYREJECTED, "x", "Vercel does not accept VERCEL_TOKEN for the team"},
	        {403, EKEYREJECTED, "forbidden", "Vercel does not accept VERCEL_TOKEN"},
	        {403, EDQUOT, "resource_limit_exceeded", "Vercel: the words (HTTP 403)"},
	        {402, EDQUOT, "x", "Vercel: the words (HTTP 402)"},
	        {400, EAGAIN, "image_not_ready", "Vercel: the words (HTTP 400)"},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		char members[256];

		snprintf(members, sizeof(members),
		         ", \"status\": %d, \"body\": \"{\\\"error\\\": {\\\"code\\\": "
		         "\\\"%s\\\", \\\"message\\\": \\\"the words\\\"}}\"",
		         rows[i].status, rows[i].body);
		vercel_fault("create_runtime", "status", members);
		is_refused(NULL, rows[i].code, rows[i].text);
	}
}

static void a_refusal_may_be_no_json(void **state)
{
	(void)state;
	vercel_fault("create_runtime", "status", ", \"status\": 400, \"body\": \"[1]\"");
	is_refused(NULL, EINVAL, "Vercel does not understand the request (HTTP 400)");
	vercel_fault("create_runtime", "html", "");
	is_refused(NULL, EPROTO, "");
}

/* The server says back what it was sent. */
static void a_refusal_shows_no_secret(void **state)
{
	(void)state;
	vercel_fault("create_runtime", "echo", ", \"times\": 2");
	is_refused(vercel_source(), EINVAL, "I got ");
	assert_null(strstr(vercel_error()->text, "ghp_"));
	assert_null(strstr(vercel_error()->text, "vcp_"));
}

static void asking_too_often_is_waited_for(void **state)
{
	(void)state;
	vercel_fault("create_runtime", "later", ", \"seconds\": 1");
	m = vercel_made(NULL);
	assert_int_equal(vercel_count("create_runtime"), 2);
	vercel_drop(m);
}

/* ---- breaking off ---- */

static void whatever_fails_later_leaves_none(void **state)
{
	(void)state;
	vercel_fault("run", "status", ", \"status\": 400");
	is_refused(vercel_source(), EINVAL, "");
	vercel_fault("run", "gone", "");
	assert_int_equal(vercel_try_make(vercel_name(), vercel_source(), &m), -ESTALE);
	vercel_tell("switch", "{\"pending\": 9}");
	vercel_fault("session", "asleep", "");
	is_refused(NULL, EREMOTEIO, "the sandbox has stopped while it was made");
}

static const struct met {
	const char *fault, *members;
	int code;
} faults[] = {
        {"lost", "", EREMOTEIO},
        {"reset", "", EREMOTEIO},
        {"cut", ", \"lines\": 0", EREMOTEIO},
        {"html", "", EPROTO},
        {"answer", ", \"body\": \"{}\"", EPROTO},
        {"answer", ", \"body\": \"[[[[[\"", EPROTO},
        {"status", ", \"status\": 500", EREMOTEIO},
        {"status", ", \"status\": 502", EREMOTEIO},
        {"status", ", \"status\": 503", EREMOTEIO},
        {"status", ", \"status\": 401", EKEYREJECTED},
        {"status", ", \"status\": 403", EKEYREJECTED},
        {"later", ", \"seconds\": 5000", EAGAIN},
        {"echo", "", EINVAL},
};

/* What is there in place of a stream of lines may be one that was cut. */
static bool may_be(const char *op, const struct met *f, int r)
{
	return r == -f->code || (r == -EREMOTEIO && strcmp(op, "run") == 0 && f->code == EPROTO);
}

/* Whether it is made, or not for that reason, nothing is left of it. */
static void meet(const char *op, const struct met *f)
{
	const bool plain = strcmp(op, "session") == 0 || strcmp(op, "policy") == 0;
	char members[128];
	int r;

	vercel_forget();
	vercel_tell("switch", "{\"pending\": 2, \"echoes_policy\": false}");
	snprintf(members, sizeof(members), "%s, \"times\": 9", f->members);
	vercel_fault(op, f->fault, members);
	r = vercel_try_make(vercel_name(), plain ? NULL : vercel_source(), &m);
	if (r == 0)
		vercel_drop(m);
	else if (!may_be(op, f, r))
		fail_msg("%s %s%s: %d, %s", op, f->fault, f->members, r, vercel_error()->text);
	vercel_tell("reset", "{}");
	if (*vercel_control("living"))
		fail_msg("%s %s%s: %s is left", op, f->fault, f->members, vercel_control("living"));
}

static void whatever_fails_leaves_no_sandbox(void **state)
{
	static const char *const ops[] = {"create_runtime", "session", "policy", "run"};

	(void)state;
	vercel_config.net = "none";
	vercel_provide();
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++)
		for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++)
			meet(ops[o], &faults[i]);
}

static void one_that_vanishes_is_told(void **state)
{
	static const char *const ops[] = {"session", "policy", "run"};

	(void)state;
	vercel_config.net = "none";
	vercel_provide();
	for (size_t o = 0; o < SBX_ARRAY_SIZE(ops); o++) {
		vercel_forget();
		vercel_tell("switch", "{\"pending\": 2, \"echoes_policy\": false}");
		vercel_fault(ops[o], "gone", "");
		if (vercel_try_make(vercel_name(), vercel_source(), &m) != -ESTALE)
			fail_msg("%s: %s", ops[o], vercel_error()->text);
		assert_string_equal(vercel_control("living"), "");
	}
}

static void a_lost_answer_of_the_script_does_no_harm(void **state)
{
	(void)state;
	vercel_fault("run", "lost", "");
	m = vercel_made(vercel_source());
	vercel_runs(m, "cd \"$HOME\" && git symbolic-ref HEAD", "refs/heads/work\n");
	vercel_drop(m);
}

static atomic_bool cancelled;

static void *cancel_soon(void *data)
{
	(void)data;
	while (vercel_count("create_runtime") == 0)
		usleep(1000);
	atomic_store(&cancelled, true);
	return NULL;
}

static void it_is_given_up(void **state)
{
	const struct sbx_machine_request req = {.name = vercel_name(),
	                                        .label = VERCEL_LABEL_OF_TESTS};
	pthread_t thread;

	(void)state;
	atomic_store(&cancelled, false);
	vercel_fault("create_runtime", "stall_after", "");
	assert_int_equal(pthread_create(&thread, NULL, cancel_soon, NULL), 0);
	assert_int_equal(
	        vercel_provider->impl->make(vercel_provider, &req, &m, &cancelled, vercel_error()),
	        -EINTR);
	pthread_join(thread, NULL);
	assert_null(m);
	assert_int_equal(vercel_provider->impl->unmake(vercel_provider, req.name, NULL, NULL,
	                                               vercel_error()),
	                 0);
	assert_string_equal(vercel_control("living"), "");
}

#define PROGRESS_MAX 1024

static void progress_is_told(const char *text, void *data)
{
	char *all = data;
	const size_t n = strlen(all), room = PROGRESS_MAX - n;

	assert_true(snprintf(all + n, room, "%s\n", text) < (int)room);
}

static void it_says_what_it_is_at(void **state)
{
	char all[PROGRESS_MAX] = "";
	const struct sbx_machine_request req = {.name = vercel_name(),
	                                        .label = VERCEL_LABEL_OF_TESTS,
	                                        .source = vercel_source(),
	                                        .branch = "work",
	                                        .progress = progress_is_told,
	                                        .data = all};

	(void)state;
	assert_int_equal(vercel_provider->impl->make(vercel_provider, &req, &m, NULL, NULL), 0);
	assert_string_equal(all, "asking Vercel for a sandbox\n"
	                         "checking out work in acme/widgets\n");
	vercel_drop(m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, vercel_set_up, vercel_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(create_takes_one_request),
	        CASE(create_has_the_defaults_of_the_executor),
	        CASE(create_has_a_name_and_a_tag),
	        CASE(a_name_with_a_dot_is_refused),
	        CASE(create_has_what_is_set),
	        CASE(one_that_is_on_its_way_is_awaited),
	        CASE(create_and_clone_take_two_requests),
	        CASE(the_token_is_not_left_in_the_repository),
	        CASE(the_token_is_on_no_command_line),
	        CASE(a_branch_that_is_there_is_checked_out),
	        CASE(without_a_branch_it_is_the_base),
	        CASE(a_base_that_is_not_there_is_refused),
	        CASE(a_branch_that_cannot_be_is_refused),
	        CASE(a_private_repository_needs_the_token),
	        CASE(a_local_source_is_refused),
	        CASE(a_source_with_a_password_is_refused),
	        CASE(another_server_gets_no_token),
	        CASE(it_is_closed_from_the_beginning),
	        CASE(hosts_are_let_through),
	        CASE(a_rule_without_a_word_for_it_is_refused),
	        cmocka_unit_test(what_is_shown_of_it_is_compared),
	        CASE(a_clone_that_is_held_up_gets_its_host),
	        CASE(one_that_says_nothing_of_it_is_closed_again),
	        CASE(one_that_stays_open_is_refused),
	        CASE(a_create_without_an_answer_is_looked_up),
	        CASE(it_may_come_to_be_later),
	        CASE(one_that_never_came_is_told),
	        CASE(a_failure_of_the_server_is_not_repeated),
	        CASE(an_answer_that_makes_no_sense_is_looked_up),
	        CASE(one_of_that_name_is_adopted),
	        CASE(one_that_is_anothers_is_not),
	        CASE(a_refusal_says_why),
	        CASE(a_refusal_may_be_no_json),
	        CASE(a_refusal_shows_no_secret),
	        CASE(asking_too_often_is_waited_for),
	        CASE(whatever_fails_later_leaves_none),
	        CASE(whatever_fails_leaves_no_sandbox),
	        CASE(one_that_vanishes_is_told),
	        CASE(a_lost_answer_of_the_script_does_no_harm),
	        CASE(it_is_given_up),
	        CASE(it_says_what_it_is_at),
	};

	return cmocka_run_group_tests(tests, vercel_servers_start, vercel_servers_stop);
}
