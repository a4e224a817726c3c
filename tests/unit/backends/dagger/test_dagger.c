#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/dagger/dagger_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/secret.h"
#include "tests/lib/python_server.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tmp.h"

#define TOKEN     "0c2f9a7e-session-token"
#define GIT_TOKEN "ghp_verysecrettoken"
#define LABEL     "label-of-this-daemon"
#define DEADLINE  60000
#define OUT_MAX   ((size_t)8 * 1024 * 1024)

/* ---- the server ---- */

struct server {
	const char *era;
	char dir[256];
	struct python_server process;
};

static struct server servers[] = {{.era = "0.21"}, {.era = "0.20"}}, *server;

static void start_server(struct server *s)
{
	assert_non_null(tmp_make(s->dir, sizeof(s->dir), "dagger"));
	python_server_start(&s->process, SBX_TESTS "/lib/dagger_server.py",
	                    (const char *[]){s->dir, TOKEN, s->era, NULL});
}

static void stop_server(struct server *s)
{
	char command[300];

	python_server_stop(&s->process);
	snprintf(command, sizeof(command), "rm -rf '%s'", s->dir);
	assert_int_equal(system(command), 0);
}

static bool has_handles(void)
{
	return strcmp(server->era, "0.21") == 0;
}

/* ---- a provider for each case ---- */

static struct sbx_loop *loop;
static pthread_t loop_thread;
static struct sbx_http *http;
static struct sbx_secret *token, *git_token;
static struct sbx_dagger_config config;
static struct sbx_provider *provider;
static struct sbx_machine *machine;
static char port[8];

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

/* A request to the server itself; the text that it answers is valid until the next. */
static const char *control(const char *method, const char *path, const char *body)
{
	static char text[65536];
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	char url[128];
	struct sbx_http_request req = {.op = "control",
	                               .method = method,
	                               .url = url,
	                               .deadline_ms = DEADLINE,
	                               .body = {.data = body, .size = body ? strlen(body) : 0}};

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/control/%s", server->process.port, path);
	assert_int_equal(sbx_http_perform(http, &req, NULL, &answer, &err), 0);
	snprintf(text, sizeof(text), "%s", answer.body ? answer.body : "");
	sbx_http_answer_release(&answer);
	return text;
}

static int count(const char *op)
{
	char path[64];

	snprintf(path, sizeof(path), "count/%s", op);
	return atoi(control("GET", path, NULL));
}

static void fault(const char *op, const char *how)
{
	char body[1024];

	snprintf(body, sizeof(body), "{\"op\":\"%s\",\"fault\":%s}", op, how);
	control("POST", "fault", body);
}

static void open_provider(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_dagger_provider(&config, &provider, &err))
		fail_msg("%s", err.text);
}

static void close_provider(void)
{
	if (machine)
		provider->impl->release(machine);
	if (provider)
		provider->impl->destroy(provider);
	machine = NULL;
	provider = NULL;
}

static int set_up(void **state)
{
	struct sbx_http_config http_config = {.backoff_ms = 1};

	server = *state;
	scratch_make();
	scratch_mkdir(scratch_path("state"));
	assert_int_equal(chmod(scratch_path("state"), 0700), 0);
	assert_int_equal(sbx_loop_create(&loop), 0);
	http_config.loop = loop;
	assert_int_equal(sbx_http_create(&http_config, &http), 0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
	snprintf(port, sizeof(port), "%d", server->process.port);
	config = (struct sbx_dagger_config){.http = http,
	                                    .loop = loop,
	                                    .token = token,
	                                    .port = port,
	                                    .state_dir = strdup(scratch_path("state")),
	                                    .image = "docker.io/library/busybox:1.37"};
	control("POST", "reset", NULL);
	open_provider();
	return 0;
}

static void end_loop(void)
{
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	sbx_http_destroy(http);
	close_provider();
	sbx_loop_destroy(loop);
}

static int tear_down(void **state)
{
	char violations[1024];

	(void)state;
	snprintf(violations, sizeof(violations), "%s", control("GET", "violations", NULL));
	control("POST", "switch", "{\"git\":{},\"git_token\":null,\"layers\":440}");
	end_loop();
	free((char *)config.state_dir);
	scratch_remove();
	assert_string_equal(violations, "");
	return 0;
}

/* ---- the verbs, waited for ---- */

struct done {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool is;
	int code;
	char *out;
	size_t len;
	struct sbx_error err;
};

static struct done undone(void)
{
	return (struct done){.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
}

static void finish(struct done *d, int code, char *out, size_t len, const struct sbx_error *err)
{
	pthread_mutex_lock(&d->lock);
	d->code = code;
	d->out = out;
	d->len = len;
	if (code)
		d->err = *err;
	d->is = true;
	pthread_cond_signal(&d->cond);
	pthread_mutex_unlock(&d->lock);
}

static void await(struct done *d)
{
	pthread_mutex_lock(&d->lock);
	while (!d->is)
		pthread_cond_wait(&d->cond, &d->lock);
	pthread_mutex_unlock(&d->lock);
}

static void run_done(struct sbx_machine_run *run, int code, char *out, size_t len,
                     const struct sbx_error *err)
{
	finish(run->data, code, out, len, err);
}

static void put_done(struct sbx_machine_put *put, int code, const struct sbx_error *err)
{
	finish(put->data, code, NULL, 0, err);
}

static struct sbx_machine_run script(const char *text, struct done *d)
{
	return (struct sbx_machine_run){.op = "test",
	                                .script = text,
	                                .script_len = strlen(text),
	                                .deadline_ms = DEADLINE,
	                                .answer_max = OUT_MAX,
	                                .safe = true,
	                                .done = run_done,
	                                .data = d};
}

/* No secret is in what is said. */
static void expect_no_secret(const struct sbx_error *err)
{
	assert_null(strstr(err->text, TOKEN));
	assert_null(strstr(err->text, GIT_TOKEN));
	/* "0c2f9a7e-session" as Authorization has it */
	assert_null(strstr(err->text, "MGMyZjlhN2Utc2Vzc2lvb"));
}

/* Runs TEXT; its output is valid until the next. */
static const char *run(const char *text)
{
	static char *out;
	struct done d = undone();
	struct sbx_machine_run r = script(text, &d);

	provider->impl->run(machine, &r);
	await(&d);
	if (d.code)
		fail_msg("%s: %s", text, d.err.text);
	assert_int_equal(strlen(d.out), d.len);
	free(out);
	out = d.out;
	return out;
}

/* Runs R, which fails by CODE; its sentence has SAYS. */
static void expect_failure(struct sbx_machine_run r, int code, const char *says)
{
	struct done d = undone();

	r.data = &d;
	provider->impl->run(machine, &r);
	await(&d);
	if (d.code != -code || !strstr(d.err.text, says))
		fail_msg("%d, not %d: %s", -d.code, code, d.err.text);
	assert_int_equal(d.err.code, code);
	assert_null(d.out);
	expect_no_secret(&d.err);
}

static int put(const struct sbx_machine_file *files, size_t n, struct sbx_error *err)
{
	struct done d = undone();
	struct sbx_machine_put p = {.op = "test_put",
	                            .files = files,
	                            .n = n,
	                            .deadline_ms = DEADLINE,
	                            .done = put_done,
	                            .data = &d};

	provider->impl->put(machine, &p);
	await(&d);
	*err = d.err;
	return d.code;
}

static void expect_put(const struct sbx_machine_file *files, size_t n)
{
	struct sbx_error err;

	if (put(files, n, &err))
		fail_msg("%s", err.text);
}

static struct sbx_machine_file text_file(unsigned number, const char *text)
{
	return (struct sbx_machine_file){.number = number,
	                                 .bytes = {.data = text, .size = strlen(text)}};
}

static struct sbx_machine_request request(void)
{
	return (struct sbx_machine_request){.name = "sbx-a", .label = LABEL};
}

static void make(const struct sbx_machine_request *req)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (provider->impl->make(provider, req, &machine, NULL, &err))
		fail_msg("%s", err.text);
}

static void make_plain(void)
{
	const struct sbx_machine_request req = request();

	make(&req);
}

static void expect_no_machine(const struct sbx_machine_request *req, int code, const char *says)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_machine *m = NULL;
	const int r = provider->impl->make(provider, req, &m, NULL, &err);

	if (r != -code || !strstr(err.text, says))
		fail_msg("%d, not %d: %s", -r, code, err.text);
	assert_null(m);
	expect_no_secret(&err);
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
}

static void adopt(const char *handle)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (provider->impl->adopt(provider, handle, &machine, &err))
		fail_msg("%s", err.text);
}

static enum sbx_machine_state look(void)
{
	struct sbx_machine_look l;
	struct sbx_error err = SBX_ERROR_INIT;

	if (provider->impl->look(machine, &l, NULL, &err))
		fail_msg("%s", err.text);
	return l.state;
}

/* ---- making ---- */

static const char *source(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s", scratch_path("source"));
	return path;
}

/* A repository with a branch beside its main one, which stands at its first commit: that one. */
static const char *make_source(void)
{
	static char commit[64];

	repo_init(source(), false);
	scratch_write(scratch_path("source/one"), "1\n");
	snprintf(commit, sizeof(commit), "%s", repo_commit(source(), "first"));
	repo_make_branch(source(), "other", commit);
	scratch_write(scratch_path("source/two"), "2\n");
	repo_commit(source(), "second");
	return commit;
}

#define SHOW "cd /work; cat .git/HEAD; ls; git status --short; git log --format=%s"

