#include "tests/lib/vercel_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/http.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/secret.h"
#include "tests/lib/python_server.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

#define DEADLINE_MS 20000
#define BUFFERS     8
#define SECRETS     8

static struct python_server git, vercel;
static struct sbx_secret *key, *token, *more[SECRETS];
static struct sbx_loop *loop;
static pthread_t loop_thread;
static struct sbx_http *http;
static struct sbx_error error;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
struct sbx_vercel_config vercel_config;
struct sbx_provider *vercel_provider;

/* ---- servers ---- */

static void make_repository(void)
{
	char work[256], bare[256], command[2048];

	snprintf(work, sizeof(work), "%s", scratch_path("work"));
	snprintf(bare, sizeof(bare), "%s", scratch_path("remote/git/acme/widgets.git"));
	repo_init(work, false);
	scratch_write(scratch_path("work/README.md"), "hello\n");
	repo_commit(work, "one");
	snprintf(command, sizeof(command),
	         "git -C %s branch -q -M trunk && git -C %s branch -q other && "
	         "git clone -q --bare %s %s",
	         work, work, work, bare);
	assert_int_equal(system(command), 0);
}

int vercel_servers_start(void **state)
{
	char git_program[] = SBX_TESTS "/lib/git_http.py";
	char vercel_program[] = SBX_TESTS "/lib/vercel_server.py";
	char git_token[] = VERCEL_GIT_TOKEN, api_key[] = VERCEL_KEY;
	char remote[512], boxes[512];

	(void)state;
	repo_setup();
	scratch_make();
	scratch_mkdir(scratch_path("remote"));
	scratch_mkdir(scratch_path("remote/git"));
	scratch_mkdir(scratch_path("remote/git/acme"));
	scratch_mkdir(scratch_path("boxes"));
	make_repository();
	snprintf(remote, sizeof(remote), "%s", scratch_path("remote"));
	snprintf(boxes, sizeof(boxes), "%s", scratch_path("boxes"));
	python_server_start(&git, git_program, (const char *[]){remote, git_token, NULL});
	python_server_start(&vercel, vercel_program, (const char *[]){boxes, api_key, NULL});
	setenv("VERCEL_TEST_KEY", VERCEL_KEY, 1);
	setenv("VERCEL_TEST_TOKEN", VERCEL_GIT_TOKEN, 1);
	assert_int_equal(sbx_secret_take("VERCEL_TEST_KEY", &key), 0);
	return sbx_secret_take("VERCEL_TEST_TOKEN", &token);
}

int vercel_servers_stop(void **state)
{
	(void)state;
	sbx_secret_free(key);
	sbx_secret_free(token);
	python_server_stop(&vercel);
	python_server_stop(&git);
	scratch_remove();
	repo_teardown();
	return 0;
}

const char *vercel_source(void)
{
	static char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/acme/widgets", git.port);
	return url;
}

const struct sbx_secret *vercel_secret(const char *value)
{
	size_t i = 0;

	while (i < SECRETS && more[i])
		i++;
	assert_true(i < SECRETS);
	setenv("VERCEL_TEST_MORE", value, 1);
	assert_int_equal(sbx_secret_take("VERCEL_TEST_MORE", &more[i]), 0);
	return more[i];
}

/* ---- a case ---- */

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

void vercel_provide(void)
{
	if (vercel_provider)
		vercel_provider->impl->destroy(vercel_provider);
	vercel_provider = NULL;
	error = SBX_ERROR_INIT;
	if (sbx_vercel_provider(&vercel_config, &vercel_provider, &error) < 0)
		fail_msg("%s", error.text);
}

unsigned vercel_per_host;

