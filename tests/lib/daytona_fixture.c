#include "tests/lib/daytona_fixture.h"

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

#include "sandboxfs/cleanup.h"
#include "sandboxfs/http.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "sandboxfs/secret.h"
#include "tests/lib/python_server.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

#define DEADLINE_MS 20000
#define BUFFERS     8

static struct python_server git, daytona;
static struct sbx_secret *key, *token;
static struct sbx_loop *loop;
static pthread_t loop_thread;
static struct sbx_http *http;
static struct sbx_pool *pool;
static struct sbx_error error;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
struct sbx_daytona_config daytona_config;
struct sbx_provider *daytona_provider;

bool daytona_is_new(void)
{
	const char *era = getenv("DAYTONA_ERA");

	return era && strcmp(era, "new") == 0;
}

/* ---- servers ---- */

const char *daytona_repository(void)
{
	return scratch_path("remote/git/acme/widgets.git");
}

static void make_repository(void)
{
	char work[256], bare[256], command[2048];

	snprintf(work, sizeof(work), "%s", scratch_path("work"));
	snprintf(bare, sizeof(bare), "%s", daytona_repository());
	repo_init(work, false);
	scratch_write(scratch_path("work/README.md"), "hello\n");
	repo_commit(work, "one");
	snprintf(command, sizeof(command),
	         "git -C %s branch -q -M trunk && git -C %s branch -q other && "
	         "git clone -q --bare %s %s && git -C %s config http.receivepack true",
	         work, work, work, bare, bare);
	assert_int_equal(system(command), 0);
}

int daytona_servers_start(void **state)
{
	char git_program[] = SBX_TESTS "/lib/git_http.py";
	char daytona_program[] = SBX_TESTS "/lib/daytona_server.py";
	char remote[512], boxes[512], era[16];
	char git_token[] = DAYTONA_TOKEN, api_key[] = DAYTONA_KEY;

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
	snprintf(era, sizeof(era), "%s", daytona_is_new() ? "new" : "v0.190");
	python_server_start(&git, git_program, (const char *[]){remote, git_token, NULL});
	python_server_start(&daytona, daytona_program, (const char *[]){boxes, api_key, era, NULL});
	setenv("DAYTONA_TEST_KEY", DAYTONA_KEY, 1);
	setenv("DAYTONA_TEST_TOKEN", DAYTONA_TOKEN, 1);
	assert_int_equal(sbx_secret_take("DAYTONA_TEST_KEY", &key), 0);
	return sbx_secret_take("DAYTONA_TEST_TOKEN", &token);
}

int daytona_servers_stop(void **state)
{
	(void)state;
	sbx_secret_free(key);
	sbx_secret_free(token);
	python_server_stop(&daytona);
	python_server_stop(&git);
	scratch_remove();
	repo_teardown();
	return 0;
}

const char *daytona_source(void)
{
	static char url[64];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/acme/widgets", git.port);
	return url;
}

/* ---- a case ---- */

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

void daytona_provide(void)
{
	if (daytona_provider)
		daytona_provider->impl->destroy(daytona_provider);
	daytona_provider = NULL;
	error = SBX_ERROR_INIT;
	if (sbx_daytona_provider(&daytona_config, &daytona_provider, &error) < 0)
		fail_msg("%s", error.text);
}

unsigned daytona_per_host;