static void a_machine_is_made_in_three_requests(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	scratch_write(scratch_path("source/uncommitted"), "3\n");
	req.source = source();
	req.branch = "sandbox/a";
	make(&req);
	assert_int_equal(count("all"), 3);
	assert_string_equal(machine->workdir, "/work");
	assert_string_equal(run(SHOW), "ref: refs/heads/sandbox/a\none\ntwo\nsecond\nfirst\n");
	assert_int_equal(count("all"), 4);
	assert_int_equal(scratch_exists(scratch_path("state/dagger/sbx-a.d/source")),
	                 !has_handles());
}

static void a_machine_begins_at_a_commit(void **state)
{
	struct sbx_machine_request req = request();
	char wanted[128];

	(void)state;
	req.base = make_source();
	req.source = source();
	make(&req);
	snprintf(wanted, sizeof(wanted), "%s\none\nfirst\n", req.base);
	assert_string_equal(run(SHOW), wanted);
}

static void a_branch_that_is_there_is_continued(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	req.source = source();
	req.branch = "other";
	make(&req);
	assert_string_equal(run(SHOW), "ref: refs/heads/other\none\nfirst\n");
}

static void a_base_that_is_not_there_is_refused(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	req.source = source();
	req.base = "nowhere";
	expect_no_machine(&req, ENOENT, "nowhere");
	assert_int_equal(count("all"), 0);
}

static void a_plain_directory_is_copied(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	scratch_mkdir(source());
	scratch_write(scratch_path("source/file"), "text\n");
	req.source = source();
	make(&req);
	assert_string_equal(run("cat /work/file; ls -A /work"), "text\nfile\n");
	provider->impl->release(machine);
	machine = NULL;
	req.name = "sbx-b";
	req.base = "main";
	struct sbx_error err = SBX_ERROR_INIT;
	assert_int_equal(provider->impl->make(provider, &req, &machine, NULL, &err), -EINVAL);
}

static void no_source_is_an_empty_tree(void **state)
{
	(void)state;
	make_plain();
	assert_int_equal(count("all"), 2);
	assert_string_equal(run("ls -A /work; cd / && ls -d .sandboxfs"), ".sandboxfs\n");
}

static void a_name_is_made_once(void **state)
{
	struct sbx_machine_request req = request();
	struct sbx_machine *again = NULL;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	make_plain();
	run("echo here >/work/file");
	assert_int_equal(provider->impl->make(provider, &req, &again, NULL, &err), -EEXIST);
	assert_non_null(again);
	provider->impl->release(machine);
	machine = again;
	assert_string_equal(run("cat /work/file"), "here\n");
}

static void a_create_is_given_up(void **state)
{
	const struct sbx_machine_request req = request();
	struct sbx_error err = SBX_ERROR_INIT;
	atomic_bool cancelled = true;

	(void)state;
	fault("create", "\"stall\"");
	assert_int_equal(provider->impl->make(provider, &req, &machine, &cancelled, &err), -EINTR);
	assert_null(machine);
}

static void names_are_checked(void **state)
{
	struct sbx_machine_request req = request();
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	req.name = "../a";
	assert_int_equal(provider->impl->make(provider, &req, &machine, NULL, &err), -EINVAL);
	req = request();
	req.branch = "a..b";
	assert_int_equal(provider->impl->make(provider, &req, &machine, NULL, &err), -EINVAL);
	assert_int_equal(provider->impl->unmake(provider, "../x", NULL, NULL, &err), -EINVAL);
	assert_int_equal(provider->impl->adopt(provider, "../x", &machine, &err), -EINVAL);
	assert_int_equal(count("all"), 0);
}

/* ---- repositories of a server ---- */

/* Those of github.com are in SCRATCH. */
static void serve_github(void)
{
	char body[600];

	snprintf(body, sizeof(body), "{\"git\":{\"https://github.com/org/source.git\":\"%s\"}}",
	         source());
	control("POST", "switch", body);
}

static void a_repository_is_fetched(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	serve_github();
	req.source = "org/source";
	req.branch = "sandbox/a";
	make(&req);
	assert_int_equal(count("all"), 3);
	assert_int_equal(count("git"), 1);
	assert_string_equal(run(SHOW), "ref: refs/heads/sandbox/a\none\ntwo\nsecond\nfirst\n");
}

static void a_branch_of_a_server_is_continued(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	serve_github();
	req.source = "https://github.com/org/source";
	req.branch = "other";
	make(&req);
	assert_int_equal(count("git"), 2);
	assert_string_equal(run(SHOW), "ref: refs/heads/other\none\nfirst\n");
}

static void a_repository_is_fetched_at_a_commit(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	req.base = make_source();
	serve_github();
	req.source = "org/source";
	req.branch = "new";
	make(&req);
	assert_string_equal(run(SHOW), "ref: refs/heads/new\none\nfirst\n");
}

static void what_a_server_lacks_is_said(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	serve_github();
	req.source = "org/source";
	req.base = "nowhere";
	expect_no_machine(&req, ENOENT, "does not contain ref \"nowhere\"");
	req.base = NULL;
	req.branch = "other/more";
	expect_no_machine(&req, EEXIST, "there is a branch other");
	req.branch = NULL;
	req.source = "nothing of the kind";
	expect_no_machine(&req, EINVAL, "");
}

static void a_token_is_told_once(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	serve_github();
	control("POST", "switch", "{\"git_token\":\"" GIT_TOKEN "\"}");
	req.source = "org/source";
	expect_no_machine(&req, EACCES, "git authentication failed");
	close_provider();
	config.git_token = git_token;
	open_provider();
	make(&req);
	assert_int_equal(count("secret"), 1);
	provider->impl->release(machine);
	req.name = "sbx-b";
	make(&req);
	assert_int_equal(count("secret"), 1);
	assert_string_equal(run("grep -r " GIT_TOKEN " /work; echo none"), "none\n");
}

static void a_token_is_in_no_sentence(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	close_provider();
	config.git_token = git_token;
	open_provider();
	req.source = "org/source";
	fault("secret", "\"echo\"");
	expect_no_machine(&req, EREMOTEIO, "I got");
}

/* ---- images ---- */