int vercel_set_up(void **state)
{
	static char api[64], github[64];
	struct sbx_http_config config = {.backoff_ms = 1};

	(void)state;
	assert_int_equal(sbx_loop_create(&loop), 0);
	config.loop = loop;
	config.per_host = vercel_per_host;
	assert_int_equal(sbx_http_create(&config, &http), 0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
	snprintf(api, sizeof(api), "http://127.0.0.1:%d/api/", vercel.port);
	snprintf(github, sizeof(github), "http://127.0.0.1:%d", git.port);
	vercel_config = (struct sbx_vercel_config){
	        .http = http,
	        .loop = loop,
	        .token = key,
	        .team = VERCEL_TEAM,
	        .project = VERCEL_PROJECT,
	        .git_token = token,
	        .api_url = api,
	        .github_api = github,
	        .net = "host",
	        .pause_ms = 2,
	};
	vercel_provide();
	vercel_forget();
	return 0;
}

int vercel_tear_down(void **state)
{
	const char *left = vercel_control("living"), *wrong = vercel_control("violations");

	(void)state;
	vercel_tell("clear", "{}");
	vercel_error();
	vercel_provider->impl->destroy(vercel_provider);
	vercel_provider = NULL;
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	sbx_http_destroy(http);
	sbx_loop_destroy(loop);
	for (size_t i = 0; i < SECRETS; i++) {
		sbx_secret_free(more[i]);
		more[i] = NULL;
	}
	assert_string_equal(left, "");
	assert_string_equal(wrong, "");
	return 0;
}

/* ---- what the server is told and asked ---- */

static const char *talk(const char *method, const char *path, const char *body)
{
	static char answers[BUFFERS][8192];
	static unsigned next;
	char *to = answers[next++ % BUFFERS], url[512];
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_http_request req = {.op = "control",
	                               .method = method,
	                               .url = url,
	                               .body = {.data = body, .size = body ? strlen(body) : 0},
	                               .deadline_ms = DEADLINE_MS};

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/control/%s", vercel.port, path);
	if (sbx_http_perform(http, &req, NULL, &answer, &err) < 0)
		fail_msg("%s: %s", path, err.text);
	snprintf(to, sizeof(answers[0]), "%s", answer.body ? answer.body : "");
	sbx_http_answer_release(&answer);
	return to;
}

const char *vercel_control(const char *fmt, ...)
{
	char path[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	return talk("GET", path, NULL);
}

void vercel_tell(const char *word, const char *fmt, ...)
{
	char body[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(body, sizeof(body), fmt, ap);
	va_end(ap);
	talk("POST", word, body);
}

void vercel_fault(const char *op, const char *fault, const char *members)
{
	vercel_tell("fault", "{\"op\": \"%s\", \"fault\": \"%s\"%s}", op, fault, members);
}

int vercel_count(const char *op)
{
	return atoi(vercel_control("count/%s", op));
}

void vercel_forget(void)
{
	vercel_tell("reset", "{}");
}

/* ---- verbs ---- */

const char *vercel_name(void)
{
	static char name[64];
	static unsigned n;

	snprintf(name, sizeof(name), "sbx-%d-%u", (int)getpid(), n++);
	return name;
}

const char *vercel_name_of(const struct sbx_machine *m)
{
	return ((const struct vercel_machine *)m)->name;
}

const char *vercel_file(const struct sbx_machine *m, const char *name)
{
	static char paths[BUFFERS][512];
	static unsigned next;
	char *to = paths[next++ % BUFFERS];

	snprintf(to, sizeof(paths[0]), "%s/%s", m->workdir, name);
	return to;
}

struct sbx_error *vercel_error(void)
{
	if (strstr(error.text, "secret"))
		fail_msg("it has a secret: %s", error.text);
	return &error;
}

void vercel_said_to(int code, const char *text)
{
	assert_int_equal(vercel_error()->code, code);
	if (!strstr(error.text, text))
		fail_msg("\"%s\" has no \"%s\"", error.text, text);
}

int vercel_try_make(const char *name, const char *source, struct sbx_machine **ret)
{
	const struct sbx_machine_request req = {.name = name,
	                                        .label = VERCEL_LABEL_OF_TESTS,
	                                        .source = source,
	                                        .branch = source ? "work" : NULL};
	int r;

	error = SBX_ERROR_INIT;
	r = vercel_provider->impl->make(vercel_provider, &req, ret, NULL, &error);
	assert_int_equal(r, -error.code);
	vercel_error();
	return r;
}

struct sbx_machine *vercel_made(const char *source)
{
	struct sbx_machine *m;

	if (vercel_try_make(vercel_name(), source, &m) < 0)
		fail_msg("%s", error.text);
	return m;
}

void vercel_drop(struct sbx_machine *m)
{
	error = SBX_ERROR_INIT;
	if (vercel_provider->impl->unmake(vercel_provider, vercel_name_of(m), m->handle, NULL,
	                                  &error) < 0)
		fail_msg("%s", error.text);
	vercel_provider->impl->release(m);
}

static void land(struct vercel_flight *f, int code, const struct sbx_error *err)
{
	pthread_mutex_lock(&lock);
	if (code) {
		error = *err;
		assert_int_equal(err->code, -code);
	}
	f->code = code;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

static void run_done(struct sbx_machine_run *run, int code, char *out, size_t len,
                     const struct sbx_error *err)
{
	struct vercel_flight *f = run->data;

	assert_int_equal(out == NULL, code != 0);
	f->out = out;
	f->len = len;
	land(f, code, err);
}

static void put_done(struct sbx_machine_put *put, int code, const struct sbx_error *err)
{
	land(put->data, code, err);
}

void vercel_begin_run(struct sbx_machine *m, struct vercel_flight *f, const char *script)
{
	struct sbx_machine_run *run = &f->run;

	f->code = 1;
	error = SBX_ERROR_INIT;
	run->op = "run";
	run->script = script;
	run->script_len = strlen(script);
	run->deadline_ms = run->deadline_ms ? run->deadline_ms : DEADLINE_MS;
	run->answer_max = run->answer_max ? run->answer_max : 1 << 20;
	run->done = run_done;
	run->data = f;
	m->provider->impl->run(m, run);
}

void vercel_begin_put(struct sbx_machine *m, struct vercel_flight *f)
{
	struct sbx_machine_put *put = &f->put;

	f->code = 1;
	error = SBX_ERROR_INIT;
	put->op = "put";
	put->deadline_ms = put->deadline_ms ? put->deadline_ms : DEADLINE_MS;
	put->done = put_done;
	put->data = f;
	m->provider->impl->put(m, put);
}

int vercel_await(struct vercel_flight *f)
{
	pthread_mutex_lock(&lock);
	while (f->code == 1)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
	vercel_error();
	return f->code;
}

int vercel_try_run(struct sbx_machine *m, struct sbx_machine_run *run, const char *script,
                   char **out)
{
	struct vercel_flight f = {.run = *run};

	vercel_begin_run(m, &f, script);
	vercel_await(&f);
	*out = f.out;
	return f.code;
}

int vercel_tries(struct sbx_machine *m, const char *script, bool safe)
{
	_cleanup_free_ char *out = NULL;

	return vercel_try_run(m, &(struct sbx_machine_run){.safe = safe}, script, &out);
}

void vercel_runs(struct sbx_machine *m, const char *script, const char *want)
{
	_cleanup_free_ char *out = NULL;

	if (vercel_try_run(m, &(struct sbx_machine_run){.safe = false}, script, &out) < 0)
		fail_msg("%s", error.text);
	assert_string_equal(out, want);
}
