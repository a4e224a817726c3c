/*
 * The provider for Dagger against an engine, as its environment names it: makes a machine of a
 * repository of this host, uses it, and forgets it. Prints TAP.
 *
 *   dagger REPOSITORY ROOM
 *
 * The repository has the file README.md; ROOM is an empty directory.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/dagger/dagger.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/secret.h"

#define LABEL "sandboxfs-real-test"

static struct sbx_loop *loop;
static struct sbx_provider *provider;
static struct sbx_machine *machine;
static struct sbx_error error;
static char name[64], state[512], out[512];
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

static void run_done(struct sbx_machine_run *run, int r, char *text, size_t len,
                     const struct sbx_error *err)
{
	(void)run;
	(void)len;
	output = text;
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

static struct sbx_machine_run begin(const char *script, uint64_t deadline_ms)
{
	struct sbx_machine_run run = {.op = "run",
	                              .script = script,
	                              .script_len = strlen(script),
	                              .deadline_ms = deadline_ms,
	                              .answer_max = 32 << 20,
	                              .done = run_done};

	code = 1;
	return run;
}

/* Whether SCRIPT writes WANT. */
static bool runs(const char *script, const char *want)
{
	struct sbx_machine_run run = begin(script, 60000);
	bool same;

	provider->impl->run(machine, &run);
	same = await() == 0 && strcmp(output, want) == 0;
	if (!code && !same)
		sbx_fail(&error, EPROTO, "it wrote %.900s", output);
	if (!code)
		free(output);
	return same;
}

static bool ends_late(const char *script)
{
	struct sbx_machine_run run = begin(script, 3000);

	provider->impl->run(machine, &run);
	return await() == -ETIMEDOUT;
}

static bool writes_much(void)
{
	struct sbx_machine_run run =
	        begin("head -c 12000000 /dev/urandom | base64 | tr -d '\\n'", 120000);
	bool whole;

	provider->impl->run(machine, &run);
	whole = await() == 0 && strlen(output) == 16000000;
	if (!code)
		free(output);
	return whole;
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
	provider->impl->put(machine, &put);
	snprintf(script, sizeof(script), "od -An -tx1 '%s/in/1' | tail -n 1; rm '%s/in/1'",
	         machine->room, machine->room);
	return await() == 0 && runs(script, " 00 ff\n");
}

static bool is(enum sbx_machine_state wanted)
{
	struct sbx_machine_look look;

	return provider->impl->look(machine, &look, NULL, &error) == 0 && look.state == wanted;
}

static bool exports(void)
{
	char path[600], text[16] = "";
	FILE *f;

	if (sbx_dagger_export(machine, "/work", out, false, NULL, &error))
		return false;
	snprintf(path, sizeof(path), "%s/made", out);
	f = fopen(path, "r");
	if (f) {
		(void)!fgets(text, sizeof(text), f);
		fclose(f);
	}
	return strcmp(text, "1\n") == 0;
}

/* A later daemon has nothing but the state directory. */
static bool is_adopted(void)
{
	provider->impl->release(machine);
	machine = NULL;
	return provider->impl->adopt(provider, name, &machine, &error) == 0;
}

static void all(const char *repository)
{
	struct sbx_error err;

	claim("a machine is made of a repository, on its branch", makes(repository));
	if (!machine)
		return;
	claim("it has the files", runs("cd /work && ls README.md && cat .git/HEAD",
	                               "README.md\nref: refs/heads/test-harness\n"));
	claim("it is up", is(SBX_MACHINE_UP));
	claim("a script ends by any code, and its changes are there",
	      runs("echo 1 >/work/made; echo out; echo err >&2; exit 150", "out\n"));
	claim("or by a signal", runs("echo 2 >/work/signal; kill -9 $$", "") &&
	                                runs("cat /work/made /work/signal", "1\n2\n"));
	claim("the same script runs again",
	      runs("date +%N >/work/now", "") && runs("cp /work/now /work/then", "") &&
	              runs("date +%N >/work/now", "") &&
	              runs("cmp -s /work/now /work/then || echo differ", "differ\n"));
	claim("a script has any bytes",
	      runs("printf '\xff\xc3\xa9%s' \"%\\\\\" | od -An -tx1", " ff c3 a9 25 5c\n"));
	claim("variables of the engine are not seen",
	      runs("env | grep -E '^(OTEL_|SANDBOXFS_|TRACEPARENT|BAGGAGE)' || echo none",
	           "none\n"));
	claim("an output may be long", writes_much());
	claim("a file is put", puts_file());
	claim("a script that takes too long has changed nothing",
	      ends_late("echo lost >/work/lost; sleep 60") &&
	              runs("ls /work/lost || echo none", "none\n"));
	claim("a directory is exported", exports());
	claim("it is adopted", is_adopted() && is(SBX_MACHINE_UP) && runs("cat /work/made", "1\n"));
	if (!machine)
		return;
	claim("it is saved", provider->impl->save(machine, NULL, &error) == 0);
	provider->impl->release(machine);
	claim("it is forgotten",
	      provider->impl->unmake(provider, name, NULL, NULL, &error) == 0 &&
	              provider->impl->adopt(provider, name, &machine, &err) == -ESTALE);
}

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static struct sbx_dagger_config settings(struct sbx_secret **token)
{
	sbx_secret_take("DAGGER_SESSION_TOKEN", token);
	return (struct sbx_dagger_config){.loop = loop,
	                                  .token = *token,
	                                  .port = getenv("DAGGER_SESSION_PORT"),
	                                  .image = getenv("DAGGER_IMAGE"),
	                                  .state_dir = state};
}

int main(int argc, char **argv)
{
	struct sbx_http_config http_config = {0};
	struct sbx_secret *token = NULL;
	struct sbx_dagger_config config;
	struct sbx_http *http;
	pthread_t thread;

	if (argc != 3)
		return 99;
	setvbuf(stdout, NULL, _IOLBF, 0);
	snprintf(name, sizeof(name), "sbx-real-%llx", (unsigned long long)sbx_real_ms());
	snprintf(state, sizeof(state), "%s/state", argv[2]);
	snprintf(out, sizeof(out), "%s/out", argv[2]);
	if (mkdir(state, 0700) < 0 || sbx_loop_create(&loop))
		return 99;
	http_config.loop = loop;
	config = settings(&token);
	if (sbx_http_create(&http_config, &http) || pthread_create(&thread, NULL, run_loop, loop))
		return 99;
	config.http = http;
	if (sbx_dagger_provider(&config, &provider, &error))
		claim("the settings can be used", false);
	else
		all(argv[1]);
	sbx_loop_stop(loop);
	pthread_join(thread, NULL);
	sbx_http_destroy(http);
	if (provider)
		provider->impl->destroy(provider);
	sbx_loop_destroy(loop);
	sbx_secret_free(token);
	printf("1..%d\n", claims);
	return failures != 0;
}