static void with_image(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void with_image(const char *fmt, ...)
{
	static char image[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(image, sizeof(image), fmt, ap);
	va_end(ap);
	close_provider();
	config.image = image;
	open_provider();
}

static void an_image_that_is_not_there_is_said(void **state)
{
	const struct sbx_machine_request req = request();

	(void)state;
	with_image("docker.io/library/missing:1");
	expect_no_machine(&req, EREMOTEIO,
	                  "failed to resolve image \"docker.io/library/missing:1\"");
}

static void an_image_is_built(void **state)
{
	(void)state;
	scratch_mkdir(scratch_path("context"));
	scratch_write(scratch_path("context/file"), "copied\n");
	scratch_write(
	        scratch_path("context/Dockerfile"),
	        "FROM busybox\nCOPY file /etc/of-the-image\nRUN echo ran >>/etc/of-the-image\n"
	        "ENV OF_THE_IMAGE=yes\n");
	with_image("dockerfile:%s", scratch_path("context"));
	make_plain();
	assert_string_equal(run("cat /etc/of-the-image; echo $OF_THE_IMAGE"), "copied\nran\nyes\n");
}

static void an_image_is_a_directory(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	char dir[600];

	(void)state;
	make_plain();
	run("echo mark >/etc/mark");
	snprintf(dir, sizeof(dir), "%s", scratch_path("rootfs"));
	if (sbx_dagger_export(machine, "/", dir, false, NULL, &err))
		fail_msg("%s", err.text);
	with_image("rootfs:%s", dir);
	control("POST", "reset", NULL);
	assert_int_equal(provider->impl->unmake(provider, "sbx-a", NULL, NULL, &err), 0);
	make_plain();
	assert_int_equal(count("all"), 3);
	assert_string_equal(run("cat /etc/mark"), "mark\n");
}

static void an_image_is_an_archive(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	char archive[600];

	(void)state;
	make_plain();
	run("echo mark >/etc/mark");
	if (provider->impl->save(machine, NULL, &err))
		fail_msg("%s", err.text);
	snprintf(archive, sizeof(archive), "%s", scratch_path("image.tar"));
	assert_int_equal(rename(scratch_path("state/dagger/sbx-a.d/archive.tar"), archive), 0);
	with_image("archive:%s", archive);
	assert_int_equal(provider->impl->unmake(provider, "sbx-a", NULL, NULL, &err), 0);
	make_plain();
	assert_string_equal(run("cat /etc/mark"), "mark\n");
}

static void an_image_may_have_a_user(void **state)
{
	const struct sbx_machine_file file = text_file(1, "text\n");

	(void)state;
	if (geteuid())
		skip_because("only root may give files away");
	with_image("example.com/nonroot:1");
	make_plain();
	expect_put(&file, 1);
	assert_string_equal(run("id -u; echo mine >/work/file && cat /work/file; "
	                        "mv /.sandboxfs/in/1 /work/put && cat /work/put"),
	                    "1000\nmine\ntext\n");
}

static void an_image_that_is_none_is_refused(void **state)
{
	static const char *const images[] = {"", "a b", "rootfs:relative", "archive:", "a\xff"};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(images); i++)
		assert_int_equal(sbx_dagger_check_image(images[i], &err), -EINVAL);
	assert_int_equal(sbx_dagger_check_image("a/b:c@sha256:0", &err), 0);
}

/* ---- scripts ---- */

static void a_script_runs(void **state)
{
	(void)state;
	make_plain();
	assert_string_equal(run("echo out; echo err >&2; exit 150"), "out\n");
	assert_string_equal(run("echo a >/work/a; kill -9 $$"), "");
	assert_string_equal(run("cat /work/a"), "a\n");
	assert_string_equal(run("env | grep -E 'OTEL|SANDBOXFS|BAGGAGE|TRACE'; echo none"),
	                    "none\n");
	assert_string_equal(run("read line || echo no input"), "no input\n");
	assert_int_equal(count("run"), 5);
	assert_int_equal(count("all"), 7);
}

static void the_same_script_runs_again(void **state)
{
	(void)state;
	make_plain();
	run("echo once more >>/work/a");
	run("echo once more >>/work/a");
	assert_string_equal(run("cat /work/a"), "once more\nonce more\n");
}

static void a_script_has_any_bytes(void **state)
{
	(void)state;
	make_plain();
	assert_string_equal(run("printf %s 'a\\b%c\"\xc3\xa9\t\x01\n' | od -An -tx1"),
	                    " 61 5c 62 25 63 22 c3 a9 09 01 0a\n");
	assert_string_equal(run("printf %s '\xff\\\\%%\"\xc3\xa9\t\n' | od -An -tx1"),
	                    " ff 5c 5c 25 25 22 c3 a9 09 0a\n");
	run("echo odd >'/work/\xff\xfe'");
	assert_string_equal(run("cat /work/*"), "odd\n");
}

static void a_script_may_be_long(void **state)
{
	static char text[SBX_SCRIPT_MAX + 1];
	struct sbx_machine_run r;

	(void)state;
	make_plain();
	memset(text, '#', SBX_SCRIPT_MAX);
	memcpy(text, "echo begun\n", 11);
	memcpy(text + SBX_SCRIPT_MAX - 12, "\necho ended\n", 12);
	text[SBX_SCRIPT_MAX] = '\0';
	assert_string_equal(run(text), "begun\nended\n");
	memset(text + 11, '\xff', SBX_SCRIPT_MAX - 23);
	r = script(text, NULL);
	expect_failure(r, E2BIG, "too long");
}

static void an_output_may_be_long(void **state)
{
	struct sbx_machine_run r;
	const char *out;

	(void)state;
	make_plain();
	out = run("head -c 3000000 /dev/zero | base64 | tr -d '\\n'");
	assert_int_equal(strlen(out), 4000000);
	r = script("echo changed >/work/a; head -c 100 /dev/zero | tr '\\0' x", NULL);
	r.answer_max = 99;
	expect_failure(r, EMSGSIZE, "too long");
	assert_string_equal(run("ls /work"), "");
}

static void scripts_run_one_after_another(void **state)
{
	struct sbx_machine_run runs[5];
	struct done d[5];
	char text[5][64];

	(void)state;
	make_plain();
	for (int i = 0; i < 5; i++) {
		d[i] = undone();
		snprintf(text[i], sizeof(text[i]), "echo %d >>/work/all; cat /work/all", i);
		runs[i] = script(text[i], &d[i]);
		provider->impl->run(machine, &runs[i]);
	}
	for (int i = 0; i < 5; i++) {
		await(&d[i]);
		assert_int_equal(d[i].code, 0);
		assert_int_equal(d[i].len, 2 * (i + 1));
		free(d[i].out);
	}
}

static void machines_run_beside_each_other(void **state)
{
	struct sbx_machine *first;
	struct sbx_machine_request req = request();
	struct sbx_machine_run r;
	struct done d = undone();

	(void)state;
	make_plain();
	first = machine;
	req.name = "sbx-b";
	make(&req);
	fault("run", "\"stall\"");
	r = script("echo first", &d);
	provider->impl->run(first, &r);
	while (!count("run"))
		usleep(1000);
	assert_string_equal(run("echo second"), "second\n");
	provider->impl->cancel_run(first, &r);
	await(&d);
	assert_int_equal(d.code, -EINTR);
	provider->impl->release(first);
}

/* ---- giving up ---- */

static void a_run_is_given_up(void **state)
{
	struct done d[2] = {undone(), undone()};
	struct sbx_machine_run runs[2] = {
	        script("echo lost >/work/lost; sleep 100", &d[0]),
	        script("echo queued >/work/queued", &d[1]),
	};

	(void)state;
	make_plain();
	provider->impl->run(machine, &runs[0]);
	provider->impl->run(machine, &runs[1]);
	provider->impl->cancel_run(machine, &runs[1]);
	await(&d[1]);
	assert_int_equal(d[1].code, -EINTR);
	assert_false(d[0].is);
	provider->impl->cancel_run(machine, &runs[0]);
	await(&d[0]);
	assert_int_equal(d[0].code, -EINTR);
	provider->impl->cancel_run(machine, &runs[0]);
	assert_string_equal(run("ls /work"), "");
}

static void a_run_ends_by_its_deadline(void **state)
{
	struct sbx_machine_run r = script("echo lost >/work/lost; sleep 100", NULL);

	(void)state;
	make_plain();
	r.deadline_ms = 600;
	expect_failure(r, ETIMEDOUT, "Dagger does not answer");
	assert_string_equal(run("ls /work"), "");
}

/* ---- files ---- */

static void files_are_put(void **state)
{
	static char binary[300000];
	struct sbx_machine_file files[3] = {text_file(0, ""), {.number = 7}, {.number = 123456789}};
	FILE *temp = tmpfile();

	(void)state;
	for (size_t i = 0; i < sizeof(binary); i++)
		binary[i] = (char)(i * 7 + (i >> 8));
	fwrite(binary, 1, sizeof(binary), temp);
	fflush(temp);
	files[1].bytes = (struct sbx_http_bytes){.data = binary, .size = sizeof(binary)};
	files[2].bytes = (struct sbx_http_bytes){
	        .fd = fileno(temp), .offset = 1000, .size = sizeof(binary) - 1000};
	make_plain();
	control("POST", "reset", NULL);
	expect_put(files, 3);
	assert_int_equal(count("all"), 1);
	assert_string_equal(
	        run("cd /.sandboxfs/in; ls; wc -c <0; tail -c +1001 7 | cmp - 123456789 &&"
	            " echo same; wc -c <7; head -c 8 7 | od -An -tx1"),
	        "0\n123456789\n7\n0\nsame\n300000\n 00 07 0e 15 1c 23 2a 31\n");
	assert_int_equal(count("all"), 2);
	assert_string_equal(run("rm /.sandboxfs/in/*; ls /.sandboxfs/in"), "");
	fclose(temp);
}

static void files_are_put_once_more(void **state)
{
	const struct sbx_machine_file first = text_file(1, "first\n"),
	                              second = text_file(1, "other\n");

	(void)state;
	make_plain();
	expect_put(&first, 1);
	expect_put(&second, 1);
	assert_string_equal(run("cat /.sandboxfs/in/1; rm /.sandboxfs/in/1"), "other\n");
	assert_string_equal(run("ls /.sandboxfs/in"), "");
	assert_int_equal(scratch_count(scratch_path("state/dagger/sbx-a.d")),
	                 has_handles() ? 0 : 2);
}

static void many_files_are_two_requests(void **state)
{
	static char text[1000][4096];
	static struct sbx_machine_file files[1000];

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		memset(text[i], 'a' + i % 26, sizeof(text[i]));
		files[i] = (struct sbx_machine_file){
		        .number = i, .bytes = {.data = text[i], .size = sizeof(text[i])}};
	}
	make_plain();
	control("POST", "reset", NULL);
	expect_put(files, 1000);
	assert_string_equal(run("cd /.sandboxfs/in; ls | wc -l; cat * | wc -c"), "1000\n4096000\n");
	assert_int_equal(count("all"), 2);
}

static void files_stay_until_a_run_has_them(void **state)
{
	const struct sbx_machine_file file = text_file(1, "text\n");
	struct sbx_machine_run r = script("rm /.sandboxfs/in/1", NULL);

	(void)state;
	make_plain();
	expect_put(&file, 1);
	fault("run", "\"reset\"");
	r.safe = false;
	expect_failure(r, EREMOTEIO, "closed the connection");
	assert_string_equal(run("cat /.sandboxfs/in/1"), "text\n");
}

static void a_put_fails(void **state)
{
	const struct sbx_machine_file file = text_file(1, "text\n");
	struct sbx_machine_file shorter = {.number = 1};
	struct sbx_error err;
	FILE *temp = tmpfile();

	(void)state;
	make_plain();
	fault("upload", "\"error\",\"message\":\"no space left on device\"");
	assert_int_equal(put(&file, 1, &err), -ENOSPC);
	shorter.bytes = (struct sbx_http_bytes){.fd = fileno(temp), .size = 5};
	assert_int_equal(put(&shorter, 1, &err), -EIO);
	assert_non_null(strstr(err.text, "cannot be copied"));
	fclose(temp);
	assert_int_equal(scratch_count(scratch_path("state/dagger/sbx-a.d")), 0);
	assert_string_equal(run("ls /.sandboxfs"), "");
}

static void a_put_is_given_up(void **state)
{
	const struct sbx_machine_file file = text_file(1, "text\n");
	struct done d = undone();
	struct sbx_machine_put p = {.op = "test_put",
	                            .files = &file,
	                            .n = 1,
	                            .deadline_ms = DEADLINE,
	                            .done = put_done,
	                            .data = &d};

	(void)state;
	make_plain();
	fault("upload", "\"stall\"");
	provider->impl->put(machine, &p);
	while (!count("upload"))
		usleep(1000);
	provider->impl->cancel_put(machine, &p);
	await(&d);
	assert_int_equal(d.code, -EINTR);
	provider->impl->cancel_put(machine, &p);
	d = undone();
	provider->impl->put(machine, &p);
	provider->impl->cancel_put(machine, &p);
	await(&d);
	assert_true(d.code == -EINTR || d.code == 0);
}

/* ---- faults ---- */