int daytona_set_up(void **state)
{
	static char api[64], github[64];
	const struct sbx_http_config config = {.backoff_ms = 1};
	struct sbx_http_config own = config;

	(void)state;
	assert_int_equal(sbx_loop_create(&loop), 0);
	own.loop = loop;
	own.per_host = daytona_per_host;
	assert_int_equal(sbx_http_create(&own, &http), 0);
	assert_int_equal(sbx_pool_create_wide(64, false, &pool), 0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
	snprintf(api, sizeof(api), "http://127.0.0.1:%d/api/", daytona.port);
	snprintf(github, sizeof(github), "http://127.0.0.1:%d", git.port);
	daytona_config = (struct sbx_daytona_config){
	        .http = http,
	        .loop = loop,
	        .pool = pool,
	        .key = key,
	        .git_token = token,
	        .api_url = api,
	        .github_api = github,
	        .target = "us",
	        .net = "host",
	        .idle_min = SBX_DAYTONA_IDLE_MIN,
	        .pause_ms = 2,
	};
	daytona_provide();
	daytona_forget();
	return 0;
}

int daytona_tear_down(void **state)
{
	const char *left = daytona_control("living"), *wrong = daytona_control("violations");

	(void)state;
	daytona_tell("clear", "{}");
	daytona_error();
	sbx_pool_destroy(pool);
	daytona_provider->impl->destroy(daytona_provider);
	daytona_provider = NULL;
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	sbx_http_destroy(http);
	sbx_loop_destroy(loop);
	assert_string_equal(left, "");
	assert_string_equal(wrong, "");
	return 0;
}

/* ---- what the server is told and asked ---- */

static const char *talk(const char *method, const char *path, const char *body)
{
	static char answers[BUFFERS][4096];
	static unsigned next;
	char *to = answers[next++ % BUFFERS], url[512];
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_http_request req = {.op = "control",
	                               .method = method,
	                               .url = url,
	                               .body = {.data = body, .size = body ? strlen(body) : 0},
	                               .deadline_ms = DEADLINE_MS};

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/control/%s", daytona.port, path);
	if (sbx_http_perform(http, &req, NULL, &answer, &err) < 0)
		fail_msg("%s: %s", path, err.text);
	snprintf(to, sizeof(answers[0]), "%s", answer.body ? answer.body : "");
	sbx_http_answer_release(&answer);
	return to;
}

const char *daytona_control(const char *fmt, ...)
{
	char path[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	return talk("GET", path, NULL);
}

void daytona_tell(const char *word, const char *fmt, ...)
{
	char body[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(body, sizeof(body), fmt, ap);
	va_end(ap);
	talk("POST", word, body);
}

int daytona_count(const char *op)
{
	return atoi(daytona_control("count/%s", op));
}

void daytona_forget(void)
{
	daytona_tell("reset", "{}");
}

/* ---- verbs ---- */

const char *daytona_name(void)
{
	static char name[32];
	static unsigned n;

	snprintf(name, sizeof(name), "sbx-%d-%u", (int)getpid(), n++);
	return name;
}

struct sbx_error *daytona_error(void)
{
	if (strstr(error.text, "secret"))
		fail_msg("it has a secret: %s", error.text);
	return &error;
}

int daytona_try_make(const char *name, const char *source, struct sbx_machine **ret)
{
	const struct sbx_machine_request req = {.name = name,
	                                        .label = DAYTONA_LABEL_OF_TESTS,
	                                        .source = source,
	                                        .branch = source ? "work" : NULL};
	int r;

	error = SBX_ERROR_INIT;
	r = daytona_provider->impl->make(daytona_provider, &req, ret, NULL, &error);
	assert_int_equal(r, -error.code);
	daytona_error();
	return r;
}

struct sbx_machine *daytona_made(const char *source)
{
	struct sbx_machine *m;

	if (daytona_try_make(daytona_name(), source, &m) < 0)
		fail_msg("%s", error.text);
	return m;
}

void daytona_drop(struct sbx_machine *m)
{
	error = SBX_ERROR_INIT;
	if (daytona_provider->impl->unmake(daytona_provider, "none", m->handle, NULL, &error) < 0)
		fail_msg("%s", error.text);
	daytona_provider->impl->release(m);
}

static void land(struct daytona_flight *f, int code, const struct sbx_error *err)
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
	struct daytona_flight *f = run->data;

	assert_int_equal(out == NULL, code != 0);
	f->out = out;
	f->len = len;
	land(f, code, err);
}

static void put_done(struct sbx_machine_put *put, int code, const struct sbx_error *err)
{
	land(put->data, code, err);
}

void daytona_begin_run(struct sbx_machine *m, struct daytona_flight *f, const char *script)
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

void daytona_begin_put(struct sbx_machine *m, struct daytona_flight *f)
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

int daytona_await(struct daytona_flight *f)
{
	pthread_mutex_lock(&lock);
	while (f->code == 1)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
	daytona_error();
	return f->code;
}

int daytona_try_run(struct sbx_machine *m, struct sbx_machine_run *run, const char *script,
                    char **out)
{
	struct daytona_flight f = {.run = *run};

	daytona_begin_run(m, &f, script);
	daytona_await(&f);
	*out = f.out;
	return f.code;
}

void daytona_runs(struct sbx_machine *m, const char *script, const char *want)
{
	_cleanup_free_ char *out = NULL;

	if (daytona_try_run(m, &(struct sbx_machine_run){.safe = false}, script, &out) < 0)
		fail_msg("%s", error.text);
	assert_string_equal(out, want);
}
