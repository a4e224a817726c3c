/*
 * The provider for Daytona against a service, as its environment names it: makes a sandbox of a
 * repository, uses it, and removes it. Prints TAP.
 *
 *   daytona REPOSITORY
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/daytona/daytona.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "sandboxfs/secret.h"

#define LABEL "sandboxfs-real-test"

static struct sbx_loop *loop;
static struct sbx_provider *provider;
static struct sbx_machine *machine;
static struct sbx_error error;
static char name[64];
static int claims, failures;

/* ---- awaited requests ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static int code;
static char *output;

static void land(int r, const struct sbx_error *err)
{
	pthread_mutex_lock(&lock);
	error = *err;
	code = r;
	pthread_cond_signal(&ended);
	pthread_mutex_unlock(&lock);
}

static void run_done(struct sbx_machine_run *run, int r, char *out, size_t len,
                     const struct sbx_error *err)
{
	(void)run;
	(void)len;
	output = out;
	land(r, err);
}

static void put_done(struct sbx_machine_put *put, int r, const struct sbx_error *err)
{
	(void)put;
	land(r, err);
}

static int await(void)
{
	pthread_mutex_lock(&lock);
	while (code > 0)
		pthread_cond_wait(&ended, &lock);
	pthread_mutex_unlock(&lock);
	return code;
}

/* ---- claims ---- */

static void claim(const char *text, bool holds)
{
	printf("%s %d - %s\n", holds ? "ok" : "not ok", ++claims, text);
	if (!holds)
		printf("# %s\n", error.text);
	failures += !holds;
	error = SBX_ERROR_INIT;
}

static bool makes(const char *source)
{
	const struct sbx_machine_request req = {
	        .name = name, .label = LABEL, .source = source, .branch = "test-harness"};

	return provider->impl->make(provider, &req, &machine, NULL, &error) == 0;
}

/* Whether SCRIPT, with the tree before it, writes WANT. */
static bool runs(const char *script, const char *want)
{
	char text[4096];
	struct sbx_machine_run run = {.op = "run",
	                              .script = text,
	                              .deadline_ms = 60000,
	                              .answer_max = 1 << 20,
	                              .done = run_done};
	bool same;

	snprintf(text, sizeof(text), "cd '%s' && %s", machine->workdir, script);
	run.script_len = strlen(text);
	code = 1;
	machine->provider->impl->run(machine, &run);
	same = await() == 0 && strcmp(output, want) == 0;
	if (!code && !same)
		sbx_fail(&error, EPROTO, "it wrote %s", output);
	if (!code)
		free(output);
	return same;
}

static bool puts_file(void)
{
	static const char bytes[] = "integration test\0\xff";
	const struct sbx_machine_file file = {.number = 1,
	                                      .bytes = {.data = bytes, .size = sizeof(bytes) - 1}};
	struct sbx_machine_put put = {
	        .op = "put", .files = &file, .n = 1, .deadline_ms = 60000, .done = put_done};
	char script[1024];

	code = 1;
	machine->provider->impl->put(machine, &put);
	snprintf(script, sizeof(script), "od -An -c '%s/in/1' | tail -n 1", machine->room);
	return await() == 0 && runs(script, "  \\0 377\n");
}

static bool is(enum sbx_machine_state state)
{
	struct sbx_machine_look look;

	return provider->impl->look(machine, &look, NULL, &error) == 0 && look.state == state;
}

static int take(const char *its_name, const char *handle, int64_t made_ms, void *data)
{
	(void)handle;
	(void)made_ms;
	*(bool *)data |= strcmp(its_name, name) == 0;
	return 0;
}

/* A list may be behind for some seconds. */
static bool is_found(void)
{
	bool found = false;

	for (int i = 0; i < 20 && !found; i++) {
		if (i)
			sleep(1);
		if (provider->impl->find(provider, LABEL, take, &found, &error) < 0)
			return false;
	}
	return found;
}

static bool is_removed(void)
{
	return provider->impl->unmake(provider, name, machine->handle, NULL, &error) == 0;
}

/* ---- all of it ---- */

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static void use(void)
{
	claim("it is up", is(SBX_MACHINE_UP));
	claim("its branch is checked out", runs("git symbolic-ref --short HEAD", "test-harness\n"));
	claim("a command runs in the repository", runs("echo hello; echo err >&2", "hello\nerr\n"));
	claim("a name that is no UTF-8 comes through",
	      runs(": >'a\xff' && printf %s a* | od -An -tx1; rm a*", " 61 ff\n"));
	claim("a file is put", puts_file());
	claim("it is kept by use", provider->impl->touch(machine, NULL, &error) == 0);
	claim("it is found by its label", is_found());
}

static void scenario(const char *source)
{
	const bool made = makes(source);

	claim("a sandbox is made of the repository", made);
	if (!made)
		return;
	use();
	claim("it is removed", is_removed());
	claim("it is gone", is(SBX_MACHINE_GONE));
	claim("it is removed once more", is_removed());
	provider->impl->release(machine);
}

int main(int argc, char **argv)
{
	struct sbx_daytona_config config = {.net = "host", .snapshot = NULL};
	struct sbx_secret *key = NULL, *token = NULL;
	struct sbx_http *http;
	struct sbx_pool *pool;
	pthread_t thread;

	snprintf(name, sizeof(name), "sbx-real-%lld-%d", (long long)sbx_real_ms(), (int)getpid());
	if (argc != 2 || sbx_secret_take("DAYTONA_API_KEY", &key) < 0 ||
	    sbx_secret_take("GITHUB_TOKEN", &token) < 0 || sbx_loop_create(&loop) < 0 ||
	    sbx_http_create(&(struct sbx_http_config){.loop = loop}, &http) < 0 ||
	    sbx_pool_create_wide(8, false, &pool) < 0 ||
	    pthread_create(&thread, NULL, run_loop, loop) != 0)
		return 99;
	sbx_daytona_environment(&config);
	config.http = http;
	config.loop = loop;
	config.pool = pool;
	config.key = key;
	config.git_token = token;
	claim("there is a provider", sbx_daytona_provider(&config, &provider, &error) == 0);
	if (!failures)
		scenario(argv[1]);
	printf("1..%d\n", claims);
	sbx_pool_destroy(pool);
	if (provider)
		provider->impl->destroy(provider);
	sbx_loop_stop(loop);
	pthread_join(thread, NULL);
	sbx_http_destroy(http);
	sbx_loop_destroy(loop);
	sbx_secret_free(key);
	sbx_secret_free(token);
	return failures > 0;
}