static void a_lost_answer_is_asked_for_again(void **state)
{
	static const char *const faults[] = {"\"lost\"", "\"cut\"", "\"reset\"",
	                                     "\"status\",\"status\":503,\"body\":\"http do: x\""};

	(void)state;
	make_plain();
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		fault("run", faults[i]);
		assert_string_equal(run("echo line >>/work/lines; wc -l </work/lines; : >/work/x"),
		                    i == 0   ? "1\n"
		                    : i == 1 ? "2\n"
		                    : i == 2 ? "3\n"
		                             : "4\n");
	}
	assert_int_equal(count("run"), 8);
}

#define OURS                                                                                       \
	"\"answer\",\"body\":\"{\\\"data\\\":{\\\"node\\\":{\\\"label\\\":\\\"sbx-a\\\","          \
	"\\\"envVariable\\\":\\\"sbx-a\\\""

static void faults_are_told(void **state)
{
	static const struct {
		const char *fault;
		int code;
		const char *says;
	} rows[] = {
	        {"\"lost\"", EREMOTEIO, "Dagger has closed the connection"},
	        {"\"reset\"", EREMOTEIO, "Dagger has closed the connection"},
	        {"\"cut\"", EREMOTEIO, "the answer of Dagger was cut"},
	        {"\"stall\"", ETIMEDOUT, "Dagger does not answer"},
	        {"\"stall_after\"", ETIMEDOUT, "Dagger does not answer"},
	        {"\"html\"", EPROTO, "cannot be understood"},
	        {"\"answer\",\"body\":\"{}\"", EPROTO, "cannot be understood"},
	        {"\"answer\",\"body\":\"[]\"", EPROTO, "cannot be understood"},
	        {"\"answer\",\"body\":\"{\\\"data\\\":{}}\"", EPROTO, "no container"},
	        {"\"answer\",\"body\":\"{\\\"data\\\":null,\\\"errors\\\":[{}]}\"", EPROTO,
	         "says nothing"},
	        {OURS "}}}\"", EPROTO, "no output"},
	        {OURS ",\\\"exitCode\\\":0,\\\"stdout\\\":\\\"\\\"}}}\"", EPROTO, "no id"},
	        {"\"status\",\"status\":500,\"body\":\"panic\"", EREMOTEIO, "HTTP 500"},
	        {"\"status\",\"status\":500,\"body\":\"{\\\"errors\\\":[{\\\"message\\\":"
	         "\\\"get client: the schema is broken "
	         "[traceparent:1-2]\\\"}],\\\"data\\\":null}\"",
	         EREMOTEIO, "Dagger says: get client: the schema is broken"},
	        {"\"status\",\"status\":500,\"body\":\"{\\\"errors\\\":[{\\\"message\\\":"
	         "\\\"write x: no space left on device\\\"}]}\"",
	         ENOSPC, "write x: no space left on device"},
	        {"\"status\",\"status\":502,\"body\":\"client has closed: x\"", EREMOTEIO,
	         "HTTP 502"},
	        {"\"status\",\"status\":401", EKEYREJECTED, "does not accept the token"},
	        {"\"status\",\"status\":422,\"body\":\"{\\\"errors\\\":[{\\\"message\\\":"
	         "\\\"Cannot query field\\\"}]}\"",
	         EPROTO,
	         "this version of Dagger is not understood: Dagger says: Cannot query field"},
	        {"\"error\",\"message\":\"boom: all is lost\\nsecond line\"", EREMOTEIO,
	         "Dagger says: boom: all is lost"},
	        {"\"error\",\"message\":\"load: missing shared result 7\"", ESTALE,
	         "has forgotten"},
	        {"\"error\",\"message\":\"invalid ID string\"", ESTALE, "does not know"},
	        {"\"error\",\"message\":\"expected Container, got File\"", ESTALE,
	         "something else"},
	        {"\"error\",\"message\":\"x: no space left on device\"", ENOSPC, "no space"},
	        {"\"echo\"", EREMOTEIO, "I got"},
	        {"\"error\",\"message\":\"exit code: 1\",\"extensions\":{\"_type\":\"EXEC_ERROR\"}",
	         EREMOTEIO, "exit code: 1"},
	};

	(void)state;
	make_plain();
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		struct sbx_machine_run r = script("echo changed >>/work/a", NULL);

		r.safe = false;
		r.deadline_ms = strstr(rows[i].fault, "stall") ? 500 : DEADLINE;
		fault("run", rows[i].fault);
		expect_failure(r, rows[i].code, rows[i].says);
	}
	assert_string_equal(run("ls /work"), "");
	assert_int_equal(count("run"), (int)SBX_ARRAY_SIZE(rows) + 1);
}

/* What a query may meet that is sent again where its answer was lost. */
static const struct met {
	const char *fault;
	int code; /* when it lasts */
	bool passes;
} lasting[] = {
        {"\"lost\"", EREMOTEIO, true},
        {"\"reset\"", EREMOTEIO, true},
        {"\"cut\"", EREMOTEIO, true},
        {"\"status\",\"status\":500,\"body\":\"panic\"", EREMOTEIO, true},
        {"\"status\",\"status\":502,\"body\":\"http do: x\"", EREMOTEIO, true},
        {"\"status\",\"status\":503", EREMOTEIO, true},
        {"\"status\",\"status\":401", EKEYREJECTED, false},
        {"\"status\",\"status\":429", EAGAIN, true},
        {"\"html\"", EPROTO, false},
        {"\"answer\",\"body\":\"{}\"", EPROTO, false},
        {"\"answer\",\"body\":\"[[[[\"", EPROTO, false},
        {"\"answer\",\"body\":\"{\\\"data\\\":{}}\"", EPROTO, false},
        {"\"error\",\"message\":\"x: no space left on device\"", ENOSPC, false},
        {"\"echo\"", EREMOTEIO, false},
};

/* OP meets the fault once, and as often as it is asked. TRY answers a negative errno, or 0. */
static void meet_all(const char *op, int (*try)(struct sbx_error *err))
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(lasting); i++) {
		const struct met *m = &lasting[i];
		struct sbx_error err = SBX_ERROR_INIT;
		char often[512];
		int r;

		snprintf(often, sizeof(often), "%s,\"times\":99", m->fault);
		fault(op, often);
		r = try(&err);
		control("POST", "reset", NULL);
		if (r != -m->code || err.code != m->code || !*err.text)
			fail_msg("%s %s: %d, not %d: %s", op, m->fault, -r, m->code, err.text);
		expect_no_secret(&err);
		fault(op, m->fault);
		err = SBX_ERROR_INIT;
		r = try(&err);
		control("POST", "reset", NULL);
		if (r != (m->passes ? 0 : -m->code))
			fail_msg("%s %s once: %d, %s", op, m->fault, -r, err.text);
	}
}

static const char *wanted_source;

/* Of a provider of its own, whose first query is the first of a session; nothing is left of it. */
static int try_make(struct sbx_error *err)
{
	struct sbx_machine_request req = request();
	struct sbx_machine *m = NULL;
	int r;

	close_provider();
	open_provider();
	req.source = wanted_source;
	req.branch = wanted_source ? "sandbox/a" : NULL;
	r = provider->impl->make(provider, &req, &m, NULL, err);
	if (r == 0) {
		assert_int_equal(provider->impl->unmake(provider, req.name, m->handle, NULL, err),
		                 0);
		provider->impl->release(m);
	} else {
		assert_null(m);
	}
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
	return r;
}

static void whatever_fails_leaves_no_machine(void **state)
{
	(void)state;
	make_source();
	wanted_source = source();
	meet_all("upload", try_make);
	wanted_source = NULL;
	meet_all("probe", try_make);
	meet_all("create", try_make);
}

static void whatever_fails_at_a_server_leaves_no_machine(void **state)
{
	(void)state;
	make_source();
	serve_github();
	config.git_token = git_token;
	wanted_source = "org/source";
	meet_all("secret", try_make);
	meet_all("git", try_make);
}

static int try_put(struct sbx_error *err)
{
	const struct sbx_machine_file file = text_file(1, "put");

	return put(&file, 1, err);
}

static int try_look(struct sbx_error *err)
{
	struct sbx_machine_look l;

	return provider->impl->look(machine, &l, NULL, err);
}

static int try_touch(struct sbx_error *err)
{
	return provider->impl->touch(machine, NULL, err);
}

/* What has not changed is saved already. */
static int try_save(struct sbx_error *err)
{
	run("echo more >>/work/kept");
	return provider->impl->save(machine, NULL, err);
}

static void whatever_fails_leaves_the_machine(void **state)
{
	(void)state;
	make_plain();
	run("echo kept >/work/kept");
	meet_all("upload", try_put);
	meet_all("look", try_look);
	meet_all("look", try_touch);
	meet_all("export", try_save);
	assert_string_equal(run("head -n 1 /work/kept"), "kept\n");
}

static void a_container_needs_a_shell(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	scratch_mkdir(scratch_path("empty"));
	for (size_t i = 0; i < 3; i++)
		scratch_mkdir(scratch_path("empty/%s", (const char *[]){"usr", "dev", "proc"}[i]));
	with_image("rootfs:%s", scratch_path("empty"));
	make_plain();
	expect_failure(script("true", NULL), ENOEXEC, "no shell runs in the container");
	(void)err;
}

static void a_wrong_token_is_said(void **state)
{
	const struct sbx_machine_request req = request();
	struct sbx_secret *wrong;

	(void)state;
	close_provider();
	assert_int_equal(sbx_secret_make("another-token", &wrong), 0);
	config.token = wrong;
	open_provider();
	expect_no_machine(&req, EKEYREJECTED, "Dagger does not accept the token");
	close_provider();
	end_loop();
	sbx_secret_free(wrong);
	config.token = token;
	assert_int_equal(sbx_loop_create(&loop), 0);
	assert_int_equal(
	        sbx_http_create(&(struct sbx_http_config){.loop = loop, .backoff_ms = 1}, &http),
	        0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
}

static void no_server_is_said(void **state)
{
	const struct sbx_machine_request req = request();

	(void)state;
	close_provider();
	config.port = "1";
	open_provider();
	expect_no_machine(&req, ECONNREFUSED, "Dagger cannot be reached");
}

static void settings_are_checked(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_provider *p = NULL;

	(void)state;
	config.port = "0";
	assert_int_equal(sbx_dagger_provider(&config, &p, &err), -EINVAL);
	config.port = "12x";
	assert_int_equal(sbx_dagger_provider(&config, &p, &err), -EINVAL);
	config.port = port;
	config.token = NULL;
	assert_int_equal(sbx_dagger_provider(&config, &p, &err), -EACCES);
	config.token = token;
	config.image = "a b";
	assert_int_equal(sbx_dagger_provider(&config, &p, &err), -EINVAL);
	assert_null(p);
}

/* ---- what an engine forgets ---- */

static void a_forgotten_container_is_gone(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	make_source();
	struct sbx_machine_request req = request();
	req.source = source();
	make(&req);
	run("echo kept >/work/kept");
	assert_int_equal(look(), SBX_MACHINE_UP);
	assert_int_equal(provider->impl->touch(machine, NULL, &err), 0);
	control("POST", "forget", NULL);
	if (!has_handles()) {
		/* Its id says how it came to be. */
		assert_int_equal(look(), SBX_MACHINE_UP);
		assert_string_equal(run("cat /work/kept /work/one"), "kept\n1\n");
		return;
	}
	assert_int_equal(look(), SBX_MACHINE_GONE);
	assert_int_equal(provider->impl->touch(machine, NULL, &err), -ESTALE);
	assert_non_null(strstr(err.text, "has forgotten the sandbox"));
	expect_failure(script("true", NULL), ESTALE, "has forgotten the sandbox");
}

/* The engine has begun anew, and the id of the machine names a container of another's. */
static void give_id_to_another(void)
{
	struct sbx_provider *own = provider;
	struct sbx_machine *first = machine;
	const char *state_dir = config.state_dir;

	control("POST", "restart", NULL);
	scratch_mkdir(scratch_path("another"));
	assert_int_equal(chmod(scratch_path("another"), 0700), 0);
	config.state_dir = scratch_path("another");
	open_provider();
	struct sbx_machine_request req = request();
	req.name = "sbx-of-another";
	make(&req);
	close_provider();
	config.state_dir = state_dir;
	provider = own;
	machine = first;
}

/* A script that ran there would not end, and what it left would be the newest container. */
static void nothing_is_done_in_anothers_container(void **state)
{
	_cleanup_free_ char *before = NULL, *after = NULL;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	if (!has_handles())
		skip_because("ids that are recipes mean nothing else");
	control("POST", "restart", NULL);
	make_plain();
	give_id_to_another();
	scratch_mkdir(scratch_path("out"));
	before = dagger_machine_id(dagger_machine_of(machine), NULL, NULL);
	expect_failure(script("sleep 100000", NULL), ESTALE, "its id means something else by now");
	assert_int_equal(
	        sbx_dagger_export(machine, "/work", scratch_path("out"), false, NULL, &err),
	        -ESTALE);
	assert_int_equal(provider->impl->save(machine, NULL, &err), -ESTALE);
	assert_int_equal(provider->impl->touch(machine, NULL, &err), -ESTALE);
	assert_int_equal(look(), SBX_MACHINE_GONE);
	assert_int_equal(scratch_count(scratch_path("out")), 0);
	after = dagger_machine_id(dagger_machine_of(machine), NULL, NULL);
	assert_string_equal(before, after);
}

/* A file, say. */
static void what_is_no_container_is_not_taken(void **state)
{
	static const char *const answers[] = {"{\\\"data\\\":{\\\"node\\\":{}}}",
	                                      "{\\\"data\\\":{\\\"node\\\":null}}"};
	char how[128];

	(void)state;
	make_plain();
	for (size_t i = 0; i < SBX_ARRAY_SIZE(answers); i++) {
		snprintf(how, sizeof(how), "\"answer\",\"body\":\"%s\"", answers[i]);
		fault("run", how);
		expect_failure(script("true", NULL), ESTALE, "has forgotten the sandbox");
	}
	assert_string_equal(run("echo works; env | grep SANDBOXFS"), "works\n");
}

/* As when the daemon has been started again. */
static void begin_anew(void)
{
	char handle[64];

	snprintf(handle, sizeof(handle), "%s", machine->handle);
	close_provider();
	open_provider();
	adopt(handle);
}

static void a_machine_is_adopted(void **state)
{
	(void)state;
	make_plain();
	run("echo first >/work/a");
	begin_anew();
	control("POST", "end_session", NULL);
	control("POST", "reset", NULL);
	assert_int_equal(look(), SBX_MACHINE_UP);
	assert_string_equal(run("cat /work/a; echo second >>/work/a"), "first\n");
	assert_int_equal(count("all"), 3);
	begin_anew();
	assert_string_equal(run("cat /work/a"), "first\nsecond\n");
}

static void save(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (provider->impl->save(machine, NULL, &err))
		fail_msg("%s", err.text);
}

static void what_was_saved_is_made_anew(void **state)
{
	(void)state;
	make_plain();
	run("echo kept >/work/kept; printf '\\377' >/work/odd; chmod 751 /work/odd");
	save();
	begin_anew();
	control("POST", "restart", NULL);
	assert_int_equal(look(), SBX_MACHINE_UP);
	assert_string_equal(run("cd /work; cat kept; od -An -tx1 odd; stat -c %a odd"),
	                    "kept\n ff\n751\n");
	assert_string_equal(run("echo $" DAGGER_ID_NAME "; hostname >/dev/null"), "\n");
	assert_int_equal(scratch_count(scratch_path("state/dagger/sbx-a.d")), 1);
}

/* What only reads leaves files as they were saved, also where the machine was made from that. */
static void what_was_saved_stands_until_a_file_changes(void **state)
{
	(void)state;
	make_plain();
	run("echo kept >/work/kept");
	save();
	for (int i = 0; i < 2; i++) {
		run("cat /work/kept; ls -lR /work; : >" DAGGER_ROOM "/mark");
		begin_anew();
		control("POST", "forget", NULL);
		assert_int_equal(look(), SBX_MACHINE_UP);
		assert_string_equal(run("cat /work/kept"), "kept\n");
	}
	control("POST", "reset", NULL);
	save();
	assert_int_equal(count("all"), 0);
	run("chmod 600 /work/kept");
	begin_anew();
	control("POST", "forget", NULL);
	assert_int_equal(look(), has_handles() ? SBX_MACHINE_GONE : SBX_MACHINE_UP);
	if (has_handles())
		return;
	save();
	assert_int_equal(count("export"), 1);
}

/* The one before is of files that are no more. */
static void what_cannot_be_saved_leaves_the_machine(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	make_plain();
	save();
	run("echo later >/work/later");
	fault("export", "\"error\",\"message\":\"no space left on device\"");
	assert_int_equal(provider->impl->save(machine, NULL, &err), -ENOSPC);
	fault("export", "\"lost\",\"times\":9");
	assert_int_equal(provider->impl->save(machine, NULL, &err), -EREMOTEIO);
	control("POST", "reset", NULL);
	assert_int_equal(scratch_count(scratch_path("state/dagger/sbx-a.d")), 1);
	assert_string_equal(run("cat /work/later"), "later\n");
	save();
	control("POST", "forget", NULL);
	assert_int_equal(look(), SBX_MACHINE_UP);
	assert_string_equal(run("cat /work/later"), "later\n");
}

static void a_directory_is_exported(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	char to[600];

	(void)state;
	make_plain();
	run("mkdir /work/sub; cd /work/sub; printf 'a\\0\\377b' >odd; ln -s odd link; chmod 640 "
	    "odd");
	snprintf(to, sizeof(to), "%s", scratch_path("out"));
	scratch_mkdir(to);
	scratch_write(scratch_path("out/old"), "old");
	assert_int_equal(sbx_dagger_export(machine, "/work/sub", to, false, NULL, &err), 0);
	assert_int_equal(scratch_count(to), 3);
	assert_int_equal(sbx_dagger_export(machine, "/work/sub", to, true, NULL, &err), 0);
	assert_int_equal(scratch_count(to), 2);
	assert_int_equal(sbx_dagger_export(machine, "/work/none", to, true, NULL, &err), -ENOENT);
	assert_int_equal(sbx_dagger_export(machine, "/work/sub/odd", to, true, NULL, &err),
	                 -ENOTDIR);
	assert_int_equal(sbx_dagger_export(machine, "/work", "relative", true, NULL, &err),
	                 -EINVAL);
	assert_int_equal(sbx_dagger_export(machine, "/work/\xff", to, true, NULL, &err), -EILSEQ);
}

struct found {
	int n;
	char name[64], handle[64];
	int64_t made_ms;
};

static int note_found(const char *name, const char *handle, int64_t made_ms, void *data)
{
	struct found *f = data;

	f->n++;
	snprintf(f->name, sizeof(f->name), "%s", name);
	snprintf(f->handle, sizeof(f->handle), "%s", handle);
	f->made_ms = made_ms;
	return 0;
}

static int stop_at_first(const char *name, const char *handle, int64_t made_ms, void *data)
{
	note_found(name, handle, made_ms, data);
	return 77;
}

static void machines_are_found_and_unmade(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct found f = {0};
	const int64_t before = sbx_real_ms();
	struct sbx_machine *m;

	(void)state;
	make_plain();
	expect_put(&(struct sbx_machine_file){.number = 1, .bytes = {.data = "x", .size = 1}}, 1);
	control("POST", "reset", NULL);
	assert_int_equal(provider->impl->find(provider, "another label", note_found, &f, &err), 0);
	assert_int_equal(f.n, 0);
	assert_int_equal(provider->impl->find(provider, LABEL, note_found, &f, &err), 0);
	assert_int_equal(f.n, 1);
	assert_string_equal(f.name, "sbx-a");
	assert_string_equal(f.handle, machine->handle);
	assert_true(f.made_ms >= before && f.made_ms <= sbx_real_ms());
	assert_int_equal(provider->impl->find(provider, LABEL, stop_at_first, &f, &err), 77);
	for (int i = 0; i < 2; i++)
		assert_int_equal(provider->impl->unmake(provider, "sbx-a", NULL, NULL, &err), 0);
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
	assert_int_equal(provider->impl->adopt(provider, "sbx-a", &m, &err), -ESTALE);
	assert_int_equal(count("all"), 0);
}

static void a_damaged_record_is_said(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_machine *m;

	(void)state;
	scratch_write(scratch_path("state/dagger/sbx-a"), "{\"id\":1}");
	assert_int_equal(provider->impl->adopt(provider, "sbx-a", &m, &err), -EUCLEAN);
	scratch_write(scratch_path("state/dagger/sbx-a"), "");
	assert_int_equal(provider->impl->adopt(provider, "sbx-a", &m, &err), -EUCLEAN);
}

static void an_id_that_cannot_be_kept_is_no_change(void **state)
{
	(void)state;
	make_plain();
	/* A directory stands where the new record is to be written. */
	scratch_mkdir(scratch_path("state/dagger/sbx-a.new"));
	expect_failure(script("echo lost >/work/lost", NULL), EISDIR, "cannot be written");
	assert_int_equal(rmdir(scratch_path("state/dagger/sbx-a.new")), 0);
	assert_string_equal(run("ls /work"), "");
}

/* ---- copies ---- */

/* The machine is a copy of what was it, as NAME; that one is released. */
static void become_a_copy(const char *name)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_machine *m = NULL;

	if (provider->impl->copy(machine, name, &m, NULL, &err))
		fail_msg("%s", err.text);
	provider->impl->release(machine);
	machine = m;
}

static void be(const char *handle)
{
	provider->impl->release(machine);
	machine = NULL;
	adopt(handle);
}

static void unmake(const char *name)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (provider->impl->unmake(provider, name, NULL, NULL, &err))
		fail_msg("%s", err.text);
}

static void a_copy_is_an_id(void **state)
{
	(void)state;
	make_plain();
	run("echo both >/work/both; : >" DAGGER_ROOM "/theirs");
	control("POST", "reset", NULL);
	become_a_copy("sbx-b");
	assert_int_equal(count("all"), 0);
	assert_string_equal(machine->handle, "sbx-b");
	assert_int_equal(look(), SBX_MACHINE_UP);
	expect_put((struct sbx_machine_file[]){text_file(1, "put")}, 1);
	assert_string_equal(run("ls " DAGGER_ROOM "; cat " DAGGER_ROOM "/in/1 /work/both; "
	                        "echo b >/work/b; env | grep SANDBOXFS"),
	                    "in\nputboth\n");
	be("sbx-a");
	assert_string_equal(run("ls /work " DAGGER_ROOM "; echo a >/work/a"),
	                    DAGGER_ROOM ":\ntheirs\n\n/work:\nboth\n");
	control("POST", "end_session", NULL);
	be("sbx-b");
	assert_int_equal(look(), SBX_MACHINE_UP);
	assert_string_equal(run("ls /work"), "b\nboth\n");
}

/* Before it has run and afterwards, whoever goes first. */
static void a_copy_outlives_its_origin(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	req.source = source();
	make(&req);
	expect_put((struct sbx_machine_file[]){text_file(1, "put")}, 1);
	run("cp " DAGGER_ROOM "/in/1 /work/put");
	become_a_copy("sbx-b");
	become_a_copy("sbx-c");
	unmake("sbx-a");
	be("sbx-b");
	run("echo b >/work/b");
	unmake("sbx-b");
	if (!has_handles())
		control("POST", "forget", NULL);
	be("sbx-c");
	assert_string_equal(run("cd /work; cat one put; ls"), "1\nputone\nput\ntwo\n");
	unmake("sbx-c");
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
}

static void an_origin_outlives_its_copy(void **state)
{
	struct sbx_machine_request req = request();

	(void)state;
	make_source();
	req.source = source();
	make(&req);
	become_a_copy("sbx-b");
	unmake("sbx-b");
	be("sbx-a");
	if (!has_handles())
		control("POST", "forget", NULL);
	assert_string_equal(run("cat /work/one"), "1\n");
	unmake("sbx-a");
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
}

/* With the mark of its origin: what is neither's is not taken, and what was kept is made anew. */
static void a_copy_that_has_not_run_is_guarded(void **state)
{
	(void)state;
	if (!has_handles())
		skip_because("ids that are recipes mean nothing else");
	control("POST", "restart", NULL);
	make_plain();
	become_a_copy("sbx-b");
	give_id_to_another();
	expect_failure(script("sleep 100000", NULL), ESTALE, "its id means something else by now");
	assert_int_equal(look(), SBX_MACHINE_GONE);
}

/* With a mark of its own: a container of its origin is another's. */
static void a_copy_that_has_run_is_none_of_its_origin(void **state)
{
	char *was;

	(void)state;
	make_plain();
	was = dagger_machine_id(dagger_machine_of(machine), NULL, NULL);
	become_a_copy("sbx-b");
	run("true");
	assert_null(dagger_machine_of(machine)->first);
	begin_anew();
	assert_null(dagger_machine_of(machine)->mark);
	free(dagger_machine_of(machine)->id);
	dagger_machine_of(machine)->id = was;
	expect_failure(script("true", NULL), ESTALE, "its id means something else by now");
}

static void a_copy_is_kept_before_it_has_run(void **state)
{
	(void)state;
	make_plain();
	run("echo kept >/work/kept; : >" DAGGER_ROOM "/theirs");
	become_a_copy("sbx-b");
	save();
	begin_anew();
	control("POST", "restart", NULL);
	assert_int_equal(look(), SBX_MACHINE_UP);
	fault("run", "\"lost\"");
	assert_string_equal(run("cat /work/kept; ls " DAGGER_ROOM), "kept\n");
	begin_anew();
	assert_string_equal(run("cat /work/kept"), "kept\n");
}

static void a_copy_that_cannot_be_written_is_none(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_machine *m = NULL;

	(void)state;
	make_plain();
	scratch_mkdir(scratch_path("state/dagger/sbx-b.new"));
	assert_int_equal(provider->impl->copy(machine, "sbx-b", &m, NULL, &err), -EISDIR);
	assert_int_equal(provider->impl->copy(machine, "../b", &m, NULL, &err), -EINVAL);
	assert_null(m);
	assert_int_equal(rmdir(scratch_path("state/dagger/sbx-b.new")), 0);
	assert_int_equal(provider->impl->adopt(provider, "sbx-b", &m, &err), -ESTALE);
	unmake("sbx-a");
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
}

/* ---- states ---- */

static void keep(const char *key)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (provider->impl->keep(machine, key, &err))
		fail_msg("%s", err.text);
}

static void back(const char *key)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (provider->impl->back(machine, key, "was", NULL, &err))
		fail_msg("%s", err.text);
}

static void expect_no_way_back(const char *key, int code, const char *says)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(provider->impl->back(machine, key, "was", NULL, &err), -code);
	assert_non_null(strstr(err.text, says));
	expect_no_secret(&err);
}

/* With what is outside of the tree, but not the room. What was put and is in no run stays. */
static void a_state_is_an_id(void **state)
{
	(void)state;
	make_plain();
	run("echo one >/work/f; echo one >/tmp/f; : >" DAGGER_ROOM "/then");
	control("POST", "reset", NULL);
	keep("one");
	assert_int_equal(count("all"), 0);
	run("echo two >/work/f; echo two >/tmp/f; : >" DAGGER_ROOM "/since");
	expect_put((struct sbx_machine_file[]){text_file(1, "put")}, 1);
	control("POST", "reset", NULL);
	back("one");
	assert_int_equal(count("all"), 1);
	assert_int_equal(count("look"), 1);
	assert_string_equal(run("ls " DAGGER_ROOM "; cat " DAGGER_ROOM "/in/1 /work/f /tmp/f; "
	                        "env | grep SANDBOXFS; : >" DAGGER_ROOM "/new"),
	                    "in\nputone\none\n");
	assert_string_equal(run("ls " DAGGER_ROOM), "copied\nin\nnew\n");
	back("was");
	assert_string_equal(run("cat /work/f"), "two\n");
	back("was");
	assert_string_equal(run("cat /work/f; echo three >/work/f"), "one\n");
	back("one");
	assert_string_equal(run("cat /work/f"), "one\n");
	unmake("sbx-a");
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
}

static void a_way_back_outlives_the_daemon(void **state)
{
	(void)state;
	make_plain();
	run("echo one >/work/f; : >" DAGGER_ROOM "/then");
	keep("one");
	run("echo two >/work/f");
	begin_anew();
	control("POST", "end_session", NULL);
	back("one");
	begin_anew();
	assert_int_equal(look(), SBX_MACHINE_UP);
	assert_string_equal(run("cat /work/f; ls " DAGGER_ROOM), "one\n");
	begin_anew();
	assert_string_equal(run("cat /work/f; ls " DAGGER_ROOM), "one\ncopied\n");
	back("was");
	assert_string_equal(run("cat /work/f"), "two\n");
}

/* A run that is under way is in what was, and not in what is. */
static void a_way_back_waits_for_its_turn(void **state)
{
	struct done d = undone();
	struct sbx_machine_run r = script("echo two >/work/f", &d);

	(void)state;
	make_plain();
	run("echo one >/work/f");
	keep("one");
	provider->impl->run(machine, &r);
	back("one");
	await(&d);
	assert_int_equal(d.code, 0);
	free(d.out);
	assert_string_equal(run("cat /work/f"), "one\n");
	back("was");
	assert_string_equal(run("cat /work/f"), "two\n");
}

static void a_copy_has_states_of_its_own(void **state)
{
	(void)state;
	make_plain();
	keep("origin");
	become_a_copy("sbx-b");
	keep("early");
	expect_no_way_back("origin", ENOENT, "origin");
	run("echo one >/work/f");
	expect_no_way_back("early", ESTALE, "is not one of sbx-b");
	keep("one");
	run("echo two >/work/f");
	back("one");
	become_a_copy("sbx-c");
	assert_string_equal(run("cat /work/f"), "one\n");
	unmake("sbx-a");
	unmake("sbx-b");
	assert_string_equal(run("cat /work/f"), "one\n");
	unmake("sbx-c");
	assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
}

/* The machine is as it was, and what was saved stands for it. */
static void a_state_that_is_forgotten_is_said(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	make_plain();
	keep("one");
	run("echo two >/work/f");
	if (has_handles()) {
		save();
		begin_anew();
		give_id_to_another();
		assert_int_equal(look(), SBX_MACHINE_UP);
		expect_no_way_back("one", ESTALE, "has forgotten that state");
	}
	expect_no_way_back("none", ENOENT, "none");
	expect_no_way_back("../sbx-a", EINVAL, "is no name of a state");
	scratch_write(scratch_path("state/dagger/sbx-a.d/states/one"), "sbx-a\nnonsense");
	expect_no_way_back("one", EUCLEAN, "is damaged");
	assert_int_equal(provider->impl->drop(machine, "one", &err), 0);
	assert_int_equal(provider->impl->drop(machine, "one", &err), 0);
	expect_no_way_back("one", ENOENT, "one");
	assert_string_equal(run("cat /work/f"), "two\n");
}

/* What it is now would be lost. */
static void a_way_back_that_cannot_be_undone_is_none(void **state)
{
	(void)state;
	make_plain();
	keep("one");
	run("echo two >/work/f");
	scratch_mkdir(scratch_path("state/dagger/sbx-a.d/states/.was"));
	expect_no_way_back("one", EISDIR, "was of sbx-a cannot be kept");
	assert_string_equal(run("cat /work/f"), "two\n");
	assert_int_equal(rmdir(scratch_path("state/dagger/sbx-a.d/states/.was")), 0);
	scratch_mkdir(scratch_path("state/dagger/sbx-a.new"));
	expect_no_way_back("one", EISDIR, "cannot be written");
	assert_int_equal(rmdir(scratch_path("state/dagger/sbx-a.new")), 0);
	assert_string_equal(run("cat /work/f"), "two\n");
}

/* ---- layers ---- */

/* The engine mounts LAYERS of a container, and we let it come to MAX above its first ones. */
static void with_layers(unsigned layers, unsigned max)
{
	char body[64];

	snprintf(body, sizeof(body), "{\"layers\":%u}", layers);
	control("POST", "switch", body);
	close_provider();
	config.layers_max = max;
	open_provider();
}

static void run_often(unsigned times)
{
	while (times--)
		run("echo x >>/work/often");
}

static void layers_are_counted_by_the_engine(void **state)
{
	(void)state;
	with_layers(12, 100);
	make_plain();
	run_often(6);
	for (unsigned i = 0; i < 12; i++) {
		struct done d = undone();
		struct sbx_machine_run r = script("true", &d);

		provider->impl->run(machine, &r);
		await(&d);
		free(d.out);
		if (d.code)
			break;
	}
	expect_failure(script("true", NULL), EMLINK, "more layers than");
}

static void a_container_with_many_layers_gets_few(void **state)
{
	(void)state;
	with_layers(20, 8);
	make_plain();
	run("cd /work; echo a >a; ln a b; ln -s a c; : >.hidden; : >..two; mkdir -m 700 d; "
	    "echo x >\"$(printf 'two\\nlines')\"; touch -d @1000000000.123456789 d a; chmod 640 a; "
	    "echo outside >/tmp/f; echo opt >/opt; ln -s nowhere /dangling");
	for (unsigned i = 0; i < 10; i++) {
		expect_put((struct sbx_machine_file[]){text_file(i, "put")}, 1);
		run_often(3);
	}
	assert_true(count("flat") >= 5 && count("flat") <= 6);
	assert_string_equal(
	        run("cd /work; stat -c '%n %a %h %F' a b c .hidden ..two d two*; "
	            "stat -c %y a | cut -d. -f2; cat a; grep -c x often; cat /tmp/f /opt; "
	            "readlink /dangling; stat -c %a / /tmp /root /proc; cd " DAGGER_ROOM "/in; "
	            "cat * | wc -c; env | grep SANDBOXFS; ls -A / | grep sandboxfs"),
	        "a 640 2 regular file\nb 640 2 regular file\nc 777 1 symbolic link\n"
	        ".hidden 644 1 regular empty file\n..two 644 1 regular empty file\n"
	        "d 700 2 directory\ntwo\nlines 644 1 regular file\n123456789 +0000\na\n30\n"
	        "outside\nopt\nnowhere\n755\n1777\n700\n555\n30\n.sandboxfs\n");
}

static void a_run_goes_on_where_layers_stay(void **state)
{
	(void)state;
	with_layers(440, 4);
	make_plain();
	run_often(4);
	fault("flat", "\"error\",\"message\":\"it is busy\"");
	run_often(2);
	assert_int_equal(count("flat"), 1);
	run_often(18);
	assert_int_equal(count("flat"), 1);
	fault("create", "\"cut\",\"times\":9");
	run_often(2);
	assert_int_equal(count("flat"), 2);
	control("POST", "reset", NULL);
	run_often(20);
	assert_int_equal(count("flat"), 1);
	assert_string_equal(run("grep -c x /work/often"), "46\n");
}

static void a_run_is_given_up_before_it_begins(void **state)
{
	struct done d = undone();
	struct sbx_machine_run r = script("echo lost >/work/lost", &d);

	(void)state;
	with_layers(440, 2);
	make_plain();
	run_often(2);
	fault("flat", "\"stall\"");
	provider->impl->run(machine, &r);
	while (!count("flat"))
		;
	provider->impl->cancel_run(machine, &r);
	await(&d);
	assert_int_equal(d.code, -EINTR);
	assert_string_equal(run("ls /work"), "often\n");
}

/* Neither a daemon that ends nor a copy nor a way back makes it forget how many there are. */
static void layers_are_kept(void **state)
{
	(void)state;
	with_layers(440, 6);
	make_plain();
	run_often(5);
	keep("five");
	begin_anew();
	run_often(1);
	assert_int_equal(count("flat"), 0);
	begin_anew();
	become_a_copy("sbx-b");
	run_often(1);
	assert_int_equal(count("flat"), 0);
	run_often(1);
	assert_int_equal(count("flat"), 1);
	be("sbx-a");
	run_often(1);
	assert_int_equal(count("flat"), 2);
	back("five");
	run_often(1);
	assert_int_equal(count("flat"), 2);
	run_often(1);
	assert_int_equal(count("flat"), 3);
	assert_string_equal(run("grep -c x /work/often"), "7\n");
}

/* ---- sessions of our own ---- */

/* A program `dagger` whose lines are TEXT. */
static void with_program(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void with_program(const char *fmt, ...)
{
	static char path[600];
	static unsigned programs; /* one that is being started cannot be written */
	char text[2048];
	va_list ap;
	int n = snprintf(text, sizeof(text), "#!/bin/sh\n");

	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s", scratch_path("dagger-%u", programs++));
	scratch_write(path, text);
	assert_int_equal(chmod(path, 0755), 0);
	close_provider();
	config.port = NULL;
	config.token = NULL;
	config.program = path;
	open_provider();
}

#define SAY_LINE "echo '{\"port\":%d,\"session_token\":\"" TOKEN "\"}'\n"

static void await_file(const char *path)
{
	const uint64_t until = sbx_now_ms() + DEADLINE;

	while (!scratch_exists(path) && sbx_now_ms() < until)
		usleep(1000);
	assert_true(scratch_exists(path));
}

static void a_session_is_started_and_ended(void **state)
{
	char args[600], ended[600], wanted[1200];

	(void)state;
	snprintf(args, sizeof(args), "%s", scratch_path("args"));
	snprintf(ended, sizeof(ended), "%s", scratch_path("ended"));
	setenv("DAGGER_SESSION_PORT", "1", 1);
	with_program("echo \"$*\" >%s; echo ${DAGGER_SESSION_PORT-none} >>%s\n"
	             "i=0; while [ $i -lt 3000 ]; do echo much progress that is read >&2; "
	             "i=$((i+1)); done\n" SAY_LINE "cat >/dev/null; : >%s\n",
	             args, args, server->process.port, ended);
	make_plain();
	unsetenv("DAGGER_SESSION_PORT");
	assert_string_equal(run("echo here"), "here\n");
	snprintf(wanted, sizeof(wanted),
	         "session --workdir %s/dagger --label dagger.io/sdk.name:sandboxfs "
	         "--label dagger.io/sdk.version:" SBX_VERSION "\nnone\n",
	         config.state_dir);
	scratch_expect(args, wanted);
	close_provider();
	await_file(ended);
}

static void a_session_that_ends_is_started_again(void **state)
{
	const struct sbx_machine_file file = text_file(1, "text\n");
	char pid[600];
	FILE *f;
	int number;

	(void)state;
	snprintf(pid, sizeof(pid), "%s", scratch_path("pid"));
	with_program("echo $$ >>%s\n" SAY_LINE "exec cat >/dev/null\n", pid, server->process.port);
	make_plain();
	run("echo kept >/work/kept");
	expect_put(&file, 1);
	f = fopen(pid, "r");
	assert_int_equal(fscanf(f, "%d", &number), 1);
	fclose(f);
	control("POST", "end_session", NULL);
	assert_int_equal(kill(number, SIGKILL), 0);
	while (kill(number, 0) == 0)
		usleep(1000);
	assert_string_equal(run("cat /work/kept /.sandboxfs/in/1"), "kept\ntext\n");
	assert_int_equal(count("probe"), 2);
	assert_int_equal(count("upload"), 2);
}

static void a_session_without_an_engine_is_left(void **state)
{
	struct sbx_machine_run r = script("true", NULL);
	char starts[600];

	(void)state;
	snprintf(starts, sizeof(starts), "%s", scratch_path("starts"));
	with_program("echo start >>%s\n" SAY_LINE "exec cat >/dev/null\n", starts,
	             server->process.port);
	make_plain();
	r.safe = false;
	fault("run", "\"status\",\"status\":502,\"body\":\"client has closed: x\"");
	expect_failure(r, EREMOTEIO, "HTTP 502");
	assert_string_equal(run("echo here"), "here\n");
	scratch_expect(starts, "start\nstart\n");
}

static void sessions_that_do_not_begin_are_said(void **state)
{
	const struct sbx_machine_request req = request();
	static const struct {
		const char *lines;
		int code;
		const char *says;
	} rows[] = {
	        {"printf 'one\\n\\033[31mno engine: docker is missing\\033[0m\\n\\n' >&2; exit 1\n",
	         EREMOTEIO, "has not begun: no engine: docker is missing"},
	        {"exit 1\n", EREMOTEIO, "has not begun"},
	        {"echo nonsense; cat >/dev/null\n", EPROTO, "something else than its port"},
	        {"echo '{\"port\":1,\"session_token\":7}'; cat >/dev/null\n", EPROTO,
	         "something else than its port"},
	        {"echo '{\"port\":99999,\"session_token\":\"" TOKEN "\"}'; cat >/dev/null\n",
	         EPROTO, "something else than its port"},
	        {"cat >/dev/null\n", ETIMEDOUT, "it takes too long"},
	        {"head -c 20000 /dev/zero | tr '\\0' x; cat >/dev/null\n", ETIMEDOUT,
	         "it takes too long"},
	        {"echo '{\"port\":1,\"session_token\":\"" TOKEN "\"}'; cat >/dev/null\n",
	         ECONNREFUSED, "Dagger cannot be reached"},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		config.start_ms = rows[i].code == ETIMEDOUT ? 300 : 0;
		with_program("%s", rows[i].lines);
		expect_no_machine(&req, rows[i].code, rows[i].says);
	}
	close_provider();
	config.program = "/nonexistent/dagger";
	open_provider();
	expect_no_machine(&req, ENOENT, "there is no program /nonexistent/dagger");
}

static void a_provider_may_end_at_any_time(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct sbx_machine_request req = request();
		struct sbx_error err = SBX_ERROR_INIT;
		atomic_bool cancelled = true;

		with_program("sleep 0.0%d\n" SAY_LINE "exec cat >/dev/null\n", i,
		             server->process.port);
		assert_int_equal(provider->impl->make(provider, &req, &machine, &cancelled, &err),
		                 -EINTR);
		usleep((useconds_t)i * 10000);
	}
}

static void what_a_user_may_know(void **state)
{
	struct json_object *obj = json_object_new_object();

	(void)state;
	make_plain();
	provider->impl->info(provider, obj);
	assert_string_equal(json_object_get_string(json_object_object_get(obj, "version")),
	                    has_handles() ? "v0.21.8" : "v0.20.8");
	assert_string_equal(json_object_get_string(json_object_object_get(obj, "session")),
	                    "given");
	assert_non_null(json_object_object_get(obj, "image"));
	json_object_put(obj);
}

/* ---- all of them, in both eras ---- */

#define CASE(f)                                                                                    \
	{#f " (handles)", f, set_up, tear_down, &servers[0]},                                      \
	{                                                                                          \
#f " (recipes)", f, set_up, tear_down, &servers[1]                                 \
	}

static int begin(void **state)
{
	(void)state;
	repo_setup();
	setenv("SBX_TEST_TOKEN", TOKEN, 1);
	assert_int_equal(sbx_secret_take("SBX_TEST_TOKEN", &token), 0);
	assert_int_equal(sbx_secret_make(GIT_TOKEN, &git_token), 0);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(servers); i++)
		start_server(&servers[i]);
	return 0;
}

static int end(void **state)
{
	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(servers); i++)
		stop_server(&servers[i]);
	sbx_secret_free(token);
	sbx_secret_free(git_token);
	repo_teardown();
	return 0;
}

int main(void)
{
	if (getenv("F"))
		cmocka_set_test_filter(getenv("F"));
	const struct CMUnitTest tests[] = {
	        CASE(a_machine_is_made_in_three_requests),
	        CASE(a_machine_begins_at_a_commit),
	        CASE(a_branch_that_is_there_is_continued),
	        CASE(a_base_that_is_not_there_is_refused),
	        CASE(a_plain_directory_is_copied),
	        CASE(no_source_is_an_empty_tree),
	        CASE(a_name_is_made_once),
	        CASE(a_create_is_given_up),
	        CASE(names_are_checked),
	        CASE(a_repository_is_fetched),
	        CASE(a_branch_of_a_server_is_continued),
	        CASE(a_repository_is_fetched_at_a_commit),
	        CASE(what_a_server_lacks_is_said),
	        CASE(a_token_is_told_once),
	        CASE(a_token_is_in_no_sentence),
	        CASE(an_image_that_is_not_there_is_said),
	        CASE(an_image_is_built),
	        CASE(an_image_is_a_directory),
	        CASE(an_image_is_an_archive),
	        CASE(an_image_may_have_a_user),
	        CASE(an_image_that_is_none_is_refused),
	        CASE(a_script_runs),
	        CASE(the_same_script_runs_again),
	        CASE(a_script_has_any_bytes),
	        CASE(a_script_may_be_long),
	        CASE(an_output_may_be_long),
	        CASE(scripts_run_one_after_another),
	        CASE(machines_run_beside_each_other),
	        CASE(a_run_is_given_up),
	        CASE(a_run_ends_by_its_deadline),
	        CASE(layers_are_counted_by_the_engine),
	        CASE(a_container_with_many_layers_gets_few),
	        CASE(a_run_goes_on_where_layers_stay),
	        CASE(a_run_is_given_up_before_it_begins),
	        CASE(layers_are_kept),
	        CASE(files_are_put),
	        CASE(files_are_put_once_more),
	        CASE(many_files_are_two_requests),
	        CASE(files_stay_until_a_run_has_them),
	        CASE(a_put_fails),
	        CASE(a_put_is_given_up),
	        CASE(a_lost_answer_is_asked_for_again),
	        CASE(faults_are_told),
	        CASE(whatever_fails_leaves_no_machine),
	        CASE(whatever_fails_at_a_server_leaves_no_machine),
	        CASE(whatever_fails_leaves_the_machine),
	        CASE(a_container_needs_a_shell),
	        CASE(a_wrong_token_is_said),
	        CASE(no_server_is_said),
	        CASE(settings_are_checked),
	        CASE(a_forgotten_container_is_gone),
	        CASE(nothing_is_done_in_anothers_container),
	        CASE(what_is_no_container_is_not_taken),
	        CASE(a_machine_is_adopted),
	        CASE(what_was_saved_is_made_anew),
	        CASE(what_was_saved_stands_until_a_file_changes),
	        CASE(what_cannot_be_saved_leaves_the_machine),
	        CASE(a_directory_is_exported),
	        CASE(machines_are_found_and_unmade),
	        CASE(a_damaged_record_is_said),
	        CASE(an_id_that_cannot_be_kept_is_no_change),
	        CASE(a_copy_is_an_id),
	        CASE(a_copy_outlives_its_origin),
	        CASE(an_origin_outlives_its_copy),
	        CASE(a_copy_that_has_not_run_is_guarded),
	        CASE(a_copy_that_has_run_is_none_of_its_origin),
	        CASE(a_copy_is_kept_before_it_has_run),
	        CASE(a_copy_that_cannot_be_written_is_none),
	        CASE(a_state_is_an_id),
	        CASE(a_way_back_outlives_the_daemon),
	        CASE(a_way_back_waits_for_its_turn),
	        CASE(a_copy_has_states_of_its_own),
	        CASE(a_state_that_is_forgotten_is_said),
	        CASE(a_way_back_that_cannot_be_undone_is_none),
	        CASE(a_session_is_started_and_ended),
	        CASE(a_session_that_ends_is_started_again),
	        CASE(a_session_without_an_engine_is_left),
	        CASE(sessions_that_do_not_begin_are_said),
	        CASE(a_provider_may_end_at_any_time),
	        CASE(what_a_user_may_know),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, end);
}
